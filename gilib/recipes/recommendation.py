"""The recommended recipes, by name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from gilib.likelihoods import Likelihood
from gilib.network import Network
from gilib.randomness import GeneratorLike
from gilib.recipes.base import Options, Recipe, Seed, Shape, Trained
from gilib.recipes.heteroscedastic import HeteroscedasticProcessRecipe
from gilib.recipes.networks import NetworkRecipe
from gilib.recipes.processes import DeepProcessRecipe, ProcessRecipe, suits_classes
from gilib.validation import check_choice

RECIPES: dict[str, Recipe] = {
    "network": NetworkRecipe(),
    "gp": ProcessRecipe(),
    "heteroscedastic_gp": HeteroscedasticProcessRecipe(),
    "deep_gp": DeepProcessRecipe(),
}
FOR_REGRESSION = ("heteroscedastic_gp",)
IN_CLOSED_FORM = ("gp", "heteroscedastic_gp")  # no learning rate, no batches; of other laws they do


FEW_ROWS = 1000  # the experiments `against` and `everyday` show what this choice costs and gains


def suited(rows: int, classes: int | None = None) -> str:
    """Return the name of the model for a table: a process for few rows and classes, else a network.

    Args:
        rows: N.
        classes: number of classes; None: regression.

    >>> suited(300), suited(5000), suited(300, classes=10), suited(300, classes=11)
    ('heteroscedastic_gp', 'network', 'gp', 'network')
    """
    if classes is None:
        return "heteroscedastic_gp" if rows <= FEW_ROWS else "network"
    return "gp" if suits_classes(rows, classes) else "network"


@dataclass(frozen=True)
class SuitedRecipe(Recipe):
    """The model that suits a table. It has settings of its own, and ignores those of this recipe."""

    def network(self, points: Tensor, targets: Tensor, replicas: Shape, generator: GeneratorLike) -> Network:
        return self._recipe(points, None, 0).network(points, targets, replicas, generator)

    def build(
        self, x: Tensor, y: Tensor, *, classes: int | None = None, seed: Seed = 0
    ) -> tuple[Network, Likelihood]:
        return self._recipe(x, classes, seed).build(x, y, classes=classes, seed=seed)

    def _train(self, x: Tensor, y: Tensor, classes: int | None, seed: Seed, options: Options) -> Trained:
        return self._recipe(x, classes, seed).train(x, y, classes=classes, seed=seed, **options)

    def _recipe(self, x: Tensor, classes: int | None, seed: Seed) -> Recipe:
        """Return the recipe that suits x; with several seeds a network, which always has replicas."""
        return RECIPES[suited(x.shape[-2], classes) if isinstance(seed, int) else "network"]


def recommended(model: str | None = None, **changes: Any) -> Recipe:
    """Return the recipe that gilib recommends for a kind of model.

    Args:
        model: "network", "gp", "heteroscedastic_gp" or "deep_gp"; None: what suits the data; see `suited`.
        changes: new values for fields of the recipe.

    Raises:
        ValueError: if there is no such model.
        TypeError: if the recipe has no such field, or if there are changes but no name.

    >>> recommended("network", steps=300).steps, recommended("deep_gp").num_inducing
    (300, 100)
    """
    if model is None:
        if changes:
            raise TypeError(
                f"{', '.join(changes)} of which recipe? Without a name the data say which one it is: write "
                "recommended('network', ...), for example"
            )
        return SuitedRecipe()
    check_choice(model, RECIPES, "model")
    recipe = RECIPES[model]
    names = [entry.name for entry in dataclasses.fields(recipe)]
    for name in changes:
        if name not in names:
            raise TypeError(f"the recipe of a {model!r} has no {name!r}: it has {', '.join(names)}")
    return dataclasses.replace(recipe, **changes)
