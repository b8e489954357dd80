"""A trained module is a layer: the module itself, frozen, with functions in the place of modules inside."""

import copy
import threading

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import Estimate, record
from gilib.layers import Pretrained
from gilib.posteriors import BuildContext
from tests.support import D, assert_equal, normals, seeded, shaken

X, Y = normals(12, 3, seed=1), normals(12, 2, seed=2)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


class Own(nn.Module):
    """A forward of its own: a residual block, batch normalisation, dropout, an activation in place."""

    def __init__(self, width=4):
        super().__init__()
        self.inner, self.block = nn.Linear(3, width), nn.Linear(width, width, bias=False)
        self.norm, self.drop, self.act = nn.BatchNorm1d(width), nn.Dropout(), nn.ReLU(inplace=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        hidden = self.act(self.inner(x))
        return self.head(self.drop(hidden + self.act(self.norm(self.block(hidden)))))


def trained(module):
    """A module whose parameters and statistics of batches are not those of its making, in training mode."""
    shaken(module.to(D), 0.3)
    for _ in range(3):
        module(normals(20, 3, seed=3))
    return module.train()


def built(module, shape=(3,), points=None, **settings):
    layer = Pretrained(module, **settings)
    layer.join(shape, BuildContext(num_inducing=points, dtype=D, generator=seeded()))
    return layer


def below_a_layer(layer):
    layers = [layer, gilib.Linear(2, 1, gilib.Factorised())]
    return gilib.Network(None, layers, input_shape=(3,), dtype=D)


def test_a_draw_is_the_module_in_eval_mode_and_the_module_stays_as_it_was():
    module = trained(Own())
    before = copy.deepcopy(module.state_dict())
    layer = built(module)
    output = layer.draw(num_samples=3)(X)
    assert_equal(output, copy.deepcopy(module).eval()(X), 1e-12)
    assert module.training and module.act.inplace and all(p.requires_grad for p in module.parameters())
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert not any(p.requires_grad for p in layer.parameters()) and layer.noise_size == 0
    layer.train()
    assert_equal(layer.draw()(X), output)


def test_trainable_parameters_get_gradients_and_no_part_of_the_bound():
    body = trained(Own())
    net = below_a_layer(Pretrained(body, trainable=True))
    assert "the bound does not count" in repr(net)
    draw = net.draw(2, generator=seeded())
    grads = torch.autograd.grad(draw(X).sum(), list(net.layers[0].parameters()))
    assert all(bool(g.abs().sum() > 0) for g in grads)
    frozen = below_a_layer(Pretrained(body))
    frozen.load_state_dict(net.state_dict())
    assert torch.equal(draw.log_pq, frozen.draw(2, generator=seeded()).log_pq)
    gilib.fit(net, gilib.Gaussian(0.1).to(D), X, Y[:, :1], steps=3, progress=False)
    moved = net.layers[0].module
    assert not torch.equal(moved.inner.weight, body.inner.weight)
    assert torch.equal(moved.norm.running_mean, body.norm.running_mean)


def drawn_by_hand(module, weights):
    """`Own` with given weights, sample by sample."""
    own = copy.deepcopy(module).eval()
    outputs = []
    for s in range(len(weights["inner"])):
        with torch.no_grad():
            own.inner.weight.copy_(weights["inner"][s, :-1].mT)
            own.inner.bias.copy_(weights["inner"][s, -1])
            own.block.weight.copy_(weights["block"][s].mT)
        outputs.append(own(X))
    return torch.stack(outputs).detach()


@pytest.mark.parametrize("posterior", [gilib.Factorised(), gilib.GlobalInducing(), gilib.LocalInducing(5)])
def test_layers_inside_a_forward_of_its_own_against_a_loop_over_draws(posterior):
    """Own weights for each draw, read from the functions and put into the module by hand."""
    module = trained(Own())
    layers = {"inner": gilib.Linear(3, 4, posterior), "block": gilib.Linear(4, 4, posterior, bias=False)}
    layer = built(module, points=6, layers=layers)
    shaken(layer.layers, 0.2)
    draw = layer.draw(X[:6], 3, generator=seeded())
    steps = record(draw, X).steps
    weights = {name: step.function.weights for name, step in zip(("inner", "block"), steps, strict=True)}
    assert_equal(draw(X), drawn_by_hand(module, weights), 1e-10)
    if layer.needs_inducing:
        assert_equal(draw.inducing_outputs, draw(X[:6]), 1e-10)


def test_global_inducing_layers_inside_are_drawn_from_what_reaches_them():
    """A sequence as a module with layers inside, and as layers in order: the same draws and log_pq."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(D)
    layers = {"0": gilib.Linear(3, 4), "2": gilib.Linear(4, 2)}
    inside = built(module, points=6, layers=layers)
    parts = [gilib.Linear(3, 4), nn.Tanh(), gilib.Linear(4, 2)]
    outside = gilib.Network(X[:6], parts, generator=seeded(), dtype=D)
    for k, layer in ((0, layers["0"]), (2, layers["2"])):
        outside.layers[k].load_state_dict(layer.state_dict())
    noise = outside.base_noise(3, seeded())
    ours, theirs = inside.draw(X[:6], noise=noise), outside.layers.draw(X[:6], noise=noise)
    assert_equal(ours(X), theirs(X))
    assert_equal(ours.log_pq, theirs.log_pq)
    assert_equal(ours.inducing_outputs, theirs.inducing_outputs)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Linear(1, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.token(x[..., None])).mean(1))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.same, self.head = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.same(torch.tanh(self.same(x))))


@pytest.mark.parametrize(
    ("module", "name", "sizes"), [(Tokens(), "token", (1, 2)), (Twice(), "same", (3, 3))]
)
@pytest.mark.parametrize("posterior", [gilib.Factorised(), gilib.GlobalInducing()])
def test_a_layer_that_meets_a_point_more_than_once_has_one_function_there(module, name, sizes, posterior):
    """In estimates, too: weights that tokens share are drawn, not sampled anew at every token."""
    module = module.to(D)
    layer = built(module, points=4, layers={name: gilib.Linear(*sizes, posterior)})
    assert layer.noise_sizes(Estimate).points == 0
    drawn = layer.estimate(X[:4], 3, 12, generator=seeded())
    weights = record(drawn, X).steps[0].function.weights
    for s in range(3):
        own = copy.deepcopy(module)
        own.get_submodule(name).weight.data.copy_(weights[s, :-1].mT)
        own.get_submodule(name).bias.data.copy_(weights[s, -1])
        assert_equal(drawn(X)[s], own(X), 1e-10)


class Odd(nn.Module):
    """What does not act on points: given a function of a batch."""

    def __init__(self, forward):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3).to(D), forward

    def forward(self, x):
        return self.function(self, x)


ODD = {
    "couples the points": lambda self, x: self.layer(x - x.mean(0)),
    "two evaluations differ": lambda self, x: nn.functional.dropout(self.layer(x), 0.5, training=True),
    "must give one tensor": lambda self, x: (self.layer(x), x),
    "overwrites its inputs": lambda self, x: self.layer(x.mul_(2)),
    "cannot take points of shape": lambda self, x: self.layer(x[:, :2]),
    "does not call layer as modules": lambda self, x: x @ self.layer.weight,
    "not on points": lambda self, x: self.layer(x[None])[0],
}


@pytest.mark.parametrize("message", ODD)
def test_what_is_no_function_of_points_is_refused(message):
    with pytest.raises(ValueError, match=message):
        built(Odd(ODD[message]), layers={"layer": gilib.Linear(3, 3, gilib.Factorised())})


def test_other_refusals():
    with pytest.raises(ValueError, match="not of 0, ReLU"):
        Pretrained(nn.Sequential(nn.ReLU()), {"0": gilib.Linear(3, 3)})
    with pytest.raises(TypeError, match="module must be a Module"):
        Pretrained("resnet")
    with pytest.raises(TypeError, match="cannot be copied"):
        Pretrained(Odd(threading.Lock()))
    with pytest.raises(ValueError, match="the same in all replicas"):
        gilib.Network(None, [Pretrained(nn.Linear(3, 2), trainable=True)], replicas=(2,))
    with pytest.raises(ValueError, match=r"give x\[None\]"):
        built(nn.Linear(3, 2).to(D), layers={"": gilib.Linear(3, 2, gilib.Factorised())}).draw()(X[0, 0])
    with pytest.raises(ValueError, match=r"gilib.Pretrained\(module\) keeps"):
        gilib.Network(None, [nn.Linear(3, 2), gilib.Linear(2, 1)])
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        built(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).to(D))


def test_a_module_that_torch_does_not_know_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="a file cannot hold its code.*state_dict"):
        gilib.save(tmp_path / "own", below_a_layer(Pretrained(Own().to(D))), gilib.Gaussian(0.1))
