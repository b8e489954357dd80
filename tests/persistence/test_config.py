"""Names of classes in files: qualified for the reader's own, looked up among what exists, never imported."""

import importlib
import json
import pkgutil
import sys
from dataclasses import make_dataclass

import numpy as np
import pytest
import torch
from torch import nn

import gilib
from gilib.config import Part, describe, rebuild, subclasses, type_name
from tests.support import forked, normals, seeded, small_net


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
