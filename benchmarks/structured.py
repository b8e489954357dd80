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

import torch
from measures import keep_memory, rate

import gilib
from gilib.experiments.lindinger2020.runtime import FAMILIES, INPUTS, RuntimeConfig, network, timed, work


def check() -> None:
    """Mean field has the bound of doubly stochastic layers with its parameters: to 1e-5 in float64."""
    config = RuntimeConfig("inducing", num_inducing=16)
    ours, theirs = (network(method, config).double() for method in ("mf", "dsvi"))
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
    config = RuntimeConfig(
        "inducing", options.depth, options.width, options.inducing, repeats=options.repeats
    )
    times = timed(("dsvi", *FAMILIES), config, torch.device("cpu"))
    print(f"torch {torch.__version__}, {options.threads} threads; {config}")
    print(f"large float32 products {speed:.0f} GFLOP/s")
    print(f"{'method':8}" + "".join(f"{name:>12}" for name in ("ms", "to before", "GFLOP", "of rate")))
    before = None
    for method, milliseconds in times.items():
        gflop = work(method, config) / 1e9
        ratio = "" if before is None else f"{milliseconds / before:.2f}"
        share = 1e3 * gflop / speed / milliseconds
        print(f"{method:8}{milliseconds:12.1f}{ratio:>12}{gflop:12.2f}{share:12.0%}")
        before = milliseconds


if __name__ == "__main__":
    main()
