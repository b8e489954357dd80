"""Paste numbers of a chapter into its page: `from experiments.book import glue`.

When MyST-NB builds the book, this is MyST-NB's `glue`; elsewhere it does nothing.
"""

try:
    from myst_nb import glue
except ImportError:

    def glue(name: str, variable: object, display: bool = True) -> None:
        """Do nothing: there is no page."""
