"""Experiments: grids of frozen configurations, their measurements, and the files of records."""

from experiments.building import build
from experiments.printed import printed
from experiments.runner.records import RecordError, results_directory
from experiments.selecting import best_scale, load_records, scales_of, select

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
