"""The identity of whatever the chapters compute from: library, recorded results and locked versions.

Jupyter's execution cache sees code cells only. Its folder therefore carries this key, so that an edit of
``gilib``, ``results`` or ``constraints.txt`` starts an empty cache and no page can show an old result.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT_CACHES = 3


def sources(root: Path = ROOT) -> Iterator[Path]:
    """Every file that a chapter's result can depend on, besides the chapter, in a fixed order."""
    skipped = {"__pycache__"}
    for folder in ("gilib", "results"):
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and not skipped & set(path.parts):
                yield path
    for name in ("constraints.txt",):
        if (root / name).is_file():
            yield root / name


def book_key(root: Path = ROOT) -> str:
    """Sixteen hexadecimal digits that change when a source changes, appears, moves or goes."""
    digest = hashlib.sha256()
    for path in sources(root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_folder(root: Path = ROOT) -> Path:
    """Where executed chapters of the present sources are kept."""
    return root / "_build" / f".jupyter_cache-{book_key(root)}"
