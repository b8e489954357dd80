"""Rounding at the data leaves what is drawn as it was; Adam runs in the kernels of its device."""

import pytest
import torch
from torch.nn.functional import one_hot

import gilib
from experiments.images import load_images
from gilib.arithmetic import product_precisions, set_product_precisions
from gilib.training import Speed
from gilib.training.gradients import speed
from gilib.training.rules.optimiser import NetworkAdam
from tests.support import assert_mean, normals, seeded, small_net, trainings

X, Y = normals(20, 2, seed=1).float(), normals(20, 2, seed=2).float()
POINTS = 5  # inducing points: their pass is told from that of the data by their number
CPU = torch.device("cpu")


def fit(net, likelihood=None, x=X, y=Y, arithmetic="full", **settings):
    return trainings.fit(net, likelihood, x, y, speed=Speed(arithmetic), **settings)


class Watch(torch.nn.Module):
    """Tanh that notes, forward and backward, which points passed and how products were set."""

    seen: list = []

    def forward(self, x):
        self.note("forward", x)
        if x.requires_grad:
            x.register_hook(lambda gradient: self.note("backward", gradient))
        return x.tanh()

    def note(self, way, x):
        if len(x) in (POINTS * 2, len(X) * 2):  # merged with two draws
            self.seen.append(
                (way, "data" if len(x) > 2 * POINTS else "inducing", *product_precisions(), x.dtype)
            )


@pytest.fixture
def seen(monkeypatch):
    """What passes a network with `Watch`, where a process that works on a GPU has asked for TF32."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    Watch.seen, before = [], product_precisions()
    set_product_precisions("tf32", "tf32")
    yield Watch.seen
    assert product_precisions() == ("tf32", "tf32")
    set_product_precisions(*before)


@pytest.mark.parametrize("estimator", ["draw", "pointwise"])
@pytest.mark.parametrize("arithmetic", speed.PRECISIONS)
def test_only_the_pass_of_the_data_is_rounded(arithmetic, estimator, seen):
    """Both ways: the gradient at the data comes back rounded, that at the inducing points does not."""
    posterior = gilib.GlobalInducing() if estimator == "draw" else gilib.Factorised()
    hidden = [gilib.Linear(2, 3, posterior, bias=False), Watch(), gilib.Linear(3, 3, posterior, bias=False)]
    net = gilib.Network(X[:POINTS], [*hidden, Watch(), gilib.Linear(3, 2, posterior)], input_shape=(2,))
    fit(net, arithmetic=arithmetic, estimator=estimator, steps=2)
    products = "tf32" if arithmetic == "tf32" else "ieee"
    dtype = torch.bfloat16 if arithmetic == "bfloat16" else torch.float32
    expected = {(way, "data", products, products, dtype) for way in ("forward", "backward")}
    if estimator == "draw":
        expected |= {(way, "inducing", "ieee", "ieee", torch.float32) for way in ("forward", "backward")}
    assert set(seen) == expected


class Indifferent(gilib.Gaussian):
    """A likelihood that looks at the outputs and is not moved by them."""

    def log_prob(self, outputs, targets):
        return 0.0 * super().log_prob(outputs, targets)


@pytest.mark.parametrize("arithmetic", ["tf32", "bfloat16"])
@pytest.mark.parametrize("prior", [gilib.NealPrior(), gilib.ScalePrior()])
def test_log_pq_and_its_gradient_are_the_same_to_the_last_bit(prior, arithmetic):
    """With an indifferent likelihood they are all that training sees."""
    net, twin = (small_net(gilib.GlobalInducing(), prior).float() for _ in range(2))
    full = fit(net, Indifferent(0.1))
    rounded = fit(twin, Indifferent(0.1), arithmetic=arithmetic)
    assert torch.equal(full.elbo, rounded.elbo) and full.elbo.abs().min() > 0
    assert trainings.same(net, twin)


@pytest.fixture(scope="module")
def digits():
    return load_images("mnist-500").tensors("cpu")


def lenet(digits):
    x, y = digits.train_x[:20], one_hot(digits.train_y[:20], 10).float()
    return gilib.models.lenet(channels=4, inducing_points=x, pseudo_outputs=y, generator=seeded())


def gradient(net, digits, seed, arithmetic):
    """Of the bound at ten images, with noise from `seed`, in one vector."""
    x, y = (values[10 * seed : 10 * seed + 10] for values in (digits.train_x, digits.train_y))
    drawn = speed.evaluated_in(net.draw(2, generator=seeded(seed)), arithmetic, CPU)
    bound = gilib.elbo(drawn, gilib.Categorical(), x, y, num_data=500, per_point=True)
    return torch.cat([g.flatten() for g in torch.autograd.grad(bound, list(net.parameters()))]).double()


def test_the_gradient_in_bfloat16_is_close_and_off_in_no_direction(digits):
    """Its error, of either sign along the gradient, adds less than 1 % to the variance of the noise."""
    net = lenet(digits)
    full, rounded = (
        torch.stack([gradient(net, digits, seed, arithmetic) for seed in range(12)])
        for arithmetic in ("full", "bfloat16")
    )
    errors, mean = rounded - full, full.mean(0)
    assert_mean(errors @ mean / mean.square().sum(), 0.0)
    noise = (full - mean).norm(dim=1).square().mean()
    assert 0 < errors.norm(dim=1).square().mean() < 0.01 * noise


def test_other_numbers_than_float32_are_not_rounded():
    with pytest.raises(ValueError, match="rounds float32, this network is in torch.float64: use arith"):
        fit(small_net(gilib.GlobalInducing()), x=X.double(), y=Y.double(), arithmetic="bfloat16")


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_images_keep_their_layout_and_train_alike(channels, batch_size):
    images, labels, strides, traces = normals(9, channels, 8, 8), torch.arange(9) % 3, [], []

    def look(x, generator):
        strides.append(x.stride())
        return x

    for layout in (torch.contiguous_format, torch.channels_last):
        x = images.to(memory_format=layout)
        net = gilib.models.lenet((channels, 8, 8), 3, channels=2, inducing_points=x[:4], generator=seeded())
        history = fit(net, gilib.Categorical(), x, labels, batch_size=batch_size, augment=look)
        traces.append(history.elbo)
    assert strides[0][1] == 64 and strides[-1][1] == 1
    torch.testing.assert_close(traces[0], traces[1], rtol=1e-10, atol=1e-10)


def test_adam_goes_on_from_another_device():
    """The state as CUDA leaves it continues on the CPU, in the CPU's way."""
    adam = NetworkAdam({"a": (torch.nn.Parameter(torch.ones(2)), 0.1)}, CPU)
    state = adam.state_dict()
    state["param_groups"][0]["capturable"] = True
    adam.load_state_dict(state)
    assert not adam.adam.param_groups[0]["capturable"]
