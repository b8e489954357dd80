"""Training: one loop for one network or for many replicas of it at once."""

from gilib.training.checks import check_data
from gilib.training.loop import fit
from gilib.training.optimiser import ReplicaAdam
from gilib.training.parallel import DataParallel
from gilib.training.run import DivergenceError, History, Paused

__all__ = ["DataParallel", "DivergenceError", "History", "Paused", "ReplicaAdam", "check_data", "fit"]
