"""One layer of a structured deep GP, without the distribution of its inducing outputs."""

from __future__ import annotations

from torch import Tensor, nn

from gilib.arguments import Count
from gilib.config import Part
from gilib.draws import Draw
from gilib.draws.functions import Function
from gilib.kernels import RBF, Kernel, KernelModule
from gilib.layers import Layer, as_layer
from gilib.layers.base import OfVectors
from gilib.layers.gp import inducing_inputs as placed
from gilib.posteriors import BuildContext
from gilib.posteriors.base import own_points
from gilib.processes import Inducing, Path
from gilib.randomness import Noise
from gilib.sites import Shape
from gilib.validation import as_tensor, check_tensor, check_unused, check_width


class Process(OfVectors, nn.Module, Part):
    """Gaussian processes f_t ~ GP(μ_t, k), t = 1 ... T, which share a kernel and inducing inputs.

    Args:
        in_features: D.
        out_features: T.
        kernel: k; None: `RBF()`, with one lengthscale for each input.
        mean: μ, a layer or module without randomness, for example `torch.nn.Identity()` or
            `gilib.layers.FixedLinear(D, T, matrix)`; None: zero.
        num_inducing: M; None: the number of `inducing_inputs`, or of the network's inducing points.
        inducing_inputs: initial Z, `[M, D]` or `[R, M, D]`; None: standard normals.

    Attributes:
        points: M, once built.
        inducing_inputs: Z, `[R, M, D]`, once built.
        hyperparameters: the kernel's module, once built.
    """

    hyperparameters: KernelModule | None
    inducing_inputs: nn.Parameter | None
    mean: Layer | None

    def __init__(
        self,
        in_features: Count,
        out_features: Count,
        kernel: Kernel | None = None,
        *,
        mean: Layer | nn.Module | None = None,
        num_inducing: Count | None = None,
        inducing_inputs: Tensor | None = None,
    ):
        super().__init__()
        if inducing_inputs is not None:
            inducing_inputs = as_tensor(inducing_inputs, "inducing_inputs")
        if num_inducing is None and inducing_inputs is not None:
            num_inducing = check_tensor(inducing_inputs, "inducing_inputs").shape[-2]
        self.in_features, self.out_features, self.num_inducing = in_features, out_features, num_inducing
        self.kernel = RBF() if kernel is None else kernel
        self.mean = None if mean is None else as_layer(mean)
        self.hyperparameters = self.inducing_inputs = None
        self.points = 0
        self._start = inducing_inputs

    def build(self, shape: Shape, context: BuildContext) -> Shape:
        """Create hyper-parameters and inducing inputs, and return the shape of the outputs at one point.

        Raises:
            ValueError: if the process is built already, does not take points of this shape, or has a mean
                function that is random or of another width.
        """
        check_unused(self.points > 0, self.describe())
        check_width(shape, self.in_features, self.describe())
        if self.mean is not None:
            given = self.mean.join(shape, context)
            if given != (self.out_features,) or self.mean.noise_size:
                raise ValueError(
                    f"the mean function of {self.describe()} must give {self.out_features} numbers and draw "
                    f"nothing, got {self.mean.describe()}, which gives {list(given)}: use "
                    "gilib.layers.FixedLinear(in_features, out_features, matrix)"
                )
        self.points = self.num_inducing = own_points(self.num_inducing, context, "Process")
        self.hyperparameters = self.kernel.build(self.in_features, context)
        start, self._start = self._start, None
        self.inducing_inputs = nn.Parameter(placed(start, (self.points, self.in_features), context))
        return (self.out_features,)

    def inducing(self, jitter: float) -> Inducing:
        """Return the processes' prior at their inducing inputs."""
        assert self.hyperparameters is not None and self.inducing_inputs is not None
        return Inducing.of(self.hyperparameters(), self.inducing_inputs.clone(), jitter)

    def path_sizes(self, num_features: int) -> tuple[int, int, int]:
        """Return the numbers of normals that a path through given inducing outputs needs (`Path.sizes`)."""
        assert self.hyperparameters is not None
        return Path.sizes(self.hyperparameters(), num_features, self.points, self.out_features)

    def mean_function(self, noise: Noise) -> Function | None:
        """Return the mean function, or None if it is zero; `noise` determines the number of samples."""
        return None if self.mean is None else self.mean.sample(None, noise, Draw).function
