"""A method has one hue by day and by night, read from the pixels of figures in the browser."""

from io import BytesIO

import numpy as np
from PIL import Image

from experiments.plots import METHODS
from tests.site.visits import visit

NEAR = 3  # of 255, for a screen's rounding; no two methods of a figure are as close
ENOUGH = 40  # pixels: a line or a mark and not an edge that looks alike


LUMINANCE = np.array([0.213, 0.715, 0.072])
PAGE = np.array([0x14, 0x18, 0x1C]) / 255  # by night


def shown_as(colour, theme):
    """What the style makes of a colour c: by night 1 + c - 2 luminance(c), added to the page."""
    c = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    if theme == "light":
        return 255 * c
    turned = (1 + c - 2 * LUMINANCE @ c).clip(0, 1)
    return 255 * (turned + PAGE - turned * PAGE)


def seen(found, theme):
    """The methods whose colours the first figure of a page has."""
    found.theme(theme)
    figure = found.page.locator(".bd-article img:not(.photo)").first
    pixels = np.asarray(Image.open(BytesIO(figure.screenshot())).convert("RGB"), dtype=int)
    off = {name: abs(pixels - shown_as(look.colour, theme)).max(-1) for name, look in METHODS.items()}
    return {name for name, difference in off.items() if (difference <= NEAR).sum() >= ENOUGH}


def test_methods_have_one_hue_in_both_themes(browser, address):
    with visit(browser, address, "book/intro.html", "light", sharpness=2) as found:
        day, night = (seen(found, theme) for theme in ("light", "dark"))
    assert {"fac", "gi", "hmc"} <= day == night
