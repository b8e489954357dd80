"""What travels in the file of a model; a reader's own parts do all that gilib's do: see `own_parts`."""

import ast
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributions import Normal

import gilib
from gilib.data import Normalisation
from tests.support import D, assert_equal, forked, normals, own_parts, seeded, small_net
from tests.support.own_parts import LaplaceNoise, LogNormalScale, OneWidth, Warp, data, network, train
from tests.support.saved import ordinary

NORMALISATION = Normalisation.fit(5 + 2 * normals(20, 2), 3 * normals(20, 1, seed=1))


def predict(net, likelihood, x):
    return gilib.predict(net, likelihood, x, 4, generator=seeded(5))


def test_normalisation_config_and_classes_travel_along(tmp_path):
    config = {"dataset": "toy", "split": 3, "rates": [1e-2, 1e-3], "nested": {"paper": True, "none": None}}
    net, x = small_net(gilib.GlobalInducing()), normals(6, 2)
    gilib.save(tmp_path / "model.pt", net, gilib.Categorical(), normalisation=NORMALISATION, config=config)
    again, likelihood, normalisation, notes = gilib.load(tmp_path / "model.pt")
    assert isinstance(likelihood, gilib.Categorical) and notes == config
    for name, value in NORMALISATION.state().items():
        found = getattr(normalisation, name)
        assert torch.equal(found, value) and value.dtype == found.dtype
    assert torch.equal(predict(net, likelihood, x).mean, predict(again, likelihood, x).mean)
    model = gilib.load(tmp_path / "model.pt")
    assert model == (*model,) and model.config == config
    assert repr(model) == "Model(network of [2] to [2], Categorical, normalisation, config)"
    gilib.save(tmp_path / "model.pt", net, likelihood, normalisation=Normalisation.fit(normals(9, 2)))
    assert gilib.load(tmp_path / "model.pt").normalisation.inputs_alone
    for value in (tmp_path, object(), math.sqrt):
        with pytest.raises(TypeError, match="config must hold plain values"):
            gilib.save(tmp_path / "other.pt", *ordinary(), config={"nested": [value]})
    assert not (tmp_path / "other.pt").exists()


def test_the_range_of_the_training_is_kept(tmp_path):
    net, likelihood = small_net(gilib.GlobalInducing()), gilib.Gaussian(0.1)
    x = normals(8, 2)
    gilib.fit(net, likelihood, x, x, steps=1, progress=False)
    gilib.save(tmp_path / "model", net, likelihood)
    kept = gilib.load(tmp_path / "model").network.trained_range
    assert torch.equal(kept, torch.stack([x.amin(0), x.amax(0)]))


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16, "meta"])
@pytest.mark.parametrize("part", ["network", "likelihood"])
def test_what_could_not_be_loaded_is_not_saved(part, target, tmp_path):
    net = gilib.models.mlp(1, (3,), 1, posterior=gilib.Factorised())
    likelihood = gilib.Gaussian(0.1, learn=True)
    {"network": net, "likelihood": likelihood}[part].to(target)
    about = (
        "is on the device meta, without numbers" if target == "meta" else "must be in torch.float32 or torch"
    )
    with pytest.raises(ValueError, match=f" of (a|the) {part} .*{about}"):
        gilib.save(tmp_path / "model", net, likelihood)
    assert not (tmp_path / "model").exists()


R = 2
X, Y = data()


@pytest.fixture(scope="module")
def trained():
    """Two replicas, trained together; before, after, likelihood and history."""
    net, likelihood = network((R,)), LaplaceNoise(replicas=(R,))
    start = {name: p.detach().clone() for name, p in nn.ModuleList([net, likelihood]).named_parameters()}
    return net, likelihood, start, train(net, likelihood)


def test_training_moves_every_parameter_and_raises_the_bound(trained):
    net, likelihood, start, history = trained
    for name, parameter in nn.ModuleList([net, likelihood]).named_parameters():
        moved = (parameter != start[name]).reshape(R, -1).any(1)
        assert parameter.shape[0] == R and bool(moved.all()), name
    assert history.elbo.shape == (60, R)
    assert bool((history.elbo[-20:].mean(0) > history.elbo[:20].mean(0) + 0.1).all())


def test_replicas_end_where_networks_of_their_own_do():
    seeds = [3, 5]
    generator, noises = gilib.randomness.ReplicaGenerators(seeds), LaplaceNoise(replicas=(R,))
    together = network((R,), generator=generator)
    history = train(together, noises, steps=10, seed=seeds)
    for r, seed in enumerate(seeds):
        alone, noise = network(seed=seed), LaplaceNoise()
        assert_equal(history.elbo[:, r], train(alone, noise, steps=10, seed=seed).elbo, 1e-10)
        assert_equal(noises.log_scale[r].detach(), noise.log_scale.detach(), 1e-10)


def test_a_file_gives_the_same_network_back(trained, tmp_path):
    net, likelihood, *_ = trained
    normalisation = gilib.data.Normalisation.fit(X, Y)
    gilib.save(tmp_path / "model.pt", net, likelihood, normalisation=normalisation)
    again, noise, scaling, _ = gilib.load(tmp_path / "model.pt")
    assert again.config() == net.config() and noise.config() == likelihood.config()
    assert type(noise) is LaplaceNoise
    names = str(net.config())
    for kind in (Warp, OneWidth, LogNormalScale):
        assert f"'tests.support.own_parts:{kind.__name__}'" in names
    first, second = (
        gilib.predict(*pair, X, 4, generator=seeded(1), normalisation=scaling)
        for pair in ((net, likelihood), (again, noise))
    )
    assert torch.equal(first.centres, second.centres) and torch.equal(first.scale, second.scale)


STRANGER = """
import sys, gilib, pytest
told = "unknown layer 'tests.support.own_parts:Warp': import tests.support.own_parts first, then try again"
with pytest.raises(gilib.persistence.CheckpointError, match=told):
    gilib.load(sys.argv[1])
import tests.support.own_parts
gilib.load(sys.argv[1])
"""


def test_a_program_without_the_classes_is_told_what_to_import(trained, tmp_path):
    gilib.save(tmp_path / "model.pt", *trained[:2])
    script = tmp_path / "script.py"
    script.write_text(STRANGER)
    assert forked.run(forked.script, script, tmp_path / "model.pt") == 0


def test_predictions_are_those_of_the_likelihood(trained):
    net, likelihood, *_ = trained
    prediction = gilib.predict(net, likelihood, X, 4, generator=seeded(1), batch_size=7)
    with torch.no_grad():
        outputs = net.draw(4, generator=seeded(1))(X)  # [S, R, N, 1]
        by_point = likelihood.log_prob(outputs, Y)
    assert_equal(prediction.mean, outputs.mean(0))
    assert_equal(prediction.log_prob(Y), gilib.metrics.log_mean_exp(by_point, 0))


def test_prices_are_log_p_minus_log_q():
    """Of scale and weight, by torch's densities."""
    layer = gilib.Linear(1, 1, OneWidth(0.8), LogNormalScale(0.5), bias=False)
    layer.build((1,), gilib.posteriors.BuildContext(dtype=D, generator=seeded()))
    w, s = layer.weights.requires_grad_(False), layer.hyperparameters.requires_grad_(False)
    t_mean, t_sd = s.mean, s.log_sd.exp()
    w_mean, w_sd = w.mean().squeeze(), w.log_sd.exp()
    noise = normals(1000, 2)
    t, weight = t_mean + t_sd * noise[:, 0], w_mean + w_sd * noise[:, 1]
    log_p = Normal(0.0, 1.0).log_prob(t) + Normal(0.0, (-0.25 * t).exp()).log_prob(weight)  # I = 1
    log_q = Normal(t_mean, t_sd).log_prob(t) + Normal(w_mean, w_sd).log_prob(weight)
    assert_equal(layer.draw(noise=noise).log_pq.detach(), log_p - log_q, 1e-10)


def test_the_parts_take_public_names_only():
    tree = ast.parse(Path(own_parts.__file__).read_text())
    rooms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names = [name.name for room in rooms for name in room.names]
    names += [one.attr for one in attributes]
    assert [name for name in names if name.startswith("_") and name != "__init__"] == []
    used = [one.attr for one in attributes if isinstance(one.value, ast.Name) and one.value.id == "gilib"]
    assert used and set(used) <= set(gilib.__all__)
