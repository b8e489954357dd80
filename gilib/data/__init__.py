"""Tables that ship, with their published splits: nine UCI regressions, a time series, and a toy.

`load_uci` and `load_co2` name sources and licences. Every set is checked against a SHA-256 of its decoded
values. Splits are generated, normalisation uses training data only, and no global random state is touched.
Labelled tables and images are read by `experiments`, which comes with a checkout.

>>> import gilib.data
>>> split = gilib.data.load_uci("yacht").split(0)
>>> split.train_x.shape, split.test_y.shape
(torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.loading import ChecksumError, DataError, load_co2, load_uci
from gilib.data.normalisation import Normalisation
from gilib.data.regression_sets import uci_names
from gilib.data.toy_problem import ToyProblem, toy

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "Normalisation",
    "Split",
    "ToyProblem",
    "load_co2",
    "load_uci",
    "sha256_of",
    "split_indices",
    "toy",
    "uci_names",
]
