"""Classification of own data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from gilib.data import Normalisation
from gilib.likelihoods.mixtures import CategoricalPrediction
from gilib.metrics import CalibrationCurve, calibration_curve, log_mean_exp
from gilib.sklearn.columns import as_array, check_labels, warn_of_far_values
from gilib.sklearn.estimator import Array, BayesianEstimator, named, names_of, seed_of, validated
from gilib.validation import check_count


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    """Classification with a distribution over functions, of two classes or more.

    Inputs are normalised inside. The settings that are None are those of `gilib.recommended(model)`.

    Args:
        model: None is "network". By name as for `BayesianRegressor`, and so are all other settings; but that
            no noise varies, and "auto" is of three models. "gp" has 250 inducing points at most.
        hidden: widths of the network's hidden layers; None: the recipe's.
        num_inducing: inducing points, at most; the Gaussian process is sparse then.
        steps: of training.
        lr: learning rate of Adam, for networks and deep processes.
        batch_size: points a step.
        num_samples: functions drawn for a prediction.
        recipe: a `gilib.recipes.Recipe` in place of all that defines the model and its training.
        kernel: of model="gp", as for `BayesianRegressor`.
        random_state: seed of everything that is random; None: another one in every `fit`.
        verbose: whether to show a progress bar.

    Attributes:
        classes_: the labels in sorted order, `[C]`; columns of `predict_proba` are in this order.
        net_: the trained `gilib.Network`; likelihood_, normalisation_, elbo_, elbos_, model_, history_,
            converged_, n_iter_, n_features_in_ and feature_names_in_ are as for `BayesianRegressor`.

    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> model = BayesianClassifier(steps=5, random_state=0).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    >>> model.classes_.tolist(), model.predict_proba(x).shape
    (['no', 'yes'], (30, 2))
    """

    def _fit(self, X: Any, y: Any) -> None:
        """Train on labels `[N]` of any kind."""
        self.target_names_ = names_of(y)
        check_labels(y)
        X, y = validated(self, X, y)
        warn_of_far_values(X, getattr(self, "feature_names_in_", None), "X")
        kinds = {type(label).__name__ for label in y} if y.dtype == object else set()
        if len(kinds) > 1:
            raise ValueError(f"labels must be of one type, y has {', '.join(sorted(kinds))}: y.astype(str)")
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"a classifier needs at least 2 classes, y has one class only: {self.classes_.tolist()[0]!r}"
            )
        self._train(X, torch.from_numpy(labels.astype(np.int64)), len(self.classes_), Normalisation.fit(X))

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities averaged over drawn functions, `[N, C]`, columns as in `classes_`.

        An array also of a data frame: scikit-learn's scores take its columns by number.
        """
        return self._reduced(X, lambda batch: batch.mean)[0].numpy()

    def predict_log_proba(self, X: Any) -> Array:
        """Their logarithms, `[N, C]`."""
        return self._reduced(X, _log_mean)[0].numpy()

    def log_prob(self, X: Any, y: Any) -> Array:
        """Log probability of labels, `[N]` nats: what a proper score of a forecast is.

        Raises:
            ValueError: for labels that are not in `classes_`, or not one for each input.
        """
        (logs,), indices = self._reduced(X, _log_mean), self._indices(y)
        if len(indices) != len(logs):
            raise ValueError(f"y has {len(indices)} labels for {len(logs)} rows of X")
        return logs.gather(-1, indices[:, None])[:, 0].numpy()

    def predict(self, X: Any) -> Any:
        """The most probable label of every point, `[N]`; of a data frame with its rows."""
        (index,) = self._reduced(X, lambda batch: batch.classes)
        return named(self.classes_[index.numpy()], X, self.target_names_)

    def predict_entropy(self, X: Any) -> Array:
        """Entropy of the class probabilities, `[N]` nats: how unsure a prediction is."""
        return self._reduced(X, lambda batch: batch.entropy)[0].numpy()

    def calibration(self, X: Any, y: Any, bins: int = 20) -> CalibrationCurve:
        """How often its predictions are right, by how sure they are: `gilib.metrics.calibration_curve`.

        Args:
            X: inputs `[N, D]` that had no part in the training.
            y: their labels, `[N]`, of the kind that `fit` was given.
            bins: equal bins of the most probable label's probability.

        Raises:
            ValueError: for labels that are not in `classes_`, or not one for each input.
        """
        return calibration_curve(torch.from_numpy(self.predict_proba(X)), self._indices(y), bins)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Labels of drawn functions, `[N, n_samples]`.

        Args:
            X: inputs `[N, D]`.
            n_samples: how many.
            random_state: of the draws.
        """
        check_count(n_samples, "n_samples")
        batches = self._batches(X, n_samples, seed := seed_of(random_state))
        logs = torch.cat([batch.log_probabilities for batch in batches], 1)  # [n_samples, N, C]
        generator = torch.Generator().manual_seed(seed + 1)
        uniform = torch.rand(logs.shape, generator=generator, dtype=torch.float64).clamp_min(1e-300)
        noisy = logs - (-uniform.log()).log()  # the greatest is a sample (Gumbel)
        return self.classes_[noisy.argmax(-1).mT.numpy()]

    def _indices(self, y: Any) -> Tensor:
        """The places of labels in `classes_`, `[N]`.

        Raises:
            ValueError: for labels that are not there.
        """
        labels = column_or_1d(as_array(y), warn=True)
        unknown = sorted(set(labels.tolist()) - set(self.classes_.tolist()), key=str)
        if unknown:
            raise ValueError(f"y has labels that the classifier does not know: {unknown}")
        return torch.from_numpy(np.searchsorted(self.classes_, labels))

    def __sklearn_tags__(self) -> Any:
        """Random without a seed."""
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


def _log_mean(batch: CategoricalPrediction) -> Tensor:
    """The logarithm of the averaged probabilities, `[N, C]`."""
    return log_mean_exp(batch.log_probabilities, 0)
