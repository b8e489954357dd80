"""The sample that ships, and the full sets where they are on this machine."""

import gzip
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from experiments.images import image_names, load_images
from experiments.images.catalogue import IMAGE_SETS

SHIPPED = "mnist-500"
BYTES_ALLOWED = 400_000


class Published(NamedTuple):
    """What others report of a set; the tolerance is half a unit of the last printed digit, or of a copy."""

    folder: str
    label: str
    shape: tuple
    mean: tuple
    std: tuple
    tolerance: float
    counts: tuple
    first: tuple
    first_test: tuple
    centroids: float  # per cent


DIGITS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)
SMALL, COLOUR = (1, 28, 28), (3, 32, 32)
FULL = {
    "mnist": Published(
        *("mnist", "MNIST", SMALL, (0.1307,), (0.3081,), 5e-5, DIGITS),
        *((5, 0, 4, 1, 9, 2, 1, 3, 1, 4), (7, 2, 1, 0, 4, 1, 4, 9, 5, 9), 82.03),
    ),
    "fashion-mnist": Published(
        *("fashion-mnist", "Fashion-MNIST (recovered copy)", SMALL, (0.2860,), (0.3530,), 1.5e-4),
        *((6000,) * 10, (9, 0, 0, 3, 0, 2, 7, 2, 5, 5), (9, 2, 1, 1, 6, 1, 4, 6, 5, 7), 67.68),
    ),
    "cifar10": Published(
        *("cifar10-jpeg", "CIFAR-10 (JPEG copy)", COLOUR, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        *(2e-3, (5000,) * 10, tuple(range(10)), tuple(range(10)), 27.7),  # some variance is compressed away
    ),
}


@pytest.fixture(scope="module", params=FULL)
def full(request):
    """Each of the full sets, as far as it is on this machine."""
    chosen = os.environ.get("GILIB_DATA")
    if not chosen:
        pytest.skip("GILIB_DATA is not set: full sets of images do not ship with gilib")
    if not (Path(chosen) / FULL[request.param].folder).is_dir():
        pytest.skip(f"{FULL[request.param].folder} is not below GILIB_DATA")
    return load_images(request.param, download=False)


@pytest.fixture(scope="module")
def sample():
    return load_images(SHIPPED)


def centroid_accuracy(data):
    """Percentage of test images whose nearest class mean of the training images is that of their class."""
    classes = range(len(data.class_names))
    x, y = data.train_x.flatten(1), data.train_y
    means = torch.stack([x[y == k].float().mean(0) for k in classes])  # [K, pixels]
    distance = (
        means.square().sum(1) - 2 * data.test_x.flatten(1).float() @ means.T
    )  # [N*, K], up to a constant
    return 100 * (distance.argmin(1) == data.test_y).double().mean().item()


def test_sets_have_names_sources_and_fingerprints_and_what_can_be_fetched_a_safe_address():
    assert image_names() == ("cifar10", "fashion-mnist", "mnist", "mnist-500", "svhn")
    assert [name for name in image_names() if IMAGE_SETS[name].ships] == [SHIPPED]
    assert sum(bool(layout.url) for entry in IMAGE_SETS.values() for layout in entry.layouts) == 4
    for entry in IMAGE_SETS.values():
        assert entry.source and entry.licence and len(entry.class_names) == 10
        for layout in entry.layouts:
            assert {len(variant.fingerprints) for variant in layout.variants} == {len(layout.files)}
            if layout.url:
                assert layout.url.startswith("https://") and len(layout.sha256) == len(layout.files)
                assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in layout.sha256)


def test_the_sample(sample):
    assert sample.train_x.shape == (500, 1, 28, 28) and sample.test_x.shape == (1000, 1, 28, 28)
    assert sample.train_x.dtype == torch.uint8 and sample.train_y.dtype == torch.int64
    assert tuple(sample.train_y[:10].tolist()) == FULL["mnist"].first
    assert tuple(sample.test_y[:10].tolist()) == FULL["mnist"].first_test
    assert "CC BY-SA 3.0" in sample.licence and "LeCun" in sample.source
    assert centroid_accuracy(sample) > 50.0  # labels of other images give ten percent
    x, pixels = sample.tensors(dtype=torch.float64).train_x, sample.train_x.double() / 255
    mean, deviation = 0.13066047627384286, 0.30810780713141817  # of the full set
    assert torch.allclose(x, (pixels - mean) / deviation, rtol=0, atol=1e-14)


def test_the_sample_is_small_and_without_a_date():
    entry = IMAGE_SETS[SHIPPED]
    packed = {path.name: path.read_bytes() for path in (files("experiments") / "files").iterdir()}
    images = {name: content for name, content in packed.items() if not name.endswith(".xz")}
    assert set(images) == set(entry.layouts[0].files)
    assert sum(map(len, images.values())) < BYTES_ALLOWED
    assert all(content[3:8] == bytes(5) for content in images.values())  # no file name, modification time 0


def test_the_sample_is_the_beginning_of_the_full_set(full, sample):
    if full.name != "mnist":
        pytest.skip("the sample is of MNIST")
    beginning = full.subset(first=500, first_test=1000)
    assert (beginning.sha256, beginning.label) == (sample.sha256, sample.label)
    assert torch.equal(beginning.normalisation.x_mean, sample.normalisation.x_mean)
    assert torch.equal(beginning.normalisation.x_std, sample.normalisation.x_std)
    shipped, there = files("experiments") / "files", Path(os.environ["GILIB_DATA"]) / "mnist"
    pairs = zip(IMAGE_SETS[SHIPPED].layouts[0].files, IMAGE_SETS["mnist"].layouts[0].files, strict=True)
    for own, name in pairs:
        content, whole = (gzip.decompress(path.read_bytes()) for path in (shipped / own, there / name))
        header = 16 if "images" in name else 8
        assert whole[header:].startswith(content[header:])


def test_what_is_published_of_the_full_sets(full):
    published = FULL[full.name]
    assert full.label == published.label
    assert full.train_x.shape == (sum(published.counts), *published.shape)
    assert full.test_x.shape == (10_000, *published.shape)
    assert tuple(torch.bincount(full.train_y).tolist()) == published.counts
    assert tuple(full.train_y[:10].tolist()) == published.first
    assert tuple(full.test_y[:10].tolist()) == published.first_test
    found = torch.stack([full.normalisation.x_mean, full.normalisation.x_std])
    printed = torch.tensor([published.mean, published.std], dtype=torch.float64)
    assert (found - printed).abs().max() < published.tolerance
    assert abs(centroid_accuracy(full) - published.centroids) < 0.5, "labels belong to images"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown set of images 'cifar100': choose one of 'cifar10', .*"):
        load_images("cifar100")
    with pytest.raises(TypeError, match="name must be a str, got int"):
        load_images(10)
    assert load_images("MNIST-500").name == SHIPPED
