"""What would train silently as something else is refused before any work."""

from functools import partial

import pytest
import torch

import gilib
from gilib.training import Checkpoint
from tests.support import trainings
from tests.support.trainings import N, R, X, Y, model, same

LABELS = torch.arange(N) % 2
fit = partial(trainings.fit, steps=2, num_samples=R)


@pytest.mark.parametrize("lead", [(R,), (R, 1), (2,)])
@pytest.mark.parametrize("likelihood", [gilib.Gaussian(0.1), gilib.Categorical()])
def test_targets_with_axes_in_front(likelihood, lead):
    """As many as there are samples, they would be taken for the samples' own."""
    one = LABELS if isinstance(likelihood, gilib.Categorical) else Y[0]
    y, name = one.expand(*lead, *one.shape), "12" if one is LABELS else "12, 2"
    found = ", ".join(map(str, lead))
    with pytest.raises(ValueError, match=rf"y must have shape .*'N'.* got \[{found}, {name}\]"):
        fit(model(), likelihood, y=y)
    if lead != (R,):
        with pytest.raises(ValueError, match=rf"y must have shape \[3, 'N'.*replicas\), got \[{found}"):
            fit(model((R,)), likelihood, X, y)


@pytest.mark.parametrize("y", [Y, Y[0], LABELS, LABELS.expand(R, N)])
def test_targets_that_are_shared_or_of_every_replica(y):
    likelihood = gilib.Gaussian(0.1) if y.is_floating_point() else gilib.Categorical()
    assert fit(model((R,)), likelihood, X, y).elbo.shape == (2, R)


@pytest.mark.parametrize(
    ("network", "noise"), [((), (R,)), ((R,), (R + 1,)), ((R,), (1,)), ((R,), (R, R)), ((), (1,))]
)
def test_noise_of_other_replicas(network, noise):
    likelihood = gilib.Gaussian(0.1, replicas=noise)
    with pytest.raises(ValueError) as caught:
        fit(model(network), likelihood=likelihood)
    assert f"the likelihood has replicas={noise}, the network has replicas={network}" in str(caught.value)


@pytest.mark.parametrize("noise", [(), (R,)])
def test_noise_that_is_shared_or_of_every_replica(noise):
    assert fit(model((R,)), gilib.Gaussian(0.1, learn=True, replicas=noise), X, Y).elbo.shape == (2, R)


def test_freezing_with_a_shared_parameter():
    """One bad replica would turn what is shared into NaN, and with it every replica."""
    net, y = model((R,)), Y.clone()
    y[1, 3] = 1e200
    shared = gilib.Gaussian(0.1, learn=True)
    with pytest.raises(ValueError, match=r"to have the replica axis \[3\], but replicas share"):
        fit(net, shared, X, y, on_divergence="freeze")
    assert same(net, model((R,)))
    own = gilib.Gaussian(0.1, learn=True, replicas=(R,))
    assert fit(net, own, X, y, on_divergence="freeze").diverged_at.tolist() == [-1, 0, -1]


@pytest.mark.parametrize("kind", ["PerOutputGaussian", "CorrelatedGaussian"])
def test_noise_of_as_many_outputs_as_replicas_is_shared(kind):
    """Its axis of outputs is no axis of replicas."""
    start = [0.1, 0.1] if kind == "PerOutputGaussian" else 2
    shared = getattr(gilib.likelihoods, kind)(start, learn=True)
    net, x, y = model((2,)), X[:2], Y[:2]
    with pytest.raises(ValueError, match=r"replicas share \{'likelihood\."):
        fit(net, shared, x, y, on_divergence="freeze")
    with pytest.raises(ValueError, match="not every parameter has replicas"):
        fit(net, shared, x, y, rule=gilib.Adam([0.1, 0.01]))
    own = getattr(gilib.likelihoods, kind)(start, learn=True, replicas=(2,))
    assert fit(net, own, x, y, rule=gilib.Adam([0.1, 0.01])).elbo.shape == (2, 2)


def test_groups_are_whole_words():
    """Layers 1 and 10 to 12: once the rate of the first was also that of the others."""
    layers = [gilib.Linear(2, 2, gilib.Factorised()) for _ in range(13)]
    net = gilib.Network(None, layers, input_shape=(2,), dtype=torch.float64)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    fit(net, steps=1, rule=gilib.Adam(1e-2, groups={"layers.layers.1": 1e-4}))
    for name, parameter in net.named_parameters():
        moved = float((parameter.detach() - before[name]).abs().median())
        assert moved == pytest.approx(1e-4 if name.startswith("layers.layers.1.") else 1e-2, rel=1e-2)
    with pytest.raises(ValueError, match="no parameter is, or belongs to, 'layers.layers.1.post'"):
        fit(net, rule=gilib.Adam(groups={"layers.layers.1.post": 1e-4}))


def test_a_later_group_counts():
    net = model()
    name = next(name for name, _ in net.named_parameters() if name.endswith("pseudo.outputs"))
    named = dict(net.named_parameters())
    rates = gilib.Adam(1e-2, groups={"layers": 1e-3, name: 1e-4}).rates(named, None)
    assert {key: rate for key, (_, rate) in rates.items()} == {
        key: 1e-4 if key == name else 1e-3 if key.startswith("layers.") else 1e-2 for key in named
    }


def test_a_function_that_counts_its_calls_trains_the_same_with_a_checkpoint(tmp_path):
    traces = []
    for settings in ({}, {"checkpoint": Checkpoint(tmp_path / "run", every=1)}):
        values = iter([0.25, 0.5, 0.75])
        weight = lambda step, values=values: next(values)  # noqa: E731
        traces.append(fit(model(), steps=3, kl_weight=weight, **settings).elbo)
    assert torch.equal(*traces)


def test_a_speed_that_is_none():
    with pytest.raises(TypeError, match="speed must be a Speed, got str"):
        fit(model(), speed="tf32")


def bad_precision(net):
    """The second layer's precisions are too far apart to factorise."""
    name = [name for name, _ in net.named_parameters() if name.endswith("scaled_log_precision")][-1]
    net.get_parameter(name).data.fill_(300.0)
    return net


@pytest.mark.parametrize("replicas", [(), (R,)])
def test_where_failures_are_nan_the_layer_is_named_afterwards(replicas, monkeypatch):
    """As on an accelerator: a factorisation that fails is not raised."""
    monkeypatch.setattr("gilib.training.gradients.objective.nullcontext", gilib.linalg.failures_as_nan)
    with pytest.raises(gilib.linalg.FactorisationError, match=r"layer 2, Linear.* is not positive definite"):
        fit(bad_precision(model(replicas)))


@pytest.mark.gpu
def test_on_a_gpu_the_layer_is_named():
    net = bad_precision(model()).cuda()
    with pytest.raises(gilib.linalg.FactorisationError, match=r"layer 2, Linear.* is not positive definite"):
        fit(net, gilib.Gaussian(0.1).cuda(), X[0].cuda(), Y[0].cuda())


def test_gradients_are_taken_whatever_the_mode_outside():
    """Within no_grad a training is the same; tensors of inference mode are refused with advice."""
    net, other = model(), model()
    fit(net)
    with torch.no_grad():
        fit(other)
    assert same(net, other)
    with torch.inference_mode():
        inside, built = X[0].clone(), model()
        with pytest.raises(ValueError, match=r"cannot train within torch.inference_mode\(\)"):
            fit(net)
    for network, points in ((net, inside), (built, X[0])):
        with pytest.raises(ValueError, match=r"nor on tensors that were made there: .*x.clone\(\)"):
            fit(network, x=points)
