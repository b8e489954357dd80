"""Comparisons across papers: every posterior of the book on the same tasks."""
