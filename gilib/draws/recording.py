"""One evaluation of a function, with inputs and outputs of the layers inside it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gilib.arguments import checked
from gilib.arithmetic import exact_products
from gilib.draws.drawn import Drawn
from gilib.draws.functions import Composite, FixedFunction, Function


class Evaluated(NamedTuple):
    """One layer in an evaluation: its function, input and output."""

    function: Function
    input: Tensor
    output: Tensor


class Recording(NamedTuple):
    """An evaluation and its steps, one for each layer inside, in the order of evaluation."""

    output: Tensor
    steps: tuple[Evaluated, ...]

    @property
    def outputs(self) -> list[Tensor]:
        """The outputs of all steps."""
        return [step.output for step in self.steps]

    @property
    def drawn(self) -> list[Evaluated]:
        """The steps of layers that drew weights or functions."""
        return [step for step in self.steps if not isinstance(step.function, FixedFunction)]


@checked
def record(function: Function | Drawn, x: Tensor, variables: bool = False) -> Recording:
    """Evaluate a function, and record the function, input and output of each layer inside it.

    They are the tensors of the evaluation itself, so that gradients with respect to them can be taken.

    Args:
        function: a function or a draw; compositions, residual blocks and sums are taken apart.
        x: inputs, `[..., N, D]`.
        variables: whether outputs without a gradient become variables that require one.

    >>> import torch
    >>> from gilib.draws.functions import Composition, ResidualFunction
    >>> output, steps = record(Composition((torch.sin, ResidualFunction(torch.cos))), torch.zeros(2, 1))
    >>> [step.function.__name__ for step in steps], output.tolist()
    (['sin', 'cos'], [[1.0], [1.0]])
    """
    steps: list[Evaluated] = []

    def call(part: Function, value: Tensor) -> Tensor:
        if isinstance(part, Composite):
            return part.evaluate(value, call)
        output = part(value)
        if variables and not output.requires_grad:
            output = output.detach().requires_grad_()  # a view: the output may be the input
        steps.append(Evaluated(part, value, output))
        return output

    if isinstance(function, Drawn):
        function = function.function
    with exact_products():
        return Recording(call(function, x), tuple(steps))
