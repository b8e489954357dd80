"""The wheel, installed where nothing of this tree is: it holds its data and needs only what it declares.

The clean environment is that of `tests/clean.py`: a requirement that is not declared is not there.
"""

import re
import sys
import zipfile
from pathlib import Path

import pytest

from tests.clean import environment, run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def python(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    path = environment(folder / "venv")
    run(
        sys.executable, "-m", "pip", "--python", path, "install", "--no-deps", "--no-index", wheel, cwd=folder
    )
    run(sys.executable, "-m", "pip", "--python", path, "check", cwd=folder)
    return path


def test_wheel_holds_the_library_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"gilib", f"gilib-{version()}.dist-info"}
    shipped = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gilib").rglob("*") if path.is_file()}
    shipped = {name for name in shipped if "__pycache__" not in name}
    assert shipped <= set(names), f"missing from the wheel: {sorted(shipped - set(names))}"
    assert "gilib/py.typed" in names


def test_wheel_imports_outside_the_tree_and_shipped_data_load(python, tmp_path):
    code = """
import gilib
rows = sum(len(gilib.data.load_uci(name).x) for name in gilib.data.uci_names())
print(gilib.__version__, rows, gilib.__file__)
"""
    *printed, place = run(python, "-c", code, cwd=tmp_path).split()
    assert printed == [version(), "79635"] and ROOT not in Path(place).parents


def test_quickstart_runs_from_the_wheel(python, tmp_path):
    """The second program of README needs scikit-learn and pandas, which a bare wheel does not bring."""
    block, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    run(python, "-c", block, cwd=tmp_path)


def version():
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "gilib" / "__init__.py").read_text(), flags=re.M)
    assert found is not None
    return found.group(1)


def test_changelog_and_citation_know_the_version():
    assert f"\n## [{version()}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {version()}\n" in (ROOT / "CITATION.cff").read_text()


def test_an_editable_install_is_not_hidden_by_a_folder_of_its_name_beside_a_script(tmp_path):
    """As a clone lies beside the scripts of whoever cloned it."""
    (tmp_path / "gilib").mkdir()
    script = tmp_path / "own.py"
    script.write_text("import gilib\nprint(gilib.Network.__name__)\n", encoding="utf-8")
    assert run(sys.executable, script, cwd=tmp_path) == "Network\n"


def test_the_experiments_come_with_an_editable_install(tmp_path):
    """Wherever one works; the wheel has none of them."""
    assert run(sys.executable, "-m", "experiments", "list", cwd=tmp_path).startswith("toy ")
