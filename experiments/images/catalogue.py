"""The catalogue of image sets: contents, sources, and the checksums that distinguish variants."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One known content of the files of a layout."""

    label: str  # name in reported results
    fingerprints: tuple[str, ...]  # one for each file, computed by the layout's format
    sha256: str = ""  # of the decoded arrays; empty if only the publishers' checksums of the files are known
    note: str = ""  # warnings for users of this variant


@dataclass(frozen=True)
class Layout:
    """One way to store a set in files."""

    format: str  # file format, a key of `experiments.images.formats.FORMATS`
    folders: tuple[str, ...]  # folders to search below a data directory; downloads go to the first
    files: tuple[str, ...]  # file names
    variants: tuple[Variant, ...]  # known contents of the files
    url: str = ""  # address of the folder with the files; empty if they cannot be downloaded
    sha256: tuple[str, ...] = ()  # checksums of the files at that address


@dataclass(frozen=True)
class ImageSet:
    """One entry of the catalogue."""

    name: str  # short name
    layouts: tuple[Layout, ...]  # possible file layouts, the official one first
    class_names: tuple[str, ...]  # name of each class
    source: str  # authors and address of the data
    licence: str  # licence of the data
    note: str = ""  # warnings for users of the data
    # mean of each channel of the full training set, if the files do not hold that set
    x_mean: tuple[float, ...] = ()
    x_std: tuple[float, ...] = ()  # standard deviation of each channel, if the files do not hold that set
    ships: bool = False  # whether the package includes the files


MNIST_URL = "https://ossci-datasets.s3.amazonaws.com/mnist"
FASHION_URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz"
SVHN_URL = "https://ufldl.stanford.edu/housenumbers"

IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
DIGITS = tuple("0123456789")

# SHA-256 of the files at the addresses. The publishers of Fashion-MNIST and CIFAR-10 give MD5 alone, those of
# MNIST and SVHN nothing: these sums are what TensorFlow Datasets (MNIST, Fashion-MNIST, SVHN) and
# Keras (CIFAR-10) recorded of the official files.
MNIST_SHA256 = (
    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
FASHION_SHA256 = (
    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
)
CIFAR_SHA256 = ("6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",)
SVHN_SHA256 = ("cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",)

MNIST_SOURCE = (
    "Yann LeCun, Corinna Cortes and Christopher J. C. Burges, The MNIST database of handwritten digits, "
    "http://yann.lecun.com/exdb/mnist/"
)
MNIST_LICENCE = "CC BY-SA 3.0, https://creativecommons.org/licenses/by-sa/3.0/"

_SETS = (
    ImageSet(
        name="mnist",
        layouts=(
            Layout(
                format="idx",
                folders=("mnist", "MNIST/raw"),
                files=IDX_FILES,
                url=MNIST_URL,
                sha256=MNIST_SHA256,
                variants=(
                    Variant(
                        label="MNIST",
                        fingerprints=(
                            "6bbc9ace898e44ae57da46a324031adb",
                            "a25bea736e30d166cdddb491f175f624",
                            "2646ac647ad5339dbf082846283269ea",
                            "27ae3e4e09519cfbb04c329615203637",
                        ),
                        sha256="75bd964fb2d3d4f3e3ff0672def8fd37d4d20a47255cf30a8e450c22680a71ea",
                    ),
                ),
            ),
        ),
        class_names=DIGITS,
        source=MNIST_SOURCE,
        licence=MNIST_LICENCE,
    ),
    ImageSet(
        name="mnist-500",
        layouts=(
            Layout(
                format="idx",
                folders=("files",),
                files=tuple(f"mnist-500-{name}" for name in IDX_FILES),
                variants=(
                    Variant(
                        label="MNIST (first 500 training and 1000 test images)",
                        fingerprints=(
                            "c32273fd3071c91f4fe968782b7c0aab",
                            "5ef1e48b473072baea9a73cd6d07cf43",
                            "bac4371a484d0b5651e81d99305acb5a",
                            "556860b2f10365a8f7444c1e79c7e9af",
                        ),
                        sha256="9b64dbdea45ad247e96f9ab0a0a838c31148f27e318dab292149ed70b431a38b",
                    ),
                ),
            ),
        ),
        class_names=DIGITS,
        source=MNIST_SOURCE,
        licence=MNIST_LICENCE,
        note="Normalised by the statistics of all 60000 training images of MNIST. Published results on "
        "MNIST-500 test on all 10000 test images: load_images('mnist').subset(first=500).",
        x_mean=(0.13066047627384286,),
        x_std=(0.30810780713141817,),
        ships=True,
    ),
    ImageSet(
        name="fashion-mnist",
        layouts=(
            Layout(
                format="idx",
                folders=("fashion-mnist", "FashionMNIST/raw"),
                files=IDX_FILES,
                url=FASHION_URL,
                sha256=FASHION_SHA256,
                variants=(
                    Variant(
                        label="Fashion-MNIST",
                        fingerprints=(
                            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                            "9018921c3c673c538a1fc5bad174d6f9",
                            "8181f5470baa50b63fa0f6fddb340f0a",
                            "15d484375f8d13e6eb1aabb0c3f46965",
                        ),
                    ),
                    Variant(
                        label="Fashion-MNIST (recovered copy)",
                        fingerprints=(
                            "6c41b58d8ae704771f2b54629e550a08",
                            "9018921c3c673c538a1fc5bad174d6f9",
                            "6c257b028d7655ea7f13e0b2f0c17df0",
                            "15d484375f8d13e6eb1aabb0c3f46965",
                        ),
                        sha256="02a5a731825c165af6afb77a4eb1264cd236697453c1e96519c24d002afc771d",
                        note="Recovered from a colour-mapped copy: grey levels are exact to one step, and "
                        "training images of a class may be permuted among themselves.",
                    ),
                ),
            ),
        ),
        class_names=(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
            "Ankle boot",
        ),
        source="Han Xiao, Kashif Rasul and Roland Vollgraf (2017), Zalando Research, "
        "https://github.com/zalandoresearch/fashion-mnist",
        licence="MIT",
    ),
    ImageSet(
        name="cifar10",
        layouts=(
            Layout(
                format="cifar",
                folders=("cifar10", "."),
                files=("cifar-10-python.tar.gz",),
                url=CIFAR_URL,
                sha256=CIFAR_SHA256,
                variants=(Variant(label="CIFAR-10", fingerprints=("c58f30108f718f92721af3b95e74349a",)),),
            ),
            Layout(
                format="jpeg",
                folders=("cifar10-jpeg",),
                files=("train.zip", "test.zip"),
                variants=(
                    Variant(
                        label="CIFAR-10 (JPEG copy)",
                        fingerprints=("1929ee35e609ac84d2f43a87a6134969", "546d707e88a337235ec837fc3ffb2734"),
                        sha256="29d6fecff424adedfca4fdba23d1dcc32f489228ee2550e3d52c0115eda3456c",
                        note="A JPEG (quality 75) re-encoding of the official images; the classes take "
                        "turns, in place of the official order.",
                    ),
                ),
            ),
        ),
        class_names=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        source="Alex Krizhevsky (2009), Learning multiple layers of features from tiny images; "
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        licence="no licence stated",
        note="Some test images have near-duplicates among the training images (Barz & Denzler, 2020).",
    ),
    ImageSet(
        name="svhn",
        layouts=(
            Layout(
                format="svhn",
                folders=("svhn", "SVHN", "."),
                files=("test_32x32.mat",),
                url=SVHN_URL,
                sha256=SVHN_SHA256,
                variants=(
                    Variant(label="SVHN (test set)", fingerprints=("eb5a983be6a315427106f1b164d9cef3",)),
                ),
            ),
        ),
        class_names=DIGITS,
        source="Yuval Netzer, Tao Wang, Adam Coates, Alessandro Bissacco, Bo Wu and Andrew Y. Ng (2011), "
        "Reading digits in natural images with unsupervised feature learning; "
        "https://ufldl.stanford.edu/housenumbers/",
        licence="non-commercial use only",
        note="The test set alone, as data out of the distribution of CIFAR-10: there are no training images.",
    ),
)

IMAGE_SETS: dict[str, ImageSet] = {entry.name: entry for entry in _SETS}


def image_names() -> tuple[str, ...]:
    """Return the short names of the sets of images, in alphabetical order.

    >>> image_names()
    ('cifar10', 'fashion-mnist', 'mnist', 'mnist-500', 'svhn')
    """
    return tuple(sorted(IMAGE_SETS))
