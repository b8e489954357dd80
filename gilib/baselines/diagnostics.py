"""Have the chains converged, and how many independent draws are they worth? Counted by NumPyro."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.optional import require

LEAST = 4  # states per chain: two in each half


def split_r_hat(values: Tensor) -> Tensor:
    """Split R-hat: total over within-chain standard deviation of half chains (Gelman et al., 2013, Ch. 11).

    Args:
        values: a scalar function of the states, or several, `[chains, kept, ...]`.

    Returns:
        `[...]`, float64; 1 where all half chains agree.

    Raises:
        ImportError: without the extra `hmc`.
        ValueError: if there are fewer than four states per chain.
    """
    _check(values)
    result = require("numpyro.diagnostics", "hmc").split_gelman_rubin(values.double().cpu().numpy())
    return torch.as_tensor(result)


def effective_sample_size(values: Tensor) -> Tensor:
    """How many independent draws would give the mean as precisely, from autocorrelations (Geyer, 1992).

    Args:
        values: a scalar function of the states, or several, `[chains, kept, ...]`.

    Returns:
        `[...]`, float64; about chains · kept for independent draws, more for draws that alternate.

    Raises:
        ImportError: without the extra `hmc`.
        ValueError: if there are fewer than four states per chain.
    """
    _check(values)
    result = require("numpyro.diagnostics", "hmc").effective_sample_size(values.double().cpu().numpy())
    return torch.as_tensor(result)


def _check(values: Tensor) -> None:
    if values.dim() < 2 or values.shape[1] < LEAST:
        raise ValueError(
            f"values must be [chains, kept, ...], at least {LEAST} of them kept, got {list(values.shape)}"
        )
