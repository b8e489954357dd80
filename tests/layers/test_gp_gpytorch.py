"""One layer with a free Gaussian is the sparse process of GPyTorch."""

import gpytorch
import pytest
import torch

import gilib
from tests.support import D, assert_equal, normals, seeded
from tests.support.processes import NOISE, layer_of, one_layer, wave

LIKELIHOOD = gilib.Gaussian(NOISE)


class Svgp(gpytorch.models.ApproximateGP):
    """GPyTorch's sparse process of one output, whitened."""

    def __init__(self, inducing, jitter):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, inducing, distribution, learn_inducing_locations=True, jitter_val=jitter
            )
        )
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=2))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def svgp(layer, output, jitter):
    """Theirs, with the parameters of ours."""
    model = Svgp(layer.inducing_inputs.detach().clone(), jitter).double()
    kernel = layer.hyperparameters()
    model.covar_module.outputscale = kernel.variance.detach()[0, 0]
    model.covar_module.base_kernel.lengthscale = kernel.lengthscale.detach()
    strategy = model.variational_strategy
    strategy.variational_params_initialized.fill_(1)
    strategy._variational_distribution.variational_mean.data.copy_(layer.weights.mean[:, output])
    strategy._variational_distribution.chol_variational_covar.data.copy_(layer.weights.root[output].tril())
    return model.eval()


@pytest.mark.parametrize("seed", [1, 2])
def test_one_layer_with_a_free_gaussian_is_gpytorchs(seed):
    """Bound and prediction; GPyTorch adds its jitter to the variance of every point, too."""
    jitter, (x, y) = 1e-6, wave(20, seed=seed + 30)
    net = one_layer(gilib.FreeGaussian(6), inducing=normals(6, 2, seed=seed), jitter=jitter, shake=0.3)
    layer, likelihood = layer_of(net), gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = torch.tensor(NOISE, dtype=D)
    added = jitter * layer.hyperparameters().variance.item()
    bound, points = 0.0, normals(5, 2, seed=seed + 40)
    prediction = gilib.predict(net, LIKELIHOOD, points, 1)
    for output in range(2):
        model = svgp(layer, output, added)
        with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
            expected = (
                likelihood.expected_log_prob(y[:, output], model(x)).sum() + 0.5 * len(x) * added / NOISE
            )
            bound = bound + expected - model.variational_strategy.kl_divergence()
            theirs = model(points)
        assert_equal(prediction.means[0, :, output], theirs.mean, 1e-8)
        assert_equal(prediction.sd[:, output].square() - NOISE, theirs.variance - added, 1e-8)
    estimate = net.estimate(2, 20, generator=seeded())
    ours = gilib.elbo(estimate, LIKELIHOOD, x, y, num_data=20, reduction="none").detach()
    assert_equal(ours, bound.expand(2), 1e-8)
