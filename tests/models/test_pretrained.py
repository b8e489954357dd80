"""A trained model with a posterior that begins at its weights, against conversions by hand."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import gilib
from gilib.layers import Pretrained
from gilib.posteriors import Conjugate, Dropout, MatrixGaussian
from tests.layers.test_pretrained import Own
from tests.support import D, assert_equal, assert_mean, normals, seeded, shaken, with_ones

X, Y = normals(12, 3, seed=1), normals(12, 2, seed=2)
IMAGES = normals(6, 2, 8, 8, seed=3)
SURE = {  # posteriors of hardly any spread, which begin at the weights themselves
    "factorised": gilib.Factorised(1e-24),
    "point": gilib.PointEstimate(),
    "matrix": MatrixGaussian(1e-24),
    "conjugate": Conjugate(initial_sd=1e-12),
    "dropout": Dropout(1e-9),
}


def dense():
    nested = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(inplace=True))
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nested, nn.Dropout(), nn.Linear(4, 2))


def convolutional():
    return nn.Sequential(
        *(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(3, 4, (3, 2), stride=2, bias=False), nn.Flatten(), nn.Linear(8, 2)),
    )


class Scaled(nn.Module):
    """A dense layer that is not the end."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return 2.0 * self.head(self.body(x).tanh()) + self.head.weight.sum()


MODELS = {"dense": dense, "convolutional": convolutional, "residual": Own, "scaled": Scaled}


def trained(name):
    torch.manual_seed(0)
    model = shaken(MODELS[name]().to(D), 0.2)
    model(IMAGES if name == "convolutional" else X)  # statistics of batches
    return model, IMAGES if name == "convolutional" else X


def converted(model, x, posterior, **settings):
    settings.setdefault("input_shape", tuple(x.shape[1:]))
    return gilib.bayesian(model, posterior, generator=seeded(), **settings)


@pytest.mark.filterwarnings("ignore:these stay as they were trained")
@pytest.mark.parametrize(
    ("name", "posterior"),
    [
        *((name, "factorised") for name in MODELS),
        *(("convolutional", own) for own in SURE if own != "factorised"),
    ],
)
def test_without_spread_the_network_is_the_model(name, posterior):
    model, x = trained(name)
    before = copy.deepcopy(model)
    net = converted(model, x, SURE[posterior])
    truth = copy.deepcopy(model).eval()(x).detach()
    assert_equal(net.draw(3, generator=seeded())(x).detach(), truth.expand(3, -1, -1), 1e-8)
    assert_equal(net.estimate(3, len(x), generator=seeded())(x).detach(), truth.expand(3, -1, -1), 1e-8)
    assert model.training and all(p.requires_grad for p in model.parameters())
    assert all(map(torch.equal, model.state_dict().values(), before.state_dict().values()))


def test_a_sequence_becomes_the_layers_that_one_would_write():
    """The same parameters, so that draws and log_pq are those of a network made by hand."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to(D)
    prior = gilib.NealPrior(1.5)
    net = converted(model, X, gilib.Factorised(), prior=prior)
    layers = [
        gilib.Linear(3, 4, gilib.Factorised(), prior),
        nn.ReLU(),
        gilib.Linear(4, 2, gilib.Factorised(), prior),
    ]
    hand = gilib.Network(None, layers, dtype=D)
    for k in (0, 2):
        weights = torch.cat([model[k].weight.mT, model[k].bias[None]])
        hand.layers[k].weights.scaled_mean.data.copy_(weights * len(weights) ** 0.5)
    noise = hand.base_noise(3, seeded())
    ours, theirs = net.draw(noise=noise), hand.draw(noise=noise)
    assert_equal(ours(X), theirs(X))
    assert_equal(ours.log_pq, theirs.log_pq)


def test_the_bound_of_one_dense_layer_by_hand():
    """Expected log likelihood and divergence of independent Gaussians, in closed form."""
    model = nn.Linear(3, 2).to(D)
    net = gilib.bayesian(model, gilib.Factorised(0.02))
    mean, inputs = torch.cat([model.weight.mT, model.bias[None]]).detach(), with_ones(X)
    sd = torch.full_like(mean, (0.02 / 2.0) ** 0.5)  # I = 4
    size = mean.square().mean()  # of the weights, which is the prior's variance
    divergence = kl_divergence(Normal(mean, sd), Normal(torch.zeros_like(mean), size.sqrt())).sum()
    variance = inputs.square() @ sd.square()
    expected = Normal(inputs @ mean, 0.3**0.5).log_prob(Y).sum() - 0.5 * variance.sum() / 0.3
    estimate = net.estimate(20000, 12, generator=seeded())
    likelihood = gilib.Gaussian(0.3).to(D)
    bounds = gilib.elbo(estimate, likelihood, X, Y, num_data=12, reduction="none").detach()
    assert_equal(estimate.log_pq[0].detach(), -divergence, 1e-10)
    assert_mean(bounds, expected - divergence)


@pytest.mark.parametrize("name", ["dense", "residual", "convolutional"])
def test_global_inducing_points_begin_with_what_the_model_gives_there(name):
    model, x = trained(name)
    settings = {"inducing_points": x[:5], "input_shape": None}
    with pytest.warns(UserWarning, match="BatchNorm1d") if name != "convolutional" else nullcontext():
        net = converted(model, x, gilib.GlobalInducing(), **settings)
        held = converted(model, x, gilib.GlobalInducing(log_precision=25.0), **settings)
    truth = copy.deepcopy(model).eval()(x[:5]).detach()
    assert_equal(held.draw(2, generator=seeded())(x[:5]).detach(), truth.expand(2, -1, -1), 1e-3)
    noise = (net.draw(300, generator=seeded())(x[:5]).detach() - truth).square().mean().sqrt()
    assert noise < 0.5 * truth.square().mean().sqrt()


def test_local_inducing_points_begin_with_the_pseudo_outputs_of_the_weights():
    model = nn.Linear(3, 2).to(D)
    net = gilib.bayesian(model, gilib.LocalInducing(9, log_precision=25.0), generator=seeded())
    assert_equal(net.draw(2, generator=seeded())(X).detach(), model(X).expand(2, -1, -1).detach(), 1e-4)


def test_dropout_is_that_of_torch():
    """The mean over coins is the model, and a draw is one pass in training mode with shared coins."""
    model = nn.Sequential(nn.Dropout(0.25), nn.Linear(3, 2)).to(D)
    net = gilib.bayesian(model[1], Dropout(0.25))
    draws = net.draw(4000, generator=seeded())
    assert_mean(draws(X).detach(), model[1](X).detach())
    weights = draws.function.functions[0].weights[:, :-1]
    kept = weights[:, :, 0] != 0
    assert_equal(weights, kept[..., None] * model[1].weight.mT / 0.75)


def test_last_layer_of_a_forward_of_its_own_shares_the_body_between_draws():
    model, x = trained("residual")
    calls = []
    model.block.register_forward_hook(lambda *arguments: calls.append(len(arguments[1][0])))
    net = converted(model, x, gilib.GlobalInducing(), where=model.head, inducing_points=x)
    body, head = net.layers
    assert isinstance(body, Pretrained) and isinstance(head, gilib.Linear) and not body.layers
    calls.clear()
    net.draw(50, generator=seeded())(x)
    assert max(calls) == len(x)
    assert isinstance(converted(*trained("scaled"), gilib.Factorised()).layers[-1], Pretrained)


def test_where_and_posteriors_by_layer():
    model, x = trained("residual")
    net = converted(model, x, gilib.Factorised(), where=[model.block, model.inner])
    (only,) = net.layers
    assert only.names == ("inner", "block")  # in the order of calls
    mixed = converted(model, x, (gilib.PointEstimate(), gilib.Factorised()))
    body, head = mixed.layers
    assert [layer.posterior.short_name for layer in (*body.layers, head)] == ["map", "map", "fac"]


def test_tokens_are_rows_of_one_layer():
    """A dense layer that meets a point three times has three rows for each inducing point."""
    model = nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Linear(1, 4), nn.Tanh(), nn.Flatten(), nn.Linear(12, 2)
    ).to(D)
    net = converted(model, X, gilib.GlobalInducing(log_precision=20.0), inducing_points=X[:5])
    assert_equal(
        net.draw(2, generator=seeded())(X[:5]).detach(), model(X[:5]).expand(2, -1, -1).detach(), 1e-3
    )


def test_replicas_begin_alike():
    model, x = trained("residual")
    net = converted(model, x, gilib.Factorised(1e-24), replicas=(2,))
    truth = model.eval()(x).detach()
    assert_equal(net.draw(3, generator=seeded())(x).detach(), truth.expand(3, 2, -1, -1), 1e-8)


def test_what_cannot_be_converted_is_named():
    odd = nn.Sequential(
        *(nn.Conv2d(2, 2, 3, groups=2), nn.Conv2d(2, 2, 3, dilation=2), nn.Conv2d(2, 2, 3, padding="same")),
        *(nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(8, 2)),
    )
    names = ", ".join(f"{k} \\(Conv2d\\)" for k in range(4))
    with pytest.warns(UserWarning, match=f"without a posterior: {names}$"):
        net = gilib.bayesian(odd, input_shape=(2, 8, 8))
    assert [type(layer) for layer in net.layers] == [Pretrained] * 5 + [gilib.Linear]
    with pytest.raises(ValueError, match=r"nothing to convert.*got 0 \(Conv2d\)"):
        gilib.bayesian(odd, where=odd[0], input_shape=(2, 8, 8))
    with pytest.raises(ValueError, match="where must hold modules of the model"):
        gilib.bayesian(odd, where=nn.Linear(3, 2), input_shape=(2, 8, 8))
    with pytest.raises(ValueError, match="give input_shape"):
        gilib.bayesian(Own())
    with pytest.raises(TypeError, match="cannot begin at given weights"):
        gilib.bayesian(nn.Linear(3, 2), gilib.FromPrior())
    with pytest.raises(ValueError, match="needs inducing points"):
        gilib.bayesian(nn.Linear(3, 2), gilib.GlobalInducing())
    with pytest.raises(ValueError, match="self_attn.out_proj|does not call"):
        gilib.bayesian(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), input_shape=(3, 4))
