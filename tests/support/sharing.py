"""Trainings that two processes share, and mistakes that they share, for the tests of `DataParallel`."""

import os
import time
from datetime import timedelta

import pytest
import torch
from torch import distributed

import gilib
from experiments.images import random_flip_and_crop
from gilib.training import SGHMC, VOGN, Bali, Checkpoint, DataParallel, NoisyKFAC, Speed
from gilib.training.engine import run
from tests.support import PRIORS, normals, own_parts, seeded, small_net
from tests.support.processes import NETWORKS
from tests.support.rules import MovingAverages, averaged

X = normals(20, 2, seed=1)
Y = X.sin() + 0.1 * normals(20, 2, seed=2)
IMAGES, LABELS = normals(9, 1, 8, 8), torch.arange(9) % 3
SEEDS, RATES = [7, 1, 4], [0.003, 0.01, 0.03]
WORLD, STEPS = 2, 10
CONJUGATE, KEPT = gilib.posteriors.Conjugate(), Bali(keep_moments=True)
FREEZE, FAST, UNEVEN = {"on_divergence": "freeze"}, gilib.Adam(0.03), gilib.Adam([0.01, 1e4, 0.01])


def fit(net, x=X, y=Y, likelihood=None, *, steps=STEPS, **settings):
    likelihood = likelihood or gilib.Gaussian(0.1, learn=True, replicas=net.replicas)
    settings = {"num_samples": 2, "rule": gilib.Adam(), "progress": False} | settings
    history = gilib.fit(net, likelihood, x, y, steps=steps, **settings)
    parameters = {f"net.{name}": p.detach() for name, p in net.named_parameters()}
    parameters |= {f"likelihood.{name}": p.detach() for name, p in likelihood.named_parameters()}
    parameters |= dict(net.named_buffers())
    return {"elbo": history.elbo, "diverged_at": history.diverged_at, **parameters}


def mlp(posterior=None, prior="neal", **settings):
    return small_net(posterior or gilib.GlobalInducing(), PRIORS[prior], **settings)


def images(model, **settings):
    classes = gilib.Categorical()
    net = model((1, 8, 8), 3, inducing_points=IMAGES[:4], generator=seeded(), **settings)
    return net, IMAGES, LABELS, classes


def lenet(**settings):
    return fit(*images(gilib.models.lenet, channels=2), batch_size=5, **settings)


def resnet(**settings):
    return fit(*images(gilib.models.resnet18, widths=(2, 3)), batch_size=6, steps=3, **settings)


def own(**settings):
    """A reader's own layer, posterior, prior and likelihood."""
    noise = own_parts.LaplaceNoise(replicas=(2,))
    return fit(own_parts.network((2,)), *own_parts.data(), noise, batch_size=20, num_samples=4, **settings)


def single_precision(**settings):
    """Parameters of the network and of the noise in two dtypes, and so in two messages."""
    return fit(mlp().float(), X.float(), Y.float(), batch_size=6, **settings)


CASES = {
    "full batch": lambda **s: fit(mlp(gilib.GlobalInducing(precision="full")), **s),
    "uneven shares": lambda **s: fit(mlp(gilib.LocalInducing(), "scale"), batch_size=7, rule=FAST, **s),
    "pointwise": lambda **s: fit(mlp(gilib.Factorised(), "scale"), batch_size=7, estimator="pointwise", **s),
    "factorised": lambda **s: fit(mlp(gilib.Factorised(), "spatial"), batch_size=6, seed=5, **s),
    "tempered": lambda **s: fit(mlp(prior="scale"), batch_size=6, kl_weight=lambda step: 0.1 * step, **s),
    "lenet": lambda **s: lenet(augment=random_flip_and_crop, **s),
    "resnet": resnet,
    "replicas": lambda **s: fit(mlp(replicas=(3,)), seed=SEEDS, rule=gilib.Adam(RATES), batch_size=7, **s),
    "frozen": lambda **s: fit(mlp(gilib.Factorised(), replicas=(3,)), rule=UNEVEN, **FREEZE, **s),
    "two dtypes": single_precision,
    "processes": lambda **s: fit(NETWORKS["global"](), batch_size=7, **s),
    "free processes": lambda **s: fit(NETWORKS["free"](), batch_size=7, **s),
    "chain": lambda **s: fit(mlp(gilib.PointEstimate()), rule=SGHMC(2, window=2), batch_size=7, **s),
    "layerwise": lambda **s: fit(mlp(CONJUGATE), rule=Bali(), batch_size=7, **s),
    "layerwise, moments kept": lambda **s: fit(
        mlp(CONJUGATE), rule=Bali(keep_moments=True), batch_size=7, **s
    ),
    "layerwise, pointwise": lambda **s: fit(
        mlp(CONJUGATE, replicas=(3,)), rule=Bali(), estimator="pointwise", seed=SEEDS, **s
    ),
    "examples": lambda **s: fit(mlp(gilib.Factorised()), rule=VOGN(), batch_size=7, **s),
    "factors": lambda **s: fit(mlp(gilib.posteriors.MatrixGaussian()), rule=NoisyKFAC(), batch_size=7, **s),
    "own parts": own,
    "own rule": lambda **s: fit(averaged(), rule=MovingAverages(jitter=0.1), batch_size=7, **s),
}


def broken_point():
    """Targets one of which no process but the last can explain."""
    y = Y.clone()
    y[-1] = 1e200
    return y


def broken_matrix():
    net = mlp()
    next(iter(net.layers)).weights.pseudo.scaled_log_precision.data.fill_(300.0)
    return net


def broken_elsewhere(rank):
    """A network whose third sample fails on process 1 alone."""
    net = mlp()
    sample, calls = net.sample, []

    def third_fails(*args, **settings):
        calls.append(1)
        if rank == 1 and len(calls) == 3:
            raise gilib.linalg.FactorisationError("the posterior precision", "as planned", ("layer 9",))
        return sample(*args, **settings)

    net.sample = third_fails
    return net


def paused(rank, folder):
    """On process 0 at once."""
    return Checkpoint(folder / "paused.pt", deadline=time.monotonic() + 3600.0 * rank)


ERRORS = {
    "divergence": lambda rank, folder, s: fit(mlp(gilib.Factorised()), X, broken_point(), **s),
    "factorisation": lambda rank, folder, s: fit(broken_matrix(), **s),
    "one factorisation": lambda rank, folder, s: fit(broken_elsewhere(rank), **s),
    "parameters": lambda rank, folder, s: fit(mlp(seed=rank), **s),
    "seed": lambda rank, folder, s: fit(mlp(), seed=rank, **s),
    "data": lambda rank, folder, s: fit(mlp(), X + rank, **s),
    "steps": lambda rank, folder, s: fit(mlp(), steps=3 + rank, **s),
    "small batch": lambda rank, folder, s: fit(mlp(), batch_size=1, **s),
    "checkpoint": lambda rank, folder, s: fit(mlp(), steps=12, checkpoint=folder / f"{rank}.pt", **s),
    "deadline": lambda rank, folder, s: fit(mlp(), steps=120, checkpoint=paused(rank, folder), **s),
}


def interrupted(checkpoint, **settings):
    """Ten steps, of which the first attempt does seven and keeps four."""

    def stop(step, bound, net):
        if step == 7:
            raise KeyboardInterrupt

    settings |= {"batch_size": 7, "checkpoint": Checkpoint(checkpoint, every=4)}
    with pytest.raises(KeyboardInterrupt):
        fit(mlp(), callbacks=[stop], **settings)
    return fit(mlp(seed=9), **settings)


def work(rank, folder):
    """What each process does."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group(
        "gloo", f"file://{folder}/store", timedelta(seconds=300), rank=rank, world_size=WORLD
    )
    settings, found = {"speed": Speed(parallel=DataParallel())}, {}
    if rank == 0:
        fit(mlp(), steps=4, checkpoint=folder / "0.pt")
    for name, case in CASES.items():
        found[name] = case(**settings)
    write = run.write_checkpoint
    if rank > 0:
        run.write_checkpoint = None  # it would be an error to call it
    found["resumed"] = interrupted(folder / "resumed.pt", **settings)
    stop = [lambda step, bound, net: rank == 1 and step == 7]
    found["ended"] = fit(mlp(), steps=150, callbacks=stop, **settings)
    for name, case in ERRORS.items():
        with pytest.raises(Exception) as caught:  # noqa: B017
            case(rank, folder, settings)
        found[name] = f"{type(caught.value).__name__}: {caught.value}"
    run.write_checkpoint = write
    torch.save(found, folder / f"found-{rank}")
    distributed.destroy_process_group()
