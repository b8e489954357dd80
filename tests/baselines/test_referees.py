"""Baselines: each trains and predicts; some against other people's libraries (tests/referees.txt)."""

import pytest
import torch
from torch import nn

import gilib
from gilib.baselines import laplace
from gilib.training import IVON, VOGN, NoisyAdam, NoisyKFAC, Vadam
from tests.support import D, assert_equal, normals, seeded, small_net, with_ones
from tests.support.variational import NOISE, RULES, X, Y, fit, posteriors

STEPS, DRAWS = 5, 2


@pytest.mark.parametrize("bins", [5, 20])
def test_calibration_is_that_of_torchmetrics(bins):
    library = pytest.importorskip("torchmetrics.classification")
    logits, labels = 2.0 * normals(500, 4), torch.arange(500) % 4
    theirs = library.MulticlassCalibrationError(num_classes=4, n_bins=bins, norm="l1")
    ours = gilib.metrics.expected_calibration_error(logits.softmax(-1), labels, bins)
    assert float(ours) == pytest.approx(float(theirs(logits.softmax(-1), labels)), abs=1e-6)


def loss(weights):
    """Mean negative log likelihood of the network 2 → 3 → 2, but for a constant."""
    hidden = torch.tanh(with_ones(X) @ weights[0])
    return 0.5 * (Y - with_ones(hidden) @ weights[1]).square().sum(-1).mean() / NOISE


def test_ivon_is_that_of_its_authors(monkeypatch):
    """From the same normals; their h is our precision over N, less the prior's, which is their decay."""
    ivon = pytest.importorskip("ivon")
    net, stream, count = small_net(gilib.Factorised()), seeded(), len(X)
    weights, groups = [], []
    for mean, precision in posteriors(net):
        weights.append(nn.Parameter(mean.clone()))
        decay = mean.shape[0] / count  # the prior's variance is 1 / I
        hessian = (precision / count - decay).flatten()
        groups.append({"params": weights[-1:], "weight_decay": decay, "hess_init": hessian})
    settings = {"lr": 0.1, "beta1": 0.8, "beta2": 0.9, "ess": count, "mc_samples": DRAWS}
    theirs = ivon.IVON(groups, rescale_lr=False, **settings)
    fit(net, RULES["ivon"], steps=STEPS, num_samples=DRAWS)
    for _ in range(STEPS):
        noise = torch.randn(DRAWS, 9 + 8, generator=stream, dtype=D).split([9, 8], -1)
        for draw in range(DRAWS):
            given = iter([own[draw] for own in noise])
            with monkeypatch.context() as patch:
                patch.setattr(torch, "randn", lambda *size, given=given, **kind: next(given))
                with theirs.sampled_params(train=True):
                    theirs.zero_grad()
                    loss(weights).backward()
        theirs.step()
    for (mean, precision), own, group in zip(posteriors(net), weights, theirs.param_groups, strict=True):
        assert_equal(mean, own, 1e-11)
        assert_equal(precision.flatten(), count * (group["hess"] + group["weight_decay"]), 1e-11)


@pytest.mark.usefixtures("float64")  # theirs accumulates in the default dtype
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_laplace_is_that_of_laplace_torch(task):
    """The precision of the last layer's weights, theirs by outputs and the bias apart."""
    library = pytest.importorskip("laplace")
    inputs, targets, labels = normals(9, 2), normals(9, 3, seed=1), torch.arange(9) % 3
    net = gilib.models.mlp(2, (4,), 3, posterior=gilib.PointEstimate(), dtype=D, generator=seeded())
    below, last = net.draw(1).function, [m for m in net.modules() if isinstance(m, gilib.Linear)][-1]
    classes = task == "classification"
    y, likelihood = (labels, gilib.Categorical()) if classes else (targets, gilib.Gaussian(NOISE))
    ours = laplace(net, likelihood, inputs, y)

    step = gilib.record(below, inputs).steps[-1]
    head = nn.Linear(4, 3, dtype=D)
    with torch.no_grad():
        head.weight.copy_(step.function.weights[0, :-1].mT)
        head.bias.copy_(step.function.weights[0, -1])
    features = step.input[0].detach()
    data = torch.utils.data.TensorDataset(features, y)
    model = nn.Sequential(nn.Identity(), head)
    settings = {"subset_of_weights": "last_layer", "hessian_structure": "full", "prior_precision": 5.0}
    noise = {} if classes else {"sigma_noise": NOISE**0.5}  # the prior's variance is 1 / I, I = 5
    theirs = library.Laplace(model, task, last_layer_name="1", **settings, **noise)
    theirs.fit(torch.utils.data.DataLoader(data, batch_size=9))
    assert last.fan_in == 5
    order = torch.arange(15).unflatten(0, (5, 3))  # [I, O], the bias last
    index = torch.cat([order[:-1].mT.flatten(), order[-1]])
    assert_equal(ours.precision[index][:, index], theirs.posterior_precision, 1e-9)


INPUTS = normals(60, 2, seed=1)
TARGETS = torch.sin(1.5 * INPUTS[:, :1]) + 0.1 * normals(60, 1, seed=2)
POINT, FACTORISED = gilib.PointEstimate(), gilib.Factorised()
ADAM = gilib.Adam(0.03)

BASELINES = {
    "map": (POINT, ADAM),
    "ensemble": (POINT, ADAM),
    "laplace": (POINT, ADAM),
    "dropout": (gilib.posteriors.Dropout(0.05), ADAM),
    "bayes by backprop": (FACTORISED, ADAM),
    "vogn": (FACTORISED, VOGN(0.2, betas=(0.9, 0.98))),
    "vadam": (FACTORISED, Vadam(0.03, betas=(0.9, 0.98))),
    "noisy adam": (FACTORISED, NoisyAdam(0.03, betas=(0.9, 0.98), damping=0.1)),
    "ivon": (FACTORISED, IVON(0.2, betas=(0.9, 0.98))),
    "noisy k-fac": (gilib.posteriors.MatrixGaussian(), NoisyKFAC(0.1)),
}


@pytest.mark.parametrize("name", BASELINES)
def test_it_trains_and_predicts(name):
    """Half of the targets' variance is explained, and all but the point have a spread."""
    posterior, rule = BASELINES[name]
    replicas = (3,) if name == "ensemble" else ()
    settings = {"posterior": posterior, "activation": torch.nn.Tanh, "replicas": replicas, "dtype": D}
    net = gilib.models.mlp(2, (10,), 1, generator=seeded(), **settings)
    noise = gilib.Gaussian(0.05)
    gilib.fit(net, noise, INPUTS, TARGETS, steps=150, rule=rule, num_samples=1, batch_size=30, progress=False)
    drawable = {"ensemble": gilib.Ensemble, "laplace": lambda own: laplace(own, noise, INPUTS, TARGETS)}.get(
        name
    )
    drawable = net if drawable is None else drawable(net)
    near, far = (gilib.predict(drawable, noise, x, 50, generator=seeded()) for x in (INPUTS, 4 * INPUTS))
    assert float((near.mean - TARGETS).square().mean()) < 0.5 * float(TARGETS.var())
    spread = float((near.sd.square() - 0.05).mean())
    assert (spread > 1e-6) == (name != "map")
    assert name != "laplace" or float((far.sd.square() - 0.05).mean()) > 4 * spread
