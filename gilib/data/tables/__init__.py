"""Tables: the nine UCI regression sets, three classification sets, and a time series.

`regression_sets` and `classification_sets` are catalogues; `loading` finds, parses and verifies the files.
"""

from gilib.data.tables.classification_sets import classification_names
from gilib.data.tables.loading import load_classification, load_co2, load_uci
from gilib.data.tables.regression_sets import uci_names

__all__ = ["classification_names", "load_classification", "load_co2", "load_uci", "uci_names"]
