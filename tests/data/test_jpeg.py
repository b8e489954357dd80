"""CIFAR-10 as JPEG files in zip archives, on plain colours."""

import io
import sys
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from gilib.data import DataError
from gilib.data.images import jpeg
from tests.data.image_support import file

COLOURS = {"airplane": (250, 10, 10), "cat": (10, 250, 10), "truck": (10, 10, 250)}


def picture(colour, size=(32, 32), mode="RGB") -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, colour).convert(mode).save(stream, "JPEG", quality=95)
    return stream.getvalue()


def zipped(content: dict[str, bytes], compression=zipfile.ZIP_STORED, year=2009) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as made:
        for name, value in content.items():
            made.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), value, compression)
    return stream.getvalue()


def pictures(split="train", number=2) -> dict[str, bytes]:
    """Plain colours: of each class its own, darker by ten with each image."""
    return {
        f"{split}/{kind}/{k:04d}.jpg": picture(tuple(max(c - 10 * k, 0) for c in colour))
        for kind, colour in COLOURS.items()
        for k in range(number)
    }


def test_jpeg_images_take_turns_and_have_their_labels():
    arrays = jpeg.decode([file(zipped(pictures())), file(zipped(pictures("test", number=1)))])
    assert arrays.train_y.tolist() == [0, 1, 2, 0, 1, 2] and arrays.test_y.tolist() == [0, 1, 2]
    assert arrays.train_x.shape == (6, 3, 32, 32) and arrays.train_x.is_contiguous()
    for k, (label, x) in enumerate(zip(arrays.train_y.tolist(), arrays.train_x, strict=True)):
        colour = list(COLOURS.values())[label]
        wanted = torch.tensor([max(c - 10 * (k // 3), 0) for c in colour])[:, None, None]
        assert (x.long() - wanted).abs().max() <= 3  # colours are rounded on their way through JPEG


def test_jpeg_pixels_are_where_they_were():
    """Columns from dark to bright, rows the same: an axis in the wrong place would show."""
    ramp = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 32, 3))
    stream = io.BytesIO()
    Image.fromarray(ramp.copy()).save(stream, "JPEG", quality=100)
    content = file(zipped({"train/cat/0000.jpg": stream.getvalue()}))
    x = jpeg.decode([content, content]).train_x[0].long()
    assert (x - torch.arange(0, 256, 8)).abs().max() <= 3


def test_jpeg_fingerprint_is_of_the_images_not_of_the_packing():
    content = pictures()
    reversed_order = dict(reversed(content.items()))
    first = jpeg.fingerprint(file(zipped(content)))
    packed = zipped({"train/": b"", **reversed_order, "read.me": b"hello"}, zipfile.ZIP_DEFLATED, year=2020)
    assert jpeg.fingerprint(file(packed)) == first
    altered = {**content, "train/cat/0001.jpg": picture((1, 2, 3))}
    assert jpeg.fingerprint(file(zipped(altered))) != first
    assert jpeg.fingerprint(file(zipped(dict(list(content.items())[:-1])))) != first


def test_damaged_zip_archives():
    whole = zipped(pictures())
    for content in (whole[:-30], b"<html>not found</html>", b""):
        with pytest.raises(DataError, match="^a file is not a whole zip archive .*: fetch it again$"):
            jpeg.fingerprint(file(content))
    place = whole.index(b"train/cat/0001.jpg") + 200
    flipped = whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
    with pytest.raises(DataError, match=r"has an image train/cat/0001\.jpg that cannot be read .*CRC"):
        jpeg.decode([file(flipped), file(flipped)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (picture((9, 9, 9), size=(28, 28)), r"it is RGB \(28, 28\), wanted RGB \(32, 32\)"),
        (picture((9, 9, 9), mode="L"), r"it is L \(32, 32\), wanted RGB"),
        (picture((9, 9, 9))[:300], "(?i:truncated)"),
        (b"no picture", "cannot identify"),
    ],
)
def test_images_that_are_not_what_they_should_be(content, message):
    made = file(zipped({**pictures(), "train/cat/0001.jpg": content}))
    with pytest.raises(DataError, match=rf"has an image train/cat/0001\.jpg that cannot be read .*{message}"):
        jpeg.decode([made, made])


def test_pillow_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    made = file(zipped(pictures()))
    with pytest.raises(ImportError, match="pillow is needed to decode the JPEG copy .*pip install pillow"):
        jpeg.decode([made, made])
