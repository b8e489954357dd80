"""Run Markov chains side by side on NumPyro, in two phases, which can be paused and resumed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from gilib.baselines.chains import HMCSettings
from gilib.optional import require
from gilib.persistence import CheckpointError, read, write
from gilib.training import Paused

Array = Any  # jax.Array: JAX is optional
LogJoint = Callable[[Sequence[Array]], Array]
PHASES = ("burn-in", "sampling")
PIECES = 20  # of a phase: chains are saved, and progress is shown, after each piece
OF_JITTER = 2**20  # folded into keys for step sizes; small numbers might give NumPyro's keys of momenta
FORMAT = "gilib sampling 1"


class StuckChainError(RuntimeError):
    """A chain accepted no proposal, so its states show only where it started."""


@dataclass(frozen=True)
class Target:
    """The density to sample, in the coordinates of the steps."""

    log_joint: LogJoint  # log joint density of the weights
    scales: Sequence[float]  # prior standard deviation of the weights of every layer
    scaled: bool  # whether coordinates are weights divided by their prior standard deviation

    def weights(self, position: Sequence[Array]) -> Sequence[Array]:
        """Convert coordinates, with any leading axes, to weights."""
        if not self.scaled:
            return position
        return [scale * z for scale, z in zip(self.scales, position, strict=True)]

    def potential(self, position: Sequence[Array]) -> Array:
        """Return minus the log joint density of the WEIGHTS; the constant Jacobian does not matter."""
        return -self.log_joint(self.weights(position))


@dataclass(frozen=True)
class ChainCheckpoint:
    """The file for unfinished chains, and the time at which they pause."""

    path: Path | None = None  # None: chains are neither saved nor paused
    fingerprint: str = ""  # hash of the data and settings
    deadline: float | None = None  # value of `time.monotonic()` after which chains pause; None: never

    def read(self) -> dict[str, Any] | None:
        """Return the saved content, or None if there is no file."""
        if self.path is None or not self.path.exists():
            return None
        content = read(self.path, FORMAT)
        if content.pop("fingerprint", None) != self.fingerprint:
            raise CheckpointError(
                f"{self.path} belongs to other data or settings: choose another file, or delete it"
            )
        del content["format"]
        return content

    def save(self, content: dict[str, Any]) -> None:
        """Save the chains; pause after the deadline."""
        if self.path is None:
            return
        write(self.path, {"format": FORMAT, "fingerprint": self.fingerprint, **content})
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Paused(f"the time is over: {self.path} holds the chains so far")


@dataclass
class ChainProgress:
    """The progress of all chains."""

    start: list[torch.Tensor]  # positions at the start of the phase, a tensor for every layer
    acceptance: torch.Tensor  # mean acceptance probability in each phase, `[2, chains]`
    phase: int = 0  # 0 in burn-in, 1 after it
    done: int = 0  # number of states of this phase so far
    state: list[torch.Tensor] = field(default_factory=list)  # NumPyro's; empty at the start of a phase
    kept: list[list[torch.Tensor]] = field(default_factory=list)  # pieces `[chains, n, I, O]` of every layer
    energies: list[torch.Tensor] = field(default_factory=list)  # potential, of these states, `[chains, n]`
    seconds: float = 0.0  # time spent so far


@dataclass(frozen=True)
class Sampler:
    """Runs both phases of all chains, side by side."""

    target: Target
    settings: HMCSettings
    progress: bool
    stop: ChainCheckpoint = ChainCheckpoint()

    def run(self, widths: Sequence[int]) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor, float]:
        """Return weights `[chains, kept, I, O]`, log joints `[chains, kept]`, acceptance, and seconds."""
        settings, saved = self.settings, self.stop.read()
        if saved is None:
            nowhere = torch.full((len(PHASES), settings.chains), torch.nan, dtype=torch.float64)
            standing = ChainProgress([torch.as_tensor(part) for part in self._start(widths)], nowhere)
        else:
            standing = ChainProgress(**saved)
        random = require("jax.random", "hmc")
        keys = random.split(random.key(settings.seed), len(PHASES))
        for phase in range(standing.phase, len(PHASES)):
            if phase > standing.phase:
                standing.phase, standing.done, standing.state = phase, 0, []
            self._phase(keys[phase], standing)
        states = [torch.cat(parts, 1).numpy() for parts in zip(*standing.kept, strict=True)]
        weights = [torch.as_tensor(layer) for layer in self.target.weights(states)]
        return weights, -torch.cat(standing.energies, 1), standing.acceptance, standing.seconds

    def _start(self, widths: Sequence[int]) -> list[np.ndarray]:
        """Draw a start for each chain, `[chains, I, O]`."""
        generator, chains = np.random.default_rng(self.settings.seed), self.settings.chains
        shapes = [(chains, inputs + 1, outputs) for inputs, outputs in itertools.pairwise(widths)]
        position = [generator.standard_normal(shape) for shape in shapes]
        if self.settings.start == "prior" and not self.target.scaled:
            return [scale * normal for scale, normal in zip(self.target.scales, position, strict=True)]
        return position

    def _phase(self, key: Array, standing: ChainProgress) -> None:
        """Run the rest of a phase; raise an error if a chain did not move."""
        settings, burn_in = self.settings, standing.phase == 0
        steps, thin = (settings.burn_in, 1) if burn_in else (settings.samples, settings.thin)
        if standing.done == steps:
            return
        began = time.perf_counter()
        skip, keep, state = self._begin(key, standing)
        bar = tqdm(total=steps, initial=standing.done, desc=PHASES[standing.phase], disable=not self.progress)
        with bar:
            for size in self._pieces(steps, thin, standing.done):
                if first := size if burn_in else size % thin:
                    state = skip(state, first)
                if not burn_in:
                    state, states, energies = keep(state, size // thin, thin)
                    standing.kept.append([_tensor(layer).transpose(0, 1) for layer in states])
                    standing.energies.append(_tensor(energies).T)
                standing.state = _leaves(state)
                standing.done += size
                if standing.done == steps:
                    self._end(state, steps, standing)
                began, before = time.perf_counter(), began
                standing.seconds += began - before
                self.stop.save(vars(standing))
                bar.update(size)

    def _begin(
        self, key: Array, standing: ChainProgress
    ) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
        """Return compiled functions that skip states and that keep states, and the initial state."""
        jax, infer = require("jax", "hmc"), require("numpyro.infer", "hmc")
        kernel = infer.HMC(
            potential_fn=jax.jit(self.target.potential),
            step_size=self._step_size(standing.phase),
            num_steps=self.settings.leapfrog_steps,
            trajectory_length=None,
            adapt_step_size=False,
            adapt_mass_matrix=False,
        )
        start = [jax.numpy.asarray(part.numpy()) for part in standing.start]
        state = kernel.init(jax.random.split(key, self.settings.chains), 0, start, (), {})
        if standing.state:
            state = _with_leaves(state, standing.state)

        step_size, jitter = self._step_size(standing.phase), self.settings.jitter

        def proposed(_: int, now: Any) -> Any:
            if jitter:
                keys = jax.vmap(jax.random.fold_in, (0, None))(now.rng_key, OF_JITTER)
                shares = jax.vmap(lambda key: jax.random.uniform(key, minval=-jitter, maxval=jitter))(keys)
                sizes = now.adapt_state._replace(step_size=step_size * (1.0 + shares))
                now = now._replace(adapt_state=sizes)
            return kernel.sample(now, (), {})

        def skip(state: Any, steps: int) -> Any:
            return jax.lax.fori_loop(0, steps, proposed, state)

        def keep(state: Any, count: int, thin: int) -> Any:
            def next_kept(state: Any, _: None) -> Any:
                state = skip(state, thin)
                return state, (state.z, state.potential_energy)

            state, (states, energies) = jax.lax.scan(next_kept, state, length=count)
            return state, states, energies

        return jax.jit(skip), jax.jit(keep, static_argnums=1), state

    def _end(self, state: Any, steps: int, standing: ChainProgress) -> None:
        chains, end = self.settings.chains, [_tensor(part) for part in state.z]
        standing.acceptance[standing.phase] = _tensor(state.mean_accept_prob)
        stuck = (standing.start[0] == end[0]).reshape(chains, -1).all(1)
        if stuck.any():
            raise StuckChainError(
                f"{int(stuck.sum())} of {chains} chains accepted none of {steps} proposals of the "
                f'{PHASES[standing.phase]} phase: use start="prior", or make its step size smaller than '
                f"{self._step_size(standing.phase)}"
            )
        standing.start = end

    def _pieces(self, steps: int, thin: int, done: int) -> Iterator[int]:
        """Yield the sizes of the remaining pieces of a phase; all but the first are multiples of `thin`."""
        pieces = 1 if self.stop.path is None and not self.progress else PIECES
        piece = thin * -(-steps // (pieces * thin))
        while done < steps:
            size = (steps - done) % piece or piece
            yield size
            done += size

    def _step_size(self, phase: int) -> float:
        return self.settings.step_size if phase else self.settings.step_size_burn_in


def _leaves(state: Any) -> list[torch.Tensor]:
    """Return the arrays of a NumPyro state, random keys as integers."""
    jax = require("jax", "hmc")
    leaves = jax.tree.leaves(state)
    return [_tensor(jax.random.key_data(leaf)).long() if _is_key(leaf) else _tensor(leaf) for leaf in leaves]


def _with_leaves(like: Any, leaves: list[torch.Tensor]) -> Any:
    jax = require("jax", "hmc")
    given, structure = jax.tree.flatten(like)
    return structure.unflatten(
        jax.random.wrap_key_data(jax.numpy.asarray(leaf.numpy().astype("uint32")))
        if _is_key(old)
        else jax.numpy.asarray(leaf.numpy(), dtype=old.dtype)
        for leaf, old in zip(leaves, given, strict=True)
    )


def _is_key(leaf: Array) -> bool:
    jax = require("jax", "hmc")
    return jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _tensor(values: Any) -> torch.Tensor:
    return torch.as_tensor(np.array(values))
