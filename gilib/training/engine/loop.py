"""The training loop for every rule, with a progress bar, checkpoints and resumption."""

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
from gilib.likelihoods.weighted import Weighted, with_weights
from gilib.network import Network
from gilib.persistence import check_plain
from gilib.training.callbacks import Callback, CallbackFunction, as_callbacks
from gilib.training.engine import checks
from gilib.training.engine.checkpoints import Identity, hash_of, identity_of
from gilib.training.engine.minibatches import Augmentation
from gilib.training.engine.run import READ_EVERY, Paused, Run
from gilib.training.engine.settings import Checkpoint, Settings
from gilib.training.gradients.objective import preferred_estimator
from gilib.training.gradients.parallel import OneProcess
from gilib.training.gradients.replay import check_replay, is_known
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
    weights: Tensor | np.ndarray | None = None,
    callbacks: Sequence[Callback | CallbackFunction] = (),
    progress: bool = True,
) -> History:
    """Train one network, or R replicas at once, by a rule; the default is Adam on the ELBO.

    With R seeds, replica r sees the same noise, minibatches and augmentation as a single network with
    `seed=seeds[r]`, and ends in the same state up to rounding. (On an accelerator, compare with a network
    with `replicas=(1,)` and `seed=[seeds[r]]`; under `PerReplica` priors, with one whose prior has all the
    kinds.)

    Args:
        net: the network; it is trained in place.
        likelihood: the likelihood; its learned parameters, if any, are trained in place.
        x: training inputs, `[N, D]` or `[R, N, D]`, normalised; a tensor or a numpy array. At one draw a
            step, images train faster in the memory layout `torch.channels_last`, which minibatches keep.
        y: training targets, `[N, O]` or `[R, N, O]`, or labels, `[N]` or `[R, N]`; a tensor or a numpy array.
            Numpy arrays become tensors with the network's dtype and device.
        steps: total number of steps, including those done before a resumption. A rule may end the training
            earlier. To see whether more steps help, compare with the bound after twice as many.
        rule: what a step does; `gilib.Adam(lr, groups=..., schedule=...)`, or another `gilib.training.Rule`.
            The learning rate is the setting that most often needs a change: see `Adam`. If the rates depend
            on the total number of steps, the training can only be resumed with the same `steps`.
        num_samples: S, the number of draws a step; None: the rule's default, which is five for most rules.
            One is enough where a step is expensive (images); more help where the bound jumps.
        estimator: "draw" evaluates sampled functions. "pointwise" integrates out what it can and samples
            every point separately (`Network.estimate`; local reparameterisation for factorised weights,
            flipout for kernels). None: "pointwise" if a layer prefers it, as `GP` does; otherwise "draw".
        kl_weight: the weight of the Kullback-Leibler term as a function of the step, such as
            `gilib.objectives.SteppedTempering`, called for all steps before the first one; None: 1.
        batch_size: points a step, drawn without replacement in each epoch; None: all points, which is best up
            to a few thousand.
        seed: seed of draws and minibatches, or R seeds, one for each replica.
        augment: a random function of the inputs, applied at every step as `augment(x, generator=...)`, such
            as flips of images. With R seeds, every replica has a generator of its own.
        on_divergence: "raise" stops with an error. "freeze" keeps the last parameters of a replica whose
            bound or gradient is not finite, or whose factorisation fails, and goes on with the others.
        checkpoint: `gilib.training.Checkpoint(path, every=..., deadline=...)`, or the path of a file.
            Training resumes from that file if it exists, and keeps it up to date; None: no checkpoint.
        speed: `gilib.training.Speed`: arithmetic, replayed steps, several processes.
        weights: how many rows each row counts as, `[N]`, positive numbers; None: one. The bound is that of
            repeated rows, and it is reported per counted row.
        callbacks: functions of step, bound and net, called after every step, that may return True to stop the
            training; see `gilib.training.Callback`. Several processes stop at the next multiple of a hundred
            steps.
        progress: whether to show a progress bar.

    Returns:
        The `History`.

    Raises:
        ValueError, TypeError: for arguments that do not fit, before any work starts.
        OSError: if the checkpoint cannot be written, before any work starts.
        CheckpointError: if the checkpoint is damaged, or belongs to another model, data set or setting.
        DivergenceError, FactorisationError: if training breaks down; the last checkpoint remains.
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
    check_instance(rule, Rule, "rule")
    settings = Settings(
        rule=rule,
        num_samples=rule.default_num_samples if num_samples is None else num_samples,
        estimator=preferred_estimator(net) if estimator is None else estimator,
        kl_weight=kl_weight,
        batch_size=batch_size,
        seed=plain(seed),
        augment=augment,
        on_divergence=on_divergence,
        arithmetic=check_instance(speed, Speed, "speed").arithmetic,
    )
    checks.check_settings(net, likelihood, settings)
    x, y = checks.as_data(net, x, y)
    checks.check_data(net, likelihood, x, y)
    trained = likelihood
    if weights is not None:
        trained, y = Weighted(likelihood), with_weights(y, weights, likelihood.target_axes)
    checks.check_differentiable(x, y, *net.parameters(), *likelihood.parameters())
    checks.check_arithmetic(speed.arithmetic, x)
    check_count(steps, "steps")
    kept = checks.as_checkpoint(checkpoint, settings)
    processes = OneProcess() if speed.parallel is None else speed.parallel
    watching, replay = as_callbacks(callbacks), speed.replay
    known = is_known([rule, *net.modules(), *likelihood.modules(), *callbacks])
    if replay is None and not (known and x.is_cpu and processes.size == 1 and not torch.is_anomaly_enabled()):
        replay = False
    run = Run(net, trained, x, y, steps, settings, processes, replay, watching)
    for callback in run.callbacks:
        callback.check(net, likelihood)
    try:
        if speed.replay:
            check_replay(x.device, processes.size, run.rule.recordable)
        named = kept is not None or speed.parallel is not None
        identity = identity_of(net, trained, x, y, settings.identity()) if named else Identity()
        start = _restored(run, kept, speed, identity)
        with torch.enable_grad():  # callers may be inside torch.no_grad()
            _train(run, kept, identity, start, progress)
            for callback in run.callbacks:
                callback.end(net)
    finally:
        run.release()
    net.trained_range = checks.input_range(x, len(net.input_shape))
    return run.history(start)


def _restored(run: Run, checkpoint: Checkpoint | None, speed: Speed, identity: Identity) -> int:
    """Restore the checkpoint if there is one; return the first step, and raise unless processes agree."""
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
        training = identity.fingerprint, run.steps, stops, settings.on_divergence
        same = *training, len(run.callbacks), run.kl_weights
        parameters = hash_of(*run.modules.state_dict().values())
        described = {"settings or data": f"{same}", "checkpoint": f"{start}", "parameters": parameters}
        speed.parallel.check_same(described, device)
    return start


def _train(run: Run, checkpoint: Checkpoint | None, identity: Identity, start: int, progress: bool) -> None:
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
    late = not end and run.is_late(checkpoint.deadline, read)
    if late or end or run.done % checkpoint.every == 0:
        run.latest()
        run.save(Path(checkpoint.path), identity)
    if late:
        raise Paused(f"paused at step {run.done} of {run.steps}: {checkpoint.path} holds all steps so far")
