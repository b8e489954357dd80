"""The programs that a newcomer copies, run as they stand."""

import re
import runpy
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import select
from experiments.comparisons.against import with_auto
from experiments.registry import EXPERIMENTS

ROOT = Path(__file__).resolve().parents[1]


def programs(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.S)


def run(program, folder):
    path = folder / "program.py"
    path.write_text(program)
    return runpy.run_path(str(path))


def test_the_extra_brings_what_the_program_on_own_data_imports():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    brought = {re.split("[<>=]", entry)[0] for entry in project["optional-dependencies"]["sklearn"]}
    imported = set(re.findall(r"^(?:import|from) (\w+)", programs("README.md")[1], flags=re.M))
    imported = {name.replace("sklearn", "scikit-learn") for name in imported} - {"gilib"}
    assert imported | {"matplotlib"} <= brought, "`history_.plot()` is made of it"


def test_quickstart_prints_what_stands_beside_it(tmp_path, capsys):
    """To a tenth: a search in float64 ends at the same place on any machine, but for its tolerance."""
    run(programs("README.md")[0], tmp_path)
    (stated,) = re.findall(r"```text\n(level.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    ours, theirs = (" ".join(text.split()) for text in (capsys.readouterr().out, stated))
    assert ours.startswith("level: the search stood still") and "settings." in ours
    number = re.compile(r"-?\d+\.\d+")
    got, said = ([float(n) for n in number.findall(text)] for text in (ours, theirs))
    assert len(got) == len(said) == 11
    assert max(abs(a - b) for a, b in zip(got, said, strict=True)) < 0.1


def test_one_thing_is_changed_in_a_recorded_training(tmp_path, capsys):
    """The program as it stands, but for three steps."""
    program = programs("README.md")[2]
    assert program.count("**own.settings)") == 1
    names = run(program.replace("**own.settings)", '**own.settings | {"steps": 3})'), tmp_path)
    printed = capsys.readouterr().out.split()
    assert float(printed[-1]) == names["own"].record["metrics"]["test_log_likelihood"]
    assert "Matern" in repr(names["net"].layers[-1].hyperparameters())


def test_the_programs_of_authors(tmp_path, monkeypatch, capsys):
    rule, experiment = programs("book/api/authors.md")
    first, *_, last = run(rule, tmp_path)["history"].elbo.split(50)
    assert last.mean() > first.mean() + 0.5
    monkeypatch.setitem(EXPERIMENTS, "yacht_width", None)  # which leaves the table afterwards
    monkeypatch.setenv("GILIB_RESULTS", str(tmp_path))
    assert run(experiment, tmp_path)["main"](["run", "yacht_width", "--scale", "smoke"]) == 0
    assert "2 records added to yacht_width" in capsys.readouterr().out


def test_minutes_of_auto_are_those_of_the_records():
    found = with_auto(select("against", each="dataset", cells=("method", "split"), include_diverged=True))
    minutes = {cell: own["auto"]["process_seconds"] / 60 for cell, own in found.items() if "auto" in own}
    small = [value for (name, _), value in minutes.items() if name in ("yacht", "boston", "energy")]
    large = [value for (name, _), value in minutes.items() if name == "protein"]
    alone = [own["network"]["process_seconds"] for own in found.values() if "auto" in own]
    assert 0.5 < min(small) and max(small) < 1.0 and 14 < min(large) and max(large) < 16
    assert 6 <= round(min(alone)) and round(max(alone)) <= 10
    text = " ".join((ROOT / "README.md").read_text().split())
    assert "takes less than a minute on some hundred rows and fifteen minutes on forty thousand" in text
    assert "A network takes 6 to 10 seconds" in text


@pytest.mark.slow
def test_own_data_from_a_csv(tmp_path, monkeypatch):
    """A plane with a noise of a tenth of its deviation: R² is 0.99, and 90 ± 3 of 100 new rows are in."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 2)), columns=["size", "age"])
    table["price"] = 1000 * (table["size"] - table["age"]) + 140 * rng.normal(size=400)
    table.to_csv(tmp_path / "table.csv", index=False)
    monkeypatch.chdir(tmp_path)
    found = run(programs("README.md")[1], tmp_path)
    y, lower, upper = (np.asarray(found[name]) for name in ("y_new", "lower", "upper"))
    assert len(y) == 100 and not set(found["x_new"].index) & set(found["x"].index)
    assert found["model"].score(found["x_new"], y) > 0.95
    assert abs(((lower < y) & (y < upper)).mean() - 0.9) < 0.1
    figure = found["axes"]
    (bars,) = figure.containers
    ends = np.array([part.get_segments() for part in bars.lines[2]])[0]  # [100, 2, 2]
    assert np.allclose(ends[:, :, 0], np.stack([lower, upper], 1)) and np.allclose(ends[:, 0, 1], y)
    assert (tmp_path / "price.png").stat().st_size > 5000
