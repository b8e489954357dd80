"""One training loop: Adam on the ELBO, with a progress bar, checkpoints and resumption."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.training.augment import Augmentation
from gilib.training.checks import (
    check_arithmetic,
    check_data,
    check_schedule,
    check_settings,
)
from gilib.training.graph import check_graph
from gilib.training.optimiser import Rate
from gilib.training.parallel import DataParallel, OneProcess, digest
from gilib.training.run import READ_EVERY, History, Paused, Run
from gilib.training.settings import Schedule, Settings
from gilib.training.state import fingerprint
from gilib.validation import instance


def fit(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    steps: int,
    batch_size: int | None = None,
    num_samples: int = 10,
    lr: Rate = 1e-2,
    lr_groups: Mapping[str, Rate] | None = None,
    seed: int | Sequence[int] = 0,
    estimator: str = "draw",
    kl_weight: Callable[[int], float] | None = None,
    augment: Augmentation | None = None,
    on_divergence: str = "raise",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    deadline: float | None = None,
    arithmetic: str = "full",
    cuda_graph: bool = False,
    parallel: DataParallel | None = None,
    progress: bool = True,
) -> History:
    """Maximise the ELBO with Adam, for one network or for R replicas in one program.

    A network with replicas trains all of them at once. Given R seeds, replica r sees the noise, minibatches
    and augmentation that a network of its own would see with `seed=seeds[r]`, and ends where that one would;
    under `PerReplica` priors of several kinds the noise is that of a network with all of these kinds.

    Args:
        net: trained in place.
        likelihood: trained in place if it has learned parameters.
        x: training inputs, `[N, D]` or `[R, N, D]`, normalised. At one draw a step, images are faster with
            their channels last in memory (`torch.channels_last`); minibatches keep that.
        y: training targets, `[N, O]` or `[R, N, O]`, or labels `[N]`, `[R, N]`.
        steps: gradient steps in all; a resumed run does the rest of them.
        batch_size: points a step, drawn without replacement in each epoch; None: all.
        num_samples: S, draws a step.
        lr: learning rate, or R of them.
        lr_groups: learning rates for parameters whose name begins with a key, for example `{"likelihood":
            1e-3}` or `{"inducing_points": 1e-3}`; names as in `net.named_parameters()`, the likelihood's with
            the prefix "likelihood.".
        seed: of draws and minibatches, or R of them.
        estimator: "draw", or "pointwise", which integrates out what it can and samples every point anew (see
            `Network.estimate`; for factorised weights: local reparameterisation).
        kl_weight: tempering as a function of the step, for example `gilib.SteppedTempering`; None: 1.
        augment: what is done to the inputs of every step, `augment(x, generator=...)`, for example
            `gilib.data.random_flip_and_crop`; its stream is seeded and resumed apart from the others (given R
            seeds, one stream for each replica).
        on_divergence: "raise", or "freeze": a replica whose bound or gradient is not finite, or whose
            factorisation fails, keeps its last parameters, and the others go on.
        checkpoint: a file to resume from if it exists, and to keep up to date; None: neither.
        checkpoint_every: steps between writes.
        deadline: value of `time.monotonic()` after which training is saved and `Paused` raised; None: never.
        arithmetic: of the data's pass through the drawn functions: "full", or, for float32, "tf32" (on CUDA)
            or "bfloat16". What is drawn, and log P - log Q, is always computed in full.
        cuda_graph: whether to record a step and replay it, on CUDA: faster where the GPU waits for the host.
        parallel: `gilib.training.DataParallel()` in a script started by torchrun: the processes share every
            minibatch, and end where one process would; they look at the deadline every hundred steps.
        progress: whether to show a bar.

    Returns:
        The `History`.

    Raises:
        ValueError, TypeError: for arguments that do not fit, before any work starts.
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
    settings = Settings(
        batch_size=batch_size,
        num_samples=num_samples,
        lr=lr,
        lr_groups=lr_groups or {},
        seed=seed,
        estimator=estimator,
        kl_weight=kl_weight,
        on_divergence=on_divergence,
        augment=augment,
        arithmetic=arithmetic,
    )
    path = None if checkpoint is None else Path(checkpoint)
    schedule = Schedule(steps, path, checkpoint_every, deadline)
    processes = OneProcess() if parallel is None else instance(parallel, DataParallel, "parallel")
    check_settings(net, likelihood, settings)
    check_data(net, likelihood, x, y)
    check_arithmetic(arithmetic, x)
    check_schedule(schedule)
    if cuda_graph:
        check_graph(x.device, processes.size)
    named = path is not None or parallel is not None
    identity = fingerprint(net, likelihood, x, y, settings.identity()) if named else ""
    run = Run(net, likelihood, x, y, steps, settings, processes, cuda_graph)
    start = run.restore(path, identity) if path is not None and path.exists() else 0
    if parallel is not None:
        _agree(parallel, run, schedule, identity, start)
    _train(run, schedule, identity, start, progress)
    return run.history(start)


def _agree(parallel: DataParallel, run: Run, schedule: Schedule, identity: str, start: int) -> None:
    """Raise unless the processes can share this training, and all are about to do the same."""
    device, settings = run.trace.device, run.settings
    parallel.check(device, run.batches.size)
    same = (identity, schedule.outline(), settings.on_divergence, settings.kl_weight is None)
    described = {"settings or data": f"{same}", "checkpoint": f"{start}", "parameters": digest(run.modules)}
    parallel.check_same(described, device)


def _train(run: Run, schedule: Schedule, identity: str, start: int, progress: bool) -> None:
    """Do the steps from `start` on, with a bar and checkpoints."""
    steps, path = schedule.steps, schedule.path
    quiet = not progress or run.processes.rank > 0
    with tqdm(total=steps, initial=start, disable=quiet, desc="fit", unit="step") as bar:
        for done in range(start + 1, steps + 1):
            run.step(done - 1)
            look = done % READ_EVERY == 0 or done == steps
            if look:
                bar.set_postfix(elbo=f"{run.latest(done):.3f}", refresh=False)
                bar.update(done - bar.n)
            late = done < steps and run.is_late(schedule.deadline, look)
            if path is not None and (late or done % schedule.checkpoint_every == 0 or done == steps):
                run.latest(done)
                run.save(path, identity, done)
            if late:
                raise Paused(f"paused at step {done} of {steps}: {path} holds what was done")
