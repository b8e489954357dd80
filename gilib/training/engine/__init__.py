"""The engine: everything in training that does not depend on the rule; `loop` holds `fit`."""
