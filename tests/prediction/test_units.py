"""Predictions where units are far from order one, and where a replica has broken down."""

import numpy as np
import pytest
import torch

import gilib
from gilib.data import Normalisation
from tests.support import D, assert_equal, normals, seeded, small_net

TIMES = 1.7e9 + np.sort(np.random.default_rng(0).uniform(0.0, 600.0, 50))[:, None]  # seconds since 1970
VALUES = np.stack([np.sin(TIMES[:, 0] / 60.0), np.cos(TIMES[:, 0] / 60.0)], 1)
LIKELIHOODS = {
    "one noise": lambda: gilib.Gaussian(0.3),
    "correlated": lambda: gilib.likelihoods.CorrelatedGaussian(2, learn=True),
}


def model(**settings):
    return gilib.models.mlp(1, (5,), 2, posterior=gilib.Factorised(), generator=seeded(), **settings)


def predicted(net, likelihood, x, normalisation):
    return gilib.predict(net, likelihood, x, 20, normalisation=normalisation, generator=seeded(3))


@pytest.mark.parametrize("dtype", [torch.float32, D])
def test_arrays_keep_their_digits_until_they_are_normalised(dtype):
    net, normalisation = model(dtype=dtype), Normalisation.fit(TIMES, VALUES)
    tensor, noise = torch.from_numpy(TIMES), gilib.Gaussian(0.3)
    found, wanted = (predicted(net, noise, x, normalisation) for x in (TIMES, tensor))
    assert torch.equal(found.means, wanted.means)
    inside = predicted(net, noise, normalisation.x(tensor).to(dtype), None)
    assert_equal(normalisation.y(found.mean), inside.mean.double(), 1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("targets", [np.asarray, torch.from_numpy])
def test_an_offset_of_the_targets_changes_no_density(name, targets):
    net, likelihood, found = model(), LIKELIHOODS[name](), []
    for offset in (0.0, 1e6, 1e8):
        normalisation = Normalisation.fit(TIMES, VALUES + offset)
        prediction = predicted(net, likelihood, TIMES, normalisation)
        assert prediction.mean.dtype == D
        found.append(prediction.log_prob(targets(VALUES + offset)))
        assert_equal(prediction.mean - offset, predicted(net, likelihood, TIMES, NEAR).mean, 1e-6)
    assert_equal(found[1], found[0], 1e-6)
    assert_equal(found[2], found[0], 1e-5)


NEAR = Normalisation.fit(TIMES, VALUES)


def test_students_predictions_keep_their_digits_too():
    net = gilib.models.mlp(1, (5,), 2, posterior=gilib.posteriors.Conjugate())
    likelihood = gilib.Gaussian(1.0, learn=True)
    x, y = (torch.from_numpy(v).float() for v in (NEAR.x(TIMES), NEAR.y(VALUES)))
    gilib.fit(net, likelihood, x, y, steps=3, rule=gilib.training.Bali(), num_samples=1, progress=False)
    found = []
    for offset in (0.0, 1e7):
        settings = {"normalisation": Normalisation.fit(TIMES, VALUES + offset), "generator": seeded(3)}
        prediction = gilib.prediction.predict_student(net, TIMES, 20, **settings)
        found.append(prediction.log_prob(VALUES + offset))
    assert_equal(found[1], found[0], 1e-6)


def test_a_replica_that_broke_down_leaves_the_others_alone():
    net = small_net(gilib.GlobalInducing(), replicas=(3,))
    likelihood = gilib.Gaussian(0.1, learn=True, replicas=(3,)).to(D)
    x, y = normals(9, 2), normals(9, 2, seed=1)
    rule, seeds = gilib.Adam([0.01, 1e4, 0.02]), [0, 1, 2]
    settings = {"rule": rule, "seed": seeds, "on_divergence": "freeze", "progress": False, "num_samples": 1}
    history = gilib.fit(net, likelihood, x, y, steps=40, **settings)
    assert (history.diverged_at >= 0).tolist() == [False, True, False]
    with torch.no_grad():
        next(p for name, p in net.named_parameters() if "log" in name)[1] = float("nan")
    with pytest.warns(UserWarning, match=r"replicas \[1\] give no numbers .* their predictions are NaN"):
        prediction = gilib.predict(net, likelihood, x, 5)
    assert prediction.mean[[0, 2]].isfinite().all() and prediction.log_prob(y)[[0, 2]].isfinite().all()
    assert prediction.mean[1].isnan().all()
    member = r"members \[1\] give no numbers .* leave them out of the ensemble, whose predictions are NaN"
    with pytest.warns(UserWarning, match=member):
        assert gilib.predict(gilib.Ensemble(net), likelihood, x, 5).mean.isnan().all()
