"""A model in one file: the same predictions to the last bit, no code run on loading, no half-written file."""

import math

import pytest
import torch

import gilib
from gilib.data import Normalisation
from tests.support import normals, seeded, small_net
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
