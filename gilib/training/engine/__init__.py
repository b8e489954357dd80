"""The engine: all of training that does not depend on the rule.

`loop` holds `fit`; `run` is one training under way: minibatches (`minibatches`), noise, the trace,
divergence. `settings` and `checks` refuse what cannot work before anything starts; `checkpoints` writes and
reads states.
"""
