"""One test image of every class of an image set, side by side: a static figure of the book.

``python tools/contact_sheet.py cifar10 book/_static/cifar-10.png`` makes the figure of the chapter on
CIFAR-10 anew where the data are at hand; the book and the tests read the file and need no data set.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

SCALE, GAP = 3, 4  # pixels of the sheet for one of an image; white pixels between images


def firsts(images: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The first image of every class, in the order of the labels: ``[N, C, H, W]`` -> ``[K, C, H, W]``."""
    places = [(labels == label).nonzero() for label in range(num_classes)]
    if missing := [label for label, found in enumerate(places) if not len(found)]:
        raise ValueError(f"a contact sheet needs an image of every class, and there is none of {missing}")
    return images[torch.stack([found[0, 0] for found in places])]


def sheet(images: Tensor, columns: int = 5) -> Tensor:
    """Images in rows, every pixel a square, on white: uint8 ``[K, C, H, W]`` -> ``[height, width, C]``."""
    large = images.repeat_interleave(SCALE, -1).repeat_interleave(SCALE, -2)
    framed = torch.nn.functional.pad(large, (0, GAP, 0, GAP), value=255)
    rows = [torch.cat(list(row), -1) for row in framed.split(columns)]
    return torch.cat(rows, -2)[:, :-GAP, :-GAP].permute(1, 2, 0)


def main(name: str, target: str) -> None:
    """Write the sheet of a set that `experiments.images.load_images` knows."""
    from PIL import Image

    from experiments.images import load_images

    data = load_images(name)
    shown = firsts(data.test_x, data.test_y, len(data.class_names))
    Image.fromarray(sheet(shown).contiguous().numpy()).save(Path(target), optimize=True)
    print(f"{target}: {data.label}; {', '.join(data.class_names)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
