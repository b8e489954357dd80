"""The moving parts of one training: batches, draws, optimiser, trace."""

from __future__ import annotations

import time
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
from gilib.randomness import Noise, ReplicaGenerators, Source
from gilib.training.augment import Augmenter
from gilib.training.batches import Minibatches
from gilib.training.graph import Replay
from gilib.training.optimiser import ReplicaAdam, optimiser
from gilib.training.parallel import OneProcess
from gilib.training.settings import Settings
from gilib.training.speed import evaluated_in, products
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
        processes: OneProcess,
        cuda_graph: bool = False,
    ):
        """Set everything up for step 0."""
        self.modules = nn.ModuleDict({"net": net, "likelihood": likelihood})
        self.net, self.likelihood, self.steps, self.settings = net, likelihood, steps, settings
        self.processes = processes
        self.replay = Replay(self._minimise) if cuda_graph else None
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
        schedule, samples = self.settings.kl_weight, self.settings.num_samples
        weight = 1.0 if schedule is None else float(schedule(step))
        if self.settings.estimator == "draw":
            noise = Noise(self.net.base_noise(samples, self.noise), torch.empty(0))
        else:
            noise = self.net.estimate_noise(samples, self.batches.size, self.noise)
        self.optimiser.advance()
        if self.replay is not None:
            bound = self.replay(x, y, *noise, torch.full((), weight, dtype=x.dtype, device=x.device))
        else:
            bound = self._minimise(x, y, *noise, weight)
        self.trace[step] = bound
        if isinstance(self.optimiser, ReplicaAdam):
            self.diverged_at.masked_fill_(~self.optimiser.active & (self.diverged_at < 0), step)

    def _minimise(self, x: Tensor, y: Tensor, base: Tensor, points: Tensor, kl_weight: Any) -> Tensor:
        """Draw, differentiate and update, together with the other processes; return the bound, `[R]`."""
        with products("ieee"), self.processes.together(x.device):
            share = self._bound_of_share(x, y, Noise(base, points), kl_weight)
            gradients = self.optimiser.differentiate(-share.sum())
        bound = share.detach()
        self.processes.total([bound, *gradients])
        self.optimiser.update(bound.isfinite())
        return bound

    def _bound_of_share(self, x: Tensor, y: Tensor, noise: Noise, kl_weight: Any) -> Tensor:
        """What this process's points add to the bound per data point, `[R]`."""
        settings, axis = self.settings, self.batches.axis
        own = self.processes.share(x, axis)
        part = own.shape[axis] / x.shape[axis]
        with failures_as_nan() if settings.freeze else nullcontext():
            if settings.estimator == "draw":
                drawn: Any = self.net.draw(noise=noise.draw)
            else:
                points = self.processes.share(noise.points, -2)
                drawn = self.net.estimate(noise=Noise(noise.draw, points))
            bound = elbo(
                evaluated_in(drawn, settings.arithmetic, x.device),
                self.likelihood,
                own,
                self.processes.share(y, self.batches.y_axis),
                num_data=self.batches.num_data,
                per_point=True,
                kl_weight=kl_weight,
            )
        return bound if part == 1.0 else part * bound

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

    def is_late(self, deadline: float | None, look: bool) -> bool:
        """Whether the deadline is over for one of the processes; several ask only where they wait anyway."""
        if deadline is None or (self.processes.size > 1 and not look):
            return False
        return self.processes.any(time.monotonic() > deadline, self.trace.device)

    def history(self, start: int) -> History:
        """What was recorded by the end."""
        return History(self.trace.cpu(), start, self.diverged_at.cpu() if self.settings.freeze else None)

    def save(self, path: Path, fingerprint: str, step: int) -> None:
        """Write everything that the next step depends on; one process does, all wait for it."""
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
        if self.processes.rank == 0:
            write_checkpoint(path, content)
        self.processes.wait(self.trace.device)

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
