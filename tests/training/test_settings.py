"""Rules: settings that make no sense are refused by name, and one of a reader's own trains buffers alone."""

import pytest
import torch

import gilib
from gilib import training
from gilib.objectives import SteppedTempering
from gilib.training import SGHMC, CosineDecay, PiecewiseConstant, Speed
from tests.support import D, assert_equal, seeded
from tests.support.rules import SD, MovingAverages, averaged
from tests.support.trainings import N, R, X, Y, fit

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


NOISE, SOLUTION = gilib.Gaussian(0.3), torch.linalg.lstsq(X[0], Y[0]).solution


def mean(net):
    return next(iter(net.layers)).mean


def test_buffers_reach_the_least_squares_solution():
    """In the full batch from the first step on; the trace holds the bound before each step."""
    net = averaged()
    assert not list(net.parameters())
    history = fit(net, NOISE, rule=MovingAverages(ridge=0.0))
    assert_equal(mean(net), SOLUTION, 1e-10)
    generator = seeded()
    for step, weights in enumerate([torch.zeros_like(SOLUTION), SOLUTION]):
        noise = torch.randn(2, 4, generator=generator, dtype=D).unflatten(-1, (2, 2))
        outputs = X[0] @ (weights + SD * noise)
        expected = torch.distributions.Normal(outputs, 0.3**0.5).log_prob(Y[0]).sum((-2, -1)).mean() / N
        assert_equal(history.elbo[step], expected, 1e-10)


def test_its_own_numbers_are_not_those_of_the_draws():
    """The jitter of the means, [2, 2], would else repeat the first draw."""
    net = averaged()
    fit(net, NOISE, steps=1, rule=MovingAverages(jitter=1.0, ridge=0.0), seed=5)
    for offset in range(3):
        other = torch.randn(2, 2, generator=seeded(5 + offset), dtype=D)
        assert float((mean(net) - SOLUTION - other).abs().max()) > 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rule": gilib.Adam()}, "nothing to train"),
        ({"on_divergence": "freeze"}, "RunningAverages cannot leave out a replica"),
        ({"speed": Speed(replay=True)}, "needs a rule that can be recorded"),
        ({"rule": MovingAverages}, "rule must be"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(averaged((R,)), NOISE, X, Y, **({"rule": MovingAverages()} | settings))
