"""Checkpoints of a training: their content, and how they are matched to the training that resumes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from gilib.config import describe
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.persistence import CheckpointError, read, write

CHECKPOINT_FORMAT = "gilib checkpoint 5"
READABLE = 40  # characters of a setting that an error shows


class Identity(NamedTuple):
    """Identifies a training, so that a checkpoint of another one is refused."""

    fingerprint: str = ""  # a hash of architecture, data and settings
    parts: Mapping[str, str] = {}  # settings as text, and hashes of other parts; an error says which differ


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint atomically."""
    write(path, {"format": CHECKPOINT_FORMAT, **content})


def read_checkpoint(path: Path, identity: Identity, steps: int) -> dict[str, Any]:
    """Read a checkpoint, and raise unless it belongs to this training and is at most at step `steps`."""
    content = read(path, CHECKPOINT_FORMAT)
    if content["fingerprint"] != identity.fingerprint:
        raise CheckpointError(
            f"{path} belongs to another model, data set or setting"
            f"{_differences(content['parts'], identity.parts)}: choose another file, or delete it"
        )
    if content["step"] > steps:
        raise CheckpointError(f"{path} is at step {content['step']}, beyond steps={steps}: ask for more")
    return content


def check_kl_weights(kept: list[float] | None, given: list[float] | None, path: Path) -> None:
    """Raise unless both trainings have the same `kl_weight` at every step that they share."""
    for step, (theirs, ours) in enumerate(zip(kept or [], given or [], strict=False)):
        if theirs != ours:
            raise CheckpointError(
                f"{path} belongs to another setting: kl_weight is {theirs!r} at step {step} there, and "
                f"{ours!r} here: choose another file, or delete it"
            )


def _differences(kept: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return the parts that differ, in brackets; those with short values with both of them."""
    found = []
    for name, ours in given.items():
        theirs = kept.get(name, "")
        short = 0 < len(theirs) <= READABLE and 0 < len(ours) <= READABLE
        if theirs != ours:
            found.append(f"{name}: {theirs} there, {ours} here" if short else name)
    return f" ({'; '.join(found)})" if found else ""


def identity_of(
    net: Network, likelihood: Likelihood, x: Tensor, y: Tensor, settings: dict[str, Any]
) -> Identity:
    """Compute the identity of a training from all that must agree when it is resumed."""
    frozen = {name: p for name, p in net.named_parameters() if not p.requires_grad}
    description = {
        "network": net.config(),
        "likelihood": describe(likelihood),
        "settings": settings,
        "fixed": {name: p.tolist() for name, p in likelihood.named_parameters() if not p.requires_grad},
        "frozen": list(frozen),
        "data": [list(x.shape), str(x.dtype), list(y.shape), str(y.dtype)],
    }
    parts = {
        "network": hash_of(_text(description["network"])),
        "likelihood": hash_of(_text([description["likelihood"], description["fixed"]])),
        "frozen parameters": hash_of(*frozen.values()) if frozen else "none",
        "inputs": hash_of(x),
        "targets": hash_of(y),
    }
    fingerprint = hash_of(_text(description), x, y, *frozen.values())
    return Identity(fingerprint, parts | {name: _text(value) for name, value in settings.items()})


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def hash_of(*parts: str | Tensor) -> str:
    """Return a hash longer than `READABLE`, so that errors do not show it."""
    digest = hashlib.sha256()
    for part in parts:
        own = part if isinstance(part, str) else part.detach().cpu().contiguous().numpy().tobytes()
        digest.update(own.encode() if isinstance(own, str) else own)
    return digest.hexdigest()
