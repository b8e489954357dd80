"""Recipes: the models that gilib recommends, each with the settings of its training; estimators use them."""

from gilib.recipes.base import Recipe, Trained, bound
from gilib.recipes.heteroscedastic import HeteroscedasticProcessRecipe
from gilib.recipes.networks import NetworkRecipe
from gilib.recipes.processes import DeepProcessRecipe, ProcessRecipe
from gilib.recipes.recommendation import recommended

__all__ = [
    "DeepProcessRecipe",
    "HeteroscedasticProcessRecipe",
    "NetworkRecipe",
    "ProcessRecipe",
    "Recipe",
    "Trained",
    "bound",
    "recommended",
]
