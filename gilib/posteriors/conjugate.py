"""The conjugate posterior of a layer's own regression: matrix-normal weights, inverse-Wishart noise."""

from __future__ import annotations

import math
from collections.abc import Callable
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
from gilib.posteriors.base import BuildContext, Posterior, PosteriorModule
from gilib.posteriors.correlated import CorrelatedOutputs
from gilib.randomness import Noise, NoiseSize
from gilib.regression.joint import JointState
from gilib.sites import ConvolutionWeights, DenseWeights, Site


@dataclass(frozen=True)
class Conjugate(Posterior):
    """Σ ~ IW(Ψ, ν), W̃ | Σ ~ MN(M, V, Σ): trained by `gilib.training.Bali` (Kurle et al., 2024).

    A layer is a regression of its own, F = X̃ W̃ + noise of covariance Σ. Features are divided by the root of
    their number, X̃ = X / √I, so that the weights of the layer are W = W̃ / √I, and W̃ has the prior N(0, s²)
    of `NealPrior(s)` in every layer. A draw takes the mode of Σ,

        W̃ = M + chol(V) E chol(Σ)ᵀ,    Σ = Ψ / (ν + O + 1),    E standard normal     (ibid., Eqs. 21, 22),

    and log_pq is log P(W) - log Q(W), P being the layer's prior: the ELBO of such a posterior can be
    measured, though the rule does not maximise it. Before training W̃ ~ N(0, initial_sd²). At a convolution X
    are its windows. A prior of variance 1, as of `NealPrior()`, may be too narrow: `Bali` says which to set.

    Args:
        initial_sd: σ_w, of the scaled weights of the first step; near 1 in the paper.
        df: ν_0 > O - 1, of the prior over Σ; None: O + 1.
        scale: of Ψ_0 = scale · Id.

    >>> Conjugate().short_name
    'bali'
    """

    short_name: ClassVar[str] = "bali"
    initial_sd: Positive = 1.0
    df: Positive | None = None
    scale: Positive = 2e-3

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """The state, in buffers.

        Raises:
            ValueError: for other sites than weights, and for too few degrees of freedom.
        """
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
    """The state of a layer's regression; all of it is saved and loaded with the model.

    The mean is M = A - T⁻ᵀS, where T Tᵀ = V⁻¹: see `gilib.regression.joint`.

    Attributes:
        centre: A, `[R, I, O]`.
        white: S, `[R, I, O]`.
        precision: V⁻¹, `[R, I, I]`; only its lower triangle.
        precision_tril: T, its Cholesky factor.
        scale_tril: that of Ψ, `[R, O, O]`.
        noise_tril: that of the mode of Σ, C / √(ν + O + 1), `[R, O, O]`: who writes one writes the other.
        df: ν, `[R]`.
        mean_square: v, moving averages of squared gradients at the outputs, `[R, O]`; as it was under
            true targets.
        steps: how many have been averaged, `[R]`.
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
        """Start where a draw is W̃ ~ N(0, initial_sd²)."""
        super().__init__()
        inputs, outputs = site.fan_in, site.outputs
        self.prior_df, self.prior_scale, self.outputs = df, spec.scale, outputs
        self.noise_size, self.root_fan_in = inputs * outputs, math.sqrt(inputs)
        ones, root = context.full((inputs,), 1.0), math.sqrt(df + outputs + 1)
        start = {
            "centre": context.full((inputs, outputs), 0.0),
            "precision": torch.diag_embed(ones),
            "precision_tril": torch.diag_embed(ones).mT,  # columns in a row, as LAPACK leaves them
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
        """What a minibatch changes."""
        return JointState(self.centre, self.precision, self.precision_tril, self.scale_tril, self.white)

    @property
    def mean(self) -> Tensor:
        """M, `[R, I, O]`."""
        return self.state.mean

    @property
    def posterior(self) -> MatrixNormalInverseWishart:
        """The distribution of W̃ and Σ."""
        return MatrixNormalInverseWishart(
            self.mean, self.precision_tril, self.df, self.scale_tril, validate_args=False
        )

    @property
    def mean_noise(self) -> Tensor:
        """The mean of the noise variances, `[R]`: tr Σ / O at the mode."""
        return self.noise_tril.square().sum((-2, -1)) / self.outputs

    @property
    def noise_covariance(self) -> Tensor:
        """The mode of Σ, `[R, O, O]`."""
        return self.noise_tril @ self.noise_tril.mT

    @torch.no_grad()
    def start_at(self, weights: Tensor, outputs: Tensor | None) -> None:
        """With this mean; the spread is `initial_sd`, beside which a weight times √I is about 1 or less."""
        self.centre.copy_(weights * self.root_fan_in)

    def noise_in(self, noise: Tensor) -> Tensor:
        """S = E Gᵀ, `[..., I, O]`: what a draw adds to Tᵀ M, from its standard normals E `[..., I O]`."""
        return matmul(noise.reshape(*noise.shape[:-1], *self.centre.shape[-2:]), self.noise_tril.mT)

    def weights(self, noise: Tensor) -> Tensor:
        """W = W̃ / √I, `[..., I, O]`, drawn from E `[..., I O]`."""
        coloured = solve_shared(self.precision_tril.mT, self.noise_in(noise) - self.white)
        return (self.centre + coloured) / self.root_fan_in

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        """W, and log P - log Q of it.

        With E, of which it was drawn: ½ [ΣE² - Σ_o w_oᵀP w_o + O log det (P V) + I log det Σ], V that of W.
        """
        weights = self.weights(noise)
        squares = noise.reshape(weights.shape).square().sum((-2, -1)) - prior_precision.quadratic(weights)
        scales = self._log_scales(self.noise_tril, prior_precision)
        return weights, torch.add(scales, squares, alpha=0.5)

    def _log_scales(self, columns: Tensor, prior_precision: SymmetricOperator) -> Tensor:
        """½ [O log det (P V) + I log det Σ], V that of W, `[R]`."""
        inputs, outputs = self.centre.shape[-2:]
        prior = 0.5 * prior_precision.log_det() - inputs * math.log(self.root_fan_in)
        widths = torch.sub(prior, tril_logdet(self.precision_tril))
        return torch.add(inputs * tril_logdet(columns), widths, alpha=outputs)

    @property
    def estimate_size(self) -> NoiseSize:
        """One for every output of a point."""
        return NoiseSize(0, self.outputs)

    def estimate(
        self,
        features: Tensor | None,
        prior_precision: SymmetricOperator,
        noise: Noise,
        function: Callable[[Tensor], Function],
    ) -> tuple[Function, Tensor | None]:
        """Outputs N(x̃ M, x̃ V x̃ᵀ Σ) at every point (ibid., App. F); log_pq is minus the divergence.

        KL(Q(W)‖N(0, P⁻¹)) = ½ [tr(P V) tr(Σ) + Σ_o M_oᵀPM_o - I O - O log det (P V) - I log det Σ], V and M
        those of W.
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
        """Take a new state, of the replicas that are active, and count it.

        Args:
            state: after a minibatch.
            mean_square: v, `[R, O]`.
            df: ν.
            active: `[R]`; None: all.
        """
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
    """The same over the kernels of a convolution, whose estimate is its draw: pixels share the weights."""

    carries = True
    estimate_size, estimate = PosteriorModule.estimate_size, PosteriorModule.estimate


MODULES: dict[type[Site], type[ConjugateWeights]] = {
    DenseWeights: ConjugateWeights,
    ConvolutionWeights: ConjugateKernels,
}
