"""Load sets of images: find or download the files, identify them by fingerprint, decode and check them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments.images.catalogue import IMAGE_SETS, ImageSet, Layout, Variant, image_names
from experiments.images.dataset import ImageDataset
from experiments.images.download import fetch
from experiments.images.formats import FORMATS, Arrays, File
from experiments.images.normalisation import ImageNormalisation
from experiments.places import data_directory, find_file
from gilib.arguments import checked
from gilib.data import ChecksumError, DataError
from gilib.validation import check_choice


@checked
def load_images(name: str, download: bool = True) -> ImageDataset:
    """Load a set of images in pixels, as published.

    The package includes mnist-500: the first 500 training and 1000 test images of MNIST (Yann LeCun and
    Corinna Cortes, licence CC BY-SA 3.0). The other sets are looked up below the environment variable
    `GILIB_DATA`, then below the user's cache, and are downloaded if they are in neither:

    ============= =================================================== ===============================
    name          files, below a folder of that name                  label of results
    ============= =================================================== ===============================
    mnist         `train-images-idx3-ubyte.gz` and the other three    MNIST
    fashion-mnist the same four names                                 Fashion-MNIST, or (recovered copy)
    cifar10       `cifar-10-python.tar.gz`                            CIFAR-10
    cifar10       `train.zip`, `test.zip`, below `cifar10-jpeg`       CIFAR-10 (JPEG copy)
    svhn          `test_32x32.mat`                                    SVHN (test set)
    ============= =================================================== ===============================

    Before anything is decoded, the files must have known fingerprints, which select the label: the MD5 of an
    unpacked IDX file, of the official archive of CIFAR-10 or of SVHN's file, or of the names, sizes and
    CRC-32 sums of JPEG files. The decoded arrays must then have the recorded SHA-256; there is none for the
    official files of Fashion-MNIST, CIFAR-10 and SVHN, which the authors of gilib could not decode. A
    download is kept only if its SHA-256 is a recorded one.

    Args:
        name: mnist, mnist-500, fashion-mnist, cifar10 or svhn.
        download: whether files that are not on this machine may be downloaded.

    Returns:
        Training and test images, uint8 `[N, C, H, W]`, with labels, int64 `[N]`. SVHN has no training images.

    Raises:
        ChecksumError: if the content of a file, or of its decoded arrays, is not the published one.
        DataError: if a file cannot be read, or is not on this machine and `download` is false.
        DownloadError: if a file could not be downloaded.
        ImportError: if Pillow (for JPEG) or SciPy (for SVHN) is needed and not installed.
        TypeError: if `name` is not a string.
        ValueError: if there is no such set.

    >>> data = load_images("mnist-500")
    >>> data.train_x.shape, data.test_x.shape
    (torch.Size([500, 1, 28, 28]), torch.Size([1000, 1, 28, 28]))
    """
    check_choice(name.lower(), image_names(), "set of images")
    entry = IMAGE_SETS[name.lower()]
    layout, files = _shipped(entry) if entry.ships else _present(entry, download)
    reader = FORMATS[layout.format]
    files = [reader.unpack(file) for file in files]
    variant = _identify(entry.name, layout, files)
    dataset = _dataset(entry, variant, reader.decode(files))
    if variant.sha256 and dataset.sha256 != variant.sha256:
        raise ChecksumError(
            f"the files of {variant.label} are the known ones, but decode to arrays with SHA-256 "
            f"{dataset.sha256}, wanted {variant.sha256}: for JPEG files install a Pillow built with "
            "libjpeg-turbo, as its wheels are (pip install --force-reinstall pillow); else report this to "
            "the authors of gilib"
        )
    return dataset


def _shipped(entry: ImageSet) -> tuple[Layout, list[File]]:
    """Read the files that come with a checkout."""
    from importlib.resources import files

    (layout,) = entry.layouts
    folder = files("experiments") / layout.folders[0]
    contents = [(name, (folder / name).read_bytes()) for name in layout.files]
    remedy = "take experiments/files from a fresh checkout"
    return layout, [File(f"the checkout's {name}", content, remedy) for name, content in contents]


def _present(entry: ImageSet, download: bool) -> tuple[Layout, list[File]]:
    """Read the files of the first layout that is complete on this machine; else download the official one."""
    for layout in entry.layouts:
        paths = [_find(layout, name) for name in layout.files]
        if None not in paths:
            break
    else:
        layout = entry.layouts[0]
        paths = [_find(layout, name) for name in layout.files]
        if not download:
            raise DataError(_absence(entry, layout, paths))
        paths = [path or _fetch(entry.name, layout, k) for k, path in enumerate(paths)]
    return layout, [_file(layout, path) for path in paths if path is not None]


def _find(layout: Layout, name: str) -> Path | None:
    return find_file(*(f"{folder}/{name}" for folder in layout.folders))


def _target(layout: Layout, name: str) -> Path:
    return data_directory() / layout.folders[0] / name


def _absence(entry: ImageSet, layout: Layout, paths: Sequence[Path | None]) -> str:
    """Word the error about files that are missing and must not be downloaded."""
    missing = [name for name, path in zip(layout.files, paths, strict=True) if path is None]
    saving = ", ".join(f"{layout.url}/{name} as {_target(layout, name)}" for name in missing)
    others = [
        f"; {found} is here, but not all of {' and '.join(other.files)}"
        for other in entry.layouts[1:]
        for found in [_find(other, name) for name in other.files]
        if found is not None
    ]
    return (
        f"{entry.name} is not complete on this machine, it lacks {', '.join(missing)}{''.join(others)}: save "
        f"{saving}, or set the environment variable GILIB_DATA to a folder that has it, or pass download=True"
    )


def _fetch(name: str, layout: Layout, k: int) -> Path:
    """Download file `k` of a layout and keep it only if its content is known."""
    url, target = f"{layout.url}/{layout.files[k]}", _target(layout, layout.files[k])
    remedy = "the file at that address was changed or altered on its way; report this to the authors of gilib"

    def check(content: bytes) -> None:
        file, found = File(url, content, remedy), hashlib.sha256(content).hexdigest()
        if layout.sha256 and found != layout.sha256[k]:
            raise file.refusal(
                f"does not hold the published content of {name}; its SHA-256 is {found}, wanted "
                f"{layout.sha256[k]}",
                ChecksumError,
            )
        _check(name, layout, k, FORMATS[layout.format].unpack(file))

    fetch(url, target, check)
    return target


def _file(layout: Layout, path: Path) -> File:
    remedy = "save an undamaged copy in its place"
    if layout.url:
        again = "delete that file, then load again to fetch a fresh copy"
        remedy = f"{again}, or save {layout.url}/{path.name} in its place"
    return File(str(path), path.read_bytes(), remedy)


def _check(name: str, layout: Layout, k: int, file: File) -> str:
    """Return the fingerprint of unpacked file `k`; raise an error if no variant of the layout has it."""
    found = FORMATS[layout.format].fingerprint(file)
    known = list(dict.fromkeys(variant.fingerprints[k] for variant in layout.variants))
    if found not in known:
        raise file.refusal(
            f"does not hold the published content of {name}, it may be truncated or altered; its fingerprint "
            f"(MD5) is {found}, wanted {' or '.join(known)}",
            ChecksumError,
        )
    return found


def _identify(name: str, layout: Layout, files: Sequence[File]) -> Variant:
    """Return the variant with the fingerprints of the unpacked files."""
    found = tuple(_check(name, layout, k, file) for k, file in enumerate(files))
    for variant in layout.variants:
        if variant.fingerprints == found:
            return variant
    raise ChecksumError(
        f"the files {', '.join(file.origin for file in files)} are known, but come from different variants "
        f"of {name} ({', '.join(variant.label for variant in layout.variants)}): keep those of one variant"
    )


def _dataset(entry: ImageSet, variant: Variant, arrays: Arrays) -> ImageDataset:
    """Combine decoded arrays with their catalogue entry."""
    normalisation = None
    if entry.x_mean:
        mean, std = (torch.tensor(values, dtype=torch.float64) for values in (entry.x_mean, entry.x_std))
        normalisation = ImageNormalisation(mean, std)
    elif len(arrays.train_x):
        normalisation = ImageNormalisation.fit(arrays.train_x)
    return ImageDataset(
        name=entry.name,
        label=variant.label,
        **arrays._asdict(),
        class_names=entry.class_names,
        normalisation=normalisation,
        source=entry.source,
        licence=entry.licence,
        note=f"{entry.note} {variant.note}".strip(),
    )
