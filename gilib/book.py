"""How a chapter hands its numbers to the sentences of its page: `from gilib.book import glue`.

Where MyST-NB builds the book, this is its own `glue`; elsewhere no page waits for the numbers.
"""

try:
    from myst_nb import glue
except ImportError:

    def glue(name: str, variable: object, display: bool = True) -> None:
        """Do nothing: there is no page."""
