"""What Wishart and InverseWishart refuse, and what they say."""

import pytest
import torch
from torch.distributions import kl_divergence

from gilib.distributions import InverseWishart, Wishart
from gilib.linalg import FactorisationError

EYE = torch.eye(3)
LOWER = torch.ones(3, 3).tril(-1)


def noise(sample_shape, *shape):
    return lambda family: family(4.0, EYE.expand(4, 3, 3)).rsample(sample_shape, noise=torch.zeros(shape))


REFUSED = {
    "df on the border": (lambda family: family(2.0, EYE), r"df must exceed p - 1 = 2 for 3 × 3"),
    "one df of two": (lambda family: family(torch.tensor([4.0, 2.0]), EYE), "df must exceed .* got 2.0"),
    "no scale": (lambda family: family(4.0), "exactly one of scale and scale_tril, got neither"),
    "two scales": (lambda family: family(4.0, EYE, EYE), "exactly one of scale and scale_tril, got both"),
    "not square": (lambda family: family(4.0, scale_tril=EYE[:, :2]), r"scale_tril must .* got \[3, 2\]"),
    "empty": (lambda family: family(4.0, torch.ones(2, 0, 0)), r"scale must have shape .* got \[2, 0, 0\]"),
    "indefinite": (lambda family: family(4.0, EYE - 2 * EYE[0].diag()), "its smallest eigenvalue is -1"),
    "triangular": (lambda family: family(4.0, EYE + LOWER), "symmetric; pass a triangular factor as"),
    "full factor": (lambda family: family(4.0, scale_tril=EYE + LOWER.mT), "scale_tril must be lower"),
    "batches": (
        lambda family: family(torch.tensor([4.0, 5.0]), EYE.expand(5, 3, 3)),
        r"df has shape \[2\], which does not broadcast with \[5\]",
    ),
    "noise of two axes": (noise((), 2, 2), r"noise must have shape \[..., 4, 3, 3\], got \[2, "),
    "noise of no batch": (noise((), 3, 3), r"noise must have shape \[..., 4, 3, 3\]"),
    "noise of no samples": (noise((7,), 4, 3, 3), r"noise must have shape \[7, 4, 3, 3\]"),
    "value": (lambda family: family(4.0, EYE).log_prob(-EYE), "support"),
    "size of a value": (lambda family: family(4.0, EYE).log_prob(EYE[:2, :2]), "event_shape"),
    "value for a factor": (
        lambda family: family(4.0, EYE).log_prob_cholesky(EYE + LOWER.mT),
        r"factor must hold lower triangular matrices \[..., 3, 3\]",
    ),
    "two sizes": (
        lambda family: kl_divergence(family(4.0, EYE), family(4.0, EYE[:2, :2])),
        "KL needs matrices of one size",
    ),
}
BOTH = pytest.mark.parametrize("family", [Wishart, InverseWishart])


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(family, name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call(family)


@BOTH
def test_without_validation_a_matrix_without_factor_is_named(family):
    with pytest.raises(FactorisationError, match="the scale matrix is not positive definite"):
        family(4.0, -EYE, validate_args=False)
    with pytest.raises(FactorisationError, match="the value is not positive definite"):
        family(4.0, EYE, validate_args=False).log_prob(-EYE)
