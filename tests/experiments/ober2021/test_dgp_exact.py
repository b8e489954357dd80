"""One exact layer beside the deep processes of Tables 8 to 10."""

import math

import pytest
import torch
from torch.distributions import MultivariateNormal

from experiments.common.uci_splits import Data
from experiments.ober2021 import dgp_uci_run
from experiments.ober2021.dgp_uci import ExactConfig
from tests.experiments.recorded import JOB
from tests.support import normals


def highest_evidence(x, y):
    """Log N(y; 0, K + σ²) per point, maximised over variance, lengthscales and noise by torch alone."""
    points, inputs = x.shape
    logs = torch.zeros(inputs + 2, dtype=x.dtype, requires_grad=True)

    def loss():
        logs.grad = None
        *lengths, variance, noise = logs.exp()
        scaled = x / torch.stack(lengths)
        covariance = variance * (-0.5 * torch.cdist(scaled, scaled) ** 2).exp() + noise * torch.eye(points)
        value = -MultivariateNormal(torch.zeros_like(y), covariance).log_prob(y) / points
        value.backward()
        return value

    torch.optim.LBFGS([logs], max_iter=100, line_search_fn="strong_wolfe").step(loss)
    return -float(loss().detach())


def test_the_evidence_is_that_of_the_targets_as_they_are(monkeypatch):
    """Rounding costs the search something, 0.1 nats a point for whole numbers here; it is not recorded."""
    x, new = normals(80, 2), normals(5, 2, seed=1)
    y = (math.sqrt(2.0) * x[:, :1].sin() + 0.6 * normals(80, 1, seed=2)).round()
    scaled = (y - y.mean()) / y.std()
    data = Data("waves", "", x[None], scaled[None], new[None], scaled[None, :5], y.std()[None])
    monkeypatch.setattr(dgp_uci_run, "load", lambda *_: data)
    record = dgp_uci_run.run_exact(ExactConfig("waves", 0), JOB)
    assert record["metrics"]["evidence"] == pytest.approx(highest_evidence(x, scaled[:, 0]), abs=0.01)
