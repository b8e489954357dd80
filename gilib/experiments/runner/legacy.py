"""Identities as they were computed once: from the name of a class and all fields that it had.

Records are found without it: their identity is computed from what they hold, and this one is only an id that
they may have. Checkpoints are found by it alone, so that a training that was paused before goes on. The table
is closed: fields that came later are not in it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

_TOY = (
    "ToyConfig method seed normalise num_points balanced num_inducing inducing_start steps num_samples lr "
    "prior_scale learn_noise iwbo_draws scale"
)
_UCI = "dataset method prior split lr batch_size num_inducing steps num_samples test_samples scale"
_IMAGES = (
    "method prior seed images test_images channels num_inducing batch_size steps tempered_steps lr "
    "num_samples test_samples elbo_samples looks look_images scale"
)
FIELDS = {
    "toy": _TOY,
    "toy_inducing": _TOY,
    "reproduction": _TOY,
    "toy_hmc": "TruthConfig seed normalise tuned burn_in samples scale",
    "uci_search": f"SearchConfig {_UCI}",
    "uci": f"UciConfig {_UCI}",
    "uci_scale_prior": f"ScalePriorConfig {_UCI} variant",
    "uci_hmc": "ChainsConfig dataset split noise_variance burn_in samples leapfrog_steps step_size scale",
    "uci_fixed_noise": f"FixedNoiseConfig {_UCI} noise_variance",
    "mnist_500": f"MnistConfig {_IMAGES}",
    "mnist_500_clock": f"MnistConfig {_IMAGES}",
    "cifar10": f"CifarConfig {_IMAGES} network kl_weight augment outside",
    "depth": (
        "DepthConfig method width depth seed num_inducing steps lr num_samples elbo_samples test_samples "
        "scale"
    ),
}


def legacy_identity(name: str, config: Any) -> str:
    """What the identity of a configuration was; of an experiment of `FIELDS`.

    >>> from gilib.experiments.ober2021.toy import ToyConfig
    >>> legacy_identity("toy", ToyConfig())
    '358a2f1396ea'
    """
    kind, *fields = FIELDS[name].split()
    content = {"experiment": kind, **{field: getattr(config, field) for field in fields}}
    return hexadecimal(json.dumps(content, sort_keys=True))


def legacy_group_identity(name: str, group: Sequence[Any]) -> str:
    """What the identity of a group of configurations was."""
    return hexadecimal(" ".join(legacy_identity(name, config) for config in group))


def hexadecimal(content: str) -> str:
    """Twelve digits of a hash."""
    return hashlib.sha256(content.encode()).hexdigest()[:12]
