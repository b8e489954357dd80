"""The one idea: a layer draws a function."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from gilib.config import Config, Part
from gilib.draws import Draw, LocalReparameterisation
from gilib.linalg import FactorisationError
from gilib.posteriors import BuildContext
from gilib.randomness import Source, standard_normal
from gilib.validation import check_precision, count, same_kind

Shape = tuple[int, ...]


class Layer(nn.Module, Part, ABC):
    """A distribution over functions of one layer.

    A layer is described when it is constructed and gets its parameters when it is built, once, by the network
    that it belongs to: only the network knows the number of inducing points, which layer is the last, and the
    shapes.

    To write one, define `build`, `draw_from_noise` and `config`, and keep `noise_size` and `needs_inducing`
    true.

    Attributes:
        noise_size: how many standard normals one draw takes, known once the layer is built.
        needs_inducing: whether this layer's draw depends on the inducing points that enter it.
        has_weights: whether it draws weights; the last such layer gets the targets as pseudo-outputs.
        replicas: shape of the replica axes R.
    """

    noise_size: int = 0
    needs_inducing: bool = False
    has_weights: bool = False
    replicas: Shape = ()

    @abstractmethod
    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create the parameters; given the shape of one input point, return that of one output point.

        Raises:
            ValueError: if a point of this shape cannot enter the layer.
        """

    @abstractmethod
    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw functions as a deterministic map of standard normals.

        Args:
            inducing: inducing points that enter the layer, `[S, R, M, ...]` (`[R, M, ...]` at the first
                layer), or None.
            noise: `[S, R, noise_size]`.
        """

    @abstractmethod
    def config(self) -> Config:
        """The arguments with which the constructor makes this layer again, parts of it included."""

    def input_shape(self) -> Shape | None:
        """The shape of one input point if the layer knows it, else None."""
        return None

    def draw(
        self,
        inducing: Tensor | None = None,
        num_samples: int = 1,
        *,
        generator: Source | None = None,
        noise: Tensor | None = None,
    ) -> Draw:
        """Draw `num_samples` functions.

        Args:
            inducing: inducing points that enter the layer, `[S, R, M, ...]` or `[R, M, ...]`; None if none
                are needed.
            num_samples: S.
            generator: source of the noise; None: torch's default one.
            noise: standard normals `[S, R, noise_size]` in place of a generator; then S is taken from it.

        Returns:
            A `Draw`, which unpacks into the function and its log_pq `[S, R]`.
        """
        if self.needs_inducing and inducing is None:
            raise ValueError(
                f"{self.describe()} draws from inducing points: call draw(u), u [..., M, features]"
            )
        noise = self.base_noise(num_samples, generator) if noise is None else self._checked(noise)
        drawn = self.named_draw(inducing, noise)
        return Draw(drawn.function, drawn.log_pq)

    def named_draw(self, inducing: Tensor | None, noise: Tensor, name: str = "") -> Draw:
        """`draw_from_noise`, with the layer's place in the error if a factorisation fails."""
        try:
            return self.draw_from_noise(inducing, noise)
        except FactorisationError as error:
            raise error.within(f"{name}{self.describe()}") from None

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """A training estimator that samples outputs, not weights; see `gilib.LocalReparameterisation`."""
        raise TypeError(
            f"{self.describe()} has no local reparameterisation: only factorised weights have one "
            "(use estimator='draw')"
        )

    def base_noise(
        self, num_samples: int, generator: Source | None = None, size: int | None = None
    ) -> Tensor:
        """Standard normals `[S, R, size]` for `num_samples` draws; `size` is noise_size unless given."""
        count(num_samples, "num_samples")
        shape = (num_samples, *self.replicas, self.noise_size if size is None else size)
        like = self.like()
        dtype, device = (torch.get_default_dtype(), None) if like is None else (like.dtype, like.device)
        check_precision(dtype, "a layer that is drawn")
        return standard_normal(shape, generator, dtype, device)

    def like(self) -> Tensor | None:
        """A tensor that tells the layer's dtype and device, if it has any."""
        return next(itertools.chain(self.parameters(), self.buffers()), None)

    def describe(self) -> str:
        """The layer in a word or two, for error messages."""
        return type(self).__name__

    def _checked(self, noise: Tensor) -> Tensor:
        wanted = (*self.replicas, self.noise_size)
        if noise.dim() != len(wanted) + 1 or tuple(noise.shape[1:]) != wanted:
            shape = ", ".join(map(str, ("S", *wanted)))
            raise ValueError(
                f"noise must have shape [{shape}], got {list(noise.shape)}: make it with base_noise(S)"
            )
        check_precision(noise.dtype, "noise")
        like = self.like()
        if like is not None:
            same_kind(noise, "noise", like)
        return noise
