"""The convolutional layer: draws and estimates, and its posterior against dense regression on patches."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import conv2d, pad, unfold

import gilib
from gilib.layers import Conv2d
from gilib.posteriors import BuildContext
from gilib.regression import regress
from gilib.regression.primal import prior_log_prob
from gilib.statistics import shared_statistics
from tests.support import PRIORS, D, assert_equal, assert_same_mean, normals, refusals, seeded, shaken

SHAPE, OUTPUTS, POINTS = (2, 5, 4), 3, 4
POSTERIORS = {
    "fac": gilib.Factorised(),
    "rand": gilib.FromPrior(),
    "li": gilib.LocalInducing(num_inducing=6, precision="per_output"),
    "gi": gilib.GlobalInducing(),
}
EVERY = pytest.mark.parametrize("name", POSTERIORS)


def built(posterior=None, prior=None, kernel=3, *, shape=SHAPE, replicas=(), last=False, dtype=D, **settings):
    layer = Conv2d(shape[0], OUTPUTS, kernel, posterior, prior, **settings)
    layer.build(shape, BuildContext(POINTS, replicas, None, last, seeded(), dtype))
    return shaken(layer)


def images(*lead, shape=SHAPE, seed=1):
    return normals(*lead, *shape, seed=seed)


def draw(layer, *lead, samples=3):
    """A draw, from inducing images if the layer takes any."""
    return layer.draw(images(*lead, POINTS) if layer.needs_inducing else None, samples, generator=seeded(5))


@pytest.mark.parametrize(
    ("kernel", "settings", "prior"),
    [
        (3, {"boundary": "circular"}, "scale"),
        ((1, 3), {"boundary": "exact", "stride": (2, 1)}, "spatial"),
        (2, {"boundary": "circular", "padding": 1, "stride": 2}, "spatial"),
        (3, {"boundary": "exact", "padding": 0}, "standard"),
    ],
)
def test_the_posterior_is_dense_regression_on_patches(kernel, settings, prior):
    layer = built(gilib.GlobalInducing(), PRIORS[prior], kernel, **settings)
    u, noise = images(POINTS), layer.base_noise(3, seeded(2))
    found = layer.draw(u, noise=noise)
    windows, posterior = layer.windows, layer.weights
    above, left = windows.padding
    mode = "circular" if settings["boundary"] == "circular" else "constant"
    patches = unfold(pad(u, (left, left, above, above), mode=mode), windows.kernel, stride=windows.stride)
    features = patches.mT.flatten(0, 1)  # [M windows, I]
    targets = posterior.pseudo.outputs.flatten(2).mT.flatten(0, 1)
    precision = posterior.pseudo.log_precision.exp().repeat_interleave(patches.shape[-1])
    precision_of_weights, log_pq_prior = layer.hyperparameters.draw(
        noise[:, : layer.hyperparameters.noise_size]
    )
    dense = regress(shared_statistics(features, targets, precision), precision_of_weights)
    weights, log_pq = dense.draw(noise[:, layer.hyperparameters.noise_size :].unflatten(-1, (-1, OUTPUTS)))
    assert_equal(found.function.weights.detach(), weights.detach(), 1e-9)
    assert_equal(found.log_pq.detach(), (log_pq + log_pq_prior).detach(), 1e-9)


@pytest.mark.parametrize(
    ("prior", "settings"),
    [
        ("spatial", {"boundary": "exact", "stride": 2}),
        ("scale", {"boundary": "circular"}),
        ("neal", {"padding": 0}),
    ],
)
def test_few_windows_give_the_same_posterior_from_a_system_of_their_number(prior, settings):
    """Means and ratios of both systems: 216 inputs, at most 36 windows, samples and replicas."""
    shape = (24, 3, 3)
    layer = built(prior=PRIORS[prior], shape=shape, replicas=(2,), **settings)
    assert layer.weights.is_few
    x = images(3, 2, POINTS, shape=shape)
    precision, _ = layer.hyperparameters.draw(normals(3, 2, layer.hyperparameters.noise_size))
    few = layer.weights.condition(x, precision)
    assert isinstance(few, gilib.regression.DualWeightPosterior)
    whole = regress(layer.weights.statistics(x, D), precision)
    assert_equal(few.mean.detach(), whole.mean.detach(), 1e-9)
    weights, log_pq = few.draw(normals(3, 2, layer.fan_in, OUTPUTS))
    ratio = prior_log_prob(weights, precision, OUTPUTS) - whole.log_prob(weights)
    assert_equal(log_pq.detach(), ratio.detach(), 1e-8)


@EVERY
def test_one_pixel_is_a_dense_layer_without_bias(name):
    conv = built(POSTERIORS[name], PRIORS["spatial"], 1, shape=(2, 1, 1))
    dense = gilib.Linear(2, OUTPUTS, POSTERIORS[name], PRIORS["spatial"], bias=False)
    dense.build((2,), BuildContext(POINTS, dtype=D))
    with torch.no_grad():
        for key, parameter in dense.named_parameters():
            parameter.copy_(conv.get_parameter(key).reshape(parameter.shape))
    u, x, noise = normals(POINTS, 2), normals(6, 2, seed=1), dense.base_noise(3, seeded(2))
    one = conv.draw(u[..., None, None], noise=noise)
    other = dense.draw(u, noise=noise)
    assert_equal(one(x[..., None, None])[..., 0, 0].detach(), other(x).detach(), 1e-10)
    assert_equal(one.log_pq.detach(), other.log_pq.detach(), 1e-10)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("weights", "points"), [((3, 2), ()), ((3, 2), (2,)), ((1,), (4,)), ((), (4,)), ((3,), (1,))]
)
def test_a_function_is_a_convolution_and_its_images_broadcast(weights, points, stride):
    layer, x = built(stride=stride, padding=(0, 1)), images(*points, 6)
    function, lead = layer.function(normals(*weights, 18, OUTPUTS)), torch.broadcast_shapes(weights, points)
    outputs = function(x)
    assert outputs.shape == (*lead, 6, *layer.build(SHAPE, BuildContext(POINTS, dtype=D)))
    kernels = function.weights.mT.unflatten(-1, (2, 3, 3)).expand(*lead, 3, 2, 3, 3).reshape(-1, 3, 2, 3, 3)
    each = zip(x.expand(*lead, *x.shape[-4:]).reshape(-1, 6, *SHAPE), kernels, strict=True)
    wanted = torch.stack([conv2d(a, b, stride=stride, padding=(0, 1)) for a, b in each])
    assert_equal(outputs.flatten(0, -5), wanted)


def test_local_inducing_points_are_patches_as_many_as_the_fan_in():
    posterior = built(gilib.LocalInducing()).weights
    assert posterior.inducing_inputs.shape == (18, 18) and posterior.pseudo.outputs.shape == (18, OUTPUTS)


@pytest.mark.parametrize(("prior", "boundary"), [("spatial", "exact"), ("scale", "circular")])
def test_a_draw_stays_on_its_device_and_reads_nothing_back(prior, boundary):
    """The meta device holds no data: a copy to the CPU, or a decision on a value, would raise."""
    layer = Conv2d(8, 6, 3, gilib.GlobalInducing(), PRIORS[prior], boundary=boundary)
    context = BuildContext(POINTS, (2,), dtype=torch.float32, device=torch.device("meta"))
    layer.build((8, 12, 12), context)
    with torch.device("cpu"):
        draw = layer.draw(torch.empty(POINTS, 8, 12, 12, device="meta"), 3)
        outputs = draw(torch.empty(5, 8, 12, 12, device="meta"))
        (outputs.sum() + draw.log_pq.sum()).backward()
    assert outputs.device.type == "meta" and outputs.shape == (3, 2, 5, 6, 12, 12)


REFUSED = {
    "channels": (lambda: built(shape=(2, 5, 4)).build((3, 5, 4), BuildContext(4)), r"takes images of shape"),
    "points": (lambda: Conv2d(2, 3, 3).build((2,), BuildContext(4)), r"takes images of shape .*got \[2\]"),
    "boundary": (lambda: Conv2d(2, 3, 3, boundary="zero"), "'zero': choose one of 'circular', 'exact'"),
    "precision": (lambda: built(gilib.GlobalInducing(precision="full")), "one precision per inducing image"),
    "inducing size": (lambda: built().draw(normals(POINTS, 2, 6, 4)), r"must have shape \[..., 4, 2, 5, 4\]"),
    "inducing number": (lambda: built().draw(normals(1, *SHAPE)), r"must have shape \[..., 4, 2, 5, 4\]"),
    "evaluation": (lambda: draw(built())(normals(6, 3, 5, 4)), r"takes images \[..., N, 2, 5, 4\], got \[6,"),
    "pseudo-outputs": (
        lambda: gilib.Network(images(4), [Conv2d(2, 3, 3)], pseudo_outputs=normals(4, 3)),
        r"pseudo_outputs must have shape \[4, 3, 5, 4\].*pixels at a convolution",
    ),
}


test_bad_input = refusals(REFUSED)


def factorised(size=0.5):
    """A convolution whose weights are far from certain."""
    layer = built(gilib.Factorised(initial_variance=size))
    layer.weights.log_variance.data += normals(*layer.weights.log_variance.shape, seed=5)
    return layer


def test_an_estimate_has_a_kernel_for_every_image():
    layer, x = factorised(), images(4)
    noise = layer.estimate_noise(3, 4, seeded(1))
    estimate = layer.estimate(noise=noise)
    white = noise.draw.unflatten(-1, (18, 3))[:, None]  # [S, 1, I, O]
    inputs, outputs = noise.points.sign().split([2, 3], -1)
    flips = inputs.repeat_interleave(9, -1)[..., None] * outputs[..., None, :]  # [S, N, I, O]
    weights = layer.weights.mean + (0.5 * layer.weights.log_variance).exp() * flips * white
    kernels = weights.mT.unflatten(-1, (2, 3, 3))
    wanted = [[conv2d(x[n : n + 1], kernels[s, n], padding=1)[0] for n in range(4)] for s in range(3)]
    assert_equal(estimate(x), torch.stack([torch.stack(row) for row in wanted]))
    dists = Normal(layer.weights.mean, layer.weights.deviation), Normal(torch.zeros((), dtype=D), 18**-0.5)
    assert_equal(estimate.log_pq, -kl_divergence(*dists).sum().expand(3))


@pytest.mark.parametrize(
    "posterior",
    [
        *POSTERIORS.values(),
        gilib.posteriors.Conjugate(),
        gilib.posteriors.Dropout(0.4),
        gilib.posteriors.MatrixGaussian(),
    ],
    ids=lambda posterior: posterior.short_name,
)
def test_every_estimate_has_the_spread_of_the_draws_where_pixels_are_averaged(posterior):
    layer, x, count = built(posterior), images(3, seed=9), 4000
    given = images(POINTS) if layer.needs_inducing else None
    draw = layer.draw(given, count, generator=seeded(1))
    estimate = layer.estimate(given, count, 3, generator=seeded(2))
    squares = [each(x).mean((-2, -1)).square().sum(-1).detach() for each in (draw, estimate)]
    assert_same_mean(*squares)
