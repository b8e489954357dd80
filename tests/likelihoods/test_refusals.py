"""What likelihoods refuse, and what they say."""

import math

import numpy as np
import pytest
import torch

import gilib
from gilib.config import rebuild
from gilib.likelihoods import (
    Beta,
    Categorical,
    CorrelatedGaussian,
    Gamma,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    PerOutputGaussian,
    Poisson,
    StudentT,
)
from gilib.linalg import FactorisationError
from tests.support import normals

F, Y, COUNTS = normals(4, 6, 2), normals(6, 2, seed=1), torch.arange(6)[:, None]
WHOLE = torch.zeros(6, 2, dtype=torch.long)
PAIR = CorrelatedGaussian(2, learn=True)
VARYING = HeteroscedasticGaussian([0.3, 2.0])
UNITS = gilib.data.Normalisation.fit(F[0], Y)
NARROW = gilib.models.mlp(2, (3,), 1, posterior=gilib.Factorised())


REFUSED = [
    (lambda: Gaussian(math.inf), ValueError, "noise_variance must be a positive finite number"),
    *[
        (lambda kind=kind: Gaussian(kind([0.1, 0.2])), ValueError, "got 2: gilib.likelihoods.PerOutput")
        for kind in (torch.tensor, tuple, np.array)
    ],
    (lambda: Categorical().set_noise(torch.eye(2)), TypeError, "Categorical has no Gaussian noise"),
    (lambda: rebuild({"type": "Binomial"}, Likelihood), ValueError, "unknown .*'Binomial': gilib knows Beta"),
    (lambda: PAIR.check_targets(normals(6, 3), 6, 3), ValueError, "is for a network with 2 outputs, got 3"),
    (lambda: PAIR.check_targets(Y[:4], 6, 2), ValueError, r"must have shape \[6, 2\]"),
    (lambda: PAIR.predictive(F).log_prob(Y[:4]), ValueError, r"\[6, 2\] \(points, outputs\), got \[4, 2\]"),
    (lambda: PAIR.set_noise(-torch.eye(2)), FactorisationError, "noise is not positive definite"),
    (lambda: CorrelatedGaussian(2).infers_noise(()), ValueError, "inferred here, but .* has it fixed"),
    (lambda: Gamma().predictive(F, UNITS), ValueError, "targets of Gamma cannot be scaled"),
    (lambda: StudentT([0.1, 0.2, 0.3]).log_prob(F, Y), ValueError, "a network with 3 outputs, got 2"),
    (lambda: StudentT(df=2.0), ValueError, "df must be above 2"),
    (lambda: Beta(1.0), ValueError, "mean must be a proportion"),
    (lambda: Poisson([]), ValueError, "got none"),
    (lambda: Poisson([1.0, 2.0]).log_prob(F[..., :1], COUNTS), ValueError, "Poisson .* 2 outputs, got 1"),
    (lambda: Poisson().predictive(F).quantile(1.0), ValueError, "a probability between 0 and 1"),
    (lambda: VARYING.log_prob(F, Y), ValueError, "a network with 4 outputs, got 2"),
    (lambda: VARYING.check_targets(Y[:3], 6, 4), ValueError, r"\[6, 2\] \(points, half of the network"),
    (lambda: VARYING.check_targets(WHOLE, 6, 4), TypeError, "targets must be floating-point"),
    (lambda: gilib.predict(NARROW, VARYING, torch.zeros(3, 2)), ValueError, "4 outputs, got 1"),
    (lambda: PerOutputGaussian([]), ValueError, "must be a list with a variance"),
    (lambda: PerOutputGaussian([0.1]).log_prob(F, Y), ValueError, "a network with 1 outputs, got 2"),
    (lambda: PerOutputGaussian([0.3, 2.0]).log_prob(F, Y[:3]), ValueError, r"must have shape \[6, 2\]"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
