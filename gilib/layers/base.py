"""The base class of layers: a layer is a distribution over functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arithmetic import exact_products
from gilib.config import Part
from gilib.draws import AnyDrawn, Draw, Drawn, Estimate, JointDraw
from gilib.linalg import FactorisationError
from gilib.posteriors import BuildContext
from gilib.randomness import GeneratorLike, Noise, NoiseSize, standard_normal
from gilib.sites import Shape
from gilib.validation import check_count, check_precision, check_same_kind, check_unused


class Layer(nn.Module, Part, ABC):
    """A layer: a distribution over functions of its input.

    The constructor stores settings; `build` creates the parameters, because only the network knows the
    shapes, the number of inducing points, and which layer is the last.

    A subclass defines `build`, `sample` and `config`, and sets `noise_size` and `needs_inducing`. A sampled
    function holds clones of parameters, so that training does not change it. If a layer can integrate over
    something, it does so when `mode` is `Estimate`, and overrides `noise_sizes`.

    Attributes:
        noise_size: number of standard normals that one draw needs; set by `build`.
        needs_inducing: whether draws depend on the inducing points that enter the layer.
        has_weights: whether the layer draws weights; the last such layer gets targets as pseudo-outputs.
        carries: whether an estimate is one function at all points, so that inducing points can pass through
            it. If not, the layer draws even in an estimate wherever a layer above needs inducing points.
        starts_at_targets: whether the pseudo-outputs start at values that the network was given.
        prefers_estimate: whether training uses estimates by default.
        is_built: whether the layer is part of a network.
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
    _reference: tuple[nn.Module, str] | None = None  # owner and name of a parameter or buffer, once built

    @abstractmethod
    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create the parameters; given the shape of one input point, return the shape of one output point.

        Every parameter must have the axes `context.replicas` in front, as tensors of `context.full` and
        `context.normal` do; one whose first axes equal R is taken for R separate ones.

        Raises:
            ValueError: if the layer cannot take points of this shape.
        """

    @abstractmethod
    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Sample functions, as a deterministic function of the noise, and return `mode(function, log_pq)`.

        A layer that always draws may ignore the mode.

        Args:
            inducing: inducing points that enter the layer, `[S, R, M, ...]`, without S at the first layer; or
                None.
            noise: standard normals, in the numbers that `noise_sizes` gives.
            mode: `Draw`, `Estimate` or `JointDraw`; also the class of the result.
        """

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        """Return how many standard normals `sample` needs, in total and for each point."""
        return NoiseSize(self.noise_size)

    def join(self, shape: Shape, context: BuildContext) -> Shape:
        """Build the layer as part of a network; raise ValueError if it is part of one already."""
        check_unused(self.is_built, self.describe())
        shape = self.build(shape, context)
        self.is_built, self._reference = True, _first_number(self)
        return shape

    def not_built(self) -> RuntimeError:
        """Return the error to raise if a layer is used before it is built."""
        return RuntimeError(
            f"{self.describe()} is not built: put it into a gilib.Network, or call build(shape, context)"
        )

    def input_shape(self) -> Shape | None:
        """Return the shape of one input point if the layer knows it, else None."""
        return None

    def input_axes(self) -> int | None:
        """Return the number of axes of an input point if the layer knows it, else None."""
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
            inducing: inducing points that enter the layer, `[S, R, M, ...]` or `[R, M, ...]`; None if the
                layer needs none.
            num_samples: S.
            generator: source of the noise; None: torch's default generator.
            noise: standard normals `[S, R, noise_size]`, which replace `generator` and `num_samples`.

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
        """Sample functions for training, evaluated at N = `num_points` points, each sampled independently.

        Other arguments are as for `draw`, but noise is from `estimate_noise`.
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
        """Draw functions that are exact, but can be evaluated at N = `num_points` points only.

        Other arguments are as for `draw`, but noise is from `noise_for(JointDraw, S, N)`.
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
            raise ValueError(f"{self.describe()} needs inducing points: call draw(u), u [..., M, features]")
        if inducing is not None:
            inducing = inducing.clone()  # a drawn function must not change when training moves the points
        if noise is None:
            noise = self.noise_for(mode, num_samples, num_points, generator)
        else:
            self._check_noise(noise, mode)
        with exact_products():
            return self.located("", self.sample, inducing, noise, mode)

    def located(self, place: str, draw: Callable[..., Any], *arguments: Any) -> Any:
        """Call `draw(*arguments)`; if a factorisation fails, add `place` and this layer to the error."""
        try:
            return draw(*arguments)
        except FactorisationError as error:
            raise error.within(f"{place}{self.describe()}") from None

    def base_noise(self, num_samples: int, generator: GeneratorLike | None = None) -> Tensor:
        """Return standard normals `[S, R, noise_size]` for `num_samples` draws."""
        return self.noise_for(Draw, num_samples, 1, generator).draw

    def estimate_noise(
        self, num_samples: int, num_points: int, generator: GeneratorLike | None = None
    ) -> Noise:
        """Return `noise_for(Estimate, ...)`."""
        return self.noise_for(Estimate, num_samples, num_points, generator)

    def noise_for(
        self, mode: type[Drawn], num_samples: int, num_points: int, generator: GeneratorLike | None = None
    ) -> Noise:
        """Return standard normals for any mode: S samples at N points, `[S, R, P]` and `[S, R, N, Q]`."""
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
        """Return a parameter or buffer with the layer's dtype and device; None if it has none."""
        found = self._reference or _first_number(self)
        return None if found is None else getattr(*found)

    def describe(self) -> str:
        """Return a short description for error messages."""
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


class OfVectors:
    """What a part of a network from D to O numbers says of itself."""

    in_features: int  # D
    out_features: int  # O

    def input_shape(self) -> Shape:
        """Return (D,), the shape of one input point."""
        return (self.in_features,)

    def describe(self) -> str:
        """Return `Name(D → O)`."""
        return f"{type(self).__name__}({self.in_features} → {self.out_features})"


def _first_number(module: nn.Module) -> tuple[nn.Module, str] | None:
    """Return owner and name of a module's first floating-point parameter or buffer; None if it has none."""
    for owner in module.modules():
        for name, value in (*owner._parameters.items(), *owner._buffers.items()):
            if value is not None and value.is_floating_point():
                return owner, name
    return None
