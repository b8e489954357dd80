"""The series of carbon dioxide: values, order, and what happens where the file is another."""

import pytest
import torch

from gilib.data import ChecksumError, DataError, load_co2, sha256_of, storage
from gilib.data.tables.co2 import SHA256


def test_months_are_in_order_and_five_are_missing():
    data = load_co2()
    months = (data.x[:, 0] * 12.0 - 0.5).round().long()
    assert torch.allclose(data.x[:, 0], (months.double() + 0.5) / 12.0, rtol=0.0, atol=1e-9)
    wanted = torch.arange(1958 * 12 + 2, 2002 * 12)  # March 1958 to December 2001
    assert bool((months.diff() > 0).all()) and len(wanted) - len(months) == 5
    assert set(months.tolist()) < set(wanted.tolist())
    assert months[0] == wanted[0] and months[-1] == wanted[-1]


def test_values_are_parts_per_million_with_a_trend_and_a_season():
    data = load_co2()
    year, level = data.x[:, 0], data.y[:, 0]
    yearly = torch.stack([level[year.floor() == k].mean() for k in range(1959, 2002)])
    assert bool((yearly.diff() > 0).all()) and 315 < yearly[0] < 317 and 370 < yearly[-1] < 372
    for k in range(1965, 2002):
        own = year.floor() == k
        month = (year[own] * 12.0 - 0.5).round().long() % 12 + 1
        assert month[level[own].argmax()] in (4, 5, 6) and month[level[own].argmin()] in (9, 10)


def test_it_says_where_it_is_from_and_has_the_checksum():
    data = load_co2()
    assert data.licence == "public domain" and "Keeling" in data.source
    assert data.sha256 == sha256_of(data.x, data.y) == SHA256


def test_other_values_and_a_missing_file(monkeypatch):
    content = storage.shipped_table("co2")
    monkeypatch.setattr(storage, "shipped_table", lambda name: content.replace(b"316.10", b"316.11"))
    with pytest.raises(ChecksumError, match="does not hold the values of co2.*install gilib again"):
        load_co2()
    monkeypatch.setattr(storage, "shipped_table", lambda name: None)
    with pytest.raises(DataError, match="made without its data: install gilib again"):
        load_co2()
