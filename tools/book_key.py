"""The identity of whatever the chapters compute from: library, recorded results and locked versions.

Jupyter's execution cache sees code cells only. Its folder therefore carries this key, so that an edit of
``gilib``, ``experiments``, ``results`` or ``constraints.txt`` starts an empty cache and no page can show an
old result. A second key is of all that pages are made with, besides prose: while it stays, only edited ones
are built.
"""

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT_CACHES = 3
COMPUTED_FROM = ("gilib", "experiments", "results", "constraints.txt")
BUILT_WITH = (*COMPUTED_FROM, "tools", "book", "_config.yml", "_toc.yml")
CELL = re.compile(rb"^```\{code-cell\}.*?^```$", re.M | re.S)


def files(root: Path, names: Iterable[str]) -> Iterator[Path]:
    """Every file of these names and below these folders, in a fixed order."""
    for name in names:
        below = sorted((root / name).rglob("*")) if (root / name).is_dir() else [root / name]
        yield from (path for path in below if path.is_file() and "__pycache__" not in path.parts)


def book_key(root: Path = ROOT) -> str:
    """Of every file that a chapter's result can depend on, besides the chapter."""
    return key(root, files(root, COMPUTED_FROM))


def build_key(root: Path = ROOT) -> str:
    """Of all that a page can depend on, besides prose: files, cells of any page, Python, the repository."""
    around = f"{sys.version}\0{os.environ.get('GILIB_REPOSITORY', '')}\0"
    return key(root, files(root, BUILT_WITH), around, prose=False)


def key(root: Path, paths: Iterable[Path], around: str = "", prose: bool = True) -> str:
    """Sixteen hexadecimal digits that change when a file changes, appears, moves or goes.

    Args:
        root: paths count from there.
        paths: of the files.
        around: what counts beside them.
        prose: whether the text of a page counts, or its cells alone.
    """
    digest = hashlib.sha256(around.encode())
    for path in paths:
        content = path.read_bytes()
        if not prose and path.suffix == ".md":
            content = b"".join(CELL.findall(content))
        digest.update(f"{path.relative_to(root).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def cache_folder(root: Path = ROOT) -> Path:
    """Where executed chapters of the present sources are kept."""
    return root / "_build" / f".jupyter_cache-{book_key(root)}"
