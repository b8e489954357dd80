"""SGHMC: chains whose stationary covariance is known, steps written out, states that are kept."""

import math
from dataclasses import dataclass

import pytest
import torch

import gilib
from gilib.training import SGHMC, Checkpoint, KeptStates, Paused
from gilib.training.sghmc import Coordinates, chosen
from tests.kernels.cases import textbook
from tests.support import D, assert_equal, assert_mean, normals, ridge, seeded, with_ones

N, NOISE, KERNEL = 20, 0.09, gilib.kernels.RBF(lengthscale=(0.8, 1.3), variance=1.7)
X = normals(N, 2, seed=1)
Y = X @ torch.tensor([[1.0], [-2.0]], dtype=D) + 0.5 + 0.3 * normals(N, 1, seed=2)
Z, JITTER = X[::5], 1e-5
POINT = gilib.PointEstimate()


def linear(replicas=()):
    """Bayesian linear regression; the parameter is √3 times the weights."""
    return gilib.models.mlp(2, (), 1, posterior=POINT, replicas=replicas, dtype=D, generator=seeded())


def process(replicas=(), depth=1):
    """A sparse Gaussian process; the parameter is the whitened inducing outputs."""
    settings = {"inducing_points": Z, "replicas": replicas, "dtype": D, "jitter": JITTER}
    return gilib.models.deep_gp(2, 1, depth, posterior=POINT, kernel=KERNEL, **settings)


def fixed(net):
    """Hyper-parameters are not learned."""
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("scaled_weights" in name)
    return net


def white():
    """a(x) of the sparse process, `[N, M]`."""
    root = torch.linalg.cholesky(textbook(KERNEL, Z, Z) + JITTER * KERNEL.variance * torch.eye(len(Z)))
    return torch.linalg.solve_triangular(root, textbook(KERNEL, Z, X), upper=False).mT


FEATURES = {"linear": lambda: with_ones(X) / 3**0.5, "process": white}
NETWORKS = {"linear": linear, "process": process}


@dataclass(frozen=True)
class Seen(SGHMC):
    """Tells what became of it."""

    def begin(self, problem):
        running.append(super().begin(problem))
        return running[-1]


running = []


def train(net, rule, steps, *, likelihood=None, x=X, y=Y, **settings):
    settings = {"num_samples": 1, "progress": False} | settings
    likelihood = gilib.Gaussian(NOISE) if likelihood is None else likelihood
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def state(net):
    return next(p for name, p in net.named_parameters() if "scaled_weights" in name).detach()


# What chains converge to


def stationary(hessian, square, lr, decay):
    """Covariance of θ under θ' = θ + v', v' = (1 - α) v - ε² D H θ + noise: Σ = A Σ Aᵀ + Q, `[..., I, I]`."""
    size = hessian.shape[-1]
    mass = square.rsqrt().diag_embed()
    pull = lr**2 * mass @ hessian
    stay = (1.0 - decay) * torch.eye(size, dtype=D).expand_as(pull)
    one = torch.eye(size, dtype=D)
    step = torch.cat([torch.cat([one - pull, stay], -1), torch.cat([-pull, stay], -1)], -2)
    assert torch.linalg.eigvals(step).abs().max() < 0.99  # the start is forgotten before states are kept
    spread = (2.0 * lr**2 * decay * mass).repeat(*[1] * (mass.dim() - 2), 2, 2)
    kron = torch.einsum("...ij,...kl->...ikjl", step, step).flatten(-4, -3).flatten(-2, -1)
    identity = torch.eye(4 * size * size, dtype=D)
    covariance = torch.linalg.solve(identity - kron, spread.flatten(-2)[..., None])[..., 0]
    return covariance.unflatten(-1, (2 * size, 2 * size))[..., :size, :size]


def test_the_oracle_in_one_dimension():
    """σ² / (1 - h / 2(2 - α)), h = ε² V^(-1/2) ∂²U: too large by a part of about h / 4."""
    hessian, square, lr, decay = torch.tensor([[3.0]], dtype=D), torch.tensor([16.0], dtype=D), 0.7, 0.3
    h = lr**2 * 3.0 / 4.0
    variance = stationary(hessian, square, lr, decay)
    assert_equal(variance, torch.tensor([[1 / 3 / (1 - h / (2 * (2 - decay)))]], dtype=D), 1e-12)


@pytest.mark.parametrize(
    ("kind", "chains", "lr", "decay", "burn_in", "biased"),
    [
        ("linear", 120, 0.3, 0.2, 200, True),
        ("linear", 120, 0.1, 0.1, 500, False),
        ("process", 30, 0.4, 0.4, 150, True),
    ],
)
def test_chains_have_the_stationary_covariance_of_their_steps(kind, chains, lr, decay, burn_in, biased):
    """Every chain by its own V, frozen after burn-in; with short steps that is all but the posterior."""
    net, kept = fixed(NETWORKS[kind]((chains,))), KeptStates(after=2 * burn_in, every=20)
    train(net, Seen(burn_in, lr, decay), 4 * burn_in, callbacks=[kept])
    states = torch.stack(*kept.states.values())[..., 0].permute(1, 2, 0)  # [R, I, K]
    square = running[-1].coordinates[0].square[..., 0]
    mean, posterior = ridge(FEATURES[kind](), Y, 1.0, NOISE)
    truth = stationary(torch.linalg.inv(posterior), square, lr, decay)

    def second_moments(covariance):
        """Of states that are whitened by it, [R, I, I]: the identity on average."""
        root = torch.linalg.cholesky(covariance)
        whitened = torch.linalg.solve_triangular(root, states - mean, upper=False)
        return whitened @ whitened.mT / states.shape[-1]

    identity = torch.eye(len(mean), dtype=D)
    assert_mean(states.mean(-1), mean[:, 0])
    assert_mean(second_moments(truth), identity)
    excess = (truth.diagonal(dim1=-2, dim2=-1).mean(0) / posterior.diagonal()).max() - 1.0
    if biased:
        with pytest.raises(AssertionError, match="standard errors"):
            assert_mean(second_moments(posterior), identity)
    else:
        assert 0 < excess < 0.06
        assert_mean(second_moments(posterior), identity)


@pytest.mark.parametrize("adaptation", [None, 200])
def test_scales_that_follow_exact_gradients_widen_the_chain(adaptation):
    """They would be frozen after burn-in only: 2.9 times the variance; or early: the posterior's."""
    net, kept = fixed(linear((100,))), KeptStates(after=600, every=50)
    train(net, SGHMC(1200, lr=0.03, adaptation=adaptation), 1200, callbacks=[kept])
    states = torch.stack(*kept.states.values())[..., 0]  # [K, R, I]
    mean, posterior = ridge(FEATURES["linear"](), Y, 1.0, NOISE)
    squares = ((states - mean[:, 0]) ** 2).mean(0) / posterior.diagonal()
    if adaptation is None:
        assert bool((squares.mean(0) > 2.0).all())
    else:
        assert_mean(squares, torch.ones(3, dtype=D))


def test_noise_is_learned_by_the_evidence():
    """Monte Carlo EM ends where σ² = E|y - Φw|² / N under the posterior, and not where MAP does."""
    chains, features, start = 100, FEATURES["linear"](), math.log(0.5)

    def ended(update):
        log_variance = torch.tensor(start, dtype=D)
        for _ in range(500):
            mean, covariance = ridge(features, Y, 1.0, log_variance.exp())
            log_variance = (update(mean, features @ covariance @ features.mT)).log()
        return log_variance

    evidence = ended(lambda mean, spread: ((Y - features @ mean).square().sum() + spread.trace()) / N)
    point = ended(lambda mean, spread: (Y - features @ mean).square().sum() / N)
    likelihood = gilib.Gaussian(0.5, learn=True, replicas=(chains,)).to(D)
    trace = []

    def look(step, bound, net):
        if step > 850:
            trace.append(likelihood.noise_variance.detach().log().flatten())

    decay = gilib.training.LinearDecay(start=0.3)
    adam = gilib.Adam(0.03, schedule=decay, betas=(0.9, 0.99))  # soon forgets how far from the data it began
    rule = SGHMC(900, lr=0.06, momentum_decay=0.1, window=50, rest=adam, adaptation=200)
    train(linear((chains,)), rule, 900, likelihood=likelihood, callbacks=[look])
    learned = torch.stack(trace).mean(0)
    assert_mean(learned, evidence)
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(learned, point)


# Steps


def test_steps_written_out():
    """Four of burn-in and two more, window 2: gradients by hand, Adam by torch, the rule's own numbers."""
    rule = SGHMC(4, lr=0.2, momentum_decay=0.3, window=2, rest=gilib.Adam(0.05))
    net, likelihood, seed = linear(), gilib.Gaussian(0.5, learn=True).to(D), 5
    theta, (log_noise,) = state(net).clone(), [p.detach().clone() for p in likelihood.parameters()]
    train(net, rule, 6, likelihood=likelihood, seed=seed)

    features, stream = FEATURES["linear"](), seeded(seed + 3)
    log_noise.requires_grad_()
    adam, window = torch.optim.Adam([log_noise], lr=0.05), []
    v, tau, g, square = torch.zeros_like(theta), *(torch.ones_like(theta) for _ in range(3))

    def energy(theta):
        residual = Y - features @ theta
        return (
            0.5 * residual.square().sum() / log_noise.exp() + 0.5 * N * log_noise + 0.5 * theta.square().sum()
        )

    for step in range(6):
        slope = theta - features.mT @ (Y - features @ theta) / log_noise.detach().exp()
        window = [*window, theta][-2:]
        if step < 4:
            rate = 1 / (tau + 1)
            tau, g, square = (
                1 + tau * (1 - g**2 / square),
                g + rate * (slope - g),
                square + rate * (slope**2 - square),
            )
        noise = torch.randn(1, 3, 1, generator=stream, dtype=D)[0]
        v = 0.7 * v - 0.04 * slope / square.sqrt() + (2 * 0.04 * 0.3 / square.sqrt()).sqrt() * noise
        theta = theta + v
        if step < 4:
            uniform = torch.distributions.Normal(0.0, 1.0).cdf(torch.randn(1, generator=stream, dtype=D))
            ring = window if step % 2 or step == 0 else window[::-1]
            adam.zero_grad()
            (energy(ring[int(uniform * len(ring))]) / N).backward()
            adam.step()
    assert_equal(state(net), theta, 1e-10)
    assert_equal(next(likelihood.parameters()).detach(), log_noise.detach(), 1e-10)


def test_the_memory_is_short_where_gradients_agree_and_long_where_they_do_not():
    same, other = (Coordinates.at_rest(torch.zeros(1, dtype=D)) for _ in range(2))
    for step in range(60):
        same.adapt(torch.full((1,), 3.0, dtype=D))
        other.adapt(torch.full((1,), 3.0 * (-1) ** step, dtype=D))
    assert same.memory < 1.01 and other.memory > 20
    assert_equal(same.square, torch.tensor([9.0], dtype=D), 1e-6)


def test_a_parameter_without_gradient_keeps_finite_scales():
    own = Coordinates.at_rest(torch.zeros(1, dtype=D))
    for _ in range(3000):
        own.adapt(torch.zeros(1, dtype=D))
    assert own.square > 0 and own.pushed(own.mean, torch.ones(1, dtype=D), 0.01, 0.05).isfinite()


def test_every_filled_state_of_the_window_is_as_probable():
    ring = torch.arange(5.0, dtype=D)[:, None, None, None].expand(5, 1000, 2, 1)
    levels = (torch.arange(1000, dtype=D) + 0.5) / 1000
    (state,) = chosen([ring], 4, torch.special.ndtri(levels))
    assert torch.equal(state[:, 0, 0], torch.arange(4.0, dtype=D).repeat_interleave(250))
    (ends,) = chosen([ring[:, :2]], 4, torch.tensor([-40.0, 40.0], dtype=D))
    assert ends[:, 0, 0].tolist() == [0.0, 3.0]


def test_scales_and_the_rest_stay_after_burn_in():
    """And with none of it only the state moves, at V = 1."""
    net, snapshots = process(depth=2), {}

    def look(step, bound, net):
        rest = {name: p.detach().clone() for name, p in net.named_parameters() if "scaled" not in name}
        snapshots[step] = rest | {"V": running[-1].coordinates[0].square.clone()}

    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    train(net, Seen(3), 6, callbacks=[look])
    assert all(not torch.equal(snapshots[3][name], before[name]) for name in before if "scaled" not in name)
    assert not torch.equal(snapshots[2]["V"], snapshots[3]["V"])
    assert all(torch.equal(snapshots[3][name], snapshots[6][name]) for name in snapshots[3])
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    train(net, Seen(0), 2)
    assert all(torch.equal(p, before[name]) != ("scaled" in name) for name, p in net.named_parameters())
    assert bool((running[-1].coordinates[0].square == 1).all())


# What a training owes its rule


def learner(replicas=()):
    """A deep Gaussian process with everything learned, and its noise."""
    return process(replicas, depth=2), gilib.Gaussian(0.3, learn=True, replicas=replicas).to(D)


@pytest.mark.parametrize("replicas", [(), (2,)])
def test_it_resumes_to_the_last_bit(replicas, tmp_path):
    """Momenta, scales, window, Adam and kept states, before and after the end of burn-in."""
    rule = SGHMC(6, window=3)
    settings = {"batch_size": 7, "seed": [3, 8] if replicas else 3}
    expected, (whole, noise) = KeptStates(6, every=2), learner(replicas)
    history = train(whole, rule, 11, likelihood=noise, callbacks=[expected], **settings)
    pauses, path = 0, tmp_path / "checkpoint"
    while True:
        kept, (net, own) = KeptStates(6, every=2), learner(replicas)
        late = Checkpoint(path, deadline=0.0)
        try:
            resumed = train(net, rule, 11, likelihood=own, checkpoint=late, callbacks=[kept], **settings)
            break
        except Paused:
            pauses += 1
    assert pauses == 10 and torch.equal(history.elbo, resumed.elbo)
    for one, other in zip(
        [*whole.parameters(), *noise.parameters()], [*net.parameters(), *own.parameters()], strict=True
    ):
        assert torch.equal(one, other)
    states, again = expected.samples(whole).states, kept.samples(net).states
    assert len(states) == 2 and all(len(value) == 2 for value in states.values())
    assert all(torch.equal(states[name], again[name]) for name in states)


def test_replicas_are_chains_as_each_would_be_alone():
    seeds, rule = [3, 8], SGHMC(6, window=3)
    net, noise = learner((2,))
    history = train(net, rule, 9, likelihood=noise, seed=seeds, batch_size=7)
    for r, seed in enumerate(seeds):
        alone, own = learner()
        single = train(alone, rule, 9, likelihood=own, seed=seed, batch_size=7)
        assert_equal(history.elbo[:, r], single.elbo, 1e-9)
        for name, value in net.named_parameters():
            assert_equal(value[r].detach(), alone.get_parameter(name).detach(), 1e-9)


@pytest.mark.parametrize("learn", [True, False])
def test_a_chain_that_breaks_down_stays_where_it_was(learn):
    net, healthy = linear((2,)), linear((2,))
    y = Y.expand(2, N, 1).clone()
    y[1, 3] = 1e200
    likelihoods = [gilib.Gaussian(0.3, learn=learn, replicas=(2,)).to(D) for _ in range(2)]
    settings = {"on_divergence": "freeze", "seed": [1, 2]}
    before = state(net)[1].clone()
    history = train(net, SGHMC(5), 8, y=y, likelihood=likelihoods[0], **settings)
    train(healthy, SGHMC(5), 8, likelihood=likelihoods[1], **settings)
    assert history.diverged_at.tolist() == [-1, 0]
    assert torch.equal(state(net)[1], before) and torch.equal(state(net)[0], state(healthy)[0])


def test_chains_that_share_what_adam_trains_cannot_be_frozen():
    with pytest.raises(ValueError, match="replicas share"):
        shared = gilib.Gaussian(0.3, learn=True).to(D)
        train(linear((2,)), SGHMC(5), 8, likelihood=shared, on_divergence="freeze")


# Kept states


def test_kept_states_are_functions():
    net, kept = fixed(linear()), KeptStates(after=2, every=3)
    train(net, SGHMC(2, lr=0.1), 11, callbacks=[kept])
    samples = kept.samples(net)
    weights = samples.states["layers.layers.0.weights.scaled_weights"]
    assert samples.num_states == 3 and torch.equal(weights[-1], state(net))  # those of steps 5, 8, 11
    assert_equal(samples.draw()(X).detach(), FEATURES["linear"]() @ weights, 1e-12)


def test_kept_states_of_processes_sample_their_own_points():
    """Given u the mean at a point is aᵀw, and the variance k - |a|² is the likelihood's to integrate."""
    net, kept = fixed(process((2,))), KeptStates(after=2, every=1)
    train(net, SGHMC(2, lr=0.1), 6, callbacks=[kept])
    samples = kept.samples(net)
    draw = samples.draw(generator=seeded())
    mean, variance = draw.moments(X)
    states = samples.states["layers.layers.0.weights.scaled_weights"]
    assert states.shape == (4, 2, len(Z), 1)
    assert_equal(mean.detach(), white() @ states, 1e-9)
    expected = KERNEL.variance - white().square().sum(-1, keepdim=True)
    assert_equal(variance.detach(), expected.clamp_min(0.0).expand_as(mean), 1e-9)
    prediction = gilib.predict(samples, gilib.Gaussian(NOISE), X, 4, generator=seeded())
    assert_equal(prediction.mean, (white() @ states).mean(0), 1e-9)


def test_kept_states_of_another_training_are_forgotten():
    net, kept = fixed(linear()), KeptStates(after=0, every=1)
    train(net, SGHMC(0), 3, callbacks=[kept])
    train(net, SGHMC(0), 2, callbacks=[kept])
    assert kept.samples(net).num_states == 2


# Bad input


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"burn_in": -1}, "burn_in must be an integer of at least 0, got -1"),
        ({"burn_in": 1.5}, "burn_in must be an integer"),
        ({"lr": 0.0}, "lr must be a positive finite number, got 0.0"),
        ({"lr": math.nan}, "lr must be a positive finite number, got nan"),
        ({"momentum_decay": 0.0}, "momentum_decay must be a positive finite number"),
        ({"momentum_decay": 1.1}, "momentum_decay is at most 1, no memory at all, got 1.1"),
        ({"window": 0}, "window must be an integer of at least 1, got 0"),
        ({"adaptation": -1}, "adaptation must be an integer of at least 0, got -1"),
        ({"adaptation": 11}, "adaptation is a part of burn-in, at most 10 steps, got 11"),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(ValueError, match=message):
        SGHMC(**{"burn_in": 10} | settings)


def test_another_rule_for_the_rest():
    with pytest.raises(TypeError, match="rest must be a Adam, got NaturalGradient"):
        SGHMC(10, rest=gilib.training.NaturalGradient())


@pytest.mark.parametrize("posterior", [gilib.Factorised(), POINT], ids=["no point", "fixed points"])
def test_networks_without_anything_to_sample(posterior):
    net = gilib.models.mlp(2, (), 1, posterior=posterior, dtype=D)
    net.requires_grad_(posterior is not POINT)
    with pytest.raises(ValueError, match=r"SGHMC is for layers with PointEstimate.*train it by gilib\.Adam"):
        train(net, SGHMC(10), 1)


def test_states_that_are_not_there():
    kept, net = KeptStates(after=10, every=5), linear()
    train(net, SGHMC(10), 14, callbacks=[kept])
    with pytest.raises(ValueError, match="the first would be that of step 15"):
        kept.samples(net)


@pytest.mark.parametrize(("after", "every", "name"), [(-1, 1, "after"), (0, 0, "every"), (0.5, 1, "after")])
def test_when_states_are_kept(after, every, name):
    with pytest.raises(ValueError, match=f"{name} must be an integer"):
        KeptStates(after, every)
