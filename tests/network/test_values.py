"""What was drawn or predicted is a value, which later changes leave alone, and files give it back."""

import pytest
import torch

import gilib
from gilib.kernels import RBF, ArcCosine, White
from gilib.likelihoods import CorrelatedGaussian, HeteroscedasticGaussian, PerOutputGaussian
from tests.support import PAIRS, POSTERIORS, PRIORS, D, normals, seeded, shaken, small_net
from tests.support.zoo import NETS, X, problem

PLACES, LOCAL = normals(5, 2, seed=4), gilib.LocalInducing(4, precision="per_output")


def network(*layers):
    return shaken(gilib.Network(PLACES, layers, generator=seeded(), dtype=D), 0.1)


def process(posterior, inputs=2, outputs=2):
    return gilib.GP(inputs, outputs, gilib.kernels.Matern(1.5), posterior, num_features=16)


MORE = {
    "GP, point": lambda: network(process(gilib.PointEstimate(num_inducing=4))),
    "GP, propagated": lambda: network(process(gilib.posteriors.PropagatedGaussian())),
    "mean function": lambda: network(
        gilib.layers.Sum([process(gilib.FreeGaussian(num_inducing=4)), gilib.layers.FixedLinear(2, 2)])
    ),
    "inducing points that pass on": lambda: network(
        process(gilib.FreeGaussian(num_inducing=4)), gilib.layers.InducingBatchNorm(), gilib.Linear(2, 1)
    ),
    "residual": lambda: network(gilib.layers.Residual([process(gilib.GlobalInducing("full"))])),
    "a prior for every replica": lambda: small_net(
        gilib.Factorised(), gilib.priors.PerReplica(tuple(PRIORS.values())[:3]), replicas=(3,)
    ),
    "a scale that is learned": lambda: small_net(
        gilib.GlobalInducing(), gilib.NealPrior(learn=True), replicas=(2,)
    ),
    "kernels in parts": lambda: network(
        gilib.GP(2, 2, ArcCosine(order=0) + RBF(ard=False) * White(0.1), LOCAL, jitter=1e-3, num_features=5)
    ),
    "side by side": lambda: network(
        gilib.layers.Concat([process(gilib.FreeGaussian(num_inducing=4)), torch.nn.Identity()])
    ),
}
# the first pairs of posteriors and priors hold each of both
EVERY = [*list(NETS)[: len(POSTERIORS)], *list(NETS)[len(PAIRS) :], *MORE]


def changed(module):
    """Every number of it, in its place, as steps of training and load_state_dict do."""
    with torch.no_grad():
        for value in (*module.parameters(), *module.buffers()):
            if value.is_floating_point():
                value.mul_(0.7).add_(0.1)


def numbers(draw, x):
    """All that there is to know of functions."""
    values = [draw(x), *draw.moments(x), *draw.marginals(x), draw.log_pq, draw.inducing_outputs]
    values += gilib.draws.record(draw, x).outputs
    return [None if value is None else value.detach().clone() for value in values]


def assert_same(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", EVERY)
def test_functions(name, face):
    net, x = (MORE[name](), X) if name in MORE else (problem(name, "cpu")[i] for i in (0, 2))
    points = () if face == "draw" else (x.shape[0],)
    drawn = getattr(net, face)(3, *points, generator=seeded())
    before = numbers(drawn, x)
    changed(net)
    assert_same(numbers(drawn, x), before)
    again = getattr(net, face)(3, *points, generator=seeded())
    if any(True for _ in net.parameters()):
        assert not torch.equal(again(x), before[0])


@pytest.mark.parametrize("name", [name for name in EVERY if "trained" not in name])
def test_a_file_gives_them_back(name, tmp_path):
    """Specifications, settings, state and their noise: the same functions to the last bit."""
    net, x = (MORE[name](), X) if name in MORE else (problem(name, "cpu")[i] for i in (0, 2))
    gilib.save(tmp_path / "model", net, gilib.Categorical())
    again = gilib.load(tmp_path / "model").network
    assert again.config() == net.config()
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
    targets = normals(12, 1 if name == "heteroscedastic" else 2)

    def known():
        return [prediction.mean, prediction.sd, prediction.log_prob(targets), prediction.quantile(0.1)]

    before = [value.clone() for value in known()]
    changed(net), changed(likelihood)
    assert_same(known(), before)
    again = gilib.predict(net, likelihood, X, 5, generator=seeded())
    assert not torch.equal(again.sd, before[1])
