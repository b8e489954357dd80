"""The programs that a newcomer copies, run as they stand."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)


def run(program: str, folder: Path) -> dict[str, object]:
    path = folder / "program.py"
    path.write_text(program)
    return runpy.run_path(str(path))


def test_readme_holds_one_program_of_about_ten_lines() -> None:
    (program,) = programs("README.md")
    assert 8 <= len([line for line in program.splitlines() if line.strip()]) <= 14


@pytest.mark.parametrize("page", ["README.md", "book/intro.md"])
def test_quickstart_predicts_better_than_the_mean(page: str, tmp_path: Path) -> None:
    program = programs(page)[-1]
    found = run(program, tmp_path)
    split, prediction = found["split"], found["prediction"]
    error = (prediction.mean - split.test_y_raw).square().mean().sqrt()  # type: ignore[attr-defined]
    assert error < 0.5 * split.test_y_raw.std()  # type: ignore[attr-defined]
