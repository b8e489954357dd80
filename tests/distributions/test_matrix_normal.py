"""Matrix normal distributions, alone and with an inverse Wishart, against scipy and dense Gaussians."""

import math

import pytest
import scipy.stats
import torch
from torch.distributions import MultivariateNormal

from gilib.distributions import InverseWishart, MatrixNormal, MatrixNormalInverseWishart
from tests.support import refusals
from tests.support.oracles import assert_mean_within, normal, positive_definite

pytestmark = pytest.mark.usefixtures("float64")
I, O = 4, 3  # noqa: E741
tril = torch.linalg.cholesky


def pieces(generator, *batch):
    """M, V, Σ."""
    return (
        normal(generator, *batch, I, O),
        positive_definite(generator, *batch, I, I),
        positive_definite(generator, *batch, O, O),
    )


def both(loc, rows, columns, **settings):
    """The distribution by the factor of V, and by that of V⁻¹."""
    return (
        MatrixNormal(loc, tril(rows), tril(columns), **settings),
        MatrixNormal(loc, None, tril(columns), row_precision_tril=tril(torch.linalg.inv(rows)), **settings),
    )


def test_density_and_entropy_are_those_of_a_dense_gaussian_in_batches(generator):
    loc, rows, columns = pieces(generator, 2)
    values = normal(generator, 5, 2, I, O)
    covariances = torch.stack([torch.kron(columns[r], rows[r]) for r in range(2)])
    dense = MultivariateNormal(loc.mT.flatten(1), covariances)
    expected = dense.log_prob(values.mT.flatten(2))
    for dist in both(loc, rows, columns):
        torch.testing.assert_close(dist.log_prob(values), expected, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dist.entropy(), dense.entropy(), rtol=1e-10, atol=1e-10)
        wide = dist.expand((5, 2))
        assert wide.batch_shape == wide.entropy().shape == (5, 2) and dist.event_shape == (I, O)
        torch.testing.assert_close(wide.log_prob(values), dist.log_prob(values))
        assert wide.rsample(generator=generator).shape == (5, 2, I, O)


@pytest.mark.parametrize("samples", [(), (7,), (2, 7)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_noise_and_draws(samples, batch, generator):
    """A draw is a function of its noise, and its density is known without a solve."""
    loc, rows, columns = pieces(generator, *batch)
    noise = normal(generator, *samples, *batch, I, O)
    for dist in both(loc, rows, columns):
        drawn = dist.rsample(noise=noise)
        root = torch.linalg.inv(dist.row_tril).mT if dist.by_precision else dist.row_tril
        torch.testing.assert_close(drawn, loc + root @ noise @ tril(columns).mT, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dist.log_prob_noise(noise), dist.log_prob(drawn), rtol=1e-10, atol=1e-9)
        again = dist.sample(samples, generator=torch.Generator().manual_seed(0))
        assert again.shape == (*samples, *batch, I, O)
        assert torch.equal(again, dist.sample(samples, generator=torch.Generator().manual_seed(0)))


def test_moments_in_closed_form_and_gradients_of_draws(generator):
    """Exact over a cubature: W is affine in E, so unit vectors of E, times √(I O), give all covariances."""
    loc, rows, columns = pieces(generator)
    unit = math.sqrt(I * O) * torch.eye(I * O).unflatten(1, (I, O))
    for dist in both(loc, rows, columns):
        leaves = [value.requires_grad_() for value in (dist.loc, dist.row_tril, dist.column_scale_tril)]
        drawn = dist.rsample(noise=torch.cat([unit, -unit]))
        assert all((g != 0).any() for g in torch.autograd.grad(drawn.square().sum(), leaves))
        centred = (drawn - loc).mT.flatten(1)
        covariance = centred.mT @ centred / len(centred)
        torch.testing.assert_close(covariance, torch.kron(columns, rows), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dist.variance.mT.flatten(), covariance.diagonal(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dist.row_covariance, rows, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(dist.column_covariance, columns, rtol=1e-10, atol=1e-10)
        assert torch.equal(dist.mean, loc) and torch.equal(dist.mode, loc)


def pair(generator, df=9.0, *batch):
    loc, rows, scale = pieces(generator, *batch)
    return MatrixNormalInverseWishart(loc, tril(torch.linalg.inv(rows)), df, tril(scale)), rows, scale


def test_the_pair_is_the_product_of_its_parts(generator):
    """In density, whose slope is zero at the mode, and in draws."""
    dist, rows, scale = pair(generator)
    weights, covariance = dist.rsample((5,), generator=generator)
    marginal = scipy.stats.invwishart(9.0, scale.numpy())
    for w, c, value in zip(weights, covariance, dist.log_prob(weights, covariance), strict=True):
        expected = marginal.logpdf(c.numpy())
        expected += scipy.stats.matrix_normal(dist.loc.numpy(), rows.numpy(), c.numpy()).logpdf(w.numpy())
        assert float(value) == pytest.approx(expected, rel=1e-9)
    mode = [value.clone().requires_grad_() for value in dist.mode]
    for slope in torch.autograd.grad(dist.log_prob(*mode), mode):
        assert float(slope.abs().max()) < 1e-9
    torch.testing.assert_close(dist.mean[1], scale / (9.0 - O - 1), rtol=1e-12, atol=1e-12)
    dist, _, scale = pair(generator, 9.0, 2)
    noise = normal(generator, 2, I, O), normal(generator, 2, O, O)
    weights, covariance = dist.rsample(noise=noise)
    factor = InverseWishart(9.0, scale_tril=tril(scale)).rsample_cholesky(noise=noise[1])
    torch.testing.assert_close(covariance, factor @ factor.mT)
    torch.testing.assert_close(weights, dist.given(factor).rsample(noise=noise[0]))
    assert dist.batch_shape == (2,)


def test_draws_of_the_pair(generator):
    """The mean of Σ and, as W - M is matrix normal given Σ, E[(W-M)ᵀV⁻¹(W-M)] = I E[Σ]."""
    dist, rows, _ = pair(generator, 14.0)
    weights, covariance = dist.rsample((4000,), generator=generator)
    assert_mean_within(covariance, dist.mean[1])
    assert_mean_within(weights, dist.mean[0])
    deviation = weights - dist.loc
    assert_mean_within(deviation.mT @ torch.linalg.inv(rows) @ deviation, I * dist.mean[1])


def test_the_predictive_distribution_is_a_student_t(generator):
    """Its density is the average of Gaussian ones over draws of the pair."""
    dist, _, _ = pair(generator, 9.0, 2)
    x, y = normal(generator, 2, 5, I), normal(generator, 2, 5, O)
    predicted = dist.predictive(x)
    weights, covariance = dist.rsample((5000,), generator=generator)
    sd = covariance.diagonal(dim1=-2, dim2=-1).sqrt()[..., None, :]
    densities = torch.distributions.Normal(x @ weights, sd).log_prob(y).exp()
    assert_mean_within(densities, predicted.log_prob(y).exp())


def test_the_predictive_distribution_of_a_batch(generator):
    """Of any part, where the others are one: every pair by itself."""
    x, eye = normal(generator, 9, 3), torch.eye(2)
    loc, df = normal(generator, 3, 2), torch.tensor([4.0, 5.0])
    scales = torch.stack([eye, 2.0 * eye])
    batches = (
        MatrixNormalInverseWishart(loc, torch.eye(3), df, eye),
        MatrixNormalInverseWishart(loc, torch.eye(3), 4.0, scales),
        MatrixNormalInverseWishart(torch.stack([loc, 2 * loc]), torch.eye(3), df, scales),
    )
    for dist in batches:
        found = dist.predictive(x)
        assert found.batch_shape == (2, 9, 2)
        parts = (dist.loc.expand(2, 3, 2), dist.noise.df.expand(2), dist.noise.scale_tril.expand(2, 2, 2))
        for k, (own, own_df, scale) in enumerate(zip(*parts, strict=True)):
            alone = MatrixNormalInverseWishart(own, torch.eye(3), own_df, scale).predictive(x)
            for name in ("df", "loc", "scale"):
                one = getattr(alone, name)
                torch.testing.assert_close(getattr(found, name)[k], one.expand(9, 2), rtol=1e-12, atol=0)


LOC, EYE, COLUMNS = torch.zeros(I, O), torch.eye(I), torch.eye(O)


test_bad_arguments = refusals(
    [
        (lambda: MatrixNormal(LOC, None, COLUMNS), "exactly one of .*, got neither"),
        (lambda: MatrixNormal(LOC, EYE, COLUMNS, row_precision_tril=EYE), "exactly one of .*, got both"),
        (lambda: MatrixNormal(LOC, EYE), "give column_scale_tril"),
        (lambda: MatrixNormal(LOC[:, 0], EYE, COLUMNS), r"loc must have shape .* got \[4\]"),
        (lambda: MatrixNormal(LOC, EYE, EYE), r"the columns must have shape \[..., 3, 3\].* got \[4"),
        (lambda: MatrixNormal(LOC, None, COLUMNS, row_precision_tril=EYE + 1), "precision_tril must"),
        (lambda: MatrixNormal(LOC, EYE, -COLUMNS), "column_scale_tril must be lower triangular"),
        (lambda: MatrixNormal(LOC, EYE, COLUMNS).rsample(noise=LOC.mT), r"must .* 4, 3\], got \[3, 4\]"),
        (lambda: MatrixNormalInverseWishart(LOC, EYE, 2.0, COLUMNS), "df must exceed p - 1 = 2"),
    ]
)
