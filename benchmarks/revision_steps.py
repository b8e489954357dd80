"""Steps that two revisions of the package can both make, for `revisions.py`: one process of one of them.

It makes the steps that it is asked for, a name on each line, and answers with the milliseconds of each. It
uses what has been there since the first paper, and must not import what an earlier revision does not have.

    PYTHONPATH=CHECKOUT python benchmarks/revision_steps.py THREADS [flags]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import gilib
from gilib.convolution import Windows
from gilib.statistics import convolutional_statistics

Step = Callable[[], Any]
CLASSES = 10


def normals(*shape: int, seed: int) -> Tensor:
    """Standard normals."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def training(net: gilib.Network, bound: Callable[[Any], Tensor], samples: int) -> Step:
    """Noise, the gradient of a bound of the draws, Adam."""
    optimiser, generator = torch.optim.Adam(net.parameters(), lr=1e-3), torch.Generator().manual_seed(1)

    def step() -> None:
        noise = net.base_noise(samples, generator)
        optimiser.zero_grad()
        (-bound(net.draw(noise=noise))).backward()
        optimiser.step()

    return step


def network(
    points: int,
    inputs: int,
    inducing: int,
    samples: int,
    precision: str,
    replicas: tuple[int, ...] = (),
    above: Any = None,
) -> Step:
    """A step of 2 × 50 units with global inducing points; the posterior `above` the first layer, if given."""
    shapes = (points, inputs), (points, 1), (inducing, inputs)
    x, y, u = (normals(*shape, seed=k) for k, shape in enumerate(shapes))
    net = gilib.models.mlp(
        inputs,
        (50, 50),
        1,
        posterior=(first := gilib.GlobalInducing(precision=precision), *[above or first] * 2),
        prior=gilib.NealPrior(),
        inducing_points=u,
        replicas=replicas,
    )
    likelihood = gilib.Gaussian(0.1)

    def bound(draw: Any) -> Tensor:
        return gilib.elbo(draw, likelihood, x, y, num_data=points, per_point=True).sum()

    return training(net, bound, samples)


def resnet(images: int) -> Step:
    """A step of ResNet-8 with so many inducing and data images of 32 × 32 pixels."""
    u, x = normals(images, 3, 32, 32, seed=0), normals(images, 3, 32, 32, seed=1)
    labels = torch.arange(images) % CLASSES
    net = gilib.models.resnet8(
        (3, 32, 32),
        CLASSES,
        posterior=gilib.GlobalInducing(),
        prior=gilib.ScalePrior(),
        inducing_points=u,
        pseudo_outputs=nn.functional.one_hot(labels, CLASSES).float(),
    )
    likelihood = gilib.Categorical()

    def bound(draw: Any) -> Tensor:
        return gilib.elbo(draw, likelihood, x, labels, num_data=50_000, per_point=True)

    return training(net, bound, 1)


def convolution(images: int, channels: int, size: int) -> Step:
    """Statistics of a convolution with windows of 3 × 3 pixels, and their gradient."""
    x, y = (normals(images, channels, size, size, seed=k).requires_grad_() for k in (0, 1))
    precision, windows = torch.ones(images).requires_grad_(), Windows.of(3)

    def step() -> None:
        gram, cross = convolutional_statistics(x, y, precision, windows)
        torch.autograd.grad(gram.square().sum() + cross.square().sum(), (x, y, precision))

    return step


CASES: dict[str, Callable[[], Step]] = {
    "toy": lambda: network(40, 1, 100, 10, "per_output"),
    "concrete": lambda: network(927, 8, 927, 10, "per_output"),
    "yacht, shared precisions": lambda: network(277, 6, 100, 2, "shared"),
    "first layer alone": lambda: network(927, 8, 927, 10, "per_output", above=gilib.Factorised()),
    "16 replicas": lambda: network(277, 6, 100, 2, "per_output", (16,)),
    "convolution, 32 pixels": lambda: convolution(100, 32, 32),
    "convolution, 8 pixels": lambda: convolution(100, 32, 8),
    "ResNet-8": lambda: resnet(20),
}


def main(arguments: list[str]) -> None:
    """Serve."""
    torch.set_flush_denormal(True)
    torch.empty(31 * 2**20, dtype=torch.uint8)  # freed: glibc keeps smaller blocks from here on
    torch.set_num_threads(int(arguments[0]))
    torch.backends.mkldnn.enabled = "without-onednn" not in arguments
    clock = time.process_time if arguments[0] == "1" else time.perf_counter
    steps: dict[str, Step] = {}
    print(gilib.__file__, flush=True)
    for line in sys.stdin:
        name = line.strip()
        step = steps.get(name) or steps.setdefault(name, CASES[name]())
        started = clock()
        step()
        print(1e3 * (clock() - started), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
