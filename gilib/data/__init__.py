"""Data sets with their published splits: nine UCI regressions, labelled tables, images, a series and a toy.

The nine regression sets come with the package, and so do Spambase, MAGIC, the carbon dioxide of Mauna Loa
and a sample of MNIST (see `load_uci`, `load_classification`, `load_co2` and `load_images` for sources and
licences). Other images are found on this
machine or fetched once. Every set is checked against a SHA-256 of its decoded values. Splits are generated,
normalisation uses training data only, and no global random state is touched.

In order of reading: `dataset` (a table, its splits), `normalisation`, `toy_problem`; `tables` and `images`
list the sets and load them; `storage` is where files lie, and how they are fetched.

>>> import gilib.data
>>> split = gilib.data.load_uci("yacht").split(0)
>>> split.train_x.shape, split.test_y.shape
(torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.images import (
    ImageDataset,
    ImageNormalisation,
    ImageTensors,
    image_names,
    load_images,
    random_crop,
    random_flip,
    random_flip_and_crop,
    sha256_of_images,
)
from gilib.data.normalisation import Normalisation
from gilib.data.storage import ChecksumError, DataError, DownloadError, data_directory
from gilib.data.tables import classification_names, load_classification, load_co2, load_uci, uci_names
from gilib.data.toy_problem import ToyProblem, toy

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "DownloadError",
    "ImageDataset",
    "ImageNormalisation",
    "ImageTensors",
    "Normalisation",
    "Split",
    "ToyProblem",
    "classification_names",
    "data_directory",
    "image_names",
    "load_classification",
    "load_co2",
    "load_images",
    "load_uci",
    "random_crop",
    "random_flip",
    "random_flip_and_crop",
    "sha256_of",
    "sha256_of_images",
    "split_indices",
    "toy",
    "uci_names",
]
