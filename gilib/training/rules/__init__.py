"""Rules: what a training step does with the bound and its gradients.

`base` defines the three interfaces: `Rule`, the settings; `RunningRule`, the rule at work on a network;
`Problem`, what it trains.

- Rules that train variational parameters by gradients: `adam` (its steps are in `optimiser`) and `natural`.
- Rules that sample weights and move their posterior, at one draw a step: `variational` (VOGN, Vadam, noisy
  Adam, IVON) and `kfac` (noisy K-FAC), which share `sampled_weight_rule`.
- A rule that averages closed-form regressions, layer by layer: `bali`; its algebra is in
  `gilib.regression.joint`.
- A rule that maximises the bound of a Gaussian process under its best posterior: `collapsed`.
- A rule that samples by a Markov chain: `sghmc`.
"""
