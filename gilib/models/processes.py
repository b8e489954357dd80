"""Gaussian processes: sparse, deep and heteroscedastic."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arguments import Count, Fraction, checked
from gilib.kernels import Kernel
from gilib.layers import GP, Concat, FixedLinear, Layer, Residual, Sum
from gilib.layers.gp import check_inducing_posterior
from gilib.models.networks import as_points, one_per_layer
from gilib.network import Network
from gilib.optional import require
from gilib.posteriors import FreeGaussian, GlobalInducing, InducingPosterior, Posterior
from gilib.randomness import GeneratorLike
from gilib.validation import check_choice, check_count, check_precision, check_tensor, from_numpy

SETTINGS = ("replicas", "generator", "dtype", "jitter", "num_features")  # of `sparse_gp`


@checked
def deep_gp(
    in_features: Count,
    out_features: Count,
    depth: Count = 2,
    *,
    width: Count | None = None,
    posterior: Posterior | Sequence[Posterior] | None = None,
    kernel: Kernel | None = None,
    inducing_points: Tensor | None = None,
    pseudo_outputs: Tensor | None = None,
    replicas: tuple[int, ...] = (),
    generator: GeneratorLike | None = None,
    dtype: torch.dtype | None = None,
    jitter: Fraction = 1e-5,
    num_features: Count = 1024,
) -> Network:
    """Build a deep Gaussian process with linear mean functions (Salimbeni & Deisenroth, 2017).

    A hidden layer as wide as its input computes x + f(x). The mean function of a narrower first layer
    projects onto the principal directions of the inducing points. The last layer has mean zero.

    Args:
        in_features: D, the number of inputs.
        out_features: O, the number of outputs.
        depth: number of layers, including the last one; 1: a sparse Gaussian process.
        width: width of the hidden layers, at most D; None: D, but at most 30.
        posterior: one posterior for all layers, two, `(lower, last)`, or one for each layer: `GlobalInducing`
            (the default, with a full precision), `LocalInducing`, `FreeGaussian`, `PropagatedGaussian` or
            `PointEstimate`.
        kernel: kernel of every layer; default `RBF()`.
        inducing_points: initial inducing points, `[M, D]` or `[R, M, D]`. They serve as the network's, and,
            after the mean functions below, as those of each layer that has its own. None: standard normals,
            in the number that the posteriors specify.
        pseudo_outputs: initial pseudo-outputs of a last layer with `GlobalInducing`, `[M, O]`.
        replicas: shape of the replica axes.
        generator: source of the initial values.
        dtype: dtype of the parameters.
        jitter: see `GP`.
        num_features: see `GP`.

    >>> net = deep_gp(3, 1, depth=2, inducing_points=torch.randn(20, 3))
    >>> net.draw(10)(torch.zeros(4, 3)).shape
    torch.Size([10, 4, 1])
    """
    width = min(in_features, 30) if width is None else width
    if width > in_features and depth > 1:
        raise ValueError(
            f"hidden layers may be as wide as the inputs, {in_features}, and not wider, got width={width}: "
            "their mean function is linear; build wider ones from gilib.GP and gilib.Sum"
        )
    if inducing_points is not None:
        inducing_points = as_points(inducing_points, in_features)
    posteriors = one_per_layer(GlobalInducing("full") if posterior is None else posterior, depth)
    widths = [in_features, *[width] * (depth - 1), out_features]
    settings = {"jitter": jitter, "num_features": num_features}
    return Network(
        inducing_points,
        _with_mean_functions(widths, kernel, posteriors, inducing_points, settings),
        pseudo_outputs=pseudo_outputs,
        input_shape=(in_features,),
        replicas=replicas,
        generator=generator,
        dtype=dtype,
    )


def _with_mean_functions(
    widths: Sequence[int],
    kernel: Kernel | None,
    posteriors: Sequence[Posterior],
    start: Tensor | None,
    settings: dict[str, Any],
) -> list[Layer | nn.Module]:
    """Return layers of processes; all but the last are added to the identity or to principal directions."""
    layers: list[Layer | nn.Module] = []
    for inputs, outputs, given in zip(widths, widths[1:], posteriors, strict=False):
        posterior = check_inducing_posterior(given)
        _check_number(posterior, start)
        own: dict[str, Any] = {} if posterior.is_global else {"inducing_inputs": start}
        process = GP(inputs, outputs, kernel, posterior, **settings, **own)
        if len(layers) == len(posteriors) - 1:
            return [*layers, process]
        if inputs == outputs:
            layers.append(Residual([process]))
            continue
        matrix = principal_directions(inputs, outputs, start)
        layers.append(Sum([process, FixedLinear(inputs, outputs, matrix)]))
        start = None if start is None or matrix is None else start @ matrix
    return layers


def _check_number(posterior: InducingPosterior, start: Tensor | None) -> None:
    own = getattr(posterior, "num_inducing", None)
    if start is not None and own is not None and not posterior.is_global and own != start.shape[-2]:
        raise ValueError(
            f"{posterior!r} has {own} inducing points of its own, but inducing_points gives initial values "
            f"for {start.shape[-2]}: leave num_inducing out, or give as many"
        )


@checked
def sparse_gp(
    in_features: Count,
    out_features: Count,
    *,
    inducing_points: Tensor,
    kernel: Kernel | None = None,
    **settings: Any,
) -> Network:
    """Build a sparse variational Gaussian process (Hensman, Fusi & Lawrence, 2013).

    Args:
        in_features: D, the number of inputs.
        out_features: O, the number of outputs.
        inducing_points: initial inducing inputs, `[M, D]`.
        kernel: the kernel; default `RBF()`.
        settings: `replicas`, `generator`, `dtype`, `jitter` and `num_features`, as for `deep_gp`.

    >>> sparse_gp(3, 1, inducing_points=torch.randn(20, 3)).draw(10)(torch.zeros(4, 3)).shape
    torch.Size([10, 4, 1])
    """
    if "posterior" in settings:
        raise TypeError(
            "sparse_gp has the posterior FreeGaussian: deep_gp(..., depth=1, posterior=...) accepts others"
        )
    if unknown := set(settings) - set(SETTINGS):
        raise TypeError(
            f"sparse_gp has one layer and the settings {', '.join(SETTINGS)}, but no "
            f"{', '.join(sorted(unknown))}: see deep_gp"
        )
    settings |= {"posterior": FreeGaussian(), "kernel": kernel, "inducing_points": inducing_points}
    return deep_gp(in_features, out_features, 1, **settings)


@checked
def gp_classifier(
    in_features: Count,
    classes: Count,
    *,
    inducing_points: Tensor,
    kernel: Kernel | None = None,
    replicas: tuple[int, ...] = (),
    generator: GeneratorLike | None = None,
    dtype: torch.dtype | None = None,
    jitter: Fraction = 1e-5,
    num_features: Count = 1024,
) -> Network:
    """Build a sparse process for C ≥ 2 classes: C - 1 processes, and the C logits that they make.

    Softmax ignores what all logits share. The C - 1 contrasts of C independent processes give the same prior
    of the class probabilities, and a higher bound. Use the likelihood `gilib.likelihoods.Categorical`, and
    train by `gilib.training.Collapsed`. Other arguments are those of `sparse_gp`.

    >>> gp_classifier(3, 4, inducing_points=torch.randn(20, 3)).draw(10)(torch.zeros(5, 3)).shape
    torch.Size([10, 5, 4])
    """
    check_count(classes, "classes", 2)
    points = as_points(inducing_points, in_features)
    settings: dict[str, Any] = {"jitter": jitter, "num_features": num_features, "inducing_inputs": points}
    process = GP(in_features, classes - 1, kernel, FreeGaussian(), **settings)
    return Network(
        points,
        [process, FixedLinear(classes - 1, classes, contrasts(classes).to(points))],
        input_shape=(in_features,),
        replicas=replicas,
        generator=generator,
        dtype=dtype,
    )


def contrasts(classes: int) -> Tensor:
    """Return C - 1 orthonormal rows that sum to zero, each a class against all before it, `[C - 1, C]`."""
    sizes = torch.arange(1, classes, dtype=torch.float64)
    rows = torch.ones(classes - 1, classes).tril() - sizes.diag_embed(1)[:-1]
    return torch.nn.functional.normalize(rows)


@checked
def heteroscedastic_gp(
    in_features: Count,
    out_features: Count,
    *,
    inducing_points: Tensor,
    noise_inducing_points: Tensor | None = None,
    kernel: Kernel | None = None,
    noise_kernel: Kernel | None = None,
    generator: GeneratorLike | None = None,
    dtype: torch.dtype | None = None,
    jitter: Fraction = 1e-5,
    num_features: Count = 1024,
) -> Network:
    """Build two sparse processes side by side, for mean and log variance (Lázaro-Gredilla & Titsias, 2011).

    For O targets the network has 2 · O outputs. Use the likelihood
    `gilib.likelihoods.HeteroscedasticGaussian`, and train by `gilib.training.Collapsed`. The log variance has
    inducing inputs `noise_inducing_points`, `[M', D]` (None: those of the mean), and a kernel of its own.
    Other arguments are those of `sparse_gp`.

    >>> net = heteroscedastic_gp(3, 1, inducing_points=torch.randn(20, 3))
    >>> net.draw(10)(torch.zeros(4, 3)).shape
    torch.Size([10, 4, 2])
    """
    others = inducing_points if noise_inducing_points is None else noise_inducing_points
    settings: dict[str, Any] = {"jitter": jitter, "num_features": num_features}
    processes = []
    for name, given, own in (
        ("inducing_points", inducing_points, kernel),
        ("noise_inducing_points", others, noise_kernel),
    ):
        points = as_points(given, in_features, name)
        if points.dim() != 2:
            raise ValueError(f"{name} must have shape [M, {in_features}], got {list(points.shape)}")
        posterior = FreeGaussian(len(points), initial_scale=1.0)
        processes.append(GP(in_features, out_features, own, posterior, inducing_inputs=points, **settings))
        dtype = points.dtype if dtype is None else dtype
    return Network(None, [Concat(processes)], input_shape=(in_features,), generator=generator, dtype=dtype)


@checked
def inducing_start(x: Tensor, num_inducing: Count, method: str = "kmeans", *, seed: int = 0) -> Tensor:
    """Choose M points that represent the training inputs, as initial inducing points.

    Args:
        x: training inputs, `[N, D]`.
        num_inducing: M, at most N.
        method: "kmeans", cluster centres (needs scipy); "subset", a random choice without repetition.
        seed: seed of the choice, or of the initial centres.

    Returns:
        A tensor `[M, D]` with the dtype of `x`; for a numpy array, with the dtype of networks.

    >>> inducing_start(torch.arange(6.0)[:, None], 6, "subset").sort(0).values.flatten()
    tensor([0., 1., 2., 3., 4., 5.])
    """
    check_choice(method, ("kmeans", "subset"), "method")
    x = check_tensor(from_numpy(x), "x")
    if x.dim() != 2:
        raise ValueError(f"x must be [N, D], got {list(x.shape)}")
    if num_inducing > len(x):
        raise ValueError(f"{num_inducing} inducing points need at least as many inputs, got {len(x)}")
    generator = torch.Generator().manual_seed(seed)
    subset = x[torch.randperm(len(x), generator=generator)[:num_inducing]].clone()
    if method == "subset":
        return subset
    cluster = require("scipy.cluster.vq", "book")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")  # see below
        centres, _ = cluster.kmeans2(x.double().cpu().numpy(), subset.double().cpu().numpy(), minit="matrix")
    found = torch.as_tensor(centres).to(x)
    if (different := len(found.unique(dim=0))) < num_inducing:
        warnings.warn(
            f"only {different} of the {num_inducing} centres differ, because rows of x are repeated: choose "
            "them from x.unique(dim=0)",
            stacklevel=3,
        )
    return found


def principal_directions(
    inputs: int, outputs: int, points: Tensor | None, name: str = "inducing_points"
) -> Tensor | None:
    """Return the first right singular vectors of the centred points, `[D, O]`; None without points.

    Points of all replicas are pooled. The function warns if they have fewer than O directions around their
    mean; the others are then arbitrary ones orthogonal to these.
    """
    if points is None:
        return None
    flat = points.detach().reshape(-1, inputs)
    if len(flat) < outputs:
        raise ValueError(f"{len(flat)} {name} do not determine {outputs} principal directions: give more")
    check_precision(flat.dtype, name)
    found = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    rounding = torch.finfo(flat.dtype).eps * max(flat.shape) * flat.abs().amax()
    if (known := int((found.S > rounding).sum())) < outputs:
        warnings.warn(
            f"{name} determine {known} of {outputs} principal directions, because they lie in a subspace: "
            "the other directions of the first mean function are arbitrary",
            stacklevel=4,
        )
    return found.Vh[:outputs].mT
