"""The regressor."""

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
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.distributions import constraints

from gilib import models
from gilib.data import Normalisation
from gilib.data.normalisation import constant_columns
from gilib.draws import Draw
from gilib.likelihoods import Gaussian, GaussianNoise, HeteroscedasticGaussian, Likelihood
from gilib.likelihoods.mixtures import GaussianPrediction
from gilib.network import Network
from gilib.posteriors import PointEstimate
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Recipe, Trained, check_likelihood, likelihood_class
from gilib.sklearn import columns
from gilib.sklearn.estimator import Array, BayesianEstimator, row_weights, seed_of, validated
from gilib.sklearn.targets import LogNormalPrediction, logarithms, warn_of_non_gaussian
from gilib.training.history import STOOD_STILL, History
from gilib.validation import check_choice, check_count

ROUNDING = 1e-9  # by which rounding may raise a rank above a whole number
CLASSES = "BayesianClassifier is for classes"


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianRegressor(RegressorMixin, BayesianEstimator):
    """Regression with a distribution over functions, with one output or several.

    Inputs and targets are normalised internally, and every output has its own noise. Settings that are None
    have the values of `gilib.recommended(model)`.

    A single target, or many equal ones, do not tell the scale of the noise. `fit` refuses a single row. If
    all targets of an output are equal, a warning is given, and this constant is predicted, with a standard
    deviation of its own size (one for zeros and for logarithms). The model is then trained on the other
    outputs only, and `net_`, `likelihood_`, `normalisation_` and `elbo_` belong to these.

    Args:
        model: the model's name. "network" is factorised below a global last layer; "gp" is a Gaussian
            process, exact for up to 1500 rows; "heteroscedastic_gp" has a second Gaussian process that
            predicts the size of the noise; "deep_gp" has two layers. "auto" trains all of them, and keeps the
            one with the best ELBO on the training data; this takes a minute at most for some hundred rows,
            minutes for ten thousand, and twelve for forty thousand. None: "heteroscedastic_gp" for up to a
            thousand rows, and "network" for more rows or if `hidden`, `lr` or `batch_size` is given.
        hidden: widths of the network's hidden layers; None: the recipe's.
        num_inducing: greatest number of inducing points; makes the Gaussian process sparse.
        steps: number of training steps.
        lr: learning rate of Adam.
        batch_size: number of points in a step.
        num_samples: number of functions drawn for a prediction. Use a thousand if tails matter.
        recipe: a `gilib.recipes.Recipe`, which replaces all settings of the model and its training.
        kernel: a `gilib.kernels.Kernel` for `model="gp"`, which replaces the kernels that are otherwise
            compared. Its hyper-parameters are starting values: lengthscales and periods in units of X, which
            is centred but not scaled, and variances of normalised targets. Columns are given by number, or by
            name for a data frame: `RBF(2.0).on("age") + Periodic(period=1.0).on("year")`.
        random_state: seed of everything random; None: a different one in every `fit`.
        verbose: whether to show a progress bar.
        likelihood: distribution of the targets given a function, and so of predictions: "gaussian", "student"
            (noise with outliers), "poisson" or "negative_binomial" (counts; the second if they vary more than
            Poisson counts), "gamma" (positive numbers) or "beta" (proportions between 0 and 1), or a subclass
            of `gilib.likelihoods.Likelihood` that is created without arguments. Targets are normalised if its
            support is `constraints.real`. With any but "gaussian", a "gp" is sparse and trained by Adam,
            "auto" leaves "heteroscedastic_gp" out, and both this and `calibrate` are refused.
        target: "log" trains on the logarithms of the targets, which must be positive. The prediction is then
            an equal mixture of log-normals, in the units of the targets. Its mean exceeds the median, by far
            where the model knows little. None: targets as they are.

    Attributes:
        net_: the trained `gilib.Network`, for normalised data, in float64.
        likelihood_: the likelihood with the learned noise, for normalised targets.
        normalisation_: the normalisation of inputs and targets.
        elbo_: evidence lower bound, nats per data point, for targets in original units.
        elbos_: the bounds of all candidates by name, as `histories_` holds their histories. `model_` is the
            name of the best.
        noise_sd_: standard deviation of the noise of every output in original units, `[O]`; of the logarithms
            for `target="log"`. If it varies, it is the root mean square over the training inputs.
        stretch_: factor by which `calibrate` stretched the predictions of every output, `[O]`; ones after
            `fit`.
        history_: history of the training; `history_.verdict()` says in words whether it has converged.
        converged_: whether the bound was level at the end, which is no proof of convergence.
        n_iter_: number of training steps.
        n_features_in_: D. `feature_names_in_` holds the column names, if X was a data frame.

    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> model = BayesianRegressor(steps=5, random_state=0).fit(x, x[:, 0])
    >>> mean, sd = model.predict(x, return_std=True)
    >>> mean.shape, sd.shape
    ((30,), (30,))
    """

    target: str | None = None
    likelihood: str | type[Likelihood] = "gaussian"

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        if self.target is not None:
            check_choice(self.target, ("log",), "target")
        check_likelihood(self.likelihood, "likelihood")
        self._kind = getattr(self if self.recipe is None else self.recipe, "likelihood", "gaussian")
        if self.target is not None and self._kind != "gaussian":
            raise ValueError(
                f"target='log' puts Gaussian noise on logarithms, but likelihood={self._kind!r} is another "
                "noise: give only one of the two"
            )
        if self._kind == "gaussian" and isinstance(self.recipe, Recipe):
            given = self.recipe.new_likelihood(torch.zeros(2, 1))
            if not isinstance(given, GaussianNoise):
                raise TypeError(f"its field `likelihood` is 'gaussian', but the recipe gives {given}")
        self.target_names_ = columns.names_of(y)
        columns.check_numbers(y, "y", CLASSES)
        X, y = validated(self, X, y, multi_output=True, y_numeric=True)
        targets = np.array(y, dtype=np.float64)
        self._flat = targets.ndim == 1
        targets, weights = targets.reshape(len(X), -1), row_weights(sample_weight, X)
        if len(X) < 2:
            raise ValueError(
                "X has 1 sample, and one target tells nothing about the scale of others: a regressor needs 2"
            )
        names = self.target_names_ if isinstance(self.target_names_, list) else None
        columns.warn_of_far_values(X, getattr(self, "feature_names_in_", None), "X")
        self._logs = self.target == "log"
        if self._logs:
            targets = logarithms(torch.from_numpy(targets)).numpy()
        elif self._kind == "gaussian":
            alone = self.target_names_ if isinstance(self.target_names_, str) else None
            warn_of_non_gaussian(targets, names or (alone and [alone]))
        columns.warn_of_far_values(targets, names, "log y" if self._logs else "y")
        X, targets, counts = self._merged(X, targets, weights)
        y = torch.from_numpy(targets)
        constant = constant_columns(y)
        scaled = self._kind == "gaussian" or likelihood_class(self._kind).support is constraints.real
        if self._kind != "gaussian":
            if scaled and constant.any():
                raise ValueError(
                    f"likelihood={self._kind!r} wants targets that vary, but those of an output are all the "
                    "same: leave that output out"
                )
            trial = likelihood_class(self._kind)()
            outputs = trial.link(y)
            trial.check_targets(y, *outputs.shape)
            trial.predictive(torch.zeros_like(outputs)[None])
            constant = torch.zeros_like(constant)
        inputs = torch.from_numpy(np.array(X))
        scaling = Normalisation.fit(inputs, y if scaled else None, weights=counts)
        self._scales = _of_size(scaling, y, self._logs) if scaled else scaling
        if constant.any():
            which = [names[k] if names else k for k in constant.nonzero().flatten().tolist()]
            warnings.warn(
                f"all targets are the same in outputs {which}: this constant is predicted, and its size is "
                "the standard deviation, which constant targets do not tell",
                stacklevel=3,
            )
        own = _ConstantRecipe() if constant.all() else None
        self._varies = ~constant | constant.all()
        units = self._scales
        if scaled:
            units = replace(units, y_mean=units.y_mean[self._varies], y_std=units.y_std[self._varies])
        self._train(X, y[:, self._varies], None, units, own, counts)
        if self._logs:  # the density of y is that of log y, divided by y
            shift = float(np.average(y[:, self._varies].sum(1), weights=counts))
            self.elbos_ = {name: value - shift for name, value in self.elbos_.items()}
            self.elbo_ = self.elbos_[self.model_]
        if self._kind != "gaussian" or isinstance(self.likelihood_, HeteroscedasticGaussian):
            self.noise_sd_ = np.sqrt(np.average(np.square(self._noise_sd(X)), 0, counts))
        else:
            noise: Any = self.likelihood_.noise_variance
            sd = noise.detach().sqrt().expand(int(self._varies.sum()))
            self.noise_sd_ = self._scales.scale_y(self._all(sd, 1.0)).numpy()

    def noise_sd(self, X: Any) -> Any:
        """Return the standard deviation of the noise, `[N]` or `[N, O]`; of logarithms for `target="log"`.

        If the noise varies with the inputs (`model="heteroscedastic_gp"`) or with the mean (counts, positive
        numbers, proportions), it is the median over drawn functions.

        Args:
            X: inputs `[N, D]`.
        """
        sd = self._noise_sd(self._points(X).numpy())
        return columns.named(sd[:, 0] if self._flat else sd, X, self.target_names_)

    def _noise_sd(self, X: Array) -> Array:
        """Return the median of the noise over drawn functions, `[N, O]`, whose logarithm is Gaussian."""
        draw = self._draw()
        points = self.normalisation_.x(torch.from_numpy(np.array(X, dtype=np.float64)))
        levels = []
        with torch.no_grad():
            for part in points.split(self._at_once):
                distribution = self.likelihood_.distribution(draw.moments(part).mean)
                levels.append(distribution.variance.log().mean(0))
        return self._scales.scale_y(self._all((0.5 * torch.cat(levels)).exp(), 1.0)).numpy()

    def _draw(self) -> Draw:
        generator = torch.Generator().manual_seed(self.seed_)
        return self.net_.draw(self._recipe.enough(self.num_samples), generator=generator)

    def _all(self, values: Tensor, constant: float | Tensor) -> Tensor:
        """Return values `[..., O]` of all outputs: `constant` for those that did not vary in training."""
        if bool(self._varies.all()):
            return values
        found = values.new_empty(*values.shape[:-1], len(self._varies))
        found[..., ~self._varies] = constant[..., ~self._varies] if isinstance(constant, Tensor) else constant
        found[..., self._varies] = values
        return found

    def predict(
        self, X: Any, return_std: bool = False, return_interval: float | None = None, return_cov: bool = False
    ) -> Any:
        """Mean `[N]` or `[N, O]`, of a data frame with its rows and the names of the targets.

        Anything else that is asked for follows the mean in a tuple. A pipeline passes these arguments to its
        last step, so `pipeline.predict(X, return_interval=0.9)` works, too.

        Args:
            X: inputs `[N, D]`.
            return_std: also the standard deviation, noise included.
            return_interval: also the lower and upper end of `predict_interval` of this coverage.
            return_cov: also the joint covariance of new targets at these rows, an array `[N, N]` or
                `[N, N, O]`, as of scikit-learn's `GaussianProcessRegressor`, noise included. In closed form
                for processes; else of the functions that were drawn, so that fewer functions than rows leave
                it singular. It takes memory for N² numbers, for deep processes times `num_samples`.

        Raises:
            ValueError: for a coverage that is not between 0 and 1, and for a covariance of predictions that
                are not Gaussian.
        """
        wanted: list[Callable[[Any], Tensor]] = [attrgetter("mean"), *[attrgetter("sd")] * bool(return_std)]
        wanted += [] if return_interval is None else _ends(return_interval)
        found = [self._shown(values, X) for values in self._reduced(X, *wanted)]
        if return_cov:
            found.append(self._covariance(X))
        return found[0] if len(found) == 1 else tuple(found)

    def _covariance(self, X: Any) -> Array:
        """Of the functions between rows; on the diagonal the variance of `predict`, noise included."""
        if self._kind != "gaussian" or self._logs:
            raise ValueError(
                "return_cov is for Gaussian predictions: for others, np.cov(model.sample_y(X, 1000)) is an "
                "estimate"
            )
        draw = self._draw()
        outputs = int(self._varies.sum())
        with torch.no_grad():
            mean, joint = draw.covariances(self.normalisation_.x(self._points(X)))
        away = (mean - mean.mean(0))[..., :outputs]  # [S, N, O]; what follows are logarithms of noise
        found = torch.einsum("sno,smo->nmo", away, away) / len(away)
        if joint is not None:
            found = found + joint[..., :outputs].mean(0)
        found = (self._stretch * self._scales.y_std).square() * self._all(found, 0.0)
        (sd,) = self._reduced(X, attrgetter("sd"))
        found.diagonal().copy_(sd.mT.square())
        return found[..., 0].numpy() if self._flat else found.numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[Any, Any]:
        """Return lower and upper ends of the central interval that holds a new target with this probability.

        Args:
            X: inputs `[N, D]`.
            coverage: probability of the interval, for every output separately.

        Raises:
            ValueError: if the coverage is not between 0 and 1.
        """
        lower, upper = (self._shown(values, X) for values in self._reduced(X, *_ends(coverage)))
        return lower, upper

    def calibrate(self, X: Any, y: Any, coverage: float = 0.9) -> Self:
        """Stretch predictions around their mean until intervals cover rows that were held out.

        This is split conformal prediction. The distance of every target from its mean is measured as a
        fraction of the distance to that end of its interval. The factor is the ⌈(N + 1) · coverage⌉-th
        smallest of these fractions, for every output separately. If these rows and a new one are
        exchangeable, and none was used in training, the new target lies inside its interval with at least
        this probability, on average over rows and for this interval alone. All other intervals, standard
        deviations, `log_prob` and `sample_y` are stretched alike; `sample_functions` and the noise are not.
        For `target="log"` logarithms are stretched.

        The factor is `stretch_`, and part of `normalisation_`, so that files and pickles keep it. Another
        call replaces it and `fit` forgets it. At the end of a pipeline:
        `pipe[-1].calibrate(pipe[:-1].transform(X), y)`.

        Args:
            X: inputs `[N, D]` that were not used in training.
            y: their targets, `[N]` or `[N, O]`.
            coverage: the probability of central intervals that is to be guaranteed.

        Returns:
            The regressor itself.

        Raises:
            ValueError: if targets do not fit, there are fewer than coverage / (1 - coverage) rows, or the
                likelihood is not "gaussian".

        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> model = BayesianRegressor(steps=5, random_state=0).fit(x[::2], x[::2, 0])
        >>> model.calibrate(x[1::2], x[1::2, 0]).stretch_.shape
        (1,)
        """
        ends, targets = _ends(coverage), self._targets(y, X)
        if self._kind != "gaussian":
            raise ValueError(
                f"calibrate stretches Gaussians, but predictions of likelihood={self._kind!r} are not "
                "Gaussian: measure their coverage by gilib.sklearn.coverage, or use likelihood='gaussian'"
            )
        rank = math.ceil((len(targets) + 1) * coverage - ROUNDING)
        if rank > len(targets):
            least = math.ceil(coverage / (1.0 - coverage) - ROUNDING)
            raise ValueError(
                f"intervals of {coverage:g} need at least {least} rows to calibrate with, got {len(targets)}"
            )
        parts = iter((logarithms(targets) if self._logs else targets).split(self._at_once))
        ratios = torch.cat([_ratios(batch, next(parts), ends) for batch in self._gaussians(X)])
        found = ratios.kthvalue(rank, 0).values
        if not bool(found.isfinite().all()):
            raise ValueError(
                "the mean lies outside the interval in too many rows to stretch around it: use a wider one"
            )
        stretch = self._stretch * torch.where(found > 0.0, found, 1.0)
        self._scales = replace(self._scales, y_stretch=stretch)
        self.normalisation_ = replace(self.normalisation_, y_stretch=stretch[self._varies])
        return self

    @property
    def _stretch(self) -> Tensor:
        """What `calibrate` found, `[O]`."""
        scales = self._scales
        return scales.y_std.new_ones(len(self._varies)) if scales.y_stretch is None else scales.y_stretch

    @property
    def stretch_(self) -> Array:
        """What `calibrate` found, as an array."""
        return self._stretch.numpy()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return R², averaged over outputs; columns of a data frame are found by name."""
        columns.check_numbers(y, "y", CLASSES)
        check_is_fitted(self, "net_")
        return float(
            super().score(X, columns.as_array(columns.in_order(y, self.target_names_)), sample_weight)
        )

    def log_prob(self, X: Any, y: Any) -> Array:
        """Log density of targets, `[N]` nats, in original units: what a proper score of a forecast is."""
        parts = iter(self._targets(y, X).split(self._at_once))
        return self._reduced(X, lambda batch: batch.log_prob(next(parts)))[0].numpy()

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Sample targets, `[N, n_samples]` or `[N, O, n_samples]`: a function, plus noise at each point.

        Args:
            X: inputs `[N, D]`.
            n_samples: number of samples.
            random_state: seed of the draws.
        """
        outputs, generator = self._functions(X, n_samples, random_state)
        samples = self.likelihood_.sample(outputs, generator)
        noise = torch.randn(*samples.shape[:-1], len(self._varies), generator=generator, dtype=torch.float64)
        samples = self._scales.invert_y(self._all(samples, noise))
        if bool((self._stretch != 1.0).any()):
            centre = torch.cat([batch.mean for batch in self._gaussians(X)])
            samples = torch.lerp(centre, samples, self._stretch)
        return self._samples(samples)

    def sample_functions(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Sample functions without noise, `[N, n_samples]` or `[N, O, n_samples]`.

        Gaussian processes are sampled jointly and exactly, at a cost of N³. Another `n_samples` changes all
        functions, even the first; other points also change those of Gaussian processes. A function gives the
        means of the targets, or with `target="log"` their medians.

        Args:
            X: inputs `[N, D]`.
            n_samples: number of functions.
            random_state: seed of the draws.
        """
        outputs, _ = self._functions(X, n_samples, random_state)
        means = self.likelihood_.distribution(outputs).mean
        return self._samples(self._scales.invert_y(self._all(means.detach(), 0.0)))

    def _functions(self, X: Any, n_samples: int, random_state: Any) -> tuple[Tensor, torch.Generator]:
        """Return the outputs of drawn functions, `[n_samples, N, ...]`, and what they were drawn with."""
        check_count(n_samples, "n_samples")
        generator = torch.Generator().manual_seed(seed_of(random_state))
        points = self._points(X)
        pieces = torch.arange(n_samples).split(max(1, self._at_once // len(points)))
        x, size = self.normalisation_.x(points), len(points)
        with torch.no_grad():
            draws = [self.net_.joint_draw(len(piece), size, generator=generator)(x) for piece in pieces]
        return torch.cat(draws), generator

    def _samples(self, values: Tensor) -> Array:
        samples = (values.exp() if self._logs else values).movedim(0, -1).numpy()
        return samples[:, 0] if self._flat else samples

    def _targets(self, y: Any, X: Any) -> Tensor:
        """Return the targets, `[N, O]`, one row for each row of X."""
        check_is_fitted(self, "net_")
        targets = columns.as_targets(y, self.target_names_, (len(X), len(self._varies)), CLASSES)
        return torch.from_numpy(np.array(targets))

    def _batches(self, X: Any, *options: Any) -> Iterator[Any]:
        """Predict the targets themselves, which `target="log"` makes log-normal."""
        if self._kind != "gaussian":
            yield from super()._batches(X, *options)
            return
        for batch in self._gaussians(X, *options):
            yield LogNormalPrediction(batch.means, batch.component_sd) if self._logs else batch

    def _gaussians(self, X: Any, *options: Any) -> Iterator[GaussianPrediction]:
        """Predict targets or their logarithms, constant outputs included, stretched as `calibrate` found."""
        check_is_fitted(self, "net_")
        constant = self._stretch * self._scales.y_std
        for batch in super()._batches(X, *options):
            means = self._all(batch.means, self._scales.y_mean)
            yield GaussianPrediction(means, self._all(batch.component_sd, constant))

    def _shown(self, values: Tensor, X: Any) -> Any:
        array = values.numpy()
        return columns.named(array[:, 0] if self._flat else array, X, self.target_names_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


@dataclass(frozen=True)
class _ConstantRecipe(Recipe):
    """A recipe for constant targets: functions that are zero, noise of variance one, and no training."""

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        settings: dict[str, Any] = {"inducing_points": points, "generator": generator}  # points set the dtype
        net = models.mlp(points.shape[-1], (), targets.shape[-1], posterior=PointEstimate(), **settings)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        return net

    def new_likelihood(
        self, y: Tensor, classes: int | None = None, replicas: tuple[int, ...] = ()
    ) -> Likelihood:
        return Gaussian(1.0)

    def _train(
        self, x: Tensor, y: Tensor, classes: int | None, seed: int | Sequence[int], options: dict[str, Any]
    ) -> Trained:
        return Trained(*self.build(x, y, seed=seed), History(torch.zeros(0), 0, ended=STOOD_STILL))


def _of_size(found: Normalisation, y: Tensor, are_logs: bool) -> Normalisation:
    """Targets that are all the same are divided by their size; zeros and logarithms by one."""
    size = torch.where((found.y_mean == 0.0) | are_logs, 1.0, found.y_mean.abs())
    return replace(found, y_std=torch.where(constant_columns(y), size, found.y_std))


def _ratios(batch: GaussianPrediction, targets: Tensor, ends: Sequence[Callable[[Any], Tensor]]) -> Tensor:
    """Return how far targets lie from the mean, in fractions of the way to the interval's end, `[N, O]`.

    It is infinite if the mean lies outside, because then no stretching covers the target.
    """
    (low, high), mean = (end(batch) for end in ends), batch.mean
    way = torch.where(targets > mean, high - mean, low - mean)
    return torch.where((low < mean) & (mean < high), (targets - mean) / way, torch.inf)


def _ends(coverage: float) -> list[Callable[[Any], Tensor]]:
    """Return functions that compute the lower and upper ends of a prediction's central interval."""
    tail = 0.5 * (1.0 - coverage) if isinstance(coverage, Real) else 0.0
    if not (0.0 < tail < 0.5 and 1.0 - tail < 1.0):  # 1 - 1e-16 has no upper quantile in float64
        raise ValueError(f"coverage must be between 0 and 1, got {coverage!r}: 1 - 3e-16 at most")
    return [methodcaller("quantile", probability) for probability in (tail, 1.0 - tail)]
