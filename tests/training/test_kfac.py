"""Noisy K-FAC and its posterior: draws, and steps written out."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import gilib
from gilib.posteriors import MatrixGaussian
from gilib.training import NoisyKFAC
from tests.support import D, assert_equal, log_p, normals, seeded, small_net, with_ones
from tests.support.variational import NOISE, X, Y, fit

RULE = NoisyKFAC(0.1, decay=0.3, damping=0.02)


def posteriors(net):
    """Mean, row and column covariance of every layer."""
    modules = [layer.weights for layer in net.modules() if isinstance(layer, gilib.Linear)]
    roots = [(own.row_root.detach().tril(), own.column_root.detach().tril()) for own in modules]
    return [
        (own.mean.detach(), rows @ rows.mT, columns @ columns.mT)
        for own, (rows, columns) in zip(modules, roots, strict=True)
    ]


def test_draws_have_the_density_of_the_matrix_gaussian():
    """W = M + L E Kᵀ scored by its dense covariance, rows V ⊗ Σ; L and K are nowhere symmetric."""
    net = small_net(MatrixGaussian(), hidden=())
    ((mean, rows, columns),) = posteriors(net)
    noise = normals(4, 6, seed=3)
    drawn = net.draw(noise=noise)
    weights = drawn.function.functions[0].weights
    root_rows, root_columns = (torch.linalg.cholesky(own) for own in (rows, columns))
    own = next(module for module in net.modules() if isinstance(module, gilib.Linear)).weights
    signs = [own.row_root.diagonal().sign(), own.column_root.diagonal().sign()]
    noise = signs[0][:, None] * noise.unflatten(-1, (3, 2)) * signs[1]
    assert_equal(weights.detach(), mean + root_rows @ noise @ root_columns.mT, 1e-12)
    dist = MultivariateNormal(mean.flatten(), torch.kron(rows, columns))
    assert_equal(drawn.log_pq.detach(), log_p(weights, 3.0) - dist.log_prob(weights.flatten(-2)), 1e-10)


def examined(weights):
    """Inputs x `[N, I]` and gradients g `[N, O]` of every layer, one draw, each point's own loss."""
    inputs = [with_ones(X)]
    first = (inputs[0] @ weights[0]).requires_grad_()
    inputs.append(with_ones(torch.tanh(first)))
    second = inputs[1] @ weights[1]
    loss = 0.5 * (Y - second).square().sum() / NOISE
    return inputs, torch.autograd.grad(loss, (first, second))


@pytest.mark.parametrize("kappa", [1.0, 0.5])
def test_three_steps_written_out(kappa):
    """Two layers, inverses in place of factors, the draws from the same normals."""
    net, stream, num = small_net(MatrixGaussian()), seeded(), 7 / kappa
    own = [module.weights for module in net.modules() if isinstance(module, gilib.Linear)]
    means = [mean for mean, _, _ in posteriors(net)]
    roots = [(part.row_root.detach().tril(), part.column_root.detach().tril()) for part in own]
    fit(net, RULE, kl_weight=gilib.objectives.SteppedTempering(0, last=kappa))
    moments = [(0.0, 0.0), (0.0, 0.0)]
    for step in range(3):
        noise = torch.randn(2, 9 + 8, generator=stream, dtype=D).split([9, 8], -1)
        draws = [
            mean + rows @ z.unflatten(-1, mean.shape) @ columns.mT
            for mean, (rows, columns), z in zip(means, roots, noise, strict=True)
        ]
        seen = [examined([draws[0][s], draws[1][s]]) for s in range(2)]
        rate = 0.3 / (1 - 0.7 ** (step + 1))
        for k, (a, s) in enumerate(moments):
            x, g = ([one[part][k] for one in seen] for part in (0, 1))
            a = (1 - rate) * a + rate * sum(one.mT @ one for one in x).detach() / 14
            s = (1 - rate) * s + rate * sum(one.mT @ one for one in g) / 14
            moments[k], (size, outputs) = (a, s), means[k].shape
            prior = size / num
            slope = sum(p.mT @ q / 7 + prior * w for p, q, w in zip(x, g, draws[k], strict=True)) / 2
            ratio = math.sqrt((a.trace() / size) / (s.trace() / outputs))

            def inverses(amount, a=a, s=s, ratio=ratio):
                left = a + ratio * math.sqrt(amount) * torch.eye(len(a), dtype=D)
                right = s + math.sqrt(amount) / ratio * torch.eye(len(s), dtype=D)
                return torch.linalg.inv(left), torch.linalg.inv(right)

            left, right = inverses(prior + 0.02)
            means[k] = means[k] - 0.1 * left @ slope.detach() @ right
            left, right = inverses(prior)
            roots[k] = torch.linalg.cholesky(left / num), torch.linalg.cholesky(right)
    for (mean, rows, columns), expected, (left, right) in zip(posteriors(net), means, roots, strict=True):
        assert_equal(mean, expected, 1e-10)
        assert_equal(rows, left @ left.mT, 1e-10)
        assert_equal(columns, right @ right.mT, 1e-10)
