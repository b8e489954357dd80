"""A deep Gaussian process with a joint posterior over all its layers, as one layer of a network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from torch import Tensor, nn

from gilib.arguments import Count, Fraction
from gilib.draws import AnyDrawn, Composition, Draw, Drawn, Estimate, JointDraw
from gilib.draws.functions import BranchesFunction, Function, total
from gilib.layers import Layer
from gilib.linalg import FactorisationError
from gilib.posteriors import BuildContext, WeightDistribution
from gilib.processes import Inducing, Jointly, Marginals, Path
from gilib.randomness import Noise, NoiseSize
from gilib.sites import Shape
from gilib.structured.families import Family, StripesAndArrow
from gilib.structured.gaussian import JointGaussian
from gilib.structured.pattern import Pattern
from gilib.structured.process import Process
from gilib.structured.theorem import Recursion


class StructuredGP(Layer):
    """Layers of Gaussian processes whose inducing outputs have one joint Gaussian (Lindinger et al., 2020).

    The inducing outputs of layer l are u_l = R_l w_l, where R_l R_lᵀ = k_l(Z_l, Z_l). The posterior of all w
    together is Q(w) = N(m, C Cᵀ), where C is lower triangular and has the blocks of a family. The bound is
    (ibid., Eq. 5)

        Σ_n E log P(y_n | f_n^L) - ½ (‖C‖² + ‖m‖² - dim w) + Σ_i log|C_ii|.

    An estimate integrates w out at every point, by Theorem 1 of the paper (`gilib.structured.theorem`). Its
    log_pq is minus the divergence. A draw first samples w of all layers together; then it is a path in each
    layer, like a draw of `gilib.GP`. `joint_draw` is exact.

    Args:
        processes: the layers, from first to last.
        family: which processes depend on each other: `MeanField`, `StripesAndArrow` or `FullyCoupled`; None:
            `StripesAndArrow()`.
        jitter: fraction of K's mean variance that is added to its diagonal; see `gilib.GP`.
        num_features: F, the number of random features of a draw.
        marginalise: False: an estimate samples the inducing outputs, and then the points given them. The
            bound is the same on average, but noisier (ibid., Fig. 2).

    Attributes:
        weights: the joint Gaussian, once the layer is built.

    Raises:
        ValueError: if there is no process, if a process does not fit on the one below it, or if the family is
            not made for these widths.

    >>> import torch
    >>> layer = StructuredGP([Process(3, 2, num_inducing=9), Process(2, 1, num_inducing=9)])
    >>> layer.build((3,), BuildContext())
    (1,)
    >>> function, log_pq = layer.estimate(num_samples=4, num_points=7)
    >>> function(torch.randn(7, 3)).shape, log_pq.shape
    (torch.Size([4, 7, 1]), torch.Size([4]))
    """

    has_weights = prefers_estimate = True
    carries = False
    weights: JointGaussian | None

    def __init__(
        self,
        processes: Sequence[Process],
        family: Family | None = None,
        *,
        jitter: Fraction = 1e-5,
        num_features: Count = 1024,
        marginalise: bool = True,
    ):
        super().__init__()
        if not processes:
            raise ValueError("a structured deep GP needs at least one process")
        self.processes = nn.ModuleList(processes)
        self.family = StripesAndArrow() if family is None else family
        self.jitter, self.num_features, self.marginalise = float(jitter), num_features, marginalise
        for below, above in zip(self, list(self)[1:], strict=False):
            if below.out_features != above.in_features:
                raise ValueError(
                    f"{below.describe()} gives {below.out_features} numbers, but {above.describe()}, "
                    f"which follows, takes {above.in_features}"
                )
        self.family.check(tuple(process.out_features for process in self))
        self.weights = None

    def __iter__(self) -> Iterator[Process]:
        return cast(Iterator[Process], iter(self.processes))

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        for process in self:
            shape = process.build(shape, context)
        widths, sizes = zip(*((process.out_features, process.points) for process in self), strict=True)
        self.weights = JointGaussian(Pattern(self.family, widths, sizes), context)
        self.replicas = context.replicas
        self.noise_size = self.weights.noise_size + sum(self._path_sizes())
        return shape

    def _built(self) -> JointGaussian:
        if self.weights is None:
            raise self.not_built()
        return self.weights

    def _path_sizes(self) -> list[int]:
        return [sum(process.path_sizes(self.num_features)) for process in self]

    def _inducing(self) -> list[Inducing]:
        found = []
        for k, process in enumerate(self):
            try:
                found.append(process.inducing(self.jitter))
            except FactorisationError as error:
                raise error.within(f"process {k}, {process.describe()}") from None
        return found

    def noise_sizes(self, mode: type[Drawn]) -> NoiseSize:
        if mode is Draw:
            return NoiseSize(self.noise_size)
        joint = self._built()
        own = 0 if mode is Estimate and self.marginalise else joint.noise_size
        return NoiseSize(own, len(joint.pattern.places))

    def sample(self, inducing: Tensor | None, noise: Noise, mode: type[AnyDrawn]) -> AnyDrawn:
        joint, processes = self._built(), self._inducing()
        means = [process.mean_function(noise) for process in self]
        divergence = joint.kl().expand(noise.draw.shape[:-1]) if mode is Estimate else None
        if divergence is not None and self.marginalise:
            return mode(Recursion(processes, means, joint.distribution(), noise.points), -divergence)
        own, rest = noise.draw.tensor_split([joint.noise_size], -1)
        drawn, log_pq = joint.draw(own)
        functions: list[Function]
        known = [WeightDistribution(w, None, None) for w in drawn]
        if mode is Draw:
            known[-1] = joint.last(drawn[-1], own)
            parts = zip(processes, known, drawn, rest.split(self._path_sizes(), -1), strict=True)
            functions = [Path.of(*part, self.num_features) for part in parts]
        else:
            points = noise.points.split([process.out_features for process in self], -1)
            if mode is JointDraw:
                functions = list(map(Jointly, processes, drawn, points))
            else:
                functions = list(map(Marginals, processes, known, points))
        pairs = zip(functions, means, strict=True)
        added = tuple(f if mean is None else BranchesFunction((f, mean), total) for f, mean in pairs)
        return mode(Composition(added), log_pq if divergence is None else -divergence)

    def input_shape(self) -> Shape:
        return (next(iter(self)).in_features,)

    def describe(self) -> str:
        widths = [next(iter(self)).in_features, *(process.out_features for process in self)]
        return f"StructuredGP({' → '.join(map(str, widths))})"
