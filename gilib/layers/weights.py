"""The base class of layers with a weight matrix, which have a prior and a posterior over it."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from gilib.draws import AnyDrawn, Drawn, Estimate
from gilib.draws.functions import Function
from gilib.layers.base import Layer
from gilib.posteriors import BuildContext, GlobalInducing, Posterior, PosteriorModule
from gilib.priors import NealPrior, Prior, PriorModule
from gilib.randomness import Noise, NoiseSize
from gilib.sites import Site
from gilib.validation import check_instance


class WeightLayer(Layer):
    """A layer whose function is linear in its input and determined by weights W `[I, O]`.

    A subclass defines `build`, `function` and `config`; `build` creates the site and passes it to `settle`.

    Attributes:
        fan_in: I.
        outputs: O.
        posterior: specification of the posterior.
        prior: specification of the prior.
        weights: module of the posterior, once built.
        hyperparameters: module of the prior, once built.
    """

    has_weights = True
    weights: PosteriorModule | None
    hyperparameters: PriorModule | None

    def __init__(self, fan_in: int, outputs: int, posterior: Posterior | None, prior: Prior | None):
        super().__init__()
        self.fan_in, self.outputs = fan_in, outputs
        posterior = GlobalInducing() if posterior is None else posterior
        self.posterior = check_instance(posterior, Posterior, "posterior")
        self.prior = check_instance(NealPrior() if prior is None else prior, Prior, "prior")
        self.weights = self.hyperparameters = None

    @abstractmethod
    def function(self, weights: Tensor) -> Function:
        """Return the layer's function with `weights` `[S, R, I, O]`."""

    def features(self, inducing: Tensor) -> Tensor:
        """Return the posterior's inducing features, given the inducing points that enter the layer."""
        return inducing

    def settle(self, site: Site, context: BuildContext) -> None:
        """Create the modules of prior and posterior, and copy their properties to the layer."""
        self.hyperparameters = self.prior.build(site, context.full((), 0.0))
        self.weights = self.posterior.build(site, context)
        self.replicas = context.replicas
        self.needs_inducing, self.carries = self.weights.needs_inducing, self.weights.carries
        self.starts_at_targets = self.weights.starts_at_targets
        self.noise_size = self.hyperparameters.noise_size + self.weights.noise_size

    def start_at(self, weights: Tensor, inducing: Tensor | None) -> None:
        """Call the posterior's `start_at`, given weights `[I, O]` and inducing points as they enter."""
        weights, (_, posterior) = weights.detach(), self.modules_built()
        outputs = None
        if posterior.needs_inducing and inducing is not None:
            outputs = self.function(weights)(inducing)
        posterior.start_at(weights, outputs)

    def modules_built(self) -> tuple[PriorModule, PosteriorModule]:
        """Return the modules of prior and posterior, or raise RuntimeError if the layer is not built."""
        if self.weights is None or self.hyperparameters is None:
            raise self.not_built()
        return self.hyperparameters, self.weights

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        if mode is not Estimate:
            return NoiseSize(self.noise_size)
        prior, posterior = self.modules_built()
        size = posterior.estimate_size
        return NoiseSize(prior.noise_size + size.draw, size.points)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        prior, posterior = self.modules_built()
        own, rest = noise.draw.tensor_split([prior.noise_size], -1)
        precision, log_pq_prior = prior.draw(own)
        features = self.features(inducing) if self.needs_inducing and inducing is not None else None
        if mode is Estimate:
            points = Noise(rest, noise.points)
            function, log_pq = posterior.estimate(features, precision, points, self.function)
        else:
            weights, log_pq = posterior.checked_draw(features, precision, rest)
            function = self.function(weights)
        return mode(function, None if log_pq is None else log_pq + log_pq_prior)
