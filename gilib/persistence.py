"""Save and load models and checkpoints: files are written atomically and read without running their code."""

from __future__ import annotations

import hashlib
import os
import reprlib
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np
import torch

from gilib.arguments import checked
from gilib.config import ConfigDict, describe, rebuild
from gilib.data import Normalisation
from gilib.files import replacing
from gilib.layers import Layer
from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.validation import check_precision

MODEL_FORMAT = "gilib model 1"
SEAL = b"gilib sha256 "  # precedes the digest, which ends a file and covers all bytes before it
DIGEST_BYTES = 32


class Model(NamedTuple):
    """The content of a model file, in the order in which it unpacks.

    Attributes:
        network: the network.
        likelihood: the likelihood of its outputs.
        normalisation: scaling of the data, or None.
        config: your notes, or None.
    """

    network: Network
    likelihood: Likelihood
    normalisation: Normalisation | None
    config: ConfigDict | None

    def __repr__(self) -> str:
        net = f"{list(self.network.input_shape)} to {list(self.network.output_shape)}"
        parts = [f"network of {net}", type(self.likelihood).__name__]
        parts += [name for name in ("normalisation", "config") if getattr(self, name) is not None]
        return f"Model({', '.join(parts)})"


class CheckpointError(RuntimeError):
    """A file is damaged, or of another kind, or belongs to another model."""


def write(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write tensors and plain values atomically, as an archive by `torch.save` whose comment holds a digest.

    Raises:
        OSError: if the file cannot be written, for example because the disk is full.
    """
    with replacing(path) as stream:
        try:
            torch.save(_of_python(content), stream)
        except RuntimeError as error:  # torch's error for a full disk
            raise OSError(f"cannot write {path} ({error}): is the disk full?") from error
        stream.seek(-2, os.SEEK_END)  # a zip archive ends with the length of its comment
        stream.write((len(SEAL) + DIGEST_BYTES).to_bytes(2, "little") + SEAL)
        stream.seek(0)
        stream.write(hashlib.file_digest(stream, "sha256").digest())


def _of_python(value: Any) -> Any:
    """Convert the NumPy numbers among plain values to Python's, which files can hold."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) is dict:
        return {name: _of_python(entry) for name, entry in value.items()}
    return type(value)(map(_of_python, value)) if type(value) in (list, tuple) else value


def read(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read a file written by `write` whose entry "format" is `kind`.

    Raises:
        OSError: if there is no such file, or it cannot be read.
        CheckpointError: if the file is damaged or of another kind.
    """
    archive = Path(path).read_bytes()
    try:
        _check_sums(archive)
        content = torch.load(BytesIO(archive), map_location="cpu", weights_only=True)
    except Exception as error:  # on foreign bytes torch may raise any error
        raise CheckpointError(
            f"{path} is damaged or not a file of gilib ({type(error).__name__}): restore or delete it"
        ) from error
    found = content.get("format") if isinstance(content, dict) else None
    if found != kind:
        raise CheckpointError(f"{path} holds {found!r}, wanted {kind!r}")
    return content


def _check_sums(archive: bytes) -> None:
    """Raise an error if a file has changed since it was written, which torch does not check."""
    sealed, digest = memoryview(archive)[:-DIGEST_BYTES], archive[-DIGEST_BYTES:]
    if sealed[-len(SEAL) :] == SEAL:
        if hashlib.sha256(sealed).digest() != digest:
            raise ValueError("other bytes than were written")
        return
    with ZipFile(BytesIO(archive)) as entries:  # of version 0.2.0: sums of entries, which miss a folder's bit
        if entries.testzip() or any(entry.external_attr for entry in entries.infolist()):
            raise ValueError("other bytes than were written")


@checked
def save(
    path: str | os.PathLike[str],
    net: Network,
    likelihood: Likelihood,
    *,
    normalisation: Normalisation | None = None,
    config: ConfigDict | None = None,
) -> None:
    """Save a model to one file: architecture, parameters, likelihood, normalisation and your own notes.

    Args:
        path: path of the file.
        net: the network.
        likelihood: the likelihood of its outputs.
        normalisation: scaling of the data.
        config: your notes, as plain values (numbers, text, lists, dictionaries).
    """
    check_plain(config, "config")
    like = net.layers.reference_tensor()
    _check_savable("network", net)
    _check_savable("likelihood", likelihood)
    described = {"network": net.config(), "likelihood": describe(likelihood)}
    for name, description in described.items():
        check_plain(description, f"what config() of the {name} and its parts gives")
    content = {
        **described,
        "format": MODEL_FORMAT,
        "dtype": str((torch.empty(0) if like is None else like).dtype).removeprefix("torch."),
        "state": net.state_dict(),
        "likelihood_state": likelihood.state_dict(),
        "normalisation": None if normalisation is None else normalisation.state(),
        "config": config,
        "trained_range": net.trained_range,
    }
    write(path, content)


def _check_savable(what: str, module: torch.nn.Module) -> None:
    for name, value in module.state_dict().items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            check_precision(value.dtype, f"{name} of a {what} that is saved")
            if value.device.type == "meta":
                raise ValueError(f"{name} of the {what} is on the device meta, without numbers to save")


def check_plain(value: ConfigDict | None, name: str) -> None:
    """Raise an error unless `value` can be saved to a file and read again."""
    stream = BytesIO()
    try:
        torch.save(_of_python(value), stream)
        stream.seek(0)
        torch.load(stream, weights_only=True)
    except Exception as error:
        raise TypeError(
            f"{name} must hold plain values only (numbers, text, lists, dictionaries, tensors), "
            f"got {reprlib.repr(value)}"
        ) from error


@checked
def load(path: str | os.PathLike[str]) -> Model:
    """Load a model that `save` wrote; on a CPU its predictions are bitwise equal to the saved network's.

    Returns:
        The parts by name, as in `model = load(path)`, then `model.network`, `model.likelihood` and so on.

    Raises:
        CheckpointError: if the file is damaged, or does not hold a model.
    """
    content = read(path, MODEL_FORMAT)
    try:
        config, dtype = content["network"], getattr(torch, content["dtype"])
        size = config["inducing_points"]
        net = Network(
            None if size is None else torch.zeros(size, dtype=dtype),
            [rebuild(layer, Layer) for layer in config["layers"]],
            input_shape=tuple(config["input_shape"]),
            replicas=tuple(config["replicas"]),
            dtype=dtype,
        )
        net.load_state_dict(content["state"])
        likelihood = rebuild(content["likelihood"], Likelihood)
        likelihood.load_state_dict(content["likelihood_state"])
        state, notes = content["normalisation"], content["config"]
        net.trained_range = content["trained_range"]
        normalisation = None if state is None else Normalisation(**state)
    except (KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{path} does not describe a model that this version can build: {error}"
        ) from error
    return Model(net, likelihood, normalisation, notes)
