"""A step that is replayed does what the step does: here on the tape of a CPU, as strict as a CUDA graph."""

import gc
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest
import torch
from torch import nn

import gilib
from experiments.images import random_flip_and_crop
from gilib.training import IVON, SGHMC, VOGN, Bali, LinearDecay, NaturalGradient, NoisyKFAC, Speed, Vadam
from gilib.training.engine.run import Run
from gilib.training.engine.settings import Settings
from gilib.training.gradients import replay
from gilib.training.gradients.parallel import OneProcess
from gilib.training.gradients.replay import WARM_UP, Replay, is_known
from gilib.training.gradients.tape import Tape
from tests.support import PAIRS, POSTERIORS, PRIORS, normals, seeded, small_net, zoo
from tests.support.processes import NETWORKS

STEPS, R, SEEDS = 6, 3, [7, 1, 4]
X, Y = normals(20, 2, seed=1), normals(20, 2, seed=2)
CPU = torch.device("cpu")
IMAGES, LABELS = normals(9, 1, 8, 8), torch.arange(9) % 3


def prepared(net, likelihood, x, y, replay, steps=STEPS, **options):
    """A training of six steps, or more, by fit's loop."""
    defaults = {"batch_size": None, "num_samples": 2, "rule": gilib.Adam(0.03), "seed": 3}
    defaults |= {"estimator": "draw", "kl_weight": None, "on_divergence": "raise", "augment": None}
    settings = Settings(**(defaults | {"arithmetic": "full"} | options))
    return Run(net, likelihood, x, y, steps, settings, OneProcess(), replay)


def train(net, likelihood, x, y, recorded, steps=STEPS, **options):
    """What the steps leave."""
    run = prepared(net, likelihood, x, y, recorded, steps, **options)
    for step in range(steps):
        run.step(step)
    assert (run.replay is not None and run.replay.replay is not None) == bool(recorded)
    return [run.trace, run.diverged_at, *(value.detach() for value in run.modules.state_dict().values())]


def mlp(**options):
    net, likelihood = small_net(gilib.GlobalInducing(), PRIORS["scale"]), gilib.Gaussian(0.1, learn=True)
    return partial(train, net, likelihood, X, Y, batch_size=6, **options)


def lenet():
    net = gilib.models.lenet((1, 8, 8), 3, channels=2, inducing_points=IMAGES[:4], generator=seeded())
    options = {"batch_size": 5, "augment": random_flip_and_crop}
    return partial(train, net, gilib.Categorical(), IMAGES, LABELS, **options)


def replicas():
    net, rule = small_net(gilib.Factorised(), replicas=(R,)), gilib.Adam([0.01, 1e4, 0.03])
    options = {"seed": SEEDS, "rule": rule, "on_divergence": "freeze", "batch_size": 7}
    return partial(train, net, gilib.Gaussian(0.1, True, replicas=(R,)), X, Y, **options)


def in_tf32():
    net = small_net(gilib.GlobalInducing()).float()
    return partial(train, net, gilib.Gaussian(0.1), X.float(), Y.float(), arithmetic="tf32")


def layerwise(**options):
    """BALI's numbers change from step to step: α by a schedule, γ by the bias correction."""
    shape = (R,) if "seed" in options else ()
    net = small_net(gilib.posteriors.Conjugate(), PRIORS["neal"], replicas=shape)
    noise = gilib.Gaussian(1.0, learn=True, replicas=shape)
    options = {"rule": Bali(schedule=LinearDecay(0.2)), "num_samples": 1} | options
    return partial(train, net, noise, X, Y, **options)


def ruled(net, rule, **options):
    net = net if isinstance(net, gilib.Network) else small_net(net, PRIORS["neal"])
    return partial(train, net, gilib.Gaussian(0.1, learn=True), X, Y, rule=rule, batch_size=7, **options)


CASES = {
    "tempered": lambda: mlp(kl_weight=lambda step: 0.1 * step),
    "scheduled": lambda: mlp(rule=gilib.Adam(0.03, schedule=LinearDecay(0.2))),
    "lenet": lenet,
    "replicas": replicas,
    "tf32": in_tf32,
    "bali": layerwise,
    "natural": lambda: ruled(NETWORKS["free"](), NaturalGradient(0.1, schedule=LinearDecay())),
    "vogn": lambda: ruled(gilib.Factorised(), VOGN(), kl_weight=lambda step: 0.1 * (1 + step)),
    "vadam": lambda: ruled(gilib.Factorised(), Vadam(schedule=LinearDecay())),
    "ivon": lambda: ruled(gilib.Factorised(), IVON(1e-3)),
    "kfac": lambda: ruled(gilib.posteriors.MatrixGaussian(), NoisyKFAC()),
    "sghmc": lambda: ruled(gilib.PointEstimate(), SGHMC(burn_in=12, adaptation=6, window=5), steps=18),
    "bali, two draws": lambda: layerwise(num_samples=2, rule=Bali(prior="relative")),
    "bali, means": lambda: layerwise(rule=Bali(deterministic=True)),
    "bali, replicas": lambda: layerwise(seed=SEEDS, on_divergence="freeze"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_replayed_training_is_the_training(name):
    called, replayed = CASES[name]()(recorded=False), CASES[name]()(recorded=True)
    for ours, theirs in zip(replayed, called, strict=True):
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())
    if name == "replicas":
        assert (called[1] >= 0).tolist() == [False, True, False]


OWN_ESTIMATES = ["fac, neal", "fac, scale", "dropout", "conjugate", "lenet, factorised", "lenet, conjugate"]
LEFT_OUT = ["matrix", "resnet18", "resnet8, local"]
LEFT_OUT += [f"{posterior}, {prior}" for posterior, prior in PAIRS[len(POSTERIORS) :]]
OWN_ESTIMATES += ["deep GP, local", "deep GP, free", "structured, star", "trained module"]


@pytest.mark.parametrize(
    ("name", "estimator"),
    [(name, "draw") for name in zoo.NETS if name not in LEFT_OUT]
    + [(name, "pointwise") for name in OWN_ESTIMATES],
)
def test_of_every_network(name, estimator):
    results = []
    for recorded in (False, True):
        net, likelihood, x, y = zoo.problem(name, "cpu")
        settings = {"rule": zoo.rule_of(name), "batch_size": 10, "estimator": estimator}
        results.append(train(net, likelihood, x, y, recorded, **settings))
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("keep", [True, False])
def test_moments_that_are_kept_are_not_recorded(keep):
    net, noise = small_net(gilib.posteriors.Conjugate()), gilib.Gaussian(1.0, learn=True)
    run = prepared(net, noise, X, Y, None, rule=Bali(keep_moments=keep), num_samples=1)
    assert run.rule.recordable is not keep and (run.replay is None) is keep


def test_arguments_are_copied_before_the_replay():
    repeated = Replay(lambda x, y: x * y, CPU)
    given = [(torch.tensor(float(k)), torch.tensor(2.0)) for k in range(WARM_UP + 3)]
    assert [float(repeated(*pair)) for pair in given] == [2.0 * k for k in range(WARM_UP + 3)]
    assert [float(x) for x, _ in given] == [float(k) for k in range(WARM_UP + 3)]


class Nothing:
    """Stands for a graph."""

    def replay(self):
        """Do nothing."""


class Cycle:
    """Garbage that only a collection finds; it says when."""

    def __init__(self, found, when):
        self.itself, self.found, self.when = self, found, when

    def __del__(self):
        self.found.append(self.when())


@pytest.mark.parametrize(("enabled", "fails"), [(True, True), (False, False)])
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

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Nothing)
    monkeypatch.setattr(torch.cuda, "graph", recorder)
    before, thresholds = gc.isenabled(), gc.get_threshold()
    Cycle(found, lambda: "within" if recording else "before")
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(100, 2, 2)
    try:
        with pytest.raises(RuntimeError, match="2000") if fails else nullcontext():
            replay.capture(run)
        assert gc.isenabled() == enabled
        gc.collect()
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if before else gc.disable)()
    assert found == ["before", "after"]


@pytest.mark.parametrize(
    ("device", "processes", "message"),
    [("meta", 1, "needs data and network on a CPU or a CUDA .* on meta"), ("cpu", 2, "is for one process")],
)
def test_what_cannot_be_recorded(device, processes, message):
    with pytest.raises(ValueError, match=message):
        replay.check_replay(torch.device(device), processes, True)


def fitted(shape=(), **settings):
    """A training of twenty steps, and what it leaves."""
    net = small_net(gilib.GlobalInducing(), PRIORS["scale"], replicas=shape)
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=shape)
    settings = {"steps": 20, "batch_size": 7, "speed": Speed(replay=True), "progress": False} | settings
    history = gilib.fit(net, likelihood, X, Y, **settings)
    return [history.elbo, *(value.detach() for value in net.state_dict().values())]


def test_a_replayed_training_goes_on_where_it_stopped(tmp_path):
    path = tmp_path / "training"
    settings = {"rule": gilib.Adam(0.03)}
    fitted(checkpoint=path, callbacks=(lambda step, bound, net: step == 11,), **settings)
    whole = fitted(**settings)
    content = torch.load(path, weights_only=True)
    torch.save(content | {"stopped": [False, False, ""]}, path)
    for ours, theirs in zip(fitted(checkpoint=path, **settings), whole, strict=True):
        assert torch.equal(ours, theirs)


def test_a_replica_that_breaks_down_later_is_left_out():
    """From there on its factors fail, which is another decision."""

    def spoil(step, bound, net):
        if step == 8:
            with torch.no_grad():
                next(net.parameters())[1] = torch.nan

    settings = {"seed": SEEDS, "on_divergence": "freeze", "rule": gilib.Adam(0.01), "steps": 40}
    settings |= {"shape": (R,), "callbacks": (spoil,), "batch_size": None}
    replayed, called = (fitted(speed=Speed(replay=recorded), **settings) for recorded in (True, False))
    assert (replayed[0].isfinite().sum(0) == torch.tensor([40, 8, 40])).all()
    for ours, theirs in zip(replayed, called, strict=True):
        assert torch.equal(ours.nan_to_num(), theirs.nan_to_num())


def test_parts_that_nobody_knows():
    own, hooked, *handed = type("Own", (nn.Module,), {})(), nn.Linear(1, 1), nn.Identity(), nn.Identity()
    hooked.weight.register_hook(torch.neg)
    handed[0].function, handed[1].function = lambda x: x, partial(lambda x: x)
    assert not any(is_known([part]) for part in (own, hooked, *handed, lambda *_: None))
    assert is_known([nn.Linear(1, 1), gilib.Gaussian(), Bali(), *NETWORKS["free"]().modules()])


UNASKED = [({}, 2**20, 1), ({}, 1000, 0), ({"callbacks": [print]}, 2**20, 0)]
UNASKED += [({"rule": type("Own", (gilib.Adam,), {})(0.03)}, 2**20, 0)]
UNASKED += [({"steps": replay.UNASKED}, 2**20, 0), ({"speed": Speed(replay=False)}, 2**20, 0)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("settings", "room", "recorded"), UNASKED)
def test_what_is_recorded_unasked(settings, room, recorded, monkeypatch):
    tapes = []
    monkeypatch.setattr(replay, "ROOM", room)
    monkeypatch.setattr(replay, "Tape", lambda *its: tapes.append(Tape(*its)) or tapes[-1])
    fitted(**{"speed": Speed(), "steps": 25} | settings)
    assert len(tapes) == recorded


@pytest.mark.parametrize("recorded", [False, True])
def test_failures_are_those_of_the_loop(recorded):
    """A factor that is not found is a decision: the step is called, and says which it was."""
    with pytest.raises(gilib.linalg.FactorisationError, match=r"layer \d, Linear"):
        fitted(rule=gilib.Adam(1e8), speed=Speed(replay=recorded), steps=50)


def test_steps_that_decide_otherwise_every_time_are_called(monkeypatch):
    monkeypatch.setattr(replay, "PATIENCE", 2)
    monkeypatch.setattr(replay, "RECORDINGS", 3)
    repeated = Replay(lambda x: x + float(x), CPU)
    with pytest.warns(UserWarning, match="not replayed any more: it read different numbers in each of 3"):
        found = [float(repeated(torch.tensor(float(k)))) for k in range(12)]
    assert found == [2.0 * k for k in range(12)] and repeated.replay is None


def test_steps_that_decide_otherwise_from_some_time_on_are_recorded_again():
    calls = []

    def step(x):
        calls.append(1)
        return x + 1 if bool(x > 0) else x - 1

    repeated, given = Replay(step, CPU), [*range(1, 20), *range(-20, 0)]
    assert [int(repeated(torch.tensor(x))) for x in given] == [x + 1 if x > 0 else x - 1 for x in given]
    assert repeated.recordings == 2 and len(calls) == WARM_UP + 1 + replay.PATIENCE


def test_one_step_that_decides_otherwise_is_called():
    repeated, given = Replay(lambda x: x + 1 if bool(x > 0) else x - 1, CPU), [1, 2, 3, 4, 5, -6, 7, 8]
    assert [int(repeated(torch.tensor(x))) for x in given] == [2, 3, 4, 5, 6, -7, 8, 9]
    assert repeated.recordings == 1 and repeated.missed == 0


def test_steps_of_changing_sizes_are_called():
    repeated = Replay(lambda x: x[x > 2].sum(), CPU)
    given = [torch.arange(5.0) + k for k in range(WARM_UP + 2)]
    with pytest.warns(UserWarning, match="this step is not replayed: aten::.* whose size depends on values"):
        found = [float(repeated(x)) for x in given]
    assert found == [float(x[x > 2].sum()) for x in given]
