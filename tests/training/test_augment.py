"""Augmentation has a random stream of its own: it changes nothing else."""

import pytest
import torch

from tests.support.trainings import SEEDS, R, X, fit, model, same


def look_away(x, generator):
    """Draw, and change nothing."""
    torch.rand(5, generator=generator)
    return x


@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("seed", [3, SEEDS])
def test_drawing_moves_no_other_stream(seed, batch_size):
    shape = (R,) if isinstance(seed, list) else ()
    net, twin, state = model(shape), model(shape), torch.get_rng_state()
    history = fit(net, seed=seed, batch_size=batch_size, augment=look_away)
    without = fit(twin, seed=seed, batch_size=batch_size)
    assert torch.equal(history.elbo, without.elbo) and same(net, twin)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    ("augment", "error", "message"),
    [
        ("flip", TypeError, "augment must be a function of inputs and generator, got 'flip'"),
        (lambda x: x, TypeError, r"<lambda> at .* cannot be called as augment\(x, generator=.*'generator'"),
        (torch.neg, TypeError, r"cannot be called as augment\(x, generator=\.\.\.\): no signature"),
        (lambda x, generator: x[:1], ValueError, r"\[12, 2\] of torch.float64 on cpu, got \[1, 2\] of"),
        (lambda x, generator: x.float(), ValueError, r"got \[12, 2\] of torch.float32 on cpu"),
        (lambda x, generator: None, ValueError, "like those it was given, .*, got NoneType"),
        (lambda x, generator: x.add_(1.0), ValueError, "changed its inputs in place"),
    ],
)
def test_what_is_refused(augment, error, message):
    with pytest.raises(error, match=message):
        fit(model(), None, X[0].clone(), augment=augment)


def test_a_function_that_a_checkpoint_cannot_tell_from_another(tmp_path):
    with pytest.raises(TypeError, match="a checkpoint cannot tell augment="):
        fit(model(), checkpoint=tmp_path / "run", augment=lambda x, generator: x)
