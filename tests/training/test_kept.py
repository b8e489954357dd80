"""States of a chain that are kept: functions to predict with."""

import pytest
import torch

import gilib
from gilib.training import SGHMC, StoredStates
from tests.support import assert_equal, seeded
from tests.support.chains import FEATURES, KERNEL, NOISE, X, Z, fixed, linear, process, state, train, white


def test_kept_states_are_functions():
    net, kept = fixed(linear()), StoredStates(burn_in=2, every=3)
    train(net, SGHMC(2, lr=0.1), 11, callbacks=[kept])
    samples = kept.samples(net)
    weights = samples.states["layers.layers.0.weights.scaled_weights"]
    assert samples.num_states == 3 and torch.equal(weights[-1], state(net))  # those of steps 5, 8, 11
    assert_equal(samples.draw()(X).detach(), FEATURES["linear"]() @ weights, 1e-12)


def test_kept_states_of_processes_sample_their_own_points():
    """Given u the mean at a point is aᵀw, and the variance k - |a|² is the likelihood's to integrate."""
    net, kept = fixed(process((2,))), StoredStates(burn_in=2, every=1)
    train(net, SGHMC(2, lr=0.1), 6, callbacks=[kept])
    samples = kept.samples(net)
    draw = samples.draw(generator=seeded())
    mean, variance = draw.moments(X)
    states = samples.states["layers.layers.0.weights.scaled_weights"]
    assert states.shape == (4, 2, len(Z), 1)
    assert_equal(mean.detach(), white() @ states, 1e-9)
    expected = KERNEL.variance - white().square().sum(-1, keepdim=True)
    assert_equal(variance.detach(), expected.clamp_min(0.0).expand_as(mean), 1e-9)
    prediction = gilib.predict(samples, gilib.Gaussian(NOISE), X, 4, generator=seeded())
    assert_equal(prediction.mean, (white() @ states).mean(0), 1e-9)


def test_kept_states_of_another_training_are_forgotten():
    net, kept = fixed(linear()), StoredStates(burn_in=0, every=1)
    train(net, SGHMC(0), 3, callbacks=[kept])
    train(net, SGHMC(0), 2, callbacks=[kept])
    assert kept.samples(net).num_states == 2


def test_states_that_are_not_there():
    kept, net = StoredStates(burn_in=10, every=5), linear()
    train(net, SGHMC(10), 14, callbacks=[kept])
    with pytest.raises(ValueError, match="due at step 15"):
        kept.samples(net)
