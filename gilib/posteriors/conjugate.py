"""The conjugate posterior of a layer's regression: matrix normal over weights, inverse Wishart over noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.distributions import MatrixNormalInverseWishart
from gilib.draws.functions import Function
from gilib.linalg import SymmetricOperator
from gilib.linalg.columns import solve_shared
from gilib.linalg.factor import tril_logdet
from gilib.linalg.products import matmul
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule, WithWeights
from gilib.randomness import Noise, NoiseSize, noise_at
from gilib.regression.joint import JointState
from gilib.sites import ConvolutionWeights, DenseWeights, Site


@dataclass(frozen=True)
class Conjugate(Posterior):
    """Σ ~ IW(Ψ, ν), W̃ | Σ ~ MN(M, V, Σ), as computed by `gilib.training.Bali` (Kurle et al., 2024).

    Each layer is a Bayesian linear regression F = X̃ W̃ + noise, where the noise has covariance Σ. Its features
    are X̃ = X / √I, so the weights of the layer are W = W̃ / √I, and `NealPrior(s)` gives W̃ the prior N(0, s²)
    in every layer. In a convolution, X contains the windows of the images. A draw uses the mode of Σ:

        W̃ = M + chol(V) E chol(Σ)ᵀ,    Σ = Ψ / (ν + O + 1),    E standard normal     (ibid., Eqs. 21, 22).

    The rule does not maximise the ELBO of this posterior, but it can be measured. The default `NealPrior()`
    may be too narrow; see `Bali`.

    Args:
        initial_sd: standard deviation of W̃ before training; near 1 in the paper.
        df: ν_0 > O - 1, degrees of freedom of the prior over Σ; None: O + 1.
        scale: the prior over Σ has Ψ_0 = scale · Id.

    >>> Conjugate().short_name
    'bali'
    """

    short_name: ClassVar[str] = "bali"
    initial_sd: Positive = 1.0
    df: Positive | None = None
    scale: Positive = 2e-3

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        kind = MODULES.get(type(site))
        if kind is None:
            raise ValueError(
                "Conjugate is over the weights of dense layers and convolutions, and has no statistics for "
                f"{type(site).__name__}: give this layer another posterior"
            )
        df = float(site.outputs + 1 if self.df is None else self.df)
        if df <= site.outputs - 1:
            raise ValueError(
                f"df must exceed O - 1 = {site.outputs - 1} at a layer with {site.outputs} outputs, got "
                f"{df:g}: with fewer degrees of freedom the noise covariance has no density"
            )
        return kind(self, df, site, context)


class ConjugateWeights(PosteriorModule):
    """The state of a layer's regression, in buffers that are saved with the model.

    The mean is M = A - T⁻ᵀS, where T Tᵀ = V⁻¹; see `gilib.regression.joint`.

    Attributes:
        centre: A, `[R, I, O]`.
        white: S, `[R, I, O]`.
        precision: V⁻¹, `[R, I, I]`; only the lower triangle is valid.
        precision_tril: T, the Cholesky factor of V⁻¹, `[R, I, I]`.
        scale_tril: the Cholesky factor of Ψ, `[R, O, O]`.
        noise_tril: the Cholesky factor of the mode of Σ, which is `scale_tril` / √(ν + O + 1), `[R, O, O]`;
            the two must be updated together.
        df: ν, `[R]`.
        mean_square: v, moving averages of the squared gradients with respect to the outputs, `[R, O]`.
        steps: number of gradients in these averages, `[R]`.
    """

    carries = False
    centre: Tensor
    white: Tensor
    precision: Tensor
    precision_tril: Tensor
    scale_tril: Tensor
    noise_tril: Tensor
    df: Tensor
    mean_square: Tensor
    steps: Tensor

    def __init__(self, spec: Conjugate, df: float, site: Site, context: BuildContext):
        super().__init__()
        inputs, outputs = site.fan_in, site.outputs
        self.prior_df, self.prior_scale, self.outputs = df, spec.scale, outputs
        self.noise_size, self.root_fan_in = inputs * outputs, math.sqrt(inputs)
        ones, root = context.full((inputs,), 1.0), math.sqrt(df + outputs + 1)
        start = {
            "centre": context.full((inputs, outputs), 0.0),
            "precision": torch.diag_embed(ones),
            "precision_tril": torch.diag_embed(ones).mT,  # column-major, like the factors that LAPACK returns
            "scale_tril": torch.diag_embed(context.full((outputs,), spec.initial_sd * root)),
            "noise_tril": torch.diag_embed(context.full((outputs,), spec.initial_sd)),
            "white": context.full((inputs, outputs), 0.0),
            "df": context.full((), df),
            "mean_square": context.full((outputs,), 0.0),
            "steps": context.full((), 0.0).long(),
        }
        for name, value in start.items():
            self.register_buffer(name, value)

    @property
    def state(self) -> JointState:
        """The part of the state that the regression on a minibatch updates."""
        return JointState(self.centre, self.precision, self.precision_tril, self.scale_tril, self.white)

    @property
    def mean(self) -> Tensor:
        """M, the mean of W̃, `[R, I, O]`."""
        return self.state.mean

    @property
    def posterior(self) -> MatrixNormalInverseWishart:
        """The joint distribution of W̃ and Σ."""
        return MatrixNormalInverseWishart(
            self.mean, self.precision_tril, self.df, self.scale_tril, validate_args=False
        )

    @property
    def noise_covariance(self) -> Tensor:
        """The mode of Σ, `[R, O, O]`."""
        return self.noise_tril @ self.noise_tril.mT

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """Set the mean of W to `weights`; the standard deviation of W̃ remains `initial_sd`."""
        self.centre.copy_(weights * self.root_fan_in)

    def noise_in(self, noise: Tensor) -> Tensor:
        """Return E chol(Σ)ᵀ, `[..., I, O]`, which a draw adds to TᵀM; E are standard normals `[..., I O]`."""
        return matmul(noise.reshape(*noise.shape[:-1], *self.centre.shape[-2:]), self.noise_tril.mT)

    def weights(self, noise: Tensor) -> Tensor:
        """Return a draw of W = W̃ / √I, `[..., I, O]`, given standard normals E `[..., I O]`."""
        coloured = solve_shared(self.precision_tril.mT, self.noise_in(noise) - self.white)
        return (self.centre + coloured) / self.root_fan_in

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Draw W, and compute log P(W) - log Q(W) from the standard normals E.

        log_pq = ½ [ΣE² - Σ_o w_oᵀP w_o + O log det(P V/I) + I log det Σ]; V/I is the row covariance of W.
        """
        weights = self.weights(noise)
        squares = noise.reshape(weights.shape).square().sum((-2, -1)) - prior_precision.quadratic(weights)
        scales = self._log_scales(self.noise_tril, prior_precision)
        return weights, torch.add(scales, squares, alpha=0.5)

    def _log_scales(self, columns: Tensor, prior_precision: SymmetricOperator) -> Tensor:
        """Return ½ [O log det(P V/I) + I log det Σ], `[R]`, where V/I is the row covariance of W."""
        inputs, outputs = self.centre.shape[-2:]
        prior = 0.5 * prior_precision.log_det() - inputs * math.log(self.root_fan_in)
        widths = torch.sub(prior, tril_logdet(self.precision_tril))
        return torch.add(inputs * tril_logdet(columns), widths, alpha=outputs)

    @property
    def estimate_size(self) -> NoiseSize:
        return NoiseSize(0, self.outputs)

    def estimate(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Noise, function: WithWeights
    ) -> tuple[Function, Tensor | None]:
        """Sample outputs from N(x̃ M, x̃ V x̃ᵀ Σ), independently at each point (ibid., App. F).

        Here log_pq is minus the Kullback-Leibler divergence. With A = M/√I and B = V/I, the mean and the row
        covariance of W,

            KL(Q(W)‖N(0, P⁻¹)) = ½ [tr(P B) tr(Σ) + Σ_o a_oᵀP a_o - I O - O log det(P B) - I log det Σ].
        """
        mean, columns = self.mean / self.root_fan_in, self.noise_tril
        identity = torch.eye(mean.shape[-2], dtype=mean.dtype, device=mean.device)
        root = torch.linalg.solve_triangular(self.precision_tril.mT, identity, upper=True) / self.root_fan_in
        trace = prior_precision.quadratic(root) * columns.square().sum((-2, -1))
        kl = 0.5 * (trace + prior_precision.quadratic(mean) - self.noise_size)
        kl = kl - self._log_scales(columns, prior_precision)
        outputs = CorrelatedOutputs(function(mean), function(root), columns.clone(), noise.points)
        return outputs, -kl.expand(noise.draw.shape[:-1])

    @torch.no_grad()
    def move(self, state: JointState, mean_square: Tensor, df: float, active: Tensor | None) -> None:
        """Replace the state, v `[R, O]` and ν in the replicas that `active` `[R]` selects; count the step."""
        noise_tril = state.scale_tril / math.sqrt(df + self.outputs + 1)
        old, new = [*self.state, self.noise_tril, self.mean_square], [*state, noise_tril, mean_square]
        if active is None:
            self.df.fill_(df)
            self.steps += 1
        else:
            new = [
                value.where(active[(..., *[None] * (value.dim() - active.dim()))], kept)
                for value, kept in zip(new, old, strict=True)
            ]
            self.df.masked_fill_(active, df)
            self.steps += active
        torch._foreach_copy_(old, new)


class ConjugateKernels(ConjugateWeights):
    """`ConjugateWeights` for a convolution; its estimate is a draw, because all pixels share the weights."""

    carries = True
    estimate_size, estimate = PosteriorModule.estimate_size, PosteriorModule.estimate


MODULES: dict[type[Site], type[ConjugateWeights]] = {
    DenseWeights: ConjugateWeights,
    ConvolutionWeights: ConjugateKernels,
}


@dataclass(frozen=True)
class CorrelatedOutputs:
    """Samples of N(x̃ M, x̃ V x̃ᵀ Σ), drawn as x̃ M + √(x̃ V x̃ᵀ) C z, independently at N points."""

    mean: Function  # the layer's function with weights M
    spread: Function  # with weights T⁻ᵀ, V = T⁻ᵀ T⁻¹; its squared outputs sum to x̃ V x̃ᵀ
    root: Tensor  # C, a factor of Σ = C Cᵀ, `[R, O, O]`
    noise: Tensor  # z, standard normals `[S, R, N, O]`

    def __call__(self, x: Tensor) -> Tensor:
        centre = self.mean(x)
        # clamped, because the square root has an infinite slope at zero
        size = self.spread(x).square().sum(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        return centre + size * (noise_at(self.noise, centre, -2).to(centre.dtype) @ self.root.mT)
