"""The contact sheet holds the first image of every class, in order, and says which class has none."""

import pytest
import torch

import contact_sheet


def test_the_first_image_of_every_class_in_order():
    images = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1)
    assert contact_sheet.firsts(images, torch.tensor([1, 0, 1, 2]), 3).flatten().tolist() == [1, 0, 3]
    with pytest.raises(ValueError, match=r"an image of every class, and there is none of \[1\]"):
        contact_sheet.firsts(images[:2], torch.tensor([0, 2]), 3)


def test_every_image_is_on_the_sheet_with_white_between():
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 3, 2, 2)
    found = contact_sheet.sheet(images, columns=3)
    side, step = 2 * contact_sheet.SCALE, 2 * contact_sheet.SCALE + contact_sheet.GAP
    assert found.shape == (step + side, 2 * step + side, 3)
    for corner in (0, side - 1):
        assert found[corner::step, corner::step, 0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (found[side:step] == 255).all() and (found[:, side:step] == 255).all()
