"""What travels in the file of a model, by which names; a reader's own parts (see `own_parts`) as well."""

import ast
import importlib
import json
import math
import pkgutil
import sys
from dataclasses import make_dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal

import gilib
from gilib.config import Part, describe, rebuild, subclasses, type_name
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


def own_class(module):
    return type("Mine", (gilib.NealPrior,), {"__module__": module, "__qualname__": "Mine"})


class Doubled(gilib.Linear):
    """A layer of one's own that inherits all but its function."""

    def function(self, weights):
        return super().function(2 * weights)


class Keeps(gilib.layers.Layer):
    def __init__(self, values=(), inner=None, note=None, width=2):
        super().__init__()
        self.values, self.inner, self.note, self.width = values, inner, note, width

    def build(self, shape, context):
        return shape

    def sample(self, inducing, noise, mode):
        return mode(lambda x: x, noise.zeros)

    def config(self):
        return {"values": self.values, "inner": self.inner, "note": self.note, "width": self.width}


def test_two_classes_of_one_name_are_two():
    first, second = own_class("one.place"), own_class("another.place")
    assert describe(first(2.0)) == {"type": "one.place:Mine", "scale": 2.0, "learn": False}
    assert type(rebuild(describe(first()), gilib.priors.Prior)) is first
    assert type(rebuild(describe(second()), gilib.priors.Prior)) is second


def test_a_class_with_a_name_of_gilib_does_not_stand_for_it():
    impostor = type("NealPrior", (gilib.StandardPrior,), {"__module__": "their.module"})
    assert type(rebuild({"type": "NealPrior", "scale": 1.0}, gilib.priors.Prior)) is gilib.NealPrior
    assert type(rebuild({"type": "their.module:NealPrior"}, gilib.priors.Prior)) is impostor
    assert type_name(own_class("gilibrary.layers")) == "gilibrary.layers:Mine"


def test_a_class_that_is_defined_again_takes_the_place_of_the_old_one():
    """As when a cell of a notebook runs twice; whoever holds the old class does not matter."""
    old, new = own_class("a.notebook"), own_class("a.notebook")
    assert type(rebuild(describe(old()), gilib.priors.Prior)) is new


def test_a_subclass_of_a_layer_is_not_taken_for_the_layer(tmp_path):
    net = gilib.Network(normals(5, 2), [Doubled(2, 3), nn.Tanh(), gilib.Linear(3, 1)], generator=seeded())
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.1))
    again, *_ = gilib.load(tmp_path / "model.pt")
    x, noise = normals(6, 2), normals(3, net.noise_size)
    assert torch.equal(again.draw(noise=noise)(x), net.draw(noise=noise)(x))
    assert net.config()["layers"][0]["type"] == f"{__name__}:Doubled"


def test_arguments_of_every_plain_kind_come_back():
    inner = gilib.Sequential([nn.LeakyReLU(0.3), gilib.Linear(2, 2, gilib.Factorised(np.float64(0.5)))])
    layer = Keeps([1, (np.float32(0.5), True)], inner, {"a": None, "b": [2]}, np.int64(7))
    description = describe(layer)
    assert json.loads(json.dumps(description)) == description
    again = rebuild(description, gilib.layers.Layer)
    assert again.values == (1, (0.5, True)) and again.note == {"a": None, "b": [2]} and again.width == 7
    assert describe(again.inner) == describe(inner)
    assert list(again.inner)[0].module.negative_slope == 0.3


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("nowhere.layers:Fourier", r"import nowhere\.layers first, then try again"),
        (f"{__name__}:Fourier", "is imported, but it defines no Fourier of this kind"),
        ("__main__:Fourier", "define Fourier first, as the script or notebook did that wrote the file"),
        ("Fourier", "gilib knows Concat, Conv2d, .*, Linear, .*, Sum"),
        (None, "gilib knows Concat, Conv2d"),
    ],
)
def test_an_unknown_layer(name, advice):
    with pytest.raises(ValueError, match=f"unknown layer {name!r}: .*{advice}"):
        rebuild({"type": name}, gilib.layers.Layer)


def test_a_name_in_a_file_imports_nothing(tmp_path, monkeypatch):
    """Not even a module that is there to be imported."""
    (tmp_path / "trap.py").write_text("import gilib\nclass Mine(gilib.NealPrior): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="import trap first"):
        rebuild({"type": "trap:Mine"}, gilib.priors.Prior)
    assert "trap" not in sys.modules
    module = importlib.import_module("trap")
    assert type(rebuild({"type": "trap:Mine", "scale": 2.0}, gilib.priors.Prior)) is module.Mine


def test_what_the_constructor_does_not_take_is_said(tmp_path):
    path = tmp_path / "model.pt"
    gilib.save(path, small_net(gilib.GlobalInducing()), gilib.Gaussian(0.1))
    content = torch.load(path, weights_only=True)
    for change, message in ({"type": "Layer"}, "abstract|unknown"), ({"depth": 3}, "depth"):
        content["network"]["layers"][0] |= {"type": "Linear"} | change
        torch.save(content, path)
        with pytest.raises(gilib.persistence.CheckpointError, match=message):
            gilib.load(path)


def test_what_no_file_can_hold_is_refused_before_writing(tmp_path):
    net = gilib.Network(normals(5, 2), [Keeps(note=object()), gilib.Linear(2, 1)])
    with pytest.raises(TypeError, match=r"config\(\) of the network and its parts gives must hold plain"):
        gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.1))
    assert not (tmp_path / "model.pt").exists()
    with pytest.raises(NotImplementedError, match=r"Nameless has no config\(\): write one to save it"):
        describe(type("Nameless", (Part,), {"__init__": lambda self, size: None})(3))
    with pytest.raises(NotImplementedError, match="do not hold the tensor values"):
        describe(make_dataclass("Tabled", [("values", torch.Tensor)], bases=(Part,))(torch.ones(2)))
    typed = type("Typed", (Part,), {"config": lambda self: {"type": "Linear"}})
    with pytest.raises(ValueError, match=r"config\(\) of Typed has an entry 'type', where files keep"):
        describe(typed())


def test_names_of_gilib_are_unique():
    """Files name them without a module, so that they may move."""
    for module in pkgutil.walk_packages(gilib.__path__, "gilib."):
        if not module.name.endswith(".experiments"):  # which only says where they are
            importlib.import_module(module.name)
    names = [type_name(kind) for kind in subclasses(Part) if kind.__module__.startswith("gilib.")]
    assert len(names) == len(set(names)) and not any(":" in name for name in names)


FILE = """
import sys, torch, gilib
path = sys.argv[1]
class Mine(gilib.Linear):
    pass
if sys.argv[2] == "save":
    gilib.save(path, gilib.Network(torch.zeros(5, 2), [Mine(2, 1)]), gilib.Gaussian(0.1))
else:
    assert type(next(iter(gilib.load(path)[0].layers))) is Mine
"""


def test_a_script_loads_what_it_defines_itself(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(FILE)
    for action in ("save", "load"):
        assert forked.run(forked.script, script, tmp_path / "model.pt", action) == 0
    with pytest.raises(gilib.persistence.CheckpointError, match="unknown layer '__main__:Mine': define Mine"):
        gilib.load(tmp_path / "model.pt")
