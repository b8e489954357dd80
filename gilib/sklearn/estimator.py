"""What regressor and classifier share: checks, normalisation, choice of the model, and drawn functions."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.random import Generator, RandomState
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import Tensor

from gilib.data import Normalisation
from gilib.kernels import Kernel, KernelOn
from gilib.linalg import FactorisationError
from gilib.prediction.predicting import predict_batches
from gilib.recipes import Recipe, Trained, bound, recommended
from gilib.recipes.base import at_once
from gilib.recipes.processes import is_searched
from gilib.recipes.recommendation import FOR_REGRESSION, IN_CLOSED_FORM, RECIPES, suited
from gilib.sklearn.columns import as_array, check_complete, check_numbers, warn_of_other_order
from gilib.training import DivergenceError
from gilib.validation import check_choice, check_count, check_instance, check_positive, check_unmasked

Array = NDArray[Any]
MODELS = (*RECIPES, "auto")
MANY_ROWS, HOURS = 10**5, 4e-6  # at which a process is warned of; of a row, for 500 inducing points
POINTS_AT_ONCE = 1000  # at which drawn functions are evaluated


@dataclass(eq=False, repr=False)
class BayesianEstimator(BaseEstimator):
    """Trains a recommended model on normalised data, and predicts with functions drawn from it.

    Every call draws the same functions from the same seed, and evaluates them in float64. The settings are
    the fields; `fit` checks them.
    """

    model: str | None = None
    _: KW_ONLY
    hidden: Sequence[int] | None = None
    num_inducing: int | None = None
    steps: int | None = None
    lr: float | None = None
    batch_size: int | None = None
    num_samples: int = 100
    recipe: Recipe | None = None
    kernel: Kernel | None = None
    random_state: int | RandomState | Generator | None = None
    verbose: bool = False

    _kind = "gaussian"  # the likelihood of numbers, by name

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on inputs `[N, D]` and targets `[N]` or, in regression, `[N, O]`: arrays, tensors, frames.

        A `fit` that fails leaves the model as it was, with all its attributes.

        Args:
            X: inputs.
            y: targets.
            sample_weight: how many rows each row counts as, `[N]`; None: one. A row of weight 3 is three
                rows, to the last digit of every prediction (with a `recipe` only if weights are given); a row
                of weight zero is left out. Weights are not scaled.

        Raises:
            ValueError: for data and weights that make no sense, and for recipes whose rules take no weights.
        """
        before = dict(vars(self))
        try:
            self._fit(X, y, sample_weight)
        except BaseException:
            self.__dict__ = before
            raise
        return self

    def _recipes(self, rows: int, classes: int | None) -> dict[str, Recipe]:
        """Return the candidate recipes by name, with the settings that the user gave."""
        if self.recipe is not None:
            return {type(self.recipe).__name__: check_instance(self.recipe, Recipe, "recipe")}
        if self.model is not None:
            check_choice(self.model, MODELS, "model")
        if self.kernel is not None and self.model not in (None, "gp"):
            raise ValueError(f'kernel is for model="gp", got model={self.model!r}')
        settings = ("steps", "num_inducing", "batch_size", "lr")
        given = {name: getattr(self, name) for name in settings if getattr(self, name) is not None}
        for name, value in given.items():
            (check_positive if name == "lr" else check_count)(value, name)
        given["likelihood"] = self._kind
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence | np.ndarray | None):
            hint = f": write ({int(self.hidden)},)" if isinstance(self.hidden, Real) else ""
            raise TypeError(f"hidden must be a sequence of widths, got {self.hidden!r}{hint}")
        for k, width in enumerate(() if self.hidden is None else self.hidden):
            check_count(width, f"hidden[{k}]")
        of_network = any(value is not None for value in (self.hidden, self.lr, self.batch_size))
        by_adam = of_network or self._kind != "gaussian"
        suitable = "gp" if self.kernel is not None else "network" if by_adam else suited(rows, classes)
        model = self.model or suitable
        names = [name for name in RECIPES if model in (name, "auto")]
        own: dict[str, Any] = {} if self.hidden is None else {"network": {"hidden": tuple(self.hidden)}}
        own["gp"] = {} if self.num_inducing is None else {"num_exact": self.num_inducing}
        own["heteroscedastic_gp"] = {"mean": recommended("gp", **given, **own["gp"])}
        if self.kernel is not None:
            own["gp"]["kernels"] = (self._named_kernel(),)
        return {name: recommended(name, **given, **own.get(name, {})) for name in names}

    def _named_kernel(self) -> KernelOn:
        """Return the kernel on all columns, with column names replaced by numbers."""
        assert self.kernel is not None
        places = range(self.n_features_in_)
        names = list(getattr(self, "feature_names_in_", map(str, places)))
        return check_instance(self.kernel, Kernel, "kernel").numbered(names).on(*places)

    def _warn_of_unread(self, names: Sequence[str], rows: int, classes: int | None) -> None:
        """Warn of settings that no candidate uses, because a search over them would change nothing."""
        settings = ("hidden", "num_inducing", "steps", "lr", "batch_size", "kernel")
        unread = [name for name in settings if getattr(self, name) is not None]
        if self.recipe is None:
            searched = self._kind == "gaussian" and is_searched(rows, classes)
            by_adam = not searched or not set(names) <= set(IN_CLOSED_FORM)
            read = {"hidden": "network" in names, "lr": by_adam, "batch_size": by_adam}
            unread = [name for name in unread if not read.get(name, True)]
        if unread:
            reader = "a recipe of your own" if self.recipe is not None else f"model={self.model!r}"
            warnings.warn(f"{reader} does not read {', '.join(unread)}: leave it out", stacklevel=5)

    def _train(
        self,
        x: Array,
        y: Tensor,
        classes: int | None,
        normalisation: Normalisation,
        own: Recipe | None = None,
        weights: Array | None = None,
    ) -> None:
        """Train every candidate, `own` in place of each if given, and keep the one with the best bound."""
        check_count(self.num_samples, "num_samples")
        recipes = self._recipes(len(x), classes)
        if (classes is not None or self._kind != "gaussian") and self.model == "auto":
            recipes = {name: recipe for name, recipe in recipes.items() if name not in FOR_REGRESSION}
        self._warn_of_unread(list(recipes), len(x), classes)
        self._warn_of_hours([] if own else list(recipes), len(x), classes)
        if own is not None:
            recipes = dict.fromkeys(recipes, own)
        if self.kernel is not None and self.recipe is None:  # its lengthscales have the units of X
            normalisation = replace(normalisation, x_std=torch.ones_like(normalisation.x_std))
        seed = seed_of(self.random_state)
        inputs = normalisation.x(torch.from_numpy(np.array(x))).float()
        targets = y if classes is not None else normalisation.y(y).float()
        self.elbos_: dict[str, float] = {}
        counts = None if weights is None else torch.from_numpy(weights).to(inputs)
        candidates = self._candidates(recipes, inputs, targets, classes=classes, seed=seed, weights=counts)
        for name, trained in candidates.items():
            generator = torch.Generator().manual_seed(seed)
            value = bound(*trained[:2], inputs, targets, generator=generator, weights=counts)
            self.elbos_[name] = float(value) + normalisation.log_density_shift
        self.model_ = max(self.elbos_, key=self.elbos_.__getitem__)
        self.elbo_ = self.elbos_[self.model_]
        self.net_, self.likelihood_, self.history_ = candidates[self.model_]
        self.histories_ = {name: trained.history for name, trained in candidates.items()}
        self.net_.double()
        self._recipe, self._num_classes = recipes[self.model_], classes
        self.normalisation_, self.converged_ = normalisation, self.history_.converged
        self.n_iter_, self.seed_ = len(self.history_.elbo), seed

    def _warn_of_hours(self, names: Sequence[str], rows: int, classes: int | None) -> None:
        """Processes in closed form read all rows at every step: say so before it takes hours."""
        slow = [name for name in names if name in IN_CLOSED_FORM]
        if slow and rows > MANY_ROWS and classes is None and self._kind == "gaussian" and not self.recipe:
            warnings.warn(
                f"{' and '.join(slow)}: a process reads all {rows} rows at every step, which takes about "
                f"{rows * HOURS * ((self.num_inducing or 500) / 500) ** 2:.1g} hours on one core: "
                "model='network' reads batches, and fewer num_inducing are faster",
                stacklevel=5,
            )

    def _candidates(self, recipes: Mapping[str, Recipe], *data: Tensor, **options: Any) -> dict[str, Trained]:
        """Train all candidates; of several, leave out those that cannot be trained, with a warning."""
        found: dict[str, Trained] = {}
        for name, recipe in recipes.items():
            try:
                found[name] = recipe.train(*data, progress=bool(self.verbose), **options)
            except (ValueError, FactorisationError, DivergenceError) as error:
                if not found and name == list(recipes)[-1]:
                    raise
                warnings.warn(f"{name} cannot be trained and is left out: {error}", stacklevel=5)
        return found

    def _batches(self, X: Any, num_samples: int | None = None, seed: int | None = None) -> Iterator[Any]:
        """Predict a thousand rows at a time, in original units, with the same functions in every call."""
        points = self._points(X)
        return predict_batches(
            self.net_,
            self.likelihood_,
            points,
            num_samples or self._recipe.enough(self.num_samples, self._num_classes),
            normalisation=self.normalisation_,
            batch_size=self._at_once,
            generator=torch.Generator().manual_seed(self.seed_ if seed is None else seed),
        )

    def _merged(self, X: Array, y: Array, weights: Array) -> tuple[Array, Array, Array | None]:
        """Merge rows that are the same; a recipe, whose rule may refuse weights, gets them as they are."""
        as_they_are = self.recipe is not None and bool((weights == 1.0).all())
        return (X, y, None) if as_they_are else merged(X, y, weights)

    @property
    def _at_once(self) -> int:
        return at_once(POINTS_AT_ONCE, self.net_.output_shape[-1])

    def _reduced(self, X: Any, *reductions: Callable[[Any], Tensor]) -> tuple[Tensor, ...]:
        """Return reductions of the predictions, `[N, ...]`, with only one batch of outputs in memory."""
        found = [[reduce(batch) for reduce in reductions] for batch in self._batches(X)]
        return tuple(torch.cat(values) for values in zip(*found, strict=True))

    def _points(self, X: Any) -> Tensor:
        """Return validated inputs in original units, `[N, D]`."""
        check_is_fitted(self, "net_")
        for part in (self.net_, self.likelihood_):
            for name, value in part.named_parameters():
                if not bool(value.isfinite().all()):
                    raise ValueError(f"the model holds NaN or infinity in {name}: fit it, or load it, again")
        return torch.from_numpy(np.require(validated(self, X, reset=False), requirements=["C", "W"]))

    def _fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


def validated(estimator: BayesianEstimator, X: Any, *y: Any, **options: Any) -> Any:
    """Validate as scikit-learn's `validate_data`, in float64, with errors that name the columns at fault."""
    if (device := torch.get_default_device()).type != "cpu":
        raise ValueError(
            f"torch's default device is {device}, but estimators compute on the CPU: call them in a block "
            "`with torch.device('cpu'):`"
        )
    check_unmasked(X, "X")
    for given in y:
        warn_of_other_order(X, given)
        check_unmasked(given, "y")
    X, targets = as_array(X), [as_array(given) for given in y]
    check_numbers(X, "X", "pandas.get_dummies(X) turns words into columns of zeros and ones")
    found = validate_data(estimator, X, *targets, dtype=np.float64, ensure_all_finite=False, **options)
    check_complete(found[0] if targets else found, getattr(estimator, "feature_names_in_", None))
    return found


def row_weights(sample_weight: Any, X: Array) -> Array:
    """How many rows each row of X counts as, `[N]`, in float64."""
    found = _check_sample_weight(as_array(sample_weight), X, dtype=np.float64, ensure_non_negative=True)
    if found.sum() < 2.0 <= len(X):
        raise ValueError(
            f"sample_weight sums to {found.sum():g}, and a weight counts rows: a model needs 2. Multiply "
            f"weights that sum to 1 by the number of rows, {len(X)}"
        )
    return found


def merged(X: Array, y: Array, weights: Array) -> tuple[Array, Array, Array | None]:
    """The rows that differ, in the order of their bytes, and how many rows each counts as.

    None: all count once, in their own order. Rows of weight zero are left out.

    >>> merged(np.array([[1.0], [2.0], [1.0]]), np.zeros((3, 1)), np.array([1.0, 0.0, 2.0]))
    (array([[1.]]), array([[0.]]), array([3.]))
    """
    rows = np.ascontiguousarray(np.column_stack([X, y])[weights > 0.0] + 0.0)  # -0.0 is 0.0
    whole = rows.view(np.dtype((np.void, rows.strides[0])))[:, 0]
    _, first, places = np.unique(whole, return_index=True, return_inverse=True)
    counts = np.bincount(places, weights[weights > 0.0])
    kept = np.arange(len(rows)) if (once := bool((counts == 1.0).all())) else first
    return rows[kept, : X.shape[1]], rows[kept, X.shape[1] :], None if once else counts


def seed_of(random_state: Any) -> int:
    """Return a seed for torch: an integer, or one that a generator of numpy draws; of None a fresh one."""
    if random_state is None:
        return secrets.randbelow(2**31)
    if isinstance(random_state, RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and int(random_state) >= 0:
        return int(random_state) % 2**63  # the range of torch's seeds
    raise ValueError(
        "random_state must be an integer of at least 0, a numpy RandomState or Generator, or None, "
        f"got {random_state!r}"
    )
