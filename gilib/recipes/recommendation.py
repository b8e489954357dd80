"""The recommended recipes, by name."""

from __future__ import annotations

import dataclasses
from typing import Any

from gilib.recipes.base import Recipe
from gilib.recipes.heteroscedastic import HeteroscedasticProcessRecipe
from gilib.recipes.networks import NetworkRecipe
from gilib.recipes.processes import DeepProcessRecipe, ProcessRecipe
from gilib.validation import check_choice

RECIPES: dict[str, Recipe] = {
    "network": NetworkRecipe(),
    "gp": ProcessRecipe(),
    "heteroscedastic_gp": HeteroscedasticProcessRecipe(),
    "deep_gp": DeepProcessRecipe(),
}
FOR_REGRESSION = ("heteroscedastic_gp",)
IN_CLOSED_FORM = ("gp", "heteroscedastic_gp")  # in regression: they need no learning rate and no batches


def recommended(model: str = "network", **changes: Any) -> Recipe:
    """Return the recipe that gilib recommends for a kind of model.

    Args:
        model: "network", "gp", "heteroscedastic_gp" or "deep_gp".
        changes: new values for fields of the recipe.

    Raises:
        ValueError: if there is no such model.
        TypeError: if the recipe has no such field.

    >>> recommended(steps=300).steps, recommended("deep_gp").num_inducing
    (300, 100)
    """
    check_choice(model, RECIPES, "model")
    recipe = RECIPES[model]
    names = [entry.name for entry in dataclasses.fields(recipe)]
    for name in changes:
        if name not in names:
            raise TypeError(f"the recipe of a {model!r} has no {name!r}: it has {', '.join(names)}")
    return dataclasses.replace(recipe, **changes)
