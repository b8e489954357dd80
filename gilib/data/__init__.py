"""Data: the nine UCI regression sets with their published splits, and the toy problem.

Five small sets come with the package (boston, concrete, energy, wine, yacht: see ``load_uci`` for source and
licence); the others are found on this machine or fetched once, and every one is checked against a SHA-256 of
its decoded values. Splits are generated, normalisation uses training data only, and no global random state is
touched.

Example:
    >>> import gilib.data
    >>> split = gilib.data.load_uci("yacht").split(0)
    >>> split.train_x.shape, split.test_y.shape
    (torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.catalogue import uci_names
from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.errors import ChecksumError, DataError, DownloadError
from gilib.data.normalisation import Normalisation
from gilib.data.storage import data_directory
from gilib.data.toy_problem import ToyProblem, toy
from gilib.data.uci import load_uci

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "DownloadError",
    "Normalisation",
    "Split",
    "ToyProblem",
    "data_directory",
    "load_uci",
    "sha256_of",
    "split_indices",
    "toy",
    "uci_names",
]
