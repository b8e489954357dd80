"""Whatever can be drawn: networks, ensembles of them, and stored states. It predicts, and it is measured."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gilib.draws import Draw
from gilib.draws.functions import Composite, Function, Gaussians, Moments, moments
from gilib.network import Network
from gilib.randomness import GeneratorLike, ReplicaGenerators
from gilib.sites import Shape
from gilib.validation import check_count, check_instance, check_is_tensor


@runtime_checkable
class Drawable(Protocol):
    """What `predict` asks of whatever draws functions; a class need not inherit from it.

    Attributes:
        input_shape: of one point.
        output_shape: of one point.
        replicas: shape of the replica axes R of what is drawn.
        members: replica axes K that a draw has read as samples: its sample s·K + k is one of member k; ()
            where there are none.
    """

    @property
    def input_shape(self) -> Shape: ...  # noqa: D102

    @property
    def output_shape(self) -> Shape: ...  # noqa: D102

    @property
    def replicas(self) -> Shape: ...  # noqa: D102

    @property
    def members(self) -> Shape: ...  # noqa: D102

    def draw(self, num_samples: int = 1, *, generator: GeneratorLike | None = None) -> Draw:
        """Draw functions `[..., N, D]` to `[S, R, ..., N, O]`."""

    def reference_tensor(self) -> Tensor | None:
        """A tensor of the dtype and on the device that inputs must have; None: any."""


class OfNetwork(ABC):
    """What draws functions of a network, and so has its shapes."""

    members: Shape = ()

    @abstractmethod
    def network(self) -> Network:
        """The network whose functions are drawn."""

    @property
    def input_shape(self) -> Shape:
        """That of the network."""
        return self.network().input_shape

    @property
    def output_shape(self) -> Shape:
        """That of the network."""
        return self.network().output_shape

    @property
    def replicas(self) -> Shape:
        """Those of the network."""
        return self.network().replicas

    @property
    def trained_range(self) -> Tensor | None:
        """That of the network."""
        return self.network().trained_range

    def reference_tensor(self) -> Tensor | None:
        """As for the network."""
        return self.network().reference_tensor()


@dataclass(frozen=True, eq=False)
class Ensemble(OfNetwork):
    """A network whose first replica axis is read as a sample axis: K members, equally probable.

    A draw of S holds S K functions, S of each member, sample s·K + k being of member k, and has no axis for
    members; further replica axes stay. Members that take no noise, such as point estimates, are one function
    each: then it holds K, whatever S. The density of a mixture of posteriors is not known: log_pq is None,
    and bounds are those of the network, member by member.

    A likelihood with a noise for every member, `Gaussian(replicas=(K,))`, predicts with it: each component of
    the mixture has the function and the noise of one member.

    Args:
        net: a network with replicas=(K, ...).

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.Factorised(), replicas=(4,))
    >>> Ensemble(net).draw(10)(torch.zeros(3, 1)).shape
    torch.Size([40, 3, 1])
    """

    net: Network

    def __post_init__(self) -> None:
        """Refuse a network without members."""
        if not check_instance(self.net, Network, "net").replicas:
            raise ValueError(
                "an ensemble reads the first replica axis of a network as its members, this one has none: "
                "build it with replicas=(K,)"
            )

    def network(self) -> Network:
        """As given; its first replica axis are the members."""
        return self.net

    @property
    def members(self) -> Shape:  # type: ignore[override]
        """(K,)."""
        return self.net.replicas[:1]

    @property
    def replicas(self) -> Shape:
        """The further replica axes."""
        return self.net.replicas[1:]

    def draw(self, num_samples: int = 1, *, generator: GeneratorLike | None = None) -> Draw:
        """S functions of each member.

        Args:
            num_samples: S.
            generator: source of the noise, as for the network.
        """
        check_count(num_samples, "num_samples")
        samples = num_samples if self.net.noise_size else 1
        function = self.net.draw(samples, generator=generator).function
        lead = (samples, *self.net.replicas)
        return Draw(_Pooled(function, lead, len(self.input_shape), len(self.output_shape)), None)


@dataclass(frozen=True)
class _Pooled(Composite):
    """A function of members `[S, K, R, ...]` as one of samples `[S K, R, ...]`."""

    function: Function
    lead: Shape
    input_axes: int
    output_axes: int

    def evaluate(self, x: Tensor, call: Callable[[Function, Tensor], Tensor]) -> Tensor:
        """The members at x; the parts inside keep the members' axis."""
        self._check(x)
        return self._merged(call(self.function, x))

    def moments(self, x: Tensor, of: Gaussians = moments) -> Moments:
        """Those of the members, in closed form where a single one has them."""
        self._check(x)
        mean, variance = of(self.function, x)
        return Moments(self._merged(mean), None if variance is None else self._merged(variance))

    def _merged(self, values: Tensor) -> Tensor:
        """Of members and samples as of samples alone."""
        return values.expand(*self.lead, *values.shape[-1 - self.output_axes :]).flatten(0, 1)

    def _check(self, x: Tensor) -> None:
        """Raise unless all members can be asked at these points."""
        replicas, given = self.lead[2:], tuple(x.shape[: -1 - self.input_axes])
        if x.dim() <= self.input_axes or given not in ((), replicas):
            raise ValueError(
                f"an ensemble takes x [{''.join(f'{size}, ' for size in replicas)}N, ...] with "
                f"{self.input_axes} axes for a point, the same for all members, got {list(x.shape)}"
            )


@dataclass(frozen=True, eq=False)
class Samples(OfNetwork):
    """A network with K stored states of its parameters: where a sampler has been.

    Each function that is drawn is that of a state; the rest of the network, noise included, is as it is. No
    density goes with them: log_pq is None, and `elbo` and `iwbo` refuse such draws.

    Args:
        net: the network; it is not changed.
        states: `[K, *shape]` for some or all of `net.named_parameters()` and buffers, by name, as
            `torch.func.stack_module_state` gives them.

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
        """Refuse states of another network."""
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
        """K."""
        first = next(iter(self.states.values()))
        return first.shape[0] if first.dim() else 0

    def network(self) -> Network:
        """As given."""
        return self.net

    def draw(self, num_samples: int | None = None, *, generator: GeneratorLike | None = None) -> Draw:
        """The functions of stored states: a random choice without repetition, in the order of storage.

        Args:
            num_samples: S, at most K; None: all.
            generator: source of the choice, one for all replicas, and of what noise the network takes.

        Raises:
            ValueError: if more are wanted than there are.
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
    """Parameters and buffers by name."""
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}
