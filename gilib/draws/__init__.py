"""Draws: functions with their densities, how they compose, and what happens inside them."""

from gilib.draws.drawn import AnyDrawn, Draw, Drawn, Estimate, JointDraw
from gilib.draws.functions import Composition, FixedFunction, GaussianFunction, Moments
from gilib.draws.recording import Evaluated, Recording, record

__all__ = [
    "AnyDrawn",
    "Composition",
    "Draw",
    "Drawn",
    "Estimate",
    "Evaluated",
    "FixedFunction",
    "GaussianFunction",
    "JointDraw",
    "Moments",
    "Recording",
    "record",
]
