"""L-BFGS on bounds of sparse Gaussian processes whose posterior is the best one, in closed form."""

from gilib.training.rules.collapsed.rule import Collapsed, solve_posterior

__all__ = ["Collapsed", "solve_posterior"]
