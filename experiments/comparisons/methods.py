"""The methods of the comparison: their networks and their training rules."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import gilib
from experiments.comparisons.posteriors import PosteriorConfig
from experiments.comparisons.tasks import Task
from experiments.lindinger2020.networks import begin_at
from gilib import training
from gilib.baselines import laplace
from gilib.likelihoods import Likelihood
from gilib.models import inducing_start
from gilib.posteriors import Posterior
from gilib.prediction.drawables import Drawable
from gilib.randomness import ReplicaGenerators
from gilib.training import Rule, StoredStates
from gilib.training.rules.sampled_weight_rule import SampledWeightRule

NOISE_VARIANCE = math.exp(-3.0)  # initial value, as in Ober & Aitchison (2021), App. K.1
PROCESS_NOISE = 1e-2  # initial value for Gaussian processes, as in Salimbeni & Deisenroth (2017)
RATE = 1e-2  # Adam's rate, if the setting is not a rate
MEMBERS = 5  # of an ensemble
STATES = 100  # states of a chain that predict
AT_ONCE = 1000  # points whose curvature is computed together
WIDTHS = {"protein": 100, "fashion-mnist": 100}  # of the hidden layer; 50 for other sets
DECAY = training.CosineDecay(start=0.5, last=0.01)  # for rules that set precisions from gradients


Networks = Callable[..., gilib.Network]  # of configuration and task; keywords change what makes it
Layers = gilib.posteriors.Posterior | Sequence[gilib.posteriors.Posterior]


@dataclass(frozen=True)
class Method:
    """A method, which is a row of the comparison.

    Attributes:
        network: builds the network.
        rule: returns the training rule.
        estimator: estimator of the bound, see `gilib.fit`.
        kl_weight: factor of the Kullback-Leibler term.
        bound: whether the ELBO is a bound on this model's evidence.
        noise: initial value of the learned noise variance, normalised.
        members: number of members that are trained together and form an ensemble; 0 for no ensemble.
        laplace: whether to apply the Laplace approximation to the last layer after training.
        chain: whether the states of the training predict.
    """

    network: Networks
    rule: Callable[[PosteriorConfig], Rule]
    estimator: str = "draw"
    kl_weight: float = 1.0
    bound: bool = True
    noise: float = NOISE_VARIANCE
    members: int = 0
    laplace: bool = False
    chain: bool = False

    @property
    def replicas(self) -> tuple[int, ...]:
        """Shape of the replica axes of network and noise."""
        return (self.members,) if self.members else ()

    def seeds(self, config: PosteriorConfig) -> int | list[int]:
        """Return the seed of draws and minibatches: the split, or one for each member."""
        return member_seeds(config, self.members) if self.members else config.split

    def stored(self, config: PosteriorConfig) -> list[StoredStates]:
        """Return the callback that collects states, if they predict."""
        start = burn_in(config)
        return [StoredStates(start, max(1, (config.steps - start) // STATES))] if self.chain else []

    def drawable(
        self, net: gilib.Network, likelihood: Likelihood, task: Task, stored: Sequence[StoredStates]
    ) -> Drawable:
        """Return the object that predicts after training."""
        if self.members:
            return gilib.Ensemble(net)
        if self.laplace:
            return laplace(net, likelihood, task.x, task.y, batch_size=AT_ONCE)
        return stored[0].samples(net) if stored else net


def member_seeds(config: PosteriorConfig, members: int) -> list[int]:
    """Return a seed for every member of an ensemble."""
    return [100 * config.split + member for member in range(members)]


def burn_in(config: PosteriorConfig) -> int:
    """Return the number of burn-in steps of a chain, half of all."""
    return config.steps // 2


def perceptron(
    posterior: Callable[[PosteriorConfig], Layers], own_prior: bool = False, members: int = 0
) -> Networks:
    """Return a builder for the network of the comparison, with inducing points if a layer needs them.

    Args:
        posterior: posterior of its two layers.
        own_prior: whether the setting is the prior variance.
        members: number of members that are trained together.
    """

    def build(config: PosteriorConfig, task: Task, **changed: Any) -> gilib.Network:
        layers, seeds = posterior(config), member_seeds(config, members)
        source = ReplicaGenerators([1000 + s for s in seeds]) if members else _generator(config)
        return partial(
            gilib.models.mlp,
            task.x.shape[-1],
            (WIDTHS.get(config.dataset, 50),),
            task.outputs,
            posterior=layers,
            prior=gilib.NealPrior(math.sqrt(prior_variance(config, own_prior))),
            replicas=(members,) if members else (),
            generator=source,
            dtype=task.x.dtype,
            **_inducing(layers, config, task),
        )(**changed)

    return build


def prior_variance(config: PosteriorConfig, own_prior: bool) -> float:
    """Return the prior variance of the weights times √I: BALI's v_0, the setting, or the configuration's."""
    if config.bali is not None:
        return config.bali.v0
    return config.setting if own_prior else config.prior


def _inducing(layers: Layers, config: PosteriorConfig, task: Task) -> dict[str, Any]:
    """Return initial inducing points, if a layer has global ones: training points with their targets."""
    parts = [layers] if isinstance(layers, Posterior) else layers
    if not any(isinstance(part, gilib.GlobalInducing) for part in parts):
        return {}
    rows = _some(config, task)
    return {"inducing_points": task.x[rows].cpu(), "pseudo_outputs": task.y[rows].cpu()}


def _some(config: PosteriorConfig, task: Task) -> Tensor:
    source = torch.Generator().manual_seed(3000 + config.split)
    return torch.randperm(len(task.x), generator=source)[: config.num_inducing]


def _generator(config: PosteriorConfig) -> torch.Generator:
    return torch.Generator().manual_seed(1000 + config.split)


def deep_gp(depth: int, posterior: Callable[[bool], Posterior], centres: bool = True) -> Networks:
    """Return a builder for a deep Gaussian process with the initial kernels of Salimbeni & Deisenroth (2017).

    On images their lengthscale of 2 would make all inputs uncorrelated, so it starts at √D.

    Args:
        depth: number of layers.
        posterior: returns the posterior of a layer, given whether it is the last.
        centres: whether inducing inputs start at k-means centres rather than at training points.
    """

    def build(config: PosteriorConfig, task: Task, **changed: Any) -> gilib.Network:
        rows, x = _some(config, task), task.x.cpu()
        start = inducing_start(x, len(rows), seed=config.split) if centres else x[rows]
        return partial(
            gilib.models.deep_gp,
            x.shape[-1],
            task.outputs,
            depth,
            posterior=[posterior(layer == depth - 1) for layer in range(depth)],
            kernel=gilib.kernels.RBF(math.sqrt(x.shape[-1]) if task.classes else 2.0, 2.0),
            inducing_points=start,
            pseudo_outputs=None if centres else task.y.cpu()[rows],
            generator=_generator(config),
            dtype=x.dtype,
        )(**changed)

    return build


def structured(config: PosteriorConfig, task: Task, **changed: Any) -> gilib.Network:
    """Build a stripes-and-arrow deep GP: two layers, hidden width 5, factor at a tenth of the prior's."""
    x = task.x.cpu()
    net = partial(
        gilib.models.structured_gp,
        x.shape[-1],
        1,
        2,
        inducing_points=inducing_start(x, min(config.num_inducing, len(x)), seed=config.split),
        mean_points=x,
        generator=_generator(config),
    )(**changed)
    begin_at(net, 0.1)
    return net


def adam(config: PosteriorConfig) -> Rule:
    """Return Adam with the setting as its rate."""
    return gilib.Adam(config.setting)


def adam_as_ever(config: PosteriorConfig) -> Rule:
    """Return Adam with the fixed rate, if the setting is not a rate."""
    return gilib.Adam(RATE)


def bali(config: PosteriorConfig) -> Rule:
    """Return BALI with the settings of its own search."""
    assert config.bali is not None
    return training.Bali(config.bali.lr, config.bali.update_rate, config.bali.prior)


def sghmc(config: PosteriorConfig) -> Rule:
    """Return SGHMC with half of the steps as burn-in, whose first half adapts the scales.

    The noise is then learned at states of the posterior.
    """
    return training.SGHMC(burn_in(config), config.setting, adaptation=burn_in(config) // 2)


def decaying(kind: type[SampledWeightRule]) -> Callable[[PosteriorConfig], Rule]:
    """Return a rule for means and precisions of weights with a falling rate; the noise's rate is constant."""
    return lambda config: kind(lr=config.setting, schedule=DECAY)


def factorised(config: PosteriorConfig) -> Layers:
    """Return the factorised posterior, with initial variances of 1e-3/√I.

    The precision per point then starts near the curvature of the loss. IVON needs h_0 there or above: from a
    wider start its first steps diverge.
    """
    return gilib.Factorised()


POINT = perceptron(lambda config: gilib.PointEstimate(), own_prior=True)
FACTORISED = perceptron(factorised)
CONJUGATE = perceptron(lambda config: gilib.posteriors.Conjugate())
LAST = gilib.GlobalInducing(precision="per_output")


def local(config: PosteriorConfig) -> Layers:
    """Return posteriors with local inducing points."""
    last = gilib.LocalInducing(num_inducing=config.num_inducing, precision="per_output")
    return (dataclasses.replace(last, precision="shared"), last) if config.images else last


def global_(config: PosteriorConfig) -> Layers:
    """Return posteriors with global inducing points; on images, hidden units share their precisions."""
    return (gilib.GlobalInducing(), LAST) if config.images else LAST


METHODS: dict[str, Method] = {
    "map": Method(POINT, adam_as_ever, bound=False),
    "ensemble": Method(
        perceptron(lambda config: gilib.PointEstimate(), True, MEMBERS),
        adam_as_ever,
        bound=False,
        members=MEMBERS,
    ),
    "dropout": Method(
        perceptron(lambda config: gilib.posteriors.Dropout(config.setting)),
        adam_as_ever,
        "pointwise",
        bound=False,
    ),
    "laplace": Method(POINT, adam_as_ever, bound=False, laplace=True),
    "bbb": Method(FACTORISED, adam, "pointwise"),
    "bbb_tenth": Method(FACTORISED, adam, "pointwise", kl_weight=0.1),
    "bbb_hundredth": Method(FACTORISED, adam, "pointwise", kl_weight=0.01),
    "vadam": Method(FACTORISED, decaying(training.Vadam)),
    "vogn": Method(FACTORISED, decaying(training.VOGN)),
    "noisy_adam": Method(FACTORISED, decaying(training.NoisyAdam)),
    "noisy_kfac": Method(
        perceptron(lambda config: gilib.posteriors.MatrixGaussian()), decaying(training.NoisyKFAC)
    ),
    "ivon": Method(FACTORISED, decaying(training.IVON)),
    "sghmc": Method(perceptron(lambda config: gilib.PointEstimate()), sghmc, bound=False, chain=True),
    "li": Method(perceptron(local), adam),
    "gi": Method(perceptron(global_), adam),
    "fac_gi": Method(perceptron(lambda config: (gilib.Factorised(), LAST)), adam),
    "bali": Method(CONJUGATE, bali, noise=1.0),
    "bali_paper": Method(CONJUGATE, bali, noise=1.0, bound=False),
    "bali_l": Method(CONJUGATE, bali, "pointwise", noise=1.0),
    "sgp": Method(deep_gp(1, lambda last: gilib.FreeGaussian()), adam, "pointwise", noise=PROCESS_NOISE),
    "dgp_gi": Method(
        deep_gp(2, lambda last: gilib.GlobalInducing("full", 0.0 if last else -4.0), centres=False),
        adam,
        "pointwise",
        noise=PROCESS_NOISE,
    ),
    "dsvi": Method(
        deep_gp(2, lambda last: gilib.FreeGaussian(initial_scale=1.0 if last else 0.1)),
        adam,
        "pointwise",
        noise=PROCESS_NOISE,
    ),
    "star": Method(structured, adam, "pointwise", noise=PROCESS_NOISE),
}
