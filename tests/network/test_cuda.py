"""What runs on a CPU runs on a GPU, and computes the same: bounds, gradients, trainings, predictions.

Everything is in float64, from the same noise; where there is no GPU, nothing here runs.
"""

import copy
import gc

import pytest
import torch

import gilib
from gilib import training
from gilib.randomness import Noise
from gilib.training.gradients.replay import WARM_UP
from tests.support import D, seeded, step_by_step
from tests.support.zoo import NETS, REGRESSION, STRUCTURED, N, S, X, Y, close, problem, rule_of, structured

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", NETS)
def test_bounds_gradients_functions_and_estimates_are_those_of_the_cpu(name):
    results = {}
    for device in ("cpu", "cuda"):
        net, likelihood, x, y = problem(name, device)
        draw = net.draw(noise=problem(name, "cpu")[0].base_noise(S, seeded(1)).to(device))
        bound = gilib.elbo(draw, likelihood, x, y, num_data=N)
        parameters = [p for p in [*net.parameters(), *likelihood.parameters()] if p.requires_grad]
        gradients = torch.autograd.grad(bound.sum(), parameters, materialize_grads=True) if parameters else []
        noise = problem(name, "cpu")[0].estimate_noise(S, N, seeded(1))
        estimate = net.estimate(noise=Noise(noise.draw.to(device), noise.points.to(device)))
        estimated = gilib.elbo(estimate, likelihood, x, y, num_data=N).detach()
        results[device] = [bound.detach(), draw(x).detach(), estimated, *gradients]
        assert all(value.device.type == device for value in results[device])
    close(results["cuda"], results["cpu"])


@pytest.mark.parametrize("name", NETS)
def test_trainings_run_and_predict(name, tmp_path):
    net, likelihood, x, y = problem(name, "cuda")
    settings = {"rule": rule_of(name), "steps": 4, "batch_size": 10, "progress": False, "num_samples": 1}
    history = gilib.fit(net, likelihood, x, y, checkpoint=tmp_path / "training", **settings)
    prediction = gilib.predict(net, likelihood, x, num_samples=S)
    assert bool(history.elbo.isfinite().all()) and bool(prediction.mean.isfinite().all())
    assert prediction.mean.device.type == "cuda"


@pytest.mark.parametrize("estimator", ["draw", "pointwise"])
@pytest.mark.parametrize("name", NETS)
def test_a_recorded_step_is_the_step(name, estimator):
    if name == "matrix":
        pytest.skip("its rule cannot be recorded")
    results = []
    for graphed in (False, True):
        net, likelihood, x, y = problem(name, "cuda")
        settings = {"rule": rule_of(name), "batch_size": 10, "num_samples": 2, "progress": False}
        settings["estimator"] = estimator
        speed = training.Speed(replay=graphed)
        history = gilib.fit(net, likelihood, x, y, steps=12, speed=speed, **settings)
        results.append([history.elbo, *net.state_dict().values()])
    close(results[1], results[0])


def test_a_recording_survives_the_graphs_of_earlier_trainings():
    """They are found by the collector, which may not destroy them while another graph is recorded."""
    thresholds = gc.get_threshold()
    try:
        for _ in range(3):
            net, likelihood, x, y = problem("gi-shared, neal", "cuda")
            gc.set_threshold(10**6)  # the graph that this makes stays until the next recording
            speed = training.Speed(replay=True)
            gilib.fit(net, likelihood, x, y, steps=5, speed=speed, progress=False, callbacks=(hurry,))
    finally:
        gc.set_threshold(*thresholds)


def hurry(steps, bound, net):
    """From the step before the recording on, collect after every allocation."""
    if steps == WARM_UP:
        gc.set_threshold(1, 1, 1)


RULES = {
    "bali": (gilib.posteriors.Conjugate(), training.Bali()),
    "bali, kept": (gilib.posteriors.Conjugate(), training.Bali(keep_moments=True)),
    "vadam": (gilib.Factorised(), training.Vadam(0.01)),
    "vogn": (gilib.Factorised(), training.VOGN(0.01)),
    "ivon": (gilib.Factorised(), training.IVON(0.01)),
    "noisy adam": (gilib.Factorised(), training.NoisyAdam(0.01)),
    "noisy k-fac": (gilib.posteriors.MatrixGaussian(), training.NoisyKFAC(0.01)),
    "sghmc": (gilib.PointEstimate(), training.SGHMC(2, window=2)),
    "adam": (gilib.Factorised(), gilib.Adam(0.01)),
}


@pytest.mark.parametrize("name", RULES)
def test_every_rule_goes_on_where_it_was(name, tmp_path):
    posterior, rule = RULES[name]

    def start():
        net = gilib.models.mlp(2, (4,), 2, posterior=posterior, generator=seeded(), dtype=D)
        return net.cuda(), copy.deepcopy(REGRESSION).cuda()

    def train(*models, **settings):
        settings |= {"rule": rule, "steps": 5, "batch_size": 10, "progress": False}
        return gilib.fit(*models, X.cuda(), Y.cuda(), **settings)

    whole = start()
    train(*whole)
    parts, _, pauses = step_by_step(tmp_path / "training", start, train)
    assert pauses == 4
    close(parts[0].state_dict().values(), whole[0].state_dict().values(), 1e-12)


def test_early_stopping_goes_on_where_it_was(tmp_path):
    """Checkpoints are read on the CPU; what was kept follows the network."""

    def start():
        net = gilib.models.mlp(2, (4,), 2, posterior=gilib.Factorised(), generator=seeded(), dtype=D).cuda()
        likelihood = copy.deepcopy(REGRESSION).cuda()
        return (
            net,
            likelihood,
            training.EarlyStopping(likelihood, X[:4].cuda(), Y[:4].cuda(), every=2, patience=2),
        )

    def train(net, likelihood, stop, **settings):
        settings |= {"steps": 8, "callbacks": [stop], "progress": False}
        return gilib.fit(net, likelihood, X[4:].cuda(), Y[4:].cuda(), **settings)

    whole = start()
    train(*whole)
    parts, *_ = step_by_step(tmp_path / "training", start, train)
    close(parts[0].state_dict().values(), whole[0].state_dict().values(), 1e-12)
    close([torch.stack(parts[2].scores)], [torch.stack(whole[2].scores)], 1e-12)


def test_natural_gradients():
    net, likelihood = structured(STRUCTURED["coupled"]).cuda(), copy.deepcopy(REGRESSION).cuda()
    rule = training.NaturalGradient(0.1)
    history = gilib.fit(net, likelihood, X.cuda(), Y[:, :1].cuda(), rule=rule, steps=4, progress=False)
    assert bool(history.elbo.isfinite().all())


@pytest.mark.parametrize("name", ["gi-shared, neal", "resnet8", "deep GP, global", "structured, star"])
def test_a_model_saved_there_predicts_here(name, tmp_path):
    net, likelihood, x, _ = problem(name, "cuda")
    gilib.save(tmp_path / "model", net, likelihood)
    again = gilib.load(tmp_path / "model")
    noise = net.base_noise(S, torch.Generator("cuda").manual_seed(1))
    close([again.network.draw(noise=noise.cpu())(x.cpu())], [net.draw(noise=noise)(x)])
