"""A trained torch model as a network with a posterior that starts at its weights."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gilib.arguments import checked
from gilib.layers import Conv2d, Layer, Linear, Pretrained
from gilib.layers.pointwise import trial_points
from gilib.layers.pretrained import evaluated, is_alone, same, trained_copy, try_module
from gilib.layers.weights import WeightLayer
from gilib.models.networks import one_per_layer
from gilib.network import Network
from gilib.posteriors import Conjugate, Dropout, Factorised, PointEstimate, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike
from gilib.sites import Shape
from gilib.validation import as_tensor, check_instance

WITHOUT_DIVERGENCE = (PointEstimate, Dropout, Conjugate)  # posteriors under which the prior has a fixed scale


@checked
def bayesian(
    model: nn.Module,
    posterior: Posterior | Sequence[Posterior] | None = None,
    *,
    where: nn.Module | Sequence[nn.Module] | None = None,
    prior: Prior | None = None,
    inducing_points: Tensor | None = None,
    input_shape: Shape | None = None,
    trainable: bool = False,
    replicas: tuple[int, ...] = (),
    generator: GeneratorLike | None = None,
) -> Network:
    """Convert a trained model to a network in which dense layers and convolutions have a posterior.

    The model is copied and does not change. Its other modules, and the biases of its convolutions, stay as
    they were trained, in eval mode. The network can predict at once, and `gilib.fit` trains it further. An
    `nn.Sequential` becomes a sequence of layers. A model with a forward of its own becomes one layer,
    `gilib.Pretrained`, plus a layer of its own for a dense layer at its end.

    Begin with the last layer alone, `where=model[-1]`. Do not compare bounds of different choices: the layers
    without a posterior have learned from the data, too, and the bound does not count that.

    Args:
        model: a module that maps points `[B, ...]` to one tensor `[B, O]`, each point independently.
        posterior: one posterior for all layers, two for the lower layers and the last, or one for each layer
            in the order in which the model calls them; default `Factorised()`. Posteriors over weights start
            at the trained weights, which are the mean of dropout. Pseudo-outputs start at the outputs that
            the weights give at the inducing points. `Conjugate`, for `gilib.training.Bali`, starts at the
            weights with the spread `initial_sd`: 0.1 is a good value.
        where: modules of `model` in which dense layers and convolutions are converted; None: everywhere.
            `where=model[-1]` is the last layer of a sequence.
        prior: prior of all layers; None: `NealPrior` with the scale of the trained weights. This scale is
            learned unless the posterior trains no divergence (point estimates, dropout, BALI).
        inducing_points: some of the training inputs, `[M, ...]`, for `GlobalInducing`.
        input_shape: shape of a point; needed unless inducing points or a first dense layer determine it.
        trainable: whether modules without a posterior are trained, too, as point estimates that the bound
            does not count.
        replicas: shape of the replica axes.
        generator: source of initial values that do not come from the weights.

    Raises:
        ValueError: if there is nothing to convert, or if the model couples points, is random in eval mode, or
            calls a converted module on something other than points.

    Warns:
        UserWarning: names the modules with parameters that cannot be converted.

    >>> model = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 3))
    >>> net = bayesian(model)
    >>> net.draw(10)(torch.zeros(5, 2)).shape
    torch.Size([10, 5, 3])
    """
    copied, names = trained_copy(model), _chosen(model, where)
    like = next(iter(model.parameters()))
    points = None if inducing_points is None else as_tensor(inducing_points, "inducing_points", like)
    device = torch.device("cpu") if points is None else points.device  # where a network is built
    copied.to(device)
    shape = input_shape or (None if points is None else points.shape[1:]) or Pretrained(copied).input_shape()
    if shape is None:
        raise ValueError(
            "give input_shape, the shape of an input: neither inducing_points nor a first dense layer "
            "determines it"
        )
    pair = trial_points(shape, like.dtype, device)
    trial = try_module(copied, names, pair)
    calls = [name for name, _ in trial.calls]
    modules = {name: copied.get_submodule(name) for name in dict.fromkeys(calls)}
    layers = {
        name: _layer(module, own, prior)
        for (name, module), own in zip(
            modules.items(), one_per_layer(posterior or Factorised(), len(modules)), strict=True
        )
    }
    parts: list[Layer | nn.Module] = [Pretrained(copied, layers, trainable)]
    if all(calls.count(name) == 1 and is_alone(modules[name], value) for name, value in trial.calls):
        body, head = _without_head(copied, calls[-1], pair)
        inside = {name: layer for name, layer in layers.items() if not (head and name == calls[-1])}
        parts = [*_in_order(body, inside, trainable), *([layers[calls[-1]]] if head else [])]
    settings = {"replicas": replicas, "generator": generator, "dtype": like.dtype}
    net = Network(points, parts, input_shape=tuple(shape), **settings)  # type: ignore[arg-type]
    inputs = {} if points is None else dict(reversed(evaluated(copied, calls, points).calls))
    for name, layer in layers.items():
        value = inputs.get(name)
        if value is not None and isinstance(layer, Linear):
            value = value.flatten(0, -2)  # a module may see each point as several rows
        layer.start_at(_weights(modules[name]), value)
    return net.to(like.device)


def _chosen(model: nn.Module, where: nn.Module | Sequence[nn.Module] | None) -> list[str]:
    """Return the names of the modules to convert, and warn about those that stay as they are."""
    roots = [model] if where is None else [where] if isinstance(where, nn.Module) else list(where)
    names = {id(module): name for name, module in model.named_modules()}
    for root in roots:
        if id(check_instance(root, nn.Module, "where")) not in names:
            raise ValueError(f"where must hold modules of the model, as model.fc is one, got {root}")
    inside = {names[id(part)]: part for root in roots for part in root.modules()}
    chosen = [name for name, part in inside.items() if _is_convertible(part)]
    kept = [
        f"{name or 'the model'} ({type(part).__name__})"
        for name, part in inside.items()
        if name not in chosen and any(True for _ in part.parameters(recurse=False))
    ]
    if not chosen:
        raise ValueError(
            "nothing to convert: only nn.Linear, and nn.Conv2d without groups and dilation and padded with "
            f"zeros, become layers with a posterior, got {', '.join(kept) or 'no module with parameters'}"
        )
    if kept:
        warnings.warn(
            f"these stay as they were trained, without a posterior: {', '.join(kept)}", stacklevel=4
        )
    return chosen


def _is_convertible(module: nn.Module) -> bool:
    if type(module) is nn.Conv2d:
        plain = module.groups == 1 and set(module.dilation) == {1} and module.padding_mode == "zeros"
        return plain and not isinstance(module.padding, str)
    return type(module) is nn.Linear


def _layer(module: nn.Module, posterior: Posterior, prior: Prior | None) -> WeightLayer:
    if prior is None:
        weights = _weights(module)
        scale = float(weights.square().sum(0).mean().sqrt())  # √I times the size of a weight
        prior = NealPrior(scale or 1.0, learn=not isinstance(posterior, WITHOUT_DIVERGENCE))
    if isinstance(module, nn.Linear):
        bias = module.bias is not None
        return Linear(module.in_features, module.out_features, posterior, prior, bias)
    assert isinstance(module, nn.Conv2d)
    sizes = module.in_channels, module.out_channels, module.kernel_size
    windows = {"stride": module.stride, "padding": module.padding}
    return Conv2d(*sizes, posterior, prior, **windows)  # type: ignore[arg-type]


def _weights(module: nn.Module) -> Tensor:
    """Return W, `[I, O]`; for a dense layer, its last row is the bias."""
    assert isinstance(module, nn.Linear | nn.Conv2d)
    weights = module.weight.detach().flatten(1).mT
    if isinstance(module, nn.Linear) and module.bias is not None:
        weights = torch.cat([weights, module.bias.detach()[None]])
    return weights


def _in_order(module: nn.Module, layers: dict[str, WeightLayer], trainable: bool) -> list[Layer | nn.Module]:
    """Return the parts of a model in order: layers of a sequence, and `Pretrained` around other modules."""
    if list(layers) == [""] and not (isinstance(module, nn.Conv2d) and module.bias is not None):
        return [layers[""]]
    if not layers or type(module) is not nn.Sequential:
        return [Pretrained(module, layers, trainable)]
    parts: list[Layer | nn.Module] = []
    for key, part in module._modules.items():
        inside = {
            name.partition(".")[2]: layer for name, layer in layers.items() if name.partition(".")[0] == key
        }
        parts += _in_order(part, inside, trainable)
    return parts


def _without_head(module: nn.Module, name: str, pair: Tensor) -> tuple[nn.Module, bool]:
    """Return a module without the dense layer at its end, and whether there is one."""
    head = module.get_submodule(name)
    if type(module) is nn.Sequential or not isinstance(head, nn.Linear) or head is module:
        return module, False
    body = trained_copy(module)
    body.set_submodule(name, nn.Identity())
    with torch.no_grad():
        try:
            alike = same(head(body(pair)), module(pair))
        except Exception:  # noqa: BLE001  # the forward asks more of the layer than to be called
            return module, False
    return (body, True) if alike else (module, False)
