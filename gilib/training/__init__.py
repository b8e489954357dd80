"""Training: one loop, `fit`, for one network or many replicas of it, and the rules that define its steps."""

from gilib.training.callbacks import Callback, Plateau, StoredStates
from gilib.training.early_stopping import EarlyStopping
from gilib.training.engine.checks import check_data
from gilib.training.engine.loop import fit
from gilib.training.engine.run import DivergenceError, Paused
from gilib.training.engine.settings import Checkpoint
from gilib.training.gradients.objective import Batch, Objective
from gilib.training.gradients.parallel import DataParallel
from gilib.training.gradients.speed import Speed
from gilib.training.history import History, Trend
from gilib.training.rules.adam import Adam
from gilib.training.rules.bali import Bali
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.rules.collapsed import Collapsed, solve_posterior
from gilib.training.rules.kfac import NoisyKFAC
from gilib.training.rules.natural import NaturalGradient
from gilib.training.rules.optimiser import ReplicaAdam
from gilib.training.rules.sghmc import SGHMC
from gilib.training.rules.variational import IVON, VOGN, NoisyAdam, Vadam
from gilib.training.schedules import CosineDecay, ExponentialDecay, LinearDecay, PiecewiseConstant, Schedule

__all__ = [
    "IVON",
    "SGHMC",
    "VOGN",
    "Adam",
    "Bali",
    "Batch",
    "Callback",
    "Checkpoint",
    "Collapsed",
    "CosineDecay",
    "DataParallel",
    "DivergenceError",
    "EarlyStopping",
    "ExponentialDecay",
    "History",
    "StoredStates",
    "LinearDecay",
    "NaturalGradient",
    "NoisyAdam",
    "NoisyKFAC",
    "Objective",
    "Paused",
    "PiecewiseConstant",
    "Plateau",
    "Problem",
    "ReplicaAdam",
    "Rule",
    "RunningRule",
    "Schedule",
    "Speed",
    "Trend",
    "Vadam",
    "check_data",
    "fit",
    "solve_posterior",
]
