"""Figures with a slider: a short script switches between curves that were computed beforehand.

The figure is one self-contained piece of HTML, which needs no network. Without scripts it is a static
picture.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from experiments.plots import METHODS

__all__ = ["Slider", "SliderFrame"]

WIDTH, HEIGHT = 360.0, 270.0  # of a panel, in SVG units
LEFT, RIGHT, TOP, BOTTOM = 38.0, 8.0, 26.0, 34.0  # margins
BANDS = (1, 2, 3)  # half-widths of bands in standard deviations


@dataclass(frozen=True)
class SliderFrame:
    """One position of the slider.

    Args:
        label: name of the position, for example "20 inducing points".
        mean: mean of the functions `[N]`.
        sd: standard deviation of the functions `[N]`.
        remark: a sentence about the position.
    """

    label: str
    mean: Sequence[float]
    sd: Sequence[float]
    remark: str = ""


@dataclass(frozen=True)
class Slider:
    """A figure with two panels and a slider: means with bands, and standard deviations.

    Args:
        name: identifier of the figure on its page, letters and hyphens.
        title: label of the slider, for example "Inducing points".
        about: a description of the figure for readers who cannot see it.
        grid: inputs `[N]` of all curves.
        frames: positions, in order.
        x: inputs of the data.
        y: targets of the data.
        start: initial position.
        method: key of `experiments.plots.METHODS`, which gives the colour.
        reference: standard deviations `[N]` of another method, drawn dashed.
        reference_method: key of that method.
        xlim: range of inputs.
        ylim: range of targets.
        top: largest standard deviation.

    Raises:
        ValueError: if there are no frames, `start` is not one of them, or a curve does not fit the grid.

    >>> flat = SliderFrame("none", [0.0, 0.0], [1.0, 1.0])
    >>> Slider("my-slider", "Points", "A flat mean.", [-1.0, 1.0], [flat], [0.0], [0.5])
    <slider of 1 positions>
    """

    name: str
    title: str
    about: str
    grid: Sequence[float]
    frames: Sequence[SliderFrame]
    x: Sequence[float]
    y: Sequence[float]
    start: int = 0
    method: str = "gi"
    reference: Sequence[float] | None = None
    reference_method: str = "hmc"
    xlim: tuple[float, float] = (-1.7, 1.7)
    ylim: tuple[float, float] = (-2.2, 2.6)
    top: float = 0.5

    def __post_init__(self) -> None:
        """Check that the curves fit the grid."""
        if not 0 <= self.start < len(self.frames):
            raise ValueError(f"start must be one of {len(self.frames)} frames, from 0, got {self.start}")
        curves = [(f"frames[{k}].mean", frame.mean) for k, frame in enumerate(self.frames)]
        curves += [(f"frames[{k}].sd", frame.sd) for k, frame in enumerate(self.frames)]
        curves += [] if self.reference is None else [("reference", self.reference)]
        for name, values in curves:
            if len(values) != len(self.grid):
                raise ValueError(f"{name} must have {len(self.grid)} values, as the grid, got {len(values)}")

    def __repr__(self) -> str:
        """Show the number of positions."""
        return f"<slider of {len(self.frames)} positions>"

    def _repr_html_(self) -> str:
        """Return the figure at its initial position, with a slider that appears if scripts run."""
        first, last = self.frames[self.start], len(self.frames) - 1
        data = json.dumps([self._position(frame) for frame in self.frames], ensure_ascii=False)
        data = data.replace("</", "<\\/")
        return (
            f'<div class="gilib-slider" id="{escape(self.name)}"><style>{STYLE}</style>'
            f'<div class="gilib-slider-panels">{self._functions()}{self._deviations()}</div>'
            f'<label hidden>{escape(self.title)} <input type="range" min="0" max="{last}" step="1" '
            f'value="{self.start}" aria-valuetext="{escape(first.label)}"></label>'
            f'<output aria-live="polite">{escape(_text(first))}</output>'
            f'<script type="application/json">{data}</script>'
            f"<script>({SCRIPT})(document.getElementById({json.dumps(self.name)}));</script></div>"
        )

    def _position(self, frame: SliderFrame) -> dict[str, object]:
        """Return the data of a position for the script."""
        return {"label": frame.label, "text": _text(frame), "paths": self._paths(frame)}

    def _paths(self, frame: SliderFrame) -> dict[str, str]:
        """Return the curves of a position by the name of their SVG element."""
        paths = {"mean": self._line(frame.mean, self.ylim), "sd": self._line(frame.sd, (0.0, self.top))}
        for count in BANDS:
            upper, lower = (
                [mean + sign * count * sd for mean, sd in zip(frame.mean, frame.sd, strict=True)]
                for sign in (1, -1)
            )
            there, back = self._line(upper, self.ylim), self._line(lower, self.ylim, backwards=True)
            paths[f"band-{count}"] = f"{there}L{back[1:]}Z"
        return paths

    def _line(self, values: Sequence[float], limits: tuple[float, float], backwards: bool = False) -> str:
        points = [_point(*place, self.xlim, limits) for place in zip(self.grid, values, strict=True)]
        return "M" + "L".join(reversed(points) if backwards else points)

    def _functions(self) -> str:
        paths, colour = self._paths(self.frames[self.start]), METHODS[self.method].colour
        bands = (
            f'<path data-path="band-{k}" d="{paths[f"band-{k}"]}" fill="{colour}" fill-opacity="0.16"/>'
            for k in BANDS
        )
        places = (
            _point(*place, self.xlim, self.ylim).split(" ") for place in zip(self.x, self.y, strict=True)
        )
        dots = "".join(
            f'<circle cx="{across}" cy="{down}" r="2.4" fill="#333333"/>' for across, down in places
        )
        curves = "".join(bands) + _element(paths["mean"], colour, 'data-path="mean"')
        return _panel(self.about, "functions", self.name, curves + dots, _axes(self.xlim, self.ylim))

    def _deviations(self) -> str:
        paths, limits, about = (
            self._paths(self.frames[self.start]),
            (0.0, self.top),
            "Their standard deviation.",
        )
        colour = METHODS[self.method].colour
        drawn = _element(paths["sd"], colour, 'data-path="sd"')
        if self.reference is not None:
            look = METHODS[self.reference_method]
            line = self._line(self.reference, limits)
            drawn += _element(line, look.colour, 'stroke-dasharray="5 4"') + _note(f"{look.label}, dashed")
            about += f" {look.label} is dashed."
        return _panel(about, "standard deviation", self.name, drawn, _axes(self.xlim, limits))


def _text(frame: SliderFrame) -> str:
    return f"{frame.label}. {frame.remark}".strip()


def _point(x: float, y: float, xlim: tuple[float, float], ylim: tuple[float, float]) -> str:
    """Return SVG coordinates of a point; values far outside the panel are clipped, which saves digits."""
    across = (x - xlim[0]) / (xlim[1] - xlim[0])
    down = min(max((ylim[1] - y) / (ylim[1] - ylim[0]), -1.0), 2.0)
    return f"{LEFT + across * (WIDTH - LEFT - RIGHT):.1f} {TOP + down * (HEIGHT - TOP - BOTTOM):.1f}"


def _element(line: str, colour: str, rest: str) -> str:
    return f'<path d="{line}" fill="none" stroke="{colour}" stroke-width="2" {rest}/>'


def _note(text: str) -> str:
    return f'<text x="{WIDTH - RIGHT - 4}" y="{TOP + 14}" text-anchor="end">{escape(text)}</text>'


def _panel(about: str, title: str, name: str, inside: str, axes: str) -> str:
    clip = f"{name}-{title.split()[0]}"
    box = f'x="{LEFT}" y="{TOP}" width="{WIDTH - LEFT - RIGHT}" height="{HEIGHT - TOP - BOTTOM}"'
    return (
        f'<svg viewBox="0 0 {WIDTH:g} {HEIGHT:g}" role="img" aria-label="{escape(about)}">'
        f'<clipPath id="{escape(clip)}"><rect {box}/></clipPath><text x="{LEFT}" y="16">{title}</text>'
        f'<g clip-path="url(#{escape(clip)})">{inside}</g>{axes}</svg>'
    )


def _axes(xlim: tuple[float, float], ylim: tuple[float, float]) -> str:
    """Draw two axes with numbers at round values."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    lines = f'<path d="M{LEFT} {TOP}L{LEFT} {bottom}L{right} {bottom}" fill="none" stroke="#6b7280"/>'
    across = [(mark, _point(mark, ylim[0], xlim, ylim).split(" ")[0]) for mark in _round_places(xlim)]
    down = [(mark, _point(xlim[0], mark, xlim, ylim).split(" ")[1]) for mark in _round_places(ylim)]
    numbers = [
        f'<text x="{at}" y="{bottom + 16}" text-anchor="middle">{_number(m)}</text>' for m, at in across
    ]
    numbers += [
        f'<text x="{LEFT - 6}" y="{at}" text-anchor="end" dy="0.35em">{_number(m)}</text>' for m, at in down
    ]
    name = f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 3}" text-anchor="middle">input</text>'
    return lines + "".join(numbers) + name


def _round_places(limits: tuple[float, float]) -> Iterable[float]:
    """Return at least three multiples of the largest possible step 1, 0.5, 0.2, ... between the limits."""
    for step in (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01):
        places = [k * step for k in range(round(limits[0] / step) - 1, round(limits[1] / step) + 2)]
        inside = [round(place, 6) for place in places if limits[0] <= place <= limits[1]]
        if len(inside) >= 3:
            return inside
    return list(limits)


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


STYLE = """
.gilib-slider { background: #fff; color: #1d242b; padding: 0.6rem 0.8rem; border-radius: 0.4rem; }
.gilib-slider-panels { display: flex; flex-wrap: wrap; gap: 0.4rem; }
.gilib-slider svg { flex: 1 1 17rem; min-width: 0; max-width: 26rem; height: auto; }
.gilib-slider svg text { font: 12.5px sans-serif; fill: #1d242b; }
.gilib-slider label { display: flex; flex-wrap: wrap; align-items: center; gap: 0.7rem; color: #1d242b; }
.gilib-slider label[hidden] { display: none; }
.gilib-slider input { flex: 1 1 12rem; min-width: 0; accent-color: #0b5c8f; height: 1.6rem; }
.gilib-slider input:focus-visible { outline: 2px solid #0b5c8f; outline-offset: 3px; }
.gilib-slider output { display: block; min-height: 1.5em; color: #1d242b; }
""".strip()

SCRIPT = """function (figure) {
  const frames = JSON.parse(figure.querySelector("script[type='application/json']").textContent);
  const slider = figure.querySelector("input");
  slider.addEventListener("input", () => {
    const { label, text, paths } = frames[slider.value];
    const drawn = figure.querySelectorAll("[data-path]");
    for (const path of drawn) path.setAttribute("d", paths[path.dataset.path]);
    slider.setAttribute("aria-valuetext", label);
    figure.querySelector("output").textContent = text;
  });
  figure.querySelector("label").hidden = false;
}"""
