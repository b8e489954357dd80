"""Images of eight bits: arrays, what divides them by their deviations, and what is done to them at random."""

import hashlib
import itertools

import numpy as np
import pytest
import torch

from experiments.images import ImageDataset, ImageNormalisation, random_flip_and_crop, sha256_of_images
from tests.support import D, refusals, seeded


def pixels(*shape, seed=0):
    return torch.randint(256, shape, generator=seeded(seed), dtype=torch.uint8)


def dataset(**changes):
    """Six training and four test images of two channels, 3 × 5, in three classes."""
    train_x = pixels(6, 2, 3, 5)
    fields = {
        "name": "small",
        "label": "Small",
        "train_x": train_x,
        "train_y": torch.tensor([0, 1, 2, 0, 1, 2]),
        "test_x": pixels(4, 2, 3, 5, seed=1),
        "test_y": torch.tensor([2, 1, 0, 0]),
        "class_names": ("a", "b", "c"),
        "normalisation": ImageNormalisation.fit(train_x),
    }
    return ImageDataset(**{**fields, **changes})


def test_checksum_is_that_of_header_and_bytes():
    data = dataset()
    expected = hashlib.sha256(
        b"train_x |u1 6 2 3 5\ntrain_y <i8 6\ntest_x |u1 4 2 3 5\ntest_y <i8 4\n"
        + data.train_x.numpy().tobytes()
        + np.array([0, 1, 2, 0, 1, 2], "<i8").tobytes()
        + data.test_x.numpy().tobytes()
        + np.array([2, 1, 0, 0], "<i8").tobytes()
    ).hexdigest()
    assert data.sha256 == expected
    strided = data.train_x.transpose(2, 3).contiguous().transpose(2, 3)
    assert sha256_of_images(strided, data.train_y, data.test_x, data.test_y) == expected


def test_subset_keeps_the_normalisation_of_all():
    data = dataset()
    part = data.subset(first=2)
    assert part.train_x.untyped_storage().nbytes() == 2 * 2 * 3 * 5  # and not all images
    assert torch.equal(part.train_x, data.train_x[:2]) and part.train_y.tolist() == [0, 1]
    assert torch.equal(part.test_x, data.test_x) and part.label == "Small (first 2 training images)"
    assert part.normalisation is data.normalisation and part.sha256 != data.sha256
    fewer = data.subset(2, first_test=3)
    assert fewer.test_y.tolist() == [2, 1, 0] and fewer.label == "Small (first 2 training and 3 test images)"


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_tensors_are_normalised_by_the_training_images(dtype):
    data = dataset()
    tensors = data.tensors("cpu", dtype)
    for x, images in ((tensors.train_x, data.train_x), (tensors.test_x, data.test_x)):
        fraction = images.double() / 255
        columns = data.train_x.double().transpose(0, 1).flatten(1) / 255  # [C, values]
        expected = (fraction - columns.mean(1)[:, None, None]) / columns.std(1)[:, None, None]
        assert x.dtype == dtype
        assert torch.allclose(x.double(), expected, rtol=0, atol=16 * torch.finfo(dtype).eps)
    assert torch.equal(tensors.train_y, data.train_y) and torch.equal(tensors.test_y, data.test_y)


def test_images_out_of_distribution_take_another_normalisation():
    data = dataset(train_x=pixels(0, 2, 3, 5), train_y=torch.zeros(0, dtype=torch.int64), normalisation=None)
    with pytest.raises(ValueError, match=r"small has no training"):
        data.tensors()
    with pytest.raises(ValueError, match="no normalisation: pass normalisation=ImageNormalisation.fit"):
        dataset(normalisation=None).tensors()
    trained = dataset()
    x = data.tensors(normalisation=trained.normalisation).test_x
    assert torch.equal(x, trained.normalisation.x(data.test_x))


IMAGES = pixels(7, 3, 4, 6, seed=3)
FITTED = ImageNormalisation.fit(IMAGES)


def test_leading_axes_are_free_and_the_way_back():
    before, x = IMAGES.clone(), FITTED.x(IMAGES, D)
    assert torch.equal(IMAGES, before)
    assert torch.equal(FITTED.x(IMAGES.expand(2, *IMAGES.shape), D)[1], x)
    assert torch.equal(FITTED.x(IMAGES[0], D), x[0])
    assert torch.allclose(FITTED.invert_x(x), IMAGES.double() / 255, rtol=0, atol=1e-15)
    assert FITTED.invert_x(x.float()).dtype == torch.float32


def test_a_constant_channel_is_divided_by_one():
    images = IMAGES.clone()
    images[:, 1] = 51
    fitted = ImageNormalisation.fit(images)
    assert fitted.x_std[1] == 1.0 and fitted.x_mean[1] == 0.2
    assert fitted.x(images, D)[:, 1].abs().max() < 1e-16


test_arrays_that_do_not_fit = refusals(
    [
        (lambda: dataset(train_x=pixels(6, 3, 5)), r"train_x must be \[N, C, H, W\] .* got \(6, 3, 5\)"),
        (lambda: dataset(class_names=("a", "b")), "labels from 0 to 1, one for each class name, got 0 to 2"),
        (lambda: dataset(test_x=pixels(4, 2, 3, 4)), r"one size, got \(2, 3, 5\) and \(2, 3, 4\)"),
        (lambda: dataset().subset(7), "small has 6 training images, got 7"),
        (lambda: dataset().subset(2, first_test=5), "small has 4 test images, got 5"),
        (lambda: FITTED.x(IMAGES[:, :1]), r"with C = 3 channels, .* got shape \(7, 1, 4, 6\)"),
        (lambda: FITTED.invert_x(torch.zeros(3, 3)), "with C = 3 channels"),
        (lambda: ImageNormalisation.fit(IMAGES[:0]), r"\[N, C, H, W\] with at least one image, got"),
        (lambda: ImageNormalisation.fit(IMAGES[0]), r"\[N, C, H, W\] with at least one image, got"),
        (lambda: ImageNormalisation(torch.zeros(2), torch.ones(3)), r"got shapes \(2,\) and \(3,\)"),
        (lambda: ImageNormalisation(torch.zeros(1), torch.zeros(1)), r"got \[0.0\] and \[0.0\]"),
    ]
)
test_things_that_are_no_pixels = refusals(
    [
        (lambda: dataset(train_x=torch.zeros(6, 2, 3, 5)), "train_x must be uint8 and train_y int64, got"),
        (lambda: FITTED.x(IMAGES.float()), "uint8 tensor of pixels from 0 to 255, got torch.float32"),
        (lambda: ImageNormalisation.fit(IMAGES.numpy()), "pixels from 0 to 255, got ndarray"),
        (lambda: FITTED.x(IMAGES, torch.int64), "dtype must be a floating-point type .* got torch.int64"),
        (lambda: FITTED.invert_x(IMAGES), "normalised images of a floating-point type, got torch.uint8"),
        (lambda: ImageNormalisation((0.1,), torch.ones(1)), "x_mean must be a floating-point tensor, got"),
    ],
    TypeError,
)


C, H, W = 2, 5, 7


def different(*shape):
    """Images in which every pixel has a value of its own, none of them zero."""
    return torch.arange(1, torch.Size(shape).numel() + 1, dtype=D).reshape(shape)


def by_hand(image, flipped, top, left, padding):
    """The window whose upper left corner is at (top, left) of the padded image, pixel by pixel."""
    result = torch.zeros_like(image)
    for channel, row, column in itertools.product(range(C), range(H), range(W)):
        source_row, source_column = row + top - padding, column + left - padding
        if 0 <= source_row < H and 0 <= source_column < W:
            mirrored = W - 1 - source_column if flipped else source_column
            result[channel, row, column] = image[channel, source_row, mirrored]
    return result


def test_flip_and_crop_are_those_of_a_loop():
    padding, x = 2, different(12, C, H, W)
    source = seeded(1)
    flips = torch.rand(12, generator=source) < 0.5
    top, left = torch.randint(2 * padding + 1, (2, 12), generator=source).tolist()
    assert 0 < int(flips.sum()) < 12
    expected = [by_hand(image, flips[k], top[k], left[k], padding) for k, image in enumerate(x)]
    assert torch.equal(random_flip_and_crop(x, padding, seeded(1)), torch.stack(expected))


def test_a_pure_function_of_images_and_seeded():
    x = different(6, C, H, W)
    before = x.clone()
    once, again = (random_flip_and_crop(x, 3, seeded(4)) for _ in range(2))
    assert torch.equal(once, again) and torch.equal(x, before)
    assert not torch.equal(once, random_flip_and_crop(x, 3, seeded(5)))


def test_leading_axes_are_more_images_and_nothing_is_read_back():
    x = different(2, 3, C, H, W)
    result = random_flip_and_crop(x, 2, seeded(6))
    assert torch.equal(result.flatten(0, 1), random_flip_and_crop(x.flatten(0, 1), 2, seeded(6)))
    assert random_flip_and_crop(x[0, 0], 2, seeded(6)).shape == (C, H, W)
    empty = torch.empty(4, C, H, W, device="meta")  # of which `bool(t)` or `t.item()` would fail
    assert random_flip_and_crop(empty, 2).shape == empty.shape


test_bad_input = refusals(
    [
        (lambda: random_flip_and_crop(torch.zeros(H, W)), r"\[..., C, H, W\], got shape \(5, 7\)"),
        (
            lambda: random_flip_and_crop(torch.zeros(1, C, H, W, device="meta"), 1, seeded()),
            "are on meta and",
        ),
    ]
)
