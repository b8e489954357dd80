"""Image data sets in pixels, normalised by channel and augmented on their own device.

`catalogue` lists the sets, the layouts of their files and checksums. `loading` finds or downloads the files,
decodes them (`formats`), checks the result and returns an `ImageDataset` (`dataset`). `normalisation` scales
pixels; `augmentation` flips and shifts images.
"""

from experiments.images.augmentation import random_crop, random_flip, random_flip_and_crop
from experiments.images.catalogue import image_names
from experiments.images.dataset import ImageDataset, ImageTensors, sha256_of_images
from experiments.images.loading import load_images
from experiments.images.normalisation import ImageNormalisation

__all__ = [
    "ImageDataset",
    "ImageNormalisation",
    "ImageTensors",
    "image_names",
    "load_images",
    "random_crop",
    "random_flip",
    "random_flip_and_crop",
    "sha256_of_images",
]
