"""Early stopping: stop once held-out points are no longer predicted better, and restore the best state."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.arguments import Count, CountOrZero
from gilib.likelihoods import Likelihood
from gilib.linalg import failures_as_nan
from gilib.network import Network
from gilib.prediction import predict
from gilib.training.callbacks import Callback
from gilib.training.engine.checks import as_data, check_data


class EarlyStopping(Callback):
    """Stops a training that no longer improves on held-out points, and restores its best state.

    The score is the mean log-likelihood of the held-out points under the average over draws, always with the
    same noise; one that is not a number is no gain. Whatever ends the training, network and likelihood return
    to their best state, each replica to its own. All replicas stop together.

    Args:
        likelihood: the same object that `gilib.fit` trains.
        x: held-out inputs, in any form that `gilib.fit` accepts.
        y: held-out targets.
        every: number of steps from one evaluation to the next.
        patience: number of evaluations in a row without a gain that stop the training.
        num_samples: draws of an evaluation; one is enough for a point estimate.
        seed: seed of the draws.

    Attributes:
        scores: the scores of all evaluations, nats per held-out point, each `[R]`.
        best: the highest score so far, `[R]`.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 60)[:, None]
    >>> y = (3 * x).sin() + 0.3 * torch.randn(60, 1, generator=torch.Generator().manual_seed(0))
    >>> net = gilib.models.mlp(1, (50,), 1, posterior=gilib.PointEstimate())
    >>> noise = gilib.Gaussian(1.0, learn=True)
    >>> stop = EarlyStopping(noise, x[::4], y[::4], every=50, patience=3)
    >>> train = [k for k in range(60) if k % 4]
    >>> history = gilib.fit(net, noise, x[train], y[train], steps=5000, callbacks=[stop], progress=False)
    >>> len(history.elbo) < 5000 and float(stop.best) == float(max(stop.scores))
    True
    """

    remembers = ("scores", "best", "waited", "kept")

    def __init__(
        self,
        likelihood: Likelihood,
        x: Tensor,
        y: Tensor,
        *,
        every: Count = 100,
        patience: Count = 10,
        num_samples: Count = 20,
        seed: CountOrZero = 0,
    ):
        self.likelihood, self.x, self.y = likelihood, x, y
        self.every, self.patience, self.num_samples, self.seed = every, patience, num_samples, seed
        self.begin()

    def begin(self) -> None:
        self.scores: list[Tensor] = []
        self.best = torch.tensor(-torch.inf)
        self.waited = torch.tensor(0)  # evaluations since the best one
        self.kept: dict[str, Tensor] = {}  # the best state

    def __call__(self, step: int, bound: Tensor, net: Network) -> bool:
        if step % self.every:
            return False
        score = self._score(net)
        gained = score > self.best.to(score)
        self.scores.append(score.cpu())
        self.best = torch.where(gained, score, self.best.to(score))
        self.waited = torch.where(gained, 0, self.waited.to(score.device) + 1)
        self._keep(net, gained)
        return bool((self.waited >= self.patience).all())

    def end(self, net: Network) -> None:
        with torch.no_grad():
            for name, value in self._state(net).items():
                if name in self.kept:
                    seen = _over(self.best.to(value.device) > -torch.inf, value)
                    value.copy_(torch.where(seen, self.kept[name].to(value), value))

    def check(self, net: Network, likelihood: Likelihood) -> None:
        """Raise unless the likelihood is the trained one, the points fit, and replicas share no parameter."""
        if likelihood is not self.likelihood:
            raise ValueError(
                "EarlyStopping was given another likelihood than fit: give both the same object, so that "
                "points are scored with the trained noise"
            )
        self.x, self.y = as_data(net, self.x, self.y)
        check_data(net, self.likelihood, self.x, self.y)
        named = [*net.named_parameters(), *self.likelihood.named_parameters()]
        axes = len(net.replicas)
        shared = [name for name, p in named if p.requires_grad and tuple(p.shape[:axes]) != net.replicas]
        if shared:
            raise ValueError(
                f"EarlyStopping keeps a state for every replica, and they share {', '.join(shared)}: "
                f"give each its own, as Gaussian(learn=True, replicas={net.replicas}) does"
            )

    @torch.no_grad()
    def _score(self, net: Network) -> Tensor:
        source = torch.Generator(self.x.device).manual_seed(self.seed)
        with failures_as_nan():
            prediction = predict(net, self.likelihood, self.x, self.num_samples, generator=source)
            return prediction.log_prob(self.y).mean(-1)

    def _state(self, net: Network) -> dict[str, Tensor]:
        """Return the parameters and buffers of network and likelihood that have the replica axes, by name."""
        found = {}
        for prefix, module in (("net", net), ("likelihood", self.likelihood)):
            for values in (module.named_parameters(), module.named_buffers()):
                found.update({f"{prefix}.{name}": value for name, value in values})
        axes = len(net.replicas)
        return {name: value for name, value in found.items() if tuple(value.shape[:axes]) == net.replicas}

    def _keep(self, net: Network, gained: Tensor) -> None:
        for name, value in self._state(net).items():
            kept = self.kept.get(name)
            if kept is None:
                self.kept[name] = value.detach().clone()
            else:
                self.kept[name] = torch.where(_over(gained, value), value, kept.to(value)).detach()


def _over(chosen: Tensor, value: Tensor) -> Tensor:
    """Reshape a choice of replicas, `[R]`, so that it broadcasts with `value`, `[R, ...]`."""
    return chosen[(..., *[None] * (value.dim() - chosen.dim()))]
