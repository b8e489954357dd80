"""Rules: what a training step does with the bound and its gradients.

`base` defines the interfaces. `adam` (with `optimiser`) and `natural` train variational parameters by
gradients; `variational` and `kfac`, which share `sampled_weight_rule`, move posteriors of sampled weights;
`bali` averages closed-form regressions; `collapsed` searches kernel and noise; `sghmc` is a Markov chain.
"""
