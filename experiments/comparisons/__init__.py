"""Comparisons across papers: all posteriors of the book on the same tasks."""
