"""Bounds from draws: scaling, reductions, tempering, and the relation of the two bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gilib
from tests.support import D, assert_equal, normals, seeded, small_net

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


@pytest.mark.parametrize("y", [Y[:, 0], Y[:, :1], Y[:11], Y[:1], torch.zeros(2, dtype=D)])
def test_targets_that_would_broadcast(y):
    """Targets [N] or [N, 1] against outputs [S, N, 2] would broadcast to a wrong number without a word."""
    for objective in (gilib.iwbo, lambda *a: gilib.elbo(*a, num_data=12)):
        with pytest.raises(ValueError, match=r"targets must have shape \[12, 2\]"):
            objective(DRAW, LIKELIHOOD, X, y)


@pytest.mark.parametrize("bound", [lambda *given: gilib.elbo(*given, num_data=4), gilib.iwbo])
def test_targets_are_named_if_they_are_missing(bound):
    net = gilib.models.mlp(1, (), 1, posterior=gilib.FromPrior())
    with pytest.raises(TypeError, match="y must be a torch.Tensor, got NoneType"):
        bound(net.draw(3), gilib.Gaussian(1.0), torch.zeros(4, 1), None)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("bound", [gilib.elbo, gilib.iwbo])
def test_numbers_that_are_not_finite_are_refused(bound, name, value):
    spoiled = {"x": X.clone(), "y": Y.clone()}
    spoiled[name][3, 1] = value
    settings = {"num_data": 12} if bound is gilib.elbo else {}
    with pytest.raises(ValueError, match=f"{name} holds 1 NaN or infinite entries"):
        bound(DRAW, LIKELIHOOD, **spoiled, **settings)


@pytest.mark.parametrize("bound", [gilib.elbo, gilib.iwbo])
def test_arguments_of_another_kind_are_refused(bound):
    settings = {"num_data": 12} if bound is gilib.elbo else {}
    with pytest.raises(TypeError, match="net.draw"):
        bound(NET, LIKELIHOOD, X, Y, **settings)
    with pytest.raises(TypeError, match=r"likelihood must be an instance: write Gaussian\(\)"):
        bound(DRAW, gilib.Gaussian, X, Y, **settings)
    with pytest.raises(ValueError, match="x is empty"):
        bound(DRAW, LIKELIHOOD, X[:0], Y[:0], **settings)


def test_labels_out_of_range_are_refused():
    with pytest.raises(ValueError, match=r"class labels must lie in 0 \.\.\. 1, got 5 \.\.\. 5"):
        gilib.elbo(DRAW, gilib.Categorical(), X, torch.full((12,), 5), num_data=12)


@pytest.mark.parametrize("own", [(5,), (5, 1), (1, 1), (3,), (1,)])
def test_draws_share_their_inputs(own):
    """Each with points of its own would be scored by data that nobody has."""
    x = X.expand(*own, 12, 2) + normals(*own, 1, 1)
    calls = [
        lambda: elbo(x=x),
        lambda: elbo(NET.estimate(5, 12), x=x),
        lambda: gilib.iwbo(DRAW, LIKELIHOOD, x, Y),
        lambda: gilib.recipes.bound(NET, LIKELIHOOD, x, Y, num_samples=5),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"inputs have axes \[.*samples share them"):
            call()


def test_replicas_may_have_inputs_of_their_own():
    net = small_net(gilib.GlobalInducing(), replicas=(2,))
    draw, x = net.draw(5), torch.stack([X, X + 1.0])
    assert elbo(draw, x=x).shape == (2,)
    with pytest.raises(ValueError, match=r"inputs have axes \[5, 2\] before .*, \[2\]"):
        elbo(draw, x=x.expand(5, 2, 12, 2))


COMPLEX = X.to(torch.complex128) * 1j


@pytest.mark.parametrize(
    "call",
    [
        lambda: elbo(x=COMPLEX),
        lambda: elbo(y=COMPLEX),
        lambda: elbo(kl_weight=1j),
        lambda: elbo(kl_weight=torch.tensor(1j)),
        lambda: gilib.iwbo(DRAW, LIKELIHOOD, COMPLEX, Y),
        lambda: gilib.recipes.bound(NET, LIKELIHOOD, COMPLEX, Y),
        lambda: gilib.recipes.bound(NET, LIKELIHOOD, X, COMPLEX),
        lambda: gilib.models.mlp(2, (3,), 2, inducing_points=X, pseudo_outputs=COMPLEX),
        lambda: gilib.models.mlp(2, (3,), 2, inducing_points=COMPLEX),
        lambda: gilib.fit(NET, LIKELIHOOD, COMPLEX, Y, steps=1, progress=False),
        lambda: gilib.fit(NET, LIKELIHOOD, X, COMPLEX, steps=1, progress=False),
        lambda: gilib.predict(NET, LIKELIHOOD, COMPLEX),
        lambda: gilib.predict(NET, LIKELIHOOD, X, 2).log_prob(COMPLEX),
        lambda: DRAW(COMPLEX),
    ],
)
def test_complex_numbers_are_refused(call):
    """Their imaginary part would be lost, or stay in the bound."""
    with pytest.raises(TypeError, match="real number"):
        call()
