"""The grids of structured deep GPs on UCI sets: every printed cell, balanced, with the paper's settings."""

import dataclasses
import itertools

from experiments.lindinger2020 import uci
from experiments.lindinger2020.uci import StructuredConfig
from experiments.printed import printed
from experiments.runner.identity import identity

NAMES = {"sgp": "sgp", "mf_dgp": "mf", "star_dgp": "star", "sghmc_dgp": "sghmc"}


def test_every_printed_cell_has_configurations():
    """At the smaller scale those of the main text; two layers of structured deep GPs on the small sets."""
    grids = {k: {(c.dataset, c.task, c.method, c.depth) for c in uci.tables(k)} for k in uci.SCALES}
    for table, task in (("1_interpolation", "interpolation"), ("S3_extrapolation", "extrapolation")):
        rows = printed(f"lindinger2020_table{table}")
        wanted = {(row["dataset"], task, NAMES[row["method"]], int(row["depth"])) for row in rows}
        assert len(wanted) == len(rows) == 8 * 8 and wanted <= grids["paper"]
        small = {cell for cell in wanted if cell[0] not in uci.LARGE or cell[2:] in uci.MAIN + uci.CHAINS}
        assert small <= grids["reduced"]


def test_the_paper_grid_has_the_papers_settings_ten_times():
    grid = list(uci.tables("paper"))
    models = {(one.method, one.depth) for one in grid}
    assert len(set(grid)) == len(grid) == 8 * 2 * 10 * len(models) and len(models) == 15
    about = dict.fromkeys(("dataset", "task", "repetition", "method", "depth", "lr", "natural_lr"))
    defaults = dataclasses.asdict(StructuredConfig("", "", 0, "", 0))
    assert all(dataclasses.asdict(one) | about == defaults | about for one in grid)
    assert {one.lr for one in grid if one.method != "gi_bnn"} == {5e-3}
    assert {one.natural_lr for one in grid if one.method.endswith("_ng")} == {0.03}
    wanted = {"num_inducing": 128, "width": 5, "steps": 20_000, "batch_size": 512, "num_samples": 5}
    wanted |= {"lr": 5e-3, "decay": 0.98, "decay_every": 1000, "lengthscale": 1.0, "variance": 1.0}
    wanted |= {"noise_variance": 0.01, "hidden_scale": 1e-5, "held_out": 0.1, "test_samples": 1000}
    assert {name: defaults[name] for name in wanted} == wanted


def test_a_grid_that_was_only_begun_is_balanced():
    """Boston and energy, extrapolation, repetition by repetition: all methods of both before the next."""
    whole = list(uci.tables("reduced"))
    grid = [(c.task, c.repetition, c.dataset, c.method, c.depth) for c in whole]
    assert len(set(grid)) == len(grid)
    begin = 0
    for sets, groups, repetitions in [
        (uci.FIRST, (uci.MAIN, uci.MORE, uci.LAST, uci.DEEP), 5),
        (uci.SECOND, (uci.MAIN, uci.MORE, uci.CHAINS), 5),
        (uci.LARGE, (uci.MAIN, uci.CHAINS), 3),
    ]:
        for models in groups:
            cells = itertools.product(("extrapolation", "interpolation"), range(repetitions), sets, models)
            expected = [(*cell, *model) for *cell, model in cells]
            assert grid[begin : begin + len(expected)] == expected
            begin += len(expected)
    assert begin == len(grid)


def test_below_the_papers_scale_the_settings_are_those_of_short_trainings():
    grid = list(uci.tables("reduced"))
    assert {(c.steps, c.num_inducing, c.num_samples, c.held_out) for c in grid} == {(5000, 64, 1, 0.0)}
    starts = {c.method: c.hidden_scale for c in grid}
    assert {method for method, start in starts.items() if start == 0.1} == set(uci.STRUCTURED)
    assert {start for method, start in starts.items() if method not in uci.STRUCTURED} == {1e-5}
    rates = {c.method: (c.lr, c.decay) for c in grid}
    assert rates["sghmc"] == (5e-3, 0.98) and rates["gi_bnn"] == (1e-2, 0.7)
    assert {rates[method] for method in rates.keys() - {"sghmc", "gi_bnn"}} == {(0.03, 0.7)}
    assert all(c.steps <= c.stop_after for c in grid)  # so that holding out would only take data away


def test_the_search_differs_from_the_tables_in_rates_and_draws_alone():
    tables, found = set(uci.tables("reduced")), list(uci.search("reduced"))
    assert len(set(found)) == len(found) == 2 * (3 * len(uci.RATES) + 2 * 2)
    assert {dataclasses.replace(one, lr=uci.SHORT["lr"], num_samples=1) for one in found} <= tables
    assert {one.lr for one in found} == set(uci.RATES)
    assert {(one.method, one.lr) for one in found if one.num_samples == 5} == {
        (method, rate) for method in ("mf", "star") for rate in (0.01, 0.03)
    }


def test_every_detail_is_one_change_of_a_training_of_the_tables():
    tables, found = set(uci.tables("reduced")), list(uci.details("reduced"))
    assert len(set(found)) == len(found) == 5 * 2 * len(uci.DETAILS) and not tables & set(found)
    plain = {"white": 0.0, "held_out": 0.0, "stop_after": StructuredConfig.stop_after}
    assert {dataclasses.replace(one, **plain) for one in found} <= tables
    changes = {tuple(name for name in plain if getattr(one, name) != plain[name]) for one in found}
    assert changes == {("white",), ("held_out", "stop_after")}
    assert {(one.dataset, one.task) for one in found} == {("energy", "extrapolation")}


def test_an_identity_is_that_of_what_is_not_at_its_default():
    """Fields may be added; those that are recorded never change their meaning."""
    known = identity("structured_uci", StructuredConfig("boston", "extrapolation", 0, "star", 3))
    same = StructuredConfig("boston", "extrapolation", 0, "star", 3, hidden_scale=1e-5, white=0.0)
    assert identity("structured_uci", same) == known == "ecc536b7c09f"
