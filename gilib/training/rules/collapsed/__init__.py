"""L-BFGS on bounds of sparse processes under their best posteriors."""

from gilib.training.rules.collapsed.rule import Collapsed, solve_posterior

__all__ = ["Collapsed", "solve_posterior"]
