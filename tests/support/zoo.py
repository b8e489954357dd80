"""A network of every kind, small, in float64, with data and likelihood."""

import copy

import torch

import gilib
from gilib.training import Bali, NoisyKFAC
from tests.support import PAIRS, POSTERIORS, PRIORS, D, normals, seeded, shaken, small_net

N, S = 12, 3
X, Y, LABELS = normals(N, 2, seed=1), normals(N, 2, seed=2), torch.arange(N) % 3
IMAGES = normals(N, 3, 16, 16, seed=3)
REGRESSION, CLASSES = gilib.Gaussian(0.1, learn=True).to(D), gilib.Categorical()
CONJUGATE = gilib.posteriors.Conjugate()
STRUCTURED = {
    "coupled": gilib.structured.FullyCoupled(),
    "star": gilib.structured.StripesAndArrow(),
    "mean-field": gilib.structured.MeanField(),
}


def images(model, **settings):
    shape = tuple(IMAGES.shape[1:])
    built = model(shape, 3, inducing_points=IMAGES[:4], generator=seeded(), dtype=D, **settings)
    return shaken(built, 0.1)


def processes(posterior):
    shared = {"inducing_points": X[:5], "generator": seeded(), "dtype": D, "num_features": 32}
    return shaken(gilib.models.deep_gp(2, 2, 2, posterior=posterior, **shared), 0.1)


def structured(family):
    shared = {"inducing_points": X[:5], "width": 2, "generator": seeded(), "num_features": 32}
    return shaken(gilib.models.structured_gp(2, 1, 3, family=family, **shared), 0.1)


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(2, 3), torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x):
        hidden = self.first(x).tanh()
        return (hidden + self.norm(self.second(hidden)).tanh())[:, :2]


def trained(posterior):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = shaken(Residual().to(D), 1.0)
    settings = {"inducing_points": X[:5], "generator": seeded(), "trainable": True}
    return shaken(gilib.bayesian(model, posterior, where=[model.first, model.second], **settings))


NETS = {
    **{f"{p}, {q}": lambda p=p, q=q: small_net(POSTERIORS[p], PRIORS[q]) for p, q in PAIRS},
    "replicas": lambda: small_net(gilib.GlobalInducing(precision="per_output"), replicas=(2,)),
    "conjugate": lambda: small_net(CONJUGATE),
    "matrix": lambda: small_net(gilib.posteriors.MatrixGaussian()),
    "dropout": lambda: small_net(gilib.posteriors.Dropout(0.2)),
    "weights": lambda: small_net(gilib.PointEstimate()),
    "lenet": lambda: images(gilib.models.lenet, channels=2),
    "lenet, factorised": lambda: images(gilib.models.lenet, channels=2, posterior=gilib.Factorised()),
    "lenet, conjugate": lambda: images(gilib.models.lenet, channels=2, posterior=CONJUGATE),
    "resnet8": lambda: images(gilib.models.resnet8, channels=4),
    "resnet8, local": lambda: images(gilib.models.resnet8, channels=4, posterior=gilib.LocalInducing(40)),
    "resnet18": lambda: images(gilib.models.resnet18, widths=(1, 2, 2, 2), batch_norm=True),
    "deep GP, global": lambda: processes(gilib.GlobalInducing("full")),
    "deep GP, local": lambda: processes(gilib.LocalInducing()),
    "deep GP, free": lambda: processes(gilib.FreeGaussian()),
    "trained module": lambda: trained(gilib.Factorised()),
    "trained module, global": lambda: trained(gilib.GlobalInducing()),
    **{f"structured, {name}": lambda f=f: structured(f) for name, f in STRUCTURED.items()},
}


def problem(name, device):
    """Network, likelihood, inputs and targets on a device."""
    net = NETS[name]()
    x, y, likelihood = X, Y[:, : net.output_shape[0]], REGRESSION
    if len(net.input_shape) == 3:
        x, y, likelihood = IMAGES, LABELS, CLASSES
    if net.replicas:
        likelihood = gilib.Gaussian(0.1, learn=True, replicas=net.replicas).to(D)
    return net.to(device), copy.deepcopy(likelihood).to(device), x.to(device), y.to(device)


def close(found, wanted, tolerance=1e-9):
    for ours, theirs in zip(found, wanted, strict=True):
        ours, theirs = ours.detach(), theirs.detach()
        scale = max(1.0, float(theirs.abs().max()) if theirs.numel() else 1.0)
        torch.testing.assert_close(ours.cpu(), theirs.cpu(), rtol=tolerance, atol=tolerance * scale)


def rule_of(name):
    return Bali() if "conjugate" in name else NoisyKFAC(0.01) if name == "matrix" else gilib.Adam(0.01)
