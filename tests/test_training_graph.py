"""A step that is recorded and replayed does what the step does: a tape of operations stands for a CUDA graph.

Replaying the tape repeats the operations on the same memory, and nothing of what the host did between them.
"""

import gc
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gilib
from gilib.training import Bali, LinearDecay, Speed
from gilib.training.engine.run import Run
from gilib.training.engine.settings import Settings
from gilib.training.gradients import graph
from gilib.training.gradients.graph import WARM_UP, Replay
from gilib.training.gradients.parallel import OneProcess
from gilib.training.rules import bali, optimiser
from tests.support import PRIORS, normals, seeded, small_net

STEPS, R, SEEDS = 8, 3, [7, 1, 4]
X, Y = normals(20, 2, seed=1), normals(20, 2, seed=2)
IMAGES, LABELS = normals(9, 1, 8, 8), torch.arange(9) % 3


class Tape(TorchDispatchMode):
    """Remembers every operation on tensors, its arguments and what it gave."""

    def __init__(self):
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        return result

    def replay(self):
        with torch.inference_mode():
            for function, args, kwargs, result in self.operations:
                for new, old in zip(tree_leaves(function(*args, **kwargs)), tree_leaves(result), strict=True):
                    if isinstance(old, torch.Tensor) and new.data_ptr() != old.data_ptr():
                        old.copy_(new)


class Recorder:
    """Stands for `graph.record`; unlike CUDA it has to run to record: that is the first replay."""

    def __init__(self):
        self.tapes = []

    def __call__(self, run):
        with Tape() as tape:
            run()
        self.tapes.append(tape)
        done = []

        def replay():
            if done:
                tape.replay()
            done.append(True)

        return replay


@pytest.fixture
def record(monkeypatch):
    """A tape for the graph, no stream, and the kernels whose step count is a tensor, as on CUDA."""
    recorder = Recorder()
    monkeypatch.setattr(graph, "capture", recorder)
    monkeypatch.setattr(graph, "side_stream", nullcontext)
    fused = {"foreach": False, "fused": True, "capturable": False}
    monkeypatch.setattr(optimiser, "adam_options", lambda device: fused)
    monkeypatch.setattr(bali, "steady", lambda device: True)
    return recorder


def train(net, likelihood, x, y, cuda_graph, **options):
    """Eight steps of fit's loop; what they leave."""
    defaults = {"batch_size": None, "num_samples": 2, "rule": gilib.Adam(0.03), "seed": 3}
    defaults |= {"estimator": "draw", "kl_weight": None, "on_divergence": "raise", "augment": None}
    settings = Settings(**(defaults | {"arithmetic": "full"} | options))
    run = Run(net, likelihood, x, y, STEPS, settings, OneProcess(), cuda_graph)
    for step in range(STEPS):
        run.step(step)
    return [run.trace, run.diverged_at, *(value.detach() for value in run.modules.state_dict().values())]


def mlp(**options):
    net, likelihood = small_net(gilib.GlobalInducing(), PRIORS["scale"]), gilib.Gaussian(0.1, learn=True)
    return lambda graphed: train(net, likelihood, X, Y, graphed, batch_size=6, **options)


def lenet():
    net = gilib.models.lenet((1, 8, 8), 3, channels=2, inducing_points=IMAGES[:4], generator=seeded())
    options = {"batch_size": 5, "augment": gilib.data.random_flip_and_crop}
    return lambda graphed: train(net, gilib.Categorical(), IMAGES, LABELS, graphed, **options)


def replicas():
    net = small_net(gilib.Factorised(), replicas=(R,))
    options = {
        "seed": SEEDS,
        "rule": gilib.Adam([0.01, 1e4, 0.03]),
        "on_divergence": "freeze",
        "batch_size": 7,
    }
    return lambda graphed: train(net, gilib.Gaussian(0.1, True, replicas=(R,)), X, Y, graphed, **options)


def pointwise():
    net, likelihood = (
        small_net((gilib.Factorised(), gilib.posteriors.Dropout(0.2)), PRIORS["scale"]),
        gilib.Gaussian(0.1),
    )
    return lambda graphed: train(net, likelihood, X, Y, graphed, batch_size=6, estimator="pointwise")


def in_tf32():
    net = small_net(gilib.GlobalInducing()).float()
    return lambda graphed: train(net, gilib.Gaussian(0.1), X.float(), Y.float(), graphed, arithmetic="tf32")


def layerwise(likelihood=None, **options):
    """BALI's numbers change from step to step: α by a schedule, γ by the bias correction."""
    shape = (R,) if "seed" in options else ()
    net = small_net(gilib.posteriors.Conjugate(), PRIORS["neal"], replicas=shape)
    noise = gilib.Gaussian(1.0, learn=True, replicas=shape) if likelihood is None else likelihood
    y = Y if likelihood is None else torch.arange(len(X)) % 2
    options = {"rule": Bali(schedule=LinearDecay(0.2)), "num_samples": 1} | options
    return lambda graphed: train(net, noise, X, y, graphed, **options)


CASES = {
    "tempered": lambda: mlp(kl_weight=lambda step: 0.1 * step),
    "scheduled": lambda: mlp(rule=gilib.Adam(0.03, schedule=LinearDecay(0.2))),
    "lenet": lenet,
    "replicas": replicas,
    "pointwise": pointwise,
    "tf32": in_tf32,
    "bali": layerwise,
    "bali, labels": lambda: layerwise(gilib.Categorical()),
    "bali, two draws": lambda: layerwise(num_samples=2, rule=Bali(prior="relative")),
    "bali, outputs": lambda: layerwise(estimator="pointwise"),
    "bali, means": lambda: layerwise(rule=Bali(deterministic=True)),
    "bali, replicas": lambda: layerwise(seed=SEEDS, on_divergence="freeze"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replayed_training_is_the_training(name, record):
    plain, replayed = CASES[name]()(False), CASES[name]()(True)
    assert len(record.tapes) == 1 and len(record.tapes[0].operations) > 50
    for ours, theirs in zip(replayed, plain, strict=True):
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    if name == "replicas":
        assert (plain[1] >= 0).tolist() == [False, True, False]


@pytest.mark.parametrize("keep", [True, False])
def test_moments_that_are_kept_are_not_recorded(keep):
    settings = {"rule": Bali(keep_moments=keep), "num_samples": 1, "batch_size": None, "seed": 3}
    settings |= {"estimator": "draw", "kl_weight": None, "on_divergence": "raise", "augment": None}
    net, noise = small_net(gilib.posteriors.Conjugate()), gilib.Gaussian(1.0, learn=True)
    run = Run(net, noise, X, Y, STEPS, Settings(**settings, arithmetic="full"), OneProcess(), False)
    assert run.rule.recordable is not keep


def test_host_numbers_would_be_frozen(record):
    """The tape is as strict as a graph: a number of the host in a recorded function stays what it was."""
    calls = []

    def count(x):
        calls.append(1)
        return x + len(calls)

    replay = Replay(count)
    assert [int(replay(torch.tensor(10))) for _ in range(WARM_UP + 3)] == [11, 12, 13, 14, 14, 14]


def test_arguments_are_copied_before_the_replay(record):
    replay = Replay(lambda x, y: x * y)
    given = [(torch.tensor(float(k)), torch.tensor(2.0)) for k in range(WARM_UP + 3)]
    assert [float(replay(*pair)) for pair in given] == [2.0 * k for k in range(WARM_UP + 3)]
    assert [float(x) for x, _ in given] == [float(k) for k in range(WARM_UP + 3)]


class Cycle:
    """Garbage that only a collection finds; it says when."""

    def __init__(self, found, when):
        self.itself, self.found, self.when = self, found, when

    def __del__(self):
        self.found.append(self.when())


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_collected_while_a_step_is_recorded(enabled, fails, monkeypatch):
    """A graph of an earlier training that was destroyed then would spoil the recording."""
    found, recording = [], []

    @contextmanager
    def recorder(graph):
        recording.append(True)
        try:
            yield
        finally:
            recording.clear()

    def run():
        Cycle(found, lambda: "within" if recording else "after")
        kept = [[k] for k in range(2000)]  # a collection would begin after some of these
        if fails:
            raise RuntimeError(str(len(kept)))

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", recorder)
    before, thresholds = gc.isenabled(), gc.get_threshold()
    Cycle(found, lambda: "within" if recording else "before")
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(100, 2, 2)
    try:
        with pytest.raises(RuntimeError, match="2000") if fails else nullcontext():
            graph.capture(run)
        assert gc.isenabled() == enabled
        gc.collect()
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if before else gc.disable)()
    assert found == ["before", "after"]


def fit(**settings):
    net = small_net(gilib.Factorised() if "estimator" in settings else gilib.GlobalInducing())
    speed = Speed(cuda_graph=True)
    return gilib.fit(net, gilib.Gaussian(0.1), X, Y, steps=1, speed=speed, progress=False, **settings)


def test_off_cuda():
    with pytest.raises(
        ValueError, match="cuda_graph=True needs data and network on a CUDA device, .* on cpu"
    ):
        fit()


@pytest.mark.parametrize(
    ("processes", "recordable", "message"),
    [
        (2, True, "cuda_graph=True is for one process: leave out parallel or cuda_graph"),
        (1, False, "needs a rule that can be recorded: see RunningRule.recordable"),
    ],
)
def test_what_cannot_be_recorded(processes, recordable, message):
    with pytest.raises(ValueError, match=message):
        graph.check_graph(torch.device("cuda"), processes, recordable)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", [(), (R,)])
def test_on_a_gpu(shape):
    """The graph against the loop, on the device that they are for."""
    results = []
    for cuda_graph in (False, True):
        net = small_net(gilib.GlobalInducing(precision="per_output"), replicas=shape).to("cuda")
        likelihood = gilib.Gaussian(0.1, learn=True, replicas=shape).to("cuda")
        settings = {"batch_size": 6, "num_samples": 2, "progress": False}
        settings["speed"] = Speed(cuda_graph=cuda_graph)
        history = gilib.fit(net, likelihood, X.cuda(), Y.cuda(), steps=20, **settings)
        results.append([history.elbo, *(p.detach().cpu() for p in net.parameters())])
    for plain, replayed in zip(*results, strict=True):
        torch.testing.assert_close(replayed, plain, rtol=1e-9, atol=1e-9)
