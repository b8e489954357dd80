"""Architectures in a few lines each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gilib.layers import Layer, Linear
from gilib.network import Network
from gilib.posteriors import GlobalInducing, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import Source
from gilib.validation import instance


def mlp(
    in_features: int,
    hidden: Sequence[int],
    out_features: int,
    *,
    posterior: Posterior | Sequence[Posterior] | None = None,
    prior: Prior | None = None,
    inducing_points: Tensor | None = None,
    pseudo_outputs: Tensor | None = None,
    activation: type[nn.Module] | None = nn.ReLU,
    bias: bool = True,
    replicas: tuple[int, ...] = (),
    generator: Source | None = None,
    dtype: torch.dtype | None = None,
) -> Network:
    """A fully connected network.

    Args:
        in_features: D.
        hidden: widths of the hidden layers; `()` for Bayesian linear regression.
        out_features: O.
        posterior: one for all layers; or a sequence, one per weight layer; or two, `(lower, last)`, for the
            papers' method1→method2. Default: `GlobalInducing()`.
        prior: of all layers; default `NealPrior()`.
        inducing_points: U_0, `[M, D]`.
        pseudo_outputs: initial pseudo-outputs of the last layer, `[M, O]`.
        activation: class of the nonlinearity; None for a deep linear network.
        bias: whether each layer has a bias.
        replicas: shape of the replica axes.
        generator: source of the initial values.
        dtype: of the parameters.

    >>> net = mlp(1, (50, 50), 1, inducing_points=torch.randn(100, 1))
    >>> net.draw(10)(torch.zeros(4, 1)).shape
    torch.Size([10, 4, 1])
    """
    if isinstance(hidden, int):
        raise TypeError(f"hidden must be a sequence of widths, got {hidden!r}: write ({hidden},)")
    if activation is not None and not (isinstance(activation, type) and issubclass(activation, nn.Module)):
        raise TypeError(f"activation must be a class of modules such as torch.nn.ReLU, got {activation!r}")
    widths = (in_features, *hidden, out_features)
    posteriors = _one_per_layer(posterior, len(widths) - 1)
    layers: list[Layer | nn.Module] = []
    for k, layer_posterior in enumerate(posteriors):
        if k and activation is not None:
            layers.append(activation())
        layers.append(Linear(widths[k], widths[k + 1], layer_posterior, prior or NealPrior(), bias))
    if isinstance(inducing_points, Tensor) and inducing_points.shape[-1] != in_features:
        raise ValueError(
            f"inducing_points must have {in_features} features, got shape {list(inducing_points.shape)}"
        )
    return Network(
        inducing_points,
        layers,
        pseudo_outputs=pseudo_outputs,
        replicas=replicas,
        generator=generator,
        dtype=dtype,
    )


def _one_per_layer(posterior: Posterior | Sequence[Posterior] | None, layers: int) -> list[Posterior]:
    if posterior is None:
        return [GlobalInducing()] * layers
    if not isinstance(posterior, Sequence):
        return [instance(posterior, Posterior, "posterior")] * layers
    if len(posterior) == layers:
        return list(posterior)
    if len(posterior) == 2 and layers > 2:
        return [posterior[0]] * (layers - 1) + [posterior[1]]
    raise ValueError(
        f"give one posterior, two (lower layers, last layer), or one for each of the {layers} weight layers; "
        f"got {len(posterior)}"
    )
