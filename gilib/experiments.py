"""The experiments come with a checkout: `python -m experiments`, `from experiments import select`."""

raise (SystemExit if __name__ == "__main__" else ImportError)(__doc__)
