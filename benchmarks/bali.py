"""A BALI step against an Adam step of the same network.

Adam is plain PyTorch: minibatch, forward, backward, update. A step of BALI is that of `gilib.fit`, everything
included, as it is and replayed (but where moments are kept: these steps cannot be recorded). Steps are
interleaved with Adam's, in one process, those of two trainings; ratios are of the medians, of the fastest
steps (which other work on the machine disturbs least) and of the means (which contain the steps that factor
kept moments anew, whose number stands beside them). Beside them the operations of both, counted (of BALI
those of the algorithm as it is, whose triangular solves and factorisations run slower than products), and the
pages that steps ask of the system (minor faults).

    python benchmarks/bali.py [--threads 2] [--repeats 40] [--keep-memory] [--only mnist yacht] [--record]
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import NamedTuple

import torch
from measures import clock, minor_faults, traffic
from recording import Row, parser, running
from torch import Tensor, nn

import gilib
from gilib.training import Bali, Speed

WARM_UP = 5  # steps
WAYS = {"bali": Speed(replay=False), "bali, replayed": Speed(replay=True)}


class Shape(NamedTuple):
    """Widths of inputs, hidden layers and outputs; points; points a step."""

    widths: tuple[int, ...]
    points: int
    batch: int

    @property
    def classes(self) -> bool:
        """Whether the targets are labels."""
        return self.widths[-1] > 1


MNIST = Shape((784, 200, 200, 10), 10_000, 1000)
SHAPES = {
    "mnist": MNIST,
    "mnist, first moments kept": MNIST,
    "yacht": Shape((6, 50, 1), 277, 277),
    "concrete": Shape((8, 50, 1), 927, 927),
    "kin8nm": Shape((8, 50, 1), 7373, 1000),
    "protein": Shape((9, 100, 1), 41_157, 1000),
}


def data(shape: Shape, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Inputs and targets, labels being those of a linear rule."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape.points, shape.widths[0], generator=generator).to(dtype)
    if shape.classes:
        rule = torch.randn(shape.widths[0], shape.widths[-1], generator=generator).to(dtype)
        return x, ((x - 0.5) @ rule).argmax(1)
    return x, x.sum(1, keepdim=True).sin()


def network(shape: Shape, dtype: torch.dtype = torch.float32) -> gilib.Network:
    """That of BALI."""
    inputs, *hidden, outputs = shape.widths
    prior = gilib.NealPrior(3.0**0.5)
    return gilib.models.mlp(
        inputs, tuple(hidden), outputs, posterior=gilib.posteriors.Conjugate(), prior=prior, dtype=dtype
    )


def likelihood_of(shape: Shape) -> gilib.likelihoods.Likelihood:
    """Of labels or of numbers."""
    return gilib.Categorical() if shape.classes else gilib.Gaussian(1.0, learn=True)


def plain_network(widths: tuple[int, ...], dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """The same for Adam."""
    layers = [(nn.Linear(i, o, dtype=dtype), nn.ReLU()) for i, o in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain(*layers))[:-1]


def plain_loss(net: nn.Module, log_variance: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The mean negative log likelihood."""
    if not y.is_floating_point():
        return nn.functional.cross_entropy(net(x), y)
    return nn.functional.gaussian_nll_loss(net(x), y, log_variance.exp().expand_as(y), full=True, eps=0.0)


def check(name: str) -> None:
    """With the weights of a draw the plain network has the same loss, to 1e-12 in float64."""
    shape = SHAPES[name]
    net, plain = network(shape, torch.float64), plain_network(shape.widths, torch.float64)
    x, y = (part[:50] for part in data(shape, torch.float64))
    draw = net.draw(1, generator=torch.Generator().manual_seed(1))
    steps = gilib.draws.record(draw.function, x).steps
    weights = [step.function.weights[0] for step in steps if hasattr(step.function, "weights")]
    layers = [layer for layer in plain if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight.copy_(weight[:-1].mT)
            layer.bias.copy_(weight[-1])
    ours = -likelihood_of(shape).log_prob(draw(x), y).mean()
    error = float((ours - plain_loss(plain, x.new_zeros(1), x, y)).abs().detach())
    assert error < 1e-12, f"{name}: the losses differ by {error:.1e}"


def adam_stepper(shape: Shape) -> Callable[[], None]:
    """A function that makes one step of Adam."""
    x, y = data(shape)
    net, log_variance = plain_network(shape.widths), torch.zeros(1, requires_grad=True)
    parameters = [*net.parameters(), *([] if shape.classes else [log_variance])]
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    starts = itertools.cycle(range(0, shape.points - shape.batch + 1, shape.batch))
    order = torch.randperm(shape.points, generator=torch.Generator().manual_seed(1))

    def step() -> None:
        start = next(starts)
        index = order[start : start + shape.batch]
        batch = (
            (x, y) if shape.batch == shape.points else (x.index_select(0, index), y.index_select(0, index))
        )
        optimiser.zero_grad()
        plain_loss(net, log_variance, *batch).backward()
        optimiser.step()

    return step


class Measured(NamedTuple):
    """Milliseconds of steps, minor faults of a step, and how often these steps factored kept moments."""

    times: dict[str, list[float]]
    faults: dict[str, float]
    renewals: int


Callbacks = tuple[Callable[[int, Tensor, gilib.Network], None], ...]


def train(shape: Shape, rule: Bali, speed: Speed, steps: int, callbacks: Callbacks = ()) -> int:
    """A training; its minor faults."""
    before = minor_faults()
    net, likelihood = network(shape), likelihood_of(shape)
    settings = {"num_samples": 1, "batch_size": shape.batch, "speed": speed, "progress": False}
    gilib.fit(net, likelihood, *data(shape), steps=steps, rule=rule, callbacks=callbacks, **settings)
    return minor_faults() - before


def measure(shape: Shape, rule: Bali, repeats: int) -> Measured:
    """The steps of every way, interleaved with Adam's; for the faults, those of each in a row."""
    ways = {name: speed for name, speed in WAYS.items() if not (speed.replay and rule.keep_moments)}
    times: dict[str, list[float]] = {name: [] for name in ("adam", *ways)}
    corners: list[float] = []  # of V⁻¹ of the first layer
    now = clock()
    adam, last, faults = adam_stepper(shape), now(), {}
    for way, speed in ways.items():

        def between(step: int, bound: Tensor, net: gilib.Network, way: str = way) -> None:
            nonlocal last
            spent = 1e3 * (now() - last)
            started = now()
            adam()
            last = now()
            if step > WARM_UP:
                times[way].append(spent)
                times["adam"].append(1e3 * (last - started))
            if rule.keep_moments and step >= WARM_UP:
                corners.append(float(next(iter(net.layers)).weights.precision[0, 0]))

        train(shape, rule, speed, repeats + WARM_UP, (between,))
        more, few = (train(shape, rule, speed, steps) for steps in (WARM_UP + repeats, WARM_UP))
        faults[way] = (more - few) / repeats
    before = minor_faults()
    for _ in range(repeats):
        adam()
    faults["adam"] = (minor_faults() - before) / repeats
    return Measured(times, faults, sum(one != other for one, other in itertools.pairwise(corners)))


def operations(shape: Shape, kept: bool = False) -> dict[str, float]:
    """Of a step, GFLOP.

    A product with B points costs 2 B I O. Adam: forward, gradients of weights, and of inputs above the first
    layer. BALI: forward, XᵀD and the gradients of inputs; half of XᵀX and of DᵀD; a factorisation; two
    triangular solves of I² O and T S; S, in the draw and again for the residuals, and half of SᵀS, AᵀV_0⁻¹A,
    K Kᵀ and C Cᵀ. Where the first layer's moments are kept, it has neither XᵀX nor a factorisation, but a
    product of X with the step of the mean, and a third solve in place of T S. Renewals are left out.
    """
    total = dict.fromkeys(("adam", *WAYS), 0.0)
    for k, (inputs, outputs) in enumerate(itertools.pairwise(shape.widths)):
        i, o, b = inputs + 1, outputs, shape.batch
        back = 2 * b * inputs * o if k else 0
        total["adam"] += 4 * b * i * o + back
        own = b * i**2 + i**3 / 3 + 3 * i**2 * o
        if kept and k == 0:
            own = 2 * b * i * o + 3 * i**2 * o
        for way in WAYS:
            total[way] += 4 * b * i * o + back + b * o**2 + 7 * i * o**2 + o**3 + own
    return {name: value / 1e9 for name, value in total.items()}


def kept(name: str) -> bool:
    """Whether the second moments of the inputs are taken once."""
    return name.endswith("kept")


def row(name: str, repeats: int) -> Row:
    """Check and time one shape."""
    check(name)
    shape = SHAPES[name]
    work = operations(shape, kept(name))
    times, faults, renewals = measure(shape, Bali(keep_moments=kept(name)), repeats)
    fastest = {rule: min(values) for rule, values in times.items()}
    mean = {rule: statistics.mean(values) for rule, values in times.items()}
    model, numbers = plain_network(shape.widths), shape.batch * (shape.widths[0] + 1)
    return Row(
        {"shape": name, "widths": list(shape.widths), "points": shape.batch},
        "adam",
        {rule: statistics.median(values) for rule, values in times.items()},
        {way: work[way] for way in times},
        {"adam": traffic(model, numbers)},
        faults,
        {"ratio of fastest": fastest["adam"] / fastest["bali"], "ratio of means": mean["adam"] / mean["bali"]}
        | ({"renewals": renewals} if kept(name) else {}),
    )


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, record."""
    known = parser(__doc__, 40)
    known.add_argument("--only", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    options = known.parse_args(arguments)
    with running("bali", options) as run:
        run.finish([row(name, options.repeats) for name in options.only])


if __name__ == "__main__":
    main()
