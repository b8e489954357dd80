"""Hard kernels in float32 survive, as exact as stated, or say what failed; mistakes are refused."""

import math
import warnings

import pytest
import torch

import gilib
from gilib.kernels import RBF, ArcCosine, DotProduct, Matern
from tests.kernels.cases import textbook
from tests.support import D, normals, refusals, seeded, shaken
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


POINTS, DATA, TARGETS = normals(5, 2), normals(8, 2, seed=1), normals(8, 1, seed=2)
NAN = POINTS.clone().index_fill_(0, torch.tensor([2]), math.nan)
FREE, GLOBAL = gilib.FreeGaussian(5), gilib.GlobalInducing()


def network(*layers, inducing=POINTS, **settings):
    return gilib.Network(inducing, list(layers), generator=seeded(), **settings)


def deep(*widths, **settings):
    settings.setdefault("inducing_points", POINTS)
    return gilib.models.deep_gp(*(widths or (2, 1)), **settings)


VALUES = {
    "unequal widths in a sum": (
        lambda: network(gilib.Sum([gilib.GP(2, 3), gilib.layers.FixedLinear(2, 2)])),
        r"the branches of a sum must give one shape, got \[\[3\], \[2\]\]",
    ),
    "inducing inputs of another number": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(4, 2))),
        r"inducing_inputs must have shape \[5, 2\] .*got \[4, 2\]",
    ),
    "inducing inputs of other replicas": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(3, 5, 2)), replicas=(2,)),
        r"inducing_inputs must have shape \[2, 5, 2\] .*got \[3, 5, 2\]",
    ),
    "inducing inputs with NaN": (
        lambda: network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=NAN)),
        "inducing_inputs holds 2 NaN or infinite entries",
    ),
    "inducing inputs with global inducing": (
        lambda: gilib.GP(2, 1, posterior=GLOBAL, inducing_inputs=POINTS),
        "of a layer with GlobalInducing are what the layers below pass on: give the network inducing_points",
    ),
    "local without a number": (
        lambda: network(gilib.GP(2, 1, posterior=gilib.LocalInducing()), inducing=None),
        r"say how many inducing inputs the layer has: LocalInducing\(num_inducing=100\)",
    ),
    "deep: wider than the inputs": (lambda: deep(2, 1, width=3), "wider, got width=3.*build wider ones from"),
    "deep: too few points for directions": (
        lambda: deep(4, 1, width=3, inducing_points=normals(2, 4)),
        "2 inducing_points do not determine 3 principal directions: give more",
    ),
    "start: method": (lambda: gilib.models.inducing_start(DATA, 3, "kmedoids"), "unknown method 'kmedoids':"),
    "start: too many": (lambda: gilib.models.inducing_start(DATA, 9), "at least as many inputs, got 8"),
    "a layer drawn from fewer inducing points": (
        lambda: next(iter(network(gilib.GP(2, 1)).layers)).draw(POINTS[:4]),
        r"GP\(2 → 1\) was built for inducing inputs \[..., 5, 2\], got \[4, 2\]",
    ),
    "two numbers of inducing points": (
        lambda: deep(posterior=gilib.FreeGaussian(3), inducing_points=POINTS),
        "has 3 inducing points of its own, but inducing_points gives initial values for 5: leave",
    ),
    "weights that are to be integrated out": (
        lambda: gilib.Network(
            None, [gilib.Linear(2, 1, posterior=gilib.LocalInducing(4, marginalise=True))], input_shape=(2,)
        ),
        "integrates the inducing outputs of a Gaussian process out, and weights are drawn: leave it out",
    ),
}
KINDS = {
    "a posterior over weights": (lambda: gilib.GP(2, 1, posterior=gilib.Factorised()), "got Factorised"),
    "the prior as a posterior": (lambda: gilib.GP(2, 1, posterior=gilib.FromPrior()), "one over what it is"),
    "one layer with a width": (
        lambda: gilib.models.sparse_gp(2, 1, inducing_points=POINTS, width=1, depth=2),
        "the settings replicas, generator, dtype, jitter, num_features, but no depth, width",
    ),
    "iwbo of paths": (
        lambda: gilib.iwbo(network(gilib.GP(2, 1)).draw(3), gilib.Gaussian(0.1), DATA, TARGETS),
        r"paths of Gaussian processes are so on average only.*net.joint_draw\(3, 8\)",
    ),
}


test_values_that_do_not_fit = refusals(VALUES)
test_things_of_the_wrong_kind = refusals(KINDS, TypeError)


def test_what_the_entries_break_is_sound_to_begin_with():
    assert deep(2, 1, width=1).output_shape == (1,)
    net = network(gilib.GP(2, 1, posterior=FREE, inducing_inputs=normals(3, 5, 2)), replicas=(3,))
    layer = next(iter(net.layers))
    assert torch.equal(layer.inducing_inputs, normals(3, 5, 2)) and layer.inducing_inputs.dtype == D


def test_a_layer_says_that_it_is_not_built():
    for layer in (gilib.GP(2, 1, num_features=8), gilib.Linear(2, 1)):
        for face in ("draw", "estimate", "joint_draw"):
            with pytest.raises(RuntimeError, match=r"\(2 → 1\) is not built: put it into a gilib.Network"):
                getattr(layer, face)(POINTS)


def test_a_layer_with_global_inducing_says_what_it_draws_from():
    layer = next(iter(network(gilib.GP(2, 1)).layers))
    with pytest.raises(ValueError, match=r"GP\(2 → 1\) needs inducing points: call draw\(u\)"):
        layer.draw()


def test_inducing_inputs_say_how_many_they_are():
    inputs = normals(4, 2)
    for given in (inputs, inputs.numpy()):
        process = gilib.GP(2, 1, posterior=gilib.FreeGaussian(), inducing_inputs=given)
        layer = network(process).layers[0]
        assert layer.num_inducing == 4 and torch.equal(layer.inducing_inputs, inputs)


def test_centres_that_coincide_are_named():
    rows = torch.arange(6.0)[:, None].repeat(5, 1)
    with pytest.warns(UserWarning, match=r"only \d of the 12 centres differ, because rows of x are repeated"):
        gilib.models.inducing_start(rows, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(gilib.models.inducing_start(rows.unique(dim=0), 6).unique()) == 6
