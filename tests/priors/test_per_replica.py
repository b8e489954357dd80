"""Replicas with different priors in one program are networks with these priors."""

import pytest
import torch

import gilib
from gilib.priors import PerReplica
from tests.support import PRIORS, assert_equal, normals, small_net

NAMES = ("scale", "neal", "standard", "scale")
R = len(NAMES)
MIXED = PerReplica(tuple(PRIORS[name] for name in NAMES))
X, Y = normals(R, 6, 2, seed=1), normals(R, 6, 2, seed=2)
POSTERIORS = [gilib.GlobalInducing(precision="per_output"), gilib.Factorised()]


def single_noise(noise, single, joint):
    """The noise of one replica without the normals that its prior does not take, layer by layer."""
    parts, position = [], 0
    for mine, theirs in zip(single.layers, joint.layers, strict=True):
        own, theirs_own = (
            layer.hyperparameters.noise_size if layer.noise_size else 0 for layer in (mine, theirs)
        )
        parts.append(noise[..., position : position + own])
        parts.append(noise[..., position + theirs_own : position + theirs.noise_size])
        position += theirs.noise_size
    return torch.cat(parts, -1)


@pytest.mark.parametrize("posterior", POSTERIORS, ids=["gi", "fac"])
def test_bounds_and_gradients_together_and_one_by_one(posterior):
    joint, likelihood = small_net(posterior, MIXED, points=4, replicas=(R,)), gilib.Gaussian(0.2)
    noise = normals(2, R, joint.noise_size)
    bound = gilib.elbo(joint.draw(noise=noise), likelihood, X, Y, num_data=6)
    bound.sum().backward()
    for r, name in enumerate(NAMES):
        single = small_net(posterior, PRIORS[name], points=4)
        pairs = [
            (p, joint.get_parameter(key.replace(".hyperparameters.", ".hyperparameters.members.0.")))
            for key, p in single.named_parameters()
        ]
        for own, shared in pairs:
            own.data.copy_(shared.data[r])
        drawn = single.draw(noise=single_noise(noise[:, r], single, joint))
        alone = gilib.elbo(drawn, likelihood, X[r], Y[r], num_data=6)
        assert_equal(bound[r].detach(), alone.detach(), 1e-10)
        alone.backward()
        for own, shared in pairs:
            assert_equal(shared.grad[r], own.grad, 1e-9)


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"priors\[1\] must have one scale per layer, got SpatialIWPrior"):
        PerReplica((gilib.NealPrior(), gilib.SpatialIWPrior()))
    with pytest.raises(ValueError, match=r"4 priors for a network with replicas=\(4,\), this one has"):
        small_net(gilib.Factorised(), MIXED, replicas=(3,))
