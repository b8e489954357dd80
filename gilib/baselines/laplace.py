"""The Laplace approximation of the last layer of a network with point estimates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from gilib.arithmetic import exact_products
from gilib.draws import Draw, record
from gilib.draws.functions import Function
from gilib.layers.linear import LinearFunction
from gilib.layers.weights import WeightLayer
from gilib.likelihoods import Likelihood
from gilib.likelihoods.base import LOG_2PI
from gilib.linalg import SymmetricOperator, cholesky
from gilib.network import Network
from gilib.posteriors import PointWeights
from gilib.prediction.drawables import OfNetwork
from gilib.randomness import GeneratorLike, standard_normal
from gilib.regression.primal import prior_log_prob, sample_from_precision
from gilib.training import check_data
from gilib.validation import check_count, check_instance

NAME = "the precision of a Laplace approximation"
CONVEX = (
    "the likelihood is not log-concave in the outputs everywhere, as one whose noise is an output is not; or "
    "the prior is too wide for so few data"
)


@torch.no_grad()
def laplace(
    net: Network, likelihood: Likelihood, x: Tensor, y: Tensor, *, batch_size: int | None = None
) -> Laplace:
    """Compute the full Laplace approximation of the last layer (MacKay, 1992; Daxberger et al., 2021).

        Q(W) = N(Ŵ, H⁻¹),    H = P + Σ_n φ_n φ_nᵀ ⊗ Λ_n,    Λ_n = -∂² log P(y_n | f_n) / ∂f_n²,

    where φ_n are the inputs of the last layer (with the bias column) and P is its prior precision. The layers
    below are fixed. The last layer is linear in W, so H is the exact Hessian.

    Args:
        net: a trained network with `PointEstimate` layers and a final `Linear` layer; it is not changed.
        likelihood: likelihood of the targets, with its current noise.
        x: all training inputs, `[N, D]` or `[R, N, D]`.
        y: all targets.
        batch_size: points per batch; all if None. Every point needs I² numbers.

    Returns:
        A `Laplace`, which draws functions and can be passed to `gilib.predict`.

    Raises:
        ValueError: if the network is random, or does not end with a `Linear` layer.
        FactorisationError: if H is not positive definite: the likelihood is not log-concave in the outputs.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> net, noise = gilib.models.mlp(1, (5,), 1, posterior=gilib.PointEstimate()), gilib.Gaussian(0.1)
    >>> _ = gilib.fit(net, noise, x, x.square(), steps=3, num_samples=1, progress=False)
    >>> gilib.predict(laplace(net, noise, x, x.square()), noise, x, num_samples=7).mean.shape
    torch.Size([20, 1])
    """
    check_instance(net, Network, "net")
    check_instance(likelihood, Likelihood, "likelihood")
    check_data(net, likelihood, x, y)
    last = _last_layer(net, x)
    inputs, outputs = last.weights.shape[-2:]
    identity = torch.eye(outputs, dtype=torch.float64, device=x.device)
    dense = last.prior.to(torch.float64).dense().expand(1, *net.replicas, inputs, inputs)[0]
    precision = torch.einsum("...ij,op->...iojp", dense, identity)
    log_joint = prior_log_prob(last.weights.double(), last.prior.to(torch.float64), outputs)
    size = x.shape[-1 - len(net.input_shape)] if batch_size is None else batch_size
    check_count(size, "batch_size")
    for features, values, targets in _pieces(net, likelihood, x, y, size):
        log_prob, curvature = _curvature(likelihood, values, targets)
        features = pad(features, (0, int(last.bias)), value=1.0).double().expand(1, *net.replicas, -1, -1)[0]
        precision = precision + torch.einsum("...ni,...nj,...nop->...iojp", features, features, curvature)
        log_joint = log_joint + log_prob
    precision = precision.flatten(-4, -3).flatten(-2)
    cholesky(precision, NAME, CONVEX)  # fail here rather than at the first draw
    return Laplace(net, last.weights, precision, log_joint.expand(1, *net.replicas)[0], last.bias)


@dataclass(frozen=True, eq=False)
class Laplace(OfNetwork):
    """A network whose last layer has Gaussian weights around their point estimate; `laplace` creates it.

    Draws use the current weights of the layers below, which have no density, so log_pq is None.

    Args:
        net: the network.
        weights: Ŵ of the last layer, `[R, I, O]`.
        precision: H for Ŵ flattened to a vector, outputs fastest, `[R, I O, I O]`, float64.
        log_joint: log P(y, Ŵ | layers below), `[R]`, nats.
        bias: whether the last of the I inputs is the constant 1.
    """

    net: Network
    weights: Tensor
    precision: Tensor
    log_joint: Tensor
    bias: bool

    @property
    def log_evidence(self) -> Tensor:
        """Laplace's approximation of log P(y | layers below), log_joint + ½ log det(2π H⁻¹), `[R]` nats."""
        factor = cholesky(self.precision, NAME, CONVEX)
        half_log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        return self.log_joint + 0.5 * self.precision.shape[-1] * LOG_2PI - half_log_det

    def draw(self, num_samples: int = 1, *, generator: GeneratorLike | None = None) -> Draw:
        """Draw S functions, which differ in the last layer.

        Args:
            num_samples: S.
            generator: source of the weights; torch's default generator if None.
        """
        check_count(num_samples, "num_samples")
        like, size = self.weights, self.precision.shape[-1]
        noise = standard_normal((num_samples, *self.replicas, size), generator, like.dtype, like.device)
        shift = self.precision @ like.double().flatten(-2)[..., None]
        drawn, _ = sample_from_precision(
            self.precision[..., None, :, :], shift[..., None, :, :], noise.double()[..., None, :, None]
        )
        weights = drawn[..., 0, :, 0].unflatten(-1, like.shape[-2:]).to(like)
        return Draw(_OtherEnd(self.net.draw().function, LinearFunction(weights, self.bias)), None)


@dataclass(frozen=True)
class _OtherEnd:
    function: Function
    last: Function

    def __call__(self, x: Tensor) -> Tensor:
        with exact_products():
            return self.last(record(self.function, x).steps[-1].input)


class _Last(NamedTuple):
    weights: Tensor  # [R, I, O]
    bias: bool
    prior: SymmetricOperator


def _last_layer(net: Network, x: Tensor) -> _Last:
    if net.noise_size:
        raise ValueError(
            "laplace is around one set of weights, and this network draws them at random: build it with "
            "posterior=gilib.PointEstimate() and a fixed prior, and train it"
        )
    point = x.narrow(-1 - len(net.input_shape), 0, 1)
    with exact_products():
        output, steps = record(net.draw().function, point)
    layers = [module for module in net.modules() if isinstance(module, WeightLayer)]
    function, own = steps[-1].function, layers[-1].weights if layers else None
    alone = steps[-1].output is output
    if not (isinstance(function, LinearFunction) and isinstance(own, PointWeights) and alone):
        end = type(function).__name__ if alone else "a residual block or a sum, to which others add"
        raise ValueError(
            "laplace is for networks that end with a Linear layer with PointEstimate, this one ends with "
            f"{end}"
        )
    prior, _ = layers[-1].modules_built()
    operator, _ = prior.draw(x.new_zeros((1, *net.replicas, 0)))
    return _Last(function.weights[0].detach(), function.bias, operator)


def _pieces(
    net: Network, likelihood: Likelihood, x: Tensor, y: Tensor, size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    function = net.draw().function
    targets = y.split(size, likelihood.points_axis)
    for some, own in zip(x.split(size, -1 - len(net.input_shape)), targets, strict=True):
        with exact_products():
            output, steps = record(function, some)
        yield steps[-1].input, output, own


def _curvature(likelihood: Likelihood, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return log P(y | f), `[R]`, and minus its second derivatives at every point, `[R, N, O, O]`."""
    with torch.enable_grad():
        values = outputs.detach().double().requires_grad_()
        log_prob = likelihood.log_prob(values, targets).sum(-1)
        (slope,) = torch.autograd.grad(log_prob.sum(), values, create_graph=True)
        rows = [
            torch.autograd.grad(column.sum(), values, retain_graph=True, materialize_grads=True)[0]
            for column in slope.unbind(-1)
        ]
    return log_prob.detach()[0], -torch.stack(rows, -1)[0]
