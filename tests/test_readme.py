"""The programs that a newcomer copies, run as they stand."""

import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)


def run(program: str, folder: Path) -> dict[str, object]:
    path = folder / "program.py"
    path.write_text(program)
    return runpy.run_path(str(path))


def test_readme_holds_two_programs_of_about_ten_lines_and_the_landing_page_the_first() -> None:
    both = programs("README.md")
    assert [8 <= len([line for line in p.splitlines() if line.strip()]) <= 14 for p in both] == [True, True]
    assert both[0] in programs("book/intro.md")


def test_the_extra_brings_what_the_program_on_own_data_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {re.split("[<>=]", entry)[0] for entry in project["optional-dependencies"]["sklearn"]}
    imported = set(re.findall(r"^(?:import|from) (\w+)", programs("README.md")[1], flags=re.M))
    assert imported - {"gilib"} <= brought >= {"matplotlib"}  # of which `history_.plot()` is made


def test_quickstart_leaves_little_unexplained(tmp_path: Path) -> None:
    """A linear model leaves more than a third of the variance; an undertrained network, a tenth."""
    program = programs("README.md")[0]
    found = run(program, tmp_path)
    split, prediction = found["split"], found["prediction"]
    error = (prediction.mean - split.test_y_raw).square().mean()  # type: ignore[attr-defined]
    assert error < 0.01 * split.test_y_raw.var()  # type: ignore[attr-defined]


def test_own_data_from_a_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plane with a noise of a tenth of its deviation: R² is 0.99, and of 100 rows held out 90 ± 3 are in."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 2)), columns=["size", "age"])
    table["price"] = 1000 * (table["size"] - table["age"]) + 140 * rng.normal(size=400)
    table.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    found = run(programs("README.md")[1], tmp_path)
    y, lower, upper = (np.asarray(found[name]) for name in ("y_new", "lower", "upper"))
    assert len(y) == 100 and not set(found["x_new"].index) & set(found["x"].index)  # type: ignore[attr-defined]
    assert found["model"].score(found["x_new"], y) > 0.95  # type: ignore[attr-defined]
    assert abs(((lower < y) & (y < upper)).mean() - 0.9) < 0.1
