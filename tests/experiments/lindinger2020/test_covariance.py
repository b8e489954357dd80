"""Couplings: the size of correlations against the dense covariance, and where families have none."""

import pytest
import torch

from experiments.lindinger2020 import covariance, networks
from gilib.models import structured_gp
from tests.support import D, assert_equal, normals, shaken

M = 4


def built(family, *, shake=0.3):
    points = {"inducing_points": normals(M, 3), "dtype": D}
    return shaken(structured_gp(3, 1, width=2, family=networks.FAMILIES[family], **points), shake)


def dense(net):
    """S from a factor with zeros where the family has no block, `[P M, P M]`."""
    joint = networks.gaussian_of(net)
    factor = torch.zeros(joint.noise_size, joint.noise_size, dtype=D)
    for process, (row, columns) in enumerate(zip(joint.factor(), joint.pattern.factor, strict=True)):
        for k, column in enumerate(columns):
            block = row[:, k * M : (k + 1) * M]
            factor[process * M : (process + 1) * M, column * M : (column + 1) * M] = block
    return (factor @ factor.T).detach()


@pytest.mark.parametrize("family", ["mf", "star", "fc"])
def test_couplings_are_sizes_of_correlation_blocks(family):
    net = built(family)
    full = dense(net)
    sd = full.diagonal().sqrt()
    blocks = (full / sd / sd[:, None]).unflatten(0, (-1, M)).unflatten(-1, (-1, M))
    assert_equal(covariance.couplings(net), blocks.square().sum((1, 3)).sqrt() / M**0.5, 1e-12)


@pytest.mark.parametrize("family", ["mf", "star", "fc"])
@pytest.mark.parametrize("shown", [2, M, 9])
def test_correlations_of_some_inducing_outputs(family, shown):
    """Those of R S Rᵀ, process by process."""
    net = built(family)
    (layer,) = net.layers
    roots = [process.inducing(layer.jitter).root.detach().reshape(M, M) for process in layer]
    root = torch.block_diag(*(roots[k] for k in (0, 0, 1, 1, 2)))
    full = root @ dense(net) @ root.T
    at = {2: [0, 2], M: range(M), 9: range(M)}[shown]
    rows = torch.tensor([M * t + k for t in range(5) for k in at])
    picked = full[rows][:, rows]
    sd = picked.diagonal().sqrt()
    assert_equal(covariance.correlations(net, shown), picked / sd / sd[:, None], 1e-10)


def test_where_there_is_no_block_there_is_no_coupling():
    """Processes 0, 1 | 2, 3 | 4: stripes join 0 with 2 and 1 with 3, the arrow all with 4."""
    coupled = {name: covariance.couplings(built(name)) > 0 for name in ("mf", "star", "fc")}
    assert torch.equal(coupled["mf"], torch.eye(5, dtype=torch.bool)) and coupled["fc"].all()
    stripes = torch.eye(5, dtype=torch.bool)
    for a, b in [(0, 2), (1, 3), *((k, 4) for k in range(4))]:
        stripes[a, b] = stripes[b, a] = True
    assert torch.equal(coupled["star"], stripes)


def test_at_the_start_nothing_is_coupled_and_outputs_tied_one_to_one_have_size_one():
    net = built("fc", shake=0.0)
    assert_equal(covariance.couplings(net), torch.eye(5, dtype=D), 1e-12)
    joint = networks.gaussian_of(net)
    with torch.no_grad():  # the second process is the first, nearly
        joint.rows[1][..., :M] = joint.rows[0]
        joint.rows[1][..., M:] *= 1e-6
    assert covariance.couplings(net)[0, 1].item() == pytest.approx(1.0, abs=1e-9)
