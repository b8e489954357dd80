"""Functions that build complete networks and Gaussian processes in one call."""

from gilib.models.networks import lenet, mlp, resnet8, resnet18
from gilib.models.pretrained import bayesian
from gilib.models.processes import deep_gp, gp_classifier, heteroscedastic_gp, inducing_start, sparse_gp
from gilib.models.structured import structured_gp

__all__ = [
    "bayesian",
    "deep_gp",
    "gp_classifier",
    "heteroscedastic_gp",
    "inducing_start",
    "lenet",
    "mlp",
    "resnet8",
    "resnet18",
    "sparse_gp",
    "structured_gp",
]
