"""Predict with mixtures of Student t distributions: BALI's last layer is integrated out exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.arguments import Count, checked
from gilib.arithmetic import exact_products
from gilib.data import Normalisation
from gilib.draws import record
from gilib.layers.weights import WeightLayer
from gilib.likelihoods.mixtures import StudentPrediction, in_units
from gilib.network import Network
from gilib.posteriors import ConjugateWeights
from gilib.prediction.predicting import checked_inputs
from gilib.randomness import GeneratorLike


@checked
@torch.no_grad()
def predict_student(
    net: Network,
    x: Tensor,
    num_samples: Count = 100,
    *,
    normalisation: Normalisation | None = None,
    batch_size: Count | None = None,
    generator: GeneratorLike | None = None,
) -> StudentPrediction:
    """Predict a regression by BALI, with the last layer's weights and noise integrated out exactly.

    Let x̃ be the features from a draw of the layers below, and Σ ~ IW(Ψ, ν), W | Σ ~ MN(M, V, Σ) the posterior
    of the last layer. Targets y = x̃ᵀW + ε, ε ~ N(0, Σ), are then distributed as

        y ~ t_ν'(x̃ᵀM, (1 + x̃ᵀVx̃) Ψ / ν'),    ν' = ν - O + 1.

    Args:
        net: a network trained by `gilib.training.Bali` with a Gaussian likelihood, whose noise is Σ.
        x: inputs, `[N, D]` or `[R, N, D]`; in original units if a normalisation is given.
        num_samples: S, the number of draws of the layers below.
        normalisation: scaling of inputs and targets in training; predictions are in original units.
        batch_size: points per batch; all if None.
        generator: source of the draws.

    Returns:
        An equal mixture of S distributions t_ν' at every point.

    Raises:
        ValueError: if the network does not end with a layer with `Conjugate`.

    >>> import gilib
    >>> net = gilib.models.mlp(1, (5,), 1, posterior=gilib.posteriors.Conjugate())
    >>> gilib.prediction.predict_student(net, torch.zeros(3, 1)).log_prob(torch.zeros(3, 1)).shape
    torch.Size([3])
    """
    x = checked_inputs(net, x, normalisation)
    points = -1 - len(net.input_shape)
    draw, (layer, last) = net.draw(num_samples, generator=generator), _last_of(net)
    locations, spreads = [], []
    for batch in x.split(int(batch_size or x.shape[points]), dim=points):
        with exact_products():
            recording = record(draw.function, batch)
        output, end = recording.output, recording.drawn[-1]
        if output is not end.output:
            raise ValueError("the last layer with weights must give the outputs of the network")
        features = layer.features(end.input) / last.root_fan_in
        features = features.expand(*output.shape[:-1], features.shape[-1])
        white = torch.linalg.solve_triangular(last.precision_tril, features.mT, upper=False)
        locations.append(features @ last.mean)
        spreads.append((1.0 + white.square().sum(-2)).sqrt()[..., None])
    location, spread = torch.cat(locations, -2), torch.cat(spreads, -2)
    df = (last.df.double() - last.outputs + 1.0)[None]
    root = last.scale_tril[None] * df.rsqrt().to(last.scale_tril)[..., None, None]
    if normalisation is not None:
        spread, (location, root) = spread.double(), in_units(location, root, normalisation)
    return StudentPrediction(location, spread, root, df)


def _last_of(net: Network) -> tuple[WeightLayer, ConjugateWeights]:
    layers = [module for module in net.modules() if isinstance(module, WeightLayer)]
    if not layers or not isinstance(layers[-1].weights, ConjugateWeights):
        found = layers[-1].posterior if layers else None
        raise ValueError(f"predict_student needs gilib.posteriors.Conjugate at the last layer, got {found!r}")
    return layers[-1], layers[-1].weights
