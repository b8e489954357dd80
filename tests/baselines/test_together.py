"""What methods are compared with: each trains by `fit`, is drawn, and predicts by `predict`."""

import pytest
import torch

import gilib
from gilib.baselines import laplace
from gilib.training import IVON, VOGN, NoisyAdam, NoisyKFAC, Vadam
from tests.support import D, normals, seeded

X = normals(60, 2, seed=1)
Y = torch.sin(1.5 * X[:, :1]) + 0.1 * normals(60, 1, seed=2)
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
    gilib.fit(net, noise, X, Y, steps=150, rule=rule, num_samples=1, batch_size=30, progress=False)
    drawable = {"ensemble": gilib.Ensemble, "laplace": lambda own: laplace(own, noise, X, Y)}.get(name)
    drawable = net if drawable is None else drawable(net)
    near, far = (gilib.predict(drawable, noise, x, 50, generator=seeded()) for x in (X, 4 * X))
    assert float((near.mean - Y).square().mean()) < 0.5 * float(Y.var())
    spread = float((near.sd.square() - 0.05).mean())
    assert (spread > 1e-6) == (name != "map")
    assert name != "laplace" or float((far.sd.square() - 0.05).mean()) > 4 * spread
