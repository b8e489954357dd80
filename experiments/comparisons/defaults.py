"""The study behind `gilib.recommended`: compare a recipe with variants that change one setting.

The ELBO per training point after training, on normalised targets, is the only criterion. Test results are
recorded, too, but do not affect the choice.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from experiments.common.choosing import Choice, choose
from experiments.comparisons.posteriors import LARGE, SMALL
from experiments.comparisons.tasks import MOONS
from experiments.runner.records import Record, diverged, records_of
from gilib.likelihoods import Likelihood
from gilib.models import inducing_start, mlp
from gilib.network import Network
from gilib.posteriors import Factorised, GlobalInducing
from gilib.posteriors.pseudo import signed_one_hot
from gilib.priors import NealPrior, ScalePrior
from gilib.randomness import GeneratorLike
from gilib.recipes import NetworkRecipe

BASE = "recipe"
CHOSEN = "tried_draws_10"  # the current recommendation
STUDIED = NetworkRecipe(  # written out, so that records do not change with the recommendation
    steps=1000,
    lr=0.05,
    flat=0.5,
    num_samples=5,
    batch_size=400,
    num_inducing=200,
    noise_variance=0.05,
    label_scale=2.0,
    hidden=(50,),
    activations=(nn.ReLU,),
    lower=Factorised(),
    last=GlobalInducing(),
    prior=NealPrior(learn=True),
)


@dataclass(frozen=True)
class Centres(NetworkRecipe):
    """A recipe whose inducing points start at k-means centres, with the targets of the nearest rows."""

    def build(
        self, x: Tensor, y: Tensor, *, classes: int | None = None, seed: int | Sequence[int] = 0
    ) -> tuple[Network, Likelihood]:
        """Build a network without replicas."""
        assert isinstance(seed, int)
        targets = y if classes is None else signed_one_hot(y, classes, self.label_scale).to(x)
        centres = inducing_start(x, min(self.num_inducing, len(x)), seed=seed)
        nearest = torch.cdist(centres, x).argmin(-1)
        net = self.network(centres, targets[nearest], (), torch.Generator().manual_seed(seed))
        return net, self.new_likelihood(y, classes)


@dataclass(frozen=True)
class NormalOutputs(NetworkRecipe):
    """A recipe whose pseudo-outputs start at standard normals instead of targets."""

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """Build a network without replicas, with random pseudo-outputs."""
        assert isinstance(generator, torch.Generator)
        normals = torch.randn(targets.shape, generator=generator, dtype=targets.dtype)
        return super().network(points, normals, replicas, generator)


@dataclass(frozen=True)
class Independent(NetworkRecipe):
    """A recipe whose last layer has the lower layers' posterior, so that there are no inducing points."""

    def network(
        self, points: Tensor, targets: Tensor, replicas: tuple[int, ...], generator: GeneratorLike
    ) -> Network:
        """Build a multilayer perceptron with the first nonlinearity."""
        return mlp(
            points.shape[-1],
            self.hidden,
            targets.shape[-1],
            activation=self.activations[0],
            posterior=self.lower,
            prior=self.prior,
            generator=generator,
        )


@dataclass(frozen=True)
class Variant:
    """A recipe with one changed setting.

    Attributes:
        setting: name of the setting.
        value: its value in words.
        changes: changed fields of the recipe.
        kind: class of the recipe.
        base: key of the variant that is changed.
    """

    setting: str
    value: str
    changes: dict[str, Any] = field(default_factory=dict)
    kind: type[NetworkRecipe] = NetworkRecipe
    base: str = BASE

    def recipe(self, steps: int = 0) -> NetworkRecipe:
        """Return the recipe, with a number of steps, or with its own if that is 0."""
        fields = {entry.name: getattr(STUDIED, entry.name) for entry in dataclasses.fields(STUDIED)}
        found = self.kind(**(fields | VARIANTS[self.base].changes | self.changes))
        return dataclasses.replace(found, steps=steps) if steps else found


VARIANTS: dict[str, Variant] = {  # the most informative first
    BASE: Variant("the recipe", "as it is"),
    "gelu": Variant("nonlinearity", "GELU", {"activations": (nn.GELU,)}),
    "silu": Variant("nonlinearity", "SiLU", {"activations": (nn.SiLU,)}),
    "tanh": Variant("nonlinearity", "tanh", {"activations": (nn.Tanh,)}),
    "gelu_draws_10": Variant(
        "nonlinearity, draws", "GELU, 10", {"activations": (nn.GELU,), "num_samples": 10}
    ),
    CHOSEN: Variant(
        "nonlinearity, draws",
        "ReLU or GELU, 10",
        {"activations": (nn.ReLU, nn.GELU), "num_samples": 10},
    ),
    "prior_fixed": Variant("prior scale", "fixed at 1", {"prior": NealPrior()}),
    "inducing_50": Variant("inducing points", "50", {"num_inducing": 50}),
    "constant": Variant("learning rate", "never falls", {"flat": 0.999}),
    "depth_2": Variant("hidden layers", "2", {"hidden": (50, 50)}),
    "gi": Variant("lower layers", "global inducing", {"lower": GlobalInducing()}),
    "steps_2000": Variant("steps", "2000", {"steps": 2000}),
    "width_100": Variant("width", "100", {"hidden": (100,)}),
    "lr_0.02": Variant("learning rate", "0.02", {"lr": 0.02}),
    "prior_scale": Variant("prior scale", "with a posterior", {"prior": ScalePrior()}),
    "inducing_100": Variant("inducing points", "100", {"num_inducing": 100}),
    "per_output": Variant(
        "pseudo-precisions", "per output", {"last": GlobalInducing(precision="per_output")}
    ),
    "width_25": Variant("width", "25", {"hidden": (25,)}),
    "noise_0.5": Variant("noise variance", "from 0.5", {"noise_variance": 0.5}),
    "draws_1": Variant("draws a step", "1", {"num_samples": 1}),
    "centres": Variant("inducing points", "k-means", kind=Centres),
    "depth_3": Variant("hidden layers", "3", {"hidden": (50, 50, 50)}),
    "lr_0.1": Variant("learning rate", "0.1", {"lr": 0.1}),
    "draws_10": Variant("draws a step", "10", {"num_samples": 10}),
}
AROUND_STUDIED = tuple(VARIANTS)
AGAIN = (
    *("steps_2000", "inducing_50", "inducing_100", "width_25", "width_100", "depth_2", "gi", "per_output"),
    *("prior_fixed", "prior_scale", "constant", "lr_0.02"),
)
VARIANTS |= {f"tried_{name}": dataclasses.replace(VARIANTS[name], base=CHOSEN) for name in AGAIN}
VARIANTS |= {
    "tried_draws_5": Variant("draws a step", "5", {"num_samples": 5}, base=CHOSEN),
    "tried_inducing_400": Variant("inducing points", "400", {"num_inducing": 400}, base=CHOSEN),
    "tried_longer": Variant("steps of the trial", "800", {"trial": 800}, base=CHOSEN),
    "tried_factorised": Variant("last layer", "factorised", kind=Independent, base=CHOSEN),
    "tried_batch_200": Variant("points a step", "200", {"batch_size": 200}, base=CHOSEN),
    "tried_normal_outputs": Variant("pseudo-outputs", "normal", kind=NormalOutputs, base=CHOSEN),
    "tried_precision": Variant(
        "pseudo-precisions", "from exp(-4)", {"last": GlobalInducing(log_precision=-4.0)}, base=CHOSEN
    ),
    "tried_labels_1": Variant("labels", "±1", {"label_scale": 1.0}, base=CHOSEN),
}
AROUND_CHOSEN = tuple(name for name in VARIANTS if name not in AROUND_STUDIED)


@dataclass(frozen=True)
class DefaultsConfig:
    """One training.

    Attributes:
        dataset: name of the set.
        variant: key of `VARIANTS`.
        split: number of the split, and seed of everything random.
        steps: gradient steps; 0 for the variant's own.
        test_samples: draws for predictions and for the ELBO.
        scale: key of `SCALES`.
    """

    dataset: str
    variant: str
    split: int
    steps: int = 0
    test_samples: int = 100
    scale: str = "paper"


@dataclass(frozen=True)
class Scale:
    """The size of the study: sets, splits, variants, and steps, if they are not the variants' own."""

    sets: tuple[str, ...]
    splits: int = 1
    variants: tuple[str, ...] = tuple(VARIANTS)
    steps: int = 0
    test_samples: int = 100


MORE = (*LARGE, MOONS, "spambase", "telescope")
SCALES = {
    "smoke": Scale(("yacht", MOONS), 1, (BASE, "inducing_50", "centres"), 10, 5),
    "reduced": Scale(SMALL, variants=AROUND_STUDIED),
    "long": Scale((*SMALL, *MORE), 2),
    "paper": Scale((*SMALL, *MORE), 5),
}


def grid(scale: str) -> Iterator[DefaultsConfig]:
    """Yield all variants on all sets, split by split, the most informative first."""
    size = SCALES[scale]
    for split, variant, dataset in itertools.product(range(size.splits), size.variants, size.sets):
        yield DefaultsConfig(dataset, variant, split, size.steps, size.test_samples, scale)


def scores(records: Sequence[Record]) -> dict[str, dict[str, list[float | None]]]:
    """Return the ELBO per training point by variant and set, a list over splits; None if it diverged.

    Variants that lack a set or a split of the recipe are left out, because their means are not comparable.

    Args:
        records: records of one scale.
    """
    found: dict[str, dict[tuple[str, int], float | None]] = {}
    for record in records:
        config = record["config"]
        value = None if diverged(record) else record["metrics"]["elbo"]
        found.setdefault(config["variant"], {})[config["dataset"], config["split"]] = value
    cells = sorted(found.get(BASE, {}))
    complete = {name: own for name, own in found.items() if cells and set(cells) <= set(own)}
    sets = list(dict.fromkeys(name for name, _ in cells))
    return {
        variant: {name: [own[cell] for cell in cells if cell[0] == name] for name in sets}
        for variant, own in complete.items()
    }


def chosen(scale: str) -> Choice[str]:
    """Return the variant with the least mean loss of ELBO against each set's best.

    Args:
        scale: scale of the records.

    Raises:
        ValueError: if the recipe itself is not recorded.
    """
    return choose(scores([r for r in records_of("defaults", DefaultsConfig) if r["scale"] == scale]))
