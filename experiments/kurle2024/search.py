"""Search for the hyper-parameters of BALI on validation data.

Our copy of Kurle et al. (2024) lacks v_0, α, β, and the results of its UCI benchmark (Tables 1 and 7). So we
search ourselves, on validation points from the training parts of published splits. These parts include test
points of other published splits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import gilib
from experiments.common.choosing import Choice, Scores, choose, priced
from experiments.common.uci_splits import Data, check, load_validation, records
from experiments.runner.experiment import Experiment, Job
from experiments.runner.identity import identity
from experiments.runner.records import Record, RecordError, by_identity
from gilib.linalg import failures_as_nan
from gilib.priors import PerReplica
from gilib.randomness import ReplicaGenerators
from gilib.training import Bali

SMALL = ("yacht", "boston", "energy", "concrete", "wine")
LARGE = ("kin8nm", "power", "naval", "protein")
PRIORS = ("absolute", "relative")
WIDTHS = {"protein": 100}  # of the hidden layer; for other sets 50, as in the paper


@dataclass(frozen=True)
class BaliSettings:
    """The settings that are searched.

    Attributes:
        prior: "absolute", our prior, or "relative", the paper's; see `gilib.training.Bali`.
        v0: prior variance of the weights of scaled features, V_0 = v_0 Id, for both kinds of prior.
        lr: α, the step size of the targets' gradient steps.
        update_rate: β, the rate of the moving averages.
    """

    prior: str
    v0: float
    lr: float
    update_rate: float


@dataclass(frozen=True)
class BaliSearchConfig:
    """One training on four fifths of a published split's training part.

    Attributes:
        dataset: name of the set.
        split: number of the published split.
        settings: settings of BALI.
        steps: steps of BALI.
        batch_size: points per step; all, if there are fewer.
        test_samples: draws for predictions of the validation data.
        scale: key of `SCALES`.
    """

    dataset: str
    split: int
    settings: BaliSettings
    steps: int = 20_000
    batch_size: int = 1000
    test_samples: int = 100
    scale: str = "paper"


@dataclass(frozen=True)
class Scale:
    """The size of the search.

    Attributes:
        sets: names of the data sets.
        splits: number of published splits.
        steps: steps of every training; 20000 in the paper.
        v0: values of v_0.
        rates: values of α.
        update_rates: values of β.
        wide: sets with more values of α and β.
        choosing: sets whose validation data determine the choice; the others test it.
    """

    sets: tuple[str, ...] = SMALL + LARGE
    splits: int = 5
    steps: int = 20_000
    v0: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0, 100.0)
    rates: tuple[float, ...] = (0.3, 1.0)
    update_rates: tuple[float, ...] = (0.2, 0.5)
    wide: tuple[str, ...] = SMALL
    choosing: tuple[str, ...] = SMALL[:3]


SCALES = {
    "smoke": Scale(("yacht",), 1, 30, (1.0, 3.0), (0.3,), (0.2,), (), ("yacht",)),
    "reduced": Scale(splits=2, steps=1000, wide=("yacht",)),
    "paper": Scale(),
}
WIDE_RATES, WIDE_UPDATE_RATES = (0.1, 0.3, 1.0), (0.05, 0.2, 0.5)


def search(scale: str) -> Iterator[BaliSearchConfig]:
    """Yield all settings on all sets, set by set."""
    size = SCALES[scale]
    for dataset in size.sets:
        for settings, split in itertools.product(candidates(scale, dataset), range(size.splits)):
            yield BaliSearchConfig(dataset, split, settings, size.steps, scale=scale)


def candidates(scale: str, dataset: str = "") -> list[BaliSettings]:
    """Return the settings that are tried at a scale, on one set or on every set."""
    size = SCALES[scale]
    wide = dataset in size.wide
    rates = WIDE_RATES if wide else size.rates
    update_rates = WIDE_UPDATE_RATES if wide else size.update_rates
    grid = itertools.product(PRIORS, rates, update_rates, size.v0)
    return [BaliSettings(prior, v0, lr, update_rate) for prior, lr, update_rate, v0 in grid]


def scores(scale: str, sets: Sequence[str]) -> Scores[BaliSettings]:
    """Return the recorded validation log-likelihoods of the settings that were tried on every set.

    Raises:
        RecordError: if some of them are missing.
    """
    found = by_identity("bali_search", BaliSearchConfig)
    known: dict[BaliSettings, dict[str, list[float | None]]] = {own: {} for own in candidates(scale)}
    for trial in (each for each in search(scale) if each.dataset in sets and each.settings in known):
        record = found.get(identity("bali_search", trial))
        if record is None:
            raise RecordError(
                "the search for BALI's settings is not complete: "
                f"first run `python -m experiments run bali_search --scale {scale}`"
            )
        by_set = known[trial.settings].setdefault(trial.dataset, [])
        by_set.append(record["metrics"].get("validation_log_likelihood"))
    return known


def chosen(scale: str, prior: str | None = None) -> Choice[BaliSettings]:
    """Return the setting with the best validation log-likelihood over a scale's choosing sets; see `choose`.

    Args:
        scale: scale of the search.
        prior: "absolute" or "relative"; either if None.

    Raises:
        RecordError: if a part of the search is missing.
    """
    known = scores(scale, SCALES[scale].choosing)
    return choose({own: by_set for own, by_set in known.items() if prior in (None, own.prior)})


def serves(scale: str, choice: Choice[BaliSettings]) -> Choice[BaliSettings]:
    """Return a choice with its losses on all sets of a scale, against each set's best with the same prior."""
    known = scores(scale, SCALES[scale].sets)
    return priced(choice.setting, {k: own for k, own in known.items() if k.prior == choice.setting.prior})


def group_key(config: BaliSearchConfig) -> Hashable:
    """Return the group of a configuration: replicas differ in split and v_0, and share α and β."""
    settings = config.settings
    return config.dataset, settings.prior, settings.lr, settings.update_rate, config.steps


def run(configs: Sequence[BaliSearchConfig], job: Job) -> list[Record]:
    """Train configurations of one set, prior, α and β together.

    Returns:
        One record for each: log-likelihood and RMSE on the validation data, in original units; the RMSE of
        predicting the mean; the noise variance (normalised); a thinned curve of the ELBO.
    """
    config, splits = configs[0], [config.split for config in configs]
    data = load_validation(config.dataset, splits, job.device)
    net, likelihood = build(configs, data)
    history = gilib.fit(
        net,
        likelihood,
        data.x,
        data.y,
        steps=config.steps,
        batch_size=config.batch_size,
        num_samples=1,
        rule=Bali(config.settings.lr, config.settings.update_rate, config.settings.prior),
        seed=splits,
        on_divergence="freeze",
        **job.fit_options(),
    )
    found = records(data, history, measure(net, likelihood, data, config.test_samples, splits))
    return [record | {"curve": record["curve"][::10]} for record in found]


def build(configs: Sequence[BaliSearchConfig], data: Data) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build one network with a replica for each configuration, initialised on the CPU."""
    scales = [math.sqrt(config.settings.v0) for config in configs]
    net = gilib.models.mlp(
        data.x.shape[-1],
        (WIDTHS.get(data.name, 50),),
        1,
        posterior=gilib.posteriors.Conjugate(),
        prior=PerReplica(tuple(gilib.NealPrior(scale) for scale in scales)),
        replicas=(len(configs),),
        generator=ReplicaGenerators([1000 + config.split for config in configs]),
        dtype=data.x.dtype,
    )
    noise = gilib.Gaussian(1.0, learn=True, replicas=(len(configs),))
    return net.to(data.x.device), noise.to(data.x.device)


@torch.no_grad()
def measure(
    net: gilib.Network, likelihood: gilib.Gaussian, data: Data, samples: int, seeds: Sequence[int]
) -> dict[str, Tensor]:
    """Measure predictions of the held-out data, each `[R]`; NaN for replicas that diverged."""
    source = ReplicaGenerators([4000 + seed for seed in seeds], data.x.device)
    with failures_as_nan():
        found = gilib.predict(net, likelihood, data.test_x, samples, generator=source)
    constant = data.test_y.square().mean((-2, -1)).sqrt()  # the training mean is 0
    return {
        "validation_log_likelihood": found.log_prob(data.test_y).mean(-1) - data.y_std.log(),
        "validation_rmse": gilib.metrics.rmse(found.mean, data.test_y) * data.y_std,
        "constant_rmse": constant * data.y_std,
        "noise_variance": likelihood.noise_variance,
    }


EXPERIMENTS = {
    "bali_search": Experiment(
        "BALI's settings on validation data",
        BaliSearchConfig,
        search,
        run,
        group=group_key,
        check=check,
        largest_group=50,
    ),
}
