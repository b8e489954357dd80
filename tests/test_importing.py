"""`import gilib` opens few modules beside torch, counted in a fresh interpreter; none of the experiments."""

import ast
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
before = set(sys.modules)
import numpy, torch, tqdm
needed = set(sys.modules)
import gilib
opened = sorted(set(sys.modules) - needed)
import gilib.baselines
jax = sorted({"jax", "numpyro"} & set(sys.modules))
print(json.dumps({"torch": sorted(needed - before), "gilib": opened, "jax": jax}))
"""
ON_REQUEST = ("baselines", "sklearn")  # rooms that are imported by their own name
ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def opened():
    """Names of the modules that the declared dependencies open, and of those that gilib adds."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == "", "importing must print nothing"
    return json.loads(done.stdout)


def test_no_package_is_opened_beside_the_declared_dependencies_and_rooms_that_need_more_stay_closed(opened):
    added = {name.split(".")[0] for name in opened["gilib"]}
    assert added - set(sys.stdlib_module_names) == {"gilib"}
    closed = tuple(f"gilib.{name}" for name in ON_REQUEST)
    assert not [name for name in opened["gilib"] if name.startswith(closed)]
    assert opened["jax"] == [], "of the baselines"


def test_importing_opens_few_modules_beside_its_own(opened):
    """`torch._dynamo`, for example, would add more modules than torch itself has opened."""
    foreign = [name for name in opened["gilib"] if name.split(".")[0] != "gilib"]
    assert len(foreign) < len(opened["torch"]) / 20
    assert len(opened["gilib"]) < len(opened["torch"]) / 4


def test_gilib_imports_nothing_of_the_experiments():
    """Nor of the tools, the tests and the benchmarks: the wheel has none of them."""
    found = {}
    for path in (ROOT / "gilib").rglob("*.py"):
        for part in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in part.names] if isinstance(part, ast.Import) else []
            names += [part.module or ""] if isinstance(part, ast.ImportFrom) else []
            found |= {name.partition(".")[0]: path for name in names}
    here = {name: path for name, path in found.items() if (ROOT / name).is_dir()}
    assert set(here) == {"gilib"}, here


@pytest.mark.parametrize(("name", "error"), [("__main__", SystemExit), ("gilib.experiments", ImportError)])
def test_the_old_name_of_the_experiments_says_where_they_are(name, error):
    with pytest.raises(error, match="`python -m experiments`, `from experiments import select`"):
        runpy.run_path(str(ROOT / "gilib" / "experiments.py"), run_name=name)


def test_nothing_is_said_to_install_gilib_from_an_index():
    """No index has it, and a stranger could claim the name: an extra is installed from the checkout."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "book").rglob("*.md")]
    folders = ("gilib", "experiments", "benchmarks", "tools")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    pages.remove(ROOT / "CHANGELOG.md")
    said = re.compile(r"gilib\[\w+\]|pip install (-U |--upgrade )?[\"']?gilib\b")
    assert [path for path in pages + code if said.search(path.read_text(encoding="utf-8"))] == []


def test_glue_of_a_chapter_does_nothing_where_no_book_is_built(monkeypatch):
    monkeypatch.setitem(sys.modules, "myst_nb", None)
    module = runpy.run_path(str(ROOT / "experiments" / "book.py"))
    assert module["glue"]("a-number", 1.0, display=False) is None
