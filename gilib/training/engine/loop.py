"""One training loop for every rule, with a progress bar, checkpoints and resumption."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from gilib.config import plain
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.persistence import check_plain
from gilib.training.callbacks import Callback, CallbackFunction, as_callbacks
from gilib.training.engine.checkpoints import Identity, identity_of
from gilib.training.engine.checks import (
    as_checkpoint,
    as_data,
    check_arithmetic,
    check_data,
    check_differentiable,
    check_settings,
    input_range,
)
from gilib.training.engine.minibatches import Augmentation
from gilib.training.engine.run import READ_EVERY, Paused, Run
from gilib.training.engine.settings import Checkpoint, Settings
from gilib.training.gradients.objective import preferred_estimator
from gilib.training.gradients.parallel import OneProcess, digest
from gilib.training.gradients.replay import check_replay
from gilib.training.gradients.speed import Speed
from gilib.training.history import History
from gilib.training.rules.adam import Adam
from gilib.training.rules.base import Rule
from gilib.training.schedules import LinearDecay
from gilib.validation import check_count, check_instance


def fit(
    net: Network,
    likelihood: Likelihood,
    x: Tensor | np.ndarray,
    y: Tensor | np.ndarray,
    *,
    steps: int = 1000,
    rule: Rule = Adam(0.05, schedule=LinearDecay()),  # noqa: B008 (frozen)
    num_samples: int | None = None,
    estimator: str | None = None,
    kl_weight: Callable[[int], float] | None = None,
    batch_size: int | None = None,
    seed: int | Sequence[int] = 0,
    augment: Augmentation | None = None,
    on_divergence: str = "raise",
    checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    speed: Speed = Speed(),  # noqa: B008
    callbacks: Sequence[Callback | CallbackFunction] = (),
    progress: bool = True,
) -> History:
    """Train by a rule, by default Adam on the ELBO, one network or R replicas in one program.

    A network with replicas trains all of them at once. Given R seeds, replica r sees the noise, minibatches
    and augmentation that a network of its own would see with `seed=seeds[r]` (on an accelerator: one with
    `replicas=(1,)` and `seed=[seeds[r]]`), and ends where that one would, but for rounding; under
    `PerReplica` priors of several kinds the noise is that of a network with all of these kinds.

    Args:
        net: trained in place.
        likelihood: trained in place if it has learned parameters.
        x: training inputs, `[N, D]` or `[R, N, D]`, normalised. At one draw a step, images are faster with
            their channels last in memory (`torch.channels_last`); minibatches keep that.
        y: training targets, `[N, O]` or `[R, N, O]`, or labels `[N]`, `[R, N]`. Arrays of numpy are taken
            for both, and become tensors as the network's.
        steps: in all; a resumed run does the rest of them. Fewer are done if the rule ends by itself. Whether
            more pay shows the bound of twice as many.
        rule: what a step does; `gilib.Adam(lr, groups=..., schedule=...)`, or a `gilib.training.Rule`.
            The rate is what most often needs a change: see `Adam`. The default, a high rate for half the
            steps that then falls to zero, is that of `gilib.recommended`, as that of `steps` is. A training
            whose rates follow the number of steps goes on only over as many.
        num_samples: S, draws a step; None: what the rule takes, five for most. Fewer make a step cheaper and
            its gradient noisier; one is enough where a step is expensive (images), more help where the bound
            jumps from step to step.
        estimator: "draw", functions; or "pointwise", which integrates out what it can and samples every point
            anew (`Network.estimate`; of factorised weights: local reparameterisation, of kernels: flipout).
            None: what the layers prefer, which is to be drawn unless they say otherwise.
        kl_weight: tempering as a function of the step, such as `gilib.objectives.SteppedTempering`, which is
            asked once for every step, before the first; None: 1.
        batch_size: points a step, drawn without replacement in each epoch; None: all, which is best up to a
            few thousand points.
        seed: of draws and minibatches, or R of them.
        augment: what is done to the inputs of every step, `augment(x, generator=...)`, for example
            `gilib.data.random_flip_and_crop`; its stream is seeded and resumed apart from the others (given R
            seeds, one stream for each replica).
        on_divergence: "raise", or "freeze": a replica whose bound or gradient is not finite, or whose
            factorisation fails, keeps its last parameters, and the others go on.
        checkpoint: `gilib.training.Checkpoint(path, every=..., deadline=...)`, or the path of a file to
            resume from if it exists, and to keep up to date; None: neither.
        speed: `gilib.training.Speed`: arithmetic, replayed steps, several processes.
        callbacks: functions of step, bound and net, called after every step, that may end the training by
            returning True; `gilib.training.Callback` says more. Several processes end at the next hundredth
            step.
        progress: whether to show a bar.

    Returns:
        The `History`.

    Raises:
        ValueError, TypeError: for arguments that do not fit, before any work starts.
        OSError: if the checkpoint cannot be written, likewise.
        CheckpointError: if the checkpoint is damaged, or of another model, data set or setting.
        DivergenceError, FactorisationError: if training breaks down; the last checkpoint stays.
        Paused: at the deadline; call again with the same arguments to go on.

    >>> import torch, gilib
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net = gilib.models.mlp(1, (5,), 1, inducing_points=x)
    >>> history = gilib.fit(net, gilib.Gaussian(0.1), x, x.square(), steps=3, progress=False)
    >>> history.elbo.shape
    torch.Size([3])
    """
    check_instance(net, Network, "net")
    check_instance(progress, bool, "progress")
    settings = Settings(
        rule=rule,
        num_samples=check_instance(rule, Rule, "rule").samples if num_samples is None else num_samples,
        estimator=preferred_estimator(net) if estimator is None else estimator,
        kl_weight=kl_weight,
        batch_size=batch_size,
        seed=plain(seed),
        augment=augment,
        on_divergence=on_divergence,
        arithmetic=check_instance(speed, Speed, "speed").arithmetic,
    )
    check_settings(net, likelihood, settings)
    x, y = as_data(net, x, y)
    check_data(net, likelihood, x, y)
    check_differentiable(x, y, *net.parameters(), *likelihood.parameters())
    check_arithmetic(speed.arithmetic, x)
    check_count(steps, "steps")
    kept = as_checkpoint(checkpoint, settings)
    processes = OneProcess() if speed.parallel is None else speed.parallel
    run = Run(net, likelihood, x, y, steps, settings, processes, speed.replay, as_callbacks(callbacks))
    for callback in run.callbacks:
        callback.check(net, likelihood)
    try:
        if speed.replay:
            check_replay(x.device, processes.size, run.rule.recordable)
        named = kept is not None or speed.parallel is not None
        identity = identity_of(net, likelihood, x, y, settings.identity()) if named else Identity()
        start = _restored(run, kept, speed, identity)
        with torch.enable_grad():
            _train(run, kept, identity, start, progress)
            for callback in run.callbacks:
                callback.end(net)
    finally:
        run.release()
    net.trained_range = input_range(x, len(net.input_shape))
    return run.history(start)


def _restored(run: Run, checkpoint: Checkpoint | None, speed: Speed, identity: Identity) -> int:
    """The step to start from, once all processes agree upon it."""
    for callback in run.callbacks:
        callback.begin()
        if checkpoint is not None:
            check_plain(callback.state_dict(), f"state_dict() of {type(callback).__name__}")
    path = None if checkpoint is None else Path(checkpoint.path)
    start = run.restore(path, identity) if path is not None and path.exists() else 0
    if speed.parallel is not None:
        device, settings = run.trace.device, run.settings
        speed.parallel.check(device, run.batches.size)
        stops = None if checkpoint is None else (checkpoint.every, checkpoint.deadline is None)
        same = (
            identity.fingerprint,
            run.steps,
            stops,
            settings.on_divergence,
            len(run.callbacks),
            run.kl_weights,
        )
        described = {"settings or data": f"{same}", "checkpoint": f"{start}"}
        speed.parallel.check_same(described | {"parameters": digest(run.modules)}, device)
    return start


def _train(run: Run, checkpoint: Checkpoint | None, identity: Identity, start: int, progress: bool) -> None:
    """Do the steps from `start` on, with a bar and checkpoints."""
    quiet = not progress or run.processes.rank > 0
    with tqdm(total=run.steps, initial=start, disable=quiet, desc="fit", unit="step") as bar:
        while run.done < run.steps and not run.ended:
            run.step(run.done)
            read = run.done % READ_EVERY == 0 or run.done == run.steps
            end = run.end(read)
            if read or end:
                bar.set_postfix(elbo=f"{run.latest():.3f}", refresh=False)
                bar.update(run.done - bar.n)
            if checkpoint is not None:
                _keep(run, checkpoint, identity, read, end)


def _keep(run: Run, checkpoint: Checkpoint, identity: Identity, read: bool, end: bool) -> None:
    """Write the checkpoint if it is time to."""
    late = not end and run.is_late(checkpoint.deadline, read)
    if late or end or run.done % checkpoint.every == 0:
        run.latest()
        run.save(Path(checkpoint.path), identity)
    if late:
        raise Paused(f"paused at step {run.done} of {run.steps}: {checkpoint.path} holds what was done")
