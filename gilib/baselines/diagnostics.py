"""Convergence and effective sample size of Markov chains, computed by NumPyro."""

from __future__ import annotations

import torch
from torch import Tensor

from gilib.optional import require

MIN_STATES = 4  # per chain: two in each half


def split_r_hat(values: Tensor) -> Tensor:
    """Return split R-hat: total over within-chain deviation of half chains (Gelman et al., 2013, Ch. 11).

    Args:
        values: one or several scalar functions of the states, `[chains, kept, ...]`.

    Returns:
        `[...]`, float64; 1 if all half chains agree.

    Raises:
        ImportError: without the extra `hmc`.
        ValueError: if there are fewer than four states per chain.
    """
    return _by_numpyro("split_gelman_rubin", values)


def effective_sample_size(values: Tensor) -> Tensor:
    """Return how many independent draws would estimate the mean as precisely (Geyer, 1992).

    Args:
        values: as for `split_r_hat`, and so are the errors.

    Returns:
        `[...]`, float64; more than chains · kept if draws alternate.
    """
    return _by_numpyro("effective_sample_size", values)


def _by_numpyro(name: str, values: Tensor) -> Tensor:
    if values.dim() < 2 or values.shape[1] < MIN_STATES:
        raise ValueError(
            f"values must be [chains, kept, ...], at least {MIN_STATES} of them kept, "
            f"got {list(values.shape)}"
        )
    diagnostic = getattr(require("numpyro.diagnostics", "hmc"), name)
    return torch.as_tensor(diagnostic(values.double().cpu().numpy()))
