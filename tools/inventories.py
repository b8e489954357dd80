"""Where names of Python, PyTorch and NumPy are documented, for links that resolve without a network.

``book/inventories/names.txt`` lists them: a line ``[project URL]`` opens a project, each line below it holds
``role name page``. Sphinx reads inventories in a compressed format, so the build writes them into ``_build``.
"""

import zlib
from pathlib import Path

HEADER = (
    "# Sphinx inventory version 2\n# Project: {project}\n# Version:\n# The rest is compressed using zlib.\n"
)


def parse(text: str) -> dict[tuple[str, str], list[str]]:
    """``{(project, URL): [entry]}``, each entry a line of Sphinx's inventory format."""
    projects: dict[tuple[str, str], list[str]] = {}
    entries: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if not fields or line.startswith("#"):
            continue
        if line.startswith("["):
            project, url = line.strip("[]").split()
            entries = projects.setdefault((project, url), [])
        elif len(fields) == 3:
            role, name, page = fields
            entries.append(f"{name} py:{role} 1 {page.replace('$', name)} -")
        else:
            raise ValueError(f"line {number} of the names must be 'role name page', got {line!r}")
    return projects


def write(names: Path, folder: Path) -> dict[str, tuple[str, str]]:
    """Write one inventory a project; return Sphinx's ``intersphinx_mapping`` to them."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for (project, url), entries in parse(names.read_text()).items():
        path = folder / f"{project}.inv"
        body = zlib.compress(("\n".join(entries) + "\n").encode())
        path.write_bytes(HEADER.format(project=project).encode() + body)
        mapping[project] = (url, str(path))
    return mapping
