"""The dense layer: F = X W, with one of several posteriors over W."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from gilib.config import Config, spec_config
from gilib.draws import Draw, Function, LocalReparameterisation
from gilib.layers.base import Layer, Shape
from gilib.posteriors import (
    BuildContext,
    FactorisedWeights,
    GlobalInducing,
    InducingWeights,
    LocalInducing,
    Posterior,
    PosteriorModule,
)
from gilib.priors import NealPrior, Prior, PriorModule
from gilib.randomness import Source, standard_normal
from gilib.validation import count, instance


class Linear(Layer):
    """A dense layer F = X W, W `[I, O]`; a bias is one more input that is always 1.

    Args:
        in_features: inputs, without the bias.
        out_features: O.
        posterior: `Factorised`, `LocalInducing`, `GlobalInducing` or `FromPrior`.
        prior: `NealPrior`, `StandardPrior`, `ScalePrior` or `SpatialIWPrior`.
        bias: whether a column of ones is appended to the inputs (I = in_features + 1).

    Attributes:
        posterior: the built module; `prior` likewise.

    >>> layer = Linear(2, 3, GlobalInducing())
    >>> layer.build((2,), BuildContext(num_inducing=10))
    (3,)
    >>> function, log_pq = layer.draw(torch.randn(10, 2), num_samples=4)
    >>> function(torch.randn(7, 2)).shape, log_pq.shape
    (torch.Size([4, 7, 3]), torch.Size([4]))
    """

    has_weights = True
    posterior: PosteriorModule
    prior: PriorModule

    def __init__(
        self,
        in_features: int,
        out_features: int,
        posterior: Posterior | None = None,
        prior: Prior | None = None,
        bias: bool = True,
    ):
        """Describe the layer; its parameters are created by `build`."""
        super().__init__()
        count(in_features, "in_features")
        count(out_features, "out_features")
        self.in_features, self.out_features, self.bias = in_features, out_features, bool(bias)
        self.posterior_spec = instance(
            GlobalInducing() if posterior is None else posterior, Posterior, "posterior"
        )
        self.prior_spec = instance(NealPrior() if prior is None else prior, Prior, "prior")
        self.fan_in = in_features + self.bias

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create prior and posterior for inputs of shape (in_features,)."""
        if shape != (self.in_features,):
            raise ValueError(
                f"{self.describe()} takes points of shape [{self.in_features}], got {list(shape)}"
            )
        self.replicas = context.replicas
        self.prior = self.prior_spec.build(self.fan_in, 1, context.full((), 0.0))
        self.posterior = self.posterior_spec.build(
            self.fan_in, self.out_features, self.bias, self.prior_spec.well_scaled, context
        )
        self.needs_inducing = self.posterior.needs_inducing
        self.noise_size = self.prior.noise_size + self.fan_in * self.out_features
        return (self.out_features,)

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw the prior's hyper-parameters, then the weights."""
        if not self.noise_size:
            raise RuntimeError(
                f"{self.describe()} is not built: put it into a gilib.Network, or call build(shape, context)"
            )
        precision, log_pq_prior = self.prior.draw(noise[..., : self.prior.noise_size])
        noise = noise[..., self.prior.noise_size :].unflatten(-1, (self.fan_in, self.out_features))
        features = self.features(inducing) if self.needs_inducing and inducing is not None else None
        weights, log_pq = self.posterior.draw(features, precision, noise)
        return Draw(LinearFunction(weights, self.bias), log_pq + log_pq_prior)

    def features(self, inputs: Tensor) -> Tensor:
        """Inputs with the bias column, `[..., M, I]`."""
        return pad(inputs, (0, 1), value=1.0) if self.bias else inputs

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """Sample F | X from N(X μ, X² σ²) at every point (Kingma, Salimans & Welling, 2015)."""
        weights = self.posterior
        if not isinstance(weights, FactorisedWeights):
            return super().local_reparameterisation(num_samples, generator)
        noise = self.base_noise(num_samples, generator, self.prior.noise_size)
        precision, log_pq_prior = self.prior.draw(noise)
        log_pq = (log_pq_prior - weights.kl(precision)).expand(num_samples, *self.replicas)
        return LocalReparameterisation(self._output_sampler(weights, num_samples, generator), log_pq)

    def _output_sampler(
        self, weights: FactorisedWeights, samples: int, generator: Source | None
    ) -> Function:
        mean, variance = (
            LinearFunction(weights.mean, self.bias),
            LinearFunction(weights.propagated_variance, self.bias),
        )

        def sample(x: Tensor) -> Tensor:
            centre = mean(x)  # [S or none, R, N, O]
            spread = (
                variance(x.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
            )  # tiny: √ has no slope at 0
            rank = 1 + len(self.replicas) + 2
            shape = centre.shape if centre.dim() >= rank else (samples, *centre.shape)
            noise = standard_normal(shape, generator, centre.dtype, centre.device)
            return centre + spread * noise

        return sample

    def input_shape(self) -> Shape:
        """(in_features,)."""
        return (self.in_features,)

    def describe(self) -> str:
        """Linear(in → out)."""
        return f"Linear({self.in_features} → {self.out_features})"

    def _resolved_posterior(self) -> Posterior:
        if isinstance(self.posterior_spec, LocalInducing) and isinstance(self.posterior, InducingWeights):
            return replace(self.posterior_spec, num_inducing=self.posterior.pseudo_outputs.shape[-2])
        return self.posterior_spec

    def config(self) -> Config:
        """Widths and specifications."""
        return {
            "type": "Linear",
            "in_features": self.in_features,
            "out_features": self.out_features,
            "posterior": spec_config(self._resolved_posterior()),
            "prior": spec_config(self.prior_spec),
            "bias": self.bias,
        }


class LinearFunction:
    """x ↦ x W, the bias in the last row of W if there is one.

    Attributes:
        weights: `[S, R, I, O]`.
    """

    def __init__(self, weights: Tensor, bias: bool):
        """Hold the weights."""
        self.weights, self.bias = weights, bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map `[..., N, in_features]` to `[S, R, ..., N, O]`."""
        if not self.bias:
            return x @ self.weights
        return x @ self.weights[..., :-1, :] + self.weights[..., -1:, :]
