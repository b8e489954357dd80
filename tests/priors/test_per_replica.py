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
def test_three_steps_together_and_one_by_one(posterior):
    joint = small_net(posterior, MIXED, points=4, replicas=(R,))
    singles = [small_net(posterior, PRIORS[name], points=4) for name in NAMES]
    for r, single in enumerate(singles):
        for key, parameter in single.named_parameters():
            where = key.replace(".hyperparameters.", ".hyperparameters.members.0.")
            parameter.data.copy_(joint.get_parameter(where).data[r])
    together = torch.optim.Adam(joint.parameters(), lr=0.02)
    alone = [torch.optim.Adam(single.parameters(), lr=0.02) for single in singles]
    likelihood = gilib.Gaussian(0.2)
    for step in range(3):
        noise = normals(2, R, joint.noise_size, seed=step)
        bound = gilib.elbo(joint.draw(noise=noise), likelihood, X, Y, num_data=6)
        together.zero_grad()
        (-bound.sum()).backward()
        together.step()
        for r, single in enumerate(singles):
            own = single.draw(noise=single_noise(noise[:, r], single, joint))
            single_bound = gilib.elbo(own, likelihood, X[r], Y[r], num_data=6)
            assert_equal(bound[r].detach(), single_bound.detach(), 1e-10)
            alone[r].zero_grad()
            (-single_bound).backward()
            alone[r].step()


def test_what_is_refused():
    with pytest.raises(TypeError, match=r"priors\[1\] must have one scale per layer, got SpatialIWPrior"):
        PerReplica((gilib.NealPrior(), gilib.SpatialIWPrior()))
    with pytest.raises(ValueError, match=r"4 priors for a network with replicas=\(4,\), this one has"):
        small_net(gilib.Factorised(), MIXED, replicas=(3,))
