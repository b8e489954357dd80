"""Tables: the nine UCI regression sets with their published splits, tables of labelled points, a time series.

`regression_sets` and `classification_sets` say what there is; `uci` and `classification` load it. `co2` is
a series of monthly means.
"""

from gilib.data.tables.classification import load_classification
from gilib.data.tables.classification_sets import classification_names
from gilib.data.tables.co2 import load_co2
from gilib.data.tables.regression_sets import uci_names
from gilib.data.tables.uci import load_uci

__all__ = ["classification_names", "load_classification", "load_co2", "load_uci", "uci_names"]
