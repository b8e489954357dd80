"""Training: one loop for one network or for many replicas of it at once, and the rules of its steps."""

from gilib.training.adam import Adam
from gilib.training.bali import Bali
from gilib.training.checks import check_data
from gilib.training.collapsed import Collapsed, settle
from gilib.training.history import History, Trend
from gilib.training.kept import KeptStates
from gilib.training.kfac import NoisyKFAC
from gilib.training.loop import fit
from gilib.training.natural import NaturalGradient
from gilib.training.objective import Batch, Objective
from gilib.training.optimiser import ReplicaAdam
from gilib.training.parallel import DataParallel
from gilib.training.rule import Problem, Rule, RunningRule
from gilib.training.run import DivergenceError, Paused
from gilib.training.schedules import CosineDecay, ExponentialDecay, LinearDecay, PiecewiseConstant, Schedule
from gilib.training.settings import Checkpoint
from gilib.training.sghmc import SGHMC
from gilib.training.speed import Speed
from gilib.training.stopping import Callback, FallingStrips, Plateau
from gilib.training.variational import IVON, VOGN, NoisyAdam, Vadam

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
    "ExponentialDecay",
    "FallingStrips",
    "History",
    "KeptStates",
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
    "settle",
]
