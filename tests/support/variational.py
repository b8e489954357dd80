"""Variational rules that look like Adam, and a small problem for them, shared by their tests."""

import pytest
import torch

import gilib
from gilib.training import IVON, VOGN, NoisyAdam, Vadam
from gilib.training.gradients.objective import Objective
from gilib.training.gradients.parallel import OneProcess
from gilib.training.rules.base import Problem
from tests.support import normals, seeded

RULES = {
    "vogn": VOGN(0.1, betas=(0.8, 0.9)),
    "vadam": Vadam(0.1, betas=(0.8, 0.9)),
    "noisy adam": NoisyAdam(0.1, betas=(0.8, 0.9), damping=0.02),
    "ivon": IVON(0.1, betas=(0.8, 0.9)),
}
each_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
X, Y, NOISE = normals(7, 2, seed=1), normals(7, 2, seed=2), 0.3


def fit(net, rule, x=X, y=Y, *, steps=3, likelihood=None, **settings):
    settings = {"num_samples": 2, "progress": False} | settings
    likelihood = gilib.Gaussian(NOISE) if likelihood is None else likelihood
    return gilib.fit(net, likelihood, x, y, steps=steps, rule=rule, **settings)


def problem(net, num_data):
    likelihood, device = gilib.Gaussian(NOISE), torch.device("cpu")
    objective = Objective(net, likelihood, num_data, 2, "draw", "full", device, False)
    return Problem(net, likelihood, {}, objective, 1, seeded(), OneProcess(), device)


def posteriors(net):
    modules = [layer.weights for layer in net.modules() if isinstance(layer, gilib.Linear | gilib.Conv2d)]
    return [(own.mean.detach(), (-own.log_variance.detach()).exp()) for own in modules]
