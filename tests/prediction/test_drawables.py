"""Ensembles and stored states against members and states drawn one by one."""

import pytest
import torch
from torch import nn

import gilib
from gilib.draws import record
from gilib.randomness import ReplicaGenerators
from tests.support import PAIRS, POSTERIORS, PRIORS, D, assert_equal, normals, seeded, shaken, small_net

X, Y = normals(7, 2), normals(7, 2, seed=1)
K = 3
NOTHING_TO_STORE = [("rand", "neal"), ("rand", "standard")]


def ensemble(posterior=None, prior=None, **settings):
    net = small_net(posterior or gilib.GlobalInducing(), prior, **({"replicas": (K,)} | settings))
    return gilib.Ensemble(net)


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


def test_an_ensemble_is_taken_apart_as_its_network_is():
    drawn = ensemble(gilib.Factorised())
    output, steps = record(drawn.draw(2, generator=seeded()), X)
    own = record(drawn.net.draw(2, generator=seeded()), X)
    assert torch.equal(output, own.output.flatten(0, 1)) and len(steps) == len(own.steps) > 1
    for step, theirs in zip(steps, own.steps, strict=True):
        assert torch.equal(step.input, theirs.input) and torch.equal(step.output, theirs.output)


@pytest.mark.parametrize("drawn", [small_net(gilib.Factorised()), ensemble()])
def test_what_is_drawable(drawn):
    assert isinstance(drawn, gilib.prediction.Drawable)
    assert (drawn.input_shape, drawn.output_shape, drawn.reference_tensor().dtype) == ((2,), (2,), D)
    assert not isinstance(nn.Linear(2, 2), gilib.prediction.Drawable)


@pytest.mark.parametrize("replicas", [(K,), (K, 2)])
def test_an_ensemble_reads_its_first_replica_axis_as_samples(replicas):
    """Sample s·K + k is sample s of member k."""
    drawable = ensemble(replicas=replicas)
    assert (drawable.members, drawable.replicas) == ((K,), replicas[1:])
    inner = drawable.net.draw(4, generator=seeded(1))(X)  # [S, K, ...]
    values = drawable.draw(4, generator=seeded(1))(X)
    assert values.shape == (4 * K, *replicas[1:], 7, 2)
    for s in range(4):
        for k in range(K):
            assert torch.equal(values[s * K + k], inner[s, k])


def test_further_replicas_may_have_their_own_inputs():
    drawable, x = ensemble(replicas=(K, 2)), normals(2, 7, 2)
    inner = drawable.net.draw(4, generator=seeded(1))(x)
    assert torch.equal(drawable.draw(4, generator=seeded(1))(x), inner.flatten(0, 1))
    for wrong in (normals(K, 7, 2), normals(K, 2, 7, 2), normals(2)):
        with pytest.raises(ValueError, match=r"an ensemble takes x \[2, N, ...\] .*the same for all members"):
            drawable.draw(4)(wrong)


def test_an_ensemble_predicts_as_the_mixture_of_its_members():
    """With a noise for every member; against one prediction per member, averaged."""
    drawable, likelihood = ensemble(), gilib.Gaussian(0.3, replicas=(K,))
    shaken(likelihood, 1.0)
    prediction = gilib.predict(drawable, likelihood, X, 4, generator=seeded(1), batch_size=3)
    members = gilib.predict(drawable.net, likelihood, X, 4, generator=seeded(1))
    assert prediction.means.shape == prediction.component_sd.expand_as(prediction.means).shape == (12, 7, 2)
    assert_equal(prediction.mean, members.mean.mean(0))
    assert_equal(prediction.log_prob(Y), gilib.metrics.log_mean_exp(members.log_prob(Y), 0))
    second = (members.sd.square() + members.mean.square()).mean(0)  # E y² of each, averaged
    assert_equal(prediction.sd.square(), second - prediction.mean.square(), 1e-10)
    noise = likelihood.noise_variance.detach()
    assert len(set(noise.tolist())) == K
    assert_equal(prediction.component_sd[:, 0, 0].square(), noise.repeat(4))


def test_a_deep_ensemble_of_point_estimates_is_one_function_for_each_member(tmp_path):
    net = small_net(gilib.PointEstimate(), replicas=(K,), activation=nn.LeakyReLU(0.2))
    values = gilib.Ensemble(net).draw(100)(X)
    assert values.shape == (K, 7, 2) and torch.equal(values, net.draw()(X)[0])
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.3, replicas=(K,)))
    again, likelihood, *_ = gilib.load(tmp_path / "model.pt")
    assert torch.equal(gilib.predict(gilib.Ensemble(again), likelihood, X).means, values)


def states_of(nets):
    """Parameters of several networks, stacked by name."""
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


def test_what_was_not_stored_is_as_it_is():
    nets = [shaken(small_net(gilib.GlobalInducing()), 0.2, seed) for seed in range(4)]
    name = "inducing_points"
    samples = gilib.prediction.Samples(nets[0], {name: states_of(nets)[name]})
    before = {key: value.clone() for key, value in nets[0].state_dict().items()}
    values = samples.draw(generator=seeded(1))(X)
    noise = nets[0].base_noise(4, seeded(1))
    for k, net in enumerate(nets):
        moved = small_net(gilib.GlobalInducing())
        moved.load_state_dict(before | {name: net.state_dict()[name]})
        assert_equal(values[k].detach(), moved.draw(noise=noise[k : k + 1])(X)[0].detach(), 1e-9)
    assert all(torch.equal(value, before[key]) for key, value in nets[0].state_dict().items())


def test_buffers_may_be_states_too():
    net = small_net(gilib.FromPrior(), gilib.NealPrior(1.3))
    name = next(name for name, _ in net.named_buffers())
    scales = torch.tensor([1.0, 4.0, 9.0], dtype=D)
    noise = net.base_noise(3, seeded(1))
    values = gilib.prediction.Samples(net, {name: scales}).draw(generator=seeded(1))(X)
    scale = dict(net.named_buffers())[name]
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


@pytest.mark.parametrize("num_samples", [1, 4])
def test_an_ensemble_of_processes_keeps_their_closed_form(num_samples):
    """A sparse process is integrated, whatever S: so is an equal mixture of several."""
    net = shaken(gilib.models.sparse_gp(2, 2, inducing_points=X[:5], replicas=(K,), dtype=D), 0.3)
    noise = shaken(gilib.Gaussian(0.2, learn=True, replicas=(K,)).to(D), 0.5)
    each = gilib.predict(net, noise, X, 1)
    found = gilib.predict(gilib.Ensemble(net), noise, X, num_samples, generator=seeded(1))
    assert_equal(found.mean, each.mean.mean(0))
    assert_equal(found.sd.square(), each.sd.square().mean(0) + each.mean.var(0, correction=0))
    assert_equal(found.log_prob(Y), gilib.metrics.log_mean_exp(each.log_prob(Y), 0))


W = "layers.layers.0.w"
Stored = gilib.prediction.Samples
REFUSED = [
    (lambda: gilib.Ensemble(small_net(gilib.Factorised())), ValueError, r"build it with replicas=\(K,\)"),
    (lambda: gilib.Ensemble(nn.Linear(2, 2)), TypeError, "net must be a Network"),
    (lambda: gilib.predict(ensemble(), gilib.Gaussian(replicas=(2,)), X), ValueError, "has a noise for each"),
    (lambda: Stored(points(()), {}), ValueError, "states must hold at least one tensor"),
    (lambda: Stored(points(()), {"w": normals(3, 2)}), ValueError, f"no state 'w': it has {W}"),
    (lambda: Stored(points(()), {W: normals(0, 2)}), ValueError, r"shape \['K', 2\], got \[0, 2\]"),
    (lambda: Stored(points(()), {W: [1.0]}), TypeError, "must be a torch.Tensor, got list"),
    (lambda: Stored(two(), {W: normals(3, 2), V: normals(4, 2)}), ValueError, r"shape \[3, 2\], got \[4, 2"),
    (
        lambda: Stored(points(()), {W: normals(3, 2)}).draw(4),
        ValueError,
        "there are 3 states, got num_samples=4",
    ),
    (
        lambda: Stored(points(()), {W: normals(3, 2)}).draw(2, generator=ReplicaGenerators([0, 1])),
        TypeError,
        "give one torch.Generator",
    ),
    *(
        (
            lambda own=own: gilib.predict(ensemble(), gilib.Gaussian(0.3, replicas=own), X, 4),
            ValueError,
            "use the same",
        )
        for own in [(K + 1,), (1,), (K, 1)]
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
