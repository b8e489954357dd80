"""Leading axes, routes and plain sums that tests of statistics share."""

import pytest

import gilib.statistics

EXACT = {"rtol": 1e-12, "atol": 1e-12}
POINTS, FAN_IN, OUTPUTS = 5, 3, 4
# leading axes of the features and of the parameters: none, samples, samples and replicas
LEADS = pytest.mark.parametrize(
    ("lead", "parameters"),
    [
        ((), ()),  # one function
        ((6,), ()),  # samples
        ((6, 2), (2,)),  # samples and replicas
        ((6, 2), ()),  # replicas that share their parameters
        ((2,), (2,)),  # first layer: replicas, no sample axis
        ((), (2,)),  # first layer: the replicas share the features
        ((6, 1), (2,)),  # an axis of one
        ((6, 2, 3), (2, 3)),  # two replica axes
    ],
)


@pytest.fixture(params=["triangle", "products"], autouse=True)
def route(request, monkeypatch):
    """Every test takes both routes to the per-output Gram matrices, however many outputs it has."""
    monkeypatch.setattr(gilib.statistics, "FEW_OUTPUTS", 0 if request.param == "triangle" else 10**6)
    return request.param
