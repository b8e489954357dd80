"""A model in one file: the same predictions to the last bit, no code run on loading, no half-written file."""

import math

import pytest
import torch
from torch import nn

import gilib
from gilib.data import Normalisation
from tests.support import PAIRS, POSTERIORS, PRIORS, normals, seeded, shaken, small_net
from tests.support.saved import ordinary
from tests.support.trainings import same

NORMALISATION = Normalisation.fit(5 + 2 * normals(20, 2), 3 * normals(20, 1, seed=1))


def network(*layers):
    return gilib.Network(normals(5, 2), layers)


def blocks():
    inner = [gilib.Linear(3, 4), nn.Tanh(), gilib.Linear(4, 3, gilib.Factorised())]
    last = gilib.Sequential([nn.ELU(0.5), gilib.Linear(3, 2)])
    return network(gilib.Linear(2, 3), gilib.Residual(inner), last)


def double():
    """The prior's precision was rounded when the network was built, and stays so."""
    points = normals(5, 2).float()
    return gilib.models.mlp(2, (3,), 2, prior=gilib.NealPrior(1.3), inducing_points=points).double()


MODELS = {
    **{f"{p}, {q}": lambda p=p, q=q: small_net(POSTERIORS[p], PRIORS[q]) for p, q in PAIRS},
    "blocks": blocks,
    "a chain of torch's own modules": lambda: network(
        gilib.Linear(2, 3), nn.Sequential(nn.Tanh(), nn.Hardtanh(-0.5, 0.25)), gilib.Linear(3, 2)
    ),
    "replicas": lambda: small_net(gilib.GlobalInducing("per_output"), PRIORS["scale"], replicas=(2,)),
    "two axes": lambda: small_net(gilib.LocalInducing(num_inducing=4), replicas=(2, 3)),
    "single precision": lambda: gilib.models.mlp(2, (3,), 2, inducing_points=normals(5, 2).float()),
    "double precision": double,
    "as many points as were given": lambda: small_net(gilib.LocalInducing(), points=7),
}


def predict(net, likelihood, x):
    return gilib.predict(net, likelihood, x, 4, generator=seeded(5))


@pytest.mark.parametrize("name", MODELS)
def test_a_reload_predicts_to_the_last_bit(name, tmp_path):
    net, likelihood = MODELS[name](), gilib.Gaussian(0.07, learn=True, scale=10.0)
    shaken(nn.ModuleList([net, likelihood]), 0.2)
    gilib.save(tmp_path / "model.pt", net, likelihood)
    again, noise, normalisation, config = gilib.load(tmp_path / "model.pt")
    x = normals(6, 2, seed=1).to(net.reference_tensor().dtype)
    first, second = predict(net, likelihood, x), predict(again, noise, x)
    assert torch.equal(first.means, second.means) and torch.equal(first.sd, second.sd)
    assert first.means.dtype == second.means.dtype and normalisation is config is None
    assert again.config() == net.config() and noise.config() == likelihood.config()
    assert same([net, likelihood], [again, noise])
    dense = ([own for own in each.modules() if isinstance(own, gilib.Linear)] for each in (net, again))
    specs = [[(own.posterior, own.prior) for own in layers] for layers in dense]
    assert specs[0] == specs[1]


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
