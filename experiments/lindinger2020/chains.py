"""Test whether chains over the inducing outputs of one layer converge to the exact Gaussian.

Lindinger et al. (2020), App. G, Fig. S6. With one layer and fixed kernel, inducing inputs and noise, the best
distribution of the inducing outputs is a known Gaussian. A sparse Gaussian process is trained first, and the
chains use its hyper-parameters. They are measured in the coordinates in which that Gaussian is standard
normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.common.measuring import significant
from experiments.lindinger2020 import measures, tasks, uci
from experiments.lindinger2020.tasks import Task
from experiments.lindinger2020.uci import StructuredConfig
from experiments.runner.experiment import Experiment, Job, one_by_one
from experiments.runner.records import Record
from gilib.baselines.diagnostics import effective_sample_size, split_r_hat
from gilib.layers import GP
from gilib.linalg import cholesky
from gilib.training import SGHMC, LinearDecay, StoredStates

EDGE, BINS = 5.0, 50  # of the histogram of standardised states; the outer bins include all beyond the edges


@dataclass(frozen=True)
class ChainsConfig:
    """Some chains on the training points of interpolation; the defaults are for paper scale.

    Attributes:
        dataset: name of the set.
        lr: step size ε of the chains.
        chains: number of chains, which start at the mean of the prior.
        num_inducing: M.
        training: steps that train the sparse Gaussian process.
        steps: steps of a chain; the first half is burn-in, as in `StructuredConfig`.
        batch_size: points per step.
        states: number of states that are kept of each chain.
        scale: key of `SCALES`.
    """

    dataset: str
    lr: float = 0.01
    chains: int = 4
    num_inducing: int = 128
    training: int = 20_000
    steps: int = 20_000
    batch_size: int = 512
    states: int = 1000
    scale: str = "paper"


SETS = ("boston", "energy")
STEP_SIZES = (0.01, 0.03, 0.1)  # Havasi et al. (2018) use the first
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {"num_inducing": 6, "training": 5, "steps": 20, "states": 4},
    "reduced": {"num_inducing": 64, "training": 5000},
    "paper": {},
}


def grid(scale: str) -> Iterator[ChainsConfig]:
    """Yield all step sizes on two sets; chains are cheap, so reduced scale has the paper's length, too."""
    for dataset in SETS[:1] if scale == "smoke" else SETS:
        for lr in STEP_SIZES:
            yield ChainsConfig(dataset, lr, scale=scale, **SCALES[scale])


def run(config: ChainsConfig, job: Job) -> Record:
    """Train a sparse Gaussian process, sample its inducing outputs, and compare them with the exact Gaussian.

    Returns:
        A record. For all standardised states: the mean square (`variance`, 1 in equilibrium), also in
        `thirds` of the chains, the excess `kurtosis`, and a `histogram`. For single inducing outputs: the
        smallest, median and largest excess `kurtoses` and `r_hats`, and `draws`, the median effective sample
        size. Along the eigenvectors of the exact covariance, from the smallest eigenvalue: `eigenvalues`,
        `ratios` of the chains' mean squares to them, and R-hats, `along`. Also the noise variance and the
        trace of the chains' log joint density.
    """
    task = tasks.load(config.dataset, "interpolation", 0, 0.0, job.device)
    sparse, noise = trained(config, task, job)
    net = at_hyperparameters(sparse, config, task)
    kept = StoredStates(config.steps // 2, max(1, config.steps // 2 // config.states))
    history = gilib.fit(
        net,
        noise,
        task.x,
        task.y,
        steps=config.steps,
        batch_size=config.batch_size,
        num_samples=1,
        rule=SGHMC(burn_in=config.steps // 2, lr=config.lr),
        callbacks=[kept],
        **job.fit_options(),
    )
    (states,) = kept.samples(net).states.values()  # [states, chains, M, 1]
    mean, factor = exact(sparse, float(noise.noise_variance), task)
    found = measured(states[..., 0].transpose(0, 1).double().cpu(), mean.cpu(), factor.cpu())
    return measures.body(task, found | {"noise_variance": float(noise.noise_variance)}, history)


def trained(config: ChainsConfig, task: Task, job: Job) -> tuple[gilib.Network, gilib.Gaussian]:
    """Train a sparse Gaussian process, and return it with its noise, now fixed."""
    net = gilib.models.sparse_gp(
        task.x.shape[-1],
        1,
        inducing_points=gilib.models.inducing_start(task.x.cpu(), config.num_inducing, seed=0),
        dtype=task.x.dtype,
    ).to(task.x.device)
    likelihood = gilib.Gaussian(StructuredConfig.noise_variance, learn=True).to(task.x.device)
    gilib.fit(
        net,
        likelihood,
        task.x,
        task.y,
        steps=config.training,
        batch_size=config.batch_size,
        num_samples=1,
        rule=gilib.Adam(uci.SHORT["lr"], schedule=LinearDecay(start=0.5)),
        progress=job.progress,
    )
    return net, gilib.Gaussian(float(likelihood.noise_variance.detach())).to(task.x.device)


def at_hyperparameters(sparse: gilib.Network, config: ChainsConfig, task: Task) -> gilib.Network:
    """Build a layer with a state for every chain as its posterior; only the states are learned."""
    layer = process(sparse)
    assert layer.inducing_inputs is not None and layer.hyperparameters is not None
    net = gilib.models.deep_gp(
        task.x.shape[-1],
        1,
        1,
        posterior=gilib.PointEstimate(),
        inducing_points=layer.inducing_inputs.detach().cpu(),
        replicas=(config.chains,),
        dtype=task.x.dtype,
    ).to(task.x.device)
    own, found = process(net).hyperparameters, layer.hyperparameters.state_dict()
    assert own is not None
    own.load_state_dict({name: value.expand(config.chains, *value.shape) for name, value in found.items()})
    for name, parameter in net.named_parameters():
        parameter.requires_grad_("weights" in name)
    return net


@torch.no_grad()
def exact(sparse: gilib.Network, noise: float, task: Task) -> tuple[Tensor, Tensor]:
    """Return mean `[M]` and Cholesky factor `[M, M]` of the best distribution of w, u = R w, in float64.

    Its precision is Id + A Aᵀ / σ², and its mean solves (Id + A Aᵀ / σ²) m = A y / σ², with A = R⁻¹ k(Z, X)
    (Hensman, Fusi & Lawrence, 2013).
    """
    layer = process(sparse)
    assert layer.inducing_inputs is not None and layer.hyperparameters is not None
    kernel, places = layer.hyperparameters(), layer.inducing_inputs.double()
    jitter = layer.jitter * kernel.diagonal(places).mean(-1, keepdim=True)
    root = cholesky(kernel.gram(places, jitter))
    across = torch.linalg.solve_triangular(root, kernel.cross(places, task.x.double()), upper=False)
    precision = torch.eye(len(places), dtype=across.dtype, device=across.device) + across @ across.mT / noise
    covariance = torch.cholesky_inverse(cholesky(precision))
    return covariance @ (across @ task.y[:, 0].double()) / noise, cholesky(covariance)


def measured(states: Tensor, mean: Tensor, factor: Tensor) -> dict[str, Any]:
    """Return the metrics of states `[chains, kept, M]`, given their exact distribution."""
    standard = torch.linalg.solve_triangular(factor, (states - mean).mT, upper=False).mT
    spread = torch.histc(standard.clamp(-EDGE, EDGE), BINS, -EDGE, EDGE) / standard.numel()
    quantiles = torch.tensor([0.0, 0.5, 1.0], dtype=states.dtype)
    eigenvalues, vectors = torch.linalg.eigh(factor @ factor.mT)
    rotated = (states - mean) @ vectors
    found = {
        "kurtoses": excess(states.flatten(0, 1)).quantile(quantiles),
        "r_hats": split_r_hat(states).quantile(quantiles),
        "thirds": torch.stack([part.square().mean() for part in standard.tensor_split(3, 1)]),
        "histogram": spread,
        "eigenvalues": eigenvalues,
        "ratios": rotated.square().mean((0, 1)) / eigenvalues,
        "along": split_r_hat(rotated),
    }
    return {
        "variance": float(standard.square().mean()),
        "kurtosis": float(excess(standard.flatten()[:, None])),
        "draws": float(effective_sample_size(states).median()),
    } | {name: [significant(value) for value in values.tolist()] for name, values in found.items()}


def excess(values: Tensor) -> Tensor:
    """Return the excess kurtosis over the first axis, 0 for a Gaussian."""
    centred = values - values.mean(0)
    return centred.pow(4).mean(0) / centred.square().mean(0).square() - 3.0


def process(net: gilib.Network) -> GP:
    """Return the only layer of a network."""
    (layer,) = (module for module in net.modules() if isinstance(module, GP))
    return layer


EXPERIMENTS = {
    "structured_chains": Experiment(
        "Figure S6: chains over the inducing outputs of one layer against their exact distribution",
        ChainsConfig,
        grid,
        one_by_one(run),
    ),
}
