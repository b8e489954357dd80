"""L-BFGS on bounds of sparse processes under their best posteriors."""

from gilib.training.rules.collapsed.rule import Collapsed, settle

__all__ = ["Collapsed", "settle"]
