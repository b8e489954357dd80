"""The records of the image catalogue: a set, its possible file layouts and their known contents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One known content of the files of a layout.

    Attributes:
        label: its name in reported results.
        fingerprints: one for each file, computed by the layout's format.
        sha256: checksum of the decoded arrays, see `gilib.data.sha256_of_images`; empty if only the
            publishers' checksums of the files are known.
        note: warnings for users of this variant.
    """

    label: str
    fingerprints: tuple[str, ...]
    sha256: str = ""
    note: str = ""


@dataclass(frozen=True)
class Layout:
    """One way to store a set in files.

    Attributes:
        format: file format, a key of `gilib.data.images.loading.FORMATS`.
        folders: folders to search below a data directory; downloads go to the first.
        files: file names.
        variants: known contents of the files.
        url: address of the folder with the files; empty if they cannot be downloaded.
        sha256: checksums of the files at that address.
    """

    format: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    variants: tuple[Variant, ...]
    url: str = ""
    sha256: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageSet:
    """One entry of the catalogue.

    Attributes:
        name: short name.
        layouts: possible file layouts, the official one first.
        class_names: name of each class.
        source: authors and address of the data.
        licence: licence of the data.
        note: warnings for users of the data.
        x_mean: mean of each channel of the full training set, if the files do not hold that set.
        x_std: standard deviation of each channel, if the files do not hold that set.
        ships: whether the package includes the files.
    """

    name: str
    layouts: tuple[Layout, ...]
    class_names: tuple[str, ...]
    source: str
    licence: str
    note: str = ""
    x_mean: tuple[float, ...] = ()
    x_std: tuple[float, ...] = ()
    ships: bool = False
