"""R networks in one program: what they share, and where they start."""

import torch
from torch import nn

import gilib
from tests.support import PRIORS, D, normals, seeded, small_net

R, S, STEPS = 3, 2, 3
CASES = {
    "gi-shared": (gilib.GlobalInducing(), "neal"),
    "gi-per_output": (gilib.GlobalInducing(precision="per_output"), "scale"),
    "gi-full": (gilib.GlobalInducing(precision="full"), "spatial"),
    "li-per_output": (gilib.LocalInducing(num_inducing=4, precision="per_output"), "standard"),
    "li-full": (gilib.LocalInducing(num_inducing=4, precision="full"), "scale"),
    "fac": (gilib.Factorised(), "scale"),
    "fac→gi": ((gilib.Factorised(), gilib.GlobalInducing()), "spatial"),
    "rand→gi": ((gilib.FromPrior(), gilib.GlobalInducing(precision="per_output")), "neal"),
}


def model(name, replicas=()):
    posterior, prior = CASES[name]
    net = small_net(posterior, PRIORS[prior], points=4, replicas=replicas)
    return nn.ModuleDict({"net": net, "likelihood": gilib.Gaussian(0.3, learn=True, replicas=replicas)})


def train(pair, noise, x, y):
    """STEPS steps of Adam with the noise handed in; returns the ELBOs."""
    optimiser, trace = torch.optim.Adam(pair.parameters(), lr=0.01), []
    for z in noise:
        bound = gilib.elbo(pair["net"].draw(noise=z), pair["likelihood"], x, y, num_data=10)
        optimiser.zero_grad()
        (-bound.sum()).backward()
        optimiser.step()
        trace.append(bound.detach())
    return torch.stack(trace)


def test_shared_inputs_and_targets_broadcast():
    net, x, y = small_net(gilib.GlobalInducing(), replicas=(R,)), normals(4, 2), normals(4, 2, seed=1)
    draw = net.draw(S, generator=seeded())
    assert draw(x).shape == (S, R, 4, 2) and draw.log_pq.shape == (S, R)
    assert torch.equal(draw(x), draw(x.expand(R, 4, 2)))
    likelihood = gilib.Gaussian(0.3)
    for objective in (gilib.iwbo, lambda *a: gilib.elbo(*a, num_data=4)):
        shared, given = objective(draw, likelihood, x, y), objective(draw, likelihood, x, y.expand(R, 4, 2))
        assert shared.shape == (R,) and torch.equal(shared, given)


def test_inducing_points_and_targets_may_differ_by_replica():
    points, targets = normals(R, 4, 2), normals(R, 4, 1, seed=1)
    net = gilib.models.mlp(2, (), 1, inducing_points=points, pseudo_outputs=targets, replicas=(R,))
    assert torch.equal(net.inducing_points, points)
    assert torch.equal(next(iter(net.layers)).weights.pseudo.outputs, targets)
    shared = gilib.models.mlp(2, (), 1, inducing_points=points[0], pseudo_outputs=targets[0], replicas=(R,))
    assert torch.equal(shared.inducing_points, points[0].expand(R, 4, 2))
    assert shared.inducing_points.dtype == D


def test_replicas_start_from_different_values():
    net = small_net(gilib.Factorised(), replicas=(R,), shake=0.0)
    means = next(iter(net.layers)).weights.scaled_mean
    assert not torch.equal(means[0], means[1])
