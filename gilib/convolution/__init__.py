"""Convolutions as regressions: second moments of all windows of a set of images, without storing patches.

A convolution is a regression on its windows: row u of X' holds the pixels of window u. The posterior of its
weights needs only X'ᵀX' and X'ᵀY (Ober & Aitchison, 2021, App. C). X' itself would take k² times the memory
of the images. This package computes both products exactly, by the fastest of three routes
(`benchmarks/autocorrelation.py`). Read the modules in this order:

    windows     which pixels a convolution sees: kernel, stride, padding, boundary
    moments     `autocorrelation` and `window_moments`, with gradients: the functions that gilib calls
    routes      the three routes, and `fastest_route`, which compares them by a model of their times
    patches     route 1: explicit patches of a few images at a time
    lags        moments from correlations at the lags within a kernel, which are computed by
      direct    route 2: a convolution with a kernel of 2k-1 pixels
      spectral  route 3: products of Fourier coefficients
    borders     corrections for windows that a padded convolution does not have
    phases      strides: windows at every pixel of an image whose channels are the phases of this one
    images      padding and its adjoint, and how many images are processed at a time

>>> import torch
>>> images, outputs = torch.randn(10, 3, 8, 8), torch.randn(10, 5, 8, 8)
>>> [moment.shape for moment in autocorrelation(images, outputs, 3)]
[torch.Size([27, 27]), torch.Size([27, 5])]
"""

from gilib.convolution.moments import autocorrelation, window_moments
from gilib.convolution.routes import fastest_route
from gilib.convolution.windows import Windows

__all__ = ["Windows", "autocorrelation", "fastest_route", "window_moments"]
