"""Methods that users could choose instead of a recipe, with their own defaults, on normalised data."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

import gilib
from experiments.comparisons.tasks import Task
from gilib.data import Normalisation
from gilib.likelihoods.mixtures import CategoricalPrediction, GaussianPrediction, Prediction
from gilib.optional import require
from gilib.randomness import ReplicaGenerators

MEMBERS = 5  # of the ensemble
HIDDEN = (50,)
RATE, STEPS, BATCH = 1e-2, 2000, 400  # of Adam, for the ensemble and for dropout
NOISE_VARIANCE = 0.05  # initial value; it is learned
DROPOUT = 0.05
PROCESS_POINTS = 2000  # largest number of points for the exact Gaussian process
FOLDS = 5
APART = ("ngboost",)  # packages that no extra of gilib installs
DRAWS = 100


class Found(NamedTuple):
    """The results of a method on the test data.

    Attributes:
        prediction: prediction at the normalised test inputs.
        more: further metrics: `elbo`, if there is one; `coverage_90`, if the method has its own intervals.
    """

    prediction: Prediction
    more: dict[str, float]


Method = Callable[[Task, int, int], Found]  # maps a task, a seed and steps (0 for the default) to results


def prepare(method: str) -> None:
    """Import what a method needs, so that imports do not count as its time.

    Raises:
        ImportError: if it is not installed.
    """
    if method in APART:
        _apart(method)
    for name in ("gaussian_process", "ensemble", "model_selection", "linear_model"):
        require(f"sklearn.{name}", "sklearn")
    require("gilib.sklearn", "sklearn")


def _arrays(of: Task) -> tuple[Any, Any, Any]:
    y = of.y.double().numpy()[:, 0] if of.classes is None else of.y.numpy()
    return of.x.double().numpy(), y, of.test_x.double().numpy()


def _gaussian(mean: Any, sd: Any) -> GaussianPrediction:
    """Return a Gaussian prediction at every point, from means `[N]` and deviations `[N]` or a single one."""
    centre = torch.as_tensor(np.asarray(mean), dtype=torch.float64)[None, :, None]
    spread = torch.as_tensor(np.broadcast_to(np.asarray(sd), np.asarray(mean).shape).copy())
    return GaussianPrediction(centre, spread.double()[None, :, None])


def _categorical(probabilities: Any) -> CategoricalPrediction:
    """Return a prediction from probabilities `[N, C]`; 0 becomes 1e-6, to keep log-likelihoods finite."""
    return CategoricalPrediction(torch.from_numpy(probabilities).double().clamp_min(1e-6).log()[None])


def gaussian_process(of: Task, seed: int, steps: int) -> Found:
    """Fit scikit-learn's Gaussian process (constant · RBF + white noise) to at most 2000 random points."""
    processes = require("sklearn.gaussian_process", "sklearn")
    kernels = require("sklearn.gaussian_process.kernels", "sklearn")
    x, y, test_x = _arrays(of)
    rows = np.random.default_rng(seed).permutation(len(x))[:PROCESS_POINTS]
    kernel = kernels.ConstantKernel() * kernels.RBF() + kernels.WhiteKernel()
    model = processes.GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    return Found(_gaussian(*model.fit(x[rows], y[rows]).predict(test_x, return_std=True)), {})


def random_forest(of: Task, seed: int, steps: int) -> Found:
    """Fit scikit-learn's random forest; a regression's Gaussian is as wide as the out-of-bag residuals."""
    ensembles = require("sklearn.ensemble", "sklearn")
    x, y, test_x = _arrays(of)
    if of.classes is not None:
        model = ensembles.RandomForestClassifier(random_state=seed).fit(x, y)
        return Found(_categorical(model.predict_proba(test_x)), {})
    model = ensembles.RandomForestRegressor(oob_score=True, random_state=seed).fit(x, y)
    return Found(_gaussian(model.predict(test_x), (y - model.oob_prediction_).std()), {})


def gradient_boosting(of: Task, seed: int, steps: int) -> Found:
    """Fit scikit-learn's gradient boosting; regressions have one deviation, and intervals by quantiles."""
    ensembles = require("sklearn.ensemble", "sklearn")
    selection = require("sklearn.model_selection", "sklearn")
    x, y, test_x = _arrays(of)
    if of.classes is not None:
        model = ensembles.GradientBoostingClassifier(random_state=seed).fit(x, y)
        return Found(_categorical(model.predict_proba(test_x)), {})
    kind = ensembles.GradientBoostingRegressor
    folds = selection.KFold(FOLDS, shuffle=True, random_state=seed)
    residuals = y - selection.cross_val_predict(kind(random_state=seed), x, y, cv=folds)
    lower, upper = (
        kind(loss="quantile", alpha=level, random_state=seed).fit(x, y).predict(test_x)
        for level in (0.05, 0.95)
    )
    mean = kind(random_state=seed).fit(x, y).predict(test_x)
    targets = of.test_y.double().numpy()[:, 0]
    covered = float(((lower <= targets) & (targets <= upper)).mean())
    return Found(_gaussian(mean, residuals.std()), {"coverage_90": covered})


def natural_gradient_boosting(of: Task, seed: int, steps: int) -> Found:
    """Fit NGBoost (Duan et al., 2020): trees for mean and log deviation, or for the logits of classes."""
    ngboost = _apart("ngboost")
    x, y, test_x = _arrays(of)
    if of.classes is not None:
        kind = ngboost.distns.k_categorical(of.classes)
        model = ngboost.NGBClassifier(Dist=kind, verbose=False, random_state=seed).fit(x, y)
        return Found(_categorical(model.predict_proba(test_x)), {})
    found = ngboost.NGBRegressor(verbose=False, random_state=seed).fit(x, y).pred_dist(test_x)
    return Found(_gaussian(found.params["loc"], found.params["scale"]), {})


def _apart(module: str) -> ModuleType:
    """Import a package that no extra of gilib installs."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{module} is no dependency of gilib and cannot be imported ({error}): "
            f"pip install --no-deps {module}, or name the other methods, --only method=network method=gp ..."
        ) from error


def logistic_regression(of: Task, seed: int, steps: int) -> Found:
    """Fit scikit-learn's logistic regression."""
    models = require("sklearn.linear_model", "sklearn")
    x, y, test_x = _arrays(of)
    return Found(_categorical(models.LogisticRegression().fit(x, y).predict_proba(test_x)), {})


def linear_regression(of: Task, seed: int, steps: int) -> Found:
    """Scikit-learn's `BayesianRidge`."""
    models = require("sklearn.linear_model", "sklearn")
    x, y, test_x = _arrays(of)
    return Found(_gaussian(*models.BayesianRidge().fit(x, y).predict(test_x, return_std=True)), {})


def ensemble(of: Task, seed: int, steps: int) -> Found:
    """Train five networks with one hidden layer, each a MAP estimate with its own noise."""
    seeds = [100 * seed + member for member in range(MEMBERS)]
    posterior, source = gilib.PointEstimate(), ReplicaGenerators([1000 + s for s in seeds])
    net = _network(of, posterior, (MEMBERS,), source)
    likelihood = _likelihood(of, (MEMBERS,))
    _train(net, likelihood, of, seeds, steps, "draw")
    return Found(gilib.predict(gilib.Ensemble(net), likelihood, of.test_x, 1), {})


def dropout(of: Task, seed: int, steps: int) -> Found:
    """Train the same network with Monte Carlo dropout."""
    net = _network(of, gilib.posteriors.Dropout(DROPOUT), (), torch.Generator().manual_seed(1000 + seed))
    likelihood = _likelihood(of, ())
    _train(net, likelihood, of, seed, steps, "pointwise")
    source = torch.Generator().manual_seed(4000 + seed)
    return Found(gilib.predict(net, likelihood, of.test_x, DRAWS, generator=source), {})


def _network(
    of: Task, posterior: gilib.posteriors.Posterior, replicas: tuple[int, ...], source: Any
) -> gilib.Network:
    outputs = 1 if of.classes is None else of.classes
    return gilib.models.mlp(
        of.x.shape[1],
        HIDDEN,
        outputs,
        posterior=posterior,
        prior=gilib.NealPrior(),
        replicas=replicas,
        generator=source,
    )


def _likelihood(of: Task, replicas: tuple[int, ...]) -> Any:
    if of.classes is not None:
        return gilib.Categorical()
    return gilib.Gaussian(NOISE_VARIANCE, learn=True, replicas=replicas)


def _train(
    net: gilib.Network, likelihood: Any, of: Task, seed: int | list[int], steps: int, estimator: str
) -> None:
    gilib.fit(
        net,
        likelihood,
        of.x,
        of.y,
        steps=steps or STEPS,
        rule=gilib.Adam(RATE),
        num_samples=1,
        batch_size=min(BATCH, len(of.x)),
        estimator=estimator,
        seed=seed,
        progress=False,
    )


def recommended(model: str | None) -> Method:
    """Return our scikit-learn estimator as a method, with one of its models or, if None, the default."""

    def fitted(of: Task, seed: int, steps: int) -> Found:
        from gilib.sklearn import BayesianClassifier, BayesianRegressor

        x, y, test_x = _arrays(of)
        kind = BayesianRegressor if of.classes is None else BayesianClassifier
        own = kind(model, steps=steps or None, random_state=seed).fit(x, y)
        scales: Normalisation = own.normalisation_
        draws = gilib.recommended(own.model_).enough(DRAWS, of.classes)
        points, source = torch.from_numpy(test_x), torch.Generator().manual_seed(own.seed_)
        found = gilib.predict(
            own.net_,
            own.likelihood_,
            points,
            draws,
            normalisation=scales,
            batch_size=1000,
            generator=source,
        )
        return Found(found, {"elbo": own.elbo_})

    return fitted


METHODS: dict[str, Method] = {
    "forest": random_forest,
    "boosting": gradient_boosting,
    "ngboost": natural_gradient_boosting,
    "logistic": logistic_regression,
    "exact_gp": gaussian_process,
    "ensemble": ensemble,
    "dropout": dropout,
    "network": recommended("network"),
    "gp": recommended("gp"),
    "heteroscedastic_gp": recommended("heteroscedastic_gp"),
    "deep_gp": recommended("deep_gp"),
}
OURS = ("network", "gp", "heteroscedastic_gp", "deep_gp")
REGRESSION_ONLY, CLASSES_ONLY = ("exact_gp", "heteroscedastic_gp"), ("logistic",)
