"""What a process draws, against the joint Gaussian: ratios of densities, joint draws, marginals.

Draws are affine in their normals, so that over a cubature means and covariances are exact.
"""

import pytest
import torch

import gilib
from gilib.draws import Estimate, JointDraw
from gilib.linalg import ScaledIdentity
from gilib.randomness import Noise
from tests.kernels.cases import textbook
from tests.support import PRECISIONS, D, assert_equal, normals, seeded, shaken
from tests.support.processes import (
    KERNEL,
    conditional,
    covariance,
    cubature,
    layer_of,
    log_ratio,
    one_layer,
    precisions,
)

POSTERIORS = {"global": gilib.GlobalInducing, "local": gilib.LocalInducing}


def shaken_net(kind, precision, jitter=0.0):
    """Pseudo-outputs, precisions and hyper-parameters where no two terms coincide."""
    settings = {"num_inducing": 5} if kind == "local" else {}
    posterior = POSTERIORS[kind](precision=precision, log_precision=0.5, **settings)
    z, v = normals(5, 2, seed=1), normals(5, 2, seed=2)
    net = one_layer(posterior, inducing=z, pseudo=v, jitter=jitter, replicas=())
    return shaken(layer_of(net).weights, 0.3) and net, z


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", POSTERIORS)
def test_the_log_ratio_of_every_draw(kind, precision):
    """Log P(u) - log Q(u) = log N(v; 0, K + Λ⁻¹) - log N(v; u, Λ⁻¹) (Ober & Aitchison, 2021, App. F).

    A path of a layer with inducing inputs of its own passes through its u there.
    """
    jitter = 0.01 if kind == "global" else 0.0
    net, z = shaken_net(kind, precision, jitter)
    layer, v = layer_of(net), layer_of(net).weights.pseudo.outputs.detach()
    faces = [net.draw(7, generator=seeded(1))]
    if kind == "global":
        faces += [net.estimate(7, 4, generator=seeded(2)), net.joint_draw(7, 4, generator=seeded(3))]
    for drawn in faces:
        u = (drawn(z) if kind == "local" else drawn.inducing_outputs).detach()
        ratios = zip(v.mT, precisions(layer), u.unbind(-1), strict=True)
        wanted = sum(log_ratio(KERNEL, z, *own, jitter * KERNEL.variance) for own in ratios)
        assert_equal(drawn.log_pq.detach(), wanted, 1e-9)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", POSTERIORS)
def test_joint_draws_are_the_conditional_gaussian(kind, precision):
    """Over a cubature of all their normals, mean and covariance of f at 4 points are exact."""
    net, z = shaken_net(kind, precision)
    layer, x = layer_of(net), normals(4, 2, seed=6)
    own, points = layer.noise_sizes(JointDraw).draw, 4 * 2
    noise = cubature(own + points)
    noise = Noise(noise[:, :own], noise[:, own:].unflatten(-1, (4, 2)))
    drawn = layer.joint_draw(z if kind == "global" else None, noise=noise)
    values = drawn(x).detach()
    for o in range(2):
        mean, wanted = conditional(
            KERNEL, z, x, layer.weights.pseudo.outputs[:, o].detach(), precisions(layer)[o]
        )
        assert_equal(values[..., o].mean(0), mean[5:], 1e-9)
        assert_equal(covariance(values[..., o]), wanted[5:, 5:], 1e-9)
    cross = (values[..., 0] - values[..., 0].mean(0)).mT @ values[..., 1]
    assert float(cross.abs().max()) < 1e-8  # outputs are independent


@pytest.mark.parametrize("precision", PRECISIONS)
def test_marginals_are_the_conditional_at_each_point_and_independent(precision):
    """An estimate given u: mean aᵀw, variance k - |a|², points independent; moments say the same."""
    net, z = shaken_net("global", precision)
    layer, x = layer_of(net), normals(4, 2, seed=6)
    own = normals(1, layer.noise_sizes(Estimate).draw, seed=7).expand(2 * 8, -1)
    estimate = layer.estimate(z, noise=Noise(own, cubature(8).unflatten(-1, (4, 2))))
    values, (mean, variance) = estimate(x).detach(), estimate.moments(x)
    u = estimate.inducing_outputs[0].detach()
    gain = textbook(KERNEL, x, z) @ torch.linalg.inv(textbook(KERNEL, z, z))
    left = textbook(KERNEL, x, x) - gain @ textbook(KERNEL, z, x)
    assert_equal(mean.detach(), (gain @ u).expand(16, 4, 2), 1e-9)
    assert_equal(variance.detach(), left.diagonal()[:, None].expand(16, 4, 2), 1e-9)
    assert_equal(values.mean(0), gain @ u, 1e-9)
    diagonal = left.diagonal().repeat_interleave(2).diag()
    assert_equal(covariance(values.flatten(-2)), diagonal, 1e-9)


@pytest.mark.parametrize(
    "posterior",
    [gilib.FreeGaussian(5, 0.6), *(gilib.LocalInducing(5, kind, marginalise=True) for kind in PRECISIONS)],
    ids=["free", *PRECISIONS],
)
@torch.no_grad()
def test_moments_where_inducing_outputs_are_integrated_out(posterior):
    """N(aᵀ m_o, k - |a|² + aᵀ S_o a) for w_o ~ N(m_o, S_o), from unwhitened matrices."""
    net, x = one_layer(posterior, inducing=normals(5, 2, seed=1)), normals(4, 2, seed=6)
    layer = layer_of(net)
    z, module = layer.inducing_inputs, shaken(layer.weights, 0.3)
    root = torch.linalg.cholesky(textbook(KERNEL, z, z))
    gain = torch.linalg.solve_triangular(root, textbook(KERNEL, z, x), upper=False).mT  # aᵀ
    means, spreads, log_pq = module.distribution(
        root, ScaledIdentity(torch.ones((), dtype=D), 5), normals(3, 0)
    )
    left = textbook(KERNEL, x, x) - gain @ gain.mT + gain @ spreads @ gain.mT
    estimate = net.estimate(3, 4, generator=seeded())
    assert_equal(estimate.log_pq, log_pq)
    for drawn in (estimate, net.draw(3, generator=seeded())):
        mean, variance = drawn.moments(x)
        assert_equal(mean, (gain @ means).expand(3, 4, 2), 1e-9)
        assert_equal(variance.expand(3, 4, 2), left.diagonal(dim1=-2, dim2=-1).mT.expand(3, 4, 2), 1e-9)


def test_a_joint_draw_below_inducing_points_that_pass_is_joint_with_them():
    """A local process below a global one, at the points that travel and at others, by cubature."""
    z, v, travelling, x = (normals(n, 2, seed=seed) for n, seed in ((5, 1), (5, 2), (4, 3), (3, 4)))
    below = gilib.GP(2, 2, KERNEL, gilib.LocalInducing(5, precision="full"), inducing_inputs=z, jitter=0.0)
    net = gilib.Network(travelling, [below, gilib.GP(2, 1)], generator=seeded())
    below.weights.pseudo.outputs.data.copy_(v)
    shaken(below.weights, 0.3)
    v = below.weights.pseudo.outputs.detach()
    size, own = net.layers.noise_sizes(JointDraw), below.noise_sizes(JointDraw)
    first = own.draw + own.points * (len(travelling) + len(x))  # normals of the layer below
    normal = cubature(first)
    draw, points = normal.split([own.draw + own.points * len(travelling), own.points * len(x)], 1)
    above = torch.zeros(len(normal), size.draw - draw.shape[1], dtype=D)
    above_at_points = torch.zeros(len(normal), len(x), size.points - own.points, dtype=D)
    noise = Noise(
        torch.cat([draw, above], 1), torch.cat([points.unflatten(1, (len(x), -1)), above_at_points], 2)
    )
    function = net.joint_draw(noise=noise).function.functions
    passed, seen = function[1].inducing.inputs, function[0](x).detach()
    together = torch.cat([passed.detach(), seen], -2)  # [S, M + N, O]
    for o, precision in enumerate(precisions(below)):
        mean, cov = conditional(KERNEL, z, torch.cat([travelling, x]), v[:, o], precision)
        assert_equal(together[..., o].mean(0), mean[5:], 1e-7)
        assert_equal(covariance(together[..., o]), cov[5:, 5:], 1e-7)
