import itertools

import torch

from experiments.images import random_flip_and_crop
from tests.support import D, refusals, seeded

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
