"""A small problem for `gilib.fit`, of one network or of three replicas, that tests of training share."""

import torch

import gilib
from tests.support import normals, small_net

R, N, SEEDS = 3, 12, [7, 1, 4]
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)
LOST = gilib.persistence.CheckpointError


def model(replicas=(), posterior=gilib.GlobalInducing(), **settings):  # noqa: B008
    return small_net(posterior, replicas=replicas, **settings)


def fit(net, likelihood=None, x=X[0], y=Y[0], *, steps=4, **settings):
    likelihood = gilib.Gaussian(0.1) if likelihood is None else likelihood
    settings = {"num_samples": 2, "progress": False} | settings
    return gilib.fit(net, likelihood, x, y, steps=steps, **settings)


def shake(x, generator, size=0.1):
    """An augmentation."""
    return x + size * torch.randn(x.shape, generator=generator, dtype=x.dtype)


def stop_at(last):
    """A callback that stands for the power failing in the middle of a training."""

    def fail(step, bound, net):
        if step == last:
            raise KeyboardInterrupt

    return fail


def same(*modules):
    """Whether two modules, or lists of them, have the same parameters and buffers to the last bit."""
    ours, theirs = (torch.nn.ModuleList(own if isinstance(own, (list, tuple)) else [own]) for own in modules)
    state = theirs.state_dict()
    return all(torch.equal(value, state[name]) for name, value in ours.state_dict().items())
