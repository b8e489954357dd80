"""The classifier."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from gilib.data import Normalisation
from gilib.layers import FixedLinear
from gilib.likelihoods.mixtures import CategoricalPrediction
from gilib.metrics import CalibrationCurve, calibration_curve, log_mean_exp
from gilib.recipes.processes import ProcessRecipe, suits_classes
from gilib.sklearn.columns import as_array, check_labels, named, names_of, warn_of_far_values
from gilib.sklearn.estimator import Array, BayesianEstimator, row_weights, seed_of, validated
from gilib.training.rules.collapsed.classes import TEMPERATURES, process_of_classes
from gilib.validation import check_count


@dataclass(eq=False, repr=False, kw_only=True)
class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """Classification with a distribution over functions, for two classes or more.

    Inputs are normalised internally. Settings that are None have the values of `gilib.recommended(model)`.

    Args:
        model: "network", "gp", "deep_gp" or "auto", as for `BayesianRegressor`; None: "gp" for up to ten
            classes of up to 2000 rows, else "network", as it is if `hidden`, `lr` or `batch_size` is given.
            "auto" compares all three, which takes two minutes for a thousand rows.
        hidden: widths of the network's hidden layers; None: the recipe's.
        num_inducing: greatest number of inducing points; makes the Gaussian process sparse. Of up to 2000
            rows, processes of up to three classes have 250 at most, those of up to ten classes 100.
        steps: number of training steps.
        lr: learning rate of Adam.
        batch_size: number of points in a step.
        num_samples: number of functions drawn for a prediction.
        recipe: a `gilib.recipes.Recipe`, which replaces all settings of the model and its training.
        kernel: kernel for `model="gp"`, as for `BayesianRegressor`.
        random_state: seed of everything that is random; None: another one in every `fit`.
        verbose: whether to show a progress bar.
        class_weight: how many rows each row of a class counts as, `{class: weight}`, times `sample_weight`;
            "balanced": so many that all classes count the same, and all rows together as before. Forecasts
            are then those of a world with these shares of classes. None: one.

    Attributes:
        classes_: the sorted labels, `[C]`, in the order of the columns of `predict_proba`.
        temperature_: what the logits of a process of up to ten classes and 2000 rows are divided by after
            training, from a quarter to sixteen: the training labels are most probable under it, each left out
            in turn, in closed form. Before, its forecasts are mostly not sure enough. Of other models, and
            where most inputs have several labels: 1.
        net_: the trained `gilib.Network`, whose logits are divided already; elbo_ is the bound before.
            likelihood_, normalisation_, elbos_, model_, history_, converged_, n_iter_, n_features_in_ and
            feature_names_in_ are as for `BayesianRegressor`.

    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> model = BayesianClassifier(steps=5, random_state=0).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    >>> model.classes_.tolist(), model.predict_proba(x).shape
    (['no', 'yes'], (30, 2))
    """

    class_weight: dict[Any, float] | str | None = None

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Train on labels `[N]` of any kind."""
        self.target_names_ = names_of(y)
        check_labels(y)
        X, y = validated(self, X, y)
        warn_of_far_values(X, getattr(self, "feature_names_in_", None), "X")
        kinds = {type(label).__name__ for label in y} if y.dtype == object else set()
        if len(kinds) > 1:
            raise ValueError(
                f"labels must be of one type, but y has {', '.join(sorted(kinds))}: use y.astype(str)"
            )
        check_classification_targets(y)
        weights = row_weights(sample_weight, X)
        X, y, weights = X[weights > 0.0], y[weights > 0.0], weights[weights > 0.0]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least 2 classes, y has one class only: {self.classes_.tolist()[0]!r}"
            )
        weights = weights * self._class_weights(y, labels, weights)
        X, labels, counts = self._merged(X, labels[:, None], weights)
        scales = Normalisation.fit(X, weights=counts)
        targets = torch.from_numpy(labels[:, 0].astype(np.int64))
        self._train(X, targets, len(self.classes_), scales, weights=counts)
        self.temperature_ = self._divided(X, targets, counts)

    def _divided(self, X: Array, targets: Tensor, counts: Array | None) -> float:
        """Divide the logits of a process by the temperature that suits it best, and return that."""
        contrasts = list(self.net_.layers)[-1]
        small = isinstance(self._recipe, ProcessRecipe) and suits_classes(len(X), len(self.classes_))
        if not (small and isinstance(contrasts, FixedLinear)):
            return 1.0
        process = process_of_classes(self.net_, self.likelihood_)
        weights = torch.ones(len(X)) if counts is None else torch.from_numpy(counts)
        inputs = self.normalisation_.x(torch.from_numpy(X))
        temperature = process.temperature(inputs, targets, weights.double())
        contrasts.matrix /= temperature
        if temperature == TEMPERATURES[-1]:
            warnings.warn(
                f"labels left out are predicted best with logits divided by {temperature:g}, the most that "
                "is tried: do inputs say nothing of labels, are there copies, or weights that are too big?",
                stacklevel=4,
            )
        return temperature

    def _class_weights(self, y: Array, labels: Array, weights: Array) -> Array:
        """What the weights of rows are multiplied by, `[N]`."""
        if self.class_weight == "balanced":
            counts = np.bincount(labels, weights)
            return (counts.sum() / (len(counts) * counts))[labels]
        found = compute_class_weight(self.class_weight, classes=self.classes_, y=y)
        if not (np.isfinite(found).all() and (found >= 0.0).all() and (found > 0.0).sum() > 1):
            raise ValueError(
                "class_weight must be finite numbers of at least 0, positive for 2 classes at least, got "
                f"{self.class_weight}"
            )
        return found[labels]

    def predict_proba(self, X: Any) -> Array:
        """Return class probabilities, averaged over drawn functions, `[N, C]`, in the order of `classes_`.

        They are an array even if X is a data frame, because scikit-learn's scores find columns by number.
        """
        return self._reduced(X, lambda batch: batch.mean)[0].numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithms of the class probabilities, `[N, C]`."""
        return self._reduced(X, _log_mean)[0].numpy()

    def log_prob(self, X: Any, y: Any) -> Array:
        """Return the log-probability of each label, `[N]`, nats, a proper score.

        Raises:
            ValueError: if a label is not in `classes_`, or there is not one label for each row of X.
        """
        (logs,), indices = self._reduced(X, _log_mean), self._indices(y)
        if len(indices) != len(logs):
            raise ValueError(f"y has {len(indices)} labels for {len(logs)} rows of X")
        return logs.gather(-1, indices[:, None])[:, 0].numpy()

    def predict(self, X: Any) -> Any:
        """Return the most probable label of every point, `[N]`; for a data frame, a series with its index."""
        (index,) = self._reduced(X, lambda batch: batch.classes)
        return named(self.classes_[index.numpy()], X, self.target_names_)

    def predict_entropy(self, X: Any) -> Array:
        """Return the entropy of the class probabilities, `[N]`, nats; high where the prediction is unsure."""
        return self._reduced(X, lambda batch: batch.entropy)[0].numpy()

    def calibration(self, X: Any, y: Any, bins: int = 20) -> CalibrationCurve:
        """Return how often predictions are right, by how sure they are (`gilib.metrics.calibration_curve`).

        Args:
            X: inputs `[N, D]` that were not used in training.
            y: their labels, `[N]`, of the same kind as in `fit`.
            bins: number of equal bins of the most probable label's probability.

        Raises:
            ValueError: if a label is not in `classes_`, or there is not one label for each row of X.
        """
        return calibration_curve(torch.from_numpy(self.predict_proba(X)), self._indices(y), bins)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Sample labels from drawn functions, `[N, n_samples]`.

        Args:
            X: inputs `[N, D]`.
            n_samples: number of samples of each label.
            random_state: seed of the draws.
        """
        check_count(n_samples, "n_samples")
        seed, found = seed_of(random_state), []
        generator = torch.Generator().manual_seed(seed + 1)
        for batch in self._batches(X, n_samples, seed):
            logs = batch.log_probabilities  # [n_samples, N, C]
            uniform = torch.rand(logs.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
            found.append((logs - (-uniform.log()).log()).argmax(-1))  # the greatest is a sample (Gumbel)
        return self.classes_[torch.cat(found, 1).mT.numpy()]

    def _indices(self, y: Any) -> Tensor:
        """Return the positions of labels in `classes_`, `[N]`."""
        labels = column_or_1d(as_array(y), warn=True)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            raise ValueError(f"y has labels that the classifier does not know: {unknown}")
        return torch.from_numpy(np.searchsorted(self.classes_, labels))


def _log_mean(batch: CategoricalPrediction) -> Tensor:
    return log_mean_exp(batch.log_probabilities, 0)
