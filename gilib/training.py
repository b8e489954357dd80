"""One training loop: Adam on the ELBO, with a progress bar, checkpoints and resumption."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.objectives import elbo
from gilib.persistence import CheckpointError, read, write
from gilib.validation import choice, count, instance, instance_of_tensor, positive, same_device, tensor

CHECKPOINT_FORMAT = "gilib checkpoint 1"
READ_EVERY = 100  # steps between looks at the objective: the only times that an accelerator is waited for


class DivergenceError(RuntimeError):
    """The objective became NaN or infinite."""


@dataclass(frozen=True)
class History:
    """What a training recorded.

    Attributes:
        elbo: the (tempered, minibatch) estimate of the ELBO per data point before every step, `[steps]` or
            `[steps, R]`, nats.
        resumed_at: the step at which this run took over from a checkpoint; 0 if it started afresh.
    """

    elbo: Tensor
    resumed_at: int


def fit(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    *,
    steps: int,
    batch_size: int | None = None,
    num_samples: int = 10,
    lr: float = 1e-2,
    lr_groups: Mapping[str, float] | None = None,
    seed: int = 0,
    estimator: str = "draw",
    kl_weight: Callable[[int], float] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    progress: bool = True,
) -> History:
    """Maximise the ELBO with Adam.

    Args:
        net: trained in place.
        likelihood: trained in place if it has learned parameters.
        x: training inputs, `[N, D]`, normalised.
        y: training targets, `[N, O]`, or labels `[N]`.
        steps: gradient steps in all; a resumed run does the rest of them.
        batch_size: points a step, drawn without replacement in each epoch; None: all.
        num_samples: S, draws a step.
        lr: learning rate.
        lr_groups: learning rates for parameters whose name begins with a key, for example `{"likelihood":
            1e-3}` or `{"inducing_points": 1e-3}`; names as in `net.named_parameters()`, the likelihood's with
            the prefix "likelihood.".
        seed: of draws and minibatches.
        estimator: "draw", or "local_reparameterisation" (all weights `Factorised`).
        kl_weight: tempering as a function of the step; None: 1.
        checkpoint: a file to resume from if it exists, and to keep up to date; None: neither.
        checkpoint_every: steps between writes.
        progress: whether to show a bar.

    Returns:
        The `History`.

    Raises:
        ValueError, TypeError: for arguments that do not fit, before any work starts.
        CheckpointError: if the checkpoint is damaged, or of another model, data set or setting.
        DivergenceError, FactorisationError: if training breaks down; the last checkpoint stays.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net = gilib.models.mlp(1, (5,), 1, inducing_points=x)
    >>> history = gilib.fit(net, gilib.Gaussian(0.1), x, x.square(), steps=3, progress=False)
    >>> history.elbo.shape
    torch.Size([3])
    """
    _check(net, likelihood, x, y, steps, batch_size, num_samples, lr, estimator, checkpoint_every)
    run = _Run(net, likelihood, x, y, batch_size, num_samples, estimator, kl_weight, seed)
    run.optimiser = _optimiser(run.modules, lr, lr_groups or {}, x.device)
    settings: dict[str, Any] = dict(
        batch_size=batch_size, num_samples=num_samples, lr=lr, lr_groups=dict(lr_groups or {})
    )
    settings |= dict(seed=seed, estimator=estimator)
    fingerprint = _fingerprint(net, likelihood, x, y, settings) if checkpoint is not None else ""
    path = None if checkpoint is None else Path(checkpoint)
    start = run.restore(path, fingerprint, steps) if path is not None and path.exists() else 0
    with tqdm(total=steps, initial=start, disable=not progress, desc="fit", unit="step") as bar:
        for step in range(start, steps):
            run.step(step)
            done = step + 1
            if done % READ_EVERY == 0 or done == steps:
                bar.set_postfix(elbo=f"{run.latest(done):.3f}", refresh=False)
                bar.update(done - bar.n)
            if path is not None and (done % checkpoint_every == 0 or done == steps):
                run.latest(done)
                run.save(path, fingerprint, done)
    return History(torch.stack(run.trace[:steps]).cpu() if run.trace else torch.empty(0), start)


class _Run:
    """The moving parts of one training."""

    optimiser: torch.optim.Optimizer

    def __init__(
        self,
        net: Network,
        likelihood: Likelihood,
        x: Tensor,
        y: Tensor,
        batch_size: int | None,
        num_samples: int,
        estimator: str,
        kl_weight: Callable[[int], float] | None,
        seed: int,
    ):
        self.modules = nn.ModuleDict({"net": net, "likelihood": likelihood})
        self.net, self.likelihood, self.x, self.y = net, likelihood, x, y
        self.axis = -1 - len(net.input_shape)  # of the points
        self.num_data = x.shape[self.axis]
        self.batch_size = min(batch_size or self.num_data, self.num_data)
        self.num_samples, self.estimator, self.kl_weight = num_samples, estimator, kl_weight
        self.noise = torch.Generator(x.device).manual_seed(seed)
        self.shuffle = torch.Generator().manual_seed(seed + 1)
        self.order, self.position = torch.empty(0, dtype=torch.long), 0
        self.trace: list[Tensor] = []

    def batch(self) -> tuple[Tensor, Tensor]:
        """The next minibatch; a fresh permutation whenever fewer points are left than it needs."""
        if self.batch_size == self.num_data:
            return self.x, self.y
        if self.position + self.batch_size > len(self.order):
            self.order, self.position = torch.randperm(self.num_data, generator=self.shuffle), 0
        index = self.order[self.position : self.position + self.batch_size].to(self.x.device)
        self.position += self.batch_size
        axis = -2 if self.y.is_floating_point() else -1  # labels have no axis of outputs
        return self.x.index_select(self.axis, index), self.y.index_select(axis, index)

    def step(self, step: int) -> None:
        """One gradient step."""
        x, y = self.batch()
        if self.estimator == "draw":
            draw: Any = self.net.draw(self.num_samples, generator=self.noise)
        else:
            draw = self.net.local_reparameterisation(self.num_samples, generator=self.noise)
        weight = 1.0 if self.kl_weight is None else float(self.kl_weight(step))
        bound = elbo(draw, self.likelihood, x, y, num_data=self.num_data, per_point=True, kl_weight=weight)
        self.optimiser.zero_grad(set_to_none=True)
        (-bound.sum()).backward()
        self.optimiser.step()
        self.trace.append(bound.detach())

    def latest(self, done: int) -> float:
        """The mean of the last bounds, or an error that says when they stopped being numbers."""
        recent = torch.stack(self.trace[-READ_EVERY:])
        if not bool(torch.isfinite(recent).all()):
            finite = torch.isfinite(torch.stack(self.trace)).reshape(len(self.trace), -1).all(1)
            first = int((~finite).nonzero()[0])
            self.net.draw(1, generator=self.noise)  # names the layer if a factorisation is to blame
            raise DivergenceError(
                f"the ELBO was not finite at step {first} (seen at {done}): "
                "lower lr, or factorise in float64 (factor_dtype='float64')"
            )
        return float(recent.mean())

    def save(self, path: Path, fingerprint: str, step: int) -> None:
        """Write everything that the next step depends on."""
        content = {
            "format": CHECKPOINT_FORMAT,
            "fingerprint": fingerprint,
            "step": step,
            "modules": self.modules.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "noise": self.noise.get_state(),
            "shuffle": self.shuffle.get_state(),
            "order": self.order,
            "position": self.position,
            "trace": torch.stack(self.trace).cpu(),
        }
        write(path, content)

    def restore(self, path: Path, fingerprint: str, steps: int) -> int:
        """Continue from a checkpoint of the same training; return its step."""
        content = read(path, CHECKPOINT_FORMAT)
        if content.get("fingerprint") != fingerprint:
            raise CheckpointError(
                f"{path} belongs to another model, data set or setting: choose another file, or delete it"
            )
        if content["step"] > steps:
            raise CheckpointError(
                f"{path} is at step {content['step']}, beyond steps={steps}: ask for more steps"
            )
        self.modules.load_state_dict(content["modules"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.noise.set_state(content["noise"])
        self.shuffle.set_state(content["shuffle"])
        self.order, self.position = content["order"], content["position"]
        self.trace = list(content["trace"].to(self.x.device).unbind(0))
        return int(content["step"])


def _optimiser(
    modules: nn.Module, lr: float, groups: Mapping[str, float], device: torch.device
) -> torch.optim.Adam:
    """Adam with a learning rate for every prefix; a prefix that matches nothing is an error."""
    named = {name.removeprefix("net."): p for name, p in modules.named_parameters() if p.requires_grad}
    if not named:
        raise ValueError("nothing to train: network and likelihood have no learned parameters")
    rates = dict.fromkeys(named, lr)
    for prefix, rate in groups.items():
        positive(rate, f"lr_groups[{prefix!r}]")
        matching = [name for name in named if name.startswith(prefix)]
        if not matching:
            raise ValueError(
                f"lr_groups: no parameter's name begins with {prefix!r}; they are {', '.join(named)}"
            )
        rates.update(dict.fromkeys(matching, rate))
    parameters: list[dict[str, Any]] = [
        {"params": [p for name, p in named.items() if rates[name] == rate], "lr": rate}
        for rate in sorted(set(rates.values()))
    ]
    return torch.optim.Adam(parameters, foreach=True if device.type == "cpu" else None)


def _fingerprint(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor, settings: dict[str, Any]) -> str:
    """A hash of architecture, data and settings: what must agree for a resumption to make sense."""
    digest = hashlib.sha256()
    description = {
        "network": net.config(),
        "likelihood": likelihood.config(),
        "settings": settings,
        "fixed": {name: p.tolist() for name, p in likelihood.named_parameters() if not p.requires_grad},
        "data": [list(x.shape), str(x.dtype), list(y.shape), str(y.dtype)],
    }
    digest.update(json.dumps(description, sort_keys=True).encode())
    for values in (x, y):
        digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check(
    net: Network,
    likelihood: Likelihood,
    x: Tensor,
    y: Tensor,
    steps: int,
    batch_size: int | None,
    num_samples: int,
    lr: float,
    estimator: str,
    checkpoint_every: int,
) -> None:
    instance(net, Network, "net")
    instance(likelihood, Likelihood, "likelihood")
    count(steps, "steps")
    count(num_samples, "num_samples")
    count(checkpoint_every, "checkpoint_every")
    positive(lr, "lr")
    choice(estimator, ("draw", "local_reparameterisation"), "estimator")
    if batch_size is not None:
        count(batch_size, "batch_size")
    check_data(net, likelihood, x, y)
    if estimator == "local_reparameterisation":
        net.local_reparameterisation(1, generator=torch.Generator(x.device))


def check_data(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor) -> None:
    """Raise unless inputs and targets fit the network and the likelihood."""
    tensor(x, "x", next(net.parameters(), None))
    if tuple(x.shape[-len(net.input_shape) :]) != net.input_shape:
        raise ValueError(f"x must hold points of shape {list(net.input_shape)}, got {list(x.shape)}")
    lead = tuple(x.shape[: -1 - len(net.input_shape)])
    if lead not in ((), net.replicas):
        wanted = [*net.replicas, "N", *net.input_shape]
        raise ValueError(f"x must have shape {wanted} (or without replicas), got {list(x.shape)}")
    same_device(instance_of_tensor(y, "y"), "y", x)
    likelihood.check_targets(y, x.shape[-1 - len(net.input_shape)], net.output_shape[-1])
    if y.is_floating_point():
        tensor(y, "y", x)
