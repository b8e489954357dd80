"""The reproducibility report: every number that a paper prints (`results/printed/`), with ours beside it.

Read the modules in this order: `claims` (printed numbers), `rules` (the records for each table; extend them
when a table gets an experiment), `measuring` (our number for a claim), `comparing` (agreement and totals),
`yardstick` (best known results), `texts` and `columns` (wording and cells), `plain` and `page` (the report
for a terminal and for the book).
"""

from experiments.report.claims import Claim, claims
from experiments.report.comparing import (
    Comparison,
    Length,
    Totals,
    Verdict,
    by_length,
    by_table,
    comparisons,
    totals,
)
from experiments.report.page import printed_tables, record_table, totals_table, yardstick_table
from experiments.report.plain import text
from experiments.report.rules import RULES, Rule
from experiments.report.texts import command_text, headline

__all__ = [
    "RULES",
    "Claim",
    "Comparison",
    "Length",
    "Rule",
    "Totals",
    "Verdict",
    "by_length",
    "by_table",
    "command_text",
    "claims",
    "comparisons",
    "headline",
    "printed_tables",
    "record_table",
    "text",
    "totals",
    "totals_table",
    "yardstick_table",
]
