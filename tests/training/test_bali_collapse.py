"""Layerwise inference does not collapse to a constant predictor; sets of images are below GILIB_DATA."""

import math

import pytest
import torch

import gilib
from experiments.images import load_images
from experiments.labelled import load_classification
from gilib.data import DataError, load_uci
from gilib.training import Bali
from tests.support import seeded
from tests.support.layerwise import V0, fit, noise

# Largest error on test points, in standard deviations of their targets: that of a constant is 1
ERRORS = {"concrete": (0.6, "absolute"), "wine": (0.9, "relative")}
# Least accuracy; the most frequent class alone has 0.61 and, of images, 0.10
ACCURACIES = {
    "spambase": (0.85, "absolute"),
    "mnist": (0.85, "relative"),
    "fashion-mnist": (0.75, "absolute"),
}


def trained(likelihood, x, y, outputs, prior, steps):
    """By steps of all points, or of a thousand."""
    settings = {"posterior": gilib.posteriors.Conjugate(), "prior": gilib.NealPrior(math.sqrt(V0))}
    net = gilib.models.mlp(x.shape[1], (50,), outputs, **settings)
    fit(net, likelihood, x, y, steps=steps, batch_size=1000, rule=Bali(prior=prior))
    return net


@pytest.mark.parametrize("name", ERRORS)
def test_numbers(name):
    split, likelihood, (bound, prior) = load_uci(name).split(0), noise(), ERRORS[name]
    net = trained(likelihood, split.train_x.float(), split.train_y.float(), 1, prior, 100)
    mean = net.draw(50, generator=seeded())(split.test_x.float()).mean(0)
    error = (mean - split.test_y).square().mean().sqrt()
    assert float(error) < bound * float(split.test_y.std())
    assert float(likelihood.noise_variance.detach()) < bound**2


def labelled(name):
    """Inputs and labels to train on, and to test."""
    if name == "spambase":
        split = load_classification(name).split(0)
        return split.train_x.float(), split.train_y, split.test_x.float(), split.test_y
    try:
        images = load_images(name, download=False).tensors()
    except DataError:
        pytest.skip(f"{name} is not below GILIB_DATA")
    inputs = (part[:2000].flatten(1) for part in (images.train_x, images.test_x))
    return next(inputs), images.train_y[:2000], next(inputs), images.test_y[:2000]


@pytest.mark.parametrize("name", ACCURACIES)
def test_labels(name):
    x, y, test_x, test_y = labelled(name)
    least, prior = ACCURACIES[name]
    net = trained(gilib.Categorical(), x, y, int(y.max()) + 1, prior, 60)
    with torch.no_grad():
        probabilities = net.draw(20, generator=seeded())(test_x).softmax(-1).mean(0)
    assert float((probabilities.argmax(1) == test_y).float().mean()) > least
    assert len(probabilities.argmax(1).unique()) == int(y.max()) + 1
