"""A network: inducing points at the input, and layers that draw functions one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from gilib.arguments import Checked
from gilib.arithmetic import exact_products
from gilib.config import ConfigDict, plain
from gilib.draws import AnyDrawn, Draw, Estimate, JointDraw
from gilib.layers import Layer, Sequential
from gilib.posteriors import BuildContext
from gilib.randomness import GeneratorLike, Noise, check_generator
from gilib.sites import Shape
from gilib.validation import as_replicas, as_tensor, check_precision, check_tensor


class Network(nn.Module, Checked):
    """A Bayesian neural network, drawn layer by layer (Ober & Aitchison, 2021, Algorithm 1).

    Args:
        inducing_points: initial inducing points U_0, `[M, ...]`, a tensor or array; None if no layer needs
            them.
        layers: gilib layers and plain `torch.nn` modules, in order.
        pseudo_outputs: initial pseudo-outputs of the last layer with weights, `[M, O]`, a tensor or array, or
            integer labels `[M]`, which become ±2; None: standard normals.
        input_shape: shape of one input point, unless inducing points or the first layer determine it.
        replicas: shape of the replica axes R: that many independent networks in one, for example `(20,)`.
            Inducing points and pseudo-outputs may have these axes, `[R, M, ...]`.
        generator: source of the initial values.
        dtype: dtype of the parameters; None: that of the inducing points, or torch's default.

    Attributes:
        inducing_points: `[R, M, ...]`, or None.
        trained_range: least and greatest value of every input in the last training, `[2, ...]`, or None.

    >>> generator = torch.Generator().manual_seed(0)
    >>> from gilib.layers import Linear
    >>> net = Network(torch.randn(8, 1), [Linear(1, 20), nn.ReLU(), Linear(20, 1)], generator=generator)
    >>> draw = net.draw(num_samples=3, generator=generator)
    >>> draw(torch.zeros(5, 1)).shape, draw.log_pq.shape
    (torch.Size([3, 5, 1]), torch.Size([3]))
    """

    inducing_points: nn.Parameter | None
    members: Shape = ()  # a draw reads none of the replica axes as samples; see `gilib.Ensemble`

    def __init__(
        self,
        inducing_points: Tensor | None,
        layers: Sequence[Layer | nn.Module],
        *,
        pseudo_outputs: Tensor | None = None,
        input_shape: Shape | None = None,
        replicas: Shape = (),
        generator: GeneratorLike | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        self.trained_range: Tensor | None = None
        self.replicas = as_replicas(replicas)
        check_generator(generator)
        self.layers = Sequential(layers)
        inducing_points, pseudo_outputs = (
            value if value is None else as_tensor(value, name)
            for name, value in (("inducing_points", inducing_points), ("pseudo_outputs", pseudo_outputs))
        )
        if inducing_points is not None:
            check_tensor(inducing_points, "inducing_points")
            if not inducing_points.is_floating_point():
                raise ValueError(f"inducing_points must be floating-point, got {inducing_points.dtype}")
            dtype = dtype or inducing_points.dtype
        if pseudo_outputs is not None and pseudo_outputs.is_floating_point():
            check_tensor(pseudo_outputs, "pseudo_outputs")
        points = None if inducing_points is None else self._point_axes(inducing_points, input_shape)
        context = BuildContext(
            num_inducing=None if inducing_points is None else inducing_points.shape[-1 - (points or 0)],
            replicas=self.replicas,
            pseudo_outputs=pseudo_outputs,
            last=True,
            generator=generator,
            dtype=dtype or torch.get_default_dtype(),
            device=None if inducing_points is None else inducing_points.device,
        )
        check_precision(context.dtype or torch.get_default_dtype(), "a network")
        self.input_shape = self._point_shape(inducing_points, points, input_shape)
        new = [part for part in self.layers.modules() if isinstance(part, Layer) and not part.is_built]
        try:
            self.output_shape = self._joined(inducing_points, context)
        except Exception:  # layers of a list that does not fit are free for another
            for part in new:
                part.is_built = False
            raise

    def _joined(self, inducing_points: Tensor | None, context: BuildContext) -> Shape:
        output_shape = self.layers.join(self.input_shape, context)
        if context.pseudo_outputs is not None and not self.layers.starts_at_targets:
            raise ValueError(
                "pseudo_outputs are given, but nothing starts at them: the last layer with weights must have "
                "GlobalInducing, and stand outside residual blocks and sums"
            )
        self._set_inducing_points(inducing_points, context)
        return output_shape

    def _point_axes(self, inducing_points: Tensor, given: Shape | None) -> int:
        known = self.layers.input_axes() if given is None else len(given)
        replicas = "".join(f"{size}, " for size in self.replicas)
        if known is not None:
            lead = inducing_points.dim() - 1 - known
            if lead not in (0, len(self.replicas)) or (
                lead and tuple(inducing_points.shape[:lead]) != self.replicas
            ):
                own = f" or [{replicas}M, ...]" if replicas else ""
                raise ValueError(
                    f"inducing_points must have shape [M, ...]{own} with {known} axes for a point, got "
                    f"{list(inducing_points.shape)}"
                )
            return known
        lead = len(self.replicas)
        if lead and inducing_points.dim() > lead + 1 and tuple(inducing_points.shape[:lead]) == self.replicas:
            raise ValueError(
                f"inducing_points {list(inducing_points.shape)} may be [M, ...] or "
                f"[{replicas}M, ...], and the first layer does not tell: give input_shape"
            )
        return inducing_points.dim() - 1

    def _point_shape(self, inducing_points: Tensor | None, points: int | None, given: Shape | None) -> Shape:
        if inducing_points is not None and points is not None:
            return tuple(inducing_points.shape[-points:])
        shape = given or self.layers.input_shape()
        if shape is None:
            raise ValueError(
                "give input_shape: neither inducing points nor the first layer tell the shape of an input"
            )
        return tuple(shape)

    def _set_inducing_points(self, given: Tensor | None, context: BuildContext) -> None:
        self.inducing_points = None
        self._inducing_shape = None if given is None else list(given.shape)  # local layers take M from it
        if not self.layers.needs_inducing:
            return
        if given is None:
            raise ValueError("a layer with GlobalInducing needs inducing_points [M, D], got None")
        shape = (*self.replicas, *given.shape[-1 - len(self.input_shape) :])
        value = given.detach().to(dtype=context.dtype)
        self.inducing_points = nn.Parameter(value.expand(shape).clone())

    @property
    def noise_size(self) -> int:
        """Number of standard normals that one draw needs."""
        return self.layers.noise_size

    def draw(
        self, num_samples: int = 1, *, generator: GeneratorLike | None = None, noise: Tensor | None = None
    ) -> Draw:
        """Draw `num_samples` functions from the posterior.

        Args:
            num_samples: S.
            generator: source of the noise; None: torch's default generator.
            noise: standard normals `[S, R, noise_size]` from `base_noise`, which replace the generator.

        Returns:
            A `Draw`: call it on x `[N, D]` (or `[R, N, D]`) for `[S, R, N, O]`; `log_pq` is `[S, R]`, nats.

        Raises:
            FactorisationError: if a posterior precision cannot be factorised; the message names the layer.
        """
        drawn = self.layers.draw(self.inducing_points, num_samples, generator=generator, noise=noise)
        return replace(drawn, input_axes=len(self.input_shape))

    def sample(self, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Draw, estimate or draw jointly, as a pure function of noise from `layers.noise_for(mode, S, N)`."""
        inducing = None if self.inducing_points is None else self.inducing_points.clone()
        with exact_products():
            drawn = self.layers.located("", self.layers.sample, inducing, noise, mode)
        return replace(drawn, input_axes=len(self.input_shape))

    def reference_tensor(self) -> Tensor | None:
        """Return a tensor with the network's dtype and device; None if it has none."""
        return self.layers.reference_tensor() if self.inducing_points is None else self.inducing_points

    def base_noise(self, num_samples: int, generator: GeneratorLike | None = None) -> Tensor:
        """Return standard normals `[S, R, noise_size]` for `draw(noise=...)`."""
        return self.layers.base_noise(num_samples, generator)

    def estimate(
        self,
        num_samples: int = 1,
        num_points: int = 1,
        *,
        generator: GeneratorLike | None = None,
        noise: Noise | None = None,
    ) -> Estimate:
        """Sample functions for training, evaluated at N = `num_points` points, each sampled independently.

        Other arguments are as for `draw`, but noise is from `estimate_noise`.
        """
        drawn = self.layers.estimate(
            self.inducing_points, num_samples, num_points, generator=generator, noise=noise
        )
        return replace(drawn, input_axes=len(self.input_shape))

    def joint_draw(
        self,
        num_samples: int = 1,
        num_points: int = 1,
        *,
        generator: GeneratorLike | None = None,
        noise: Noise | None = None,
    ) -> JointDraw:
        """Draw functions exactly, for one evaluation at N = `num_points` points, as `iwbo` needs of deep GPs.

        Where no layer is a Gaussian process it is `draw`. Other arguments are as for `draw`, but noise is
        from `layers.noise_for(JointDraw, S, N)`.
        """
        drawn = self.layers.joint_draw(
            self.inducing_points, num_samples, num_points, generator=generator, noise=noise
        )
        return replace(drawn, input_axes=len(self.input_shape))

    def estimate_noise(
        self, num_samples: int, num_points: int, generator: GeneratorLike | None = None
    ) -> Noise:
        """Return standard normals `[S, R, P]` and `[S, R, N, Q]` for `estimate(noise=...)`."""
        return self.layers.estimate_noise(num_samples, num_points, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Refuse: a posterior has no single output."""
        raise TypeError("a Network is a distribution over functions: draw first: net.draw(10)(x)")

    def config(self) -> ConfigDict:
        """Return the architecture as plain data."""
        shapes = {"input_shape": self.input_shape, "replicas": self.replicas}
        return plain({"layers": list(self.layers), "inducing_points": self._inducing_shape, **shapes})
