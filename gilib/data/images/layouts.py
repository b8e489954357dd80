"""What the catalogue says of a set of images: the files it may lie in, and the known contents of these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Variant:
    """One known content of the files of a layout.

    Attributes:
        label: what results on it are called.
        fingerprints: one for each file, as the layout's format takes them.
        sha256: checksum of the decoded arrays, see `gilib.data.sha256_of_images`; empty where only the
            publishers' checksums of the files are known to us.
        note: what a user should know of this variant.
    """

    label: str
    fingerprints: tuple[str, ...]
    sha256: str = ""
    note: str = ""


@dataclass(frozen=True)
class Layout:
    """One way in which a set is laid out in files.

    Attributes:
        format: how the files are read, a key of `gilib.data.images.loading.FORMATS`.
        folders: where they are looked for below a data directory; they are fetched to the first.
        files: their names.
        variants: the known contents.
        url: address of the folder that has them; empty where they cannot be fetched.
        sha256: checksums of the files at that address, as they are fetched.
    """

    format: str
    folders: tuple[str, ...]
    files: tuple[str, ...]
    variants: tuple[Variant, ...]
    url: str = ""
    sha256: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageSet:
    """One line of the catalogue.

    Attributes:
        name: short name.
        layouts: the ways in which it may lie on this machine, the official one first.
        class_names: what each label stands for.
        source: who made the data, and where they are kept.
        licence: under which terms.
        note: what a user should know before using them.
        x_mean: mean of each channel of the full training set, where that set is not in the files.
        x_std: likewise its standard deviation.
        ships: whether the files come with the package.
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
