"""Markov chains over the weights of a network: samples, convergence diagnostics and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from gilib.arguments import Checked, Count, CountOrZero, Fraction, Positive, one_of
from gilib.baselines.diagnostics import effective_sample_size, split_r_hat
from gilib.draws import Draw
from gilib.likelihoods import Gaussian
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.models import mlp
from gilib.network import Network
from gilib.persistence import CheckpointError, read, write
from gilib.posteriors import BuildContext, PointWeights, Posterior, PosteriorModule
from gilib.prediction import predict
from gilib.prediction.drawables import OfNetwork, Samples
from gilib.randomness import GeneratorLike
from gilib.sites import Site
from gilib.validation import check_count, check_tensor

CHAINS_FORMAT = "gilib chains 1"
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)


@dataclass(frozen=True)
class HMCSettings(Checked):
    """Settings of Hamiltonian Monte Carlo: two phases, fixed step sizes and an identity mass matrix.

    The defaults are those of Ober & Aitchison (2021), App. O, which does not name the coordinates of the
    steps; its step sizes suit the weights themselves. The paper starts from standard normals. As weights
    these lie √I prior standard deviations away, and some chains accept no proposal. So the default start is a
    draw of the prior. The limit of a chain does not depend on its start.

    Args:
        burn_in: number of states of each chain that are discarded.
        samples: number of states of each chain after burn-in.
        thin: one of every `thin` states is kept.
        leapfrog_steps: steps per proposal. On a nearly Gaussian target a trajectory of about half a period
            swings back and forth: if effective sizes are small at high acceptance, change it or add jitter.
        step_size_burn_in: step size of the leapfrog integrator in burn-in.
        step_size: step size after burn-in.
        chains: number of chains, which run side by side.
        seed: seed of starts, momenta and acceptances.
        coordinates: "weights", or "scaled" for weights divided by their prior standard deviations.
        start: "prior" for a draw from the prior, or "normal" for standard normals in the coordinates.
        jitter: every proposal draws its step size uniformly within this fraction of the given one (Neal,
            2011, Sec. 4.2), so that no trajectory stays near a period; 0, as in the paper, for none.

    >>> HMCSettings(chains=2).kept
    1000
    """

    burn_in: CountOrZero = 10_000
    samples: int = 10_000
    thin: Count = 10
    leapfrog_steps: Count = 20
    step_size_burn_in: Positive = 0.0007
    step_size: Positive = 0.003
    chains: Count = 4
    seed: CountOrZero = 0
    coordinates: Annotated[str, one_of(("weights", "scaled"))] = "weights"
    start: Annotated[str, one_of(("prior", "normal"))] = "prior"
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        check_count(self.samples, "samples", self.thin)

    @property
    def kept(self) -> int:
        """Number of states of each chain that are kept."""
        return self.samples // self.thin

    @classmethod
    def tuned(cls, **changes: Any) -> HMCSettings:
        """Return settings whose kept states are nearly independent, in twice the time.

        >>> HMCSettings.tuned(seed=1).coordinates
        'scaled'
        """
        better = cls(leapfrog_steps=50, step_size_burn_in=0.01, step_size=0.02, coordinates="scaled")
        return replace(better, **changes)


@dataclass(frozen=True, eq=False)
class Chains(OfNetwork):
    """States of Markov chains whose limit is the posterior of a fully connected ReLU network.

    Attributes:
        weights: weights of every layer, `[chains, kept, I, O]`, with the bias in the last row.
        log_joint: log P(y | x, W) + log P(W) of every state, nats, summed, `[chains, kept]`, float64.
        acceptance: mean acceptance probability of each chain after burn-in, `[chains]`, float64.
        acceptance_burn_in: mean acceptance probability in burn-in; NaN without burn-in.
        noise_variance: σ² of the Gaussian likelihood, in squared units of the targets.
        seconds: wall-clock time of the sampling, including compilation.
        settings: settings of the sampler.
    """

    weights: tuple[Tensor, ...]
    log_joint: Tensor
    acceptance: Tensor
    acceptance_burn_in: Tensor
    noise_variance: float
    seconds: float
    settings: HMCSettings

    @property
    def num_draws(self) -> int:
        """Number of kept states of all chains."""
        return self.log_joint.numel()

    @property
    def samples(self) -> Samples:
        """All kept states as `Samples`, chain after chain."""
        return self._samples([layer.flatten(0, 1) for layer in self.weights])

    @property
    def likelihood(self) -> Gaussian:
        """The Gaussian likelihood of the chains."""
        return Gaussian(self.noise_variance)

    def network(self) -> Network:
        shapes = [layer.shape[-2:] for layer in self.weights]
        widths = [inputs - 1 for inputs, _ in shapes] + [shapes[-1][1]]
        given = _GivenWeights()
        return mlp(widths[0], widths[1:-1], widths[-1], posterior=given, dtype=self.weights[0].dtype)

    def _samples(self, states: Sequence[Tensor]) -> Samples:
        net = self.network().to(states[0].device)
        names = [name for name, _ in net.named_parameters()]
        return Samples(net, dict(zip(names, states, strict=True)))

    def draw(self, num_samples: int | None = None, *, generator: GeneratorLike | None = None) -> Draw:
        """Kept states as functions, as `Samples.draw` chooses them: all, or some without repetition."""
        return self.samples.draw(num_samples, generator=generator)

    def evaluate(self, x: Tensor) -> Tensor:
        """Evaluate all functions at `x` `[N, D]`, one chain at a time; `[chains, kept, N, O]`."""
        check_tensor(x, "x", self.weights[0])
        return torch.stack([self._samples(one).draw()(x) for one in zip(*self.weights, strict=True)])

    def thinned(self, every: int) -> Chains:
        """Return chains with every `every`-th of the kept states."""
        check_count(every, "every")
        if every > self.settings.kept:
            raise ValueError(f"each chain keeps {self.settings.kept} states: thinning by {every} leaves none")
        return replace(
            self,
            weights=tuple(layer[:, every - 1 :: every].clone() for layer in self.weights),
            log_joint=self.log_joint[:, every - 1 :: every].clone(),
            settings=replace(self.settings, thin=self.settings.thin * every),
        )

    def diagnostics(self, grid: Tensor) -> dict[str, Any]:
        """Measure convergence of the functions; hidden units can be permuted, so weights do not show it.

        Args:
            grid: inputs `[N, D]` at which the functions are compared.

        Returns:
            Plain values: split R-hat and effective sample size of the functions at the grid, flattened over
            points and outputs; the worst of each; and both for the log joint.

        Raises:
            ImportError: without the extra `hmc`.
        """
        values = self.evaluate(grid).flatten(2)  # [chains, kept, N O]
        r_hat, effective = split_r_hat(values), effective_sample_size(values)
        return {
            "draws": self.num_draws,
            "r_hat": _plain(r_hat),
            "r_hat_worst": float(r_hat.max()),
            "r_hat_log_joint": float(split_r_hat(self.log_joint)),
            "effective": _plain(effective),
            "effective_worst": float(effective.min()),
            "effective_log_joint": float(effective_sample_size(self.log_joint)),
        }

    def summary(
        self, grid: Tensor, quantiles: Sequence[float] = QUANTILES, states: int = 1000
    ) -> dict[str, Any]:
        """Summarise the chains for a record: plain values with six digits, in the units of training.

        Args:
            grid: inputs `[N, D]`; lists over the grid are flattened, outputs within points.
            quantiles: probabilities of the predictive quantiles, which include noise.
            states: largest number of values of the log joint, evenly spaced over all chains.

        Raises:
            ImportError: without the extra `hmc`.
        """
        prediction = predict(self, self.likelihood, grid, self.num_draws)
        assert isinstance(prediction, GaussianPrediction)
        return {
            "settings": asdict(self.settings),
            "noise_variance": self.noise_variance,
            "seconds": self.seconds,
            "acceptance": _plain(self.acceptance),
            "acceptance_burn_in": _plain(self.acceptance_burn_in) if self.settings.burn_in else None,
            "grid": _plain(grid),
            "mean": _plain(prediction.mean),
            "function_sd": _plain(prediction.function_sd),
            "sd": _plain(prediction.sd),
            "quantiles": {str(level): _plain(prediction.quantile(level)) for level in quantiles},
            "log_joint": _plain(self.log_joint.flatten()[:: -(-self.num_draws // states)]),
            "diagnostics": self.diagnostics(grid),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save everything to one file; call `thinned` first for a small file."""
        content = {name: value for name, value in vars(self).items() if name != "settings"}
        write(path, {"format": CHAINS_FORMAT, **content, "settings": asdict(self.settings)})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Chains:
        """Load chains from a file that `save` wrote; NumPyro is not needed.

        Raises:
            CheckpointError: if the file is damaged, or does not hold chains.
        """
        content = read(path, CHAINS_FORMAT)
        del content["format"]
        try:
            settings = HMCSettings(**content.pop("settings"))
            return Chains(**content, settings=settings)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{path} does not describe chains that this version knows: {error}"
            ) from error


@dataclass(frozen=True)
class _GivenWeights(Posterior):
    """Weights without noise, as they are stored."""

    short_name: ClassVar[str] = "given"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return PointWeights(context.full((site.fan_in, site.outputs), 0.0), scale=1.0)


def _plain(values: Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.flatten().tolist()]
