"""Rules that select the records for each printed table, by paper.

A printed table without a rule is listed as not run. When an experiment records its numbers, add an entry to
the rules of its paper: the experiment, the configuration fields of a claim, and the name of the metric.
"""

from experiments.report.rules import lindinger2020, ober2021, reproduction
from experiments.report.rules.rule import Rule

RULES: dict[str, Rule] = {**ober2021.RULES, **reproduction.RULES, **lindinger2020.RULES}

__all__ = ["RULES", "Rule"]
