"""What draws of a layer's own regression note of themselves, for `gilib.training.Bali`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch

from gilib.posteriors.base import PosteriorModule
from gilib.regression.joint import Place


class Notes(NamedTuple):
    """Where draws stand, and whether they are scored as well."""

    places: dict[PosteriorModule, Place]
    scored: bool


_asked = ContextVar[Notes | None]("asked", default=None)


@contextmanager
def noted_places(scored: bool) -> Iterator[dict[PosteriorModule, Place]]:
    """Within it every draw of `Conjugate` notes where it stands, W̃ and S, `[S, R, I, O]`.

    BALI takes residuals there, and may score the draws of all layers at once.

    Args:
        scored: whether draws are scored as ever; else their log P - log Q is None.
    """
    notes = Notes({}, scored)
    token = _asked.set(notes)
    try:
        yield notes.places
    finally:
        _asked.reset(token)


def notes_asked() -> Notes | None:
    """Where a draw is to note its place, if anyone asks; compilers do not trace the question."""
    return None if torch.compiler.is_compiling() else _asked.get()
