"""A trained torch module as a layer, in which other layers may replace some of the modules inside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gilib.config import ConfigDict, module_config, module_from_config, rebuild
from gilib.draws import AnyDrawn, Draw, Drawn, Estimate
from gilib.draws.drawn import total_log_pq
from gilib.draws.functions import Composite, Function
from gilib.layers.base import Layer
from gilib.layers.pointwise import PointwiseFunction, points_shape, trial_points
from gilib.posteriors import BuildContext
from gilib.randomness import Noise, NoiseSize, total_size
from gilib.sites import Shape
from gilib.validation import check_instance

AXES = {nn.Linear: 1, nn.Conv2d: 3}  # modules that a layer may replace, and the axes of their points


class Pretrained(Layer):
    """A trained `torch.nn.Module` as a layer; its parameters stay as they are, and each draw is the module.

    The layer works on a copy of the module in eval mode, with in-place activations switched off.

    Args:
        module: a module that maps points `[B, ...]` to one tensor `[B, ...]`, each point by itself.
        layers: layers that replace `nn.Linear` and `nn.Conv2d` modules inside, by their names in
            `module.named_modules()`; a convolution keeps its bias. `gilib.bayesian` creates them.
        trainable: whether the remaining parameters are trained, as point estimates without a prior. The
            objective then bounds the evidence given their values only.

    Raises:
        ValueError: when the network is built, if the module couples points, is random in eval mode, does not
            return a tensor, calls a replaced module on anything but points, or is trainable with replicas.

    >>> body = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.ReLU())
    >>> layer = Pretrained(body)
    >>> layer.build((2,), BuildContext())
    (5,)
    >>> x = torch.randn(7, 2)
    >>> torch.equal(layer.draw()(x), body.eval()(x))
    True
    """

    def __init__(self, module: nn.Module, layers: Mapping[str, Layer] | None = None, trainable: bool = False):
        super().__init__()
        self.module = trained_copy(module)
        self.trainable = check_instance(trainable, bool, "trainable")
        layers = {} if layers is None else layers
        self.names, self.layers = tuple(layers), nn.ModuleList(layers.values())
        self.has_weights = bool(layers)
        self.module.requires_grad_(trainable)
        for part in self._parts():  # layers replace their weights, but convolutions keep their bias
            part.requires_grad_(False)
            if isinstance(part, nn.Conv2d) and part.bias is not None:
                part.bias.requires_grad_(trainable)
        self._point_axes, self._alone = 0, [True] * len(layers)

    def _parts(self) -> list[nn.Module]:
        parts = [self.module.get_submodule(name) for name in self.names]
        for name, part in zip(self.names, parts, strict=True):
            if type(part) not in AXES:
                raise ValueError(f"a layer can take the place of Linear and Conv2d, not of {name}, {part}")
        return parts

    def _each(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    def train(self, mode: bool = True) -> Pretrained:
        """Set the mode of the layers inside; the module stays in eval mode."""
        super().train(mode)
        self.module.eval()
        return self

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Apply the module to two points, and build each layer inside for the shape that enters it there."""
        if self.trainable and context.replicas:
            raise ValueError(
                "the parameters of a trained module are the same in all replicas: leave trainable=True out, "
                "or train networks without replicas"
            )
        pair = trial_points(shape, context.dtype, context.device)
        self.module.to(dtype=pair.dtype, device=pair.device)
        trial = try_module(self.module, self.names, pair)
        calls = [name for name, _ in trial.calls]
        first = dict(reversed(trial.calls))
        for k, (name, layer) in enumerate(zip(self.names, self._each(), strict=True)):
            part = self.module.get_submodule(name)
            axes = AXES[type(part)]
            rows, point = first[name].shape[1:-axes], first[name].shape[-axes:]
            points = None if context.num_inducing is None else context.num_inducing * rows.numel()
            own = replace(context.as_last(context.last and name == calls[-1]), pseudo_outputs=None)
            layer.join(tuple(point), replace(own, num_inducing=points))
            self._alone[k] = calls.count(name) == 1 and is_alone(part, first[name])
        self._point_axes, self.replicas = len(shape), context.replicas
        self.noise_size = sum(layer.noise_size for layer in self._each())
        self.needs_inducing = any(layer.needs_inducing for layer in self._each())
        self.carries = self.needs_inducing or Estimate not in self._modes(Estimate)
        return tuple(trial.output.shape[1:])

    def _modes(self, mode: type[Drawn]) -> list[type[Drawn]]:
        """Return the mode of each layer inside.

        A layer draws, unless the module calls it once for each point and its estimate can carry the inducing
        points that any layer needs.
        """
        pairs = zip(self._each(), self._alone, strict=True)
        may = [alone and (layer.carries or not self.needs_inducing) for layer, alone in pairs]
        return [Estimate if mode is Estimate and own else Draw for own in may]

    def _sizes(self, mode: type[Drawn]) -> list[NoiseSize]:
        return [layer.noise_sizes(own) for layer, own in zip(self._each(), self._modes(mode), strict=True)]

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        return total_size(self._sizes(mode))

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        """Sample the layers inside; their inducing points pass through the module, as the data do."""
        tensors = {id(t): t.clone() for t in (*self.module.parameters(), *self.module.buffers())}
        if not self.names:
            module = rewired(self.module, {}, tensors)
            return mode(PointwiseFunction(module, self._point_axes), noise.zeros)
        lead, found = noise.draw.shape[:-1], dict[int, Drawn]()
        around = partial(DrawnModule, self.module, self._parts(), tensors, self._point_axes, lead)
        layers, modes, pieces = self._each(), self._modes(mode), noise.split(self._sizes(mode))

        def draw(k: Any, value: Tensor | None) -> None:
            place = f"{self.names[k]}, " if self.names[k] else ""
            found[k] = layers[k].located(place, layers[k].sample, value, pieces[k], modes[k])

        def drawn_at(k: Any, value: Tensor) -> Tensor:
            if k not in found:  # the inducing points that enter a layer are known when the module calls it
                draw(k, value)
            return found[k].function(value)

        outputs = None
        if self.needs_inducing and inducing is not None:
            outputs = around(range(len(layers))).evaluate(inducing, drawn_at)  # type: ignore[arg-type]
        else:
            for k in range(len(layers)):
                draw(k, None)
        parts = [found[k] for k in range(len(layers))]
        return mode(around([part.function for part in parts]), total_log_pq(parts, noise), outputs)

    def input_shape(self) -> Shape | None:
        first = _first(self.module)
        return (first.in_features,) if isinstance(first, nn.Linear) else None

    def input_axes(self) -> int | None:
        return AXES.get(type(_first(self.module)))

    def describe(self) -> str:
        return f"Pretrained({type(self.module).__name__})"

    def extra_repr(self) -> str:
        """Return whether the module is frozen or trained, for `print`."""
        return "trainable: point estimates, which the bound does not count" if self.trainable else "frozen"

    def config(self) -> ConfigDict:
        layers = dict(zip(self.names, self._each(), strict=True))
        return {"module": module_config(self.module), "layers": layers, "trainable": self.trainable}

    @classmethod
    def from_config(cls, config: ConfigDict) -> Pretrained:
        layers = {name: rebuild(layer, Layer) for name, layer in config["layers"].items()}
        return cls(module_from_config(config["module"]), layers, config["trainable"])


@dataclass(frozen=True)
class DrawnModule(Composite):
    """A module in which drawn functions replace some of the modules inside."""

    module: nn.Module  # a module that takes `[B, *point]`
    parts: Sequence[nn.Module]  # the modules inside that are replaced
    tensors: Mapping[int, Tensor]  # values of the module's parameters and buffers, by `id` of the original
    point_axes: int  # number of axes of a point
    lead: Shape  # shape of the axes of samples and replicas, (S, R)
    functions: Sequence[Function]  # the functions that replace `parts`

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """Evaluate the module at points `x`, `[..., N, *point]`, all of all samples as one batch."""
        *own, points = points_shape(x, self.point_axes, self.module)
        lead = (*torch.broadcast_shapes(own, self.lead), points)  # [S, R, ..., N]
        places = {
            id(part): _replaced(part, partial(self._at, part, partial(call, function), lead))
            for part, function in zip(self.parts, self.functions, strict=True)
        }
        batch = x.expand(*lead, *x.shape[len(own) + 1 :]).flatten(0, len(lead) - 1)
        output: Tensor = rewired(self.module, places, self.tensors)(batch)
        return output.unflatten(0, lead)

    def _at(self, part: nn.Module, call: Callable[[Tensor], Tensor], lead: Shape, value: Tensor) -> Tensor:
        """Evaluate a function in place of `part` at `value` `[B, ..., *point]`; add a convolution's bias."""
        axes = AXES[type(part)]
        points = value.unflatten(0, lead).flatten(len(lead) - 1, -1 - axes)
        output = call(points)
        output = output.reshape(*value.shape[:-axes], *output.shape[-axes:])
        if isinstance(part, nn.Conv2d) and part.bias is not None:
            output = output + self.tensors[id(part.bias)][:, None, None]
        return output


def trained_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a module in eval mode, without in-place activations."""
    check_instance(module, nn.Module, "module")
    try:
        module = copy.deepcopy(module).eval()
    except Exception as error:  # whatever attributes of a module raise
        raise TypeError(f"{type(module).__name__} cannot be copied (copy.deepcopy): {error}") from error
    for part in module.modules():
        if getattr(part, "inplace", False) is True:
            part.inplace = False  # type: ignore[assignment]
    return module


def rewired(module: nn.Module, places: dict[int, nn.Module], tensors: Mapping[int, Tensor]) -> nn.Module:
    """Return a copy of a module in which some modules, parameters and buffers are replaced.

    `places` and `tensors` hold replacements by `id` of the original; copied modules are added to `places`.
    """
    if id(module) not in places:
        copied = places[id(module)] = copy.copy(module)
        for kind in ("_parameters", "_buffers"):
            own = {k: v if v is None else tensors.get(id(v), v) for k, v in getattr(module, kind).items()}
            copied.__dict__[kind] = own  # set as attributes, plain tensors in place of parameters would raise
        inside = module._modules.items()
        copied.__dict__["_modules"] = {k: v if v is None else rewired(v, places, tensors) for k, v in inside}
    return places[id(module)]


def _replaced(module: nn.Module, forward: Callable[[Tensor], Tensor]) -> nn.Module:
    copied = copy.copy(module)
    copied.__dict__["forward"] = forward
    return copied


class Trial(NamedTuple):
    """The result of `evaluated`."""

    output: Tensor  # output of the module
    # names and inputs of the modules inside, in the order in which they were called
    calls: list[tuple[str, Tensor]]


@torch.no_grad()
def evaluated(module: nn.Module, names: Sequence[str], x: Tensor) -> Trial:
    """Evaluate a module at `x`, and record the inputs of the modules inside that have these names."""
    calls: list[tuple[str, Tensor]] = []

    def noted(name: str, part: nn.Module, value: Tensor) -> Tensor:
        calls.append((name, value.clone()))
        return part(value)

    parts = {name: module.get_submodule(name) for name in names}
    places = {id(part): _replaced(part, partial(noted, name, part)) for name, part in parts.items()}
    return Trial(rewired(module, places, {})(x), calls)


def try_module(module: nn.Module, names: Sequence[str], pair: Tensor) -> Trial:
    """Evaluate a module at two points, to find out whether it can be a layer."""
    what, given = type(module).__name__, pair.clone()
    try:
        both, again, one = (evaluated(module, names, x) for x in (given, pair.clone(), pair[:1].clone()))
    except Exception as error:  # whatever a forward of the user's raises
        raise ValueError(f"{what} cannot take points of shape {list(pair.shape[1:])}: {error}") from error
    if not isinstance(both.output, Tensor):
        raise ValueError(f"{what} must give one tensor [B, ...], it gives a {type(both.output).__name__}")
    if not torch.equal(given, pair):
        raise ValueError(f"{what} overwrites its inputs: let its forward begin with a copy, x = x.clone()")
    if not torch.equal(both.output.nan_to_num(), again.output.nan_to_num()):
        raise ValueError(
            f"{what} draws noise of its own, or keeps a state, in eval mode, too: two evaluations differ"
        )
    if both.output.shape[1:] != one.output.shape[1:] or not same(both.output[:1], one.output):
        raise ValueError(f"{what} couples the points of a batch: it must act on one point by itself")
    called = {name for name, _ in both.calls}
    if missing := [name for name in names if name not in called]:
        raise ValueError(
            f"{what} does not call {', '.join(missing)} as modules: nothing can take their place, leave "
            "them out"
        )
    for (name, value), (_, alone) in zip(both.calls, one.calls, strict=True):
        if value.shape[0] != 2 or value.shape[1:] != alone.shape[1:] or not same(value[:1], alone):
            raise ValueError(
                f"{what} calls {name} on {list(value.shape)} for a batch of 2, not on points [B, ...]: "
                "nothing can take its place, leave it out"
            )
    return both


def same(some: Tensor, others: Tensor) -> bool:
    """Return whether two tensors are equal up to rounding; NaN counts as zero."""
    if some.shape != others.shape:
        return False
    some, others = some.nan_to_num(), others.nan_to_num()  # the module may give NaN at the trial's points
    scale = others.abs().max() if others.numel() else 0.0
    return bool((some - others).abs().le(1e-4 * scale).all())


def is_alone(part: nn.Module, value: Tensor) -> bool:
    """Return whether a dense layer or a convolution gets one input for each point, not several rows."""
    return value.dim() == 1 + AXES[type(part)]


def _first(module: nn.Module) -> nn.Module:
    """Return the first module of a (nested) sequence, or the module itself."""
    return _first(module[0]) if type(module) is nn.Sequential and len(module) else module
