"""Rules: what a step of training does with the bound and its gradients.

`base` says what a rule is: `Rule`, its settings; `RunningRule`, the rule at work; `Problem`, what it trains.

- Of point estimates of the variational parameters: `adam` (its steps are in `optimiser`) and `natural`.
- Of weights that are sampled, one draw a step: `variational` (VOGN, Vadam, noisy Adam, IVON) and `kfac`
  (noisy K-FAC), which share `sampled_weight_rule`.
- Of averages in closed form, layer by layer: `bali`, whose algebra is `gilib.regression.joint`.
- Of a Gaussian process's best bound: `collapsed`.
- Of chains: `sghmc`.
"""
