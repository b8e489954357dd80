"""The base class of likelihoods, and the likelihood of class labels."""

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

from gilib.config import Part
from gilib.likelihoods.mixtures import CategoricalPrediction, MixturePrediction, Prediction
from gilib.linalg import readable
from gilib.validation import as_integers, as_labels, check_own_targets

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn

LOG_2PI = math.log(2.0 * math.pi)
NODES = 20  # nodes of the quadrature for an expectation


@cache
def hermite() -> tuple[list[float], list[float]]:
    """Return nodes and weights of Gauss-Hermite quadrature for an expectation under N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes.tolist(), (weights / weights.sum()).tolist()


def as_row(values: float | Sequence[float]) -> list[float]:
    """Return a list of one number for all outputs, or of one for each."""
    row = [float(value) for value in (values if isinstance(values, Sequence) else [values])]
    if not row:
        raise ValueError("give one number for all outputs, or a list with one for each, got none")
    return row


def check_axes(targets: Tensor, shape: Sequence[int], name: str = "outputs of the network") -> None:
    """Raise ValueError unless the last axes of the targets have the given shape, points first."""
    if tuple(targets.shape[-len(shape) :]) != tuple(shape):
        names = f"(points, {name})" if len(shape) > 1 else "(points)"
        raise ValueError(f"targets must have shape {list(shape)} {names}, got {list(targets.shape)}")


def check_pairs(targets: Tensor, means: Tensor) -> None:
    """Raise unless targets are floating-point, `[N, O]` or `[R, N, O]`, like their means `[S, R, N, O]`."""
    if not targets.is_floating_point():
        raise TypeError(f"targets must be floating-point, got {targets.dtype}: use y.to(x.dtype)")
    check_axes(targets, means.shape[-2:], "numbers in a target")
    check_own_targets(targets.shape[:-2], means.shape[1:-2])


class Likelihood(nn.Module, Part, ABC):
    """A likelihood P(y | f), independent over points.

    A subclass must define `distribution`, from which all else follows. For training to start well, it may
    define `link` and `for_targets`, too.

    Attributes:
        target_axes: number of axes of one target: 1 for numbers `[O]`, 0 for a label.
        support: the set of possible targets. Unless it is `constraints.real`, targets keep their own units
            and are not normalised.
        wanted: describes the support in error messages, if its own name does not.
        replicas: shape of the replica axes if every replica has its own parameters; otherwise `()`.
        integrates: whether it predicts from Gaussian outputs in closed form; otherwise outputs are sampled.
        output_axes: number of axes that an output at one point must have for training; None: any number.
        num_outputs: number of outputs that the network must have; None: any number.

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
    wanted: ClassVar[str] = ""
    replicas: tuple[int, ...] = ()
    integrates: bool = False
    output_axes: int | None = None
    num_outputs: int | None = None

    @property
    def points_axis(self) -> int:
        """The axis of the points, in targets `[..., N, O]` or labels `[..., N]`."""
        return -1 - self.target_axes

    @abstractmethod
    def distribution(self, outputs: Tensor) -> Distribution:
        """Return the distribution of the targets given the outputs.

        Create it with `validate_args=False`, so that a training step does not wait to inspect its values.

        Args:
            outputs: f, `[S, R, N, O]`.

        Returns:
            If every target depends on one output, a distribution whose batch shape is the shape of the
            outputs. Otherwise, one of another batch shape, such as `[S, R, N]` with the axes of a target as
            event shape: wrap it in `Independent`. For quantiles it needs `cdf`, which torch's Poisson, Beta
            and StudentT lack.
        """

    def joint(self, outputs: Tensor) -> Distribution:
        """Return the joint distribution of all numbers in a target, with batch shape `[S, R, N]`."""
        distribution = self.distribution(outputs)
        axes = self.target_axes - len(distribution.event_shape)
        return Independent(distribution, axes, validate_args=False)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return log P(y_n | f_n) for every point, `[S, R, N]`, nats.

        Args:
            outputs: f, `[S, R, N, O]`.
            targets: y, `[N, O]` or `[R, N, O]` (class labels: integers, `[N]` or `[R, N]`).

        Raises:
            ValueError: if the targets do not fit the outputs.
        """
        distribution = self.joint(outputs)
        check_axes(targets, distribution.batch_shape[-1:] + distribution.event_shape)
        check_own_targets(targets.shape[: -1 - self.target_axes], distribution.batch_shape[1:-1])
        return distribution.log_prob(targets.to(outputs.dtype))

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Return E log P(y_n | f_n) for every point, `[S, R, N]`, nats.

        It is computed by Gauss-Hermite quadrature if the marginals of the outputs are known and every target
        depends on one output, and otherwise estimated from one sample.

        Args:
            functions: S drawn functions.
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
        """Raise an error unless targets fit `num_points` points and a network with `outputs` outputs."""
        self.check_num_outputs(outputs)
        kind = targets.dtype if targets.is_floating_point() else None
        trial = torch.zeros(1, *self.replicas, 1, outputs, dtype=kind, device=targets.device)
        one = self.joint(trial).event_shape
        name = "outputs" if one == (outputs,) else f"numbers in a target, from {outputs} outputs"
        check_axes(targets, (num_points, *one), f"{name} of the network")
        wrong = ~self.support.check(targets)
        if bool(wrong.any()):
            raise ValueError(
                f"{type(self).__name__} wants {self.wanted or self.support}, but {int(wrong.sum())} of the "
                f"targets are not: the first of these is {targets[wrong][0].tolist()}"
            )
        if self.distribution(trial).batch_shape == trial.shape:  # as if every target had its own output
            row = targets.flatten(0, -2)[:1].to(trial.dtype)
            moves = torch.eye(outputs, device=trial.device).unflatten(0, (-1, *[1] * (trial.dim() - 2)))
            before, after = (self.distribution(at).log_prob(row) for at in (trial, trial + moves))
            if bool(((after - before).abs() > 0).logical_and(moves == 0).any()):  # NaN tells nothing
                raise ValueError("a target depends on several outputs: wrap the distribution in Independent")

    def check_output_shape(self, shape: tuple[int, ...]) -> None:
        """Raise ValueError unless outputs of this shape at one point can be trained on."""
        if self.output_axes is not None and len(shape) != self.output_axes:
            raise ValueError(
                f"{type(self).__name__} takes outputs [S, R, N, O], but at one point the network gives "
                f"{list(shape)}: end it with torch.nn.Flatten()"
            )

    def check_num_outputs(self, outputs: int) -> None:
        """Raise ValueError if the likelihood is for another number of outputs."""
        if self.num_outputs not in (None, outputs):
            raise ValueError(
                f"{type(self).__name__} is for a network with {self.num_outputs} outputs, got {outputs}"
            )

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise ValueError if the likelihood is for another number of outputs, or for other replicas."""
        self.check_num_outputs(outputs.shape[-1])
        given = tuple(outputs.shape[1:-2])
        if self.replicas not in ((), given):
            raise ValueError(
                f"{type(self).__name__}(replicas={self.replicas}) has a noise for each of these, but the "
                f"outputs are from a network with replicas={given}: use the same for both"
            )

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> Prediction:
        """Return the predictive distribution, an equal mixture over S functions.

        Args:
            outputs: f, `[S, R, N, O]`.
            normalisation: scaling of the targets in training; the prediction is in original units.
            variance: variances of independent Gaussian outputs with means f, given only if `integrates` is
                True.

        Raises:
            ValueError: if targets were scaled although this likelihood's targets cannot be.
        """
        if not (self.support is constraints.real or normalisation is None or normalisation.inputs_alone):
            raise ValueError(
                f"targets of {type(self).__name__} cannot be scaled: fit the normalisation to inputs only, "
                "as by Normalisation.fit(x)"
            )
        return MixturePrediction(self.joint(outputs.double()), normalisation)

    @torch.no_grad()
    def sample(self, outputs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Sample targets for every function and point, `[S, R, N, O]`.

        Args:
            outputs: f, `[S, R, N, O]`.
            generator: draws the seed for torch's distributions, which accept no generator themselves.
        """
        on = None if generator is None else generator.device
        seed = int(torch.randint(2**62, (), generator=generator, device=on))
        with torch.random.fork_rng([outputs.device] if outputs.is_cuda else []):
            source = torch.cuda if outputs.is_cuda else torch.default_generator
            source.manual_seed(seed)
            found: Tensor = self.distribution(outputs).sample()
        return found

    def link(self, targets: Tensor) -> Tensor:
        """Return outputs that would explain the targets `[..., O]`, where pseudo-outputs start.

        By default these are the targets themselves, if they are real and as many, and otherwise zeros.
        """
        wanted = self.num_outputs or targets.shape[-1]
        if self.support is constraints.real and wanted == targets.shape[-1]:
            return targets
        return targets.new_zeros(*targets.shape[:-1], wanted)

    @classmethod
    def for_targets(cls, targets: Tensor, replicas: tuple[int, ...] = ()) -> Self:
        """Return a likelihood whose parameters are good starting values for these targets, `[..., O]`."""
        return cls()

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        """Return whether targets are outputs plus Gaussian noise with a covariance that `set_noise` can set.

        Raises:
            ValueError: if there is such noise, but it is fixed, or the network's `replicas` share it.
        """
        return False

    def set_noise(self, covariance: Tensor) -> None:
        """Set the covariance of the noise to one that a training rule has inferred, `[R, O, O]`.

        Raises:
            TypeError: if the likelihood has no such noise.
        """
        raise TypeError(f"{type(self).__name__} has no Gaussian noise whose covariance could be set")


class Categorical(Likelihood):
    """Class labels, y ~ Categorical(softmax(f)).

    >>> import torch
    >>> Categorical().log_prob(torch.zeros(3, 2, 4), torch.tensor([0, 1]))[0]
    tensor([-1.3863, -1.3863])
    """

    output_axes, target_axes = 1, 0

    def distribution(self, outputs: Tensor) -> distributions.Categorical:
        return distributions.Categorical(logits=outputs, validate_args=False)

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Estimate the expectation from one sample, because a label depends on all outputs."""
        return self.log_prob(functions(x), targets)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return log softmax(f)_y for every point, `[S, R, N]`, nats."""
        self._check_shape(targets, outputs.shape[-2])
        check_own_targets(targets.shape[:-1], outputs.shape[1:-2], "class labels")
        labels = as_labels(targets, outputs.shape[-1]) if readable(targets) else as_integers(targets)
        index = labels.expand(outputs.shape[:-1])[..., None]
        return log_softmax(outputs, -1).gather(-1, index)[..., 0]

    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Raise unless labels are integers `[N]` below the number of outputs, which must be two or more."""
        as_labels(targets, outputs, f" (the network has {outputs} outputs)")
        self._check_classes(outputs)
        self._check_shape(targets, num_points)

    @staticmethod
    def _check_classes(outputs: int) -> None:
        if outputs < 2:
            raise ValueError(
                "classes need a network with an output for each, at least two: this network has one output, "
                "whose softmax is always 1"
            )

    def _check_shape(self, targets: Tensor, num_points: int) -> None:
        if targets.shape[-1:] != (num_points,):
            raise ValueError(f"class labels must have shape [{num_points}], got {list(targets.shape)}")

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> CategoricalPrediction:
        """Return class probabilities; `normalisation` has no effect, because labels have no units."""
        self._check_classes(outputs.shape[-1])
        return CategoricalPrediction(log_softmax(outputs, -1))
