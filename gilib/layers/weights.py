"""What layers with a weight matrix share: prior and posterior, draws, and local reparameterisation."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from gilib.draws import Draw, Function, LocalReparameterisation
from gilib.layers.base import Layer
from gilib.posteriors import (
    FactorisedWeights,
    GlobalInducing,
    InducingWeights,
    LocalInducing,
    Posterior,
    PosteriorModule,
)
from gilib.priors import NealPrior, Prior, PriorModule
from gilib.randomness import Source, standard_normal
from gilib.validation import instance


class WeightLayer(Layer):
    """A layer whose function is linear in its input and known by weights W `[I, O]`.

    To write one, define `build`, which creates `prior` and `posterior` and calls `built`, `function` and
    `config`.

    Attributes:
        fan_in: I.
        outputs: O.
        posterior: the built module; `prior` likewise.
        point_axes: axes of one output point: 1 (features), 3 (images).
    """

    has_weights = True
    point_axes: int = 1
    posterior: PosteriorModule
    prior: PriorModule

    def __init__(self, fan_in: int, outputs: int, posterior: Posterior | None, prior: Prior | None):
        """Describe the layer; its parameters are created by `build`."""
        super().__init__()
        self.fan_in, self.outputs = fan_in, outputs
        self.posterior_spec = instance(
            GlobalInducing() if posterior is None else posterior, Posterior, "posterior"
        )
        self.prior_spec = instance(NealPrior() if prior is None else prior, Prior, "prior")

    @abstractmethod
    def function(self, weights: Tensor) -> Function:
        """The function with `weights` `[S, R, I, O]`."""

    def features(self, inducing: Tensor) -> Tensor:
        """What the posterior takes of the inducing points that enter the layer."""
        return inducing

    def built(self) -> None:
        """Note what the modules, once they are there, need."""
        self.needs_inducing = self.posterior.needs_inducing
        self.noise_size = self.prior.noise_size + self.fan_in * self.outputs

    def draw_from_noise(self, inducing: Tensor | None, noise: Tensor) -> Draw:
        """Draw the prior's hyper-parameters, then the weights."""
        if not self.noise_size:
            raise RuntimeError(
                f"{self.describe()} is not built: put it into a gilib.Network, or call build(shape, context)"
            )
        precision, log_pq_prior = self.prior.draw(noise[..., : self.prior.noise_size])
        noise = noise[..., self.prior.noise_size :].unflatten(-1, (self.fan_in, self.outputs))
        features = self.features(inducing) if self.needs_inducing and inducing is not None else None
        weights, log_pq = self.posterior.draw(features, precision, noise)
        return Draw(self.function(weights), log_pq + log_pq_prior)

    def local_reparameterisation(
        self, num_samples: int, generator: Source | None = None
    ) -> LocalReparameterisation:
        """Sample F | X, Gaussian with means X μ and variances X² σ² (Kingma, Salimans & Welling, 2015)."""
        weights = self.posterior
        if not isinstance(weights, FactorisedWeights):
            return super().local_reparameterisation(num_samples, generator)
        noise = self.base_noise(num_samples, generator, self.prior.noise_size)
        precision, log_pq_prior = self.prior.draw(noise)
        log_pq = (log_pq_prior - weights.kl(precision)).expand(num_samples, *self.replicas)
        return LocalReparameterisation(self._output_sampler(weights, num_samples, generator), log_pq)

    def _output_sampler(self, weights: FactorisedWeights, samples: int, generator: Source | None) -> Function:
        mean, variance = self.function(weights.mean), self.function(weights.propagated_variance)

        def sample(x: Tensor) -> Tensor:
            centre = mean(x)  # [S or none, R, N, O, ...]
            spread = variance(x.square()).clamp_min(torch.finfo(x.dtype).tiny).sqrt()  # √ has no slope at 0
            rank = 2 + len(self.replicas) + self.point_axes
            shape = centre.shape if centre.dim() >= rank else (samples, *centre.shape)
            return centre + spread * standard_normal(shape, generator, centre.dtype, centre.device)

        return sample

    def resolved_posterior(self) -> Posterior:
        """The posterior's specification with what `build` decided."""
        if isinstance(self.posterior_spec, LocalInducing) and isinstance(self.posterior, InducingWeights):
            return replace(self.posterior_spec, num_inducing=self.posterior.pseudo_outputs.shape[-2])
        return self.posterior_spec
