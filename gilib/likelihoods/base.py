"""Likelihoods: how outputs of a network explain targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, distributions, nn
from torch.distributions import Distribution, Independent, constraints
from torch.nn.functional import log_softmax

from gilib.config import ConfigDict, Part
from gilib.likelihoods.mixtures import CategoricalPrediction, MixturePrediction, Prediction
from gilib.linalg import readable
from gilib.validation import as_integers, as_labels, check_own_targets

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn

LOG_2PI = math.log(2.0 * math.pi)
NODES = 20  # of an expectation


@cache
def hermite() -> tuple[list[float], list[float]]:
    """Nodes and weights of an expectation under N(0, 1), by Gauss and Hermite's rule."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes.tolist(), (weights / weights.sum()).tolist()


def as_row(values: float | Sequence[float]) -> list[float]:
    """One number for all outputs, or one for each, as a list.

    Raises:
        ValueError: if there are none.
    """
    row = [float(value) for value in (values if isinstance(values, Sequence) else [values])]
    if not row:
        raise ValueError("give one number for all outputs, or one for each, got none")
    return row


def check_axes(targets: Tensor, shape: Sequence[int]) -> None:
    """Raise unless targets end with the axes `shape`, points first."""
    if tuple(targets.shape[-len(shape) :]) != tuple(shape):
        names = "(points, outputs of the network)" if len(shape) > 1 else "(points)"
        raise ValueError(f"targets must have shape {list(shape)} {names}, got {list(targets.shape)}")


class Likelihood(nn.Module, Part, ABC):
    """P(y | f), independent over points.

    Define `distribution`, and all else follows: densities, their expectation, predictions, quantiles and
    samples. What has a closed form may override them. Define `config`, too, to save it.

    Attributes:
        target_axes: how many axes one target has: 1 for numbers `[O]`, 0 for a label.
        support: which numbers a target may be. Unless it is `constraints.real`, targets have units of their
            own and are not normalised.
        wanted: the same in words, for errors.
        replicas: shape of the replica axes, if every replica has its own parameters; else `()`.
        integrates: whether it predicts from Gaussian outputs in closed form; else they are sampled.
        output_axes: how many axes an output at one point has that it is trained on; None: any number.

    >>> class Exponential(Likelihood):
    ...     support = torch.distributions.constraints.positive
    ...
    ...     def distribution(self, outputs):
    ...         return torch.distributions.Exponential(outputs.exp(), validate_args=False)
    >>> Exponential().log_prob(torch.zeros(3, 5, 2), torch.ones(5, 2))[0]
    tensor([-2., -2., -2., -2., -2.])
    """

    target_axes: int = 1
    support: ClassVar[Any] = constraints.real
    wanted: ClassVar[str] = "other numbers"
    replicas: tuple[int, ...] = ()
    integrates: bool = False
    output_axes: int | None = None

    @property
    def points_axis(self) -> int:
        """The axis of the points in targets `[..., N, O]`, or in labels `[..., N]`."""
        return -1 - self.target_axes

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Distribution:
        """What targets are, given outputs.

        Args:
            outputs: f, `[S, R, N, O]`.

        Returns:
            Its batch shape is that of the outputs if each target depends on one of them, which are then
            integrated over one by one; else `[S, R, N]` with the axes of a target as event shape, or as last
            axes of the batch. With `validate_args=False`, so that a step does not look at its numbers.
        """

    def joint(self, outputs: Tensor) -> Distribution:
        """The distribution of all that is one target: batch shape `[S, R, N]`."""
        law = self.distribution(outputs)
        return Independent(law, self.target_axes - len(law.event_shape), validate_args=False)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log P(y_n | f_n) of every point, nats.

        Args:
            outputs: f, `[S, R, N, O]`.
            targets: y, `[N, O]` or `[R, N, O]` (class labels: `[N]` or `[R, N]`, integers).

        Returns:
            `[S, R, N]`.
        """
        law = self.joint(outputs)
        check_axes(targets, law.batch_shape[-1:] + law.event_shape)
        check_own_targets(targets.shape[: -1 - self.target_axes], law.batch_shape[1:-1])
        found: Tensor = law.log_prob(targets.to(outputs.dtype) if self.target_axes else targets)
        return found

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """E log P(y_n | f_n), `[S, R, N]` nats: over what the functions sample last, if that is known.

        By Gauss and Hermite's rule where each target depends on one output; else of the sample.

        Args:
            functions: S of them.
            x: inputs, `[N, D]` or `[R, N, D]`.
            targets: as for `log_prob`.
        """
        mean, variance = functions.marginals(x)
        if variance is None:
            return self.log_prob(mean, targets)
        if self.distribution(mean).batch_shape != mean.shape:
            return self.log_prob(functions(x), targets)
        nodes, weights = (mean.new_tensor(values).reshape(-1, *[1] * mean.dim()) for values in hermite())
        outputs = mean + variance.sqrt() * nodes  # [nodes, S, R, N, O]
        log_prob = self.log_prob(outputs.flatten(0, 1), targets)
        return (weights[..., 0] * log_prob.unflatten(0, outputs.shape[:2])).sum(0)

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Raise unless `targets` fit `num_points` points and a network with `outputs` outputs."""
        check_axes(targets, (num_points, outputs)[: 1 + self.target_axes])
        wrong = ~self.support.check(targets)
        if bool(wrong.any()):
            raise ValueError(
                f"{type(self).__name__} wants {self.wanted}, and {int(wrong.sum())} of the targets are not, "
                f"{float(targets[wrong][0]):g} the first"
            )

    def check_output_shape(self, shape: tuple[int, ...]) -> None:
        """Raise unless a network that is to be trained has outputs of this many axes."""
        if self.output_axes is not None and len(shape) != self.output_axes:
            raise ValueError(
                f"{type(self).__name__} takes outputs [S, R, N, O], and at one point the network gives "
                f"{list(shape)}: end it with torch.nn.Flatten()"
            )

    def check_replicas(self, outputs: Tensor) -> None:
        """Raise unless the noise is shared, or the outputs `[S, R, N, O]` have its replicas."""
        given = tuple(outputs.shape[1:-2])
        if self.replicas not in ((), given):
            raise ValueError(
                f"{type(self).__name__}(replicas={self.replicas}) has a noise for each of these, the outputs "
                f"are of a network with replicas={given}: give both the same"
            )

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> Prediction:
        """The mixture over S functions that `predict` returns.

        Args:
            outputs: f, `[S, R, N, O]`.
            normalisation: how targets were scaled for training; the prediction is in original units.
            variance: of independent Gaussian outputs, whose means are f; handed over if `integrates` is True.

        Raises:
            ValueError: for scaled targets, if they cannot be scaled.
        """
        if not (self.support is constraints.real or normalisation is None or normalisation.inputs_alone):
            raise ValueError(
                f"targets of {type(self).__name__} are not scaled: fit the normalisation to inputs alone, "
                "Normalisation.fit(x)"
            )
        return MixturePrediction(self.joint(outputs.double()), normalisation)

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Targets given outputs: a sample for each function and point, `[S, R, N, O]`.

        Args:
            outputs: f, `[S, R, N, O]`.
            generator: source of the seed with which distributions of torch are sampled, as they take none.
        """
        on = None if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=on))
        with torch.random.fork_rng([outputs.device] if outputs.is_cuda else []):
            source = torch.cuda if outputs.is_cuda else torch.default_generator
            source.manual_seed(seed)
            found: Tensor = self.distribution(outputs).sample()
        return found

    def link(self, targets: Tensor) -> Tensor:
        """Outputs that would explain targets `[..., O]`: where pseudo-outputs start."""
        return targets

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """With parameters from which a training on these targets `[..., O]` starts."""
        return cls()

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        """Whether targets are the outputs plus Gaussian noise, whose covariance `set_noise` takes.

        By default they are not.

        Args:
            replicas: of the network.

        Raises:
            ValueError: if they are, and the noise is fixed, or not one for every replica.
        """
        return False

    def set_noise(self, covariance: Tensor) -> None:
        """Take an inferred covariance of the noise, `[R, O, O]`.

        Raises:
            TypeError: if there is no such noise.
        """
        raise TypeError(f"{type(self).__name__} has no Gaussian noise whose covariance could be set")


class Categorical(Likelihood):
    """y ~ Categorical(softmax(f)).

    >>> import torch
    >>> Categorical().log_prob(torch.zeros(3, 2, 4), torch.tensor([0, 1]))[0]
    tensor([-1.3863, -1.3863])
    """

    output_axes, target_axes = 1, 0

    def distribution(self, outputs: Tensor) -> distributions.Categorical:
        """Classes, whose logits are the outputs."""
        return distributions.Categorical(logits=outputs, validate_args=False)

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Of a sample: a class depends on all outputs."""
        return self.log_prob(functions(x), targets)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log softmax(f)_y, `[S, R, N]` nats."""
        self._check_shape(targets, outputs.shape[-2])
        check_own_targets(targets.shape[:-1], outputs.shape[1:-2], "class labels")
        labels = as_labels(targets, outputs.shape[-1]) if readable(targets) else as_integers(targets)
        index = labels.expand(outputs.shape[:-1])[..., None]
        return log_softmax(outputs, -1).gather(-1, index)[..., 0]

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Labels must be integers `[N]` below the number of outputs, of which there are two or more."""
        as_labels(targets, outputs, f" (the network has {outputs} outputs)")
        self._check_classes(outputs)
        self._check_shape(targets, num_points)

    @staticmethod
    def _check_classes(outputs: int) -> None:
        if outputs < 2:
            raise ValueError(
                "classes need a network with an output for each, two at least: this one has one, whose "
                "softmax is 1 whatever it is"
            )

    def _check_shape(self, targets: Tensor, num_points: int) -> None:
        if targets.shape[-1:] != (num_points,):
            raise ValueError(f"class labels must have shape [{num_points}], got {list(targets.shape)}")

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> CategoricalPrediction:
        """Class probabilities; labels have no units."""
        self._check_classes(outputs.shape[-1])
        return CategoricalPrediction(log_softmax(outputs, -1))

    def config(self) -> ConfigDict:
        """No settings."""
        return {}
