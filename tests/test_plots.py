"""Figures carry the method's colour and name."""

import matplotlib

matplotlib.use("agg")

from gilib import plots  # noqa: E402


def test_colours_and_markers_are_distinct():
    looks = list(plots.METHODS.values())
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == len(looks)


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
    matplotlib.pyplot.close(figure)
