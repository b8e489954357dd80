"""Networks and processes in one line: layers, mean functions, starts."""

import pytest
import torch
from torch import nn

import gilib
from gilib.models import deep_gp, inducing_start, sparse_gp
from tests.support import D, assert_equal, normals, seeded, with_ones

Z = normals(12, 3, seed=1) * torch.tensor([0.3, 2.0, 1.0], dtype=D)


def processes(net):
    return [module for module in net.modules() if isinstance(module, gilib.GP)]


def test_layers_of_a_deep_process():
    net = deep_gp(3, 2, 3, inducing_points=Z, generator=seeded())
    assert [layer.describe() for layer in net.layers] == ["Residual", "Residual", "GP(3 → 2)"]
    assert [p.describe() for p in processes(net)] == ["GP(3 → 3)", "GP(3 → 3)", "GP(3 → 2)"]
    assert net.input_shape == (3,) and net.output_shape == (2,)
    assert torch.equal(net.inducing_points, Z)
    assert all(p.posterior == gilib.GlobalInducing("full") for p in processes(net))
    assert all(p.kernel == gilib.kernels.RBF() for p in processes(net))


def test_a_narrow_deep_process_starts_with_principal_directions():
    net = deep_gp(3, 1, 3, width=2, inducing_points=Z, generator=seeded())
    assert [p.describe() for p in processes(net)] == ["GP(3 → 2)", "GP(2 → 2)", "GP(2 → 1)"]
    fixed = next(module for module in net.modules() if isinstance(module, gilib.layers.FixedLinear))
    assert_equal(fixed.matrix.mT @ fixed.matrix, torch.eye(2, dtype=D), 1e-12)
    centred = Z - Z.mean(0)
    spectrum = torch.linalg.eigvalsh(centred.mT @ centred)
    assert_equal((centred @ fixed.matrix).square().sum(), spectrum[1:].sum(), 1e-9)


@pytest.mark.parametrize(
    ("points", "known"),
    [(normals(2, 3), 1), (normals(1, 3).expand(4, 3), 0), (normals(9, 3) * torch.tensor([1.0, 0.0, 0.0]), 1)],
    ids=["two", "one, repeated", "on a line"],
)
def test_points_that_do_not_tell_so_many_directions(points, known):
    with pytest.warns(UserWarning, match=f"inducing_points determine {known} of 2 principal directions"):
        deep_gp(3, 1, 2, width=2, inducing_points=points, generator=seeded())


@pytest.mark.parametrize("posterior", [gilib.FreeGaussian(), gilib.LocalInducing()])
def test_inducing_inputs_of_layers_start_where_the_mean_functions_take_them(posterior):
    net = deep_gp(3, 1, 3, width=2, posterior=posterior, inducing_points=Z, generator=seeded())
    assert net.inducing_points is None
    fixed = next(module for module in net.modules() if isinstance(module, gilib.layers.FixedLinear))
    starts = [p.inducing_inputs.detach() for p in processes(net)]
    for found, wanted in zip(starts, (Z, Z @ fixed.matrix, Z @ fixed.matrix), strict=True):
        assert_equal(found, wanted, 1e-12)


def test_hidden_layers_begin_as_their_mean_functions():
    """With narrow free Gaussians, up to what is left of the kernel's variance at the inducing points."""
    narrow = gilib.FreeGaussian(initial_scale=1e-5)
    net = deep_gp(3, 1, 2, posterior=narrow, inducing_points=Z, jitter=1e-8, generator=seeded())
    hidden = net.draw(20, generator=seeded(1)).function.functions[0]
    mean, variance = hidden.moments(Z)
    assert_equal(mean.detach(), Z.expand(20, 12, 3), 1e-4)
    assert float(variance.detach().max()) < 1e-6


def test_width_is_at_most_thirty_unless_given():
    net = deep_gp(40, 1, 2, inducing_points=normals(50, 40), generator=seeded())
    assert processes(net)[0].describe() == "GP(40 → 30)"
    assert processes(deep_gp(40, 1, 1, inducing_points=normals(50, 40)))[0].describe() == "GP(40 → 1)"


def test_a_sparse_process_is_one_layer_with_a_free_gaussian():
    net = sparse_gp(3, 2, inducing_points=Z, kernel=gilib.kernels.Matern(), jitter=1e-4, replicas=(2,))
    (layer,) = processes(net)
    assert (layer.posterior, layer.kernel) == (gilib.FreeGaussian(), gilib.kernels.Matern())
    assert layer.jitter == 1e-4 and torch.equal(layer.inducing_inputs, Z.expand(2, 12, 3))
    assert torch.equal(layer.weights.root, torch.eye(12, dtype=D).expand(2, 2, 12, 12))


def test_posteriors_by_layer_and_starts_of_replicas():
    spec = [gilib.FreeGaussian(), gilib.GlobalInducing()]
    points, targets = normals(2, 12, 3), normals(12, 1)
    net = deep_gp(3, 1, 3, posterior=spec, inducing_points=points, pseudo_outputs=targets, replicas=(2,))
    assert [p.posterior for p in processes(net)] == [spec[0], spec[0], spec[1]]
    assert torch.equal(processes(net)[0].inducing_inputs, points)
    assert torch.equal(processes(net)[-1].weights.pseudo.outputs, targets.expand(2, 12, 1))


def test_starts_by_k_means_are_the_centres_of_clusters():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]], dtype=D)
    x = (centres[:, None] + 0.1 * normals(3, 20, 2)).flatten(0, 1)
    found = inducing_start(x, 3, seed=1)
    assert found.dtype == D
    order = torch.cdist(centres, found).argmin(1)
    wanted = x.unflatten(0, (3, 20)).mean(1)
    assert sorted(order.tolist()) == [0, 1, 2]  # from this seed; others end in a local optimum
    assert_equal(found[order], wanted, 1e-9)


def test_starts_by_a_subset_are_rows_each_once():
    x = normals(20, 2).float()
    found, again, other = (inducing_start(x, 8, "subset", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(found, again) and not torch.equal(found, other) and found.dtype == torch.float32
    rows = [int((x == row).all(-1).nonzero()) for row in found]
    assert len(set(rows)) == 8
    found[0] = 99.0
    assert not bool((x == 99.0).any())


def shorts(net):
    return [layer.posterior.short_name for layer in net.layers if layer.has_weights]


def test_widths_and_nonlinearities():
    net = gilib.models.mlp(2, (5, 4), 3, inducing_points=normals(6, 2), dtype=torch.float32)
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    described = [layer.describe() for layer in net.layers]
    assert described == ["Linear(2 → 5)", "ReLU", "Linear(5 → 4)", "ReLU", "Linear(4 → 3)"]
    assert net.output_shape == (3,) and net.input_shape == (2,)


def test_no_hidden_layer_is_linear_regression_and_no_activation_a_deep_linear_network():
    assert len(list(gilib.models.mlp(2, (), 1, inducing_points=normals(6, 2)).layers)) == 1
    net = gilib.models.mlp(2, (4,), 1, inducing_points=normals(6, 2), activation=None)
    draw = net.draw(3, generator=seeded())
    first, second = (f.weights for f in draw.function.functions)
    x = normals(5, 2)
    assert_equal(draw(x), (with_ones(with_ones(x) @ first) @ second).detach())


@pytest.mark.parametrize(
    ("posterior", "expected"),
    [
        (None, ["fac", "fac", "gi"]),
        ((gilib.FromPrior(), gilib.GlobalInducing()), ["rand", "rand", "gi"]),
        ([gilib.LocalInducing(), gilib.Factorised(), gilib.GlobalInducing()], ["li", "fac", "gi"]),
    ],
)
def test_posteriors_by_layer(posterior, expected):
    net = gilib.models.mlp(2, (5, 4), 3, posterior=posterior, inducing_points=normals(6, 2))
    assert shorts(net) == expected


@pytest.mark.parametrize("bias", [True, False])
def test_bias_counts_as_an_input(bias):
    net = gilib.models.mlp(2, (5,), 3, inducing_points=normals(6, 2), bias=bias)
    assert [layer.fan_in for layer in net.layers if layer.has_weights] == [2 + bias, 5 + bias]
    assert net.noise_size == (2 + bias) * 5 + (5 + bias) * 3
    outputs = net.draw(2)(torch.zeros(1, 2, dtype=D))
    assert bool((outputs == 0).all()) != bias


def test_starting_values_of_the_paper():
    """App. O: log-precisions -4, 0 in the last layer; targets as the last pseudo-outputs; U_0 as given."""
    points, targets = normals(6, 2), normals(6, 1, seed=1)
    start = {"inducing_points": points, "pseudo_outputs": targets}
    net = gilib.models.mlp(2, (5, 4), 1, posterior=gilib.GlobalInducing(), **start)
    posteriors = [layer.weights.pseudo for layer in net.layers if layer.has_weights]
    for posterior, start in zip(posteriors, (-4.0, -4.0, 0.0), strict=True):
        assert_equal(posterior.log_precision.detach(), torch.full((6,), start))
    assert torch.equal(posteriors[-1].outputs, targets)
    assert torch.equal(net.inducing_points, points)
    assert not torch.equal(posteriors[0].outputs[:, :1], targets)
    with torch.no_grad():
        net.inducing_points.add_(1.0)
        posteriors[-1].outputs.add_(1.0)
    assert torch.equal(points, normals(6, 2)) and torch.equal(targets, normals(6, 1, seed=1))  # copies


@pytest.mark.parametrize("activation", [nn.LeakyReLU(0.2), nn.Sequential(nn.Tanh(), nn.Hardtanh(-0.5, 0.25))])
def test_activations_with_arguments(activation, tmp_path):
    """Of which every place has its own, and which files keep."""
    x = normals(6, 2)
    net = gilib.models.mlp(2, (3, 3), 1, posterior=gilib.Factorised(), activation=activation, dtype=D)
    first, second = (layer.module for layer in net.layers if not layer.has_weights)
    assert first is not second and first is not activation and str(first) == str(activation)
    noise = normals(3, net.noise_size)
    draw, outputs = net.draw(noise=noise), x
    for k in range(3):
        outputs = draw.function.functions[2 * k](activation(outputs) if k else outputs)
    assert torch.equal(draw(x), outputs)
    gilib.save(tmp_path / "model.pt", net, gilib.Gaussian(0.1))
    again, *_ = gilib.load(tmp_path / "model.pt")
    assert torch.equal(again.draw(noise=noise)(x), draw(x))


def test_inducing_points_are_a_parameter_only_where_a_layer_draws_from_them():
    for posterior, wanted in ((gilib.GlobalInducing(), True), (gilib.Factorised(), False)):
        net = gilib.models.mlp(2, (5,), 1, posterior=posterior, inducing_points=normals(6, 2))
        assert (net.inducing_points is not None) == wanted
