"""A layer of Gaussian processes: O independent functions with one kernel and one set of inducing inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from gilib.arguments import Count, Fraction
from gilib.draws import AnyDrawn, Draw, Drawn, Estimate, JointDraw
from gilib.draws.functions import Function
from gilib.kernels import RBF, Kernel, KernelModule
from gilib.layers.base import Layer, OfVectors
from gilib.linalg import ScaledIdentity
from gilib.posteriors import BuildContext, GlobalInducing, InducingPosterior, Posterior, PosteriorModule
from gilib.processes import Inducing, Jointly, Marginals, Path
from gilib.randomness import Noise, NoiseSize
from gilib.sites import InducingOutputs, Shape
from gilib.validation import check_instance, check_tensor, check_width, from_numpy


class GP(OfVectors, Layer):
    """Gaussian processes f_o ~ GP(0, k), o = 1 ... O, with a posterior over their values u at M inputs.

    These inducing outputs are u = R w, where K = R Rᵀ is their kernel matrix. So w are weights with features
    R and the prior N(0, Id), and the posteriors of other layers apply (Ober & Aitchison, 2021, Sec. 2.4,
    App. F). An estimate samples each point independently given u.

    A draw samples the variance that remains given u from random features of the kernel. Its covariance is
    right on average over these features, and has an error of about σ²/√F given them. `joint_draw` is exact,
    at points that must be known beforehand.

    Kernel matrices and their factors are in float64, even in a float32 network. Float32 means are too
    inaccurate if u describes functions much rougher than the kernel's. On a CPU they are then computed in
    float64, too; on an accelerator use a float64 network.

    Args:
        in_features: D, the number of inputs.
        out_features: O, the number of outputs.
        kernel: k; None: `RBF()`, with one lengthscale for each input.
        posterior: posterior over the inducing outputs. With `GlobalInducing` (None means this) and
            `PropagatedGaussian`, the inducing inputs come from the layers below; with `LocalInducing`,
            `FreeGaussian` and `PointEstimate`, they are parameters of this layer.
        inducing_inputs: initial values of the layer's own inducing inputs, `[M, D]` or `[R, M, D]`, numpy or
            torch; they determine M, unless the posterior specifies it. None: standard normals.
        jitter: this number times the mean variance σ_f² is added to the diagonal of K. It is part of the
            model. In a single layer with noise variance σ², it lowers the bound by up to
            N O · jitter · σ_f² / (2σ²) nats. If that matters, use 1e-8 in a float64 network, but not with
            `PropagatedGaussian`, whose divergence contains K⁻¹.
        num_features: F, the number of random features of a draw.

    Attributes:
        num_inducing: M, once built.
        inducing_inputs: Z, `[R, M, D]`; None if the layers below supply them.
        weights: module of the posterior, once built.
        hyperparameters: module of the kernel, once built.

    >>> from gilib.posteriors import FreeGaussian
    >>> layer = GP(2, 3, RBF(lengthscale=0.5), FreeGaussian(num_inducing=20))
    >>> layer.build((2,), BuildContext())
    (3,)
    >>> function, log_pq = layer.estimate(num_samples=4, num_points=7)
    >>> function(torch.randn(7, 2)).shape, log_pq.shape
    (torch.Size([4, 7, 3]), torch.Size([4]))
    """

    has_weights = prefers_estimate = True
    weights: PosteriorModule | None
    hyperparameters: KernelModule | None
    inducing_inputs: nn.Parameter | None

    def __init__(
        self,
        in_features: Count,
        out_features: Count,
        kernel: Kernel | None = None,
        posterior: Posterior | None = None,
        *,
        inducing_inputs: Tensor | None = None,
        jitter: Fraction = 1e-5,
        num_features: Count = 1024,
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.jitter, self.num_features = float(jitter), num_features
        self.kernel = RBF() if kernel is None else kernel
        self.posterior = check_inducing_posterior(GlobalInducing() if posterior is None else posterior)
        self.weights = self.hyperparameters = self.inducing_inputs = None
        self._start = inducing_inputs
        if inducing_inputs is not None and self.posterior.is_global:
            raise ValueError(
                "the inducing inputs of a layer with GlobalInducing are what the layers below pass on: give "
                "the network inducing_points, and this layer none"
            )

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        check_width(shape, self.in_features, self.describe())
        start, self._start = self._start, None
        if start is not None:
            start = check_tensor(from_numpy(start, context.full((), 0.0)), "inducing_inputs")
        known = context if start is None else replace(context, num_inducing=start.shape[-2])
        self.num_inducing = points = self.posterior.points(known)
        self.hyperparameters = self.kernel.build(self.in_features, context)
        self.weights = self.posterior.build(InducingOutputs(points, self.out_features), context)
        self.needs_inducing = self.carries = self.posterior.is_global
        if not self.posterior.is_global:
            self.inducing_inputs = nn.Parameter(inducing_inputs(start, (points, self.in_features), context))
        self.replicas, self.starts_at_targets = context.replicas, self.weights.starts_at_targets
        self.noise_size = sum(self._draw_sizes())
        return (self.out_features,)

    def _built(self) -> tuple[KernelModule, PosteriorModule]:
        if self.weights is None or self.hyperparameters is None:
            raise self.not_built()
        return self.hyperparameters, self.weights

    def _draw_sizes(self) -> tuple[int, ...]:
        """Return how many normals a draw needs: for w, random features, their weights, and the jitter."""
        kernel, posterior = self._built()
        path = Path.sizes(kernel(), self.num_features, self.num_inducing, self.out_features)
        return posterior.noise_size, *path

    def _inducing(self, inducing: Tensor | None) -> Inducing:
        inputs = inducing if self.inducing_inputs is None else self.inducing_inputs.clone()
        assert inputs is not None
        if tuple(inputs.shape[-2:]) != (self.num_inducing, self.in_features):
            raise ValueError(
                f"{self.describe()} was built for inducing inputs [..., {self.num_inducing}, "
                f"{self.in_features}], got {list(inputs.shape)}"
            )
        return Inducing.of(self._built()[0](), inputs, self.jitter)

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        if mode is Draw:
            return NoiseSize(self.noise_size)
        _, posterior = self._built()
        own = posterior.distribution_size if mode is Estimate else posterior.noise_size
        return NoiseSize(own, self.out_features)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Sample a `Path`, `Marginals` or `Jointly`; marginals integrate over u if the posterior can."""
        _, posterior = self._built()
        process = self._inducing(inducing)
        root = process.root.to(noise.draw.dtype)
        own, path = noise.draw.tensor_split([posterior.noise_size], -1)
        one = torch.ones((), dtype=torch.float64, device=noise.draw.device)
        prior = ScaledIdentity(one, self.num_inducing)
        distribution = posterior.distribution(root, prior, own[..., : posterior.distribution_size])
        drawn, log_pq = distribution.mean, distribution.log_pq
        if mode is not Estimate and distribution.covariance is not None:  # functions need a value of w
            drawn, log_pq = posterior.draw(root, prior, own)
        function: Function
        if mode is Estimate:
            function = Marginals(process, distribution, noise.points)
        elif mode is JointDraw:
            function = Jointly(process, drawn, noise.points)
        else:
            function = Path.of(process, distribution, drawn, path, self.num_features)
        return mode(function, log_pq, root.to(drawn.dtype) @ drawn if self.carries else None)


def check_inducing_posterior(posterior: object) -> InducingPosterior:
    """Return the posterior, after checking that a Gaussian process can use it."""
    if not isinstance(posterior, InducingPosterior | type):
        raise TypeError(
            "the posterior of a Gaussian process is one over what it is at inducing points, GlobalInducing, "
            "LocalInducing, FreeGaussian, PropagatedGaussian or PointEstimate, got "
            f"{type(posterior).__name__}"
        )
    return cast(InducingPosterior, check_instance(posterior, InducingPosterior, "posterior"))


def inducing_inputs(start: Tensor | None, shape: Shape, context: BuildContext) -> Tensor:
    """Return initial inducing inputs `[R, M, D]`: a copy of `start`, or standard normals if it is None."""
    if start is None:
        return context.normal(*shape)
    if tuple(start.shape[-2:]) != shape or tuple(start.shape[:-2]) not in ((), context.replicas):
        raise ValueError(
            f"inducing_inputs must have shape {[*context.replicas, *shape]} (replicas, inducing inputs "
            f"of the posterior, inputs of the layer), or its last two axes, got {list(start.shape)}"
        )
    start = start.detach().to(dtype=context.dtype, device=context.device)
    return start.expand(*context.replicas, *shape).clone()
