"""What layers with a weight matrix share: prior and posterior, their draws and their estimates."""

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
    """A layer whose function is linear in its input and known by weights W `[I, O]`.

    To write one, define `build`, which finds the site and calls `settle`, `function` and `config`.

    Attributes:
        fan_in: I.
        outputs: O.
        posterior: as it was specified; `prior` likewise.
        weights: the posterior's module, once the layer is built.
        hyperparameters: the prior's module, likewise.
    """

    has_weights = True
    weights: PosteriorModule | None
    hyperparameters: PriorModule | None

    def __init__(self, fan_in: int, outputs: int, posterior: Posterior | None, prior: Prior | None):
        """Describe the layer; its parameters are created by `build`."""
        super().__init__()
        self.fan_in, self.outputs = fan_in, outputs
        self.posterior = check_instance(
            GlobalInducing() if posterior is None else posterior, Posterior, "posterior"
        )
        self.prior = check_instance(NealPrior() if prior is None else prior, Prior, "prior")
        self.weights = self.hyperparameters = None

    @abstractmethod
    def function(self, weights: Tensor) -> Function:
        """The function with `weights` `[S, R, I, O]`."""

    def features(self, inducing: Tensor) -> Tensor:
        """What the posterior takes of the inducing points that enter the layer."""
        return inducing

    def settle(self, site: Site, context: BuildContext) -> None:
        """Create the modules over a site, and note what they need."""
        self.hyperparameters = self.prior.build(site, context.full((), 0.0))
        self.weights = self.posterior.build(site, context)
        self.replicas = context.replicas
        self.needs_inducing, self.carries = self.weights.needs_inducing, self.weights.carries
        self.starts_at_targets = self.weights.starts_at_targets
        self.noise_size = self.hyperparameters.noise_size + self.weights.noise_size

    def start_at(self, weights: Tensor, inducing: Tensor | None) -> None:
        """Let the posterior begin at given weights.

        Args:
            weights: `[I, O]`.
            inducing: what enters the layer of the network's inducing points, `[M, ...]`, or None.
        """
        weights = weights.detach()
        _, posterior = self.modules_built()
        outputs = (
            self.function(weights)(inducing) if posterior.needs_inducing and inducing is not None else None
        )
        posterior.start_at(weights, outputs)

    def modules_built(self) -> tuple[PriorModule, PosteriorModule]:
        """Both modules.

        Raises:
            RuntimeError: if the layer is not built.
        """
        if self.weights is None or self.hyperparameters is None:
            raise self.not_built()
        return self.hyperparameters, self.weights

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        """Of the prior's hyper-parameters, which are drawn, and of the posterior's draw or estimate."""
        if mode is not Estimate:
            return NoiseSize(self.noise_size)
        prior, posterior = self.modules_built()
        size = posterior.estimate_size
        return NoiseSize(prior.noise_size + size.draw, size.points)

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Draw the prior's hyper-parameters; given them, the weights, or the posterior's estimate."""
        prior, posterior = self.modules_built()
        own, rest = noise.draw.tensor_split([prior.noise_size], -1)
        precision, log_pq_prior = prior.draw(own)
        features = self.features(inducing) if self.needs_inducing and inducing is not None else None
        if mode is Estimate:
            function, log_pq = posterior.estimate(
                features, precision, Noise(rest, noise.points), self.function
            )
        else:
            weights, log_pq = posterior.checked_draw(features, precision, rest)
            function = self.function(weights)
        return mode(function, None if log_pq is None else log_pq + log_pq_prior)
