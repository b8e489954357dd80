"""One training loop: Adam on the ELBO, with a progress bar, checkpoints and resumption."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor
from tqdm import tqdm

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.training.augment import Augmentation
from gilib.training.checks import check_data, check_estimator, check_schedule, check_settings
from gilib.training.optimiser import Rate
from gilib.training.run import READ_EVERY, History, Paused, Run
from gilib.training.settings import Settings
from gilib.training.state import fingerprint


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
    progress: bool = True,
) -> History:
    """Maximise the ELBO with Adam, for one network or for R replicas in one program.

    A network with replicas trains all of them at once. Given R seeds, replica r sees the noise, minibatches
    and augmentation that a network of its own would see with `seed=seeds[r]`, and ends where that one would.

    Args:
        net: trained in place.
        likelihood: trained in place if it has learned parameters.
        x: training inputs, `[N, D]` or `[R, N, D]`, normalised.
        y: training targets, `[N, O]` or `[R, N, O]`, or labels `[N]`, `[R, N]`.
        steps: gradient steps in all; a resumed run does the rest of them.
        batch_size: points a step, drawn without replacement in each epoch; None: all.
        num_samples: S, draws a step.
        lr: learning rate, or R of them.
        lr_groups: learning rates for parameters whose name begins with a key, for example `{"likelihood":
            1e-3}` or `{"inducing_points": 1e-3}`; names as in `net.named_parameters()`, the likelihood's with
            the prefix "likelihood.".
        seed: of draws and minibatches, or R of them.
        estimator: "draw", or "local_reparameterisation" (all weights `Factorised`).
        kl_weight: tempering as a function of the step; None: 1.
        augment: what is done to the inputs of every step, `augment(x, generator=...)`, for example
            `gilib.data.random_flip_and_crop`; its stream is seeded and resumed apart from the others (given R
            seeds, one stream for each replica).
        on_divergence: "raise", or "freeze": a replica whose bound or gradient is not finite, or whose
            factorisation fails, keeps its last parameters, and the others go on.
        checkpoint: a file to resume from if it exists, and to keep up to date; None: neither.
        checkpoint_every: steps between writes.
        deadline: value of `time.monotonic()` after which training is saved and `Paused` raised; None: never.
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
    )
    check_settings(net, likelihood, settings)
    check_data(net, likelihood, x, y)
    check_estimator(net, estimator, x.device)
    path = None if checkpoint is None else Path(checkpoint)
    check_schedule(steps, checkpoint_every, path, deadline)
    identity = fingerprint(net, likelihood, x, y, settings.identity()) if path is not None else ""
    run = Run(net, likelihood, x, y, steps, settings)
    start = run.restore(path, identity) if path is not None and path.exists() else 0
    with tqdm(total=steps, initial=start, disable=not progress, desc="fit", unit="step") as bar:
        for done in range(start + 1, steps + 1):
            run.step(done - 1)
            if done % READ_EVERY == 0 or done == steps:
                bar.set_postfix(elbo=f"{run.latest(done):.3f}", refresh=False)
                bar.update(done - bar.n)
            late = deadline is not None and done < steps and time.monotonic() > deadline
            if path is not None and (late or done % checkpoint_every == 0 or done == steps):
                run.latest(done)
                run.save(path, identity, done)
            if late:
                raise Paused(f"paused at step {done} of {steps}: {path} holds what was done")
    return run.history(start)
