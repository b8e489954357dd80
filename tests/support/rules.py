"""A layer and a rule of a reader's own: buffers that are averaged in closed form, and not one parameter."""

from dataclasses import dataclass

import torch

import gilib
from gilib.layers import Layer
from gilib.randomness import standard_normal
from gilib.training import Rule, RunningRule

SD = 0.1  # of the weights that are drawn


class Averaged(Layer):
    """f(x) = x W, W ~ N(mean, SD²), where the mean is a buffer and no parameter."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.shape = inputs, outputs
        self.noise_size = inputs * outputs

    def build(self, shape, context):
        self.replicas, (inputs, outputs) = context.replicas, self.shape
        for name, size in {"mean": self.shape, "xx": (inputs, inputs), "xy": self.shape}.items():
            self.register_buffer(name, torch.zeros(*self.replicas, *size, dtype=context.dtype))
        return (outputs,)

    def sample(self, inducing, noise, mode):
        weights = self.mean + SD * noise.draw.unflatten(-1, self.shape)
        return mode(lambda x: x @ weights, noise.zeros)

    def config(self):
        return dict(zip(("inputs", "outputs"), self.shape, strict=True))


@dataclass(frozen=True)
class MovingAverages(Rule):
    """mean = (xx + ridge Id)⁻¹ xy, of moving averages of xᵀx and xᵀy, and noise of deviation `jitter`."""

    decay: float = 0.9
    jitter: float = 0.0
    ridge: float = 1e-6

    def begin(self, problem):
        return RunningAverages(self, problem)


class RunningAverages(RunningRule):
    """The averages are in the layer's buffers, where the engine keeps them; the number of steps is here."""

    def __init__(self, rule, problem):
        super().__init__(problem)
        self.rule, self.steps = rule, 0

    @torch.no_grad()
    def step(self, batch):
        problem, layer = self.problem, next(iter(self.problem.net.layers))
        with problem.propagate_failures():
            bound = problem.objective(batch)
            xx, xy = batch.x.mT @ batch.x, batch.x.mT @ batch.y
        bound, xx, xy = problem.sum_over_processes([bound, xx, xy])
        self.steps += 1
        layer.xx.lerp_(xx.expand_as(layer.xx), 1.0 - self.rule.decay)
        layer.xy.lerp_(xy.expand_as(layer.xy), 1.0 - self.rule.decay)
        identity = torch.eye(layer.shape[0], dtype=xx.dtype)
        layer.mean.copy_(torch.linalg.solve(layer.xx + self.rule.ridge / self.steps * identity, layer.xy))
        noise = standard_normal((1, *layer.mean.shape), problem.generator, layer.mean.dtype, problem.device)
        layer.mean.add_(noise[0], alpha=self.rule.jitter)
        return bound

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state):
        self.steps = state["steps"]


def averaged(replicas=()):
    return gilib.Network(None, [Averaged(2, 2)], input_shape=(2,), replicas=replicas, dtype=torch.float64)
