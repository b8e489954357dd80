"""Predict with mixtures of Student t distributions: BALI's last layer is integrated out exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gilib.arguments import Count, checked
from gilib.arithmetic import exact_products
from gilib.data import Normalisation
from gilib.draws import record
from gilib.layers.weights import WeightLayer
from gilib.likelihoods.mixtures import Prediction
from gilib.likelihoods.quantiles import mixture_quantile
from gilib.likelihoods.student import StandardStudent, student_cdf
from gilib.metrics import log_mean_exp
from gilib.network import Network
from gilib.posteriors import ConjugateWeights
from gilib.prediction.predicting import checked_inputs
from gilib.randomness import GeneratorLike
from gilib.validation import (
    as_tensor,
    check_own_targets,
)

__all__ = ["StudentPrediction", "predict_student"]


@dataclass(frozen=True)
class StudentPrediction(Prediction):
    """An equal mixture of S multivariate Student t distributions at every point, t_df(m_sn, r_sn² L Lᵀ).

    Attributes:
        locations: m, `[S, R, N, O]`, in the units of the data.
        spreads: r, `[S, R, N, 1]`.
        scale_tril: L, `[1, R, O, O]`, in the units of the data.
        df: degrees of freedom, `[1, R]`, float64.
    """

    locations: Tensor
    spreads: Tensor
    scale_tril: Tensor
    df: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean of the mixture, `[R, N, O]`."""
        return self.locations.mean(0)

    @property
    def component_scale(self) -> Tensor:
        """Scale of every output's t distribution, `[S, R, N, O]`."""
        return self.spreads * self.scale_tril.square().sum(-1).sqrt()[..., None, :]

    @property
    def sd(self) -> Tensor:
        """Standard deviation of the mixture, `[R, N, O]`: infinite for df ≤ 2, NaN for df ≤ 1."""
        inflated = torch.where(self.df > 2.0, self.df / (self.df - 2.0), torch.inf)
        inflated = inflated.masked_fill(self.df <= 1.0, torch.nan)
        own = self.component_scale.square() * inflated[..., None, None].to(self.locations)
        return (own.mean(0) + self.locations.var(0, correction=0)).sqrt()

    def log_prob(self, targets: Tensor) -> Tensor:
        """Return the mixture's log density of all outputs of every point jointly, `[R, N]` nats.

        It is computed in float64, because differences of log Γ at thousands of degrees of freedom cancel in
        float32.
        """
        targets = as_tensor(targets, "targets", self.locations)
        if targets.shape[-2:] != self.locations.shape[-2:]:
            wanted = list(self.locations.shape[-2:])
            raise ValueError(f"targets must have shape {wanted} (points, outputs), got {list(targets.shape)}")
        check_own_targets(targets.shape[:-2], self.locations.shape[1:-2])
        size, df, root = targets.shape[-1], self.df[..., None], self.scale_tril.double()
        white = torch.linalg.solve_triangular(
            root.mT, targets.double() - self.locations.double(), upper=True, left=False
        )
        square = white.square().sum(-1) / self.spreads[..., 0].double().square()
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(-1)[..., None]
        constant = (
            torch.lgamma(0.5 * (df + size)) - torch.lgamma(0.5 * df) - 0.5 * size * (df * math.pi).log()
        )
        density = constant - log_det - size * self.spreads[..., 0].double().log()
        density = density - 0.5 * (df + size) * torch.log1p(square / df)
        return log_mean_exp(density, 0).to(self.locations.dtype)

    def cdf(self, values: Tensor) -> Tensor:
        """Return the mixture's distribution function of single outputs at `values`, both `[R, N, O]`."""
        standard = (values.double() - self.locations.double()) / self.component_scale.double()
        return student_cdf(standard, self.df[..., None, None]).mean(0).to(self.locations.dtype)

    def quantile(self, probability: float) -> Tensor:
        """Return the quantile of every output's mixture, `[R, N, O]`."""
        standard = StandardStudent(self.df[..., None, None])
        return mixture_quantile(self.locations, self.component_scale, probability, standard)


@checked
@torch.no_grad()
def predict_student(
    net: Network,
    x: Tensor,
    num_samples: Count = 100,
    *,
    normalisation: Normalisation | None = None,
    batch_size: Count | None = None,
    generator: GeneratorLike | None = None,
) -> StudentPrediction:
    """Predict a regression by BALI, with the last layer's weights and noise integrated out exactly.

    Let x̃ be the features from a draw of the layers below, and Σ ~ IW(Ψ, ν), W | Σ ~ MN(M, V, Σ) the posterior
    of the last layer. Targets y = x̃ᵀW + ε, ε ~ N(0, Σ), are then distributed as

        y ~ t_ν'(x̃ᵀM, (1 + x̃ᵀVx̃) Ψ / ν'),    ν' = ν - O + 1.

    `gilib.predict` draws W and uses the mode of Σ instead.

    Args:
        net: a network trained by `gilib.training.Bali` with a Gaussian likelihood, whose noise is Σ.
        x: inputs, `[N, D]` or `[R, N, D]`; in original units if a normalisation is given.
        num_samples: S, the number of draws of the layers below.
        normalisation: scaling of inputs and targets in training; predictions are in original units.
        batch_size: points per batch; all if None.
        generator: source of the draws.

    Raises:
        ValueError: if the network does not end with a layer with `Conjugate`.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.posteriors.Conjugate())
    >>> gilib.prediction.predict_student(net, torch.zeros(3, 1)).log_prob(torch.zeros(3, 1)).shape
    torch.Size([3])
    """
    x = checked_inputs(net, x, normalisation)
    points = -1 - len(net.input_shape)
    draw, (layer, last) = net.draw(num_samples, generator=generator), _last_of(net)
    locations, spreads = [], []
    for batch in x.split(int(batch_size or x.shape[points]), dim=points):
        with exact_products():
            recording = record(draw.function, batch)
        output, end = recording.output, recording.drawn[-1]
        if output is not end.output:
            raise ValueError("the last layer with weights must give the outputs of the network")
        features = layer.features(end.input) / last.root_fan_in
        features = features.expand(*output.shape[:-1], features.shape[-1])
        white = torch.linalg.solve_triangular(last.precision_tril, features.mT, upper=False)
        locations.append(features @ last.mean)
        spreads.append((1.0 + white.square().sum(-2)).sqrt()[..., None])
    location, spread = torch.cat(locations, -2), torch.cat(spreads, -2)
    df = (last.df.double() - last.outputs + 1.0)[None]
    root = last.scale_tril[None] * df.rsqrt().to(last.scale_tril)[..., None, None]
    if normalisation is not None:
        location, root, spread = location.double(), root.double(), spread.double()
        scale = normalisation.scale_y(torch.ones_like(root[..., 0, :])[..., None, :])
        location, root = normalisation.invert_y(location), scale.mT * root
    return StudentPrediction(location, spread, root, df)


def _last_of(net: Network) -> tuple[WeightLayer, ConjugateWeights]:
    """Return the last layer with weights, and its posterior.

    Raises:
        ValueError: if the posterior is not `Conjugate`.
    """
    layers = [module for module in net.modules() if isinstance(module, WeightLayer)]
    if not layers or not isinstance(layers[-1].weights, ConjugateWeights):
        found = layers[-1].posterior if layers else None
        raise ValueError(f"predict_student needs gilib.posteriors.Conjugate at the last layer, got {found!r}")
    return layers[-1], layers[-1].weights
