"""Tables that ship, with their published splits: nine UCI regressions.

`load_uci` names sources and licences. Every set is checked against a SHA-256 of its decoded
values. Splits are generated, normalisation uses training data only, and no global random state is touched.
Labelled tables, images and the book's toys are in `experiments`, which comes with a checkout.

>>> import gilib.data
>>> split = gilib.data.load_uci("yacht").split(0)
>>> split.train_x.shape, split.test_y.shape
(torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.loading import ChecksumError, DataError, load_uci
from gilib.data.normalisation import Normalisation
from gilib.data.regression_sets import uci_names

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "Normalisation",
    "Split",
    "load_uci",
    "sha256_of",
    "split_indices",
    "uci_names",
]
