"""Hard kernels in float32 storage: they survive, as exact as stated, or say which layer failed and why."""

import math

import pytest
import torch

import gilib
from gilib.kernels import RBF, ArcCosine, DotProduct, Matern
from tests.kernels.cases import textbook
from tests.support import normals, seeded, shaken
from tests.support.processes import layer_of

X = normals(30, 2, seed=1).float().double()
Y = (X.sin() + 0.2 * normals(30, 2, seed=2)).float().double()
Z = torch.cat([X[:6], normals(4, 2, seed=3)]).float().double()  # six inducing inputs are data
LIKELIHOOD = gilib.Gaussian(0.05)
POSTERIORS = {
    "global": gilib.GlobalInducing("full"),
    "local": gilib.LocalInducing(num_inducing=10),
    "free": gilib.FreeGaussian(num_inducing=10, initial_scale=0.5),
}
UNIT = 2.0**-24


def pair(posterior, kernel, *, layers=1, inducing=Z, jitter=1e-5):
    """The same network in float32 and in float64, its parameters float32 numbers."""

    def made(dtype):
        points = inducing.to(dtype)
        own = {} if posterior.is_global else {"inducing_inputs": points}
        return gilib.Network(
            points if posterior.is_global else None,
            [gilib.GP(2, 2, kernel, posterior, jitter=jitter, num_features=32, **own) for _ in range(layers)],
            pseudo_outputs=Y[:10].to(dtype) if posterior.is_global else None,
            input_shape=(2,),
            generator=seeded(),
            dtype=dtype,
        )

    net, exact = made(torch.float32), made(torch.float64)
    for layer in net.layers:
        shaken(layer.weights, 0.1)
    exact.load_state_dict({name: value.double() for name, value in net.state_dict().items()})
    return net, exact


def bound_and_gradients(net, noise, x=X):
    dtype = noise.draw.dtype
    bound = gilib.elbo(net.estimate(noise=noise), LIKELIHOOD, x.to(dtype), Y.to(dtype), num_data=30)
    names, parameters = zip(*net.named_parameters(), strict=True)
    gradients = torch.autograd.grad(bound, parameters)
    return bound.detach().double(), dict(zip(names, (g.double() for g in gradients), strict=True))


@pytest.mark.parametrize(("kernel", "lengthscale"), [(RBF, 0.3), (RBF, 100.0), (Matern, 0.01), (Matern, 1.0)])
@pytest.mark.parametrize("name", POSTERIORS)
def test_gradients_of_a_float32_layer_are_those_of_float64(name, kernel, lengthscale):
    """Values in float32 meet R⁻¹ once, which enlarges a rounding by s = |R⁻¹|, at most the root of 1/jitter.

    So the bound and the gradients of the posterior are good to some s/2²⁴; those of inducing inputs and
    hyper-parameters, which pass R⁻¹ forward and back, to some s²/2²⁴. Data are within a lengthscale of
    inducing inputs, six of which are data. Allowed are sixteen roundings of the largest entry.
    """
    near = Z.repeat(3, 1) + min(lengthscale, 1.0) * normals(30, 2, seed=5)
    x = torch.cat([X[:6], near[6:]]).float().double()
    net, exact = pair(POSTERIORS[name], kernel(lengthscale))
    noise = net.estimate_noise(3, 30, seeded(4))
    bound, gradients = bound_and_gradients(net, noise, x)
    truth, wanted = bound_and_gradients(
        exact, gilib.randomness.Noise(noise.draw.double(), noise.points.double()), x
    )
    root = torch.linalg.cholesky(textbook(kernel(lengthscale), Z, Z) + 1e-5 * torch.eye(10))
    once = 16 * UNIT * float(torch.linalg.svdvals(torch.linalg.inv(root)).max())
    twice = once**2 / (16 * UNIT)
    assert float((bound - truth).abs()) <= once * float(truth.abs())
    for key, gradient in gradients.items():
        kind = twice if "hyperparameters" in key or "inducing" in key else once
        largest = float(wanted[key].abs().max())
        assert largest > 1e-3, key  # the data tell something about it
        assert float((gradient - wanted[key]).abs().max()) <= kind * largest, key


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        *(("global", kernel) for kernel in (DotProduct(), ArcCosine(), RBF(1e-3), RBF(1e3) * DotProduct())),
        *((name, RBF(100.0)) for name in POSTERIORS),
    ],
)
def test_near_singular_kernels_train(name, kernel):
    net, _ = pair(POSTERIORS[name], kernel, layers=2)
    x, y = X.float(), Y.float()
    history = gilib.fit(net, gilib.Gaussian(0.1, learn=True), x, y, steps=5, seed=0, progress=False)
    assert bool(torch.isfinite(history.elbo).all())
    draw = net.draw(3, generator=seeded(1))
    assert bool(torch.isfinite(draw(x)).all())
    assert bool(torch.isfinite(net.joint_draw(3, 30, generator=seeded(2))(x)).all())


def test_without_jitter_a_singular_kernel_says_which_layer_and_what():
    net, _ = pair(gilib.GlobalInducing(), RBF(), inducing=X[:2].repeat(5, 1), jitter=0.0)
    message = (
        r"layer 0, GP\(2 → 2\): the kernel matrix of the inducing inputs is not positive definite "
        r"\(eigenvalues .* condition .* in torch.float64: points that coincide .* raise the layer's jitter"
    )
    for face in (lambda: net.draw(2), lambda: net.estimate(2, 30), lambda: net.joint_draw(2, 30)):
        with pytest.raises(gilib.linalg.FactorisationError, match=message):
            face()


def test_the_place_is_named_inside_blocks():
    layers = [
        gilib.layers.FixedLinear(2, 2),
        gilib.Sum([gilib.layers.FixedLinear(2, 2), gilib.GP(2, 2, jitter=0.0)]),
    ]
    net = gilib.Network(X[:3].repeat(2, 1), layers, generator=seeded())
    with pytest.raises(
        gilib.linalg.FactorisationError, match=r"layer 1, Sum: branch 1, GP\(2 → 2\): the kernel matrix"
    ):
        net.draw(2)


def test_diverged_hyper_parameters_are_reported():
    net, _ = pair(gilib.FreeGaussian(10), RBF())
    with torch.no_grad():
        layer_of(net).hyperparameters.log["lengthscale"].fill_(math.nan)
    with pytest.raises(gilib.linalg.FactorisationError, match="layer 0, GP.*hold NaN or infinite entries"):
        net.estimate(2, 30)


def lost(lengthscale, frequency, log_precision, face):
    """Largest error of a float32 layer's means, in standard deviations of its draws."""
    z, x = (torch.linspace(-2, 2, n)[:, None] for n in (100, 57))
    found = {}
    for dtype in (torch.float32, torch.float64):
        posterior = gilib.GlobalInducing("full", log_precision=log_precision)
        layer = gilib.GP(1, 1, RBF(lengthscale), posterior, num_features=8)
        net = gilib.Network(z, [layer], pseudo_outputs=(frequency * z).sin(), dtype=dtype)
        with torch.no_grad():
            if face == "estimate":
                draw, points = torch.randn(50, 100, generator=seeded(1)), torch.zeros(50, 57, 1)
                noise = gilib.randomness.Noise(draw.to(dtype), points.to(dtype))
                mean = net.estimate(noise=noise).moments(x.to(dtype)).mean
            else:
                draw = torch.randn(50, net.layers.noise_size, generator=seeded(1))
                mean = net.draw(noise=draw.to(dtype))(x.to(dtype))
        found[dtype] = mean.double()
    exact = found[torch.float64]
    return float(((found[torch.float32] - exact).abs() / exact.std(0)).max())


@pytest.mark.parametrize("face", ["estimate", "path"])
@pytest.mark.parametrize("log_precision", [2.0, 9.0, 14.0])
@pytest.mark.parametrize(("lengthscale", "frequency"), [(10.0, 3.0), (10.0, 1.0), (3.0, 3.0), (1.0, 3.0)])
def test_outputs_pinned_down_to_rough_functions(lengthscale, frequency, log_precision, face):
    """Their w = R⁻¹ u is large, and aᵀw a small difference: no mean is off by a standard deviation."""
    assert lost(lengthscale, frequency, log_precision, face) < 1.0
