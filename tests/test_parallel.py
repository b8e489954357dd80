"""Two processes that share every minibatch end where one process ends."""

import inspect
import os
import re
import subprocess
import sys
import textwrap
import time
from datetime import timedelta

import pytest
import torch
from torch import distributed

import gilib
from gilib.training import SGHMC, VOGN, Bali, Checkpoint, DataParallel, NoisyKFAC, Speed, parallel, run
from tests.processes import NETWORKS
from tests.rules import MovingAverages, averaged
from tests.support import PRIORS, assert_equal, normals, seeded, small_net

X = normals(20, 2, seed=1)
Y = X.sin() + 0.1 * normals(20, 2, seed=2)
IMAGES, LABELS = normals(9, 1, 8, 8), torch.arange(9) % 3
SEEDS, RATES = [7, 1, 4], [0.003, 0.01, 0.03]
WORLD, STEPS = 2, 10


def fit(net, x=X, y=Y, likelihood=None, *, steps=STEPS, **settings):
    likelihood = likelihood or gilib.Gaussian(0.1, learn=True, replicas=net.replicas)
    history = gilib.fit(net, likelihood, x, y, steps=steps, num_samples=2, progress=False, **settings)
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


def single_precision(**settings):
    """Parameters of the network and of the noise in two dtypes, and so in two messages."""
    return fit(mlp().float(), X.float(), Y.float(), batch_size=6, **settings)


CASES = {
    "full batch": lambda **s: fit(mlp(gilib.GlobalInducing(precision="full")), **s),
    "uneven shares": lambda **s: fit(
        mlp(gilib.LocalInducing(), "scale"), batch_size=7, rule=gilib.Adam(0.03), **s
    ),
    "pointwise": lambda **s: fit(mlp(gilib.Factorised(), "scale"), batch_size=7, estimator="pointwise", **s),
    "factorised": lambda **s: fit(mlp(gilib.Factorised(), "spatial"), batch_size=6, seed=5, **s),
    "tempered": lambda **s: fit(mlp(prior="scale"), batch_size=6, kl_weight=lambda step: 0.1 * step, **s),
    "lenet": lambda **s: lenet(augment=gilib.data.random_flip_and_crop, **s),
    "resnet": resnet,
    "replicas": lambda **s: fit(mlp(replicas=(3,)), seed=SEEDS, rule=gilib.Adam(RATES), batch_size=7, **s),
    "frozen": lambda **s: fit(
        mlp(gilib.Factorised(), replicas=(3,)),
        rule=gilib.Adam([0.01, 1e4, 0.01]),
        on_divergence="freeze",
        **s,
    ),
    "two dtypes": single_precision,
    "processes": lambda **s: fit(NETWORKS["global"](), batch_size=7, **s),
    "free processes": lambda **s: fit(NETWORKS["free"](), batch_size=7, **s),
    "chain": lambda **s: fit(mlp(gilib.PointEstimate()), rule=SGHMC(2, window=2), batch_size=7, **s),
    "layerwise": lambda **s: fit(mlp(gilib.Conjugate()), rule=Bali(), batch_size=7, **s),
    "layerwise, pointwise": lambda **s: fit(
        mlp(gilib.Conjugate(), replicas=(3,)), rule=Bali(), estimator="pointwise", seed=SEEDS, **s
    ),
    "examples": lambda **s: fit(mlp(gilib.Factorised()), rule=VOGN(), batch_size=7, **s),
    "factors": lambda **s: fit(mlp(gilib.MatrixGaussian()), rule=NoisyKFAC(), batch_size=7, **s),
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
    """A network whose third draw fails on process 1 alone."""
    net = mlp()
    draw, calls = net.draw, []

    def third_fails(*args, **settings):
        calls.append(1)
        if rank == 1 and len(calls) == 3:
            raise gilib.FactorisationError("the posterior precision", "as planned", ("layer 9",))
        return draw(*args, **settings)

    net.draw = third_fails
    return net


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
    "deadline": lambda rank, folder, s: fit(
        mlp(),
        steps=120,
        checkpoint=Checkpoint(folder / "paused.pt", deadline=time.monotonic() + 3600.0 * rank),
        **s,
    ),
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
    torch.set_num_threads(1)
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where two processes have left what they found."""
    path = tmp_path_factory.mktemp("parallel")
    torch.multiprocessing.spawn(work, (path,), WORLD)
    return path


@pytest.fixture(scope="module")
def found(folder):
    return [torch.load(folder / f"found-{rank}") for rank in range(WORLD)]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_end_where_one_does(name, found):
    alone, tolerance = CASES[name](), 1e-3 if name == "two dtypes" else 1e-10
    for key, value in alone.items():
        first, second = (results[name][key] for results in found)
        if value is None:
            assert first is second is None
        else:
            assert torch.equal(first.nan_to_num(), second.nan_to_num())
            torch.testing.assert_close(first, value, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert len(alone["elbo"]) == (3 if name == "resnet" else STEPS)


def test_a_replica_left_out_is_left_out_by_all(found):
    assert [int(at) for at in found[1]["frozen"]["diverged_at"] >= 0] == [0, 1, 0]


def test_two_processes_resume_what_process_0_wrote(found):
    whole = fit(mlp(), batch_size=7)
    for results in found:
        for key, value in whole.items():
            if value is not None:
                assert_equal(results["resumed"][key], value, 1e-10)


def test_two_processes_end_together_if_a_callback_of_one_ends_the_training(found):
    first, second = (results["ended"]["elbo"] for results in found)
    assert len(first) == 100 and torch.equal(first, second)


def test_one_process_goes_on_where_two_were(folder, found):
    again = fit(mlp(seed=9), batch_size=7, steps=15, checkpoint=folder / "resumed.pt")
    assert_equal(again["elbo"], fit(mlp(), batch_size=7, steps=15)["elbo"], 1e-10)


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("divergence", [r"DivergenceError: the ELBO .* not finite at step 0 \(seen at 10\)"] * 2),
        ("factorisation", ["FactorisationError: .*layer 0, Linear.* is not positive definite"] * 2),
        (
            "one factorisation",
            [
                r"FactorisationError: a matrix of another process is not positive definite \(its error says",
                r"FactorisationError: layer 9: the posterior precision .* \(as planned\)",
            ],
        ),
        (
            "parameters",
            [r"ValueError: processes \[1\] differ from process 0 in their parameters: give all"] * 2,
        ),
        *(
            (name, ["differ from process 0 in their settings or data"] * 2)
            for name in ("seed", "data", "steps")
        ),
        ("small batch", ["ValueError: a step of 1 points is too small for 2 processes"] * 2),
        ("checkpoint", ["ValueError: .* differ from process 0 in their checkpoint"] * 2),
        ("deadline", ["Paused: paused at step 100 of 120"] * 2),
    ],
)
def test_what_goes_wrong_goes_wrong_everywhere(name, messages, found):
    for results, message in zip(found, messages, strict=True):
        assert re.search(message, results[name]), results[name]


def test_without_a_group():
    with pytest.raises(RuntimeError, match=r"call torch.distributed.init_process_group\(\) first"):
        DataParallel()


def test_without_torch_distributed(monkeypatch):
    monkeypatch.setattr(distributed, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="this build of torch has no torch.distributed"):
        DataParallel()


@pytest.fixture
def one(tmp_path):
    """A group of one process."""
    distributed.init_process_group("gloo", f"file://{tmp_path}/store", rank=0, world_size=1)
    yield DataParallel()
    distributed.destroy_process_group()


def test_another_backend(one, monkeypatch):
    monkeypatch.setattr(distributed, "get_backend_config", lambda group: "cuda:nccl")
    with pytest.raises(ValueError, match=r"on cpu, for which the process group has no backend .*cuda:nccl"):
        fit(mlp(), speed=Speed(parallel=one))


def test_one_process_shares_with_itself(one):
    together, alone = fit(mlp(), batch_size=6, speed=Speed(parallel=one)), fit(mlp(), batch_size=6)
    assert torch.equal(together["elbo"], alone["elbo"])


@pytest.mark.parametrize(
    ("value", "message"),
    [(True, "parallel must be a DataParallel, got bool"), (DataParallel, r"DataParallel\(\)")],
)
def test_something_else(value, message):
    with pytest.raises(TypeError, match=message):
        Speed(parallel=value)


def test_the_script_of_the_docstring(tmp_path):
    """Runs as it stands, and leaves the bar to one process."""
    text = inspect.getdoc(parallel.DataParallel)  # without indentation, which Python 3.13 does not keep
    block = re.search(r"code-block:: python\n\n(.*?)\n\nOn GPUs", text, re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(block[1]))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={WORLD}"]
    settings = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [*command, str(script)], env=os.environ | settings, capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr.count("| 0/20 ") == 1
