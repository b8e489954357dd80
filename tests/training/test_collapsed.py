"""The collapsed bound: against densities written out, exact regression, gradients and natural gradients."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import gilib
from gilib.kernels import Matern
from gilib.linalg import FactorisationError
from gilib.training import Collapsed, solve_posterior
from gilib.training.history import FAILED, STOOD_STILL
from gilib.training.rules.collapsed.bound import evidence
from gilib.training.rules.collapsed.model import single_process
from gilib.training.rules.collapsed.rule import Evaluation, _spacing
from tests.support import D, assert_equal, normals, seeded
from tests.support.sparse import X, Y, kernel_of, sparse, titsias, train

NOISES = {"one": [0.1], "each": [0.1, 0.3]}
NO_ROUNDING = torch.zeros(2, dtype=D)
ONES = torch.ones(30, dtype=D)


each_noise = pytest.mark.parametrize("noises", NOISES.values(), ids=NOISES)
both_points = pytest.mark.parametrize("points", [X[::5], X], ids=["sparse", "exact"])


def likelihood_of(noises, learn=False):
    own = gilib.likelihoods.PerOutputGaussian(noises, learn)
    return gilib.Gaussian(noises[0], learn) if len(noises) == 1 else own


def searched(net, likelihood):
    return [*likelihood.parameters(), *next(iter(net.layers)).hyperparameters.parameters()]


@each_noise
@both_points
def test_the_bound_and_its_gradient(points, noises):
    """Value and slopes in kernel and noise; with Z = X it is the evidence of exact regression."""
    net, likelihood = sparse(points, kernel=Matern(smoothness=1.5)), likelihood_of(noises, learn=True)
    process = single_process(net, likelihood)
    logs = torch.tensor(noises, dtype=D).log().requires_grad_()
    value, expected = process.bound(X, Y, ONES, NO_ROUNDING), titsias(net, logs.exp())
    assert_equal(value.detach(), expected.detach(), 1e-9)
    own = torch.autograd.grad(value, searched(net, likelihood))
    other = torch.autograd.grad(expected, [logs, *searched(net, likelihood)[1:]])
    for a, b in zip(own, other, strict=True):
        assert_equal(a.flatten(), b.flatten(), 1e-7)


@each_noise
def test_settled_the_elbo_is_the_bound(noises):
    net, likelihood = sparse(X[::5]), likelihood_of(noises)
    found = solve_posterior(net, likelihood, X, Y)
    assert_equal(found, titsias(net, noises).detach(), 1e-9)
    elbo = gilib.elbo(net.estimate(1, 30), likelihood, X, Y, num_data=30).detach()
    assert_equal(elbo, found, 1e-9)


def test_settling_in_parts_is_settling_at_once(monkeypatch):
    whole, parts = sparse(X[::5]), sparse(X[::5])
    solve_posterior(whole, gilib.Gaussian(0.1), X, Y)
    monkeypatch.setattr("gilib.training.rules.collapsed.model.AT_ONCE", 7)
    solve_posterior(parts, gilib.Gaussian(0.1), X, Y)
    for a, b in zip(whole.parameters(), parts.parameters(), strict=True):
        assert_equal(a.detach(), b.detach(), 1e-10)


@both_points
def test_training_ends_where_no_parameter_gains(points):
    net, likelihood = sparse(points, jitter=1e-8), gilib.Gaussian(0.5, learn=True)
    history = train(net, likelihood, steps=100)
    assert history.elbo[-1] > history.elbo[0] and len(history.elbo) < 100 and history.converged
    elbo = gilib.elbo(net.estimate(1, 30), likelihood, X, Y, num_data=30, per_point=True)
    assert_equal(elbo.detach(), history.elbo[-1], 1e-3)
    slopes = torch.autograd.grad(elbo, [p for n, p in net.named_parameters() if "hyper" in n])
    assert max(float(slope.abs().max()) for slope in slopes) < 0.01
    assert torch.equal(next(iter(net.layers)).inducing_inputs.detach(), points)


def test_rounded_targets_keep_their_noise():
    """Rounding costs δ² / (24σ²) a point: without residuals σ² = δ² / 12 is best: that of rounding."""
    y = torch.tensor([[0.0, 1.0], [0.5, 1.0], [2.0, 1.0], [0.5, 1.0]], dtype=D)
    assert _spacing(y).tolist() == [0.5, 0.0]
    process = single_process(sparse(X), gilib.likelihoods.PerOutputGaussian(NOISES["each"]))
    cost = process.bound(X, Y, ONES, NO_ROUNDING) - process.bound(
        X, Y, ONES, torch.tensor([0.5, 0.2], dtype=D)
    )
    assert_equal(cost.detach(), torch.tensor(30 / 24 * (0.25 / 0.1 + 0.04 / 0.3), dtype=D), 1e-9)
    x, rounded = X.repeat(2, 1), Y[:, :1].round().repeat(2, 1)  # every row stands twice
    net = gilib.models.sparse_gp(2, 1, inducing_points=x, kernel=Matern(smoothness=0.5), jitter=1e-9)
    likelihood = gilib.Gaussian(0.05, learn=True)
    train(net, likelihood, x, rounded)
    assert likelihood.noise_variance.item() > 0.9 / 12


def test_targets_of_two_values_have_the_noise_of_their_variance():
    """Nothing depends on the inputs: the price alone would end at a variance larger by 1 / 12."""
    y = (torch.arange(200) < 60).to(D)[torch.randperm(200, generator=seeded(3))][:, None]
    x, variance = normals(200, 2, seed=4), float(y.var(correction=0))
    net = gilib.models.sparse_gp(2, 1, inducing_points=x, dtype=D)
    likelihood = gilib.Gaussian(0.5, learn=True)
    history = train(net, likelihood, x, y - y.mean(), steps=200)
    assert history.converged and likelihood.noise_variance.item() == pytest.approx(variance, rel=0.02)


def test_what_rounding_adds_is_taken_from_noise_that_is_learned():
    """δ² / 12 of every output, in the mean where they share a noise; δ² / 48 stay of noise that is less."""
    spacing = torch.tensor([0.6, 1.8], dtype=D)
    for noises, wanted in (([0.3, 0.3], [0.27, 0.0675]), ([0.3], [0.15])):
        likelihood, fixed = likelihood_of(noises, learn=True), likelihood_of(noises)
        for own in (likelihood, fixed):
            single_process(sparse(X), own).unround(X, ONES, spacing)
        assert_equal(likelihood.noise_variance.detach().reshape(-1), torch.tensor(wanted, dtype=D), 1e-12)
        assert_equal(fixed.noise_variance.reshape(-1), torch.tensor(noises, dtype=D), 1e-12)


def test_exact_targets_on_a_grid_are_not_taken_for_rounded_ones():
    """Points left out are predicted to a thirtieth of the grid's step: the noise goes below δ² / 12."""
    x = torch.arange(60).remainder(12).to(D)[:, None] / 4 + 0.05 * normals(60, 1)
    y = (4 * (x - 0.05 * normals(60, 1))).round() / 4  # a grid of δ = 1/4, and a second input that tells it
    x = torch.cat([x, y - x], 1)
    net = gilib.models.sparse_gp(2, 1, inducing_points=x, dtype=D)
    likelihood = gilib.Gaussian(0.05, learn=True)
    train(net, likelihood, x, y, steps=100)
    assert likelihood.noise_variance.item() < 0.1 * 0.25**2 / 12
    assert single_process(net, likelihood).errors(x, y, torch.ones(len(x), dtype=D)) < 0.25**2 / 48


@each_noise
@both_points
def test_a_row_that_counts_is_a_row_that_is_repeated(points, noises):
    """In the bound, its gradient, the posterior and the errors of rows that are left out."""
    counts = 1 + torch.arange(30) % 3
    weighted = X, Y, counts.double()
    repeated = *(part.repeat_interleave(counts, 0) for part in (X, Y)), torch.ones(60, dtype=D)
    spacing, slopes, found = torch.tensor([0.1, 0.2], dtype=D), [], []
    for data in (weighted, repeated):
        net, likelihood = sparse(points, kernel=Matern(smoothness=1.5)), likelihood_of(noises, learn=True)
        process = single_process(net, likelihood)
        value = process.bound(*data, spacing)
        gradients = torch.autograd.grad(value, searched(net, likelihood))
        slopes.append(torch.cat([slope.flatten() for slope in gradients]))
        bound = process.solve_posterior(*data)
        assert points is X or value.item() == pytest.approx(
            process.bound(*data, NO_ROUNDING).item()
            - ((spacing.square() / torch.tensor(noises, dtype=D)).sum().item() * 60 / 24),
            abs=1e-9,
        )
        posterior = next(iter(net.layers)).weights
        found.append([value.detach(), bound, process.errors(*data), posterior.mean, posterior.root])
    assert_equal(slopes[0], slopes[1], 1e-6)
    for one, other in zip(*found, strict=True):
        assert_equal(one, other, 1e-7)


@each_noise
def test_many_points_are_summed_in_pieces(noises, monkeypatch):
    """With the same bound and the same gradient."""
    found = []
    for whole in (30, 29):
        monkeypatch.setattr("gilib.training.rules.collapsed.model.WHOLE", whole)
        monkeypatch.setattr("gilib.training.rules.collapsed.model.AT_ONCE", 7)
        net, likelihood = sparse(X[::5]), likelihood_of(noises, learn=True)
        value = single_process(net, likelihood).bound(X, Y, 1.0 + ONES, NO_ROUNDING)
        found.append([value.detach(), *torch.autograd.grad(value, searched(net, likelihood))])
    for one, other in zip(*found, strict=True):
        assert_equal(one, other, 1e-9)


@pytest.mark.parametrize("noises", [[0.3], [0.1, 0.2], [1e-6]])
def test_errors_of_points_left_out(noises):
    """With all points as inducing ones they are those of exact regression on all points but one."""
    net = sparse(X)
    kernel, squares = kernel_of(net), torch.zeros(2, dtype=D)
    for n in range(30):
        rest = torch.arange(30) != n
        for o, noise in enumerate(noises * (2 // len(noises))):
            gram = kernel.gram(X[rest]).detach() + noise * torch.eye(29, dtype=D)
            cross = kernel.cross(X[n : n + 1], X[rest]).detach()
            squares[o] += (Y[n, o] - cross @ torch.linalg.solve(gram, Y[rest, o])).square()[0]
    assert_equal(single_process(net, likelihood_of(noises)).errors(X, Y, ONES), squares / 30, 1e-6)


def test_a_search_that_breaks_down_returns_to_its_best_point(monkeypatch):
    net, likelihood = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
    calls, evidence = [], gilib.training.rules.collapsed.model.evidence

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise FactorisationError("the covariance", "for the test")
        return evidence(*arguments)

    monkeypatch.setattr(gilib.training.rules.collapsed.model, "evidence", failing)
    history = train(net, likelihood)
    assert len(calls) == 4 and history.elbo[-1] >= history.elbo[0] and history.ended == FAILED
    variance, spacing = likelihood.noise_variance.detach(), _spacing(Y)
    likelihood.scale_noise(1.0 + spacing.square().mean() / 12 / variance)  # what rounding adds, put back
    now = single_process(net, likelihood).bound(X, Y, ONES, spacing).detach() / 30
    assert_equal(now, history.elbo[-1], 1e-9)
    del calls[3:]
    with pytest.raises(FactorisationError, match="for the test"):  # nothing to return to
        train(sparse(X), gilib.Gaussian(0.5, learn=True))


def test_what_is_refused():
    gaussian = gilib.Gaussian(0.1, learn=True)
    for other in (gilib.models.deep_gp(2, 2, 2, inducing_points=X), sparse(X, replicas=(2,))):
        with pytest.raises(ValueError, match="known only for a network of one gilib.GP without replicas"):
            train(other, gaussian)
    with pytest.raises(ValueError, match="must have the posterior FreeGaussian, got GlobalInducing"):
        train(gilib.models.deep_gp(2, 2, 1, inducing_points=X), gaussian)
    with pytest.raises(ValueError, match="the noise must be Gaussian or PerOutputGaussian, got Categorical"):
        solve_posterior(sparse(X), gilib.Categorical(), X, Y)
    with pytest.raises(ValueError, match="Collapsed has no Kullback-Leibler term .*leave kl_weight out"):
        train(sparse(X), gaussian, kl_weight=lambda step: 0.5)
    with pytest.raises(ValueError, match="give batch_size=None and one process"):
        train(sparse(X), gaussian, batch_size=10)
    fixed = sparse(X)
    next(iter(fixed.layers)).hyperparameters.requires_grad_(False)
    with pytest.raises(ValueError, match="neither kernel nor noise is learned"):
        train(fixed, gilib.Gaussian(0.1))


@each_noise
def test_every_output_pays_for_the_jitter(noises):
    """N jitter / (2σ²) each."""
    gram = kernel_of(sparse(X)).gram(X).detach()
    value, free = (evidence(gram, Y, torch.tensor(noises, dtype=D), jitter, ONES) for jitter in (0.01, 0.0))
    nugget = 0.01 * float(gram.diagonal().mean())
    wanted = sum(30 * nugget / (2 * noise) for noise in noises * (2 // len(noises)))
    assert_equal(free - value, torch.tensor(wanted, dtype=D), 1e-9)


@pytest.fixture
def running():
    """What a training of one step has left."""
    held = []

    @dataclass(frozen=True)
    class Seen(Collapsed):
        def begin(self, problem):
            held.append(super().begin(problem))
            return held[-1]

    net, noise = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
    train(net, noise, steps=1, rule=Seen(tolerance=1e-3))
    return held[0]


def test_only_steps_in_a_row_end_the_search(running):
    """Those that gain less than the tolerance."""
    losses, idle = iter([1.0, 0.9999, 0.5, 0.4999, 0.4998, 0.3]), []
    running.search, running.idle, running.last = SimpleNamespace(step=lambda loss: next(losses)), 0, -2.0
    for _ in range(6):
        running._search((X, Y, ONES))
        idle.append(running.idle)
    assert idle == [0, 1, 0, 1, 2, 0]


def test_no_point_is_evaluated_twice_and_none_is_taken_for_another():
    """A search that forgets at every step where it was goes the same way; gradients may be overwritten."""

    def search(forgetful):
        places, net, noise = [], sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)

        @dataclass(frozen=True)
        class Watched(Collapsed):
            def begin(self, problem):
                running = super().begin(problem)
                objective, go = running.model.bound, running._search

                def bound(*data):
                    places.append(torch.cat([p.detach().flatten() for p in running.parameters]))
                    return objective(*data)

                def start(data):
                    running.seen = [] if forgetful else running.seen
                    go(data)

                running.model.bound, running._search = bound, start
                return running

        def spoil(*_):
            for parameter in net.parameters():
                parameter.grad = parameter.grad if parameter.grad is None else parameter.grad.fill_(7.0)

        return train(net, noise, steps=9, rule=Watched(), callbacks=[spoil]).elbo, torch.stack(places)

    (climbed, places), (again, more) = search(False), search(True)
    assert torch.equal(climbed, again)
    assert len(places.unique(dim=0)) == len(places) == len(more) - 8


def test_it_returns_to_the_best_point_that_it_has_seen(running):
    losses = {1.0: 2.0, 2.0: 1.0, 3.0: 3.0}
    at = {k: [torch.full_like(p, k) for p in running.parameters] for k in losses}
    running._return_to([Evaluation(at[k], [], torch.tensor(v)) for k, v in losses.items()])
    assert running.last == -1.0 and all(bool((p == 2.0).all()) for p in running.parameters)


def test_a_training_ends_with_its_search(tmp_path):
    """And goes no further when it is asked again, from its file."""

    def fit():
        net, noise = sparse(X, jitter=1e-9), gilib.Gaussian(0.5, learn=True)
        return train(net, noise, steps=300, rule=Collapsed(1e-3), checkpoint=tmp_path / "run.pt")

    first, again = fit(), fit()
    assert len(first.elbo) < 100 and first.ended == again.ended == STOOD_STILL
    assert torch.equal(first.elbo, again.elbo) and again.resumed_at == len(first.elbo)
