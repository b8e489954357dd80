"""One evaluation of a function with everything that the layers inside it saw and gave."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from gilib.arguments import checked
from gilib.arithmetic import exact_products
from gilib.draws.drawn import Drawn
from gilib.draws.functions import Composite, FixedFunction, Function


class Evaluated(NamedTuple):
    """One layer's part in an evaluation: its function, what went in, what came out."""

    function: Function
    input: Tensor
    output: Tensor


class Recording(NamedTuple):
    """An evaluation and its steps.

    Attributes:
        output: of the whole function.
        steps: one for every layer inside, in the order of evaluation.
    """

    output: Tensor
    steps: tuple[Evaluated, ...]

    @property
    def outputs(self) -> list[Tensor]:
        """Those of all steps."""
        return [step.output for step in self.steps]

    @property
    def drawn(self) -> list[Evaluated]:
        """The steps of layers that drew weights or functions, without those that are fixed."""
        return [step for step in self.steps if not isinstance(step.function, FixedFunction)]


@checked
def record(function: Function | Drawn, x: Tensor, variables: bool = False) -> Recording:
    """Evaluate a function, and note the function, input and output of every layer inside it, in one pass.

    Inputs and outputs are those of the evaluation itself: gradients with respect to them are gradients with
    respect to what the layers saw and gave.

    Args:
        function: any, or a draw; the parts of compositions, residual blocks and sums are taken apart.
        x: `[..., N, D]`.
        variables: whether outputs that have no gradient become variables that have, from which on there are
            gradients: those of the first layers, where neither inputs nor functions have.

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
