"""Which inducing outputs a trained posterior couples: Lindinger et al. (2020), Figs. 1 and S8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from gilib.experiments.lindinger2020 import measures, networks, tasks, uci_run
from gilib.experiments.lindinger2020.uci import StructuredConfig
from gilib.experiments.runner.experiment import Experiment, Job, one_by_one
from gilib.experiments.runner.records import Record

FAMILIES = ("fc", "star", "mf")
OTHERS = ("boston", "energy")  # with full coupling, beside concrete


@dataclass(frozen=True)
class CovarianceConfig:
    """One training on all of a set's training points.

    Attributes:
        dataset: name of the set.
        family: "mf", "star" or "fc".
        seed: of split, start and draws.
        depth: layers.
        num_inducing: M.
        width: of hidden layers.
        steps: gradient steps, as `StructuredConfig` has them.
        hidden_scale: see `StructuredConfig`.
        scale: key of `SCALES`.
    """

    dataset: str
    family: str
    seed: int = 0
    depth: int = 3
    num_inducing: int = 128
    width: int = 5
    steps: int = 20_000
    hidden_scale: float = 1e-5
    scale: str = "paper"


SCALES = {
    "smoke": {"num_inducing": 5, "steps": 3, "width": 2, "hidden_scale": 0.1},
    "reduced": {"num_inducing": 32, "steps": 2000, "hidden_scale": 0.1},
    "paper": {},
}


def grid(scale: str) -> Iterator[CovarianceConfig]:
    """The families on concrete, then full coupling on other sets."""
    settings: dict[str, int | float] = SCALES[scale]
    pairs = [("concrete", family) for family in FAMILIES] + [(name, "fc") for name in OTHERS]
    for dataset, family in pairs:
        yield CovarianceConfig(dataset, family, scale=scale, **settings)  # type: ignore[arg-type]


def run(config: CovarianceConfig, job: Job) -> Record:
    """Train, and record which processes depend on each other.

    Returns:
        A record: the ELBO on the points trained on; of every process its layer (`layers`, `[P]`), and how far
        each two are correlated (`couplings`, `[P, P]`), see `couplings`.
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
    }
    return measures.body(task, metrics | about, history)


@torch.no_grad()
def couplings(net: gilib.Network) -> Tensor:
    """The size of the correlations between the whitened inducing outputs of each two processes, `[P, P]`.

    It is ‖D_t^-½ S_tt' D_t'^-½‖ / √M in the Frobenius norm, D the diagonal of S: 0 without any, 1 where each
    inducing output is tied to one of the other process; on the diagonal at least 1.
    """
    joint = networks.gaussian_of(net)
    places = range(len(joint.pattern.places))
    blocks = {place: block.double() for place, block in joint.law().covariance.items()}
    scales = [blocks[t, t].diagonal(dim1=-2, dim2=-1).rsqrt() for t in places]
    found = torch.zeros(len(places), len(places), dtype=torch.float64)
    for (row, column), block in blocks.items():
        correlations = scales[row][..., :, None] * block * scales[column][..., None, :]
        size = correlations.square().sum() / min(block.shape[-2:])
        found[row, column] = found[column, row] = size.sqrt()
    return found


EXPERIMENTS = {
    "structured_covariance": Experiment(
        "Figs. 1 and S8: which processes of a trained deep GP depend on each other",
        CovarianceConfig,
        grid,
        one_by_one(run),
    ),
}
