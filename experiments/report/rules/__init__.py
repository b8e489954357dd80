"""Rules: which records answer which printed table, by paper.

A printed table without a rule is listed as not run. When an experiment records its numbers, add an entry to
the rules of its paper: the experiment, the configuration fields that a claim asks for, and where the metric
is found.
"""

from experiments.report.rules import lindinger2020, ober2021, reproduction
from experiments.report.rules.rule import Rule

RULES: dict[str, Rule] = {**ober2021.RULES, **reproduction.RULES, **lindinger2020.RULES}

__all__ = ["RULES", "Rule"]
