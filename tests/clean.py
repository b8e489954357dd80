"""A fresh `venv` of what gilib declares, linked from this environment in seconds, and nothing else."""

import subprocess
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement


def run(*command, cwd):
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def closure(requirements):
    """The installed distributions that these requirements need, and those that they need."""
    found: dict[str, Distribution] = {}
    queue = [Requirement(text) for text in requirements]
    while queue:
        wanted = queue.pop()
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            installed = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        assert wanted.specifier.contains(installed.version, prereleases=True), (
            f"{wanted} against {installed.version}"
        )
        if installed.name not in found:
            found[installed.name] = installed
            queue += [Requirement(text) for text in installed.requires or []]
    return found


def link(installed, folder):
    """Link the top of everything that a distribution has put beside its metadata."""
    tops = {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}
    for top in tops:
        source, target = Path(str(installed.locate_file(top))), folder / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def environment(folder, extra="", others=()):
    """The interpreter of a new environment with the requirements of gilib and of an extra, and others."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    declared = [Requirement(text) for text in distribution("gilib").requires or []]
    wanted = [each for each in declared if each.marker is None or each.marker.evaluate({"extra": extra})]
    for installed in closure([f"{each.name}{each.specifier}" for each in wanted] + list(others)).values():
        link(installed, packages)
    return folder / "bin" / "python"
