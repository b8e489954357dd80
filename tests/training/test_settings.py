"""Settings of rules, schedules and callbacks that make no sense are refused by name."""

import pytest
import torch

import gilib
from gilib import training
from gilib.objectives import SteppedTempering
from gilib.training import SGHMC, CosineDecay, PiecewiseConstant, Speed

POSITIVE = {  # settings that must be above zero
    gilib.Adam: ("eps", "lr"),
    training.Bali: ("lr", "update_rate"),
    training.Collapsed: ("tolerance",),
    training.NaturalGradient: ("lr",),
    training.VOGN: ("lr",),
    training.NoisyAdam: ("damping",),
    training.NoisyKFAC: ("decay", "damping", "lr"),
    SGHMC: ("lr", "momentum_decay"),
    training.ExponentialDecay: ("rate",),
    SteppedTempering: ("last",),
}
COUNTS = {  # whole numbers of at least one, or of at least zero
    SGHMC: {"window": 1, "burn_in": 0, "adaptation": 0},
    training.ExponentialDecay: {"every": 1},
    training.Plateau: {"every": 1, "patience": 1},
    training.FallingStrips: {"every": 1, "strips": 1},
    training.StoredStates: {"burn_in": 0, "every": 1},
    training.EarlyStopping: {"every": 1, "patience": 1, "num_samples": 1, "seed": 0},
    SteppedTempering: {"steps": 0, "stairs": 1},
}
VALUES = [
    *(
        (kind, {name: 0.0}, f"{name} must be a positive")
        for kind, names in POSITIVE.items()
        for name in names
    ),
    *(
        (kind, {name: least - 1}, f"{name} must be an integer of at least {least}")
        for kind, counts in COUNTS.items()
        for name, least in counts.items()
    ),
    *((CosineDecay, {name: -0.1}, f"{name} must be a number of at least 0") for name in ("start", "last")),
    (gilib.Adam, {"betas": (0.9, 1.0)}, r"betas\[1\] must be a number of at least 0"),
    (gilib.Adam, {"lr": [0.1, -1.0, 0.1]}, r"lr\[1\] must be a positive finite number, got -1.0"),
    (training.Bali, {"update_rate": 1.5}, r"update_rate must be at most 1, .*, got 1\.5"),
    (training.Bali, {"prior": "flat"}, "unknown prior 'flat': choose one of 'absolute', 'relative'"),
    (training.NaturalGradient, {"lr": 1.5}, "lr of natural gradients must be at most 1"),
    (training.IVON, {"betas": (0.9, 1.0)}, r"betas\[1\] must be"),
    (training.IVON, {"betas": (0.9,)}, "betas must be 2 values"),
    (training.NoisyKFAC, {"decay": 1.5}, "decay must be at most 1"),
    (SGHMC, {"burn_in": 9, "momentum_decay": 1.1}, "momentum_decay must be at most 1, .*, got 1.1"),
    (SGHMC, {"burn_in": 9, "adaptation": 10}, "adaptation is a part of burn-in, so at most 9 steps, got 10"),
    (training.LinearDecay, {"start": 1.0}, "start must be a number of at least 0 and below 1, got 1.0"),
    (PiecewiseConstant, {"boundaries": (5, 5), "factors": (1.0, 0.5, 0.1)}, "boundaries must rise"),
    (PiecewiseConstant, {"boundaries": (5,), "factors": (1.0,)}, "1 boundaries need 2 factors, got 1"),
    (PiecewiseConstant, {"boundaries": (0,), "factors": (1.0, 0.5)}, r"boundaries\[0\] must be an integer"),
    (PiecewiseConstant, {"boundaries": (5,), "factors": (1.0, 0.0)}, r"factors\[1\] must be a positive"),
    (Speed, {"arithmetic": "half"}, "unknown arithmetic 'half': choose one of 'full', 'tf32', 'bfloat16'"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), VALUES)
def test_what_makes_no_sense(kind, settings, message):
    """Of another kind than annotations say: see `tests/refusals`."""
    with pytest.raises(ValueError, match=message):
        kind(**settings)


def test_things_of_another_kind():
    with pytest.raises(TypeError, match=r"schedule must be an instance: write LinearDecay\(\)"):
        gilib.Adam(schedule=training.LinearDecay)
    with pytest.raises(TypeError, match="likelihood must be"):
        training.EarlyStopping(1.0, torch.ones(3, 2), torch.ones(3, 2))
