"""Convolutions as regressions: windows, and their second moments without patches."""

from gilib.convolution.moments import autocorrelation, window_moments
from gilib.convolution.routes import fastest_route
from gilib.convolution.windows import Windows

__all__ = ["Windows", "autocorrelation", "fastest_route", "window_moments"]
