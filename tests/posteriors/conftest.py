"""Shared by the tests of posteriors: prior precisions, and modules whose parameters are nowhere symmetric."""

import pytest
import torch

from gilib.linalg import KroneckerIdentity, ScaledIdentity
from tests.support.oracles import positive, positive_definite


@pytest.fixture(params=["scaled", "kronecker"])
def make_prior(request):
    """A function of a generator, the fan-in (even) and leading axes that makes a prior precision."""

    def make(generator, fan_in, lead=()):
        if request.param == "scaled":
            return ScaledIdentity(2.0 * positive(generator, *lead), fan_in)
        return KroneckerIdentity(2.0 * positive_definite(generator, *lead, fan_in // 2, fan_in // 2), 2)

    return make


@pytest.fixture
def perturbed(generator):
    """A function that moves every parameter of a module off its starting point."""

    def perturb(module):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
        return module

    return perturb
