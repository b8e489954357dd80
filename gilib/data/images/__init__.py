"""Images: sets of them in pixels, normalised by channel and augmented on the device where they are.

`catalogue` says which sets there are, in which files they may lie (`layouts`) and by which checksums these
are known. `loading` finds or fetches the files, has them decoded (`idx`, `cifar`, `jpeg`, `svhn`) and
checks the result, an `ImageDataset` (`dataset`). `normalisation` scales pixels, `augmentation` flips and
shifts images.
"""

from gilib.data.images.augmentation import random_crop, random_flip, random_flip_and_crop
from gilib.data.images.catalogue import image_names
from gilib.data.images.dataset import ImageDataset, ImageTensors, sha256_of_images
from gilib.data.images.loading import load_images
from gilib.data.images.normalisation import ImageNormalisation

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
