"""Oracles and small models that several test modules share; every formula is written out."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

import gilib
from gilib.training import Checkpoint, Paused

D = torch.float64

PRECISIONS = ("shared", "per_output", "full")
PRIORS = {
    "neal": gilib.NealPrior(scale=1.3),
    "standard": gilib.StandardPrior(),
    "scale": gilib.ScalePrior(shape=2.5, rate=1.7, initial_log_alpha=1.0, initial_log_beta=0.5),
    "spatial": gilib.SpatialIWPrior(initial_log_nu=0.7),
}
POSTERIORS = {
    "fac": gilib.Factorised(),
    "rand": gilib.FromPrior(),
    **{f"li-{kind}": gilib.LocalInducing(num_inducing=3, precision=kind) for kind in PRECISIONS},
    **{f"gi-{kind}": gilib.GlobalInducing(precision=kind) for kind in PRECISIONS},
}

PAIRS = [  # each posterior once, each prior with a posterior of every kind
    *zip(POSTERIORS, 2 * list(PRIORS), strict=True),
    *(("gi-full", prior) for prior in ("neal", "standard", "scale")),
    *[("fac", "scale"), ("fac", "spatial"), ("rand", "scale"), ("gi-shared", "neal")],
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def normals(*shape, seed=0):
    return torch.randn(shape, generator=seeded(seed), dtype=D)


def with_ones(x):
    """Inputs with the bias column, `[..., N, D + 1]`."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


def small_net(posterior, prior=None, *, hidden=(3,), points=5, seed=0, shake=0.3, **settings):
    """A two-layer network [2 → 3 → 2] in float64, its parameters shaken so that no two terms coincide."""
    settings.setdefault("activation", torch.nn.Tanh)
    last = posterior[-1] if isinstance(posterior, (tuple, list)) else posterior
    targets = normals(points, 2, seed=seed + 11) if isinstance(last, gilib.GlobalInducing) else None
    settings |= {"posterior": posterior, "prior": prior, "generator": seeded(seed), "dtype": D}
    settings |= {"inducing_points": normals(points, 2, seed=seed + 10), "pseudo_outputs": targets}
    return shaken(gilib.models.mlp(2, hidden, 2, **settings), shake, seed)


def shaken(module, size=0.3, seed=0):
    """The same module with noise added to every parameter."""
    generator = seeded(seed + 100)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(size * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    return module


def log_evidence(features, targets, prior_variance, noise_variance):
    """Σ_o log N(y_o; 0, ΦΦᵀ · prior_variance + σ² Id), for Φ `[..., N, I]` and y `[N, O]`; `[...]`."""
    identity = torch.eye(features.shape[-2], dtype=D)
    covariance = prior_variance * features @ features.mT + noise_variance * identity
    marginal = MultivariateNormal(torch.zeros(features.shape[-2], dtype=D), covariance)
    return sum(marginal.log_prob(column) for column in targets.mT)


def ridge(features, targets, prior_precision, noise_variance):
    """Posterior mean `[I, O]` and covariance `[I, I]` of Bayesian linear regression."""
    identity = torch.eye(features.shape[-1], dtype=D)
    covariance = torch.linalg.inv(prior_precision * identity + features.mT @ features / noise_variance)
    return covariance @ features.mT @ targets / noise_variance, covariance


def pseudo_precision(posterior):
    """Λ_o of a built inducing-point posterior as dense matrices, `[O or 1, M, M]`."""
    pseudo = posterior.pseudo
    rates = (pseudo.log_precision_scale * pseudo.scaled_log_precision).exp()
    if pseudo.kind != "full":
        return torch.diag_embed(rates if rates.dim() == 2 else rates[None])
    points = rates.shape[-1]
    root = rates.sqrt().diag() @ (torch.eye(points, dtype=D) + pseudo.scaled_root.tril(-1))
    return (root @ root.mT)[None]


def log_p(weights, prior_precision):
    """Score weights `[S, I, O]` under N(0, Id / prior_precision)."""
    sd = torch.tensor(1.0 / math.sqrt(prior_precision), dtype=D)
    return Normal(torch.zeros_like(sd), sd).log_prob(weights).sum((-2, -1))


def assert_mean(values, truth, dim=0, errors=6.0):
    """The mean of independent values lies within six standard errors of the truth, entry by entry."""
    error = values.std(dim) / math.sqrt(values.shape[dim])
    gap = (values.mean(dim) - truth).abs()
    assert bool((error > 0).all()), "values without any spread: nothing is tested"
    assert bool((gap <= errors * error).all()), f"off by {float((gap / error).max()):.1f} standard errors"


def assert_same_mean(values, others, errors=6.0):
    """Two sets of independent values have one mean within six standard errors, entry by entry."""
    error = (values.var(0) / len(values) + others.var(0) / len(others)).sqrt()
    gap = (values.mean(0) - others.mean(0)).abs()
    assert bool((error > 0).all()), "values without any spread: nothing is tested"
    assert bool((gap <= errors * error).all()), f"{float((gap / error).max()):.1f} standard errors apart"


def assert_equal(actual, expected, tolerance=1e-12):
    """Equal up to a relative and absolute tolerance."""
    expected = torch.as_tensor(expected, dtype=actual.dtype)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def refusals(cases, error=ValueError):
    """A test that each call of a table, or of a list, raises an error with a certain message."""
    table = cases if isinstance(cases, dict) else dict(enumerate(cases))

    @pytest.mark.parametrize("name", table)
    def test(name):
        call, message = table[name]
        with pytest.raises(error, match=message):
            call()

    return test


def step_by_step(path, start, train):
    """Pause after every step, and begin anew until all is done; what began last, its result, the pauses."""
    pauses = 0
    while True:
        parts = start()
        try:
            return parts, train(*parts, checkpoint=Checkpoint(path, deadline=0.0)), pauses
        except Paused:
            pauses += 1


class Watch(torch.nn.Module):
    """The identity; notes, forward and backward, what a function of no arguments says."""

    def __init__(self, note):
        super().__init__()
        self.note, self.seen = note, []

    def forward(self, x):
        self.seen.append(self.note())
        if x.requires_grad:
            x.register_hook(lambda gradient: self.seen.append(self.note()))
        return x + 0.0


def watched(note, posterior=None):
    """A network [2 → 3 → 2] that notes something when it is drawn, evaluated or differentiated."""
    points = normals(5, 2, seed=1).float()
    watch, posterior = Watch(note), posterior or gilib.GlobalInducing()
    layers = [gilib.Linear(2, 3, posterior), watch, gilib.Linear(3, 2, posterior)]
    net = gilib.Network(points, layers, input_shape=(2,), generator=seeded())
    watch.seen.clear()
    return net, watch.seen
