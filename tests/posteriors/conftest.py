"""Prior precisions that the tests of posteriors share."""

import pytest

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
