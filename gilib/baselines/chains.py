"""Markov chains over the weights of a network: convergence, files, and the samples that they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gilib.arguments import Checked, Count, CountOrZero, Fraction, Positive
from gilib.baselines.diagnostics import effective_sample_size, split_r_hat
from gilib.draws import Draw
from gilib.likelihoods import Gaussian
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.linalg import SymmetricOperator
from gilib.models import mlp
from gilib.network import Network
from gilib.persistence import CheckpointError, read, write
from gilib.posteriors import BuildContext, Posterior, PosteriorModule
from gilib.prediction import predict
from gilib.prediction.drawables import OfNetwork, Samples
from gilib.randomness import GeneratorLike
from gilib.sites import Site
from gilib.validation import check_choice, check_count, check_tensor

CHAINS_FORMAT = "gilib chains 1"
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)


@dataclass(frozen=True)
class HMCSettings(Checked):
    """Hamiltonian Monte Carlo in two phases, each with a fixed step size and an identity mass matrix.

    The numbers are those of Ober & Aitchison (2021), App. O, which does not say in which coordinates steps
    are taken. On `gilib.data.toy(seed=0)`, they fit the weights themselves: acceptance 0.99 in burn-in and
    0.89 after it. In scaled coordinates it is 0.999 and 0.99: steps smaller than one would tune them to.

    The paper starts from standard normals. As weights these are √I prior standard deviations out, and the
    log joint begins between -10⁵ and -10⁷ nats: 15 of 64 chains accepted none of 1000 proposals. Such a chain
    shows nothing of the posterior, so the default starts from a draw of the prior, from which all 64 moved;
    what chains converge to does not depend on it.

    Args:
        burn_in: states of each chain that are thrown away; 0 for none.
        samples: states of each chain after that.
        thin: every how many of them one is kept.
        leapfrog_steps: per proposal. On a nearly Gaussian target a length near its half period swings back
            and forth: where effective sizes are small at high acceptance, take another, or a jitter.
        step_size_burn_in: of the leapfrog integrator in burn-in.
        step_size: after it.
        chains: run side by side.
        seed: of starts, momenta and acceptances.
        coordinates: "weights", or "scaled": every weight over its prior standard deviation.
        start: "prior", a draw from the prior; or "normal", standard normals in the coordinates, which are the
            same if these are scaled.
        jitter: every proposal has a step size of its own, uniform within this share of the given one (Neal,
            2011, Sec. 4.2), so that no length of trajectory is a period for long; 0, as in the paper: none.

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
    coordinates: str = "weights"
    start: str = "prior"
    jitter: Fraction = 0.0

    def __post_init__(self) -> None:
        """Refuse settings that cannot run."""
        check_count(self.samples, "samples", self.thin)
        check_choice(self.coordinates, ("weights", "scaled"), "coordinates")
        check_choice(self.start, ("prior", "normal"), "start")
        if not 0.0 <= self.jitter < 1.0:
            raise ValueError(f"jitter is a share of the step size, at least 0 and below 1, got {self.jitter}")

    @property
    def kept(self) -> int:
        """States of each chain that are kept."""
        return self.samples // self.thin

    @classmethod
    def tuned(cls, **changes: Any) -> HMCSettings:
        """Longer trajectories in scaled coordinates, for twice the time: kept states are all but independent.

        On `gilib.data.toy(seed=0)` 4000 kept states are worth at least 3300 independent ones anywhere in
        [-2, 2], against some 700 with the paper's; acceptance 0.75, R-hat at most 1.002 against 1.01.

        >>> HMCSettings.tuned(seed=1).coordinates
        'scaled'
        """
        better = cls(leapfrog_steps=50, step_size_burn_in=0.01, step_size=0.02, coordinates="scaled")
        return replace(better, **changes)


@dataclass(frozen=True, eq=False)
class Chains(OfNetwork):
    """States of Markov chains whose limit is the posterior of a fully connected ReLU network.

    Attributes:
        weights: of every layer, `[chains, kept, I, O]`, the bias in the last row.
        log_joint: log P(y | x, W) + log P(W) of every state, nats, summed, `[chains, kept]`, float64.
        acceptance: mean acceptance probability of each chain after burn-in, `[chains]`, float64.
        acceptance_burn_in: the same in burn-in; NaN if there was none.
        noise_variance: σ² of the Gaussian likelihood, in squared units of the targets.
        seconds: wall-clock time of the sampling, compilation included.
        settings: with which it was made.
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
        """All kept states of all chains."""
        return self.log_joint.numel()

    @property
    def samples(self) -> Samples:
        """All kept states, chain after chain."""
        return self._samples([layer.flatten(0, 1) for layer in self.weights])

    @property
    def likelihood(self) -> Gaussian:
        """With the noise variance of the chains."""
        return Gaussian(self.noise_variance)

    def network(self) -> Network:
        """The network whose weights the states are."""
        shapes = [layer.shape[-2:] for layer in self.weights]
        widths = [inputs - 1 for inputs, _ in shapes] + [shapes[-1][1]]
        given = _GivenWeights()
        return mlp(widths[0], widths[1:-1], widths[-1], posterior=given, dtype=self.weights[0].dtype)

    def _samples(self, states: Sequence[Tensor]) -> Samples:
        """A weight tensor `[S, I, O]` for each layer as states of the network."""
        net = self.network().to(states[0].device)
        names = [name for name, _ in net.named_parameters()]
        return Samples(net, dict(zip(names, states, strict=True)))

    def draw(self, num_samples: int | None = None, *, generator: GeneratorLike | None = None) -> Draw:
        """Kept states as functions, as `Samples.draw` chooses them: all, or some without repetition."""
        return self.samples.draw(num_samples, generator=generator)

    def evaluate(self, x: Tensor) -> Tensor:
        """All functions at `x` `[N, D]`, one chain at a time; `[chains, kept, N, O]`."""
        check_tensor(x, "x", self.weights[0])
        return torch.stack([self._samples(one).draw()(x) for one in zip(*self.weights, strict=True)])

    def thinned(self, every: int) -> Chains:
        """Keep every `every`-th of the kept states."""
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
        """Convergence in function space: weights have permutations and so tell nothing.

        Args:
            grid: inputs `[N, D]` at which the functions are compared.

        Returns:
            Split R-hat and effective sample size (of all kept states together) of the functions at the grid,
            flattened over points and outputs, their worst values, and those of the log joint; plain values.

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
        """What a record keeps: plain values, six significant digits, in the units of training.

        Args:
            grid: inputs `[N, D]`; lists over it are flattened, outputs within points.
            quantiles: probabilities at which the predictive distribution, noise included, is inverted.
            states: at most how many values of the log joint, evenly spaced over all chains.

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
        """Write everything to one file; `thinned` first where size matters."""
        content = {name: value for name, value in vars(self).items() if name != "settings"}
        write(path, {"format": CHAINS_FORMAT, **content, "settings": asdict(self.settings)})

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Chains:
        """Read what `save` wrote; NumPyro is not needed.

        Raises:
            CheckpointError: if the file is damaged, or holds something else.
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
    """Weights that are the state itself."""

    short_name: ClassVar[str] = "given"

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        return _Given(context.full((site.fan_in, site.outputs), 0.0))


class _Given(PosteriorModule):
    def __init__(self, weights: Tensor):
        super().__init__()
        self.weights = nn.Parameter(weights)

    def draw(
        self, features: Tensor | None, prior_precision: SymmetricOperator, noise: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.weights, noise.new_zeros(())


def _plain(values: Tensor) -> list[float]:
    return [float(f"{value:.6g}") for value in values.flatten().tolist()]
