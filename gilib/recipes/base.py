"""Base class of all recipes, and the bound that compares trained models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from gilib import likelihoods
from gilib.arguments import Checked, Count, Fraction, Positive, checked
from gilib.config import plain
from gilib.draws import Drawn
from gilib.likelihoods import Categorical, Gaussian, GaussianNoise, Likelihood, PerOutputGaussian
from gilib.likelihoods.weighted import Weighted, with_weights
from gilib.network import Network
from gilib.objectives import elbo
from gilib.posteriors.pseudo import signed_one_hot
from gilib.randomness import GeneratorLike, ReplicaGenerators
from gilib.training import Adam, History, LinearDecay, fit
from gilib.training.gradients.objective import preferred_estimator
from gilib.validation import as_inputs, as_labels, as_tensor, check_choice, check_tensor

Seed = int | Sequence[int]
Shape = tuple[int, ...]
Options = dict[str, Any]

LIKELIHOODS: dict[str, type[Likelihood]] = {
    "student": likelihoods.StudentT,
    "poisson": likelihoods.Poisson,
    "negative_binomial": likelihoods.NegativeBinomial,
    "gamma": likelihoods.Gamma,
    "beta": likelihoods.Beta,
}
EVALUATIONS = 10**6  # of drawn functions, that tell the bound of a model well enough to compare it
LARGEST = 31 * 2**20  # bytes; glibc ignores blocks above 32 MB when it adapts


def check_likelihood(value: Any, name: str) -> None:
    """Raise an error unless the value is a class of likelihoods of numbers, or names one."""
    if isinstance(value, str):
        check_choice(value, ("gaussian", *LIKELIHOODS), name)
    elif not (isinstance(value, type) and issubclass(value, Likelihood)) or issubclass(value, GaussianNoise):
        raise TypeError(
            f"{name} must be a name, such as 'gaussian', or a subclass of gilib.likelihoods.Likelihood whose "
            f"noise is another, got {value!r}"
        )


def likelihood_class(given: str | type[Likelihood]) -> type[Likelihood]:
    """Return the class of likelihoods that is given, or named."""
    return LIKELIHOODS[given] if isinstance(given, str) else given


class Trained(NamedTuple):
    """A trained network, its likelihood and the history of the training."""

    network: Network
    likelihood: Likelihood
    history: History

    def __repr__(self) -> str:
        net = f"{list(self.network.input_shape)} to {list(self.network.output_shape)}"
        return f"Trained(network of {net}, {type(self.likelihood).__name__}, {self.history})"


@dataclass(frozen=True)
class Recipe(Checked, ABC):
    """A model with the settings of its training, for normalised inputs and targets.

    Args:
        steps: number of training steps.
        lr: Adam's learning rate.
        flat: fraction of the training with a constant learning rate, which then falls in a straight line to
            0.
        num_samples: draws a step.
        batch_size: largest number of points a step; smaller data sets are used whole.
        num_inducing: M, the largest number of inducing points, which are random training rows.
        noise_variance: initial noise variance in regression, for targets of variance 1.
        label_scale: size of the pseudo-outputs in classification: plus for the right class, minus for the
            others.
        likelihood: of targets that are numbers, as for `gilib.sklearn.BayesianRegressor`. With any but
            "gaussian" every model is trained by Adam.
    """

    steps: Count = 1000
    lr: Positive = 0.05
    flat: Fraction = 0.5
    num_samples: Count = 5
    batch_size: Count = 400
    num_inducing: Count = 200
    noise_variance: Positive = 0.05
    label_scale: Positive = 2.0
    likelihood: Annotated[str | type[Likelihood], check_likelihood] = "gaussian"

    @abstractmethod
    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        """Return a new network.

        Args:
            points: initial inducing points, `[R, M, D]`.
            targets: the targets at these points, `[R, M, O]`.
            replicas: shape of the replica axes of the network.
            generator: source of the initial values.
        """

    def classifier(
        self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike
    ) -> Network:
        """Return a new network for classes, whose targets are their pseudo-outputs; by default, `network`."""
        return self.network(points, targets, replicas, generator)

    def new_likelihood(self, y: Tensor, classes: int | None = None, replicas: Shape = ()) -> Likelihood:
        """Return the likelihood: `Categorical` for classes, else noise of learned size, one for each output.

        Arguments are those of `build`.

        Raises:
            ValueError: if the likelihood does not allow these targets.
        """
        if self.likelihood != "gaussian":
            if classes is not None:
                raise ValueError(f"likelihood={self.likelihood!r} is for numbers: of classes, leave it out")
            kind = likelihood_class(self.likelihood)
            kind().check_targets(y, y.shape[-2], kind().link(y).shape[-1])
            return kind.for_targets(y, replicas)
        if classes is not None:
            return Categorical()
        if y.shape[-1] == 1:
            return Gaussian(self.noise_variance, learn=True, replicas=replicas)
        return PerOutputGaussian([self.noise_variance] * y.shape[-1], learn=True, replicas=replicas)

    @checked
    def build(
        self, x: Tensor, y: Tensor, *, classes: Count | None = None, seed: Seed = 0
    ) -> tuple[Network, Likelihood]:
        """Return a new network and its likelihood; the inducing points are a random choice of the data.

        Args:
            x: training inputs, `[N, D]` or `[R, N, D]`, normalised.
            y: training targets, `[N, O]` or `[R, N, O]`, normalised, or labels, `[N]` or `[R, N]`.
            classes: number of classes; None: regression.
            seed: seed of the choice and of the initial values. With R seeds, the network has R replicas.
        """
        (x, y), seed = _as_tensors(x, y, classes), plain(seed)
        replicas = () if isinstance(seed, int) else (len(seed),)
        likelihood = self.new_likelihood(y, classes, replicas).to(x.device)
        if classes is None:
            targets = check_tensor(y if self.likelihood == "gaussian" else likelihood.link(y.to(x)), "y", x)
        else:
            targets = as_labels(y, classes)[..., None]
        seeds = [seed] if isinstance(seed, int) else list(seed)
        generators = [torch.Generator().manual_seed(s) for s in seeds]
        rows = [self.rows(x, generator) for generator in generators]
        points, outputs = (
            torch.stack([(part[r] if part.dim() == 3 else part)[row] for r, row in enumerate(rows)])
            for part in (x, targets)
        )
        if classes is not None:
            outputs = signed_one_hot(outputs[..., 0], classes, self.label_scale).to(x)
        source = generators[0] if isinstance(seed, int) else ReplicaGenerators([s + 1 for s in seeds])
        if not replicas:
            points, outputs = points[0], outputs[0]
        make = self.network if classes is None else self.classifier
        return make(points, outputs, replicas, source).to(x.device), likelihood

    def rows(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Return the rows of a random choice of inducing points from the data, `[M]`."""
        return torch.randperm(x.shape[-2], generator=generator)[: self.num_inducing].to(x.device)

    def enough(self, num_samples: int, classes: int | None = None) -> int:
        """Return how many draws a prediction needs; fewer than asked for if they give the same result."""
        return num_samples

    def rule(self) -> Adam:
        """Return the rule of the training: Adam with the recipe's rate and schedule."""
        return Adam(self.lr, schedule=LinearDecay(self.flat))

    @checked
    def train(
        self, x: Tensor, y: Tensor, *, classes: Count | None = None, seed: Seed = 0, **options: Any
    ) -> Trained:
        """Build a network and train it.

        Args:
            x: training inputs, as for `build`, and so are `y` and `classes`.
            y: training targets.
            classes: number of classes.
            seed: seed of all that is random, or R seeds.
            options: further arguments of `gilib.fit`, such as `progress`, `weights`, `callbacks` or
                `checkpoint`; they override the recipe's own.
        """
        own = {field.name for field in fields(self)} - {"steps", "num_samples", "batch_size"}
        if wrong := sorted(own & {*options}):
            raise TypeError(f"{wrong} belong to the recipe: recommended(..., {wrong[0]}=...)")
        x, y = _as_tensors(x, y, classes)
        keep_freed_memory()
        return self._train(x, y, classes, plain(seed), options)

    def _train(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> Trained:
        net, likelihood = self.build(x, y, classes=classes, seed=seed)
        settings: Options = {
            "steps": self.steps,
            "rule": self.rule(),
            "num_samples": self.num_samples,
            "batch_size": min(self.batch_size, x.shape[-2]),
            "seed": seed,
        } | options
        return Trained(net, likelihood, fit(net, likelihood, x, y, **settings))


def keep_freed_memory() -> None:
    """Let the process keep the memory that a step frees for the next step.

    glibc gives large blocks back to the system, but keeps blocks up to the size of the largest one that it
    has seen freed. Here it sees such a block, none of whose pages is touched.
    """
    torch.empty(LARGEST, dtype=torch.uint8, device="cpu")


@checked
@torch.no_grad()
def bound(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    num_samples: Count | None = None,
    batch_size: Count = 1000,
    generator: GeneratorLike | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the ELBO per data point over all data, to compare trained models, `[R]`, nats.

    Args:
        net: the trained network.
        likelihood: the likelihood that was trained with it.
        x: all training inputs, `[N, D]` or `[R, N, D]`, or images.
        y: all training targets.
        num_samples: S, the number of draws for every batch; None: a hundred, but fewer beyond ten thousand
            points (of more than a hundred outputs: fewer), where all draws have about a million points.
        batch_size: number of points that are evaluated at a time; fewer of more than a hundred outputs.
        generator: source of the draws.
        weights: how many data points each row counts as, `[N]`, as for `gilib.fit`; None: one.

    >>> import gilib
    >>> net, likelihood = gilib.recommended("network").build(torch.randn(30, 3), torch.randn(30, 1))
    >>> bound(net, likelihood, torch.randn(30, 3), torch.randn(30, 1)).shape
    torch.Size([])
    """
    like = net.layers.reference_tensor()
    x, y = as_inputs(x, "x", like), as_tensor(y, "y", like)
    x = x if like is None else x.to(like)
    y = y.to(x) if y.is_floating_point() else y
    if weights is not None:
        likelihood, y = Weighted(likelihood), with_weights(y, weights, likelihood.target_axes)
    places, axis = -1 - len(net.input_shape), likelihood.points_axis
    points = x.shape[places]
    draws = num_samples or max(1, min(100, at_once(EVALUATIONS, net.output_shape[-1]) // points))
    batch_size = at_once(batch_size, net.output_shape[-1])
    total = torch.zeros((), dtype=x.dtype, device=x.device)
    for part, targets in zip(x.split(batch_size, places), y.split(batch_size, axis), strict=True):
        size = part.shape[places]
        if preferred_estimator(net) == "pointwise":
            drawn: Drawn = net.estimate(draws, size, generator=generator)
        else:
            drawn = net.draw(draws, generator=generator)
        value = elbo(drawn, likelihood, part, targets, num_data=points)
        total = total + value * (size / points)
    return total / (points if weights is None else weights.sum().to(total))


def at_once(points: int, outputs: int) -> int:
    """Return how many points to evaluate at a time, so that memory does not grow with many outputs."""
    return max(1, points * 100 // max(outputs, 100))


def _as_tensors(x: object, y: object, classes: int | None) -> tuple[Tensor, Tensor]:
    """Return a table of floating-point inputs, and targets or labels for as many points."""
    x, y = as_inputs(x, "x"), as_tensor(y, "y")
    if classes is None and y.dim() < 2:
        raise ValueError(
            f"y must hold targets [N, O], got {y.dtype} of shape {list(y.shape)}: write y[:, None] for one "
            "output, or classes=... if these are labels"
        )
    if not check_tensor(x, "x").is_floating_point():
        raise TypeError(f"x must hold floating-point numbers, got {x.dtype}: convert it, as by x.float()")
    if x.dim() > 3:
        raise ValueError(f"x must be a table [N, D], got {list(x.shape)}: for images see gilib.models")
    targets = y.shape[-2 if classes is None else -1]
    if targets != x.shape[-2]:
        raise ValueError(f"x holds {x.shape[-2]} points and y {targets}: give one target for each")
    return x, y
