"""Natural gradients of joint Gaussians: one step to the optimum, and steps in natural parameters."""

import pytest
import torch

import gilib
from gilib.models import sparse_gp, structured_gp
from gilib.structured import FullyCoupled, MeanField
from gilib.training import NaturalGradient
from gilib.training.rules.natural import natural_step
from tests.support import assert_equal, normals, seeded, shaken

X = normals(20, 2, seed=1)
Y = torch.sin(2 * X).sum(1, keepdim=True) + 0.1 * normals(20, 1, seed=2)


def train(net, rule, y=Y):
    return gilib.fit(net, gilib.Gaussian(0.1), X, y, steps=1, rule=rule, num_samples=2, progress=False)


@pytest.mark.parametrize("family", [MeanField(), FullyCoupled()])
def test_two_outputs_land_on_their_posteriors(family):
    """The joint Gaussian of both, whose covariance between them is zero."""
    ours = structured_gp(2, 2, 1, family=family, inducing_points=X[::4], jitter=0.0)
    theirs = sparse_gp(2, 2, inducing_points=X[::4], jitter=0.0)
    shaken(ours, 0.1)
    (process,) = ours.layers[0]
    theirs.layers[0].hyperparameters.load_state_dict(process.hyperparameters.state_dict())
    theirs.layers[0].inducing_inputs.data.copy_(process.inducing_inputs)
    for net in (ours, theirs):
        for name, parameter in net.named_parameters():
            parameter.requires_grad_("weights" in name)
        train(net, NaturalGradient(1.0), y=torch.cat([Y, Y.cos()], 1))
    joint, free = ours.layers[0].weights, theirs.layers[0].weights
    assert_equal(joint.means[0].detach(), free.mean.detach(), 1e-9)
    factors = [root for _, root in joint.dense(joint.gaussian_parameters)]
    parts = [root.tril() @ root.tril().mT for root in factors]
    found = torch.block_diag(*(part for each in parts for part in each.flatten(0, -3)))
    wanted = torch.block_diag(*(root.tril() @ root.tril().mT for root in free.root))
    assert_equal(found.detach(), wanted.detach(), 1e-9)


def test_a_gaussian_that_is_frozen_in_part():
    net = structured_gp(2, 1, 2, width=2, family=FullyCoupled(), inducing_points=X[::5])
    net.layers[0].weights.means[1].requires_grad_(False)
    message = r"natural gradients move means and factors together, but .*weights.means.1 is frozen: let it"
    with pytest.raises(ValueError, match=message):
        train(net, NaturalGradient(0.1))


class Loss(torch.nn.Module):
    """Minus the bound of all points, as a module that functional_call takes."""

    def __init__(self, net, noise):
        super().__init__()
        self.net, self.noise = net, noise

    def forward(self):
        estimate = self.net.estimate(noise=self.noise)
        return -20 * gilib.elbo(estimate, gilib.Gaussian(0.1), X, Y, num_data=20)


@pytest.mark.parametrize("family", [MeanField(), FullyCoupled()])
def test_a_step_is_one_in_the_natural_parameters(family):
    """Of θ = (S⁻¹m, -½S⁻¹) along the gradient with respect to η = (m, S + mmᵀ), by autograd."""
    net = shaken(structured_gp(2, 1, 2, width=2, family=family, inducing_points=X[::5]), 0.3)
    joint, rate = net.layers[0].weights, 1e-3
    loss = Loss(net, net.estimate_noise(2, 20, seeded(3)))
    parameters = joint.gaussian_parameters
    names = [key for p in parameters for key, value in loss.named_parameters() if value is p]
    gaussians = [(m[:, 0].detach(), r[0].tril().detach()) for m, r in joint.dense(parameters)]
    expectations = [(m, r @ r.mT + m[:, None] * m) for m, r in gaussians]
    expectations = [tuple(value.requires_grad_() for value in pair) for pair in expectations]

    values = joint.undense(
        [(m[:, None], torch.linalg.cholesky(second - m[:, None] * m)[None]) for m, second in expectations]
    )
    along = torch.autograd.grad(
        torch.func.functional_call(loss, dict(zip(names, values, strict=True)), ()),
        [value for pair in expectations for value in pair],
    )
    slopes = joint.dense(torch.autograd.grad(loss(), parameters))
    for k, ((m, r), slope) in enumerate(zip(gaussians, slopes, strict=True)):
        moved, factor = natural_step(m[:, None], r[None], *slope, rate)
        precision = torch.linalg.inv(r @ r.mT)
        after = torch.linalg.inv(factor[0] @ factor[0].mT)
        assert_equal(-0.5 * after, -0.5 * precision - rate * along[2 * k + 1], 1e-7)
        assert_equal(after @ moved[:, 0], precision @ m - rate * along[2 * k], 1e-7)
