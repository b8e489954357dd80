"""What was drawn or predicted is a value, which later changes leave alone, and files give it back."""

import pytest
import torch
from torch import nn

import gilib
from gilib.kernels import RBF, ArcCosine, White
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, PerOutputGaussian
from tests.layers.test_pinned import NETWORKS, X, network, process
from tests.support import POSTERIORS, PRIORS, D, normals, seeded, shaken, small_net
from tests.support.trainings import same
from tests.support.zoo import NETS

PLACES, LOCAL = normals(5, 2, seed=4), gilib.LocalInducing(4, precision="per_output")
PARTS = ArcCosine(order=0) + RBF(ard=False) * White(0.1)


def single():
    return gilib.models.mlp(2, (3,), 2, prior=gilib.NealPrior(1.3), inducing_points=PLACES.float())


MORE = {
    "GP, point": lambda: network(process(gilib.PointEstimate(num_inducing=4))),
    "a prior for every replica": lambda: small_net(
        gilib.Factorised(), gilib.priors.PerReplica(tuple(PRIORS.values())[:3]), replicas=(3,)
    ),
    "a scale that is learned": lambda: small_net(
        gilib.GlobalInducing(), gilib.NealPrior(learn=True), replicas=(2,)
    ),
    "kernels in parts": lambda: network(gilib.GP(2, 2, PARTS, LOCAL, jitter=1e-3, num_features=5)),
    "side by side": lambda: network(
        gilib.layers.Concat([process(gilib.FreeGaussian(num_inducing=4)), nn.Identity()])
    ),
    "blocks": lambda: network(
        gilib.Residual([gilib.Linear(2, 4), nn.Tanh(), gilib.Linear(4, 2, gilib.Factorised())]),
        gilib.Sequential([nn.Sequential(nn.ELU(0.5), nn.Hardtanh(-0.5, 0.25)), gilib.Linear(2, 2)]),
    ),
    "two axes": lambda: small_net(gilib.LocalInducing(num_inducing=4), replicas=(2, 3)),
    "as many points as were given": lambda: small_net(gilib.LocalInducing(), points=7),
    "single precision": single,
    "double precision": lambda: single().double(),  # a prior's precision that was rounded stays so
}
# the first pairs of posteriors and priors hold each of both
ZOO = [*list(NETS)[: len(POSTERIORS)], "conjugate", "lenet, conjugate", "resnet8, local", "structured, star"]
EVERY = {**NETWORKS, **MORE, **{name: NETS[name] for name in ZOO}}


def made(name):
    """A network away from where it starts, and points."""
    net = shaken(EVERY[name](), 0.1)
    x = X if len(net.input_shape) == 1 else normals(4, *net.input_shape)
    return net, x.to(net.reference_tensor().dtype)


def changed(module):
    """Every number of it, in its place, as steps of training and load_state_dict do."""
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            if value.is_floating_point():
                value.mul_(0.7).add_(0.1)


def numbers(draw, x):
    values = [draw(x), *draw.moments(x), *draw.marginals(x), draw.log_pq, draw.inducing_outputs]
    values += gilib.draws.record(draw, x).outputs
    return [None if value is None else value.detach().clone() for value in values]


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", EVERY)
def test_functions(name, face):
    net, x = made(name)
    points = () if face == "draw" else (x.shape[0],)
    drawn = getattr(net, face)(3, *points, generator=seeded())
    before = numbers(drawn, x)
    changed(net)
    assert_same(numbers(drawn, x), before)
    again = getattr(net, face)(3, *points, generator=seeded())
    if any(parameter.requires_grad for parameter in net.parameters()):
        assert not torch.equal(again(x), before[0])


@pytest.mark.parametrize("name", EVERY)
def test_a_file_gives_them_back(name, tmp_path):
    """Specifications, settings, state and their noise: the same functions to the last bit."""
    (net, x), noise = made(name), shaken(gilib.Gaussian(0.07, learn=True, scale=10.0), 0.2)
    gilib.save(tmp_path / "model", net, noise)
    again, likelihood, normalisation, config = gilib.load(tmp_path / "model")
    assert again.config() == net.config() and likelihood.config() == noise.config()
    assert same([net, noise], [again, likelihood]) and normalisation is config is None
    for face, points in (("draw", ()), ("estimate", (len(x),)), ("joint_draw", (len(x),))):
        drawn = (getattr(own, face)(2, *points, generator=seeded()) for own in (again, net))
        assert_same(*(numbers(each, x) for each in drawn))


@pytest.mark.parametrize("layer", [process(gilib.GlobalInducing("full")), gilib.layers.InducingBatchNorm()])
def test_functions_of_a_layer(layer):
    """Whoever calls a layer hands inducing points over, and may change them."""
    layer.build((2,), gilib.posteriors.BuildContext(num_inducing=5, dtype=D, generator=seeded()))
    inducing = PLACES.clone()
    drawn = layer.draw(inducing, 3, generator=seeded())
    before = numbers(drawn, X)
    inducing.add_(1.0)
    assert_same(numbers(drawn, X), before)


LIKELIHOODS = {
    "gaussian": lambda: gilib.Gaussian(0.3, learn=True),
    "per output": lambda: PerOutputGaussian([0.3, 0.5], learn=True),
    "correlated": lambda: CorrelatedGaussian(2, learn=True),
    "heteroscedastic": lambda: HeteroscedasticGaussian([0.3]),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_predictions(name):
    """The noise is part of it, as it was."""
    net, likelihood = NETS["gi-full, neal"](), LIKELIHOODS[name]()
    prediction = gilib.predict(net, likelihood, X, 5, generator=seeded())
    targets = normals(len(X), 1 if name == "heteroscedastic" else 2)

    def known():
        return [prediction.mean, prediction.sd, prediction.log_prob(targets), prediction.quantile(0.1)]

    before = [value.clone() for value in known()]
    changed(net), changed(likelihood)
    assert_same(known(), before)
    again = gilib.predict(net, likelihood, X, 5, generator=seeded())
    assert not torch.equal(again.sd, before[1])
