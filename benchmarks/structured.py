"""One training step of structured deep GPs: mean field, stripes and arrow, fully coupled.

The setting of Lindinger et al. (2020): three layers of 5, 5 and 1 processes, 128 inducing inputs, a minibatch
of 512 points with 8 inputs, five samples, one kernel and one set of inducing inputs in a layer. Beside them
the same model from doubly stochastic layers (`gilib.models.deep_gp`), which is mean field by another route:
their bounds are compared before anything is timed. Denormal numbers are flushed; times are interleaved,
medians, in one process.

    python benchmarks/structured.py [--threads 1] [--repeats 7] [--inducing 128] [--depth 3] [--width 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from measures import keep_memory, rate

import gilib
from gilib.models import deep_gp, structured_gp
from gilib.structured import FullyCoupled, MeanField, StripesAndArrow
from gilib.structured.costs import Operations, operations

FAMILIES = {"mf": MeanField(), "star": StripesAndArrow(), "fc": FullyCoupled()}
POINTS, INPUTS, SAMPLES, TRAINING = 512, 8, 5, 1000
WARM_UP = 2  # steps
Architecture = tuple[int, int, int]  # depth, width, inducing inputs


def network(method: str, architecture: Architecture) -> gilib.Network:
    """Of one family, or of doubly stochastic layers; every parameter off its start."""
    depth, width, inducing = architecture
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(inducing, INPUTS, generator=generator)
    if method == "dsvi":
        posterior = gilib.FreeGaussian()
        net = deep_gp(INPUTS, 1, depth, width=width, posterior=posterior, inducing_points=start)
    else:
        net = structured_gp(INPUTS, 1, depth, width=width, family=FAMILIES[method], inducing_points=start)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.01 * torch.randn(parameter.shape, generator=generator))
    return net


def stepper(net: gilib.Network) -> Callable[[], None]:
    """A step of Adam."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(POINTS, INPUTS, generator=generator)
    y = torch.sin(x.sum(-1, keepdim=True))
    likelihood = gilib.Gaussian(0.1, learn=True)
    optimiser = torch.optim.Adam([*net.parameters(), *likelihood.parameters()], lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        estimate = net.estimate(SAMPLES, POINTS, generator=generator)
        bound = gilib.elbo(estimate, likelihood, x, y, num_data=TRAINING, per_point=True)
        (-bound).backward()
        optimiser.step()

    return step


def check() -> None:
    """Mean field has the bound of doubly stochastic layers with its parameters: to 1e-5 in float64."""
    architecture = 3, 5, 16
    ours, theirs = (network(method, architecture).double() for method in ("mf", "dsvi"))
    layer = next(iter(ours.layers))
    rows = list(layer.weights.rows)
    stacked = [module for module in theirs.modules() if isinstance(module, gilib.GP)]
    x = torch.randn(9, INPUTS, dtype=torch.float64)
    with torch.no_grad():
        for k, (process, peer) in enumerate(zip(layer, stacked, strict=True)):
            peer.inducing_inputs.copy_(process.inducing_inputs)
            peer.hyperparameters.load_state_dict(process.hyperparameters.state_dict())
            peer.weights.mean.copy_(layer.weights.means[k])
            own, rows = rows[: peer.out_features], rows[peer.out_features :]
            peer.weights.root.copy_(torch.stack(own))
        noise = ours.estimate_noise(3, 9)
        bounds = [
            gilib.elbo(net.estimate(noise=noise), gilib.Gaussian(0.1), x, x[:, :1], num_data=9).sum()
            for net in (ours, theirs)
        ]
    assert abs(bounds[0] - bounds[1]) < 1e-5 * abs(bounds[0]), f"bounds differ: {bounds}"


def counted(method: str, architecture: Architecture) -> Operations:
    """Operations of the products of a step."""
    pattern = next(iter(network("mf" if method == "dsvi" else method, architecture).layers)).weights.pattern
    return operations(pattern, POINTS, SAMPLES)


def measure(methods: list[str], architecture: Architecture, repeats: int) -> dict[str, float]:
    """Milliseconds of a step of each, interleaved: medians."""
    steps = {method: stepper(network(method, architecture)) for method in methods}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + WARM_UP):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            if repeat >= WARM_UP:
                times[name].append(1e3 * (time.perf_counter() - started))
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--width", type=int, default=5)
    parser.add_argument("--inducing", type=int, default=128)
    parser.add_argument("--keep-memory", action="store_true", help="ask the allocator to keep what is freed")
    options = parser.parse_args()
    if options.keep_memory:
        keep_memory()
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    check()
    speed = rate()
    architecture = options.depth, options.width, options.inducing
    times = measure(["dsvi", *FAMILIES], architecture, options.repeats)
    print(f"torch {torch.__version__}, {options.threads} threads; depth, width, inducing {architecture}")
    print(f"large float32 products {speed:.0f} GFLOP/s")
    print(f"{'method':8}" + "".join(f"{name:>12}" for name in ("ms", "to before", "GFLOP", "of rate")))
    before = None
    for method, milliseconds in times.items():
        work = counted(method, architecture).total / 1e9
        ratio = "" if before is None else f"{milliseconds / before:.2f}"
        share = 1e3 * work / speed / milliseconds
        print(f"{method:8}{milliseconds:12.1f}{ratio:>12}{work:12.2f}{share:12.0%}")
        before = milliseconds


if __name__ == "__main__":
    main()
