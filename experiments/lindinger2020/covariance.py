"""Measure which inducing outputs a trained posterior couples: Lindinger et al. (2020), Figs. 1 and S8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

import gilib
from experiments.lindinger2020 import measures, networks, tasks, uci_run
from experiments.lindinger2020.uci import SHORT, StructuredConfig
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.structured import StructuredGP

FAMILIES = ("fc", "star", "mf")
OTHERS = ("boston", "energy")  # further sets, with full coupling
SHOWN = 8  # number of a process's inducing outputs whose correlations are recorded, evenly spaced


@dataclass(frozen=True)
class CovarianceConfig:
    """One training on all of a set's training points.

    Attributes:
        dataset: name of the set.
        family: "mf", "star" or "fc".
        seed: seed of split, initial values and draws.
        depth: number of layers.
        num_inducing: M.
        width: width of hidden layers.
        steps: gradient steps; see `StructuredConfig` for these and the following.
        num_samples: draws per step.
        lr: Adam's rate.
        decay: factor of the rate every thousand steps.
        hidden_scale: initial factor of S, relative to the prior's.
        scale: key of `SCALES`.
    """

    dataset: str
    family: str
    seed: int = 0
    depth: int = 3
    num_inducing: int = 128
    width: int = 5
    steps: int = 20_000
    num_samples: int = 5
    lr: float = 5e-3
    decay: float = 0.98
    hidden_scale: float = 1e-5
    scale: str = "paper"


SCALES = {
    "smoke": {"num_inducing": 5, "steps": 3, "width": 2, "hidden_scale": 0.1},
    "reduced": {"num_inducing": 32}
    | {name: SHORT[name] for name in ("steps", "num_samples", "lr", "decay", "hidden_scale")},
    "paper": {},
}


def grid(scale: str) -> Iterator[CovarianceConfig]:
    """Yield all families on concrete, then full coupling on other sets."""
    settings: dict[str, int | float] = SCALES[scale]
    pairs = [("concrete", family) for family in FAMILIES] + [(name, "fc") for name in OTHERS]
    for dataset, family in pairs:
        yield CovarianceConfig(dataset, family, scale=scale, **settings)  # type: ignore[arg-type]


def run(config: CovarianceConfig, job: Job) -> Record:
    """Train, and record which processes depend on each other.

    Returns:
        A record: the ELBO on the training points; the layer of every process (`layers`, `[P]`); the size of
        correlations between processes (`couplings`, `[P, P]`, see the function); the correlations of some
        inducing outputs u of every process (`correlations`, `[P SHOWN, P SHOWN]`).
    """
    task = tasks.load(config.dataset, "interpolation", config.seed, 0.0, job.device)
    training = StructuredConfig(
        config.dataset,
        "interpolation",
        config.seed,
        config.family,
        config.depth,
        num_inducing=config.num_inducing,
        width=config.width,
        steps=config.steps,
        num_samples=config.num_samples,
        lr=config.lr,
        decay=config.decay,
        hidden_scale=config.hidden_scale,
        scale=config.scale,
    )
    net, likelihood = networks.build(training, task)
    history, _ = uci_run.train(training, net, likelihood, task, job)
    metrics = measures.bound(net, likelihood, task, training.elbo_samples, 2000 + config.seed)
    found = couplings(net)
    about = {
        "layers": [place.layer for place in networks.gaussian_of(net).pattern.places],
        "couplings": [[round(value, 4) for value in row] for row in found.tolist()],
        "correlations": [[round(value, 2) for value in row] for row in correlations(net, SHOWN).tolist()],
    }
    return measures.body(task, metrics | about, history)


@torch.no_grad()
def couplings(net: gilib.Network) -> Tensor:
    """Return the size of correlations between the whitened inducing outputs of all processes, `[P, P]`.

    It is ‖D_t^-½ S_tt' D_t'^-½‖ / √M in the Frobenius norm, where D is the diagonal of S. It is 0 without
    correlations, 1 if each inducing output determines one of the other process, and at least 1 on the
    diagonal.
    """
    joint = networks.gaussian_of(net)
    places = range(len(joint.pattern.places))
    blocks = {place: block.double() for place, block in joint.distribution().covariance.items()}
    scales = [blocks[t, t].diagonal(dim1=-2, dim2=-1).rsqrt() for t in places]
    found = torch.zeros(len(places), len(places), dtype=torch.float64)
    for (row, column), block in blocks.items():
        correlations = scales[row][..., :, None] * block * scales[column][..., None, :]
        size = correlations.square().sum() / min(block.shape[-2:])
        found[row, column] = found[column, row] = size.sqrt()
    return found


@torch.no_grad()
def correlations(net: gilib.Network, shown: int) -> Tensor:
    """Return correlations of inducing outputs u = R w, `shown` of every process, `[P shown, P shown]`."""
    joint = networks.gaussian_of(net)
    pattern = joint.pattern
    (layer,) = (module for module in net.modules() if isinstance(module, StructuredGP))
    picked = []  # rows of R, by layer
    for process, size in zip(layer, pattern.sizes, strict=True):
        root = process.inducing(layer.jitter).root.reshape(size, size)
        picked.append(root[torch.arange(min(shown, size)) * size // min(shown, size)])
    ends = [0, *accumulate(len(picked[place.layer]) for place in pattern.places)]
    found = torch.zeros(ends[-1], ends[-1], dtype=torch.float64)
    for (row, column), block in joint.distribution().covariance.items():
        left, right = (picked[pattern.places[t].layer] for t in (row, column))
        values = left @ block.double().reshape(left.shape[-1], -1) @ right.mT
        rows, columns = (slice(ends[t], ends[t + 1]) for t in (row, column))
        found[rows, columns], found[columns, rows] = values, values.mT
    scale = found.diagonal().rsqrt()
    return scale[:, None] * found * scale


EXPERIMENTS = {
    "structured_covariance": Experiment(
        "Figs. 1 and S8: which processes of a trained deep GP depend on each other",
        CovarianceConfig,
        grid,
        one_by_one(run),
    ),
}
