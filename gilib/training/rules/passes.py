"""The passes of a step of BALI: draw, evaluate, back-propagate to what every layer gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gilib.draws import Drawn, Evaluated, record
from gilib.layers import Layer
from gilib.posteriors import PosteriorModule
from gilib.posteriors.notes import noted_places
from gilib.randomness import Noise
from gilib.regression.joint import Place, first_of
from gilib.training.gradients.objective import Batch
from gilib.training.rules.base import Problem
from gilib.training.rules.layerwise import LayerRegression
from gilib.training.rules.scores import Scores


class PassResult(NamedTuple):
    """What a step saw.

    Attributes:
        steps: of the layers with weights.
        places: where the residuals of these layers are taken.
        gradients: -g, those of the log likelihood, at the outputs of layers with pseudo-targets,
            `[S, R, B, O]` or images of O channels.
        bound: of the batch's share, `[R]`.
    """

    steps: Sequence[Evaluated]
    places: Sequence[Place]
    gradients: Sequence[Tensor]
    bound: Tensor


class Passes:
    """Forward and back through the functions of a step.

    Args:
        problem: with the network and its likelihood.
        layers: those with weights, of which the last may have the targets of the data.
        deterministic: whether steps after the first take mean weights.
    """

    def __init__(self, problem: Problem, layers: Sequence[LayerRegression], deterministic: bool):
        """Hold them."""
        self.problem, self.layers, self.deterministic = problem, layers, deterministic
        self.scores = Scores(layers)
        own = [type(part).__module__ for part in problem.net.modules() if isinstance(part, Layer)]
        self.together = all(name.startswith("gilib.") for name in own)  # others may need each layer's score

    def __call__(self, batch: Batch) -> PassResult:
        """One step."""
        objective, likelihood = self.problem.objective, self.problem.likelihood
        with self.problem.propagate_failures():
            drawn, noted = self._drawn(batch)
            recording = record(drawn.function, batch.x, variables=True)
            random = recording.drawn
            log_likelihood = likelihood.log_prob(recording.output, batch.y)  # [S, R, B]
            pairs = zip(random, self.layers, strict=True)
            outputs = [step.output for step, layer in pairs if not layer.true_targets]
            gradients = torch.autograd.grad(log_likelihood.sum(), outputs) if outputs else ()
        with torch.no_grad():
            scored = drawn.log_pq is not None
            score = drawn.density if scored else self.scores(self._noise(batch).draw, random)
            bound = (log_likelihood.mean(-1) + score / objective.num_data).mean(0)
            places = self._places(batch, noted, random)
        return PassResult(random, places, gradients, batch.fraction * bound)

    def _is_first(self, batch: Batch) -> bool:
        """Whether nothing has been averaged yet."""
        return batch.step == 0 and not bool(self.layers[0].posterior.steps.any())

    @torch.no_grad()
    def _drawn(self, batch: Batch) -> tuple[Drawn, Mapping[PosteriorModule, Place]]:
        """The functions of a step, and where layers noted their draws.

        Those of the first step are of drawn weights, as there is no mean yet.
        """
        objective = self.problem.objective
        if objective.estimator == "draw":
            with noted_places(scored=not self.together) as noted:
                return objective.drawn(self._noise(batch)), noted
        if self._is_first(batch):
            return self.problem.net.draw(objective.num_samples, generator=self.problem.generator), {}
        return objective.drawn(self._noise(batch)), {}

    def _noise(self, batch: Batch) -> Noise:
        """Of a step: of its weights, none where they are to be the mean."""
        if self.deterministic and not self._is_first(batch):
            return Noise(*map(torch.zeros_like, batch.noise))
        return batch.noise

    def _places(
        self, batch: Batch, noted: Mapping[PosteriorModule, Place], steps: Sequence[Evaluated]
    ) -> list[Place]:
        """Where residuals are taken: at the weights of the one draw, or at the mean.

        Several draws, and outputs without weights, have no such place; at the first step there is no mean
        either, and that of the draws takes its place.
        """
        if self._is_first(batch):
            return [layer.start(step) for layer, step in zip(self.layers, steps, strict=True)]
        if not noted or len(batch.noise.draw) > 1:
            return [Place(layer.posterior.mean) for layer in self.layers]
        return [first_of(noted[layer.posterior]) for layer in self.layers]
