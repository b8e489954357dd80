"""The collapsed bound with a process of the noise: dense algebra, the ELBO itself, points left out."""

import math
from functools import partial

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence

import gilib
from gilib.kernels import RBF, Matern
from gilib.likelihoods import HeteroscedasticGaussian
from gilib.training.rules.collapsed.model import single_process
from gilib.training.rules.collapsed.noise import SHIFT, process_with_noise
from tests.support import D, assert_equal, normals, sparse
from tests.support.sparse import finite_difference
from tests.support.trainings import stop_at

X = normals(40, 2, seed=1)
SPREAD = torch.where(X[:, :1] > 0, 0.5, 0.05)
Y = torch.sin(2 * X).sum(1, keepdim=True) * torch.tensor([[1.0, -0.5]], dtype=D)
Y = Y + SPREAD * normals(40, 2, seed=2)
POINTS = {"sparse": X[::4], "exact": X}
NONE = torch.zeros(2, dtype=D)
ONES = torch.ones(40, dtype=D)
VARIANCES, MATERN = [0.1, 0.2], Matern(smoothness=1.5)


def processes(points, noise_points=X[::5], jitter=0.0, noise_kernel=RBF(variance=2.0)):  # noqa: B008
    kernels = {"kernel": MATERN, "noise_kernel": noise_kernel}
    settings = {"inducing_points": points, "noise_inducing_points": noise_points, "jitter": jitter} | kernels
    return gilib.models.heteroscedastic_gp(2, 2, dtype=D, **settings)


def shaken(points, jitter=0.0):
    """A model whose noise's posterior is no special one."""
    net, likelihood = processes(points, jitter=jitter), HeteroscedasticGaussian(VARIANCES)
    model = process_with_noise(net, likelihood)
    with torch.no_grad():
        model.own[0].copy_(normals(8, 2, seed=3))
        model.own[1].copy_(0.5 * normals(2, 8, seed=4))
    return net, likelihood, model


train = partial(sparse.train, x=X, y=Y)


def kernels_of(net):
    return [branch.hyperparameters() for branch in next(iter(net.layers))]


def dense(net, model):
    """L with covariances in place of factors: u ~ N(K (K + Λ⁻¹)⁻¹ v, K - K (K + Λ⁻¹)⁻¹ K)."""
    mean_kernel, noise_kernel = kernels_of(net)
    branches = list(next(iter(net.layers)))
    z, centres = (branch.inducing_inputs.detach() for branch in branches)
    cross = mean_kernel.cross(z, X)
    q = cross.mT @ torch.linalg.solve(mean_kernel.gram(z), cross)
    left = (mean_kernel.gram(X) - q).diagonal()
    gram, at = noise_kernel.gram(centres), noise_kernel.cross(X, centres)
    total = torch.zeros((), dtype=D)
    for o, variance in enumerate(VARIANCES):
        precision = torch.diag(model.own[1][o].exp())
        gain = gram @ torch.linalg.inv(gram + torch.linalg.inv(precision))
        posterior = MultivariateNormal(gain @ model.own[0][:, o], gram - gain @ gram)
        prior = MultivariateNormal(torch.zeros(8, dtype=D), gram)
        project = at @ torch.linalg.inv(gram)
        mean = project @ posterior.mean
        spread = noise_kernel.gram(X) - project @ (gram - posterior.covariance_matrix) @ project.mT
        doubt = spread.diagonal()
        effective = variance * (mean - doubt / 2).exp()
        dist = MultivariateNormal(torch.zeros(40, dtype=D), q + torch.diag(effective))
        total = total + dist.log_prob(Y[:, o]) - (left / (2 * effective)).sum() - doubt.sum() / 4
        total = total - kl_divergence(posterior, prior)
    return total


@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_the_bound_and_its_gradient(points):
    net, likelihood, model = shaken(points)
    value, expected = model.bound(X, Y, ONES, NONE), dense(net, model)
    assert_equal(value.detach(), expected.detach(), 1e-8)
    searched = [*model.own, *(p for name, p in net.named_parameters() if "hyper" in name)]
    own, other = torch.autograd.grad(value, searched), torch.autograd.grad(expected, searched)
    for a, b in zip(own, other, strict=True):
        assert_equal(a, b, 1e-6)
    (slope,) = torch.autograd.grad(model.bound(X, Y, ONES, NONE), likelihood.log_variance)
    wanted = [
        finite_difference(lambda: model.bound(X, Y, ONES, NONE), likelihood.log_variance, o, 1e-5)
        for o in range(2)
    ]
    assert slope.tolist() == pytest.approx(wanted, rel=1e-5)


def test_settled_the_elbo_is_the_bound_and_no_other_posterior_is_better():
    net, likelihood, model = shaken(X[::4])
    found = model.solve_posterior(X, Y, ONES)
    assert_equal(found, model.bound(X, Y, ONES, NONE).detach(), 1e-9)
    elbo = gilib.elbo(net.estimate(1, 40), likelihood, X, Y, num_data=40)
    assert_equal(elbo.detach(), found, 1e-9)
    posterior = list(next(iter(net.layers)))[0].weights
    for slope in torch.autograd.grad(elbo, [posterior.mean, posterior.root]):
        assert slope.tril().abs().max() < 1e-7


@pytest.mark.parametrize("points", POINTS.values(), ids=POINTS)
def test_a_row_that_counts_is_a_row_that_is_repeated(points):
    """In the bound and its gradient, the posteriors, the start, and what rounding takes from the noise."""
    counts = 1 + torch.arange(40) % 3
    weighted = X, Y, counts.double()
    repeated = *(part.repeat_interleave(counts, 0) for part in (X, Y)), torch.ones(79, dtype=D)
    spacing, found = torch.tensor([0.1, 0.2], dtype=D), []
    for data in (weighted, repeated):
        net, likelihood, model = shaken(points)
        value = model.bound(*data, spacing)
        slopes = torch.autograd.grad(value, [*model.own, likelihood.log_variance])
        settled = model.solve_posterior(*data)
        state = [parameter.detach().clone() for parameter in net.parameters()]
        model.unround(data[0], data[2], spacing)
        noise = likelihood.noise_variance.detach().clone()
        model.start(*data)
        found.append([value.detach(), *slopes, settled, *state, noise, *(own.detach() for own in model.own)])
    for one, other in zip(*found, strict=True):
        assert_equal(one, other, 1e-6)


def test_settling_in_parts_is_settling_at_once(monkeypatch):
    whole, parts = shaken(X[::4]), shaken(X[::4])
    whole[2].solve_posterior(X, Y, ONES)
    monkeypatch.setattr("gilib.training.rules.collapsed.model.AT_ONCE", 7)
    parts[2].solve_posterior(X, Y, ONES)
    for a, b in zip(whole[0].parameters(), parts[0].parameters(), strict=True):
        assert_equal(a.detach(), b.detach(), 1e-10)


def test_noise_that_cannot_vary_is_that_of_one_process():
    """With a variance of 10⁻¹² of its logarithm the bound is the evidence with noise per output."""
    net = processes(X, noise_kernel=RBF(variance=1e-12))
    model = process_with_noise(net, HeteroscedasticGaussian(VARIANCES))
    alone = sparse.sparse(X, kernel=MATERN)
    other = single_process(alone, gilib.likelihoods.PerOutputGaussian(VARIANCES))
    spacing = torch.tensor([0.1, 0.2], dtype=D)
    assert_equal(model.bound(X, Y, ONES, spacing).detach(), other.bound(X, Y, ONES, spacing).detach(), 1e-6)


def test_what_rounding_adds_is_taken_from_all_points_in_the_mean_of_the_logarithm():
    """Against the variances themselves, at each point by itself; those near rounding keep δ² / 48."""
    _, likelihood, model = shaken(X[::4])
    before = model._at(model._posterior(), X)[0].detach()
    spacing = torch.tensor([0.1, 1.0], dtype=D)
    added = spacing.square()[:, None] / 12
    left = torch.where(before - added > added / 4, before - added, before.minimum(added / 4))
    assert bool((left == added / 4)[1].any()) and bool((left > added / 4)[1].any())
    model.unround(X, ONES, spacing)
    wanted = torch.tensor(VARIANCES, dtype=D) * (left / before).log().mean(-1).exp()
    assert_equal(likelihood.noise_variance.detach(), wanted, 1e-12)


def test_it_starts_from_residuals_of_points_left_out():
    """With every point a centre, v is log r² + 1.27, r standardised by exact regression on the others."""
    net = processes(X, noise_points=X)
    model = process_with_noise(net, HeteroscedasticGaussian(VARIANCES))
    model.start(X, Y, ONES)
    pseudo, log_precision = (unit * own for unit, own in zip(model.found[1:], model.own, strict=True))
    kernel = kernels_of(net)[0]
    for n in (0, 17):
        rest = torch.arange(40) != n
        for o, variance in enumerate(VARIANCES):
            gram = kernel.gram(X[rest]) + variance * torch.eye(39, dtype=D)
            cross = kernel.cross(X[n : n + 1], X[rest])
            gain = torch.linalg.solve(gram, cross.mT)[:, 0]
            residual = Y[n, o] - gain @ Y[rest, o]
            spread = kernel.diagonal(X[n : n + 1]) - cross @ gain + variance
            expected = (residual.square() / spread).log() + SHIFT
            assert_equal(pseudo[n, o].detach(), expected[0].detach(), 1e-6)
    assert_equal(log_precision.exp().detach(), torch.full((2, 40), 2 / math.pi**2, dtype=D))
    squares = torch.randn(10**6, generator=torch.Generator().manual_seed(0), dtype=D).square().log()
    assert abs(squares.mean() + SHIFT) < 6 * math.sqrt(math.pi**2 / 2 / 10**6)


def test_errors_of_points_left_out_are_those_of_regressions_whose_noise_varies():
    """Of all points but one, with the effective variance r of each; a row that counts twice loses one."""
    net, _, model = shaken(X)
    kernel, noise = kernels_of(net)[0], model._at(model._posterior(), X)[0].detach()
    count = torch.arange(40).remainder(2).double() + 1.0
    found, squares = model.errors(X, Y, count), torch.zeros(2, dtype=D)
    for n in range(40):
        kept = (rest := count - torch.eye(40, dtype=D)[n]) > 0
        for o, variance in enumerate(noise):
            gram = kernel.gram(X[kept]) + torch.diag(variance[kept] / rest[kept])
            guess = kernel.cross(X[n : n + 1], X[kept]) @ torch.linalg.solve(gram, Y[kept, o])
            squares[o] += count[n] * (Y[n, o] - guess[0].detach()).square()
    assert_equal(found, squares / count.sum(), 1e-6)


def test_structure_that_is_taken_for_noise_is_named(tmp_path):
    """A step at the end: silence, then loud noise, is likelier than a jump; also after an interruption."""
    x = torch.linspace(-2, 2, 60, dtype=D)[:, None]
    y = (x > 1) * (2.0 + 0.4 * normals(60, 1, seed=5)) + 4e-4 * normals(60, 1, seed=6)
    train = partial(gilib.recommended("heteroscedastic_gp").train, x, y, progress=False)
    checkpoint = gilib.training.Checkpoint(tmp_path / "part", every=2)
    with pytest.raises(KeyboardInterrupt):
        train(checkpoint=checkpoint, callbacks=[stop_at(3)])
    with pytest.warns(UserWarning, match=r"errors are \d\.\d times those of constant noise"):
        assert train(checkpoint=checkpoint).history.resumed_at == 2


@pytest.mark.parametrize("few", [True, False], ids=["sparse", "exact"])
def test_training_finds_the_noise(few):
    x = normals(80, 2, seed=5)
    right = x[:, 0] > 0
    y = x.sin() + torch.where(right[:, None], 0.5, 0.05) * normals(80, 2, seed=6)
    net, likelihood = processes(x[::3] if few else x, x[::4], jitter=1e-8), HeteroscedasticGaussian(VARIANCES)
    history = train(net, likelihood, x=x, y=y)
    elbo = gilib.elbo(net.estimate(1, 80), likelihood, x, y, num_data=80, per_point=True)
    assert_equal(elbo.detach(), history.elbo[-1], 1e-3)
    noise = likelihood.target_moments(net.estimate(1, 80).moments(x).mean).variance[0].detach().sqrt()
    assert (noise[right].mean(0) > 3 * noise[~right].mean(0)).all()


def test_a_training_resumes(tmp_path):
    nets = [processes(X[::4], jitter=1e-8) for _ in range(3)]
    trace, _, rest = (
        train(net, HeteroscedasticGaussian(VARIANCES), steps=steps, checkpoint=path)
        for net, steps, path in zip(nets, (8, 4, 8), (None, *2 * [tmp_path / "part"]), strict=True)
    )
    assert rest.resumed_at == 4
    assert_equal(rest.elbo, trace.elbo, 1e-9)
    for a, b in zip(nets[0].parameters(), nets[2].parameters(), strict=True):
        assert_equal(a.detach(), b.detach(), 1e-7)


def two(posterior, *widths):
    layers = [gilib.GP(2, width, posterior=posterior) for width in widths]
    return gilib.Network(None, [gilib.layers.Concat(layers)], input_shape=(2,), dtype=D)


def test_what_is_refused():
    noise, alone = (
        HeteroscedasticGaussian(VARIANCES),
        gilib.models.sparse_gp(2, 4, inducing_points=X, dtype=D),
    )
    with pytest.raises(ValueError, match="one gilib.layers.Concat of two gilib.GP"):
        train(alone, noise)
    with pytest.raises(ValueError, match="the noise must be Gaussian or PerOutputGaussian, got Heterosc"):
        gilib.training.solve_posterior(alone, noise, X, Y)
    with pytest.raises(ValueError, match="known only for a network of one gilib.GP without"):
        single_process(processes(X), gilib.likelihoods.PerOutputGaussian([0.1] * 4))
    with pytest.raises(ValueError, match="must have the posterior FreeGaussian, got LocalInducing"):
        train(two(gilib.LocalInducing(3), 2, 2), noise)
    with pytest.raises(ValueError, match=r"2 targets need 2 outputs of each process, got \(1, 3\)"):
        train(two(gilib.FreeGaussian(3), 1, 3), noise)
    with pytest.raises(ValueError, match=r"inducing_points must have shape .* got \[2\]"):
        processes(X[0])
    with pytest.raises(ValueError, match="all targets of output 1 are the same"):
        train(processes(X), noise, y=torch.cat([Y[:, :1], 0 * Y[:, 1:]], 1))
