"""One training step of a global-inducing network against the reference implementation's computation.

The baseline is Ober & Aitchison's computation written plainly in PyTorch: one batch [S, O, I, I] of products
ΦᵀΛ_oΦ, `linalg.cholesky`, triangular solves, autograd, Adam. Both take the same parameters and noise; results
and gradients are compared before anything is timed. Times are interleaved, medians, in one process: the ratio
is what counts. Beside it, the pages that a step asks of the system (minor faults), of steps that follow one
another: they depend on the allocator, hardly on the machine.

    python benchmarks/training_step.py [--threads 2] [--repeats 15] [--keep-memory] [--record]
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from measures import minor_faults, spent, traffic
from recording import Row, parser, running
from torch import Tensor
from torch.nn.functional import pad, relu

import gilib
from gilib.regression.primal import LOG_2PI

SHAPES = {"toy": (40, 1, 100), "concrete": (927, 8, 927)}  # points, inputs, inducing points
WIDTH, SAMPLES = 50, 10
WARM_UP = 3  # steps


def network(shape: str, dtype: torch.dtype) -> tuple[gilib.Network, Tensor, Tensor]:
    """A network of 2 × 50 units with per-channel diagonal precisions, and data of the shape."""
    points, inputs, inducing = SHAPES[shape]
    generator = torch.Generator().manual_seed(0)
    x, y, u = (
        torch.randn(n, d, generator=generator).to(dtype)
        for n, d in ((points, inputs), (points, 1), (inducing, inputs))
    )
    posterior = gilib.GlobalInducing(precision="per_output")
    net = gilib.models.mlp(
        inputs, (WIDTH, WIDTH), 1, posterior=posterior, inducing_points=u, generator=generator, dtype=dtype
    )
    return net, x, y


def plain_elbo(net: gilib.Network, noise: Tensor, x: Tensor, y: Tensor, noise_variance: float) -> Tensor:
    """The baseline: the same bound, per data point, from the same parameters and base noise."""
    u, f, log_pq, start = net.inducing_points, x, x.new_zeros(()), 0
    linear = [layer for layer in net.layers if isinstance(layer, gilib.Linear)]
    for k, layer in enumerate(linear):
        assert u is not None
        features = pad(relu(u) if k else u, (0, 1), value=1.0)
        fan_in, outputs = layer.fan_in, layer.out_features
        z = (
            noise[:, start : start + fan_in * outputs].unflatten(-1, (fan_in, outputs)).mT[..., None]
        )  # [S, O, I, 1]
        start += fan_in * outputs
        pseudo = layer.weights.pseudo
        weighted = pseudo.log_precision.exp()[..., None] * features[..., None, :, :]  # [S, O, M, I]
        precision = features.mT[..., None, :, :] @ weighted + fan_in * torch.eye(fan_in, dtype=x.dtype)
        shift = weighted.mT @ pseudo.outputs.mT[..., None]
        factor = torch.linalg.cholesky(precision)
        white = torch.linalg.solve_triangular(factor, shift, upper=False) + z
        w = torch.linalg.solve_triangular(factor.mT, white, upper=True)[..., 0]  # [S, O, I]
        count = fan_in * outputs
        log_p = -0.5 * (fan_in * w.square().sum((-2, -1)) + count * (LOG_2PI - math.log(fan_in)))
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        log_q = log_det - 0.5 * (z.square().sum((-3, -2, -1)) + count * LOG_2PI)
        log_pq = log_pq + log_p - log_q
        weights = w.mT
        u = features @ weights
        f = pad(relu(f) if k else f, (0, 1), value=1.0) @ weights
    residuals = (f - y).square().sum((-2, -1)) / noise_variance
    log_likelihood = -0.5 * (residuals + y.numel() * (LOG_2PI + math.log(noise_variance)))
    return (log_likelihood + log_pq).mean() / len(x)


def gilib_elbo(net: gilib.Network, noise: Tensor, x: Tensor, y: Tensor, noise_variance: float) -> Tensor:
    """The same bound by gilib."""
    draw = net.draw(noise=noise)
    likelihood = gilib.Gaussian(noise_variance).to(x.dtype)
    return gilib.elbo(draw, likelihood, x, y, num_data=len(x), per_point=True)


Objective = Callable[[gilib.Network, Tensor, Tensor, Tensor, float], Tensor]


def check(shape: str) -> None:
    """Bounds equal to 1e-5 in float32, gradients to 1e-12 (relative) in float64."""
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        net, x, y = network(shape, dtype)
        noise = net.base_noise(SAMPLES, torch.Generator().manual_seed(1))
        results = []
        for objective in (plain_elbo, gilib_elbo):
            value = objective(net, noise, x, y, 0.1)
            results.append((value.detach(), *torch.autograd.grad(value, list(net.parameters()))))
        compared = results if dtype == torch.float64 else [values[:1] for values in results]
        for ours, plain in zip(compared[1], compared[0], strict=True):
            error = float((ours - plain).norm() / plain.norm())
            assert error < tolerance, f"{shape}, {dtype}: relative difference {error:.1e}"


def stepper(objective: Objective, shape: str) -> Callable[[], None]:
    """A function that makes one training step: noise, bound, gradient, Adam."""
    net, x, y = network(shape, torch.float32)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(2)

    def step() -> None:
        noise = net.base_noise(SAMPLES, generator)
        optimiser.zero_grad()
        (-objective(net, noise, x, y, 0.1)).backward()
        optimiser.step()

    return step


def floor(shape: str) -> float:
    """Floating-point operations of a step that no arrangement avoids, in GFLOP.

    For the hidden-to-hidden layer, S = 10, O = 50, I = 51: the triangle of the weighted Grams forward, and
    both their gradients, 3 · S O M I²; everything else is small beside it.
    """
    _, _, inducing = SHAPES[shape]
    return 3 * SAMPLES * WIDTH * inducing * (WIDTH + 1) ** 2 / 1e9


def measure(shape: str, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """A step both ways: milliseconds (median, interleaved) and minor faults (mean, of steps in a row)."""
    steps = {"plain": stepper(plain_elbo, shape), "gilib": stepper(gilib_elbo, shape)}
    times = {name: found.ms for name, found in spent(steps, repeats, WARM_UP).items()}
    faults = {name: statistics.mean(faults_of(step, repeats)) for name, step in steps.items()}
    return times, faults


def faults_of(step: Callable[[], None], repeats: int) -> list[int]:
    """Minor faults of steps in a row, after some that warm up."""
    for _ in range(WARM_UP):
        step()
    found = []
    for _ in range(repeats):
        before = minor_faults()
        step()
        found.append(minor_faults() - before)
    return found


def row(shape: str, repeats: int) -> Row:
    """Check and time one shape."""
    check(shape)
    times, faults = measure(shape, repeats)
    points, inputs, inducing = SHAPES[shape]
    net, _, _ = network(shape, torch.float32)
    least = dict.fromkeys(times, floor(shape)), dict.fromkeys(times, traffic(net, points * (inputs + 1)))
    case = {"shape": shape, "points": points, "inputs": inputs, "inducing": inducing, "width": WIDTH}
    return Row({**case, "hidden": 2, "samples": SAMPLES}, "plain", times, *least, faults)


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 15)
    known.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    options = known.parse_args(arguments)
    with running("training_step", options) as run:
        run.finish([row(shape, options.repeats) for shape in options.shapes])


if __name__ == "__main__":
    main()
