"""Networks of processes train, resume, are saved and loaded, and classify, as all others do."""

import pytest
import torch

import gilib
from gilib.training import Checkpoint
from tests.support import D, assert_equal, normals, seeded
from tests.support.processes import NETWORKS, deep, mixed, process, wave

X, Y = wave(24)
EVERY = pytest.mark.parametrize("name", NETWORKS)
RATES, SEEDS = [0.01, 0.03], [7, 1]


def fit(net, likelihood=None, x=X, y=Y, *, steps=12, **settings):
    likelihood = likelihood or gilib.Gaussian(0.2, learn=True, replicas=net.replicas)
    settings = {"num_samples": 2, "seed": 3, "progress": False} | settings
    return gilib.fit(net, likelihood, x, y, steps=steps, **settings)


@EVERY
def test_the_bound_improves(name):
    history = fit(NETWORKS[name](), steps=80, num_samples=4, rule=gilib.Adam(0.03))
    assert float(history.elbo[-10:].mean()) > float(history.elbo[:10].mean()) + 0.1


@EVERY
def test_resuming_changes_nothing(name, tmp_path):
    straight, resumed = NETWORKS[name](), NETWORKS[name]()
    whole = fit(straight, batch_size=7)

    def fail(step, bound, net):
        if step == 10:
            raise KeyboardInterrupt

    settings = {"batch_size": 7, "checkpoint": Checkpoint(tmp_path / "run.pt", 4)}
    with pytest.raises(KeyboardInterrupt):
        fit(NETWORKS[name](), callbacks=[fail], **settings)
    history = fit(resumed, **settings)
    assert history.resumed_at == 8 and torch.equal(history.elbo, whole.elbo)
    for ours, theirs in zip(resumed.parameters(), straight.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("batch_size", [None, 7])
@EVERY
def test_replicas_train_as_they_would_alone(name, batch_size):
    together, singles = NETWORKS[name](replicas=(2,)), [NETWORKS[name]() for _ in SEEDS]
    for r, single in enumerate(singles):
        for key, parameter in single.named_parameters():
            parameter.data.copy_(together.get_parameter(key).data[r])
    x, y = torch.stack([X, X + 0.2]), torch.stack([Y, Y - 0.2])
    history = fit(together, x=x, y=y, rule=gilib.Adam(RATES), seed=SEEDS, batch_size=batch_size)
    for r, single in enumerate(singles):
        alone = fit(single, x=x[r], y=y[r], rule=gilib.Adam(RATES[r]), seed=SEEDS[r], batch_size=batch_size)
        assert_equal(history.elbo[:, r], alone.elbo, 1e-8)


@EVERY
def test_a_reload_predicts_to_the_last_bit(name, tmp_path):
    net, likelihood = NETWORKS[name](), gilib.Gaussian(0.2, learn=True)
    gilib.save(tmp_path / "model.pt", net, likelihood)
    again, noise, *_ = gilib.load(tmp_path / "model.pt")
    first, second = (
        gilib.predict(*pair, X, 4, generator=seeded(5)) for pair in ((net, likelihood), (again, noise))
    )
    assert torch.equal(first.means, second.means) and torch.equal(first.component_sd, second.component_sd)
    assert again.config() == net.config()
    state = net.state_dict()
    assert all(torch.equal(value, state[key]) for key, value in again.state_dict().items())
    runs = [fit(net, likelihood, steps=3), fit(again, noise, steps=3)]
    assert torch.equal(runs[0].elbo, runs[1].elbo)


def test_other_settings_are_saved_too(tmp_path):
    """Jitter, number of features, float32, replicas, the kernel's structure, a fixed map of one's own."""
    kernel = gilib.kernels.ArcCosine(order=0) + gilib.kernels.RBF(ard=False) * gilib.kernels.DotProduct()
    posterior = gilib.LocalInducing(4, precision="per_output")
    inner = gilib.GP(2, 3, kernel, posterior, jitter=1e-3, num_features=5)
    net = gilib.Network(
        None,
        [gilib.Sum([inner, gilib.layers.FixedLinear(2, 3, normals(2, 3).float())]), process(3, 2, posterior)],
        replicas=(2,),
        generator=seeded(),
        dtype=torch.float32,
    )
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.2))
    again, *_ = gilib.load(tmp_path / "model.pt")
    assert again.config() == net.config()
    layer = next(iter(again.layers[0]))
    assert (layer.jitter, layer.num_features, layer.kernel) == (1e-3, 5, kernel)
    noise = net.base_noise(3, seeded(1))
    x = X.float()
    assert torch.equal(net.draw(noise=noise)(x), again.draw(noise=noise)(x))


def test_classification():
    """Three classes: the bound, sampled at every point, improves; probabilities sum to one and are right."""
    labels = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    net = gilib.models.deep_gp(2, 3, 2, inducing_points=X[:8], generator=seeded(), dtype=D, num_features=64)
    fit(net, gilib.Categorical(), y=labels, steps=150, num_samples=4, rule=gilib.Adam(0.03))
    prediction = gilib.predict(net, gilib.Categorical(), X, 20, generator=seeded(1))
    assert_equal(prediction.mean.sum(-1), torch.ones(24, dtype=D), 1e-10)
    assert float((prediction.mean.argmax(-1) == labels).double().mean()) > 0.8


def test_training_takes_estimates_and_may_take_draws():
    """The estimates' gradient is the less noisy one; both train."""
    histories = [fit(deep(gilib.GlobalInducing()), steps=60, estimator=kind) for kind in (None, "draw")]
    assert all(float(h.elbo[-10:].mean()) > float(h.elbo[:10].mean()) for h in histories)
    assert not torch.equal(histories[0].elbo, histories[1].elbo)
    standard = fit(deep(gilib.GlobalInducing()), steps=3, estimator="pointwise")
    assert torch.equal(standard.elbo, histories[0].elbo[:3])


def test_weights_between_processes_in_a_residual_block():
    net = mixed([gilib.Residual([process(2, 2), torch.nn.Tanh(), gilib.Linear(2, 2)]), process(2, 2)])
    history = fit(net, steps=60, rule=gilib.Adam(0.03))
    assert float(history.elbo[-10:].mean()) > float(history.elbo[:10].mean())
