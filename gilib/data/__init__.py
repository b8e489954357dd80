"""Tables with their published splits: nine UCI regressions, labelled points, a series and a toy.

The package includes the nine regression sets, Spambase, MAGIC and the carbon dioxide of Mauna Loa:
`load_uci`, `load_classification` and `load_co2` name sources and licences. Every set is checked against a
SHA-256 of its decoded values. Splits are generated, normalisation uses training data only, and no global
random state is touched. Images are read by `experiments.images`, which comes with a checkout.

Read `dataset` (a table and its splits) first, then `normalisation` and `toy_problem`. `tables` lists the sets
and loads them. `storage` finds their files.

>>> import gilib.data
>>> split = gilib.data.load_uci("yacht").split(0)
>>> split.train_x.shape, split.test_y.shape
(torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.normalisation import Normalisation
from gilib.data.storage import ChecksumError, DataError, data_directory
from gilib.data.tables import classification_names, load_classification, load_co2, load_uci, uci_names
from gilib.data.toy_problem import ToyProblem, toy

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "Normalisation",
    "Split",
    "ToyProblem",
    "classification_names",
    "data_directory",
    "load_classification",
    "load_co2",
    "load_uci",
    "sha256_of",
    "split_indices",
    "toy",
    "uci_names",
]
