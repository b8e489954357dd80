"""SGHMC: its steps written out, chains whose covariance is known, what a training owes its rule."""

from dataclasses import dataclass

import pytest
import torch

import gilib
from gilib.training import SGHMC, StoredStates
from gilib.training.rules.sghmc import Coordinates, chosen
from tests.kernels.cases import textbook
from tests.support import D, assert_equal, assert_mean, normals, ridge, seeded, step_by_step, with_ones

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


def test_steps_written_out():
    """Four of burn-in and two more, window 2: gradients by hand, Adam by torch, the rule's own numbers."""
    rule = SGHMC(4, lr=0.2, momentum_decay=0.3, window=2, base_optimiser=gilib.Adam(0.05))
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


def test_kept_states_resume(tmp_path):
    """All else does, and chains that break down stay, in `test_every_rule`."""

    def start():
        return process((2,), depth=2), StoredStates(4, every=2)

    def go_on(net, kept, **checkpoint):
        return train(net, SGHMC(4, window=3), 8, callbacks=[kept], seed=[3, 8], **checkpoint)

    whole, expected = start()
    go_on(whole, expected)
    (net, kept), _, pauses = step_by_step(tmp_path / "run", start, go_on)
    states, again = expected.samples(whole).states, kept.samples(net).states
    assert pauses == 7 and all(len(value) == 2 for value in states.values()) and len(states) == 2
    assert all(torch.equal(states[name], again[name]) for name in states)


def test_chains_that_share_what_adam_trains_cannot_be_frozen():
    with pytest.raises(ValueError, match="replicas share"):
        shared = gilib.Gaussian(0.3, learn=True).to(D)
        train(linear((2,)), SGHMC(5), 8, likelihood=shared, on_divergence="freeze")


@pytest.mark.parametrize("posterior", [gilib.Factorised(), POINT], ids=["no point", "fixed points"])
def test_networks_without_anything_to_sample(posterior):
    net = gilib.models.mlp(2, (), 1, posterior=posterior, dtype=D)
    net.requires_grad_(posterior is not POINT)
    with pytest.raises(ValueError, match=r"SGHMC is for layers with PointEstimate.*train it by gilib\.Adam"):
        train(net, SGHMC(10), 1)


def test_kept_states_are_functions():
    net, kept = fixed(linear()), StoredStates(burn_in=2, every=3)
    train(net, SGHMC(2, lr=0.1), 11, callbacks=[kept])
    samples = kept.samples(net)
    weights = samples.states["layers.layers.0.weights.scaled_weights"]
    assert samples.num_states == 3 and torch.equal(weights[-1], state(net))  # those of steps 5, 8, 11
    assert_equal(samples.draw()(X).detach(), FEATURES["linear"]() @ weights, 1e-12)


def test_kept_states_of_another_training_are_forgotten():
    net, kept = fixed(linear()), StoredStates(burn_in=0, every=3)
    train(net, SGHMC(0), 6, callbacks=[kept])
    train(net, SGHMC(0), 3, callbacks=[kept])
    assert kept.samples(net).num_states == 1
    train(net, SGHMC(0), 2, callbacks=[kept])
    with pytest.raises(ValueError, match="due at step 3"):
        kept.samples(net)


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


@pytest.mark.parametrize(
    ("kind", "chains", "lr", "decay", "burn_in"),
    [("linear", 120, 0.3, 0.2, 120), ("process", 30, 0.4, 0.4, 100)],
)
def test_chains_have_the_stationary_covariance_of_their_steps(kind, chains, lr, decay, burn_in):
    """Every chain by its own V, frozen after burn-in; with long steps that is not the posterior."""
    net, kept = fixed(NETWORKS[kind]((chains,))), StoredStates(burn_in=2 * burn_in, every=20)
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
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(second_moments(posterior), identity)


@pytest.mark.parametrize("adaptation", [None, 200])
def test_scales_that_follow_exact_gradients_widen_the_chain(adaptation):
    """They would be frozen after burn-in only: 2.9 times the variance; or early: the posterior's."""
    net, kept = fixed(linear((100,))), StoredStates(burn_in=400, every=50)
    train(net, SGHMC(600, lr=0.03, adaptation=adaptation), 600, callbacks=[kept])
    states = torch.stack(*kept.states.values())[..., 0]  # [K, R, I]
    mean, posterior = ridge(FEATURES["linear"](), Y, 1.0, NOISE)
    squares = ((states - mean[:, 0]) ** 2).mean(0) / posterior.diagonal()
    if adaptation is None:
        assert bool((squares.mean(0) > 2.0).all())
    else:
        assert_mean(squares, torch.ones(3, dtype=D))
