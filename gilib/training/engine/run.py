"""One training in progress: batches, noise, recorded bounds, divergence and checkpoints."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arithmetic import exact_products, products_in
from gilib.likelihoods import Likelihood
from gilib.likelihoods.weighted import Weighted
from gilib.network import Network
from gilib.persistence import CheckpointError
from gilib.randomness import GeneratorLike, Noise, ReplicaGenerators
from gilib.training.callbacks import Callback, says_stop
from gilib.training.engine.checkpoints import Identity, check_kl_weights, read_checkpoint, write_checkpoint
from gilib.training.engine.minibatches import Augmenter, Minibatches
from gilib.training.engine.settings import Settings, name_of
from gilib.training.gradients.objective import Batch, Objective
from gilib.training.gradients.parallel import OneProcess
from gilib.training.gradients.replay import Replay
from gilib.training.history import PART, History
from gilib.training.rules.base import Problem, RunningRule
from gilib.validation import check_instance

READ_EVERY = 100  # steps between looks at the objective: the only times that an accelerator is waited for


class DivergenceError(RuntimeError):
    """The objective became NaN or infinite."""


class Paused(RuntimeError):
    """Training stopped at its deadline; its checkpoint contains everything that is needed to go on."""


class Run:
    """One training of one network, or of R replicas, in progress."""

    def __init__(
        self,
        net: Network,
        likelihood: Likelihood,
        x: Tensor,
        y: Tensor,
        steps: int,
        settings: Settings,
        processes: OneProcess,
        replay: bool | None = False,
        callbacks: Sequence[Callback] = (),
    ):
        self.modules = nn.ModuleDict({"net": net, "likelihood": likelihood})
        self.net, self.steps, self.settings, self.processes = net, steps, settings, processes
        self.callbacks, self.done, self.stopped, self.ended, self.stopped_by = callbacks, 0, False, False, ""
        self.kl_weights = settings.kl_weights(steps)
        rank = 1 + len(net.input_shape)
        axes = -rank, likelihood.points_axis
        self.batches = Minibatches(x, y, *axes, settings.batch_size, settings.seeds(1))
        self.augmenter = None
        if settings.augment is not None:
            self.augmenter = Augmenter(settings.augment, rank, settings.seeds(2), x.device)
        self.noise = _source(settings.seed, x.device)
        weights = likelihood.parts(y)[1] if isinstance(likelihood, Weighted) else x.new_ones(())
        self.per_row = weights.mean().reciprocal()  # rules know rows, not how often each counts
        self.problem = self._problem(likelihood, x.device)
        self.alone = [p for p in self.problem.parameters.values() if _has_own_memory(p)]
        self.rule = check_instance(settings.rule.begin(self.problem), RunningRule, "what begin returns")
        if settings.freeze:
            self.rule.check_freeze()
        recorded = replay or (replay is None and self.rule.recordable)
        self.replay = Replay(self._recorded, x.device, asked=bool(replay)) if recorded else None
        self.trace = torch.full((steps, *net.replicas), torch.nan, dtype=x.dtype, device=x.device)
        self.lasted = torch.zeros(net.replicas, dtype=torch.long, device=x.device)  # steps of each replica

    def _problem(self, likelihood: Likelihood, device: torch.device) -> Problem:
        net, settings = self.net, self.settings
        how = settings.num_samples, settings.estimator, settings.arithmetic
        objective = Objective(net, likelihood, self.batches.num_data, *how, device, settings.freeze)
        named = self.modules.named_parameters()
        parameters = {name.removeprefix("net."): p for name, p in named if p.requires_grad}
        return Problem(
            net=net,
            likelihood=likelihood,
            parameters=parameters,
            objective=objective,
            steps=self.steps,
            generator=_source(settings.seeds(3), device),
            processes=self.processes,
            device=device,
            inputs=self.batches.x if self.augmenter is None else None,
        )

    def step(self, step: int) -> None:
        """Do one step of the rule, then call the callbacks."""
        if not all(parameter.requires_grad for parameter in self.problem.parameters.values()):
            raise ValueError("a parameter was frozen while it was trained: freeze it before the training")
        x, y = self.batches.next()
        if self.augmenter is not None:
            x = self.augmenter(x)
        # A recording keeps the numbers of the host, so a weight that changes must be a tensor.
        weight = x.new_full((), 1.0 if self.kl_weights is None else self.kl_weights[step])
        noise = self.problem.objective.noise(self.batches.size, self.noise)
        self.rule.prepare(step)
        with products_in("ieee") if self.settings.arithmetic == "tf32" else exact_products():
            if self.replay is None:
                bound = self.rule.step(self._share(Batch(step, x, y, noise, weight)))
            else:
                self.replay.follow(self.rule.phase)
                bound = self.replay(x, y, weight, *noise)
        # Bounds and failures stay on the device: reading them at every step would stall an accelerator.
        self.trace[step] = bound * self.per_row
        self.lasted += self.rule.active
        self.done, self.stopped = step + 1, self.stopped or bool(self.rule.ended)
        for callback in self.callbacks:
            if says_stop(callback(self.done, self.trace[step], self.net), callback):
                self.stopped, self.stopped_by = True, self.stopped_by or callback.describe()

    @property
    def diverged_at(self) -> Tensor:
        """The step at which each replica diverged, `[R]`; -1 for replicas that did not."""
        return self.lasted.masked_fill(self.rule.active, -1)

    def _recorded(self, x: Tensor, y: Tensor, kl_weight: Tensor, *noise: Tensor) -> Tensor:
        """Do the step that is recorded; numbers of the host, such as the step, stay as they are then."""
        return self.rule.step(Batch(self.done, x, y, Noise(*noise), kl_weight))

    def _share(self, batch: Batch) -> Batch:
        x = self.processes.shard(batch.x, self.batches.axis)
        y = self.processes.shard(batch.y, self.batches.y_axis)
        fraction = x.shape[self.batches.axis] / batch.x.shape[self.batches.axis]
        noise = Noise(batch.noise.draw, self.processes.shard(batch.noise.points, -2))
        return replace(batch, x=x, y=y, noise=noise, fraction=fraction)

    def latest(self) -> float:
        """Return the mean of the last bounds, or raise if they are not finite, with step and cause."""
        done = self.trace[: self.done].reshape(self.done, -1)
        if self.settings.freeze:
            return float(done[-READ_EVERY:].nanmean())
        if bool(self.rule.active.all()) and bool(done[-READ_EVERY:].isfinite().all()):
            return float(done[-READ_EVERY:].mean())
        # A finite bound can have an infinite gradient, of which only `active` tells.
        bad = (~done.isfinite().all(1)).nonzero()
        first = int(bad[0]) if len(bad) else int(self.diverged_at.max())
        name_the_layer(self.net)
        raise DivergenceError(
            f"the ELBO or its gradient was not finite at step {first} (seen at {self.done}): "
            "lower lr, or factorise in float64 (factor_dtype='float64')"
        )

    def end(self, read: bool) -> bool:
        """Return whether all steps are done, or a callback stopped; processes agree where they read."""
        if self.processes.size > 1 and self.callbacks:
            self.ended = read and self.processes.any(self.stopped, self.trace.device)
        else:
            self.ended = self.stopped
        return self.ended or self.done == self.steps

    def is_late(self, deadline: float | None, read: bool) -> bool:
        """Return whether the deadline has passed for some process; they ask each other as in `end`."""
        if deadline is None or (self.processes.size > 1 and not read):
            return False
        return self.processes.any(time.monotonic() > deadline, self.trace.device)

    def release(self) -> None:
        """Drop the recording, and give parameters their own memory, which `ReplicaAdam` has joined."""
        self.replay = None
        for parameter in self.alone:
            if not _has_own_memory(parameter):
                parameter.data = parameter.detach().clone()

    def history(self, start: int) -> History:
        """Return the `History` of the steps that were done."""
        diverged_at = self.diverged_at.cpu() if self.settings.freeze else None
        last, tail = self.done - 1, self.done - self.done // PART
        first, final = (self.settings.rule.factor(step, self.steps) for step in (tail, last))
        early, elbo = self.done < self.steps and not self.rule.ended, self.trace[: self.done].cpu()
        stopped_by = (self.stopped_by or "a callback") if early else ""
        return History(elbo, start, diverged_at, self.rule.ended, final < first, stopped_by)

    def save(self, path: Path, identity: Identity) -> None:
        """Write a checkpoint; process 0 writes it, and all processes wait."""
        content = {
            "fingerprint": identity.fingerprint,
            "parts": dict(identity.parts),
            "step": self.done,
            "stopped": [self.stopped, self.ended, self.stopped_by],
            "modules": {name: value.clone() for name, value in self.modules.state_dict().items()},
            "rule": self.rule.state_dict(),
            "active": self.rule.active,
            "noise": [source.get_state() for source in (self.noise, self.problem.generator)],
            "batches": self.batches.state(),
            "augmentation": None if self.augmenter is None else self.augmenter.state(),
            "callbacks": [(name_of(type(c)), state) for c in self.callbacks if (state := c.state_dict())],
            "kl_weights": self.kl_weights,
            "trace": self.trace[: self.done].cpu(),
            "diverged_at": self.diverged_at,
        }
        if self.processes.rank == 0:
            write_checkpoint(path, content)
        self.processes.wait(self.trace.device)

    def restore(self, path: Path, identity: Identity) -> int:
        """Continue from a checkpoint of the same training, and return its step."""
        content = read_checkpoint(path, identity, self.steps)
        check_kl_weights(content["kl_weights"], self.kl_weights, path)
        self._restore_callbacks(content["callbacks"], path)
        self.rule.load_state_dict(content["rule"])
        self.rule.active.copy_(content["active"])
        self.modules.load_state_dict(content["modules"])
        for source, state in zip((self.noise, self.problem.generator), content["noise"], strict=True):
            source.set_state(state)
        self.batches.restore(content["batches"])
        if self.augmenter is not None:
            self.augmenter.restore(content["augmentation"])
        self.done, (self.stopped, self.ended, self.stopped_by) = int(content["step"]), content["stopped"]
        self.trace[: self.done] = content["trace"].to(self.trace)
        self.lasted.copy_(content["diverged_at"]).masked_fill_(self.rule.active, self.done)
        return self.done

    def _restore_callbacks(self, states: Sequence[tuple[str, dict[str, Any]]], path: Path) -> None:
        stateful = [callback for callback in self.callbacks if callback.state_dict()]
        given, kept = [name_of(type(callback)) for callback in stateful], [name for name, _ in states]
        if given != kept:
            raise CheckpointError(
                f"{path} holds the states of callbacks {kept}, but {given} were given: give the same ones"
            )
        for callback, (_, state) in zip(stateful, states, strict=True):
            callback.load_state_dict(state)


def _has_own_memory(parameter: Tensor) -> bool:
    return parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()


def _source(seed: int | Sequence[int], device: torch.device) -> GeneratorLike:
    if isinstance(seed, int):
        return torch.Generator(device).manual_seed(seed)
    return ReplicaGenerators(seed, device)


def name_the_layer(net: Network) -> None:
    """Raise an error that names layer and matrix if one of ten draws fails on the CPU."""
    twin = copy.deepcopy(net).cpu()
    with torch.no_grad():
        twin.draw(10, generator=torch.Generator().manual_seed(0))
