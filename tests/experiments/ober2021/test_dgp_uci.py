"""Deep processes on the UCI sets: the grid, where methods start, what is measured; and one exact layer."""

import dataclasses
import math

import pytest
import torch
from torch.distributions import MultivariateNormal

import gilib
from experiments.common import uci_splits
from experiments.ober2021 import dgp_uci, dgp_uci_run
from experiments.ober2021.dgp_uci import DgpConfig, ExactConfig
from gilib.data import load_uci
from tests.experiments.recorded import CPU, JOB
from tests.support import D, assert_equal, assert_mean, normals


def config(method="gi", split=0, depth=2, **settings):
    settings = {"num_inducing": 8, "steps": 4, "elbo_samples": 5, "test_samples": 5} | settings
    return DgpConfig("yacht", method, depth, split, hidden_scale=0.1, **settings)


def built(method="gi", splits=(0,), depth=2, **settings):
    data = uci_splits.load("yacht", splits, CPU, D)
    return data, *dgp_uci_run.build(config(method, depth=depth, **settings), data, list(splits))


def processes(net):
    return [layer for layer in net.modules() if isinstance(layer, gilib.GP)]


def test_global_inducing_starts_at_training_points_with_their_targets():
    """In every layer the log-precisions of App. O, and in the last the targets of the inducing inputs."""
    data, net, _ = built("gi", (0, 3))
    hidden, last = processes(net)
    for r in range(2):
        same = (net.inducing_points[r, :, None] == data.x[r]).all(-1)
        assert (same.sum(-1) >= 1).all()
        rows = same.double().argmax(-1)
        assert_equal(last.weights.pseudo.outputs[r], data.y[r][rows])
    assert not torch.equal(net.inducing_points[0], data.x[0, :8]), "in a random order"
    for layer, start in ((hidden, -4), (last, 0)):
        assert (layer.weights.pseudo.log_precision == start).all()
        assert (layer.weights.pseudo.scaled_root == 0).all()
    assert_mean(hidden.weights.pseudo.outputs.detach().flatten(), 0.0)


def test_local_inducing_starts_at_standard_normals():
    _, net, _ = built("li", num_inducing=200)
    for layer in processes(net):
        for values in (layer.inducing_inputs.detach(), layer.weights.pseudo.outputs.detach()):
            assert_mean(values.flatten(), 0.0)
            assert_mean(values.flatten().square(), 1.0)
        assert (layer.weights.pseudo.log_precision == 0).all()
        assert layer.weights.pseudo.kind == "full"


def test_dsvi_starts_at_clusters_and_nearly_fixed_layers():
    data, net, likelihood = built("dsvi", (0, 3), depth=3)
    layers = processes(net)
    for layer in layers:
        for r in range(2):
            centres = gilib.models.inducing_start(data.x[r], 8, seed=(0, 3)[r])
            assert_equal(layer.inducing_inputs[r], centres)
    for layer, start in zip(layers, (0.1, 0.1, 1.0), strict=True):
        root = layer.weights.root.detach()
        assert_equal(root, (start * torch.eye(8, dtype=D)).expand_as(root))
    assert_equal(likelihood.noise_variance.detach(), torch.full((2,), 0.01, dtype=D))
    local = processes(built("li", (0, 3), depth=3, centred=True)[1])
    assert all(torch.equal(a.inducing_inputs, b.inducing_inputs) for a, b in zip(layers, local, strict=True))


@pytest.mark.parametrize("method", dgp_uci.METHODS)
def test_kernels_start_where_the_reference_code_has_them(method):
    _, net, _ = built(method, depth=3)
    assert [layer.in_features for layer in processes(net)] == [6, 6, 6]
    found = dgp_uci_run.kernels(net, 0)
    assert found == {"kernel_variances": [2.0] * 3, "lengthscales": [[2.0] * 3] * 3}


def test_seeds_and_recorded_lengthscales_are_those_of_their_layer_and_split():
    data, net, _ = built("dsvi", (0, 3))
    assert dgp_uci_run.training([config(split=k) for k in (0, 3)], data).settings["seed"] == [0, 3]
    last = processes(net)[-1]
    last.hyperparameters.log["lengthscale"].data[1] = torch.tensor([3.0, 1.0, 2.0, 7.0, 5.0, 4.0], dtype=D)
    last.hyperparameters.log["variance"].data[1] = math.log(9.0)
    found = dgp_uci_run.kernels(net, 1)
    assert found["lengthscales"][0] == [2.0] * 3
    assert found["lengthscales"][1] == pytest.approx([math.exp(k) for k in (1, 3, 7)], rel=1e-5)
    assert found["kernel_variances"] == pytest.approx([2.0, 9.0])


def test_test_measures_against_predict_in_original_units():
    """The same draws of each split through `gilib.predict` with the split's own normalisation."""
    data, net, likelihood = built("gi", (0, 3))
    likelihood.scaled_log_variance.data += torch.tensor([0.2, -0.3])
    found = dgp_uci_run.measure_test(net, likelihood, data, 7, [0, 3])
    draw = net.draw(7, generator=dgp_uci_run.ReplicaGenerators([4000, 4003]))
    mean, variance = draw.moments(data.test_x)
    for r, k in enumerate((0, 3)):
        split = load_uci("yacht").split(k, D)
        sd = (variance[:, r] + likelihood.noise_variance[r]).sqrt() * split.normalisation.y_std
        means = mean[:, r] * split.normalisation.y_std + split.normalisation.y_mean
        mixture = torch.distributions.Normal(means, sd).log_prob(split.test_y_raw)
        assert_equal(found["test_log_likelihood"][r], (mixture.logsumexp(0) - math.log(7)).mean(), 1e-8)
        error = (means.mean(0) - split.test_y_raw).square().mean().sqrt()
        assert_equal(found["rmse"][r], error, 1e-8)


def test_the_elbo_in_batches_is_that_of_all_points(monkeypatch):
    """Free Gaussians of one layer leave nothing to draw: every batch has its exact share."""
    data, net, likelihood = built("dsvi", (0, 3), depth=1)
    whole = dgp_uci_run.measure_elbo(net, likelihood, data, 4, [0, 3])
    assert_equal(whole["elbo_stderr"], torch.zeros(2, dtype=D), 1e-12)
    monkeypatch.setattr(dgp_uci_run, "ESTIMATED_AT_ONCE", 8 * 50)
    parts = dgp_uci_run.measure_elbo(net, likelihood, data, 4, [0, 3])
    assert_equal(parts["elbo"], whole["elbo"], 1e-9)
    estimate = net.estimate(1, data.x.shape[1])
    expected = gilib.elbo(estimate, likelihood, data.x, data.y, num_data=277, per_point=True)
    assert_equal(whole["elbo"], expected, 1e-9)


def test_attempts_change_one_thing_each_but_for_a_higher_rate():
    grid = [c for c in dgp_uci.attempts("reduced") if c.dataset == "yacht" and c.split == 0]
    published = {"lr": 0.01, "decay": False, "lengthscale": 2.0, "variance": 2.0}
    tables = [c for c in dgp_uci.tables("reduced") if (c.dataset, c.split) == ("yacht", 0)]
    plain = {(c.method, c.depth): dataclasses.replace(c, **published) for c in tables}
    assert {(c.method, c.depth) for c in grid} == {("gi", 2), ("dsvi", 2), ("li", 2), ("gi", 5), ("dsvi", 5)}
    free_start = {"hidden", "hidden_scale"}  # a free hidden layer starts where "dsvi" starts
    for one in grid:
        before, after = dataclasses.asdict(plain[one.method, one.depth]), dataclasses.asdict(one)
        changed = {name for name in before if before[name] != after[name]}
        if one.lr != plain[one.method, one.depth].lr:  # falls, and then goes with one other thing at most
            changed -= {"lr"}
            assert one.decay and len(changed) <= 2
            changed -= {"decay"} if len(changed) == 2 else set()
        assert len(changed) == 1 or changed in (free_start, {"centred", "marginalise"})
    won = {"yacht", "energy", "kin8nm", "power", "protein"}
    assert {c.dataset for c in dgp_uci.attempts("reduced")} == won


def test_hidden_layers_may_have_another_posterior_and_local_outputs_may_be_integrated_out():
    for hidden, kind in (("dsvi", gilib.FreeGaussian), ("li", gilib.LocalInducing)):
        inner, last = dgp_uci_run.posteriors(config("gi", hidden=hidden), 8)
        assert isinstance(inner, kind) and isinstance(last, gilib.GlobalInducing)
    for marginalise in (False, True):
        built = dgp_uci_run.posteriors(config("li", marginalise=marginalise), 8)
        assert all(posterior.marginalise is marginalise for posterior in built)


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
    data = uci_splits.Data("waves", "", x[None], scaled[None], new[None], scaled[None, :5], y.std()[None])
    monkeypatch.setattr(dgp_uci_run, "load", lambda *_: data)
    record = dgp_uci_run.run_exact(ExactConfig("waves", 0), JOB)
    assert record["metrics"]["evidence"] == pytest.approx(highest_evidence(x, scaled[:, 0]), abs=0.01)
