"""A step of many replicas reads nothing back: it runs on the meta device, where there is nothing to read.

`bool(t)`, `t.item()` and the like make an accelerator's queue wait, and fail on meta tensors.
"""

import pytest
import torch

import gilib
from gilib.training import ReplicaAdam
from gilib.training.rules.sghmc import Coordinates, chosen
from tests.support import PRIORS, small_net

R, N = 3, 5
META = torch.device("meta")
POSTERIORS = {
    "gi": gilib.GlobalInducing(precision="per_output"),
    "gi-full": gilib.GlobalInducing(precision="full"),
    "li": gilib.LocalInducing(num_inducing=4, precision="per_output"),
    "fac→gi": (gilib.Factorised(), gilib.GlobalInducing(precision="per_output")),
}


def on_meta(posterior, prior):
    net = small_net(posterior, prior, points=4, replicas=(R,)).to(META)
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=(R,)).to(META)
    rates = {
        name: (p, [0.1, 0.2, 0.3]) for name, p in [*net.named_parameters(), ("n", *likelihood.parameters())]
    }
    return net, likelihood, rates


@pytest.mark.parametrize(
    ("name", "prior"), [("gi", "neal"), ("gi-full", "scale"), ("li", "neal"), ("fac→gi", "spatial")]
)
def test_draw_bound_and_gradient(name, prior):
    net, likelihood, rates = on_meta(POSTERIORS[name], PRIORS[prior])
    x, y = (torch.empty(R, N, 2, dtype=torch.float64, device=META) for _ in range(2))
    noise = torch.empty(2, R, net.noise_size, dtype=torch.float64, device=META)
    bound = gilib.elbo(net.draw(noise=noise), likelihood, x, y, num_data=N)
    gradients = torch.autograd.grad(-bound.sum(), [p for p, _ in rates.values()], materialize_grads=True)
    assert bound.shape == (R,) and all(g.device == META for g in gradients)


def test_a_step_of_sghmc():
    own = Coordinates.at_rest(torch.empty(R, 4, 2, device=META))
    slope, noise = torch.empty(2, R, 4, 2, device=META)
    own.adapt(slope)
    assert own.pushed(slope, noise, 0.1, 0.5).device == META
    (state,) = chosen([torch.empty(7, R, 4, 2, device=META)], 5, torch.empty(R, device=META))
    assert state.shape == (R, 4, 2) and state.device == META


def test_the_optimiser_reads_nothing(monkeypatch):
    """On the CPU: a read would go through one of these."""
    values = torch.nn.Parameter(torch.ones(R, 4))
    optimiser = ReplicaAdam({"values": (values, [0.1, 0.2, 0.3])}, R)

    def forbidden(*_):
        raise AssertionError("the optimiser read a tensor")

    for name in ("__bool__", "__float__", "__int__", "item", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, forbidden)
    optimiser.advance()
    gradients = torch.autograd.grad(values.square().sum(), [values])
    optimiser.update(gradients, torch.ones(R, dtype=torch.bool))
