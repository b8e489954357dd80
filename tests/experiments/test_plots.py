"""Figures, with and without a slider, show what the numbers say; numbers, their errors and captions."""

import json
import math
import re

import matplotlib
import numpy as np
import pytest
from bs4 import BeautifulSoup
from matplotlib import pyplot

from experiments import plots, tables
from experiments.plots import METHODS
from experiments.sliders import Slider, SliderFrame
from tests.support import refusals

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


def test_colours_and_markers_are_distinct():
    looks = list(plots.METHODS.values())
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)


def test_colours_stand_out_from_paper_and_from_a_dark_page():
    weights = np.array([0.213, 0.715, 0.072])

    def luminance(colour):
        return weights @ np.where(colour <= 0.04045, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)

    for look in plots.METHODS.values():
        colour = np.array(matplotlib.colors.to_rgb(look.colour))
        by_night = (1 + colour - 2 * weights @ colour).clip(0, 1)  # as the style of the book turns it round
        assert 1.05 / (luminance(colour) + 0.05) > 3, look.label
        assert (luminance(by_night) + 0.05) / 0.05 > 3, look.label


def test_words_among_lines_have_a_rim():
    figure, axes = plots.panels(1, 2)
    axes[0].plot([0.0, 1.0])
    words = [panel.text(0.0, 0.5, "half") for panel in axes]
    figure.canvas.draw()
    assert [len(text.get_path_effects()) for text in words] == [1, 0]


def test_a_band_is_mean_and_one_standard_deviation():
    figure, axes = plots.panels()
    plots.band(axes, [0.0, 1.0], [1.0, 2.0], [0.5, 0.5], "gi")
    plots.data_points(axes, [0.0], [1.0])
    line = axes.lines[0]
    assert line.get_label() == "global inducing"
    assert matplotlib.colors.to_hex(line.get_color()).upper() == plots.METHODS["gi"].colour
    corners = axes.collections[0].get_paths()[0].vertices[:, 1]
    assert (corners.min(), corners.max()) == (0.5, 2.5)
    plots.error_bars(axes, [0.0], [1.0], [0.1], "hmc")
    assert axes.get_legend_handles_labels()[1][-1] == "HMC"
    with pytest.raises(ValueError, match="unknown method 'global': choose one of 'fac', 'li', 'gi'"):
        plots.band(axes, [0.0], [1.0], [0.5], "global")


def test_predictives_have_a_panel_each_and_one_of_deviations():
    found = {"grid": [0.0, 1.0], "mean": [1.0, 2.0], "function_sd": [0.1, 0.2]}
    figure, axes = plots.predictives({"gi": found, "hmc": found}, [0.5], [1.0], titles={"hmc": "truth"})
    assert [panel.get_title() for panel in axes] == ["global inducing", "truth", "standard deviation"]
    assert len(axes[0].collections) == 3  # bands of one, two and three deviations
    widest = axes[0].collections[-1].get_paths()[0].vertices[:, 1]
    assert abs(widest.max() - 2.6) < 1e-12 and abs(widest.min() - 0.7) < 1e-12
    assert list(axes[2].lines[0].get_ydata()) == [0.1, 0.2]
    figure, axes = plots.predictives({"gi": found}, [0.5], [1.0], columns=1)
    assert [panel.get_subplotspec().rowspan.start for panel in axes] == [0, 1]


def test_mean_and_standard_error():
    values = [1.0, 2.0, 4.0, 5.0]
    mean, error = tables.mean_and_error(values)
    assert mean == 3.0
    assert error == pytest.approx(math.sqrt(sum((value - mean) ** 2 for value in values) / 3 / 4))
    assert tables.mean_and_error([2.5]) == (2.5, 0.0)
    with pytest.raises(ValueError, match="at least one value, got none"):
        tables.mean_and_error([])


def record(experiment, scale="reduced", **config):
    return {"experiment": experiment, "scale": scale, "config": config}


UCI = [record("uci", "long", dataset="yacht", split=k) for k in range(5)]
UCI += [record("uci", dataset=name, split=0) for name in ("boston", "wine")]
PROVENANCE = {
    "toy.jsonl, scale “paper”, 1 seed": [[record("toy", "paper", seed=0)]],
    "uci.jsonl, scale “reduced”, 2 splits": [[record("uci", split=k) for k in (0, 1, 1)]],
    "x.jsonl, scale “reduced”, 2 repetitions": [[record("x", repetition=k % 2) for k in range(4)]],
    "x.jsonl, scale “reduced”, 4 records": [[record("x")] * 4],
    "a.jsonl, scale “reduced”, 1 seed; results/b.jsonl, scale “reduced”, 1 seed": [
        [record("a", seed=0)],
        [record("b", seed=1)],
    ],
    "uci.jsonl, scale “long” (yacht), 5 splits, scale “reduced” (boston, wine), 1 split": [UCI],
}


@pytest.mark.parametrize(("origin", "groups"), PROVENANCE.items())
def test_a_caption_is_its_text_and_the_provenance_of_its_records(origin, groups):
    assert tables.provenance(*groups) == f"results/{origin}"
    text = tables.caption("Bounds.", *groups)
    assert text._repr_markdown_() == str(text) == f"*Bounds. Records: results/{origin}.*"


GRID = [-1.0, 0.0, 1.0]
NARROW = SliderFrame("1 point", [0.0, 0.5, 1.0], [0.1, 0.2, 0.1], "Less sure in the middle.")
WIDE = SliderFrame("2 points </script>", [0.0, 0.0, 0.0], [0.4, 0.4, 0.4])


def slider(**settings):
    given = {"start": 1, "xlim": (-1.0, 1.0), "ylim": (-2.0, 2.0), "top": 1.0, **settings}
    return Slider("test", "Points", "Two means.", GRID, [NARROW, WIDE], [-0.5, 0.5], [1.0, -1.0], **given)


def parse(figure):
    return BeautifulSoup(figure._repr_html_(), "html.parser")


def numbers(path):
    return [tuple(map(float, point)) for point in re.findall(r"(-?[\d.]+) (-?[\d.]+)", path)]


def frames(page):
    return json.loads(page.find("script", type="application/json").string)


def test_without_a_script_the_start_is_drawn_and_a_slider_with_name_range_and_value_is_hidden():
    page = parse(slider())
    start = frames(page)[1]
    paths = page.find_all("path", attrs={"data-path": True})
    assert {path["data-path"]: path["d"] for path in paths} == start["paths"]
    assert page.find("label").has_attr("hidden")
    assert page.find("output").string == start["text"] == "2 points </script>."
    control = page.find("input")
    assert control.parent.get_text().strip() == "Points"
    assert (control["min"], control["max"], control["value"]) == ("0", "1", "1")
    assert control["aria-valuetext"] == "2 points </script>"


def test_curves_stand_where_the_axes_say():
    """A circle and a curve through the same point coincide; a straight line is straight, evenly spaced."""
    page = parse(slider(start=0))
    mean = numbers(frames(page)[0]["paths"]["mean"])
    (left, low), (middle, between), (right, high) = mean
    assert middle - left == pytest.approx(right - middle, abs=0.11)  # rounded to a tenth
    assert low - between == pytest.approx(between - high, abs=0.21) and high < low
    first, second = ((float(c["cx"]), float(c["cy"])) for c in page.find_all("circle"))
    unit = (low - high) / 1.0  # the mean rises by one
    assert first == pytest.approx((left + (right - left) / 4, low - unit), abs=0.2)
    assert second == pytest.approx((left + 3 * (right - left) / 4, low + unit), abs=0.2)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_bands_reach_as_many_standard_deviations_as_they_say(count):
    paths = frames(parse(slider()))[0]["paths"]
    band, mean = numbers(paths[f"band-{count}"]), numbers(paths["mean"])
    upper, lower = band[:3], band[:2:-1]
    unit = mean[0][1] - mean[2][1]
    for (x, centre), (right, above), (left, below), sd in zip(mean, upper, lower, NARROW.sd, strict=True):
        assert x == right == left
        assert centre - above == pytest.approx(count * sd * unit, abs=0.3)
        assert below - centre == pytest.approx(count * sd * unit, abs=0.3)


def test_a_reference_is_drawn_dashed_in_its_own_colour():
    dashed = parse(slider(reference=[0.1, 0.3, 0.1])).find_all("path", attrs={"stroke-dasharray": True})
    assert [path["stroke"] for path in dashed] == [METHODS["hmc"].colour]
    assert not parse(slider()).find_all("path", attrs={"stroke-dasharray": True})


SHORT = [SliderFrame("a", GRID, [1.0])]
test_what_does_not_fit_is_refused = refusals(
    [
        (lambda: slider(start=2), "start must be one of 2 frames, from 0, got 2"),
        (lambda: slider(reference=[1.0]), "reference must have 3 values, as the grid, got 1"),
        (lambda: Slider("a", "b", "c", GRID, SHORT, [], []), r"frames\[0\].sd must have 3 values, as"),
        (lambda: Slider("a", "b", "c", GRID, [], [], []), "start must be one of 0 frames"),
    ]
)
