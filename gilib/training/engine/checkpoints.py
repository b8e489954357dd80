"""Checkpoints of a training: what they hold, and which training they belong to."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from torch import Tensor

from gilib.config import describe
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.persistence import CheckpointError, read, write

CHECKPOINT_FORMAT = "gilib checkpoint 3"


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint in one step."""
    write(path, {"format": CHECKPOINT_FORMAT, **content})


def read_checkpoint(path: Path, fingerprint: str, steps: int) -> dict[str, Any]:
    """Read a checkpoint of the training with this fingerprint.

    Raises:
        CheckpointError: if it is damaged, of another training, or beyond `steps`.
    """
    content = read(path, CHECKPOINT_FORMAT)
    if content.get("fingerprint") != fingerprint:
        raise CheckpointError(
            f"{path} belongs to another model, data set or setting: choose another file, or delete it"
        )
    if content["step"] > steps:
        raise CheckpointError(
            f"{path} is at step {content['step']}, beyond steps={steps}: ask for more steps"
        )
    return content


def check_kl_weights(kept: list[float] | None, given: list[float] | None, path: Path) -> None:
    """Raise unless the factors of the Kullback-Leibler term agree at all steps that both trainings have."""
    for step, (theirs, ours) in enumerate(zip(kept or [], given or [], strict=False)):
        if theirs != ours:
            raise CheckpointError(
                f"{path} belongs to another setting: kl_weight is {theirs!r} at step {step} there, and "
                f"{ours!r} here: choose another file, or delete it"
            )


def fingerprint(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor, settings: dict[str, Any]) -> str:
    """A hash of architecture, data and settings: what must agree for a resumption to make sense."""
    description = {
        "network": net.config(),
        "likelihood": describe(likelihood),
        "settings": settings,
        "fixed": {name: p.tolist() for name, p in likelihood.named_parameters() if not p.requires_grad},
        "data": [list(x.shape), str(x.dtype), list(y.shape), str(y.dtype)],
    }
    frozen = {name: p for name, p in net.named_parameters() if not p.requires_grad}
    if frozen:  # named where there are some: checkpoints from before belong to trainings that froze none
        description["frozen"] = list(frozen)
    digest = hashlib.sha256(json.dumps(description, sort_keys=True).encode())
    for values in (x, y, *frozen.values()):
        digest.update(values.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
