"""Data: the nine UCI regression sets with their published splits, labelled tables and images, a toy problem.

Five small sets come with the package (boston, concrete, energy, wine, yacht: see ``load_uci`` for source and
licence); the others are found on this machine or fetched once, and every one is checked against a SHA-256 of
its decoded values. Splits are generated, normalisation uses training data only, and no global random state is
touched. Of images, a sample of MNIST comes with the package; ``load_images`` says where the others are looked
up and what results on them are called. A set of images goes to a device as a whole and is augmented there.
``load_classification`` reads tables of labelled points.

Example:
    >>> import gilib.data
    >>> split = gilib.data.load_uci("yacht").split(0)
    >>> split.train_x.shape, split.test_y.shape
    (torch.Size([277, 6]), torch.Size([31, 1]))
"""

from gilib.data.augmentation import random_crop, random_flip, random_flip_and_crop
from gilib.data.catalogue import uci_names
from gilib.data.classification import LabelledDataset, LabelledSplit, load_classification
from gilib.data.classification_catalogue import classification_names
from gilib.data.dataset import Dataset, Split, sha256_of, split_indices
from gilib.data.errors import ChecksumError, DataError, DownloadError
from gilib.data.image_catalogue import image_names
from gilib.data.image_dataset import ImageDataset, ImageTensors, sha256_of_images
from gilib.data.image_normalisation import ImageNormalisation
from gilib.data.images import load_images
from gilib.data.normalisation import Normalisation
from gilib.data.storage import data_directory
from gilib.data.toy_problem import ToyProblem, toy
from gilib.data.uci import load_uci

__all__ = [
    "ChecksumError",
    "DataError",
    "Dataset",
    "DownloadError",
    "ImageDataset",
    "ImageNormalisation",
    "ImageTensors",
    "LabelledDataset",
    "LabelledSplit",
    "Normalisation",
    "Split",
    "ToyProblem",
    "classification_names",
    "data_directory",
    "image_names",
    "load_classification",
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
