"""Convolutions as regressions: second moments of all windows of a set of images, without storing patches.

A convolution is a regression on its windows: row u of X' holds the pixels of window u. The posterior of its
weights needs only X'ᵀX' and X'ᵀY (Ober & Aitchison, 2021, App. C). X' itself would take k² times the memory
of the images. This package computes both products exactly, by the fastest of three routes
(`benchmarks/autocorrelation.py`). Read `windows`, `moments` and `routes`; then the routes, `patches`, and
`lags` with `direct` or `spectral`; then what these need, `borders`, `phases` and `images`.

>>> import torch
>>> images, outputs = torch.randn(10, 3, 8, 8), torch.randn(10, 5, 8, 8)
>>> [moment.shape for moment in autocorrelation(images, outputs, 3)]
[torch.Size([27, 27]), torch.Size([27, 5])]
"""

from gilib.convolution.moments import autocorrelation, window_moments
from gilib.convolution.routes import fastest_route
from gilib.convolution.windows import Windows

__all__ = ["Windows", "autocorrelation", "fastest_route", "window_moments"]
