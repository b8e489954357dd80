"""Gaussian noise that is correlated between outputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

from gilib.arguments import Count, Scale
from gilib.config import ConfigDict
from gilib.likelihoods.base import Likelihood, check_pairs
from gilib.likelihoods.gaussian import Gaussian, check_inferred
from gilib.likelihoods.mixtures import CorrelatedPrediction, gaussian_log_prob, in_units
from gilib.linalg import cholesky
from gilib.validation import as_replicas

if TYPE_CHECKING:
    from gilib.data import Normalisation
    from gilib.draws import Drawn


class CorrelatedGaussian(Likelihood):
    """Gaussian noise with a full covariance over the outputs, y ~ N(f, Σ).

    `gilib.training.Bali` infers Σ in closed form. Other rules learn Σ = C Cᵀ as a point estimate; the
    parameter is C, with logarithms on its diagonal.

    Args:
        outputs: O.
        noise_variance: the initial Σ is this number times the identity.
        learn: whether Σ is learned.
        replicas: shape of the replica axes, if every replica has its own noise.

    >>> likelihood = CorrelatedGaussian(2, 0.25, learn=True)
    >>> likelihood.set_noise(torch.tensor([[1.0, 0.5], [0.5, 2.0]]))
    >>> likelihood.covariance.detach()
    tensor([[1.0000, 0.5000],
            [0.5000, 2.0000]], dtype=torch.float64)
    """

    def __init__(
        self, outputs: Count, noise_variance: Scale = 1.0, learn: bool = False, replicas: tuple[int, ...] = ()
    ):
        super().__init__()
        self.outputs = self.num_outputs = outputs
        self.learn, self.replicas = learn, as_replicas(replicas)
        start = torch.eye(outputs, dtype=torch.float64) * (0.5 * math.log(noise_variance))
        self.log_root = nn.Parameter(start.expand(*self.replicas, -1, -1).clone(), requires_grad=learn)

    @property
    def noise_tril(self) -> Tensor:
        """C, `[R, O, O]`, in float64 and units of the targets."""
        diagonal = self.log_root.diagonal(dim1=-2, dim2=-1).exp()
        return self.log_root.tril(-1) + torch.diag_embed(diagonal)

    @property
    def covariance(self) -> Tensor:
        """Σ, `[R, O, O]`, in squared units of the targets."""
        root = self.noise_tril
        return root @ root.mT

    def distribution(self, outputs: Tensor) -> MultivariateNormal:
        self.check_outputs(outputs)
        root = self.noise_tril.to(outputs)[..., None, :, :]
        return MultivariateNormal(outputs, scale_tril=root, validate_args=False)

    def expected_log_prob(self, functions: Drawn, x: Tensor, targets: Tensor) -> Tensor:
        """Estimate the expectation from one sample of the outputs, which may depend on each other."""
        return self.log_prob(functions(x), targets)

    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return log N(y_n; f_n, Σ) for every point, `[S, R, N]`, nats."""
        self.check_outputs(outputs)
        check_pairs(targets, outputs)
        return gaussian_log_prob(outputs - targets, self.noise_tril.to(outputs.dtype))

    def predictive(
        self, outputs: Tensor, normalisation: Normalisation | None = None, variance: Tensor | None = None
    ) -> CorrelatedPrediction:
        self.check_outputs(outputs)
        root = self.noise_tril.to(outputs)
        root = root.expand(1, *outputs.shape[1:-2], *root.shape[-2:])  # [1, R, O, O]
        if normalisation is not None:
            outputs, root = in_units(outputs, root, normalisation)
        sd = root.square().sum(-1).sqrt()[..., None, :]
        return CorrelatedPrediction(outputs, sd, root)

    def infers_noise(self, replicas: tuple[int, ...]) -> bool:
        check_inferred(self.log_root.requires_grad, f"CorrelatedGaussian({self.outputs}, learn=True)")
        return Gaussian(learn=True, replicas=self.replicas).infers_noise(replicas)

    @torch.no_grad()
    def set_noise(self, covariance: Tensor) -> None:
        """Set Σ; raise FactorisationError if it is not positive definite."""
        root = cholesky(covariance.to(self.log_root), "the covariance of the noise")
        diagonal = root.diagonal(dim1=-2, dim2=-1).log()
        self.log_root.copy_(root.tril(-1) + torch.diag_embed(diagonal))

    def config(self) -> ConfigDict:
        return {"outputs": self.outputs, "learn": self.learn, "replicas": list(self.replicas)}
