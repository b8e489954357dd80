"""Matrices shared along axes of a batch: one product for all of it equals products one by one."""

import pytest
import torch

from gilib.linalg.columns import Columns
from tests.support.oracles import normal

pytestmark = pytest.mark.usefixtures("float64")

# leading axes of the matrices, and of the right-hand sides
CASES = {
    "all their own": ((3, 2), (3, 2)),
    "shared by samples": ((2,), (3, 2)),
    "shared by replicas": ((3, 1, 4), (3, 2, 4)),
    "shared by samples, then by replicas": ((1, 4), (3, 2, 4)),
    "axes of one": ((1, 2), (1, 2)),
}


@pytest.mark.parametrize(("own", "lead"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("count", [1, 3])
def test_one_product_for_all_equals_products_one_by_one(own, lead, count, generator):
    matrices, values = normal(generator, *own, 5, 5), normal(generator, *lead, 5, count)
    columns = Columns(own, lead)
    products = matrices.flatten(0, -3) @ columns.merge(values)
    torch.testing.assert_close(columns.split(products, count), matrices @ values, rtol=1e-13, atol=1e-13)
