"""Products are exact wherever functions are drawn or evaluated; the process stays as it was."""

import pytest
import torch

import gilib
from gilib.arithmetic import exact_products, product_precisions, set_product_precisions
from gilib.training import Speed
from tests.support import normals, seeded, small_net, watched

X, Y = normals(20, 2, seed=1).float(), normals(20, 2, seed=2).float()
IEEE, TF32 = ("ieee", "ieee"), ("tf32", "tf32")


@pytest.fixture(autouse=True)
def rounding(monkeypatch):
    """A process that works on a GPU has asked for TF32, and finds it again."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    before = product_precisions()
    set_product_precisions(*TF32)
    yield
    assert product_precisions() == TF32
    set_product_precisions(*before)


def test_they_are_nested_and_set_back_after_an_error():
    with pytest.raises(KeyError), exact_products():
        with exact_products():
            assert product_precisions() == IEEE
        assert product_precisions() == IEEE
        raise KeyError
    assert product_precisions() == TF32


def test_they_are_left_alone_where_nothing_would_be_rounded(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    with exact_products():
        assert product_precisions() == TF32


def test_autocast_is_left_meanwhile():
    with torch.autocast("cpu", torch.bfloat16):
        with exact_products():
            assert not torch.is_autocast_enabled("cpu")
        assert torch.is_autocast_enabled("cpu")


def test_functions_are_drawn_and_evaluated_exactly_outside_of_training():
    net, seen = watched(product_precisions)
    draw = net.draw(2, generator=seeded())
    assert seen == [IEEE]
    draw(X)
    gilib.elbo(draw, gilib.Gaussian(0.1), X, Y, num_data=20)
    gilib.predict(net, gilib.Gaussian(0.1), X, 2, generator=seeded())
    gilib.metrics.layer_variances(draw, X)
    net, others = watched(product_precisions, gilib.posteriors.Conjugate())
    gilib.prediction.predict_student(net, X, 2, generator=seeded())
    assert set(seen) == set(others) == {IEEE} and len(seen) >= 6 and others


def test_layers_are_drawn_exactly_without_a_network():
    net, seen = watched(product_precisions)
    net.layers.draw(net.inducing_points, 2, generator=seeded())
    net.layers.estimate(net.inducing_points, 2, 20, generator=seeded())
    net.layers.joint_draw(net.inducing_points, 2, 20, generator=seeded())
    assert seen == [IEEE] * 3


@pytest.mark.gpu
def test_a_bound_measured_on_a_gpu_is_the_one_that_is_trained():
    """The same noise in float64 says what is right: rounding leaves 5e-5 of it, TF32 would leave 1e-3."""
    x, labels = torch.randn(8, 3, 16, 16, generator=seeded()), torch.arange(8) % 3
    net = gilib.models.lenet((3, 16, 16), 3, inducing_points=x[:4], generator=seeded())
    noise, bounds = net.base_noise(4, seeded(1)), {}
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.float32), ("cpu", torch.float64)):
        draw = net.to(device, dtype).draw(noise=noise.to(device, dtype))
        bound = gilib.elbo(draw, gilib.Categorical(), x.to(device, dtype), labels.to(device), num_data=len(x))
        bounds[device, dtype] = bound.item()
    for device in ("cpu", "cuda"):
        assert bounds[device, torch.float32] == pytest.approx(bounds["cpu", torch.float64], rel=2e-4)


@pytest.mark.parametrize("arithmetic", ["full", "tf32"])
def test_a_training_leaves_no_trace(arithmetic):
    net = small_net(gilib.GlobalInducing()).float()
    gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=2, speed=Speed(arithmetic), progress=False)
    assert product_precisions() == TF32
