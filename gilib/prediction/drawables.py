"""Objects from which functions can be drawn: the interface, ensembles of networks, and stored states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gilib.draws import Draw
from gilib.draws.functions import Composite, Function, Moments, moments
from gilib.network import Network
from gilib.randomness import GeneratorLike, ReplicaGenerators
from gilib.sites import Shape
from gilib.validation import check_count, check_instance, check_is_tensor


@runtime_checkable
class Drawable(Protocol):
    """The interface that `predict` needs to draw functions; a class need not inherit from it.

    Attributes:
        input_shape: shape of one input.
        output_shape: shape of one output.
        replicas: shape of the replica axes R of a draw.
        members: replica axes K that a draw treats as samples: sample s·K + k belongs to member k.
    """

    @property
    def input_shape(self) -> Shape: ...

    @property
    def output_shape(self) -> Shape: ...

    @property
    def replicas(self) -> Shape: ...

    @property
    def members(self) -> Shape: ...

    def draw(self, num_samples: int = 1, *, generator: GeneratorLike | None = None) -> Draw:
        """Draw S functions, which map `[..., N, D]` to `[S, R, ..., N, O]`."""

    def reference_tensor(self) -> Tensor | None:
        """Return a tensor with the dtype and device that inputs must have; None if any will do."""


class OfNetwork:
    """Base of objects that draw functions of a network, and so have its shapes."""

    net: Network
    members: Shape = ()

    def network(self) -> Network:
        """Return the network whose functions are drawn."""
        return self.net

    @property
    def input_shape(self) -> Shape:
        """Shape of one input of the network."""
        return self.network().input_shape

    @property
    def output_shape(self) -> Shape:
        """Shape of one output of the network."""
        return self.network().output_shape

    @property
    def replicas(self) -> Shape:
        """Shape of the replica axes of the network."""
        return self.network().replicas

    @property
    def trained_range(self) -> Tensor | None:
        """Range of the inputs on which the network was trained, or None."""
        return self.network().trained_range

    def reference_tensor(self) -> Tensor | None:
        """Return a tensor with the dtype and device of the network."""
        return self.network().reference_tensor()


@dataclass(frozen=True, eq=False)
class Ensemble(OfNetwork):
    """A network whose first replica axis is an ensemble of K equally probable members.

    `draw(S)` draws S functions of each member and puts them on one sample axis: sample s·K + k belongs to
    member k. Other replica axes remain. Members without noise, such as point estimates, are one function
    each, so a draw holds K functions for every S. The density of a mixture of posteriors is unknown, so
    log_pq is None. The likelihood may have a noise for every member, `Gaussian(replicas=(K,))`. What
    different networks predict is mixed by `gilib.prediction.EnsemblePrediction`.

    Args:
        net: a network with replicas=(K, ...).

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.Factorised(), replicas=(4,))
    >>> Ensemble(net).draw(10)(torch.zeros(3, 1)).shape
    torch.Size([40, 3, 1])
    """

    net: Network

    def __post_init__(self) -> None:
        if not check_instance(self.net, Network, "net").replicas:
            raise ValueError(
                "an ensemble reads the first replica axis of a network as its members, this one has none: "
                "build it with replicas=(K,)"
            )

    @property
    def members(self) -> Shape:  # type: ignore[override]
        """The axis of the members, (K,)."""
        return self.net.replicas[:1]

    @property
    def replicas(self) -> Shape:
        return self.net.replicas[1:]

    def draw(self, num_samples: int = 1, *, generator: GeneratorLike | None = None) -> Draw:
        """Draw S functions of each member."""
        check_count(num_samples, "num_samples")
        samples = num_samples if self.net.noise_size else 1
        function = self.net.draw(samples, generator=generator).function
        lead = (samples, *self.net.replicas)
        return Draw(_Pooled(function, lead, len(self.input_shape), len(self.output_shape)), None)


@dataclass(frozen=True)
class _Pooled(Composite):
    """A function with values `[S, K, R, ...]`, whose samples and members are merged into `[S K, R, ...]`."""

    function: Function
    lead: Shape
    input_axes: int
    output_axes: int

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        self._check(x)
        return self._merged(call(self.function, x))

    def moments(self, x: Tensor, kind: str = "moments") -> Moments:
        """Return the moments of all members, in closed form if the members have them."""
        self._check(x)
        mean, variance = moments(self.function, x, kind)
        return Moments(self._merged(mean), None if variance is None else self._merged(variance))

    def _merged(self, values: Tensor) -> Tensor:
        return values.expand(*self.lead, *values.shape[-1 - self.output_axes :]).flatten(0, 1)

    def _check(self, x: Tensor) -> None:
        replicas, given = self.lead[2:], tuple(x.shape[: -1 - self.input_axes])
        if x.dim() <= self.input_axes or given not in ((), replicas):
            raise ValueError(
                f"an ensemble takes x [{''.join(f'{size}, ' for size in replicas)}N, ...] with "
                f"{self.input_axes} axes for a point, the same for all members, got {list(x.shape)}"
            )


@dataclass(frozen=True, eq=False)
class Samples(OfNetwork):
    """A network with K stored states of its parameters, for example from a Markov chain.

    Each drawn function belongs to one state; all other parameters, and the noise, are the network's. States
    have no density: log_pq is None.

    Args:
        net: the network; it is not changed.
        states: `[K, *shape]` for some or all parameters and buffers, by name, as returned by
            `torch.func.stack_module_state`.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (), 1, posterior=gilib.Factorised())
    >>> states = {"inducing_points": torch.zeros(7, 1)}
    >>> Samples(net, states)
    Traceback (most recent call last):
    ValueError: the network has no state 'inducing_points': ...
    """

    net: Network
    states: Mapping[str, Tensor] = field(repr=False)

    def __post_init__(self) -> None:
        own = _state(check_instance(self.net, Network, "net"))
        if not self.states:
            raise ValueError("states must hold at least one tensor [K, *shape] by name, got none")
        for name, value in self.states.items():
            if name not in own:
                raise ValueError(f"the network has no state {name!r}: it has {', '.join(own)}")
            shape, given = own[name].shape, check_is_tensor(value, f"states[{name!r}]").shape
            if given != (self.num_states, *shape) or not self.num_states:
                raise ValueError(
                    f"states[{name!r}] must have shape {[self.num_states or 'K', *shape]}, got {list(given)}"
                )

    @property
    def num_states(self) -> int:
        """K, the number of states."""
        first = next(iter(self.states.values()))
        return first.shape[0] if first.dim() else 0

    def draw(self, num_samples: int | None = None, *, generator: GeneratorLike | None = None) -> Draw:
        """Draw functions of S different states, chosen at random, in the order of storage.

        Args:
            num_samples: S, at most K; all states if None.
            generator: source of the choice, which all replicas share, and of the network's noise.

        Raises:
            ValueError: if S exceeds K.
        """
        chosen = self._choose(num_samples, generator)
        net = deepcopy(self.net)
        for name, values in self.states.items():
            owner, _, leaf = name.rpartition(".")
            module, own = net.get_submodule(owner), _state(net)[name]
            values = values[chosen.to(values.device)].to(own)
            parameter = isinstance(own, nn.Parameter)
            setattr(module, leaf, nn.Parameter(values, requires_grad=False) if parameter else values)
        return Draw(net.draw(len(chosen), generator=generator).function, None)

    def _choose(self, num_samples: int | None, generator: GeneratorLike | None) -> Tensor:
        if num_samples is None:
            return torch.arange(self.num_states)
        check_count(num_samples, "num_samples")
        if num_samples > self.num_states:
            raise ValueError(
                f"there are {self.num_states} states, got num_samples={num_samples}: ask for fewer, run "
                "longer chains, or thin less"
            )
        if isinstance(generator, ReplicaGenerators):
            raise TypeError("a state is chosen for all replicas together: give one torch.Generator")
        device = None if generator is None else generator.device
        order = torch.randperm(self.num_states, generator=generator, device=device)
        return order[:num_samples].sort().values


def _state(net: Network) -> dict[str, Tensor]:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}
