"""Products are exact wherever functions are drawn or evaluated; process and threads stay as they were."""

import threading

import pytest
import torch

import gilib
from gilib.arithmetic import (
    exact_products,
    product_precisions,
    rounded_products,
    set_product_precisions,
    switchable_products,
)
from gilib.training import Speed
from tests.support import normals, seeded, small_net, watched

X, Y = normals(20, 2, seed=1).float(), normals(20, 2, seed=2).float()
IEEE, TF32 = ("ieee", "ieee"), ("tf32", "tf32")


@pytest.fixture(autouse=True)
def rounding():
    """The process has asked for TF32, and finds it again."""
    before = product_precisions()
    set_product_precisions(*TF32)
    yield
    assert product_precisions() == TF32
    set_product_precisions(*before)


def test_they_are_nested():
    with exact_products():
        with exact_products():
            assert product_precisions() == IEEE
        assert product_precisions() == IEEE
    assert product_precisions() == TF32


def test_they_are_set_back_after_an_error():
    with pytest.raises(KeyError), exact_products():
        assert product_precisions() == IEEE
        raise KeyError
    assert product_precisions() == TF32


def test_the_last_thread_sets_them_back():
    """Entering and leaving in turn, which once left the process with what the other had set."""
    first, second = exact_products(), exact_products()
    events = [threading.Event() for _ in range(3)]
    seen = []

    def other():
        events[0].wait()
        with second:
            events[1].set()
            events[2].wait()
            seen.append(product_precisions())

    thread = threading.Thread(target=other)
    thread.start()
    with first:
        events[0].set()
        events[1].wait()
    seen.append(product_precisions())
    events[2].set()
    thread.join()
    assert seen == [IEEE, IEEE]


def test_one_thread_may_round_and_the_others_wait():
    seen, inside = [], threading.Event()

    def other():
        with exact_products():
            seen.append(product_precisions())

    with exact_products(), switchable_products():
        thread = threading.Thread(target=other)
        thread.start()
        with rounded_products():
            assert product_precisions() == TF32
            with exact_products():
                assert product_precisions() == IEEE
            assert product_precisions() == TF32
            assert not inside.wait(0.05) and not seen
        assert product_precisions() == IEEE
    thread.join()
    assert seen == [IEEE]


def test_who_wants_to_round_waits_for_the_others():
    seen, entered, leave = [], threading.Event(), threading.Event()

    def exact():
        with exact_products():
            entered.set()
            leave.wait()
            seen.append(product_precisions())

    def rounds():
        with switchable_products(), rounded_products():
            seen.append(product_precisions())

    threads = [threading.Thread(target=work) for work in (exact, rounds)]
    threads[0].start()
    entered.wait()
    threads[1].start()
    leave.set()
    for thread in threads:
        thread.join()
    assert seen == [IEEE, TF32]


def test_rounding_alone_is_refused():
    with pytest.raises(RuntimeError, match="for the thread that is within switchable_products"):
        rounded_products().__enter__()
    with pytest.raises(RuntimeError, match="for the thread"), exact_products(), rounded_products():
        pass


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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
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
def test_trainings_in_threads_end_as_alone_and_leave_no_trace(arithmetic):
    def train(seed, found):
        net = small_net(gilib.GlobalInducing(), seed=seed).float()
        settings = {"num_samples": 2, "speed": Speed(arithmetic), "progress": False, "seed": seed}
        found[seed] = gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=30, **settings).elbo

    alone, together = {}, {}
    for seed in range(3):
        train(seed, alone)
    threads = [threading.Thread(target=train, args=(seed, together)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert product_precisions() == TF32
    assert all(torch.equal(alone[seed], together[seed]) for seed in range(3))


def test_a_drawn_function_compiles():
    draw = small_net(gilib.Factorised()).float().draw(2, generator=seeded())
    compiled = torch.compile(lambda x: draw(x), fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), draw(X))
