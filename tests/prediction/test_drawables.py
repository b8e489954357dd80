"""Ensembles and stored states against members and states drawn one by one."""

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import record
from gilib.randomness import ReplicaGenerators
from tests.support import (
    PAIRS,
    POSTERIORS,
    PRIORS,
    D,
    assert_equal,
    normals,
    refusals,
    seeded,
    shaken,
    small_net,
)

X, Y = normals(7, 2), normals(7, 2, seed=1)
K = 3
NOTHING_TO_STORE = [("rand", "neal"), ("rand", "standard")]


def ensemble(posterior=gilib.GlobalInducing(), prior=None, **settings):  # noqa: B008
    return gilib.Ensemble(small_net(posterior, prior, **({"replicas": (K,)} | settings)))


class Scaled(gilib.layers.Layer):
    """x ↦ w x, a learned w and no noise: a point estimate."""

    def build(self, shape, context):
        self.replicas, self.w = context.replicas, nn.Parameter(context.normal(*shape))
        return shape

    def sample(self, inducing, noise, mode):
        weights = self.w.expand(*noise.zeros.shape, *self.w.shape[-1:])[..., None, :]
        return mode(lambda x: weights * x, noise.zeros)

    def config(self):
        return {}


V = "layers.layers.1.w"


def two():
    return gilib.Network(None, [Scaled(), Scaled()], input_shape=(2,), dtype=D, generator=seeded())


def points(replicas=(K,)):
    return gilib.Network(None, [Scaled()], input_shape=(2,), replicas=replicas, dtype=D, generator=seeded())


@pytest.mark.parametrize("drawn", [small_net(gilib.Factorised()), ensemble()])
def test_what_is_drawable(drawn):
    assert isinstance(drawn, gilib.prediction.Drawable)
    assert (drawn.input_shape, drawn.output_shape, drawn.reference_tensor().dtype) == ((2,), (2,), D)
    assert not isinstance(nn.Linear(2, 2), gilib.prediction.Drawable)


@pytest.mark.parametrize("replicas", [(K,), (K, 2)])
def test_an_ensemble_reads_its_first_replica_axis_as_samples(replicas):
    """Sample s·K + k is sample s of member k; it is taken apart as its network is."""
    drawn = ensemble(gilib.Factorised(), replicas=replicas)
    assert (drawn.members, drawn.replicas) == ((K,), replicas[1:])
    output, steps = record(drawn.draw(4, generator=seeded(1)), X)
    own = record(drawn.net.draw(4, generator=seeded(1)), X)  # [S, K, ...]
    assert output.shape == (4 * K, *replicas[1:], 7, 2)
    assert all(torch.equal(output[s * K + k], own.output[s, k]) for s in range(4) for k in range(K))
    assert len(steps) == len(own.steps) > 1
    for step, theirs in zip(steps, own.steps, strict=True):
        assert torch.equal(step.input, theirs.input) and torch.equal(step.output, theirs.output)
    if replicas[1:]:  # these may have their own inputs
        x = normals(2, 7, 2)
        inner = drawn.net.draw(4, generator=seeded(1))(x)
        assert torch.equal(drawn.draw(4, generator=seeded(1))(x), inner.flatten(0, 1))
        for wrong in (normals(K, 7, 2), normals(K, 2, 7, 2), normals(2)):
            with pytest.raises(ValueError, match=r"an ensemble takes x \[2, N, ...\] .*the same for all mem"):
                drawn.draw(4)(wrong)


def process():
    return shaken(gilib.models.sparse_gp(2, 2, inducing_points=X[:5], replicas=(K,), dtype=D), 0.3)


@pytest.mark.parametrize(
    ("make", "samples"),
    [(lambda: ensemble().net, 4), (process, 1), (process, 4)],
    ids=["network", "one", "process"],
)
def test_an_ensemble_predicts_as_the_mixture_of_its_members(make, samples):
    """With a noise for every member; against one prediction per member, averaged.

    A sparse process is integrated, whatever S, and so is an equal mixture of several.
    """
    net, noise = make(), shaken(gilib.Gaussian(0.3, learn=True, replicas=(K,)).to(D), 1.0)
    found = gilib.predict(gilib.Ensemble(net), noise, X, samples, generator=seeded(1), batch_size=3)
    each = gilib.predict(net, noise, X, samples, generator=seeded(1))
    assert found.means.shape == found.component_sd.expand_as(found.means).shape == (samples * K, 7, 2)
    assert_equal(found.mean, each.mean.mean(0))
    assert_equal(found.log_prob(Y), gilib.metrics.log_mean_exp(each.log_prob(Y), 0))
    assert_equal(found.sd.square(), each.sd.square().mean(0) + each.mean.var(0, correction=0), 1e-10)
    if make is not process:
        assert_equal(found.component_sd[:, 0, 0].square(), noise.noise_variance.detach().repeat(samples))


def test_a_deep_ensemble_of_point_estimates_is_one_function_for_each_member(tmp_path):
    net = small_net(gilib.PointEstimate(), replicas=(K,), activation=nn.LeakyReLU(0.2))
    values = gilib.Ensemble(net).draw(100)(X)
    assert values.shape == (K, 7, 2) and torch.equal(values, net.draw()(X)[0])
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.3, replicas=(K,)))
    again, likelihood, *_ = gilib.load(tmp_path / "model.pt")
    assert torch.equal(gilib.predict(gilib.Ensemble(again), likelihood, X).means, values)


def states_of(nets):
    parameters, _ = torch.func.stack_module_state(nets)
    return {name: value.detach() for name, value in parameters.items()}


STATES = [
    *[(POSTERIORS[name], PRIORS[prior]) for name, prior in PAIRS if (name, prior) not in NOTHING_TO_STORE],
    (gilib.posteriors.Dropout(0.3), None),
    (gilib.PointEstimate(), None),
]


@pytest.mark.parametrize(("posterior", "prior"), STATES)
@pytest.mark.parametrize("replicas", [(), (2,)])
def test_stored_states_are_the_functions_of_their_networks(posterior, prior, replicas):
    nets = [shaken(small_net(posterior, prior, replicas=replicas), 0.2, seed) for seed in range(4)]
    samples = gilib.prediction.Samples(nets[0], states_of(nets))
    noise = nets[0].base_noise(4, seeded(1))
    draw = samples.draw(generator=seeded(1))
    assert draw.log_pq is None and samples.num_states == 4
    for k, net in enumerate(nets):
        assert_equal(draw(X)[k].detach(), net.draw(noise=noise[k : k + 1])(X)[0].detach(), 1e-9)


def test_some_states_or_buffers_may_be_stored():
    """What is not is as it is."""
    nets = [shaken(small_net(gilib.GlobalInducing()), 0.2, seed) for seed in range(4)]
    name = "inducing_points"
    samples = gilib.prediction.Samples(nets[0], {name: states_of(nets)[name]})
    before = {key: value.clone() for key, value in nets[0].state_dict().items()}
    values, noise = samples.draw(generator=seeded(1))(X), nets[0].base_noise(4, seeded(1))
    for k, net in enumerate(nets):
        moved = small_net(gilib.GlobalInducing())
        moved.load_state_dict(before | {name: net.state_dict()[name]})
        assert_equal(values[k].detach(), moved.draw(noise=noise[k : k + 1])(X)[0].detach(), 1e-9)
    assert all(torch.equal(value, before[key]) for key, value in nets[0].state_dict().items())
    net, scales = small_net(gilib.FromPrior(), gilib.NealPrior(1.3)), torch.tensor([1.0, 4.0, 9.0], dtype=D)
    (name, scale), *_ = net.named_buffers()
    noise, values = net.base_noise(3, seeded(1)), Stored(net, {name: scales}).draw(generator=seeded(1))(X)
    for k, value in enumerate(scales):
        scale.fill_(value)
        assert_equal(values[k], net.draw(noise=noise[k : k + 1])(X)[0])


def test_states_are_chosen_once_and_in_order():
    net = points(())
    stored = torch.arange(40.0, dtype=D).reshape(20, 2)
    samples = gilib.prediction.Samples(net, {"layers.layers.0.w": stored})
    one = torch.ones(1, 2, dtype=D)
    assert torch.equal(samples.draw()(one)[:, 0], stored)
    chosen = samples.draw(15, generator=seeded(1))(one)[:, 0, 0]
    assert chosen.tolist() == sorted(set(chosen.tolist())) and len(chosen) == 15
    assert torch.equal(samples.draw(15, generator=seeded(1))(one)[:, 0, 0], chosen)
    assert not torch.equal(samples.draw(15, generator=seeded(2))(one)[:, 0, 0], chosen)


@pytest.mark.parametrize(
    "drawn", [ensemble(), gilib.prediction.Samples(points(()), {"layers.layers.0.w": normals(3, 2)})]
)
def test_there_is_no_density_and_so_no_bound(drawn):
    draw = drawn.draw(2)
    with pytest.raises(TypeError, match=r"no density Q \(chains, an ensemble\): they predict, but bound no"):
        gilib.elbo(draw, gilib.Gaussian(0.3), X, Y, num_data=7)
    with pytest.raises(TypeError, match="no density Q"):
        gilib.iwbo(draw, gilib.Gaussian(0.3), X, Y)


W = "layers.layers.0.w"
Stored = gilib.prediction.Samples
CALLS = {
    r"build it with replicas=\(K,\)": lambda: gilib.Ensemble(small_net(gilib.Factorised())),
    "has a noise for each": lambda: gilib.predict(ensemble(), gilib.Gaussian(replicas=(2,)), X),
    "states must hold at least one tensor": lambda: Stored(points(()), {}),
    f"no state 'w': it has {W}": lambda: Stored(points(()), {"w": normals(3, 2)}),
    r"shape \['K', 2\], got \[0, 2\]": lambda: Stored(points(()), {W: normals(0, 2)}),
    r"shape \[3, 2\], got \[4, 2": lambda: Stored(two(), {W: normals(3, 2), V: normals(4, 2)}),
    "there are 3 states, got num_samples=4": lambda: Stored(points(()), {W: normals(3, 2)}).draw(4),
}
TYPES = {
    "net must be a Network": lambda: gilib.Ensemble(nn.Linear(2, 2)),
    "must be a torch.Tensor, got list": lambda: Stored(points(()), {W: [1.0]}),
    "give one torch.Generator": lambda: Stored(points(()), {W: normals(3, 2)}).draw(
        2, generator=ReplicaGenerators([0, 1])
    ),
}


test_what_is_refused = refusals({message: (call, message) for message, call in CALLS.items()})
test_other_types = refusals({message: (call, message) for message, call in TYPES.items()}, TypeError)


@pytest.mark.parametrize("own", [(K + 1,), (1,), (K, 1)])
def test_noise_of_other_members_is_refused(own):
    with pytest.raises(ValueError, match="use the same"):
        gilib.predict(ensemble(), gilib.Gaussian(0.3, replicas=own), X, 4)
