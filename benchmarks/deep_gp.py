"""One training step of a deep Gaussian process against GPyTorch's doubly stochastic one.

927 points with 8 inputs, 100 inducing points, ten samples; hidden layers of 8 processes with mean zero, one
kernel and one set of inducing inputs in a layer, on both sides. Ours is doubly stochastic like the peer, and,
beside it, with global inducing points. The bound of a single layer is compared before anything is timed: it
is not random, parameters are copied. Denormal numbers are flushed on both sides, which at this shape changes
nothing. Libraries are not made equal: where large products of
ours go to oneDNN the peer's stay with MKL; `--without-onednn` measures MKL alone on both sides. Times are
interleaved, medians, in one process. A third way is our steps as `gilib.fit` replays them
(`Speed(replay=True)`), means of steps in a row, which on a GPU nothing waits for in between.

    python benchmarks/deep_gp.py [--threads 1] [--repeats 7] [--depths 2 5] [--keep-memory] [--record]
    python benchmarks/deep_gp.py --device cuda [--record]
"""

from __future__ import annotations

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from measures import CPU, Watch, spent, traffic
from recording import Row, parser, running
from torch import Tensor

import gilib
from gilib.training import Speed

POINTS, INPUTS, INDUCING, SAMPLES = 927, 8, 100, 10
JITTER = 1e-4
WARM_UP = 2  # steps


def data(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and inducing inputs."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(POINTS, INPUTS, generator=generator)
    y = torch.sin(x.sum(-1, keepdim=True)) + 0.1 * torch.randn(POINTS, 1, generator=generator)
    return x.to(device), y.to(device), x[:INDUCING].clone()


class PeerLayer(DeepGPLayer):
    """GPyTorch's layer: whitened, one kernel and one set of inducing inputs for all outputs."""

    def __init__(self, outputs: int | None, inducing: Tensor):
        """Set it up; None: the last layer, one output without an axis."""
        batch = torch.Size([] if outputs is None else [outputs])
        distribution = CholeskyVariationalDistribution(len(inducing), batch)
        strategy = VariationalStrategy(self, inducing, distribution, jitter_val=JITTER)
        super().__init__(strategy, inducing.shape[-1], outputs)
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=batch)
        kernel = gpytorch.kernels.RBFKernel(ard_num_dims=inducing.shape[-1])
        self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Peer(DeepGP):
    """GPyTorch's deep Gaussian process."""

    def __init__(self, depth: int, inducing: Tensor):
        """Stack the layers."""
        super().__init__()
        self.layers = torch.nn.ModuleList(
            PeerLayer(None if k == depth - 1 else INPUTS, inducing.clone()) for k in range(depth)
        )
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Layer by layer."""
        for layer in self.layers:
            x = layer(x)
        return x


Bound = Callable[[], Tensor]


def peer(depth: int, device: torch.device = CPU) -> tuple[Bound, torch.nn.Module]:
    """The peer's bound per data point, and its parameters."""
    x, y, inducing = data(device)
    deep = Peer(depth, inducing).to(device)
    objective = gpytorch.mlls.DeepApproximateMLL(
        gpytorch.mlls.VariationalELBO(deep.likelihood, deep, num_data=POINTS)
    )

    def bound() -> Tensor:
        with gpytorch.settings.num_likelihood_samples(SAMPLES):
            return objective(deep(x), y[:, 0])

    return bound, deep


def model(depth: int, method: str, device: torch.device) -> tuple[gilib.Network, gilib.Gaussian]:
    """Our network and likelihood."""
    _, _, inducing = data(device)
    posterior = gilib.FreeGaussian(initial_scale=1.0) if method == "dsvi" else gilib.GlobalInducing("full")
    kernel = gilib.kernels.RBF(lengthscale=0.6931, variance=0.6931)
    widths = [INPUTS] * depth + [1]
    layers = [
        gilib.GP(
            *widths[k : k + 2],
            kernel,
            posterior,
            jitter=JITTER,
            **({"inducing_inputs": inducing} if method == "dsvi" else {}),
        )
        for k in range(depth)
    ]
    net = gilib.Network(inducing, layers, input_shape=(INPUTS,)).to(device)
    return net, gilib.Gaussian(0.6932, learn=True).to(device)


def ours(depth: int, method: str, device: torch.device = CPU) -> tuple[Bound, torch.nn.Module]:
    """Our bound per data point, and its parameters."""
    x, y, _ = data(device)
    net, likelihood = model(depth, method, device)
    generator = torch.Generator(device).manual_seed(1)

    def bound() -> Tensor:
        estimate = net.estimate(SAMPLES, POINTS, generator=generator)
        return gilib.elbo(estimate, likelihood, x, y, num_data=POINTS, per_point=True)

    return bound, torch.nn.ModuleList([net, likelihood])


def stepper(bound: Bound, model: torch.nn.Module) -> Callable[[], None]:
    """A step of Adam."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)

    def step() -> None:
        optimiser.zero_grad()
        (-bound()).backward()
        optimiser.step()

    return step


def replayed(depth: int, method: str, device: torch.device, repeats: int) -> float:
    """Milliseconds of a step of ours that is recorded and replayed."""
    x, y, _ = data(device)
    watch = Watch(device, repeats, replay=True)
    settings = {"rule": gilib.Adam(1e-2), "num_samples": SAMPLES, "estimator": "pointwise"}
    gilib.fit(*model(depth, method, device), x, y, speed=Speed(replay=True), **settings, **watch.settings)
    return watch.ms


def check() -> None:
    """The bound of one layer, from the peer's parameters, equals the peer's: to 1e-4 in float32."""
    theirs, other = peer(1)
    mine, modules = ours(1, "dsvi")
    strategy = other.layers[0].variational_strategy
    theirs()  # sets the variational distribution up
    distribution = strategy._variational_distribution
    process = modules[0].layers[0]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        distribution.variational_mean.normal_(generator=generator)
        root = torch.randn(INDUCING, INDUCING, generator=generator).tril() / INDUCING**0.5
        distribution.chol_variational_covar.copy_(root + torch.eye(INDUCING))
        process.weights.mean.copy_(distribution.variational_mean[:, None])
        process.weights.root.copy_(distribution.chol_variational_covar[None])
        modules[1].scaled_log_variance.copy_(other.likelihood.noise.log()[0])
        bound, theirs_bound = float(mine()), float(theirs().mean())
    assert abs(bound - theirs_bound) < 1e-4 * abs(bound), f"bounds differ: {bound}, {theirs_bound}"


def floor(depth: int, method: str) -> float:
    """GFLOP of the products that no arrangement avoids, forward and backward: with R⁻¹, and with S_o."""
    one = 2 * POINTS * INDUCING**2
    total = 0
    for k in range(depth):
        samples, outputs = 1 if k == 0 else SAMPLES, 1 if k == depth - 1 else INPUTS
        total += one * samples * (3 + (2 * outputs if method == "dsvi" else 0))
    return total / 1e9


def row(depth: int, repeats: int, device: torch.device) -> Row:
    """Time one depth."""
    steps = {"peer": stepper(*peer(depth, device))}
    models = {method: ours(depth, method, device) for method in ("dsvi", "global")}
    steps |= {method: stepper(*bound) for method, bound in models.items()}
    found = spent(steps, repeats, WARM_UP, device)
    again = {f"{method}, replayed": method for method in models}
    ways = {method: method for method in models} | again
    case = {"depth": depth, "points": POINTS, "inputs": INPUTS, "inducing": INDUCING, "samples": SAMPLES}
    return Row(
        case,
        "peer",
        {name: each.ms for name, each in found.items()}
        | {way: replayed(depth, method, device, 10 * repeats) for way, method in again.items()},
        {way: floor(depth, method) for way, method in ways.items()},
        {way: traffic(models[method][1], POINTS * (INPUTS + 1)) for way, method in ways.items()},
        {name: each.faults for name, each in found.items()},
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 7)
    known.add_argument("--depths", type=int, nargs="+", default=[2, 5])
    known.add_argument("--device", default="cpu")
    options = known.parse_args(arguments)
    with running("deep_gp", options) as run:
        check()
        rows = [row(depth, options.repeats, run.device) for depth in options.depths]
        rows[0].more["gpytorch"] = gpytorch.__version__
        run.finish(rows)


if __name__ == "__main__":
    main()
