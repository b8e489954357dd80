"""The figure style of the book, with one colour and one marker for each method.

Colours follow the Okabe-Ito palette, which stays distinct under the common kinds of colour blindness, with
its light ones darkened: all have a contrast of three with paper and, turned round, with a dark page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gilib.optional import require_package
from gilib.validation import check_choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes


XLIM, YLIM, TOP = (-1.7, 1.7), (-2.2, 2.6), 0.27  # of `predictives`; the largest standard deviation shown


class MethodStyle(NamedTuple):
    """Label, colour and marker of a method.

    Attributes:
        label: name in legends and tables.
        colour: hexadecimal code.
        marker: matplotlib's marker.
    """

    label: str
    colour: str
    marker: str


METHODS: dict[str, MethodStyle] = {
    "fac": MethodStyle("factorised", "#665200", "s"),
    "li": MethodStyle("local inducing", "#0072B2", "^"),
    "gi": MethodStyle("global inducing", "#D55E00", "o"),
    "fac_gi": MethodStyle("fac → gi", "#CC79A7", "D"),
    "rand_gi": MethodStyle("rand → gi", "#4B1D6F", "v"),
    "hmc": MethodStyle("HMC", "#009E73", "*"),
    "exact": MethodStyle("exact", "#4D4D4D", "x"),
    "prior": MethodStyle("prior", "#8C8C8C", "+"),
    "li_gi": MethodStyle("li → gi", "#9A8D00", "P"),
    "dsvi": MethodStyle("doubly stochastic", "#7A4FA3", "h"),
    "prop": MethodStyle("propagated Gaussian", "#882255", "<"),
    "sgp": MethodStyle("sparse GP", "#1A1A1A", "p"),
    "mf": MethodStyle("mean field", "#332288", ">"),
    "star": MethodStyle("stripes and arrow", "#006D4E", "X"),
    "fc": MethodStyle("fully coupled", "#3C98C6", "8"),
    "sghmc": MethodStyle("SGHMC", "#AA4499", "d"),
    "gi_bnn": MethodStyle("global inducing BNN", "#A37B3A", "H"),
    "map": MethodStyle("MAP", "#666666", "1"),
    "ensemble": MethodStyle("ensemble", "#5B4636", "2"),
    "dropout": MethodStyle("MC dropout", "#A0522D", "3"),
    "laplace": MethodStyle("Laplace, last layer", "#B8860B", "4"),
    "bbb": MethodStyle("Bayes by Backprop", "#9C6B00", "|"),
    "bbb_tenth": MethodStyle("Bayes by Backprop, KL / 10", "#AA7A18", "_"),
    "bbb_hundredth": MethodStyle("Bayes by Backprop, KL / 100", "#B5842B", "."),
    "vadam": MethodStyle("Vadam", "#1F77B4", "$V$"),
    "vogn": MethodStyle("VOGN", "#17A2B8", "$G$"),
    "noisy_adam": MethodStyle("noisy Adam", "#4B6CB7", "$A$"),
    "noisy_kfac": MethodStyle("noisy K-FAC", "#2B3990", "$K$"),
    "ivon": MethodStyle("IVON", "#4A8AC4", "$I$"),
    "bali": MethodStyle("BALI, our prior", "#C2185B", "$B$"),
    "bali_paper": MethodStyle("BALI, the paper's prior", "#E0668F", "$P$"),
    "bali_l": MethodStyle("BALI-L, our prior", "#7B1141", "$L$"),
    "dgp_gi": MethodStyle("deep GP, global inducing", "#8C4A1A", "$D$"),
}


def _look(method: str) -> MethodStyle:
    """Return the style of a method, or raise an error that lists all methods."""
    check_choice(method, METHODS, "method")
    return METHODS[method]


def style() -> None:
    """Set the book's figure style for this process (matplotlib's rcParams).

    In notebooks figures have twice the resolution, for sharp screens.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    sns = require_package("seaborn", "seaborn", "set the style of the book's figures")
    if mpl.get_backend().lower().endswith("inline"):
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("retina")

    sns.set_theme(context="notebook", style="ticks", font="DejaVu Sans")
    mpl.rcParams.update(
        {
            "figure.figsize": (4.9, 3.0),
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 11,
            "axes.labelsize": 10,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 9,
            "legend.frameon": False,
            "lines.linewidth": 1.6,
            "axes.prop_cycle": plt.cycler(color=[method.colour for method in METHODS.values()]),
        }
    )


def panels(
    rows: int = 1, columns: int = 1, *, width: float = 7.2, height: float = 2.8, **options: Any
) -> Any:
    """Create a figure with `rows` × `columns` axes in the book's style; `height` is per row, in inches.

    Words among lines have a white rim, so that a line which they cross does not strike them out.

    Returns:
        (figure, axes) as from `matplotlib.pyplot.subplots`.
    """
    import matplotlib.pyplot as plt
    from matplotlib.figure import Figure
    from matplotlib.patheffects import withStroke

    class Rimmed(Figure):
        def draw(self, renderer: Any) -> None:
            for text in (text for axes in self.axes if axes.lines and not axes.images for text in axes.texts):
                text.set_path_effects([withStroke(linewidth=3, foreground="white")])
            super().draw(renderer)

    style()
    return plt.subplots(rows, columns, figsize=(width, height * rows), FigureClass=Rimmed, **options)


def band(
    axes: Axes,
    x: Sequence[float],
    mean: Sequence[float],
    sd: Sequence[float],
    method: str,
    *,
    label: str | None = None,
    deviations: Sequence[float] = (1.0,),
) -> None:
    """Draw a predictive mean with bands of standard deviations, in the method's colour.

    Args:
        axes: axes to draw on.
        x: inputs `[N]`.
        mean: predictive means `[N]`.
        sd: standard deviations `[N]`.
        method: key of `METHODS`.
        label: label in the legend; the method's name if None.
        deviations: half-widths of the bands in standard deviations.
    """
    import numpy as np

    method_style = _look(method)
    points, centre, spread = (np.asarray(values).reshape(-1) for values in (x, mean, sd))
    axes.plot(points, centre, color=method_style.colour, label=method_style.label if label is None else label)
    for count in deviations:
        low, high = centre - count * spread, centre + count * spread
        axes.fill_between(
            points, low, high, color=method_style.colour, alpha=0.25 / len(deviations) ** 0.5, linewidth=0
        )


def predictives(
    results: Mapping[str, Mapping[str, Sequence[float]]],
    x: Sequence[float],
    y: Sequence[float],
    *,
    titles: Mapping[str, str] | None = None,
    columns: int | None = None,
) -> Any:
    """Draw predictions of several methods: a panel with bands for each, and one with standard deviations.

    Args:
        results: for each key of `METHODS`, its `grid`, `mean` and `function_sd`, `[N]` each.
        x: inputs of the data `[N]`.
        y: targets of the data `[N]`.
        titles: titles of panels, by key; the methods' names where missing.
        columns: number of columns of panels; by default all are in one row.

    Returns:
        (figure, axes).
    """
    import numpy as np

    columns = columns or len(results) + 1
    rows = -(-(len(results) + 1) // columns)
    figure, axes = panels(rows, columns, width=min(9.4, 2.3 * columns), height=2.5)
    axes = axes.reshape(-1)
    for panel, (method, found) in zip(axes, results.items(), strict=False):
        method_style = _look(method)
        band(panel, found["grid"], found["mean"], found["function_sd"], method, deviations=(1, 2, 3))
        data_points(panel, x, y)
        panel.set(title=(titles or {}).get(method, method_style.label), xlim=XLIM, ylim=YLIM)
        panel.set(xlabel="x", ylabel="y", xticks=(-1, 0, 1), yticks=(-2, 0, 2))
        grid, spread = (np.asarray(found[name]).reshape(-1) for name in ("grid", "function_sd"))
        axes[-1].plot(grid, spread, color=method_style.colour)
    axes[-1].plot(x, np.zeros(len(x)), "|", color="#333333", markersize=6, zorder=3)
    axes[-1].set(title="standard deviation", xlabel="x", xticks=(-1, 0, 1), xlim=XLIM, ylim=(0, TOP))
    return figure, axes


def data_points(axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Draw training data as small dark dots."""
    axes.plot(x, y, ".", color="#333333", markersize=4, zorder=3)


def error_bars(
    axes: Axes, x: Sequence[float], mean: Sequence[float], stderr: Sequence[float], method: str
) -> None:
    """Draw means with one standard error, joined by a line, in the method's colour and marker."""
    method_style = _look(method)
    axes.errorbar(
        x,
        mean,
        yerr=stderr,
        color=method_style.colour,
        marker=method_style.marker,
        markersize=5,
        capsize=2,
        label=method_style.label,
    )
