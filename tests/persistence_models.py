"""Models that tests save."""

import gilib
from tests.support import small_net


def ordinary():
    return small_net(gilib.GlobalInducing()), gilib.Gaussian(0.1)
