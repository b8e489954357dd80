"""The rule `Collapsed`: sparse Gaussian processes under their best posterior, which has a closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gilib.arguments import Positive
from gilib.kernels.modules import kernels_with_prior
from gilib.likelihoods import Categorical, HeteroscedasticGaussian, Likelihood
from gilib.likelihoods.weighted import Weighted
from gilib.linalg import FactorisationError
from gilib.network import Network
from gilib.training.gradients.objective import Batch
from gilib.training.history import FAILED, STOOD_STILL
from gilib.training.rules.base import Problem, Rule, RunningRule
from gilib.training.rules.collapsed.classes import process_of_classes
from gilib.training.rules.collapsed.model import CollapsedModel, single_process
from gilib.training.rules.collapsed.noise import process_with_noise

PATIENCE = 3  # steps in a row with next to no gain that end the search
EVALUATIONS, MEMORY = 20, 20  # most in a line search; pairs of steps and gradients that L-BFGS keeps


@dataclass(frozen=True)
class Collapsed(Rule):
    """L-BFGS on the bound of a sparse GP under its best posterior (Titsias, 2009).

    With Gaussian noise, the best q(w) has a closed form. With a(x) = R⁻¹ k(Z, x) and A = [a(x_1) ... a(x_N)],
    the bound under it is, for every output,

        L = log N(y; 0, AᵀA + σ²Id) - Σ_n (k(x_n, x_n) - |a(x_n)|²) / (2σ²).

    The rule maximises L over kernel and noise, on all points at once; inducing inputs stay fixed. It sets q
    and ends the training at the last step, once the search stands still, or if a matrix cannot be factorised.
    If the inducing inputs are the points themselves, in the same order, L is the evidence of exact GP
    regression and is computed as such.

    Lengthscales with a prior (`gilib.kernels.RBF`) add its log density to the objective. Then noise of
    constant size gets a prior, too, flat in σ: this adds log σ, the log density of log σ.

    Targets that were written with few digits, at a spacing δ, are treated as y + e, with e uniform in ±δ/2.
    This lowers the expected log-likelihood by δ² / (24σ²) for every point, without which rows that occur
    twice would drive the noise to zero. At the end, the variance of e, δ² / 12, is subtracted from the noise,
    because future targets are written with as few digits. But if leave-one-out predictions have a mean
    squared error below δ² / 48, the targets were not rounded, and the search goes on without the cost.

    If the log variance of the noise is a process, too (`HeteroscedasticGaussian` over a `Concat` of two
    processes), the posterior of the noise is searched among those that pseudo-outputs with precisions define.
    Given that, the posterior of the mean has a closed form again (Lázaro-Gredilla & Titsias, 2011). A warning
    says if leave-one-out errors end at twice those of constant noise: structure was taken for noise.

    For classes (`Categorical` over `gilib.models.gp_classifier`) only the kernel is searched;
    natural-gradient steps lead to the best q in every evaluation (Khan & Lin, 2017). Expectations are
    averages over the same 128 normals at every point.

    Args:
        tolerance: nats per point; the search stands still after three steps in a row that gain less.

    >>> Collapsed().tolerance
    1e-05
    """

    default_num_samples: ClassVar[int] = 1
    supports_kl_weight: ClassVar[bool] = False
    tolerance: Positive = 1e-5

    def begin(self, problem: Problem) -> RunningCollapsed:
        """Return the rule at work.

        Raises:
            ValueError: unless the network is one `GP` with `FreeGaussian`, without replicas, and its noise is
                Gaussian, or two such processes are mean and log noise variance, or one makes the logits of
                classes; and if a kernel has white noise, which is the likelihood's.
        """
        return RunningCollapsed(self, problem)


class Evaluation(NamedTuple):
    """The objective at a point, with copies of the parameters and of their gradients."""

    at: list[Tensor]
    gradients: list[Tensor | None]
    value: Tensor


class RunningCollapsed(RunningRule):
    """The rule at work; it searches the parameters of kernel and noise."""

    def __init__(self, rule: Collapsed, problem: Problem):
        super().__init__(problem)
        given = problem.likelihood
        self.weighted = given if isinstance(given, Weighted) else None
        likelihood = given if self.weighted is None else self.weighted.likelihood
        self.rule, self.model = rule, _model(problem.net, likelihood)
        known = {id(parameter) for parameter in self.model.known}
        self.parameters = [p for p in problem.parameters.values() if id(p) not in known]
        self.parameters += self.model.own
        if not self.parameters:
            raise ValueError(
                "nothing to search: neither kernel nor noise is learned; use gilib.training.solve_posterior"
            )
        self.search = self._fresh_search()
        self.last, self.idle = -math.inf, 0
        self.seen: list[Evaluation] = []  # the last of the last line search; the next one begins there
        self.x = torch.zeros(())  # the inputs at which that was
        self.kernels = kernels_with_prior(problem.net)
        self.spacing = torch.zeros(())  # that of the targets, from the first step on

    def _fresh_search(self) -> torch.optim.LBFGS:
        return torch.optim.LBFGS(
            self.parameters,
            max_iter=1,
            max_eval=EVALUATIONS,
            history_size=MEMORY,
            line_search_fn="strong_wolfe",
        )

    def step(self, batch: Batch) -> Tensor:
        if batch.x.shape[-2] != self.problem.objective.num_data or batch.fraction != 1.0:
            raise ValueError(
                "a collapsed bound needs all points at each step: give batch_size=None and one process"
            )
        data = self._data(batch)
        if self.last == -math.inf:
            if data[1].is_floating_point():  # labels are exact
                _check_varied(data[1])
                self.spacing = _spacing(data[1])
            self.model.start(*data)
        if self.idle < PATIENCE:
            self._search(data)
            if self.idle == PATIENCE and not self.ended and self._was_not_rounded(data):
                self.search, self.idle, self.seen = self._fresh_search(), 0, []
            if self.idle == PATIENCE:
                self.ended = self.ended or STOOD_STILL
                self.model.unround(batch.x, data[2], self.spacing)
            if self.ended or batch.step == self.problem.steps - 1:
                self.model.solve_posterior(*data)
        return torch.full((), self.last, dtype=batch.x.dtype, device=batch.x.device)

    def _data(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        if self.weighted is None:
            return batch.x, batch.y, ones(batch.x)
        y, weights = self.weighted.parts(batch.y)
        return batch.x, y, weights.double()

    def _was_not_rounded(self, data: tuple[Tensor, Tensor, Tensor]) -> bool:
        """Return whether some outputs are predicted too well to have been rounded; they count as exact."""
        if not self.spacing.any():
            return False
        refuted = self.model.errors(*data) < self.spacing.square() / 48.0
        self.spacing = torch.where(refuted, 0.0, self.spacing)
        return bool(refuted.any())

    def _search(self, data: tuple[Tensor, Tensor, Tensor]) -> None:
        """Do one line search, in which no point is evaluated twice, nor the one where the last has ended."""
        seen = self.seen if self.x is data[0] else []

        def loss() -> Tensor:
            if seen and all(map(torch.equal, self.parameters, seen[-1].at)):
                for parameter, gradient in zip(self.parameters, seen[-1].gradients, strict=True):
                    parameter.grad = gradient
                return seen[-1].value
            self.search.zero_grad()
            climbed = self.model.bound(*data, self.spacing)
            if self.kernels:
                climbed = climbed + sum(kernel.log_prior().sum() for kernel in self.kernels)
                climbed = climbed + self.model.log_prior()
            value = -climbed / len(data[0])
            value.backward()
            gradients = [p.grad if p.grad is None else p.grad.clone() for p in self.parameters]
            seen.append(Evaluation([p.detach().clone() for p in self.parameters], gradients, value.detach()))
            return value.detach()

        try:
            before = -float(self.search.step(loss))
        except FactorisationError:
            if not seen:
                raise
            self._return_to(seen)
            return
        self.seen, self.x = seen[-1:], data[0]
        gained, self.last = before - self.last, before
        self.idle = self.idle + 1 if gained < self.rule.tolerance else 0

    def _return_to(self, seen: list[Evaluation]) -> None:
        best = min(seen, key=lambda point: float(point.value))
        with torch.no_grad():
            for parameter, at in zip(self.parameters, best.at, strict=True):
                parameter.copy_(at)
        self.last, self.idle, self.ended = -float(best.value), PATIENCE, FAILED

    def state_dict(self) -> dict[str, Any]:
        own = [parameter.detach() for parameter in self.model.own]
        stands = {"last": self.last, "idle": self.idle, "spacing": self.spacing, "ended": self.ended}
        return {"search": self.search.state_dict(), "own": own, "found": [*self.model.found], **stands}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.search.load_state_dict(state["search"])
        self.seen = []
        self.model.found = [value.to(self.parameters[0].device) for value in state["found"]]
        self.last, self.idle = float(state["last"]), int(state["idle"])
        self.spacing, self.ended = state["spacing"].to(self.parameters[0].device), state.get("ended", "")
        with torch.no_grad():
            for parameter, value in zip(self.model.own, state["own"], strict=True):
                parameter.copy_(value)


def solve_posterior(net: Network, likelihood: Likelihood, x: Tensor, y: Tensor) -> Tensor:
    """Set the posterior of a sparse GP to the best one for its kernel, inducing inputs and noise.

        q(w_o) = N(B⁻¹ A y_o / σ², B⁻¹),    B = Id + A Aᵀ / σ²

    Args:
        net: a network of one `GP` with `FreeGaussian`, as `gilib.models.sparse_gp` makes it.
        likelihood: `Gaussian` or `PerOutputGaussian`.
        x: all training inputs, `[N, D]`.
        y: all targets, `[N, O]`.

    Returns:
        The bound, in nats, summed over the points.

    Raises:
        ValueError: for other networks and likelihoods. If the noise is a process, too, train by `Collapsed`.

    >>> import gilib
    >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)[:, None]
    >>> net = gilib.models.sparse_gp(1, 1, inducing_points=x)
    >>> bound = gilib.training.solve_posterior(net, gilib.Gaussian(0.01), x, x.sin())
    >>> float((gilib.predict(net, gilib.Gaussian(0.01), x, 1).mean - x.sin()).abs().max()) < 0.05
    True
    """
    return single_process(net, likelihood).solve_posterior(x, y, ones(x))


def ones(x: Tensor) -> Tensor:
    """Return the weights of inputs `[N, D]` that count once, `[N]`."""
    return x.new_ones(len(x), dtype=torch.float64)


def _check_varied(y: Tensor) -> None:
    """Raise if all targets of an output are equal: the bound would rise without limit as noise vanishes."""
    same = (y == y[:1]).all(0)
    if same.any():
        raise ValueError(
            f"all targets of output {int(same.nonzero()[0])} are the same, so they cannot determine kernel "
            "and noise: leave the output out"
        )


def _spacing(y: Tensor) -> Tensor:
    """Return δ, `[O]`: the smallest distance between different targets of an output; 0 if all are equal."""
    steps = y.double().sort(0).values.diff(dim=0)
    smallest = steps.masked_fill(steps <= 0.0, math.inf).amin(0)
    return torch.where(smallest.isfinite(), smallest, 0.0)


def _model(net: Network, likelihood: Likelihood) -> CollapsedModel:
    if isinstance(likelihood, Categorical):
        return process_of_classes(net, likelihood)
    kind = isinstance(likelihood, HeteroscedasticGaussian)
    return process_with_noise(net, likelihood) if kind else single_process(net, likelihood)
