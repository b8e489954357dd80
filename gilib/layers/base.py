"""The one idea: a layer draws a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arithmetic import exact_products
from gilib.config import ConfigDict, Part
from gilib.draws import AnyDrawn, Draw, Drawn, Estimate, JointDraw
from gilib.linalg import FactorisationError
from gilib.posteriors import BuildContext
from gilib.randomness import GeneratorLike, Noise, NoiseSize, standard_normal
from gilib.sites import Shape
from gilib.validation import check_count, check_precision, check_same_kind, check_unused


class Layer(nn.Module, Part, ABC):
    """A distribution over functions of one layer.

    A layer is described when it is constructed and gets its parameters when it is built, once, by the network
    that it belongs to: only the network knows the number of inducing points, which layer is the last, and the
    shapes.

    To write one, define `build`, `sample` and `config`, and keep `noise_size` and `needs_inducing` true. What
    it samples is a value: a function that holds a parameter holds its `clone()`. A layer that can integrate
    something out does so where `mode` is `Estimate`, and says in `noise_sizes` what that takes.

    Attributes:
        noise_size: how many standard normals one draw takes, known once the layer is built.
        needs_inducing: whether this layer's draw depends on the inducing points that enter it.
        has_weights: whether it draws weights; the last such layer gets the targets as pseudo-outputs.
        carries: whether its estimate, like its draw, is one function for the inducing points. Below a layer
            that needs inducing points a layer whose estimate does not carry them draws instead.
        starts_at_targets: whether its pseudo-outputs start at those that the network was given.
        prefers_estimate: whether training uses its estimate unless told otherwise.
        is_built: whether it belongs to a network.
        replicas: shape of the replica axes R.
    """

    noise_size: int = 0
    needs_inducing: bool = False
    has_weights: bool = False
    carries: bool = True
    starts_at_targets: bool = False
    prefers_estimate: bool = False
    is_built: bool = False
    replicas: Shape = ()
    _reference: tuple[nn.Module, str] | None = None  # where its first number is, once it is built

    @abstractmethod
    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create the parameters; given the shape of one input point, return that of one output point.

        In a network with replicas, `context.replicas`, every parameter has their axes in front, as
        `context.full` and `context.normal` make them: one whose first axes are R is taken for R parameters.

        Raises:
            ValueError: if a point of this shape cannot enter the layer.
        """

    @abstractmethod
    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Sample functions as a deterministic map of standard normals.

        The modes are the classes of what is returned: `mode(function, log_pq)`. `Draw`: functions, at any
        points. `Estimate`: what can be integrated out is, what must be drawn is drawn, and the rest is
        sampled at every point. `JointDraw`: functions exactly, but at N points only. A layer that knows no
        better than its draw does not look at the mode.

        Args:
            inducing: inducing points that enter the layer, `[S, R, M, ...]` (`[R, M, ...]` at the first
                layer), or None.
            noise: of the sizes that `noise_sizes` tells.
            mode: `Draw`, `Estimate` or `JointDraw`.
        """

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        """How many standard normals a sample takes, once and at every point: those of a draw."""
        return NoiseSize(self.noise_size)

    @abstractmethod
    def config(self) -> ConfigDict:
        """The arguments with which the constructor makes this layer again, parts of it included."""

    def join(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the layer as part of a network, in one place, once.

        Raises:
            ValueError: if it has its place already.
        """
        check_unused(self.is_built, self.describe())
        shape = self.build(shape, context)
        self.is_built, self._reference = True, _first_number(self)
        return shape

    def not_built(self) -> RuntimeError:
        """What to raise where a layer is drawn that no network has built."""
        return RuntimeError(
            f"{self.describe()} is not built: put it into a gilib.Network, or call build(shape, context)"
        )

    def input_shape(self) -> Shape | None:
        """The shape of one input point if the layer knows it, else None."""
        return None

    def input_axes(self) -> int | None:
        """How many axes an input point has if the layer knows it, else None."""
        shape = self.input_shape()
        return None if shape is None else len(shape)

    def draw(
        self,
        inducing: Tensor | None = None,
        num_samples: int = 1,
        *,
        generator: GeneratorLike | None = None,
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
        given = None if noise is None else Noise(noise, noise.new_empty(*noise.shape[:-1], 1, 0))
        return self._sampled(Draw, inducing, num_samples, 1, generator, given)

    def estimate(
        self,
        inducing: Tensor | None = None,
        num_samples: int = 1,
        num_points: int = 1,
        *,
        generator: GeneratorLike | None = None,
        noise: Noise | None = None,
    ) -> Estimate:
        """For training: a function that samples `num_points` points independently.

        Args:
            inducing: as for `draw`.
            num_samples: S.
            num_points: N, of the points at which it will be evaluated.
            generator: as for `draw`.
            noise: in place of a generator, as from `estimate_noise`.

        Returns:
            An `Estimate`, which unpacks into the function and its log_pq `[S, R]`.
        """
        return self._sampled(Estimate, inducing, num_samples, num_points, generator, noise)

    def joint_draw(
        self,
        inducing: Tensor | None = None,
        num_samples: int = 1,
        num_points: int = 1,
        *,
        generator: GeneratorLike | None = None,
        noise: Noise | None = None,
    ) -> JointDraw:
        """Functions that are known at `num_points` points only, and exact there: what `iwbo` takes.

        Args:
            inducing: as for `draw`.
            num_samples: S.
            num_points: N, of the points at which it will be evaluated.
            generator: as for `draw`.
            noise: in place of a generator, as from `noise_for(JointDraw, S, N)`.
        """
        return self._sampled(JointDraw, inducing, num_samples, num_points, generator, noise)

    def _sampled(
        self,
        mode: type[AnyDrawn],
        inducing: Tensor | None,
        num_samples: int,
        num_points: int,
        generator: GeneratorLike | None,
        noise: Noise | None,
    ) -> AnyDrawn:
        if self.needs_inducing and inducing is None:
            raise ValueError(
                f"{self.describe()} draws from inducing points: call draw(u), u [..., M, features]"
            )
        if inducing is not None:
            inducing = inducing.clone()  # training moves them in place, and what is drawn is a value
        if noise is None:
            noise = self.noise_for(mode, num_samples, num_points, generator)
        else:
            self._check_noise(noise, mode)
        with exact_products():
            return self.located("", self.sample, inducing, noise, mode)

    def located(self, place: str, draw: Callable[..., Any], *arguments: Any) -> Any:
        """What a draw gives; if a matrix is to blame, the error says of which layer."""
        try:
            return draw(*arguments)
        except FactorisationError as error:
            raise error.within(f"{place}{self.describe()}") from None

    def base_noise(self, num_samples: int, generator: GeneratorLike | None = None) -> Tensor:
        """Standard normals `[S, R, noise_size]` for `num_samples` draws."""
        return self.noise_for(Draw, num_samples, 1, generator).draw

    def estimate_noise(
        self, num_samples: int, num_points: int, generator: GeneratorLike | None = None
    ) -> Noise:
        """Standard normals for an estimate of S samples at N points, `[S, R, P]` and `[S, R, N, Q]`."""
        return self.noise_for(Estimate, num_samples, num_points, generator)

    def noise_for(
        self, mode: type[Drawn], num_samples: int, num_points: int, generator: GeneratorLike | None = None
    ) -> Noise:
        """Standard normals for S samples in any mode, at N points: `[S, R, P]` and `[S, R, N, Q]`."""
        check_count(num_samples, "num_samples")
        check_count(num_points, "num_points")
        like, size = self.reference_tensor(), self.noise_sizes(mode)
        dtype, device = (torch.get_default_dtype(), None) if like is None else (like.dtype, like.device)
        check_precision(dtype, "a layer that is drawn")
        lead = (num_samples, *self.replicas)
        return Noise(
            standard_normal((*lead, size.draw), generator, dtype, device),
            standard_normal((*lead, num_points, size.points), generator, dtype, device),
        )

    def reference_tensor(self) -> Tensor | None:
        """A tensor that tells the layer's dtype and device, if it has any."""
        found = self._reference or _first_number(self)
        return None if found is None else getattr(*found)

    def describe(self) -> str:
        """The layer in a word or two, for error messages."""
        return type(self).__name__

    def _check_noise(self, noise: Noise, mode: type[Drawn]) -> None:
        size, maker = self.noise_sizes(mode), f"noise_for({mode.__name__}, S, N)"
        wanted = [(*self.replicas, size.draw), (*self.replicas, noise.points.shape[-2], size.points)]
        for given, shape in zip(noise, wanted, strict=True):
            if given.dim() != len(shape) + 1 or tuple(given.shape[1:]) != shape:
                raise ValueError(
                    f"noise must have shape [{', '.join(map(str, ('S', *shape)))}], got {list(given.shape)}: "
                    f"make it with {'base_noise(S)' if mode is Draw else maker}"
                )
            check_precision(given.dtype, "noise")
            like = self.reference_tensor()
            if like is not None:
                check_same_kind(given, "noise", like)


def _first_number(module: nn.Module) -> tuple[nn.Module, str] | None:
    """Owner and name of the first floating-point parameter or buffer of a module, or of those inside it."""
    for owner in module.modules():
        for name, value in (*owner._parameters.items(), *owner._buffers.items()):
            if value is not None and value.is_floating_point():
                return owner, name
    return None
