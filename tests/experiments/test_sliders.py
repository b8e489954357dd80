"""Figures with a slider: what is drawn is where the numbers say, and what the script needs is there."""

import json
import re

import pytest
from bs4 import BeautifulSoup

from experiments.plots import METHODS
from experiments.sliders import Slider, SliderFrame
from tests.support import refusals

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
