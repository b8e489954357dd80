"""Carbon dioxide at Mauna Loa: a time series with a trend and a season."""

from __future__ import annotations

import numpy as np
import torch

from gilib.data import storage
from gilib.data.dataset import Dataset
from gilib.data.storage import ChecksumError, DataError

SHA256 = "58ea31bc59d7b69342444f970307ffdc25960bf5eb8f22d5cbf79075b186f5ad"


def load_co2() -> Dataset:
    """Monthly means of carbon dioxide in the air at Mauna Loa, Hawaii, March 1958 to December 2001.

    Means of the weekly averages of Keeling and Whorf (2004), which comes with the package; public domain. Of
    five months there is none. The decoded arrays must have the recorded SHA-256.

    Returns:
        The data set in original units: the middle of the month in years, `[521, 1]`, and parts per million,
        `[521, 1]`, float64, in the order of time. Who forecasts splits by time; `split` splits at random.

    Raises:
        ChecksumError: if the file holds other values.
        DataError: if the package was made without it.

    >>> series = load_co2()
    >>> series.x[0], series.y[0]
    (tensor([1958.2083], dtype=torch.float64), tensor([316.1000], dtype=torch.float64))
    """
    content = storage.shipped_table("co2")
    if content is None:
        raise DataError("this package was made without its data: install gilib again")
    table = np.loadtxt(content.decode("ascii").splitlines(), dtype=np.float64, ndmin=2)
    years = table[:, 0] + (table[:, 1] - 0.5) / 12.0
    dataset = Dataset(
        name="co2",
        x=torch.from_numpy(years[:, None]),
        y=torch.from_numpy(table[:, 2:].copy()),
        description="the middle of a month, in years; carbon dioxide in dry air, parts per million",
        source="Keeling & Whorf (2004), Scripps Institution of Oceanography, by way of statsmodels, "
        "https://www.statsmodels.org/stable/datasets/generated/co2.html",
        licence="public domain",
        note="Monthly means are ours: of all weeks that end in a month, each with the same weight.",
    )
    if dataset.sha256 != SHA256:
        raise ChecksumError(
            f"{storage.SHIPPED} does not hold the values of co2: the SHA-256 of its decoded arrays is "
            f"{dataset.sha256}, wanted {SHA256}: install gilib again"
        )
    return dataset
