"""The moving parts of one training: batches, draws, optimiser, trace."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gilib.likelihoods import Likelihood
from gilib.linalg import failures_as_nan
from gilib.network import Network
from gilib.objectives import elbo
from gilib.randomness import ReplicaGenerators, Source
from gilib.training.augment import Augmenter
from gilib.training.batches import Minibatches
from gilib.training.optimiser import ReplicaAdam, optimiser
from gilib.training.settings import Settings
from gilib.training.state import read_checkpoint, write_checkpoint

READ_EVERY = 100  # steps between looks at the objective: the only times that an accelerator is waited for


class DivergenceError(RuntimeError):
    """The objective became NaN or infinite."""


class Paused(RuntimeError):
    """Training stopped at its deadline, with everything in its checkpoint."""


@dataclass(frozen=True)
class History:
    """What a training recorded.

    Attributes:
        elbo: the (tempered, minibatch) estimate of the ELBO per data point before every step, `[steps]` or
            `[steps, R]`, nats.
        resumed_at: the step at which this run took over from a checkpoint; 0 if it started afresh.
        diverged_at: the step at which each replica was frozen, `[R]`; -1 for those that were not; None
            without on_divergence="freeze".
    """

    elbo: Tensor
    resumed_at: int
    diverged_at: Tensor | None = None


class Run:
    """One training of one network, or of R replicas."""

    def __init__(
        self,
        net: Network,
        likelihood: Likelihood,
        x: Tensor,
        y: Tensor,
        steps: int,
        settings: Settings,
    ):
        """Set everything up for step 0."""
        self.modules = nn.ModuleDict({"net": net, "likelihood": likelihood})
        self.net, self.likelihood, self.steps, self.settings = net, likelihood, steps, settings
        rank = 1 + len(net.input_shape)
        self.batches = Minibatches(x, y, -rank, settings.batch_size, settings.seeds(1))
        self.augmenter = (
            None
            if settings.augment is None
            else Augmenter(settings.augment, rank, settings.seeds(2), x.device)
        )
        self.noise: Source = (
            torch.Generator(x.device).manual_seed(settings.seed)
            if isinstance(settings.seed, int)
            else ReplicaGenerators(settings.seed, x.device)
        )
        self.optimiser = optimiser(self.modules, net.replicas, settings.lr, settings.lr_groups, x.device)
        self.trace = torch.full((steps, *net.replicas), torch.nan, dtype=x.dtype, device=x.device)
        self.diverged_at = torch.full(net.replicas, -1, device=x.device)

    def step(self, step: int) -> None:
        """One gradient step."""
        x, y = self.batches.next()
        if self.augmenter is not None:
            x = self.augmenter(x)
        settings = self.settings
        weight = 1.0 if settings.kl_weight is None else float(settings.kl_weight(step))
        with failures_as_nan() if settings.freeze else nullcontext():
            if settings.estimator == "draw":
                draw: Any = self.net.draw(settings.num_samples, generator=self.noise)
            else:
                draw = self.net.local_reparameterisation(settings.num_samples, generator=self.noise)
            bound = elbo(
                draw, self.likelihood, x, y, num_data=self.batches.num_data, per_point=True, kl_weight=weight
            )
        self.trace[step] = bound.detach()
        if isinstance(self.optimiser, ReplicaAdam):
            before = self.optimiser.active.clone()
            self.optimiser.minimise(-bound.sum(), bound.isfinite())
            self.diverged_at.masked_fill_(before & ~self.optimiser.active, step)
        else:
            self.optimiser.zero_grad()
            (-bound.sum()).backward()
            self.optimiser.step()

    def latest(self, done: int) -> float:
        """The mean of the last bounds, or an error that says when they stopped being numbers."""
        seen = self.trace[:done].reshape(done, -1)
        if self.settings.freeze:
            return float(seen[-READ_EVERY:].nanmean())
        stopped = isinstance(self.optimiser, ReplicaAdam) and not bool(self.optimiser.active.all())
        if stopped or not bool(seen[-READ_EVERY:].isfinite().all()):
            bad = (~seen.isfinite().all(1)).nonzero()
            first = int(bad[0]) if len(bad) else int(self.diverged_at.max())
            self.net.draw(1, generator=self.noise)  # names the layer if a factorisation is to blame
            raise DivergenceError(
                f"the ELBO or its gradient was not finite at step {first} (seen at {done}): "
                "lower lr, or factorise in float64 (factor_dtype='float64')"
            )
        return float(seen[-READ_EVERY:].mean())

    def history(self, start: int) -> History:
        """What was recorded by the end."""
        return History(self.trace.cpu(), start, self.diverged_at.cpu() if self.settings.freeze else None)

    def save(self, path: Path, fingerprint: str, step: int) -> None:
        """Write everything that the next step depends on."""
        content = {
            "fingerprint": fingerprint,
            "step": step,
            "modules": {name: value.clone() for name, value in self.modules.state_dict().items()},
            "optimiser": self.optimiser.state_dict(),
            "noise": self.noise.get_state(),
            "batches": self.batches.state(),
            "trace": self.trace[:step].cpu(),
            "diverged_at": self.diverged_at,
        }
        if self.augmenter is not None:
            content["augmentation"] = self.augmenter.state()
        write_checkpoint(path, content)

    def restore(self, path: Path, fingerprint: str) -> int:
        """Continue from a checkpoint of the same training; return its step."""
        content = read_checkpoint(path, fingerprint, self.steps)
        self.modules.load_state_dict(content["modules"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.noise.set_state(content["noise"])
        self.batches.restore(content["batches"])
        if self.augmenter is not None:
            self.augmenter.restore(content["augmentation"])
        self.trace[: content["step"]] = content["trace"].to(self.trace)
        self.diverged_at.copy_(content["diverged_at"])
        return int(content["step"])
