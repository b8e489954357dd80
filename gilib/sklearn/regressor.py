"""Regression on own data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from operator import attrgetter, methodcaller
from typing import Any, Self

import numpy as np
import torch
from numpy.random import Generator, RandomState
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted
from torch import Tensor

from gilib import models
from gilib.data import Normalisation
from gilib.data.normalisation import constant_columns
from gilib.kernels import Kernel
from gilib.likelihoods import Gaussian, GaussianNoise, HeteroscedasticGaussian, Likelihood
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.network import Network
from gilib.posteriors import PointEstimate
from gilib.randomness import GeneratorLike
from gilib.recipes.base import LIKELIHOODS, Recipe, Trained, check_likelihood
from gilib.sklearn.columns import as_array, check_numbers, warn_of_far_values
from gilib.sklearn.estimator import (
    POINTS_AT_ONCE,
    Array,
    BayesianEstimator,
    named,
    names_of,
    seed_of,
    validated,
)
from gilib.sklearn.targets import LogNormalPrediction, logarithms, warn_of_non_gaussian
from gilib.training.history import STOOD_STILL, History
from gilib.validation import check_choice, check_count

ROUNDING = 1e-9  # of a rank
CLASSES = "BayesianClassifier takes classes"


class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """Regression with a distribution over functions, of one output or several.

    Inputs and targets are normalised inside; every output has its own noise. The settings that are None are
    those of `gilib.recommended(model)`.

    One target, or the same one over and over, tells nothing of a scale. A single row is refused. An output
    whose targets are all the same is predicted as this constant, its standard deviation the size of the
    constant (one for zeros and for logarithms), with a warning; of several outputs the others are trained
    without it, and `net_`, `likelihood_`, `normalisation_` and `elbo_` are theirs. So it is for every model.

    Args:
        model: None is "heteroscedastic_gp" for up to a thousand rows, and "network" for more, or where
            `hidden`, `lr` or `batch_size` are given. By name: "network" (factorised below a global last
            layer), "gp" (a Gaussian process, exact for up to 1500 data), "heteroscedastic_gp" (another one
            says how large the noise is where), "deep_gp" (two layers), or "auto": all of them are trained,
            and the one with the best ELBO on the training data is kept. That takes about a minute for some
            hundred rows, minutes for ten thousand, and twenty for forty thousand.
        hidden: widths of the network's hidden layers; None: the recipe's.
        num_inducing: inducing points, at most; the Gaussian process is sparse then. More where `elbo_` rises
            with them.
        steps: of training. More if twice as many raise `elbo_` by more than you care for.
        lr: learning rate of Adam. Lower it where the bound jumps (`history_.plot()`).
        batch_size: points a step. Give it for more than a few thousand rows.
        num_samples: functions drawn for a prediction. A thousand where tails matter.
        recipe: a `gilib.recipes.Recipe` in place of all that defines the model and its training.
        kernel: of model="gp", a `gilib.kernels.Kernel` in place of those that are compared. The search
            starts from its hyper-parameters, lengthscales and periods in units of X, variances of normalised
            targets: X is centred and not scaled. Columns by number, or by the names of a data frame:
            `RBF(2.0).on("age") + Periodic(period=1.0).on("year")`.
        random_state: seed of everything that is random; None: another one in every `fit`.
        verbose: whether to show a progress bar.
        likelihood: of targets, given a function: "gaussian", "student" (noise with outliers), "poisson" or
            "negative_binomial" (counts; the second where they scatter more than their mean says), "gamma"
            (positive numbers), "beta" (shares between 0 and 1). Predictions, intervals, densities and samples
            are of this kind, and stay where targets can be. Only "gaussian" and "student" normalise targets.
            With all but "gaussian" a "gp" is sparse and trained by Adam, "auto" leaves "heteroscedastic_gp"
            out, and this one and `calibrate` are refused.
        target: "log" trains on the logarithms of targets, which must be positive, so that a prediction is an
            equal mixture of log-normals: means, standard deviations, quantiles, densities, bounds and samples
            are those of the targets themselves, and intervals are positive. The mean is above the median, far
            above it where little is known. None: targets as they are.

    Attributes:
        net_: the trained `gilib.Network`, on normalised data, in float64.
        likelihood_: with the learned noise; `normalisation_` likewise.
        elbo_: the evidence lower bound, nats per data point, for targets in original units.
        elbos_: that of every candidate; `model_` is the name of the best, `histories_` are those of all.
        noise_sd_: standard deviation of the noise of every output, original units, `[O]`; where it varies,
            the root of its mean square at the training inputs; of logarithms for `target="log"`; where it
            follows from the mean, as of counts, likewise.
        stretch_: by which factor `calibrate` stretched every output's predictions, `[O]`; ones after `fit`.
        history_: of the training; `history_.verdict()` says whether it has converged, in words.
        converged_: whether the bound was level at the end. A plateau is no proof, and where the learning rate
            fell a bound that still rises is no sign of too few steps.
        n_iter_: steps done.
        n_features_in_: D; `feature_names_in_` their names, if X was a data frame.

    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> model = BayesianRegressor(steps=5, random_state=0).fit(x, x[:, 0])
    >>> mean, sd = model.predict(x, return_std=True)
    >>> mean.shape, sd.shape
    ((30,), (30,))
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        hidden: Sequence[int] | None = None,
        num_inducing: int | None = None,
        steps: int | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        num_samples: int = 100,
        recipe: Recipe | None = None,
        kernel: Kernel | None = None,
        random_state: int | RandomState | Generator | None = None,
        verbose: bool = False,
        target: str | None = None,
        likelihood: str = "gaussian",
    ):
        """Keep the settings; they are checked by `fit`."""
        super().__init__(
            model,
            hidden=hidden,
            num_inducing=num_inducing,
            steps=steps,
            lr=lr,
            batch_size=batch_size,
            num_samples=num_samples,
            recipe=recipe,
            kernel=kernel,
            random_state=random_state,
            verbose=verbose,
        )
        self.target = target
        self.likelihood = likelihood

    def _fit(self, X: Any, y: Any) -> None:
        """Train on the targets that vary."""
        if self.target is not None:
            check_choice(self.target, ("log",), "target")
        check_likelihood(self.likelihood, "likelihood")
        self._kind = (
            self.likelihood if self.recipe is None else getattr(self.recipe, "likelihood", "gaussian")
        )
        if self.target is not None and self._kind != "gaussian":
            raise ValueError(
                f"target='log' has Gaussian noise on logarithms, and likelihood={self._kind!r} another one: "
                "give one of both"
            )
        self.target_names_ = names_of(y)
        check_numbers(y, "y", CLASSES)
        X, y = validated(self, X, y, multi_output=True, y_numeric=True)
        targets = np.array(y, dtype=np.float64)
        self._flat = targets.ndim == 1
        y = torch.from_numpy(targets.reshape(len(X), -1))
        if len(y) < 2:
            raise ValueError(
                "X has 1 sample, and one target tells nothing of the scale of others: a regressor needs 2"
            )
        names = self.target_names_ if isinstance(self.target_names_, list) else None
        warn_of_far_values(X, getattr(self, "feature_names_in_", None), "X")
        self._logs = self.target == "log"
        if self._logs:
            y = logarithms(y)
        elif self._kind == "gaussian":
            alone = self.target_names_ if isinstance(self.target_names_, str) else None
            warn_of_non_gaussian(y.numpy(), names or (alone and [alone]))
        warn_of_far_values(y.numpy(), names, "log y" if self._logs else "y")
        constant = constant_columns(y)
        if self._kind != "gaussian":
            constant = self._checked(y, constant)
        inputs = torch.from_numpy(np.array(X))
        scaled = self._kind in ("gaussian", "student")
        self._scales = _scaling(inputs, y, self._logs) if scaled else Normalisation.fit(inputs)
        self.stretch_ = np.ones(y.shape[1])
        if constant.any():
            which = [names[k] if names else k for k in constant.nonzero().flatten().tolist()]
            warnings.warn(
                f"all targets are the same in outputs {which}, which are predicted as they are; the standard "
                "deviation is their size, for they do not tell it",
                stacklevel=3,
            )
        own = _ConstantRecipe() if constant.all() else None
        self._varies = ~constant | constant.all()
        units = _of_outputs(self._scales, self._varies) if scaled else self._scales
        self._train(X, y[:, self._varies], None, units, own)
        if self._logs:  # the density of y is that of log y, divided by y
            shift = float(y[:, self._varies].sum(1).mean())
            self.elbos_ = {name: value - shift for name, value in self.elbos_.items()}
            self.elbo_ = self.elbos_[self.model_]
        if self._kind == "gaussian" and not isinstance(self.likelihood_, GaussianNoise):
            raise TypeError(f"a regressor needs Gaussian noise, its recipe gives {self.likelihood_}")
        if self._kind != "gaussian" or isinstance(self.likelihood_, HeteroscedasticGaussian):
            self.noise_sd_ = np.sqrt(np.square(self._noise_sd(X)).mean(0))
        else:
            noise: Any = self.likelihood_.noise_variance
            sd = noise.detach().sqrt().expand(int(self._varies.sum()))
            self.noise_sd_ = self._scales.scale_y(self._all(sd, 1.0)).numpy()

    def _checked(self, y: Tensor, constant: Tensor) -> Tensor:
        """Which outputs are left out of the training: none.

        Raises:
            ValueError: for targets that the likelihood cannot explain.
        """
        if self._kind == "student" and constant.any():
            raise ValueError(
                "likelihood='student' wants targets that vary, and in an output all are the same: leave it "
                "out"
            )
        LIKELIHOODS[self._kind]().check_targets(y, *y.shape)
        return torch.zeros_like(constant)

    def noise_sd(self, X: Any) -> Any:
        """The standard deviation of the noise alone, `[N]` or `[N, O]`; with `target="log"` of logarithms.

        It is the same everywhere but for noise that varies with the inputs (`model="heteroscedastic_gp"`) or
        with the mean (counts, positive numbers, shares). Of that it is the median; what is not known of it
        widens the predictions beyond.

        Args:
            X: inputs `[N, D]`.
        """
        sd = self._noise_sd(self._points(X).numpy())
        return named(sd[:, 0] if self._flat else sd, X, self.target_names_)

    def _noise_sd(self, X: Array) -> Array:
        """The median over functions, `[N, O]`, of logarithms that are Gaussian."""
        generator = torch.Generator().manual_seed(self.seed_)
        draw = self.net_.draw(self._recipe.enough(self.num_samples), generator=generator)
        points = self.normalisation_.x(torch.from_numpy(np.array(X, dtype=np.float64)))
        levels = []
        with torch.no_grad():
            for part in points.split(POINTS_AT_ONCE):
                found = self.likelihood_.distribution(draw.moments(part).mean)
                levels.append(found.variance.log().mean(0))
        return self._scales.scale_y(self._all((0.5 * torch.cat(levels)).exp(), 1.0)).numpy()

    def _all(self, values: Tensor, constant: float | Tensor) -> Tensor:
        """Values `[..., O]` of all outputs, of those that varied in the training and one of the others."""
        if bool(self._varies.all()):
            return values
        found = values.new_empty(*values.shape[:-1], len(self._varies))
        found[..., ~self._varies] = constant[..., ~self._varies] if isinstance(constant, Tensor) else constant
        found[..., self._varies] = values
        return found

    def predict(self, X: Any, return_std: bool = False, return_interval: float | None = None) -> Any:
        """Mean `[N]` or `[N, O]`, of a data frame with its rows and the names of the targets.

        What is asked for beside it follows in a tuple, of the same shape. A pipeline hands these arguments on
        to its last step, so that `pipeline.predict(X, return_interval=0.9)` gives intervals, too.

        Args:
            X: inputs `[N, D]`.
            return_std: also the standard deviation, noise included.
            return_interval: also the lower and upper end of `predict_interval` of this coverage.

        Raises:
            ValueError: for a coverage that is not between 0 and 1.
        """
        wanted: list[Callable[[Any], Tensor]] = [attrgetter("mean"), *[attrgetter("sd")] * bool(return_std)]
        wanted += [] if return_interval is None else _ends(return_interval)
        found = [self._shown(values, X) for values in self._reduced(X, *wanted)]
        return found[0] if len(found) == 1 else tuple(found)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """The central interval that holds a new target with this probability: lower and upper end.

        Args:
            X: inputs `[N, D]`.
            coverage: between 0 and 1, for every output by itself.

        Raises:
            ValueError: for a coverage outside these.
        """
        lower, upper = (self._shown(values, X) for values in self._reduced(X, *_ends(coverage)))
        return lower, upper

    def calibrate(self, X: Any, y: Any, interval: float = 0.9) -> Self:
        """Stretch predictions around their mean until intervals cover rows that were held out.

        Split conformal prediction: of how far each target lies from its mean, in parts of the way to that end
        of its interval, the ⌈(N + 1) · interval⌉-th smallest is the factor, for every output by itself. If
        these rows and a new one are exchangeable, and none had a part in the training, the new target is
        inside its interval with at least this probability: on average over rows, not in every group of them,
        and for no other interval, though all are stretched alike. So are `predict`'s standard deviations,
        `log_prob` and `sample_y`; not `sample_functions`, the noise, and files of `gilib.save`. For
        `target="log"` logarithms are stretched.

        The factor is `stretch_`. Another call replaces it, `fit` forgets it, pickles keep it. At the end of a
        pipeline: `pipe[-1].calibrate(pipe[:-1].transform(X), y)`.

        Args:
            X: inputs `[N, D]` that had no part in the training.
            y: their targets, `[N]` or `[N, O]`.
            interval: the probability to promise, of central intervals.

        Raises:
            ValueError: for targets that do not fit, fewer rows than interval / (1 - interval), or another
                likelihood than "gaussian".

        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = BayesianRegressor(steps=5, random_state=0).fit(x[::2], x[::2, 0])
        >>> model.calibrate(x[1::2], x[1::2, 0]).stretch_.shape
        (1,)
        """
        ends, targets = _ends(interval), self._targets(y, X)
        if self._kind != "gaussian":
            raise ValueError(
                f"calibrate stretches Gaussians, and predictions of likelihood={self._kind!r} are none: see "
                "their coverage by gilib.sklearn.coverage, or take likelihood='gaussian'"
            )
        rank = math.ceil((len(targets) + 1) * interval - ROUNDING)
        if rank > len(targets):
            least = math.ceil(interval / (1.0 - interval) - ROUNDING)
            raise ValueError(
                f"intervals of {interval:g} need {least} rows at least to calibrate with, got {len(targets)}"
            )
        parts = iter((logarithms(targets) if self._logs else targets).split(POINTS_AT_ONCE))
        ratios = torch.cat([_ratios(batch, next(parts), ends) for batch in self._gaussians(X)])
        found = ratios.kthvalue(rank, 0).values.numpy()
        if not np.isfinite(found).all():
            raise ValueError(
                "the mean lies outside the interval in too many rows to stretch around it: take a wider one"
            )
        self.stretch_ = self.stretch_ * np.where(found > 0.0, found, 1.0)
        return self

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R², the mean over outputs; the columns of a data frame are taken by name."""
        check_numbers(y, "y", CLASSES)
        return float(super().score(X, as_array(self._in_order(y)), sample_weight))

    def log_prob(self, X: Any, y: Any) -> Array:
        """Log density of targets, `[N]` nats, in original units: what a proper score of a forecast is."""
        parts = iter(self._targets(y, X).split(POINTS_AT_ONCE))
        return self._reduced(X, lambda batch: batch.log_prob(next(parts)))[0].numpy()

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Targets of drawn functions, noise included, `[N, n_samples]` or `[N, O, n_samples]`.

        A sample is one function at all points, as of `sample_functions`, plus noise of its own at each.

        Args:
            X: inputs `[N, D]`.
            n_samples: how many.
            random_state: of the draws.
        """
        generator = torch.Generator().manual_seed(seed_of(random_state))
        outputs = self._functions(X, n_samples, generator)
        samples = self.likelihood_.sample(outputs, generator)
        noise = torch.randn(*samples.shape[:-1], len(self._varies), generator=generator, dtype=torch.float64)
        samples = self._scales.invert_y(self._all(samples, noise))
        if (self.stretch_ != 1.0).any():
            centre = torch.cat([batch.mean for batch in self._gaussians(X)])
            samples = torch.lerp(centre, samples, torch.from_numpy(self.stretch_))
        return self._samples(samples)

    def sample_functions(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Drawn functions, without noise, `[N, n_samples]` or `[N, O, n_samples]`.

        A sample is one function at all points. Processes are sampled jointly, exactly, at a cost of N³.
        Another `n_samples` gives other functions from the first on, and so do, of processes, other points.
        With `target="log"` they are medians of the targets; else the means that these would have.

        Args:
            X: inputs `[N, D]`.
            n_samples: how many.
            random_state: of the draws.
        """
        generator = torch.Generator().manual_seed(seed_of(random_state))
        outputs = self._functions(X, n_samples, generator)
        means = self.likelihood_.distribution(outputs).mean
        return self._samples(self._scales.invert_y(self._all(means.detach(), 0.0)))

    def _functions(self, X: Any, n_samples: int, generator: torch.Generator) -> Tensor:
        """Outputs of drawn functions, `[n_samples, N, ...]`."""
        check_count(n_samples, "n_samples")
        points = self._points(X)
        pieces = torch.arange(n_samples).split(max(1, POINTS_AT_ONCE // len(points)))
        x, size = self.normalisation_.x(points), len(points)
        with torch.no_grad():
            draws = [self.net_.joint_draw(len(piece), size, generator=generator)(x) for piece in pieces]
        return torch.cat(draws)

    def _samples(self, values: Tensor) -> Array:
        samples = (values.exp() if self._logs else values).movedim(0, -1).numpy()
        return samples[:, 0] if self._flat else samples

    def _in_order(self, y: Any) -> Any:
        """Targets, the columns of a data frame in the order of the training."""
        check_is_fitted(self, "net_")
        names = names_of(y)
        if not (isinstance(names, list) and isinstance(self.target_names_, list)):
            return y
        if set(names) != set(self.target_names_):
            raise ValueError(f"y must have the columns {self.target_names_}, got {names}")
        return y[self.target_names_]

    def _targets(self, y: Any, X: Any) -> Tensor:
        """Targets `[N, O]`, one row for each of X."""
        check_numbers(y, "y", CLASSES)
        values = check_array(as_array(self._in_order(y)), ensure_2d=False, dtype=np.float64, input_name="y")
        targets = torch.from_numpy(np.array(values)).reshape(len(values), -1)
        wanted = [len(X), len(self._varies)]
        if list(targets.shape) != wanted:
            raise ValueError(
                f"y must hold {wanted} targets, one row for each of X, got {list(targets.shape)}"
            )
        return targets

    def _batches(self, X: Any, *options: Any) -> Iterator[Any]:
        """Of the targets themselves."""
        if self._kind != "gaussian":
            yield from super()._batches(X, *options)
            return
        for batch in self._gaussians(X, *options):
            yield LogNormalPrediction(batch.means, batch.component_sd) if self._logs else batch

    def _gaussians(self, X: Any, *options: Any) -> Iterator[GaussianPrediction]:
        """Of targets or their logarithms, with constant outputs, too, stretched around the mean."""
        check_is_fitted(self, "net_")
        stretch = torch.from_numpy(self.stretch_)
        for batch in super()._batches(X, *options):
            means = self._all(batch.means, self._scales.y_mean)
            sd = self._all(batch.component_sd, self._scales.y_std)
            yield GaussianPrediction(torch.lerp(means.mean(0), means, stretch), stretch * sd)

    def _shown(self, values: Tensor, X: Any) -> Any:
        array = values.numpy()
        return named(array[:, 0] if self._flat else array, X, self.target_names_)

    def __sklearn_tags__(self) -> Any:
        """Several outputs; random."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.non_deterministic = self.random_state is None
        return tags


@dataclass(frozen=True)
class _ConstantRecipe(Recipe):
    """Of targets that are all the same: functions that are zero, noise of variance one, and no training."""

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """A map to zero."""
        size = points.shape[-1], (), targets.shape[-1]
        net = models.mlp(
            *size,
            posterior=PointEstimate(),
            inducing_points=points,
            generator=generator,  # for their dtype
        )
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        return net

    def new_likelihood(
        self, y: Tensor, classes: int | None = None, replicas: tuple[int, ...] = ()
    ) -> Likelihood:
        """As wide as the normalised targets are."""
        return Gaussian(1.0)

    def _train(
        self, x: Tensor, y: Tensor, classes: int | None, seed: int | Sequence[int], options: dict[str, Any]
    ) -> Trained:
        return Trained(*self.build(x, y, seed=seed), History(torch.zeros(0), 0, ended=STOOD_STILL))


def _scaling(x: Tensor, y: Tensor, are_logs: bool) -> Normalisation:
    """Targets that are all the same are divided by their size: more of a scale nobody knows.

    Zeros are divided by one, and so are logarithms, whose size depends on units.
    """
    found = Normalisation.fit(x, y)
    size = torch.where((found.y_mean == 0.0) | are_logs, 1.0, found.y_mean.abs())
    return replace(found, y_std=torch.where(constant_columns(y), size, found.y_std))


def _of_outputs(scales: Normalisation, which: Tensor) -> Normalisation:
    """The normalisation of some of the targets, `which` of `[O]`."""
    return replace(scales, y_mean=scales.y_mean[which], y_std=scales.y_std[which])


def _ratios(batch: GaussianPrediction, targets: Tensor, ends: Sequence[Callable[[Any], Tensor]]) -> Tensor:
    """How far targets lie from the mean, in parts of the way to the end of their intervals, `[N, O]`.

    Infinite where the mean lies outside, so that no stretching covers the target.
    """
    (low, high), mean = (end(batch) for end in ends), batch.mean
    way = torch.where(targets > mean, high - mean, low - mean)
    return torch.where((low < mean) & (mean < high), (targets - mean) / way, torch.inf)


def _ends(coverage: float) -> list[Callable[[Any], Tensor]]:
    """The lower and the upper quantile of a prediction."""
    tail = 0.5 * (1.0 - coverage) if isinstance(coverage, Real) else 0.0
    if not (0.0 < tail < 0.5 and 1.0 - tail < 1.0):  # 1 - 1e-16 has no upper quantile in float64
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}: 1 - 3e-16 at most")
    return [methodcaller("quantile", probability) for probability in (tail, 1.0 - tail)]
