"""Networks of every kind give the numbers that they gave, and refuse points that do not fit.

Records were made with this order of the noise.
"""

import csv
from pathlib import Path

import pytest
import torch
from torch import nn

import gilib
from gilib import Factorised, FreeGaussian, FromPrior, GlobalInducing, LocalInducing, PointEstimate
from gilib.layers import GP, Concat, FixedLinear, InducingBatchNorm, Linear, Pretrained, Residual, Sum
from gilib.posteriors import Dropout, MatrixGaussian, PropagatedGaussian
from gilib.structured import FullyCoupled, MeanField, Process, StructuredGP
from tests.support import D, normals, seeded

POINTS = 6
X, IMAGES = normals(POINTS, 2, seed=1), normals(POINTS, 2, 12, 12, seed=2)


def mlp(posterior, prior=None, **settings):
    own = {"posterior": posterior, "prior": prior, "inducing_points": X[:4], "dtype": D}
    return gilib.models.mlp(2, (3,), 2, **own, generator=seeded(3), **settings)


def network(*layers, inducing_points=X[:4]):
    return gilib.Network(inducing_points, layers, generator=seeded(3), dtype=D)


def images(model, posterior, **settings):
    points = None if isinstance(posterior, Factorised) else IMAGES[:3]
    own = {"posterior": posterior, "inducing_points": points, "dtype": D, **settings}
    return model((2, 12, 12), 2, **own, generator=seeded(3))


def process(posterior=None, outputs=2):
    return GP(2, outputs, posterior=posterior, num_features=8)


def processes(posterior):
    return network(process(posterior), process(posterior))


def structured(family, **settings):
    own = [Process(2, 2, mean=FixedLinear(2, 2), num_inducing=3), Process(2, 2, num_inducing=4)]
    return network(StructuredGP(own, family, num_features=8, **settings), inducing_points=None)


def free():
    return FreeGaussian(num_inducing=3)


def body():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).to(D)


def dense(name, posterior):
    return Pretrained(body(), {name: Linear(2, 3, posterior) if name == "0" else Linear(3, 2, posterior)})


NETWORKS = {
    "factorised": lambda: mlp(Factorised(), gilib.ScalePrior()),
    "local": lambda: mlp(LocalInducing(num_inducing=3, precision="per_output")),
    "global": lambda: mlp(GlobalInducing("full"), gilib.ScalePrior()),
    "global above factorised": lambda: mlp([Factorised(), GlobalInducing()]),
    "global below factorised": lambda: mlp([GlobalInducing(), Factorised()]),
    "replicas": lambda: mlp(GlobalInducing(), replicas=(2,)),
    "from the prior": lambda: mlp(FromPrior()),
    "dropout": lambda: mlp(Dropout(0.3)),
    "matrix": lambda: mlp(MatrixGaussian()),
    "lenet global": lambda: images(gilib.models.lenet, GlobalInducing(), channels=2),
    "lenet factorised": lambda: images(gilib.models.lenet, Factorised(), channels=2),
    "resnet": lambda: images(gilib.models.resnet8, GlobalInducing(), channels=2),
    "batch normalisation": lambda: network(Linear(2, 3), InducingBatchNorm(), nn.ReLU(), Linear(3, 2)),
    "deep process global": lambda: processes(GlobalInducing("full")),
    "deep process local": lambda: processes(LocalInducing(num_inducing=3)),
    "deep process free": lambda: processes(free()),
    "deep process propagated": lambda: processes(PropagatedGaussian()),
    "deep process point": lambda: processes(PointEstimate(num_inducing=3)),
    "process below global": lambda: network(process(free()), Linear(2, 2)),
    "structured": lambda: structured(FullyCoupled()),
    "structured sampled": lambda: structured(MeanField(), marginalise=False),
    "structured below global": lambda: network(
        StructuredGP([Process(2, 2, num_inducing=3)], FullyCoupled(), num_features=8), process()
    ),
    "branches": lambda: network(
        Residual([Linear(2, 2), nn.Tanh(), Linear(2, 2, Factorised())]),
        Sum([process(free()), FixedLinear(2, 2)]),
        Concat([Linear(2, 1), process(free(), 1)]),
    ),
    "pretrained factorised": lambda: network(dense("0", Factorised()), Linear(2, 2, Factorised())),
    "pretrained global": lambda: network(dense("2", GlobalInducing()), nn.Tanh(), Linear(2, 2)),
}


def numbers(net):
    """Inducing outputs; outputs, log_pq, bound and squared gradient of draw, estimate, joint draw."""
    x = X if len(net.input_shape) == 1 else IMAGES
    likelihood = gilib.Gaussian(0.3).to(D)
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for k, parameter in enumerate(parameters):  # away from where they start, at which much is zero
            parameter.add_(0.1 * normals(*parameter.shape, seed=10 + k))
    inducing = net.draw(generator=seeded(3)).inducing_outputs
    found = [torch.zeros(()) if inducing is None else inducing.square().sum()]
    for seed, sample in enumerate((net.draw, net.estimate, net.joint_draw)):
        sizes = () if seed == 0 else (POINTS,)
        drawn = sample(2, *sizes, generator=seeded(seed))
        outputs = drawn(x)
        bound = gilib.elbo(drawn, likelihood, x, normals(POINTS, 2, seed=4), num_data=20).sum()
        gradients = torch.autograd.grad(bound, parameters, materialize_grads=True) if parameters else ()
        weights = normals(*outputs.shape, seed=5)
        found += [(outputs * weights).sum(), drawn.log_pq.sum(), bound]
        found.append(sum((gradient.square().sum() for gradient in gradients), torch.zeros(())))
    return [float(value.detach()) for value in found]


ROWS = csv.reader((Path(__file__).parent / "pinned.csv").read_text().splitlines())
PINNED = {name: [float(value) for value in values] for name, *values in ROWS}


@pytest.mark.parametrize("name", NETWORKS)
def test_draws_bounds_and_gradients(name):
    assert numbers(NETWORKS[name]()) == pytest.approx(PINNED[name], rel=1e-6, abs=1e-9)


# modules of others, and joint draws at inducing points and others together
LEFT_OUT = ("pretrained", "process below", "structured below")
EVERY = {
    "normalised images": lambda: network(InducingBatchNorm(), gilib.Conv2d(2, 2, 3), inducing_points=IMAGES),
    "normalised points": lambda: network(InducingBatchNorm(), gilib.Linear(2, 1)),
    "a fixed linear map": lambda: network(FixedLinear(2, 1, torch.ones(2, 1)), gilib.GP(1, 1)),
    **{name: NETWORKS[name] for name in NETWORKS if not name.startswith(LEFT_OUT)},
}


@pytest.mark.parametrize("face", ["draw", "estimate", "joint_draw"])
@pytest.mark.parametrize("name", EVERY)
def test_points_of_another_dtype_or_shape(name, face):
    net = EVERY[name]().float()
    x = (IMAGES if len(net.input_shape) == 3 else X).float()
    points = () if face == "draw" else (len(x),)
    drawn = getattr(net, face)(2, *points, generator=seeded())
    assert drawn(x).dtype == torch.float32
    for evaluated in (drawn, drawn.marginals):
        with pytest.raises(ValueError, match="x has dtype torch.float64 but the network has torch.float32"):
            evaluated(x.double())
    for wrong in (x[0], torch.cat([x, x], 1), x[:, :1]):
        with pytest.raises(ValueError, match=r"(points|images|channels).*got \["):
            drawn.function(wrong)


def test_points_of_another_dtype_within_autocast():
    """It is left for what is drawn, and does not convert them."""
    net = NETWORKS["factorised"]().float()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="x has dtype torch.bfloat16"):
        net.draw(2, generator=seeded())(X.bfloat16())
