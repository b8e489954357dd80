"""What Wishart and InverseWishart refuse, and what they say."""

import pytest
import torch

from gilib.distributions import InverseWishart, Wishart
from gilib.linalg import FactorisationError

EYE = torch.eye(3)
BOTH = pytest.mark.parametrize("family", [Wishart, InverseWishart])


@BOTH
@pytest.mark.parametrize("df", [2.0, 1.5, -1.0, float("nan"), torch.tensor([4.0, 2.0])])
def test_too_few_degrees_of_freedom(family, df):
    with pytest.raises(ValueError, match=r"df must exceed p - 1 = 2 for 3 × 3 matrices, got"):
        family(df, EYE)


@BOTH
def test_exactly_one_scale(family):
    with pytest.raises(ValueError, match="exactly one of scale and scale_tril, got neither"):
        family(4.0)
    with pytest.raises(ValueError, match="exactly one of scale and scale_tril, got both"):
        family(4.0, EYE, EYE)


@BOTH
@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 0, 0)])
@pytest.mark.parametrize("name", ["scale", "scale_tril"])
def test_scale_is_not_square(family, shape, name):
    with pytest.raises(ValueError, match=rf"{name} must have shape \[..., p, p\], got \[{shape[0]}"):
        family(4.0, **{name: torch.ones(shape)})


@BOTH
def test_scale_is_not_positive_definite(family):
    with pytest.raises(ValueError, match="scale must be positive definite, its smallest eigenvalue is -1"):
        family(4.0, torch.diag(torch.tensor([1.0, -1.0, 2.0])))
    with pytest.raises(ValueError, match="scale must be finite and symmetric; pass a triangular factor as"):
        family(4.0, EYE + torch.ones(3, 3).tril(-1))
    with pytest.raises(ValueError, match="scale must be finite and symmetric"):
        family(4.0, EYE * float("nan"))


@BOTH
@pytest.mark.parametrize("factor", [EYE + torch.ones(3, 3), -EYE])
def test_factor_is_not_a_cholesky_factor(family, factor):
    with pytest.raises(ValueError, match="scale_tril must be lower triangular with a positive diagonal"):
        family(4.0, scale_tril=factor)


@BOTH
def test_batches_do_not_broadcast(family):
    with pytest.raises(ValueError, match=r"df has shape \[2\], which does not broadcast with \[5\]"):
        family(torch.tensor([4.0, 5.0]), EYE.expand(5, 3, 3))


@BOTH
@pytest.mark.parametrize(
    ("sample_shape", "shape", "wanted"),
    [
        ((), (2, 2), r"\[..., 4, 3, 3\]"),
        ((), (3, 3), r"\[..., 4, 3, 3\]"),
        ((), (7, 5, 3, 3), r"\[..., 4, 3, 3\]"),
        ((7,), (4, 3, 3), r"\[7, 4, 3, 3\]"),
        ((7,), (6, 4, 3, 3), r"\[7, 4, 3, 3\]"),
    ],
)
def test_noise_has_the_wrong_shape(family, sample_shape, shape, wanted):
    dist = family(4.0, EYE.expand(4, 3, 3))
    with pytest.raises(ValueError, match=rf"noise must have shape {wanted} .*, got \[{shape[0]}, "):
        dist.rsample(sample_shape, noise=torch.zeros(shape))


@BOTH
def test_values_outside_the_support(family):
    dist = family(4.0, EYE)
    with pytest.raises(ValueError, match="support"):
        dist.log_prob(-EYE)
    with pytest.raises(ValueError, match="event_shape"):
        dist.log_prob(torch.eye(2))
    with pytest.raises(ValueError, match=r"factor must hold lower triangular matrices \[..., 3, 3\] with"):
        dist.log_prob_cholesky(EYE + torch.ones(3, 3))
    with pytest.raises(ValueError, match=r"got shape \[2, 2\]; use log_prob for the matrices themselves"):
        dist.log_prob_cholesky(torch.eye(2))


@BOTH
def test_without_validation_a_matrix_without_factor_is_named(family):
    with pytest.raises(FactorisationError, match="the scale matrix is not positive definite"):
        family(4.0, -EYE, validate_args=False)
    with pytest.raises(FactorisationError, match="the value is not positive definite"):
        family(4.0, EYE, validate_args=False).log_prob(-EYE)


@BOTH
def test_divergence_between_sizes(family):
    with pytest.raises(ValueError, match="KL needs matrices of one size, got"):
        torch.distributions.kl_divergence(family(4.0, EYE), family(4.0, torch.eye(2)))
