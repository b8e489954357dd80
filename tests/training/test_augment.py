"""Augmentation has a random stream of its own: it changes nothing else."""

from functools import partial

import pytest
import torch

import gilib
from tests.support import assert_equal, normals, seeded, small_net

R, N = 3, 12
SEEDS = [7, 1, 4]
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)


def shake(x, generator, size=0.1):
    return x + size * torch.randn(x.shape, generator=generator, dtype=x.dtype)


def look_away(x, generator):
    """Draw, and change nothing."""
    torch.rand(5, generator=generator)
    return x


def fit(net, x=X[0], y=Y[0], *, steps=8, **settings):
    settings = {"num_samples": 2, "progress": False, "augment": shake} | settings
    return gilib.fit(net, gilib.Gaussian(0.1), x, y, steps=steps, **settings)


def model(**settings):
    return small_net(gilib.GlobalInducing(), **settings)


def assert_same(net, twin):
    assert all(torch.equal(p, q) for p, q in zip(net.parameters(), twin.parameters(), strict=True))


def test_the_loop_trains_on_augmented_inputs():
    """The same numbers as a loop written plainly, with a stream seeded two above the draws."""
    net, plain, likelihood = model(), model(), gilib.Gaussian(0.1)
    history = fit(net, seed=5, rule=gilib.Adam(0.03))
    optimiser = torch.optim.Adam(plain.parameters(), lr=0.03)
    noise, stream, trace = seeded(5), seeded(7), []
    for _ in range(8):
        draw = plain.draw(2, generator=noise)
        loss = -gilib.elbo(draw, likelihood, shake(X[0], stream), Y[0], num_data=N) / N
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        trace.append(-loss.detach())
    assert_equal(history.elbo, torch.stack(trace), 1e-10)
    for p, q in zip(net.parameters(), plain.parameters(), strict=True):
        assert_equal(p.detach(), q.detach(), 1e-10)


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


@pytest.mark.parametrize("other", [None, partial(shake, size=0.3)])
def test_a_checkpoint_with_another_augmentation_is_refused(other, tmp_path):
    path = tmp_path / "checkpoint.pt"
    fit(model(), checkpoint=path, augment=partial(shake, size=0.2))
    with pytest.raises(gilib.persistence.CheckpointError, match="another model, data set or setting"):
        fit(model(), checkpoint=path, augment=other)
    assert fit(model(), checkpoint=path, augment=partial(shake, size=0.2)).resumed_at == 8


class Shift:
    """An augmentation that is an object."""

    def __call__(self, x, generator):
        return x + 1.0


def test_an_object_is_known_by_its_class(tmp_path):
    path = tmp_path / "checkpoint.pt"
    fit(model(), checkpoint=path, augment=Shift())
    assert fit(model(), checkpoint=path, augment=Shift()).resumed_at == 8


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
