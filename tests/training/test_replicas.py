"""Replicas that break down leave the others alone; parameters have their own memory after a training."""

import copy
import pickle
from functools import partial

import pytest
import torch

import gilib
from gilib.randomness import ReplicaGenerators
from tests.support import PRIORS, assert_equal, normals, seeded, small_net, step_by_step, trainings
from tests.support.trainings import SEEDS, R, X, Y, same

RATES = [0.003, 0.01, 0.03]
fit = partial(trainings.fit, x=X, y=Y, steps=20)


def model(name, replicas=()):
    posterior = {"gi": gilib.GlobalInducing(precision="per_output"), "fac": gilib.Factorised()}[name]
    net = small_net(posterior, PRIORS["scale"], points=4, replicas=replicas)
    return net, gilib.Gaussian(0.3, learn=True, scale=10.0, replicas=replicas)


def test_a_replica_without_a_factor_is_frozen_and_spoils_no_other():
    """Others that break down are in `test_every_rule`."""
    healthy, sick = model("gi", (R,)), model("gi", (R,))
    next(iter(sick[0].layers)).weights.pseudo.scaled_log_precision.data[1] = 300.0
    before = {key: p.detach()[1].clone() for key, p in sick[0].named_parameters()}
    expected = fit(*healthy, seed=SEEDS, rule=gilib.Adam(RATES), on_divergence="freeze")
    history = fit(*sick, seed=SEEDS, rule=gilib.Adam(RATES), on_divergence="freeze")
    assert history.diverged_at.tolist() == [-1, 0, -1]
    for key, parameter in sick[0].named_parameters():
        assert torch.equal(parameter.detach()[1], before[key])
        for r in (0, 2):
            assert_equal(parameter.detach()[r], healthy[0].get_parameter(key).detach()[r], 1e-10)
    assert_equal(history.elbo[:, [0, 2]], expected.elbo[:, [0, 2]], 1e-10)


def test_a_replica_that_leaves_later_keeps_its_last_finite_parameters():
    net, likelihood = model("fac", (R,))
    history = fit(net, likelihood, rule=gilib.Adam([0.01, 1e4, 0.01]), seed=SEEDS, on_divergence="freeze")
    assert history.diverged_at[1] > 0 and history.diverged_at[[0, 2]].tolist() == [-1, -1]
    assert all(bool(p.isfinite().all()) for p in net.parameters())
    assert bool(history.elbo[:, [0, 2]].isfinite().all())


def test_without_freezing_divergence_is_an_error():
    with pytest.raises(gilib.training.DivergenceError, match="not finite at step 1 "):
        fit(*model("fac", (R,)), rule=gilib.Adam([0.01, 1e4, 0.01]), seed=SEEDS)


def test_parameters_have_their_own_memory_after_a_training(tmp_path):
    """In training they lie side by side: a pickle of one would hold all, in other strides."""
    points = normals(6, 3, seed=4)
    settings = {"width": 2, "replicas": (2,), "num_features": 16, "inducing_points": points}
    net, noise = gilib.models.deep_gp(3, 3, **settings), gilib.Gaussian(0.1, learn=True, replicas=(2,))
    before = len(pickle.dumps(net))
    x, y = normals(20, 3, seed=5), normals(20, 3, seed=6)
    gilib.fit(net, noise, x, y, steps=4, num_samples=1, seed=[0, 1], progress=False)
    assert len(pickle.dumps(net)) < 1.1 * before
    gilib.save(tmp_path / "model.pt", net, noise)
    told = [
        gilib.predict(own, noise, x, 5, generator=seeded(1)).mean
        for own in (net, gilib.load(tmp_path / "model.pt").network, copy.deepcopy(net))
    ]
    assert torch.equal(told[0], told[1]) and torch.equal(told[0], told[2])


def test_parameters_have_their_own_memory_after_a_training_that_never_began(tmp_path):
    """A rule lays parameters side by side before a checkpoint of another training is refused."""
    x, y = normals(20, 2, seed=5), normals(20, 2, seed=6)
    net, noise = small_net(gilib.GlobalInducing(), replicas=(2,)), gilib.Gaussian(0.1)
    settings = {"steps": 2, "checkpoint": tmp_path / "run.pt", "progress": False}
    gilib.fit(net, noise, x, y, **settings)
    with pytest.raises(gilib.persistence.CheckpointError):
        gilib.fit(net, noise, y, x, **settings)
    for parameter in net.parameters():
        assert parameter.untyped_storage().nbytes() == parameter.numel() * parameter.element_size()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": [1, 2]}, r"2 seeds need a network with replicas=\(2,\), this one has \(3,\)"),
        ({"seed": "0"}, "seed must be an integer, or a list of one integer for each"),
        ({"rule": gilib.Adam([0.1])}, "lr: wanted one number or 3, got 1 learning rates"),
        ({"on_divergence": "ignore"}, "on_divergence"),
    ],
)
def test_what_is_refused(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(*model("gi", (R,)), **settings)


def test_freezing_and_rates_need_replicas():
    net, likelihood = model("gi")
    with pytest.raises(ValueError, match="network with one replica axis"):
        fit(net, likelihood, x=X[0], y=Y[0], on_divergence="freeze")
    with pytest.raises(ValueError, match="not every parameter has replicas"):
        fit(net, likelihood, x=X[0], y=Y[0], rule=gilib.Adam([0.1, 0.1]))
    shared = gilib.Gaussian(0.3, learn=True)
    with pytest.raises(ValueError, match="not every parameter has replicas"):
        fit(model("gi", (R,))[0], shared, rule=gilib.Adam(RATES))


def test_generators_refuse_other_shapes():
    with pytest.raises(ValueError, match="at least one seed"):
        ReplicaGenerators([])
    with pytest.raises(ValueError, match=r"2 generators serve a network with replicas=\(2,\)"):
        ReplicaGenerators([0, 1]).normal((4, 3), torch.float64, None)


def test_a_frozen_replica_stays_frozen_after_a_pause(tmp_path):
    """One minibatch broke it; the next ones would not."""
    y = Y.clone()
    y[1, 3] = 1e200
    settings, whole = {"seed": SEEDS, "batch_size": 5, "on_divergence": "freeze"}, model("gi", (R,))
    expected = fit(*whole, y=y, **settings)
    parts, history, _ = step_by_step(
        tmp_path / "run", lambda: model("gi", (R,)), partial(fit, y=y, **settings)
    )
    assert expected.diverged_at[1] >= 0 and torch.equal(history.diverged_at, expected.diverged_at)
    assert bool(expected.elbo[-3:, 1].isfinite().any())
    assert same(parts, whole)
