"""Rules: what a step of training does with the bound and its gradients.

`base` says what a rule is: `Rule`, its settings; `RunningRule`, the rule at work; `Problem`, what it trains.

- Of point estimates of the variational parameters: `adam` (its steps are in `optimiser`) and `natural`.
- Of weights that are sampled, one draw a step: `sampled_weight_rule`, which asks `weight_samples` for the
  gradients at the draw; `variational` (VOGN, Vadam, noisy Adam, IVON) and `kfac` (noisy K-FAC) are such
  rules.
- Of averages in closed form, layer by layer: `bali`, whose regressions are in `layerwise`.
- Of chains: `sghmc`.
"""
