"""The identity of whatever the chapters compute from: library, recorded results and locked versions.

Jupyter's execution cache sees code cells only. Its folder therefore carries this key, so that an edit of
``gilib``, ``results`` or ``constraints.txt`` starts an empty cache and no page can show an old result. A
second key is of whatever pages are made with, besides their text: while it stays, others are not built again.
"""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT_CACHES = 3


COMPUTED_FROM = ("gilib", "results", "constraints.txt")
BUILT_WITH = (*COMPUTED_FROM, "tools", "book", "_config.yml", "_toc.yml")


def files(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Every file of these names and below these folders, in a fixed order."""
    for name in names:
        below = sorted((root / name).rglob("*")) if (root / name).is_dir() else [root / name]
        yield from (path for path in below if path.is_file() and "__pycache__" not in path.parts)


def book_key(root: Path = ROOT) -> str:
    """Of every file that a chapter's result can depend on, besides the chapter."""
    return key(root, files(root, COMPUTED_FROM))


def build_key(root: Path = ROOT) -> str:
    """Of every file that a page can depend on, besides the text of the pages."""
    return key(root, (path for path in files(root, BUILT_WITH) if path.suffix != ".md"))


def key(root: Path, paths: Iterable[Path]) -> str:
    """Sixteen hexadecimal digits that change when a file changes, appears, moves or goes."""
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_folder(root: Path = ROOT) -> Path:
    """Where executed chapters of the present sources are kept."""
    return root / "_build" / f".jupyter_cache-{book_key(root)}"
