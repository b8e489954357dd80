"""A sparse process of the logits of classes, under its best Gaussian posterior.

The C logits are made of C - 1 contrasts, processes g that are independent under prior and Q. The best Q(w_o)
is a regression onto pseudo-targets with precisions, one for every point and contrast. Both follow from the
slopes of E log P(y_n | f_n) with respect to the mean m and the variance v of g at the point: -2 ∂/∂v is the
precision λ, and λ m + ∂/∂m is precision times target. As m and v depend on Q in turn, the best Q is a fixed
point, and steps towards it are natural-gradient steps (Khan & Lin, 2017). There the bound is stationary in
Q, so that its gradient with respect to the kernel is the one at constant pseudo-targets and precisions.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from gilib.layers import GP, FixedLinear
from gilib.likelihoods import Categorical, Likelihood
from gilib.metrics import log_mean_exp
from gilib.network import Network
from gilib.training.rules.collapsed.bound import WhitePosterior, features_of
from gilib.training.rules.collapsed.model import MIN_SHARE, CollapsedModel, SparseProcess

NODES = 128  # of an expectation over contrasts
LEAST = 1e-8  # smallest precision of a pseudo-target
STEP = 0.5  # the first one of several contrasts; a whole one overshoots, because they depend on each other
SMALLEST = 1e-3  # a shorter step is not tried
GROWTH = 1.1  # of a step after one that gained
SETTLED = 1e-6  # nats per point; a step that gains less is the last
TEMPERATURES = torch.logspace(-2, 4, 49, base=2.0).tolist()  # from a quarter to sixteen


class ProcessOfClasses(CollapsedModel):
    """A process of C - 1 contrasts, and the logits that `matrix`, `[C - 1, C]`, makes of them.

    Every point and contrast has a precision and `moments`, precision times pseudo-target, `[N, C - 1]`.
    """

    def __init__(self, process: SparseProcess, matrix: Tensor, likelihood: Categorical):
        self.process, self.matrix, self.likelihood = process, matrix.double(), likelihood
        self.known = process.parameters
        self.moments = self.precision = matrix.new_zeros(0, len(matrix), dtype=torch.float64)

    def bound(self, x: Tensor, y: Tensor, weights: Tensor, spacing: Tensor) -> Tensor:
        """Return the bound under the best posterior; `spacing` is zero."""
        self._settle(x, y, weights)
        return self._bound(*features_of(self.process.inducing(), x), y, weights)[0]

    @torch.no_grad()
    def solve_posterior(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        self._settle(x, y, weights)
        white, left = features_of(self.process.inducing(), x)
        posterior = self._posterior(white)
        self.process.set_posterior(posterior.mean, posterior.factor)
        return self._bound(white, left, y, weights)[0]

    @torch.no_grad()
    def _settle(self, x: Tensor, y: Tensor, weights: Tensor) -> None:
        """Step to the fixed point; from a step that lowers the bound go back, and halve it."""
        if len(self.moments) != len(x):
            self.moments = self.precision = self.matrix.new_zeros(len(x), len(self.matrix))
        white, left = features_of(self.process.inducing(), x)
        value, *target = self._bound(white, left, y, weights)
        size = whole = STEP if len(self.matrix) > 1 else 1.0
        gained = torch.inf
        while gained > SETTLED * len(x) and size > SMALLEST:
            before = self.moments, self.precision
            self.moments, self.precision = map(torch.lerp, before, target, (size, size))
            new, *found = self._bound(white, left, y, weights)
            if new >= value:
                gained, value, target, size = float(new - value), new, found, min(GROWTH * size, whole)
            else:
                self.moments, self.precision = before
                size *= 0.5

    def temperature(self, x: Tensor, y: Tensor, weights: Tensor) -> float:
        """Return the T with the greatest Σ w_n log E softmax(f_n/T) of labels, each left out in turn."""
        outputs = self.left_out(x, y, weights)
        # Inputs with several labels do not count: of one that is left out, the others would say the opposite.
        _, place, times = x.unique(dim=0, return_inverse=True, return_counts=True)
        alone = weights * (times[place] == 1)

        def score(temperature: float) -> float:
            logs = self.likelihood.log_prob(outputs / temperature, y)
            return float((alone * log_mean_exp(logs, 0)).sum())

        return max(TEMPERATURES, key=score) if 2.0 * alone.sum() > weights.sum() else 1.0

    @torch.no_grad()
    def left_out(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return logits at points, `[NODES, N, C]`, each under Q without the point's own pseudo-target.

        Let s be the part of the variance of g that Q explains, and t the pseudo-target, of precision λ.
        Without it, s is s' = s / (1 - λ s), and the mean m is m - s' λ (t - m) (Vehtari et al., 2016). First
        Q becomes the one of its own pseudo-targets, so that λ s < 1.
        """
        white, left = features_of(self.process.inducing(), x)
        mean, root = (part.detach().double() for part in self.process.posterior.gaussian_parameters)
        variance = left[:, None] + (white @ root.tril()).square().sum(-1).mT
        mean = white @ mean
        _, slope, self.precision = self._slopes(mean, variance, y, weights)
        self.moments = slope + self.precision * mean
        mean, variance = (each.mT for each in self._posterior(white).at(white, left))
        explained = variance - left[:, None]
        explained = explained / (1.0 - self.precision * explained).clamp_min(MIN_SHARE)
        mean = mean - explained * (self.moments - self.precision * mean)
        return self._outputs(mean, explained + left[:, None])

    def _posterior(self, white: Tensor) -> WhitePosterior:
        return WhitePosterior.of(white, self.moments / self.precision.clamp_min(LEAST), self.precision.mT)

    def _bound(
        self, white: Tensor, left: Tensor, y: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the bound, and the moments and precisions that follow from it."""
        posterior = self._posterior(white)
        mean, variance = (each.mT for each in posterior.at(white, left))  # [N, C - 1]
        fit, slope, precision = self._slopes(mean, variance, y, weights)
        return fit - posterior.divergence, slope + precision * mean, precision

    def _slopes(
        self, mean: Tensor, variance: Tensor, y: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the expected log-probability, its slope in the means, and precisions λ."""
        with torch.enable_grad():
            if not mean.requires_grad:
                mean, variance = mean.requires_grad_(), variance.requires_grad_()
            fit = self._fit(mean, variance, y, weights)
        slope, curvature = torch.autograd.grad(fit, [mean, variance], retain_graph=torch.is_grad_enabled())
        return fit, slope, (-2.0 * curvature).clamp_min(LEAST)

    def _fit(self, mean: Tensor, variance: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """Return Σ w_n E log P(y_n | f_n)."""
        return (weights * self.likelihood.log_prob(self._outputs(mean, variance), y).mean(0)).sum()

    def _outputs(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Return logits at points, `[NODES, N, C]`, with the same normals at every point."""
        normals = standard_normals(mean.shape[-1]).to(mean)[:, None]
        return (mean + variance.sqrt() * normals) @ self.matrix


def process_of_classes(net: Network, likelihood: Likelihood) -> ProcessOfClasses:
    """Return the model of a network of contrasts and a map to logits, or raise for other networks."""
    layers = list(net.layers)
    if list(map(type, layers)) != [GP, FixedLinear] or net.replicas:
        raise ValueError(
            "Collapsed trains classes in one gilib.GP of contrasts and one FixedLinear, without replicas, as "
            f"gilib.models.gp_classifier makes it, got {net}"
        )
    process, contrasts = layers
    assert isinstance(process, GP) and isinstance(contrasts, FixedLinear)
    assert isinstance(likelihood, Categorical)
    return ProcessOfClasses(SparseProcess(process, white=True), contrasts.matrix, likelihood)


@cache
def standard_normals(outputs: int) -> Tensor:
    """Return points that stand for N(0, Id), `[NODES, O]`: symmetric, with unit variances, evenly spread."""
    engine = torch.quasirandom.SobolEngine(outputs, scramble=True, seed=0)
    half = torch.special.ndtri(engine.draw(NODES // 2, dtype=torch.float64))
    half = half / half.square().mean(0).sqrt()
    return torch.cat([half, -half])
