"""Builds the book: ``python tools/book.py``. A line a chapter; all else that is said goes to a file.

The build goes on after a failure. Pages of chapters that failed say so (`tools/book_pages.py`), and so does
the last line of what `tools/stages.py` prints.
"""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"
LOG = ROOT / "_build" / "book.log"
EXECUTE = [sys.executable, "tools/execution.py"]
WRITE = [str(Path(sys.executable).parent / "jupyter-book"), "build", "-W", "-n", "--keep-going", "."]
WARNING = re.compile(r"(WARNING|ERROR|CRITICAL): ")
COLOUR = re.compile(r"\x1b\[[\d;]*m")
BANNER = re.compile(r'<p class="chapter-failed">(.*?)</p>', re.S)
SHOWN = 20  # warnings


def failed() -> dict[str, str]:
    """Chapters whose pages carry a banner, and why."""
    pages = {page.stem: BANNER.search(page.read_text()) for page in sorted((SITE / "book").rglob("*.html"))}
    return {name: unescape(found[1]) for name, found in pages.items() if found}


def verdict() -> str:
    """What became of a build that did not pass, in words."""
    if not (SITE / "index.html").is_file():
        return f"The book was not built; {LOG} says why."
    if not (chapters := failed()):
        return f"The book was built, but not without warnings; {LOG} has them all."
    number = f"{len(chapters)} chapter{'s' * (len(chapters) > 1)}"
    causes = "; ".join(f"{name} ({why})" for name, why in chapters.items())
    return f"{number} of the book failed, as the page says: {causes}. {LOG} has the rest."


def warnings() -> list[str]:
    """The first lines of what the build warned of, each once."""
    lines = COLOUR.sub("", LOG.read_text(errors="replace")).splitlines()
    return list(dict.fromkeys(line for line in lines if WARNING.search(line)))


def main() -> int:
    """Execute the chapters, write the pages, return an exit code."""
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w") as log:
        executed = subprocess.run(EXECUTE, cwd=ROOT, stderr=log, check=False).returncode
        print(f"Writing the pages (a minute or two; {LOG} has the details)", flush=True)
        written = subprocess.run(WRITE, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
    if executed == written == 0:
        return 0
    found = warnings()
    more = [f"... and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
    print(*found[:SHOWN], *more, sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
