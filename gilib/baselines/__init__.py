"""Methods that the papers compare with; each has the same method `draw` as a network."""

from gilib.baselines.chains import Chains, HMCSettings
from gilib.baselines.diagnostics import effective_sample_size, split_r_hat
from gilib.baselines.hamiltonian import hmc
from gilib.baselines.laplace import Laplace, laplace
from gilib.baselines.sampling import StuckChainError

__all__ = [
    "Chains",
    "HMCSettings",
    "Laplace",
    "StuckChainError",
    "effective_sample_size",
    "hmc",
    "laplace",
    "split_r_hat",
]
