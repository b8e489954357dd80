"""The networks of the comparison and the rules that train them, by method."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

import gilib
from experiments.common.methods import PRIORS
from experiments.lindinger2020.tasks import Task
from experiments.lindinger2020.uci import StructuredConfig
from gilib.kernels import KernelModule, White
from gilib.kernels.functions import WhiteFunction
from gilib.models import inducing_start
from gilib.posteriors import BuildContext
from gilib.structured import Family, FullyCoupled, MeanField, StripesAndArrow, StructuredGP
from gilib.structured.gaussian import JointGaussian
from gilib.training import SGHMC, NaturalGradient, Rule, StoredStates
from gilib.training.schedules import PiecewiseConstant

FAMILIES: dict[str, Family] = {
    "sgp": MeanField(),
    "mf": MeanField(),
    "star": StripesAndArrow(),
    "fc": FullyCoupled(),
    "mf_ng": MeanField(),
    "fc_ng": FullyCoupled(),
}
HIDDEN = 50  # of the global inducing network
BNN_NOISE, BNN_NOISE_SCALE = math.exp(-3.0), 10.0  # Ober & Aitchison (2021), App. K.1

Built = tuple[gilib.Network, gilib.Gaussian]


def build(config: StructuredConfig, task: Task) -> Built:
    """Build network and likelihood on the task's device, initialised on the CPU from the training points."""
    net, noise = BUILDERS[config.method](config, task)
    return net.to(task.x.device), noise.to(task.x.device)


def structured(config: StructuredConfig, task: Task, marginalise: bool = True) -> Built:
    """Build the network of Lindinger et al. (2020), with inducing inputs at k-means centres."""
    points = task.all_x.cpu()
    net = gilib.models.structured_gp(
        points.shape[-1],
        1,
        config.depth,
        width=config.width,
        family=FAMILIES[config.method],
        kernel=_kernel(config),
        inducing_points=inducing_start(points, _inducing(config, task), seed=config.repetition),
        mean_points=points,
        generator=_generator(config),
        marginalise=marginalise,
    )
    begin_at(net, config.hidden_scale)
    if config.white:
        add_white(net, config.white)
    return net, gilib.Gaussian(config.noise_variance, learn=True)


@torch.no_grad()
def begin_at(net: gilib.Network, scale: float) -> None:
    """Set the factor's blocks of hidden processes to a multiple of the prior's."""
    joint = gaussian_of(net)
    for row, place in zip(joint.rows, joint.pattern.places, strict=True):
        if place.layer < len(joint.pattern.widths) - 1:
            row[..., -row.shape[-2] :].diagonal(dim1=-2, dim2=-1).fill_(scale)


def add_white(net: gilib.Network, variance: float) -> None:
    """Add white noise to the kernels of hidden layers, which are built anew."""
    for process in list(layer_of(net))[:-1]:
        assert process.inducing_inputs is not None
        process.kernel = process.kernel + White(variance)
        context = BuildContext(dtype=process.inducing_inputs.dtype)
        process.hyperparameters = process.kernel.build(process.in_features, context)


def white_of(net: gilib.Network) -> list[float]:
    """Return the variances of white noise in the kernels of hidden layers."""
    modules = [module for module in net.modules() if isinstance(module, KernelModule)]
    functions = [module() for module in modules]
    return [float(found.variance.detach()) for found in functions if isinstance(found, WhiteFunction)]


def gaussian_of(net: gilib.Network) -> JointGaussian:
    """Return the joint Gaussian of a network's structured layer."""
    joint = layer_of(net).weights
    assert joint is not None
    return joint


def layer_of(net: gilib.Network) -> StructuredGP:
    """Return a network's structured layer."""
    (layer,) = (module for module in net.modules() if isinstance(module, StructuredGP))
    return layer


def global_inducing(config: StructuredConfig, task: Task) -> Built:
    """Build the deep GP of Ober & Aitchison (2021), App. O, in the shape of the others."""
    inputs, targets = _training_points(config, task)
    net = gilib.models.deep_gp(
        inputs.shape[-1],
        1,
        config.depth,
        width=min(config.width, inputs.shape[-1]),
        posterior=[
            gilib.GlobalInducing(precision="full", log_precision=0.0 if last else -4.0)
            for last in [False] * (config.depth - 1) + [True]
        ],
        kernel=_kernel(config),
        inducing_points=inputs,
        pseudo_outputs=targets,
        generator=_generator(config),
        dtype=inputs.dtype,
    )
    return net, gilib.Gaussian(config.noise_variance, learn=True)


def global_inducing_bnn(config: StructuredConfig, task: Task) -> Built:
    """Build the Bayesian neural network of Ober & Aitchison's UCI experiment."""
    inputs, targets = _training_points(config, task)
    net = gilib.models.mlp(
        inputs.shape[-1],
        (HIDDEN,) * (config.depth - 1),
        1,
        posterior=gilib.GlobalInducing(precision="per_output"),
        prior=PRIORS["NealPrior"],
        inducing_points=inputs,
        pseudo_outputs=targets,
        generator=_generator(config),
        dtype=inputs.dtype,
    )
    return net, gilib.Gaussian(BNN_NOISE, learn=True, scale=BNN_NOISE_SCALE)


def sampled(config: StructuredConfig, task: Task) -> Built:
    """Build the deep GP of Havasi et al. (2018), which samples states of its inducing outputs."""
    points = task.all_x.cpu()
    net = gilib.models.deep_gp(
        points.shape[-1],
        1,
        config.depth,
        width=min(config.width, points.shape[-1]),
        posterior=gilib.PointEstimate(_inducing(config, task)),
        kernel=_kernel(config),
        inducing_points=inducing_start(points, _inducing(config, task), seed=config.repetition),
        generator=_generator(config),
        dtype=points.dtype,
    )
    return net, gilib.Gaussian(config.noise_variance, learn=True)


BUILDERS: dict[str, Callable[[StructuredConfig, Task], Built]] = {
    **dict.fromkeys(FAMILIES, structured),
    "gi": global_inducing,
    "gi_bnn": global_inducing_bnn,
    "sghmc": sampled,
}


def rule(config: StructuredConfig) -> Rule:
    """Return a method's rule: Adam, for some methods only for a part of the parameters."""
    schedule = stairs(config)
    adam = gilib.Adam(config.lr, schedule=schedule)
    if config.method.endswith("_ng"):
        return NaturalGradient(config.natural_lr, base_optimiser=adam, schedule=schedule)
    return SGHMC(burn_in(config), base_optimiser=adam) if config.method == "sghmc" else adam


def stairs(config: StructuredConfig) -> PiecewiseConstant:
    """Return the schedule of learning rates, which fall in stairs."""
    boundaries = range(config.decay_every, config.steps, config.decay_every)
    return PiecewiseConstant(tuple(boundaries), tuple(config.decay**k for k in range(len(boundaries) + 1)))


def burn_in(config: StructuredConfig) -> int:
    """Return the number of burn-in steps of a chain, half of all."""
    return config.steps // 2


def stored_states(config: StructuredConfig) -> StoredStates:
    """Return the callback that stores states of a chain after burn-in."""
    start = burn_in(config)
    return StoredStates(start, max(1, (config.steps - start) // config.states))


def _kernel(config: StructuredConfig) -> gilib.kernels.RBF:
    return gilib.kernels.RBF(config.lengthscale, config.variance)


def _inducing(config: StructuredConfig, task: Task) -> int:
    return min(config.num_inducing, len(task.x))


def _training_points(config: StructuredConfig, task: Task) -> tuple[Tensor, Tensor]:
    """Return random training points with their targets, as many as there are inducing points."""
    generator = torch.Generator().manual_seed(3000 + config.repetition)
    rows = torch.randperm(len(task.x), generator=generator)[: _inducing(config, task)]
    return task.x.cpu()[rows], task.y.cpu()[rows]


def _generator(config: StructuredConfig) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + config.repetition)
