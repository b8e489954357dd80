"""Where files are found, fetched and refused; the files are small ones in the place of the published."""

import gzip
import hashlib
from dataclasses import replace
from importlib.resources import files

import pytest

from experiments.images import catalogue, formats, load_images
from experiments.images.catalogue import Variant
from experiments.images.formats import FORMATS, Arrays, File, md5
from gilib.data import ChecksumError, DataError

(VARIANT,) = catalogue.IMAGE_SETS["mnist-500"].layouts[0].variants
NAMES = catalogue.IDX_FILES
TRUNCATED = 1000


def sample_bytes():
    folder = files("experiments") / "files"
    return {name: (folder / f"mnist-500-{name}").read_bytes() for name in NAMES}


def install(monkeypatch, name, *layouts):
    monkeypatch.setitem(catalogue.IMAGE_SETS, name, replace(catalogue.IMAGE_SETS[name], layouts=layouts))


def write(directory, content):
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in content.items():
        (directory / name).write_bytes(value)


@pytest.fixture
def remote(empty_directory, monkeypatch, tmp_path):
    """MNIST as if it were the sample, at an address; returns the folder at that address."""
    write(tmp_path / "remote", sample_bytes())
    (layout,) = catalogue.IMAGE_SETS["mnist"].layouts
    variants, url = (replace(VARIANT, label="MNIST"),), (tmp_path / "remote").as_uri()
    install(monkeypatch, "mnist", replace(layout, variants=variants, url=url, sha256=()))
    return tmp_path / "remote"


def leftovers(directory):
    return {path.name for path in directory.rglob("*") if path.is_file()}


def test_fetched_once_checked_and_kept(remote, empty_directory, capsys):
    data = load_images("mnist")
    assert data.sha256 == load_images("mnist-500").sha256 and data.label == "MNIST"
    assert leftovers(empty_directory) == set(NAMES)
    assert "fetching mnist" in capsys.readouterr().err
    for name in NAMES:
        (remote / name).unlink()
    assert load_images("mnist").sha256 == data.sha256


def test_only_what_is_missing_is_fetched(remote, empty_directory):
    write(empty_directory / "MNIST/raw", {name: sample_bytes()[name] for name in NAMES[:2]})
    write(empty_directory / "mnist", {NAMES[3]: sample_bytes()[NAMES[3]]})
    for name in NAMES[:2]:
        (remote / name).unlink()
    assert load_images("mnist").test_x.shape == (1000, 1, 28, 28)


def altered(content):
    """A file whose last byte is another one."""
    plain = bytearray(gzip.decompress(content))
    plain[-1] ^= 1
    return gzip.compress(bytes(plain))


def fingerprint(content):
    return md5(File("", gzip.decompress(content), ""))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda content: content[:TRUNCATED], DataError, "is not a whole gzip file"),
        (altered, ChecksumError, "does not hold the published content of mnist.*MD5.* is .*, wanted"),
    ],
)
def test_bad_answers_leave_nothing_behind(remote, empty_directory, damage, error, message):
    path = remote / NAMES[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, match=f"^file:.*{message}.*: the file at that address was changed or altered"):
        load_images("mnist")
    assert leftovers(empty_directory) == set()


def test_what_is_fetched_is_held_to_its_sha256_before_it_is_unpacked(remote, empty_directory, monkeypatch):
    (layout,) = catalogue.IMAGE_SETS["mnist"].layouts
    known = tuple(hashlib.sha256(sample_bytes()[name]).hexdigest() for name in NAMES)
    install(monkeypatch, "mnist", replace(layout, sha256=known))
    again = gzip.compress(gzip.decompress(sample_bytes()[NAMES[3]]), 1)  # the same images, other bytes
    (remote / NAMES[3]).write_bytes(again)
    with pytest.raises(ChecksumError, match=f"mnist; its SHA-256 is {hashlib.sha256(again).hexdigest()}, w"):
        load_images("mnist")
    assert leftovers(empty_directory) == set(NAMES[:3])
    (remote / NAMES[3]).write_bytes(sample_bytes()[NAMES[3]])
    assert load_images("mnist").label == "MNIST"


def test_a_damaged_copy_on_disk_is_named_with_its_remedy(remote, empty_directory):
    content = sample_bytes()
    write(empty_directory / "mnist", {**content, NAMES[2]: altered(content[NAMES[2]])})
    with pytest.raises(ChecksumError, match=rf"^/.*{NAMES[2]} does not hold .*: delete that file, then load"):
        load_images("mnist")
    write(empty_directory / "mnist", {NAMES[2]: content[NAMES[2]][:TRUNCATED]})
    with pytest.raises(DataError, match=rf"{NAMES[2]} is not a whole gzip file .*: delete that file, th"):
        load_images("mnist")


def two_variants(monkeypatch, *places):
    """Fashion-MNIST as if the sample, and the sample with some files altered, were its variants."""
    (layout,) = catalogue.IMAGE_SETS["fashion-mnist"].layouts
    other = list(VARIANT.fingerprints)
    for place in places:
        other[place] = fingerprint(altered(sample_bytes()[NAMES[place]]))
    copy = Variant("a copy", tuple(other), note="One image is altered.")
    variants = (Variant("exact", VARIANT.fingerprints), copy)
    install(monkeypatch, "fashion-mnist", replace(layout, variants=variants))


def test_the_content_decides_the_label(empty_directory, monkeypatch):
    two_variants(monkeypatch, 2)
    content = sample_bytes()
    write(empty_directory / "fashion-mnist", content)
    exact = load_images("fashion-mnist", download=False)
    write(empty_directory / "fashion-mnist", {NAMES[2]: altered(content[NAMES[2]])})
    copy = load_images("fashion-mnist", download=False)
    assert (exact.label, copy.label) == ("exact", "a copy") and exact.sha256 != copy.sha256
    assert exact.note == "" and copy.note == "One image is altered."


def test_files_of_two_variants_are_not_mixed(empty_directory, monkeypatch):
    two_variants(monkeypatch, 2, 3)
    content = sample_bytes()
    write(empty_directory / "fashion-mnist", content | {NAMES[3]: altered(content[NAMES[3]])})
    with pytest.raises(ChecksumError, match="different variants of fashion-mnist .exact, a copy.: keep"):
        load_images("fashion-mnist", download=False)


def test_other_pixels_from_known_files_are_refused(remote, empty_directory, monkeypatch):
    """As a decoder of JPEG that rounds in another way would give them."""

    def darker(files_):
        arrays = formats.decode_idx(files_)
        return Arrays(arrays.train_x // 2, *arrays[1:])

    monkeypatch.setitem(FORMATS, "idx", replace(FORMATS["idx"], decode=darker))
    with pytest.raises(ChecksumError, match="files of MNIST are the known ones, but decode to"):
        load_images("mnist")


@pytest.fixture
def cifar(empty_directory, monkeypatch):
    """CIFAR-10 in both layouts, one byte a file, decoded to the sample; returns the directory."""
    official, copy = catalogue.IMAGE_SETS["cifar10"].layouts
    one, sample = md5(File("", b"1", "")), load_images("mnist-500")
    only = (replace(official.variants[0], fingerprints=(one,)),)
    other = (replace(copy.variants[0], fingerprints=(one, one), sha256=""),)
    install(monkeypatch, "cifar10", replace(official, variants=only), replace(copy, variants=other))
    arrays = Arrays(sample.train_x, sample.train_y, sample.test_x, sample.test_y)
    for name in ("cifar", "jpeg"):
        monkeypatch.setitem(FORMATS, name, formats.Format(decode=lambda _: arrays))
    return empty_directory


def test_a_damaged_copy_is_named_and_the_official_archive_comes_before_it(cifar):
    write(cifar / "cifar10-jpeg", {"train.zip": b"2", "test.zip": b"1"})
    with pytest.raises(ChecksumError, match=r"train\.zip does not hold .*: save an undamaged copy in its"):
        load_images("cifar10", download=False)
    write(cifar / "cifar10-jpeg", {"train.zip": b"1"})
    assert load_images("cifar10", download=False).label == "CIFAR-10 (JPEG copy)"
    write(cifar / "cifar10", {"cifar-10-python.tar.gz": b"1"})
    assert load_images("cifar10", download=False).label == "CIFAR-10"


@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_an_unknown_file_is_refused_before_it_is_parsed(empty_directory, monkeypatch, name):
    layout = catalogue.IMAGE_SETS[name].layouts[0]

    def parse(_):
        raise AssertionError("an unknown file was parsed")

    monkeypatch.setitem(FORMATS, layout.format, formats.Format(decode=parse))
    write(empty_directory / layout.folders[0], {layout.files[0]: b"anything"})
    with pytest.raises(ChecksumError, match=f"published content of {name}, it may be truncated or altered"):
        load_images(name, download=False)
