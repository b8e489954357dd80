"""Targets belong to all samples: one set for all, or one for each replica, never one for each sample."""

import pytest
import torch

import gilib
from tests.support import assert_equal, normals

S, R, N, WIDTH = 4, 3, 5, 2
OUTPUTS, TARGETS, LABELS = (
    normals(S, R, N, 2 * WIDTH),
    normals(N, WIDTH, seed=1),
    torch.tensor([1, 0, 3, 2, 0]),
)
LIKELIHOODS = {
    "gaussian": (gilib.Gaussian(0.3), WIDTH),
    "per output": (gilib.likelihoods.PerOutputGaussian([0.3, 0.5]), WIDTH),
    "correlated": (gilib.likelihoods.CorrelatedGaussian(WIDTH), WIDTH),
    "heteroscedastic": (gilib.likelihoods.HeteroscedasticGaussian([0.3, 0.5]), 2 * WIDTH),
    "categorical": (gilib.Categorical(), 2 * WIDTH),
}


def case(name):
    """A likelihood, outputs of S samples and R replicas, and targets of all of them."""
    likelihood, width = LIKELIHOODS[name]
    return likelihood, OUTPUTS[..., :width], LABELS if name == "categorical" else TARGETS


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_set_for_all_or_for_each_replica(name):
    likelihood, outputs, targets = case(name)
    for_all = likelihood.log_prob(outputs, targets)
    own = likelihood.log_prob(outputs, targets.expand(R, *targets.shape))
    assert_equal(own.detach(), for_all.detach(), 1e-12)
    assert for_all.shape == (S, R, N)


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("lead", [(S,), (S, R), (S, 1), (2,)])
def test_a_set_for_each_sample_is_refused(name, lead):
    likelihood, outputs, targets = case(name)
    kind = "class labels" if name == "categorical" else "targets"
    with pytest.raises(ValueError, match=rf"{kind} have axes .* one for each replica, \[3\]"):
        likelihood.log_prob(outputs, targets.expand(*lead, *targets.shape))


@pytest.mark.parametrize("likelihood", [gilib.Gaussian(0.1), gilib.Categorical()])
def test_predictions_refuse_it(likelihood):
    net = gilib.models.mlp(2, (3,), 2, posterior=gilib.Factorised())
    prediction = gilib.predict(net, likelihood, normals(N, 2).float(), num_samples=S)
    targets = torch.tensor([0, 1, 1, 0, 1]) if isinstance(likelihood, gilib.Categorical) else TARGETS.float()
    assert prediction.log_prob(targets).shape == (N,)
    for count in (S, S + 1):
        with pytest.raises(ValueError, match="before their points"):
            prediction.log_prob(targets.expand(count, *targets.shape))
