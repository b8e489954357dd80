"""Settings of rules, schedules and callbacks that make no sense are refused by name."""

import math

import pytest

import gilib
from gilib.training import (
    IVON,
    SGHMC,
    VOGN,
    Bali,
    Collapsed,
    CosineDecay,
    EarlyStopping,
    ExponentialDecay,
    FallingStrips,
    LinearDecay,
    NaturalGradient,
    NoisyAdam,
    NoisyKFAC,
    PiecewiseConstant,
    Plateau,
    Speed,
    StoredStates,
    Vadam,
)
from tests.support import normals

NOISE, X = gilib.Gaussian(1.0), normals(3, 2)
VALUES = [
    (gilib.Adam, {"betas": (0.9, 1.0)}, r"betas\[1\] must be a number of at least 0"),
    (gilib.Adam, {"eps": 0.0}, "eps must be a positive"),
    (gilib.Adam, {"lr": [0.1, -1.0, 0.1]}, r"lr\[1\] must be a positive finite number, got -1.0"),
    (gilib.Adam, {"groups": {"inducing": 0.0}}, r"groups\['inducing'\] must be a positive finite"),
    (Bali, {"lr": math.nan}, "lr must be a positive"),
    (Bali, {"update_rate": 0.0}, "update_rate must be a positive"),
    (Bali, {"update_rate": 1.5}, r"update_rate must be at most 1, .*, got 1\.5"),
    (Bali, {"prior": "flat"}, "unknown prior 'flat': choose one of 'absolute', 'relative'"),
    (Collapsed, {"tolerance": 0.0}, "tolerance must be a positive"),
    (NaturalGradient, {"lr": 0.0}, "lr must be a positive"),
    (NaturalGradient, {"lr": 1.5}, "lr of natural gradients must be at most 1"),
    (VOGN, {"lr": 0.0}, "lr must be a positive"),
    (IVON, {"betas": (0.9, 1.0)}, r"betas\[1\] must be"),
    (IVON, {"betas": (0.9,)}, "betas must be 2 values"),
    (NoisyAdam, {"damping": -1.0}, "damping must be a positive"),
    (NoisyKFAC, {"decay": 0.0}, "decay must be a positive"),
    (NoisyKFAC, {"decay": 1.5}, "decay must be at most 1"),
    (NoisyKFAC, {"damping": -1.0}, "damping must be a positive"),
    (NoisyKFAC, {"lr": 0.0}, "lr must be a positive"),
    (SGHMC, {"burn_in": -1}, "burn_in must be an integer of at least 0, got -1"),
    (SGHMC, {"burn_in": 9, "lr": 0.0}, "lr must be a positive"),
    (SGHMC, {"burn_in": 9, "momentum_decay": 0.0}, "momentum_decay must be a positive"),
    (SGHMC, {"burn_in": 9, "momentum_decay": 1.1}, "momentum_decay must be at most 1, .*, got 1.1"),
    (SGHMC, {"burn_in": 9, "window": 0}, "window must be an integer of at least 1"),
    (SGHMC, {"burn_in": 9, "adaptation": -1}, "adaptation must be an integer of at least 0"),
    (SGHMC, {"burn_in": 9, "adaptation": 10}, "adaptation is a part of burn-in, so at most 9 steps, got 10"),
    (LinearDecay, {"start": 1.0}, "start must be a number of at least 0 and below 1, got 1.0"),
    (CosineDecay, {"start": -0.1}, "start must be a number of at least 0 and below 1"),
    (CosineDecay, {"last": -0.1}, "last must be a number of at least 0 and below 1"),
    (PiecewiseConstant, {"boundaries": (5, 5), "factors": (1.0, 0.5, 0.1)}, "boundaries must rise"),
    (PiecewiseConstant, {"boundaries": (5,), "factors": (1.0,)}, "1 boundaries need 2 factors, got 1"),
    (PiecewiseConstant, {"boundaries": (0,), "factors": (1.0, 0.5)}, r"boundaries\[0\] must be an integer"),
    (PiecewiseConstant, {"boundaries": (5,), "factors": (1.0, 0.0)}, r"factors\[1\] must be a positive"),
    (ExponentialDecay, {"rate": 0.0, "every": 5}, "rate must be a positive"),
    (ExponentialDecay, {"rate": 0.5, "every": 0}, "every must be an integer"),
    (Plateau, {"every": 0}, "every must be an integer of at least 1"),
    (Plateau, {"patience": 0}, "patience must be an integer of at least 1"),
    (FallingStrips, {"score": len, "every": 0}, "every must be"),
    (FallingStrips, {"score": len, "strips": 0}, "strips must be"),
    (StoredStates, {"burn_in": -1}, "burn_in must be an integer"),
    (StoredStates, {"burn_in": 0, "every": 0}, "every must be an integer"),
    *(
        (EarlyStopping, {"likelihood": NOISE, "x": X, "y": X, name: 0}, f"{name} must be an integer of at")
        for name in ("every", "patience", "num_samples")
    ),
    (EarlyStopping, {"likelihood": NOISE, "x": X, "y": X, "seed": 1.5}, "seed must be an integer"),
    (Speed, {"arithmetic": "half"}, "unknown arithmetic 'half': choose one of 'full', 'tf32', 'bfloat16'"),
]
KINDS = [
    (gilib.Adam, {"schedule": lambda step, steps: 1.0}, "schedule must be a Schedule"),
    (gilib.Adam, {"schedule": LinearDecay}, r"write LinearDecay\(\)"),
    (Bali, {"schedule": 0.5}, "schedule must be"),
    (Bali, {"deterministic": "no"}, "deterministic must be a bool, got str"),
    (IVON, {"base_optimiser": IVON()}, "base_optimiser must be"),
    (Vadam, {"schedule": 0.5}, "schedule must be"),
    (SGHMC, {"burn_in": 9, "base_optimiser": NaturalGradient()}, "base_optimiser must be a Adam"),
    (EarlyStopping, {"likelihood": 1.0, "x": X, "y": X}, "likelihood must be"),
    (Speed, {"parallel": True}, "parallel must be a DataParallel, got bool"),
]


@pytest.mark.parametrize(("kind", "settings", "message"), [*VALUES, *KINDS])
def test_what_makes_no_sense(kind, settings, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        kind(**settings)
    assert caught.type is (TypeError if (kind, settings, message) in KINDS else ValueError)
