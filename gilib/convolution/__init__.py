"""Convolutions as regressions: the second moments of all windows of a set of images, without its patches.

A convolution is a regression onto its windows: row u of X' holds the pixels that window u sees. The
posterior of its weights needs X'ᵀX' and X'ᵀY alone (Ober & Aitchison, 2021, App. C). Written out, X' takes
k² times the memory of the images. Here the two are computed exactly, by whichever of several routes is the
fastest.

The modules, in order of reading:

    windows     which pixels a convolution sees: kernel, stride, padding, boundary
    moments     `autocorrelation` and `window_moments`, with gradients: what the rest of gilib calls
    checks      what these two refuse
    routes      the three routes, and `fastest_route`, which compares them
    costs       the model of time by which they are compared

    patches     route 1: explicit patches of a few images at a time; for any windows, fastest for few channels
    lags        windows at every pixel: their moments from correlations at the lags within a kernel. These are
                computed by one of
      direct    route 2: a convolution with a kernel of 2k-1 pixels, of medium numbers of channels
      spectral  route 3: products of Fourier coefficients, for many channels
    fourier     the coefficients of route 3
    borders     windows that a padded convolution lacks: left out of the lags again, exactly
    phases      strides: windows of a finer image whose channels are the phases of this one; then as in `lags`

    padding     what surrounds an image, and the adjoint
    budget      how much of a set of images is worked on at a time

A test takes any two routes to the same moments and gradients; a benchmark (`benchmarks/autocorrelation.py`)
times them against patches.

>>> import torch
>>> images, outputs = torch.randn(10, 3, 8, 8), torch.randn(10, 5, 8, 8)
>>> [moment.shape for moment in autocorrelation(images, outputs, 3)]
[torch.Size([27, 27]), torch.Size([27, 5])]
"""

from gilib.convolution.moments import autocorrelation, window_moments
from gilib.convolution.routes import fastest_route
from gilib.convolution.windows import Windows

__all__ = ["Windows", "autocorrelation", "fastest_route", "window_moments"]
