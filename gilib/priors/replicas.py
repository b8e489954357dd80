"""Priors that differ between replicas."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gilib.linalg import ScaledIdentity, SymmetricOperator
from gilib.priors.base import Prior, PriorModule
from gilib.priors.scales import NealPrior, ScalePrior, StandardPrior
from gilib.sites import Site


@dataclass(frozen=True)
class PerReplica(Prior):
    """A separate prior for each replica, so that networks with different priors train in one program.

    Args:
        priors: R priors with one scale per layer: `NealPrior`, `StandardPrior` or `ScalePrior`.

    >>> PerReplica((NealPrior(), StandardPrior())).well_scaled
    False
    """

    priors: tuple[Prior, ...]

    def __post_init__(self) -> None:
        for r, prior in enumerate(self.priors):
            if not isinstance(prior, (NealPrior, StandardPrior, ScalePrior)):
                raise TypeError(f"priors[{r}] must have one scale per layer, got {prior!r}")

    @property
    def well_scaled(self) -> bool:  # type: ignore[override]
        return all(prior.well_scaled for prior in self.priors)

    def build(self, site: Site, like: Tensor) -> PriorModule:
        """Build every distinct prior once, and record which replica uses which."""
        if like.shape != (len(self.priors),):
            raise ValueError(
                f"PerReplica holds {len(self.priors)} priors for a network with "
                f"replicas=({len(self.priors)},), this one has replicas={tuple(like.shape)}"
            )
        return _PerReplica(self, site, like)


class _PerReplica(PriorModule):
    choice: Tensor

    def __init__(self, spec: PerReplica, site: Site, like: Tensor):
        super().__init__()
        kinds = list(dict.fromkeys(spec.priors))
        self.members = nn.ModuleList(kind.build(site, like) for kind in kinds)
        self.size = site.fan_in
        self.noise_size = max(member.noise_size for member in self._priors())
        which = torch.tensor([kinds.index(prior) for prior in spec.priors], device=like.device)
        self.register_buffer("choice", which, persistent=False)  # [R]

    def _priors(self) -> list[PriorModule]:
        return [member for member in self.members if isinstance(member, PriorModule)]

    def draw(self, noise: Tensor) -> tuple[SymmetricOperator, Tensor]:
        scale = log_pq = noise.new_zeros(noise.shape[:-1])  # [S, R]
        for k, member in enumerate(self._priors()):
            operator, own_log_pq = member.draw(noise[..., : member.noise_size])
            assert isinstance(operator, ScaledIdentity)
            scale = torch.where(self.choice == k, operator.scale, scale)
            log_pq = torch.where(self.choice == k, own_log_pq, log_pq)
        return ScaledIdentity(scale, self.size), log_pq
