"""Likelihoods: how outputs of a network explain targets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import log_softmax

from gilib.config import ConfigDict, Part
from gilib.likelihoods.mixtures import CategoricalPrediction, Prediction
from gilib.linalg import readable
from gilib.validation import as_integers, as_labels, check_own_targets

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn

LOG_2PI = math.log(2.0 * math.pi)


class Likelihood(nn.Module, Part, ABC):
    """P(y | f), independent over points.

    Attributes:
        replicas: shape of the replica axes, if every replica has its own parameters; else `()`.
        integrates: whether it predicts from Gaussian outputs in closed form; else they are sampled.
        output_axes: how many axes an output at one point has that it is trained on; None: any number.
    """

    replicas: tuple[int, ...] = ()
    integrates: bool = False
    output_axes: int | None = None

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log P(y_n | f_n) of every point, nats.

        Args:
            outputs: f, `[S, R, N, O]`.
            targets: y, `[N, O]` or `[R, N, O]` (class labels: `[N]` or `[R, N]`, integers).

        Returns:
            `[S, R, N]`.
        """

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """E log P(y_n | f_n), `[S, R, N]` nats: over what the functions sample last, if that is known.

        One of your own finds the moments of outputs in `functions.moments(x)`, which are independent, or in
        `functions.marginals(x)`, if it is a sum over single outputs.

        Args:
            functions: S of them.
            x: inputs, `[N, D]` or `[R, N, D]`.
            targets: as for `log_prob`.
        """
        return self.log_prob(functions(x), targets)

    @abstractmethod
    def check_targets(self, targets: Tensor, num_points: int, outputs: int) -> None:
        """Raise unless `targets` fit `num_points` points and a network with `outputs` outputs."""

    def check_output_shape(self, shape: tuple[int, ...]) -> None:
        """Raise unless a network that is to be trained has outputs of this many axes."""
        if self.output_axes is not None and len(shape) != self.output_axes:
            raise ValueError(
                f"{type(self).__name__} takes outputs [S, R, N, O], and at one point the network gives "
                f"{list(shape)}: end it with torch.nn.Flatten()"
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
            TypeError: if the likelihood does not say.
        """
        raise TypeError(
            f"{type(self).__name__} does not say what it predicts: define predictive(outputs, normalisation) "
            "to return a gilib.prediction.Prediction"
        )

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

    @abstractmethod
    def config(self) -> ConfigDict:
        """The arguments with which the constructor makes it again; what is learned belongs to the state."""


class Categorical(Likelihood):
    """y ~ Categorical(softmax(f)).

    >>> import torch
    >>> Categorical().log_prob(torch.zeros(3, 2, 4), torch.tensor([0, 1]))[0]
    tensor([-1.3863, -1.3863])
    """

    output_axes = 1

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
