"""A reader's own posterior, as in the appendix: it predicts as well as ours, and mistakes are named."""

from dataclasses import dataclass
from pathlib import Path

import jupytext
import pytest
import torch

import gilib
from gilib.posteriors import Posterior, PosteriorModule, WeightParameter
from gilib.sites import DenseWeights, InducingOutputs

APPENDIX = Path(__file__).parents[2] / "book" / "appendices" / "write-your-own-posterior.md"
SEEDS = [0, 1, 2, 3]


def low_rank():
    """The appendix's posterior: the classes of its second code cell."""
    notebook = jupytext.read(APPENDIX)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert len([line for line in cells[1].splitlines() if line.strip()]) < 50
    names = {"__name__": "own"}
    for cell in cells[:2]:
        exec(cell, names)
    return names["LowRank"]()


def errors(posterior):
    """Test RMSE on yacht of one network per seed, trained by 300 steps; units of the data."""
    split = gilib.data.load_uci("yacht").split(0)
    source, replicas = gilib.randomness.ReplicaGenerators(SEEDS), (len(SEEDS),)
    net = gilib.models.mlp(
        split.train_x.shape[-1], (20,), 1, posterior=posterior, replicas=replicas, generator=source
    )
    noise = gilib.Gaussian(1.0, learn=True, replicas=replicas)
    gilib.fit(net, noise, split.train_x, split.train_y, steps=300, seed=SEEDS, progress=False)
    mean = gilib.predict(net, noise, split.test_x, num_samples=100).mean
    return split.normalisation.y_std * (mean - split.test_y).square().mean((-2, -1)).sqrt()


@pytest.mark.slow
def test_written_by_the_contract_alone_it_predicts_as_well_as_factorised():
    ours, own = errors(gilib.Factorised()), errors(low_rank())
    error = ((ours.var() + own.var()) / len(SEEDS)).sqrt()
    assert float(own.mean() - ours.mean()) < 2 * float(error) < 0.3 and float(ours.mean()) < 1.5, (ours, own)


@pytest.mark.parametrize(
    ("site", "scale"), [(DenseWeights(8, 2, True), 8**0.5), (InducingOutputs(8, 2), 1.0)], ids=["dense", "gp"]
)
def test_weights_start_at_the_prior_and_are_stored_at_scale_one(site, scale):
    context = gilib.posteriors.BuildContext(replicas=(3,), generator=torch.Generator().manual_seed(0))
    weights = context.weights(site, 500).requires_grad_(False)
    assert isinstance(weights, WeightParameter) and weights().shape == (3, 8, 2, 500)
    assert float(weights().std()) == pytest.approx(1 / scale, rel=0.03)
    assert float(weights.scaled.std()) == pytest.approx(1.0, rel=0.03)
    weights.assign(torch.full((8, 2, 500), 0.25))
    assert float((weights() - 0.25).abs().max()) < 1e-6


WRONG = {
    "one of the two": (lambda w, log_pq: w, TypeError, "Mine.draw.*pair.*Tensor"),
    "transposed": (lambda w, log_pq: (w.mT, log_pq), ValueError, r"Mine.draw.*\[2, 4, 'O'\].*\[2, 3, 4\]"),
    "without draws": (lambda w, log_pq: (w[0], log_pq), ValueError, r"Mine.draw.*\[2, 4, 'O'\].*\[4, 3\]"),
    "not summed": (lambda w, log_pq: (w, w.sum(-1)), ValueError, r"Mine.draw.*\[2\].*\[2, 4\].*sum"),
}


@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("way", ["draw", "estimate"])
def test_what_a_draw_must_return_is_said(case, way):
    change, kind, words = WRONG[case]

    class Mine(PosteriorModule):
        noise_size = 0

        def __init__(self, site, context):
            super().__init__()
            self.mean = context.weights(site)

        def draw(self, features, prior_precision, noise):
            lead = noise.shape[:-1]
            return change(self.mean().expand(*lead, 4, 3), noise.new_zeros(lead))

    @dataclass(frozen=True)
    class MySpec(Posterior):
        short_name = "mine"

        def build(self, site, context):
            return Mine(site, context)

    net = gilib.models.mlp(3, (3,), 1, posterior=[MySpec(), gilib.Factorised()])
    with pytest.raises(kind, match=words):
        getattr(net, way)(2)
