"""One training step of structured deep GPs: mean field, stripes and arrow, fully coupled.

The setting of Lindinger et al. (2020): three layers of 5, 5 and 1 processes, 128 inducing inputs, a minibatch
of 512 points with 8 inputs, five samples, one kernel and one set of inducing inputs in a layer. Beside them
the same model from doubly stochastic layers (`gilib.models.deep_gp`), which is mean field by another route:
their bounds are compared before anything is timed. Denormal numbers are flushed; times are interleaved,
medians, in one process.

    python benchmarks/structured.py [--threads 1] [--repeats 7] [--inducing 128] [--depth 3] [--width 5]
        [--record]
"""

from __future__ import annotations

import torch
from measures import spent, traffic
from recording import Row, parser, running

import gilib
from experiments.lindinger2020.runtime import FAMILIES, INPUTS, RuntimeConfig, network, stepper, work


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


def row(config: RuntimeConfig, repeats: int) -> Row:
    """Time all families."""
    networks = {method: network(method, config) for method in ("dsvi", *FAMILIES)}
    found = spent({method: stepper(net, config) for method, net in networks.items()}, repeats)
    case = {"depth": config.depth, "width": config.width, "inducing": config.num_inducing}
    return Row(
        {**case, "points": config.batch_size, "samples": config.num_samples},
        "mf",
        {method: each.ms for method, each in found.items()},
        {method: work(method, config) / 1e9 for method in networks},
        {method: traffic(net, config.batch_size * (INPUTS + 1)) for method, net in networks.items()},
        {method: each.faults for method, each in found.items()},
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 7)
    known.add_argument("--depth", type=int, default=3)
    known.add_argument("--width", type=int, default=5)
    known.add_argument("--inducing", type=int, default=128)
    options = known.parse_args(arguments)
    with running("structured", options) as run:
        check()
        config = RuntimeConfig("inducing", options.depth, options.width, options.inducing)
        run.finish([row(config, options.repeats)])


if __name__ == "__main__":
    main()
