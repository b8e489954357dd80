"""What every training owes: it resumes to the last bit, replicas train as if alone, all parameters move."""

from functools import partial

import pytest
import torch

import gilib
from gilib.training import IVON, SGHMC, VOGN, Bali, LinearDecay, NaturalGradient, NoisyAdam, NoisyKFAC, Vadam
from tests.support import PRIORS, assert_equal, normals, processes, seeded, shaken, small_net, step_by_step
from tests.support.rules import MovingAverages, averaged
from tests.support.trainings import shake

pytestmark = pytest.mark.filterwarnings("ignore:.*regressions of 5 points")
R, N, STEPS = 2, 12, 4
RATES, SEEDS = [0.003, 0.03], [7, 1]
X, Y = normals(R, N, 2, seed=1), normals(R, N, 2, seed=2)


def weights(posterior, prior="neal"):
    prior = PRIORS.get(prior, prior)
    return lambda replicas=(): small_net(posterior, prior, points=4, replicas=replicas)


def structured(replicas=()):
    shared = {"inducing_points": X[0, :4], "generator": seeded(), "num_features": 8}
    family = gilib.structured.FullyCoupled()
    net = gilib.models.structured_gp(2, 2, 2, width=2, family=family, replicas=replicas, **shared)
    return shaken(net, 0.1)


FACTORISED, CONJUGATE = weights(gilib.Factorised()), weights(gilib.posteriors.Conjugate())
CASES = {  # a network, and settings of its training; without a rule Adam, with a rate for every replica
    "per output": (weights(gilib.GlobalInducing("per_output"), "scale"), {}),
    "full": (weights(gilib.GlobalInducing("full"), "spatial"), {}),
    "local": (weights(gilib.LocalInducing(4, "per_output"), "standard"), {"batch_size": None}),
    "prior below": (weights((gilib.FromPrior(), gilib.GlobalInducing())), {}),
    "factorised below": (weights((gilib.Factorised(), gilib.GlobalInducing())), {"batch_size": None}),
    "pointwise": (weights(gilib.Factorised(), "scale"), {"estimator": "pointwise"}),
    "augmented": (FACTORISED, {"augment": shake}),
    "groups": (FACTORISED, {"rule": gilib.Adam(groups={"layers": 1e-3, "likelihood": 1e-2})}),
    "a scale that is learned": (weights(gilib.Factorised(), gilib.NealPrior(learn=True)), {}),
    "scheduled": (FACTORISED, {"rule": gilib.Adam(0.03, schedule=LinearDecay(0.5))}),
    "processes": (processes.NETWORKS["global, per output"], {}),
    "mixed processes": (processes.NETWORKS["free, then global"], {}),
    "structured": (structured, {}),
    "natural": (processes.NETWORKS["free"], {"rule": NaturalGradient(0.1, gilib.Adam(0.02))}),
    "vogn": (FACTORISED, {"rule": VOGN()}),
    "vadam": (FACTORISED, {"rule": Vadam()}),
    "noisy adam": (FACTORISED, {"rule": NoisyAdam()}),
    "ivon": (FACTORISED, {"rule": IVON()}),
    "noisy k-fac": (weights(gilib.posteriors.MatrixGaussian()), {"rule": NoisyKFAC()}),
    "bali": (CONJUGATE, {"rule": Bali()}),
    "bali, outputs": (CONJUGATE, {"rule": Bali(), "estimator": "pointwise"}),
    "bali, moments kept": (CONJUGATE, {"rule": Bali(keep_moments=True)}),
    "sghmc": (weights(gilib.PointEstimate()), {"rule": SGHMC(3, window=2)}),
    "a reader's own": (averaged, {"rule": MovingAverages(jitter=0.1)}),
}
SHARED = ["per output", "local", "pointwise", "augmented", "processes", "structured"]  # see their data alike
SHARED += ["vogn", "noisy k-fac", "bali", "bali, outputs", "bali, moments kept", "sghmc", "a reader's own"]


def start(name, replicas=()):
    return CASES[name][0](replicas=replicas), gilib.Gaussian(0.3, learn=True, replicas=replicas)


def fit(name, net, likelihood, x, y, rate, **settings):
    settings = {"rule": gilib.Adam(rate), "batch_size": 5, "num_samples": 2} | CASES[name][1] | settings
    return gilib.fit(net, likelihood, x, y, steps=STEPS, progress=False, **settings)


def assert_same(parts, others, at=..., tolerance=0.0):
    """All that there is to train, of a replica or as it is."""
    for part, other in zip(parts, others, strict=True):
        state = part.state_dict()
        for key, value in other.state_dict().items():
            own = state[key]
            if at is not ... and own.shape[:1] == (R,):
                own, value = own[at], value if value.shape != own.shape else value[at]
            assert_equal(own, value, tolerance)


@pytest.mark.parametrize(
    ("name", "replicas"),
    [*((name, (R,)) for name in CASES), *((name, ()) for name in ("full", "augmented", "bali"))],
)
def test_it_resumes_to_the_last_bit(name, replicas, tmp_path):
    """Paused after every step; what networks are begun anew with does not count, but what the file holds."""
    x, y, rate, seed = (X, Y, RATES, SEEDS) if replicas else (X[0], Y[0], RATES[0], SEEDS[0])
    train = partial(fit, name, x=x, y=y, rate=rate, seed=seed)
    whole, begun = start(name, replicas), []
    history = train(*whole)

    def anew():
        parts = start(name, replicas)
        begun.append([shaken(part, 0.1) for part in parts if begun])
        return parts

    parts, resumed, pauses = step_by_step(tmp_path / "run", anew, train)
    assert pauses == STEPS - 1 and torch.equal(resumed.elbo, history.elbo)
    assert_same(parts, whole)


@pytest.mark.parametrize(
    ("name", "shared"), [*((name, False) for name in CASES), *((name, True) for name in SHARED)]
)
def test_replicas_train_as_they_would_alone(name, shared):
    """Data that are shared are shuffled, augmented and drawn for by each replica itself."""
    together = start(name, (R,))
    singles = [start(name) for _ in range(R)]
    for r, single in enumerate(singles):
        for part, joint in zip(single, together, strict=True):
            state, own = joint.state_dict(), part.state_dict()
            part.load_state_dict(
                {k: state[k] if state[k].shape == v.shape else state[k][r] for k, v in own.items()}
            )
    x, y = (X[0], Y[0]) if shared else (X, Y)
    history = fit(name, *together, x, y, RATES, seed=SEEDS)
    for r, single in enumerate(singles):
        own = (x, y) if shared else (x[r], y[r])
        alone = fit(name, *single, *own, RATES[r], seed=SEEDS[r])
        assert_equal(history.elbo[:, r], alone.elbo, 1e-8)
        assert_same(together, single, r, 1e-8)


@pytest.mark.parametrize("trouble", ["bound", "gradient"])
@pytest.mark.parametrize("name", ["per output", "full", "bali", "bali, moments kept", "sghmc"])
def test_a_replica_that_breaks_down_stays_and_spoils_no_other(name, trouble, monkeypatch):
    """Where its targets have no finite squares, or only a gradient is not finite."""
    sick, healthy, untouched = (start(name, (R,)) for _ in range(3))
    settings = {"seed": SEEDS, "on_divergence": "freeze", "batch_size": None}
    fit(name, *healthy, X, Y, RATES, **settings)
    y = Y.clone()
    if trouble == "bound":
        y[1, 3] = 1e200
    else:
        monkeypatch.setattr("torch.autograd.grad", spoilt(torch.autograd.grad))
    history = fit(name, *sick, X, y, RATES, **settings)
    assert history.diverged_at.tolist() == [-1, 0]
    assert_same([sick[0]], [untouched[0]], 1)
    assert_same(sick, healthy, 0, 1e-10)


def spoilt(grad):
    """Gradients whose second replica has one entry that is no number."""

    def spoil(*given, **settings):
        first, *rest = grad(*given, **settings)
        first = first.clone()
        if first.dim() > 2:  # not that of a noise
            first[..., 1, 0, 0] = torch.nan
        return first, *rest

    return spoil


@pytest.mark.parametrize("name", list(CASES)[:-1])  # the last has none but the noise, which is not its own
def test_every_parameter_moves_and_no_other_stream(name):
    net, likelihood = start(name)
    parameters = [*net.parameters(), *likelihood.parameters()]
    before = [parameter.detach().clone() for parameter in parameters if parameter.requires_grad]
    state = torch.get_rng_state()
    fit(name, net, likelihood, X[0], Y[0], RATES[0])
    assert torch.equal(state, torch.get_rng_state())
    after = [parameter for parameter in parameters if parameter.requires_grad]
    assert not any(torch.equal(*pair) for pair in zip(after, before, strict=True))
