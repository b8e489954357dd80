"""Experiments: grids of frozen configurations, what one records, and the files that keep the records."""

from gilib.experiments.building import build
from gilib.experiments.printed import printed
from gilib.experiments.runner.records import RecordError, results_directory
from gilib.experiments.selecting import best_scale, load_records, scales_of, select

__all__ = [
    "RecordError",
    "best_scale",
    "build",
    "load_records",
    "printed",
    "results_directory",
    "scales_of",
    "select",
]
