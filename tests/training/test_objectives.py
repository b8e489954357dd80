"""Bounds from draws: scaling, reductions, tempering, and the relation of the two bounds."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from tests.support import assert_equal, normals, refusals, seeded, small_net

X, Y = normals(12, 2, seed=1), normals(12, 2, seed=2)
LIKELIHOOD = gilib.Gaussian(0.4)
NET = small_net(gilib.GlobalInducing())
DRAW = NET.draw(5, generator=seeded(1))


def elbo(draw=DRAW, x=X, y=Y, num_data=12, **settings):
    return gilib.elbo(draw, LIKELIHOOD, x, y, num_data=num_data, **settings).detach()


@pytest.mark.parametrize("weight", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("num_data", [12, 36])
def test_elbo_by_hand(num_data, weight):
    """The likelihood is scaled by the data, the ratio tempered; nats, or nats per point."""
    squares = (DRAW(X) - Y).square().sum((-2, -1))
    log_likelihood = -0.5 * squares / 0.4 - 12 * math.log(2 * math.pi * 0.4)  # 24 numbers, half a log each
    expected = (num_data / 12 * log_likelihood + weight * DRAW.log_pq).detach()
    own = {"num_data": num_data, "kl_weight": weight}
    assert_equal(elbo(reduction="none", **own), expected)
    assert_equal(elbo(**own), expected.mean())
    assert_equal(elbo(per_point=True, reduction="none", **own), expected / num_data)
    assert_equal(elbo(per_point=True, **own), expected.mean() / num_data)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(order=st.permutations(range(12)), size=st.sampled_from([1, 2, 3, 4, 6, 12]))
def test_minibatches_of_a_partition_average_to_the_full_batch(order, size):
    """The estimate is unbiased: exactly so over the batches of one epoch, for the same functions."""
    batches = torch.tensor(order).split(size)
    average = torch.stack([elbo(x=X[index], y=Y[index]) for index in batches]).mean()
    assert_equal(average, elbo())


def test_stepped_tempering_is_that_of_appendix_o():
    """Factors by epoch, of 100 steps each: 0 for ten, 0.1 for ten, ..., 1 from the hundredth on."""
    weight = gilib.objectives.SteppedTempering(100 * 100)
    for epoch in range(120):
        expected = min(epoch // 10, 10) / 10
        assert weight(100 * epoch) == weight(100 * epoch + 99) == pytest.approx(expected, abs=1e-15)
    cold = gilib.objectives.SteppedTempering(40, stairs=4, last=0.05)
    assert [cold(step) for step in (0, 9, 10, 20, 39, 40, 99)] == pytest.approx(
        [0, 0, 0.0125, 0.025, 0.0375, 0.05, 0.05]
    )
    assert gilib.objectives.SteppedTempering(0)(0) == 1.0


def test_iwbo_by_hand():
    weights = elbo(reduction="none").exp()
    assert_equal(gilib.iwbo(DRAW, LIKELIHOOD, X, Y).detach(), weights.mean().log())


def test_iwbo_survives_weights_far_below_the_smallest_float():
    likelihood = gilib.Gaussian(1e-6)
    bound = gilib.iwbo(DRAW, likelihood, X, Y)
    each = gilib.elbo(DRAW, likelihood, X, Y, num_data=12, reduction="none")
    assert each.max() < -1e5
    assert_equal(bound.detach(), (each.max() - math.log(5)).detach())


def test_both_bounds_take_labels():
    labels = torch.arange(12) % 2
    each = gilib.elbo(DRAW, gilib.Categorical(), X, labels, num_data=12, reduction="none")
    expected = DRAW(X).log_softmax(-1)[:, torch.arange(12), labels].sum(-1) + DRAW.log_pq
    assert_equal(each.detach(), expected.detach())
    assert_equal(
        gilib.iwbo(DRAW, gilib.Categorical(), X, labels).detach(), expected.exp().mean().log().detach()
    )


BOUNDS = [partial(gilib.elbo, num_data=12), gilib.iwbo]
SPOILT = [torch.where(torch.arange(24).view(12, 2) == 7, bad, Y) for bad in (math.nan, math.inf)]
REFUSED = [  # network or draw, likelihood, inputs and targets, where they are others; and what is said
    *(({"y": y}, r"targets must have shape \[12, 2\]") for y in (Y[:, 0], Y[:, :1], Y[:11], Y[:1], Y[0])),
    *(({name: bad}, f"{name} holds 1 NaN or infinite entries") for name in "xy" for bad in SPOILT),
    ({"y": None}, "y must be a torch.Tensor, got NoneType"),
    ({"draw": NET}, "net.draw"),
    ({"likelihood": gilib.Gaussian}, r"likelihood must be an instance: write Gaussian\(\)"),
    ({"x": X[:0], "y": Y[:0]}, "x is empty"),
    (
        {"likelihood": gilib.Categorical(), "y": torch.full((12,), 5)},
        r"class labels must lie in 0 \.\.\. 1, got 5 \.\.\. 5",
    ),
    *(
        (
            {"x": X.expand(*own, 12, 2)},
            r"inputs have axes \[.*samples share them",
        )  # would be scored by no data
        for own in ((5,), (5, 1), (1, 1), (3,), (1,))
    ),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_would_give_another_number_is_refused(given, message):
    given = {"draw": DRAW, "likelihood": LIKELIHOOD, "x": X, "y": Y} | given
    for bound in BOUNDS:
        with pytest.raises((ValueError, TypeError), match=message):
            bound(*given.values())


def test_estimates_share_their_inputs_too():
    x = X.expand(5, 12, 2)
    for call in (lambda: elbo(NET.estimate(5, 12), x), lambda: gilib.recipes.bound(NET, LIKELIHOOD, x, Y)):
        with pytest.raises(ValueError, match=r"inputs have axes \[.*samples share them"):
            call()


def test_replicas_may_have_inputs_of_their_own():
    net = small_net(gilib.GlobalInducing(), replicas=(2,))
    draw, x = net.draw(5), torch.stack([X, X + 1.0])
    assert elbo(draw, x=x).shape == (2,)
    with pytest.raises(ValueError, match=r"inputs have axes \[5, 2\] before .*, \[2\]"):
        elbo(draw, x=x.expand(5, 2, 12, 2))


COMPLEX = X.to(torch.complex128) * 1j
test_complex_numbers_are_refused = refusals(  # their imaginary part would be lost, or stay in the bound
    {
        name: (call, "real number")
        for name, call in {
            "elbo x": lambda: elbo(x=COMPLEX),
            "elbo y": lambda: elbo(y=COMPLEX),
            "kl_weight": lambda: elbo(kl_weight=1j),
            "kl_weight tensor": lambda: elbo(kl_weight=torch.tensor(1j)),
            "iwbo": lambda: gilib.iwbo(DRAW, LIKELIHOOD, COMPLEX, Y),
            "bound x": lambda: gilib.recipes.bound(NET, LIKELIHOOD, COMPLEX, Y),
            "bound y": lambda: gilib.recipes.bound(NET, LIKELIHOOD, X, COMPLEX),
            "pseudo-outputs": lambda: gilib.models.mlp(2, (3,), 2, inducing_points=X, pseudo_outputs=COMPLEX),
            "points": lambda: gilib.models.mlp(2, (3,), 2, inducing_points=COMPLEX),
            "fit x": lambda: gilib.fit(NET, LIKELIHOOD, COMPLEX, Y, steps=1, progress=False),
            "fit y": lambda: gilib.fit(NET, LIKELIHOOD, X, COMPLEX, steps=1, progress=False),
            "predict": lambda: gilib.predict(NET, LIKELIHOOD, COMPLEX),
            "log_prob": lambda: gilib.predict(NET, LIKELIHOOD, X, 2).log_prob(COMPLEX),
            "draw": lambda: DRAW(COMPLEX),
        }.items()
    },
    TypeError,
)
