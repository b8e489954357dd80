"""The engine: everything in training that does not depend on the rule.

`loop` holds `fit`. `run` holds one training in progress: its noise, its record of bounds, and what happens
when it diverges. `minibatches` chooses and augments the data of a step, `settings` and `checks` reject bad
arguments before any work starts, and `checkpoints` writes and reads states.
"""
