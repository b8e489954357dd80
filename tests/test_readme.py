"""The programs that a newcomer copies, run as they stand."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def programs(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)


def run(program: str, folder: Path) -> dict[str, object]:
    path = folder / "program.py"
    path.write_text(program)
    return runpy.run_path(str(path))


def test_readme_holds_one_program_of_about_ten_lines_and_the_landing_page_the_same() -> None:
    (program,) = programs("README.md")
    assert 8 <= len([line for line in program.splitlines() if line.strip()]) <= 14
    assert programs("book/intro.md")[-1] == program


def test_quickstart_leaves_little_unexplained(tmp_path: Path) -> None:
    """A linear model leaves more than a third of the variance; an undertrained network, a tenth."""
    (program,) = programs("README.md")
    found = run(program, tmp_path)
    split, prediction = found["split"], found["prediction"]
    error = (prediction.mean - split.test_y_raw).square().mean()  # type: ignore[attr-defined]
    assert error < 0.01 * split.test_y_raw.var()  # type: ignore[attr-defined]
