"""Augmentation has a random stream of its own: it changes nothing else."""

from functools import partial

import numpy as np
import pytest
import torch

import gilib
from tests.support import normals, small_net

R, N = 3, 12
SEEDS = [7, 1, 4]
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)


def shake(x, generator, size=0.1):
    return x + size * torch.randn(x.shape, generator=generator, dtype=x.dtype)


def look_away(x, generator):
    """Draw, and change nothing."""
    torch.rand(5, generator=generator)
    return x


def fit(net, x=X[0], y=Y[0], *, steps=4, **settings):
    settings = {"num_samples": 2, "progress": False, "augment": shake} | settings
    return gilib.fit(net, gilib.Gaussian(0.1), x, y, steps=steps, **settings)


def model(**settings):
    return small_net(gilib.GlobalInducing(), **settings)


def assert_same(net, twin):
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), twin.parameters(), strict=True))


@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("seed", [3, SEEDS])
def test_drawing_moves_no_other_stream(seed, batch_size):
    shape = (R,) if isinstance(seed, list) else ()
    net, twin, state = model(replicas=shape), model(replicas=shape), torch.get_rng_state()
    history = fit(net, seed=seed, batch_size=batch_size, augment=look_away)
    without = fit(twin, seed=seed, batch_size=batch_size, augment=None)
    assert torch.equal(history.elbo, without.elbo)
    assert_same(net, twin)
    assert torch.equal(state, torch.get_rng_state())


def shift(by, x, generator):
    return x + torch.as_tensor(by)


class Shift:
    """An augmentation that is an object."""

    def __call__(self, x, generator):
        return x + 1.0


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (lambda: partial(shake, size=0.2), None),
        (lambda: partial(shake, size=0.2), partial(shake, size=0.3)),
        (lambda: partial(shift, torch.tensor([0.5, 1.0])), partial(shift, torch.tensor([0.5, 2.0]))),
        (lambda: partial(shift, np.array([0.5, 1.0])), partial(shift, np.array([0.5, 2.0]))),
        (Shift, shake),
    ],
)
def test_a_checkpoint_with_another_augmentation_is_refused(make, other, tmp_path):
    path = tmp_path / "checkpoint.pt"
    fit(model(), checkpoint=path, augment=make())
    with pytest.raises(gilib.persistence.CheckpointError, match="another model, data set or setting"):
        fit(model(), checkpoint=path, augment=other)
    assert fit(model(), checkpoint=path, augment=make()).resumed_at == 4
    with pytest.raises(TypeError, match="a checkpoint cannot tell augment="):
        fit(model(), checkpoint=path, augment=lambda x, generator: x)


def overwrite(x, generator):
    return x.add_(1.0)


@pytest.mark.parametrize(
    ("augment", "error", "message"),
    [
        ("flip", TypeError, "augment must be a function of inputs and generator, got 'flip'"),
        (lambda x: x, TypeError, r"<lambda> at .* cannot be called as augment\(x, generator=.*'generator'"),
        (torch.neg, TypeError, r"cannot be called as augment\(x, generator=\.\.\.\): no signature"),
        (lambda x, generator: x[:1], ValueError, r"\[12, 2\] of torch.float64 on cpu, got \[1, 2\] of"),
        (lambda x, generator: x.float(), ValueError, r"got \[12, 2\] of torch.float32 on cpu"),
        (lambda x, generator: None, ValueError, "like those it was given, .*, got NoneType"),
        (overwrite, ValueError, "changed its inputs in place"),
    ],
)
def test_what_is_refused(augment, error, message):
    with pytest.raises(error, match=message):
        fit(model(), X[0].clone(), augment=augment)
