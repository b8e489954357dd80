"""Test whether a bug of the reference code explains the paper's poor factorised result under ScalePrior.

Under priors other than NealPrior and StandardPrior the reference implementation's local reparameterisation
uses exp(log_var) as the variance of a weight, but its KL term uses exp(log_var)/I, where I is the fan-in
(bayesfunc, factorised_local_reparam.py). We train three variants:

- "paper": the model as the paper states it;
- "reference": prior, initial values and variance of the reference implementation;
- "corrected": like "reference", but with the KL term's variance in both places.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

from torch import Tensor

import gilib
from experiments.common import uci_splits
from experiments.ober2021 import uci, uci_run
from experiments.runner.experiment import Experiment, Job
from experiments.runner.records import Record
from gilib.posteriors import BuildContext, FactorisedWeights, PosteriorModule
from gilib.randomness import ReplicaGenerators
from gilib.sites import Site

SETS = ("yacht", "boston", "energy", "concrete", "wine")
VARIANTS = ("paper", "reference", "corrected")
RATES = 2  # number of largest learning rates of the tables: the search never chose a smaller one here


@dataclass(frozen=True)
class ScalePriorConfig(uci.UciConfig):
    """One training of the factorised posterior under ScalePrior, in one of the three variants."""

    variant: str = "paper"


@dataclass(frozen=True)
class ReferenceFactorised(gilib.Factorised):
    """A factorised posterior whose local reparameterisation uses I σ² instead of σ².

    Its "ELBO" is not a bound, because its likelihood uses a wider distribution of weights than its KL term.
    """

    def build(self, site: Site, context: BuildContext) -> PosteriorModule:
        """Build means and log-variances like `Factorised`."""
        return _ReferenceWeights(self, site, context)


class _ReferenceWeights(FactorisedWeights):
    @property
    def propagated_variance(self) -> Tensor:
        return self.root_fan_in**2 * super().propagated_variance


def configurations(scale: str) -> Iterator[ScalePriorConfig]:
    """Yield three variants at two rates on small sets, with the tables' other settings of "fac"."""
    size = uci.SCALES[scale]
    batch_size = size.fac_batches[0] if len(size.fac_batches) == 1 else size.fac_batches[1]
    for dataset in (name for name in SETS if name in size.sets):
        for variant in VARIANTS:
            for lr in size.fac_rates[-RATES:]:
                for split in range(size.splits):
                    base = uci.UciConfig(
                        dataset,
                        "fac",
                        "ScalePrior",
                        split,
                        lr,
                        batch_size,
                        0,
                        size.fac_steps,
                        size.fac_samples,
                    )
                    yield ScalePriorConfig(**asdict(base) | {"scale": scale}, variant=variant)


def group_key(config: ScalePriorConfig) -> Hashable:
    """Return the group of a configuration; different splits and learning rates train together."""
    return config.dataset, config.variant


def run(configs: Sequence[ScalePriorConfig], job: Job) -> list[Record]:
    """Train a variant, and measure it both with drawn functions and as it was trained.

    Returns:
        Records with the metrics of `uci_run.run` for drawn functions, and, with the prefix "sampled_", for
        outputs sampled by local reparameterisation, which the reference implementation would print.
    """
    config, splits = configs[0], [config.split for config in configs]
    data = uci_splits.load(config.dataset, splits, job.device)
    net, likelihood = build(configs, data)
    history = uci_run.train(config, net, likelihood, data, [c.lr for c in configs], splits, job)
    source = ReplicaGenerators([3000 + split for split in splits], job.device)
    estimates = partial(net.estimate, config.test_samples, generator=source)
    sampled = uci_splits.measure_at(estimates, likelihood, data)
    results = uci_splits.measure(uci_splits.drawn(net, config.test_samples, splits), likelihood, data)
    for name in sampled.keys() - {"noise_variance", "iwbo"}:
        results[f"sampled_{name}"] = sampled[name]
    return uci_splits.records(data, history, results)


def build(configs: Sequence[ScalePriorConfig], data: uci_splits.Data) -> tuple[gilib.Network, gilib.Gaussian]:
    """Build the networks of a variant, with one replica for each configuration."""
    paper = configs[0].variant == "paper"
    start = "paper" if paper else "reference"
    kind = ReferenceFactorised if configs[0].variant == "reference" else gilib.Factorised
    return uci_run.build(
        configs,
        data,
        [config.split for config in configs],
        posterior=kind(variance_start=start),
        prior=gilib.ScalePrior(parameterisation=start),
    )


EXPERIMENTS = {
    "uci_scale_prior": Experiment(
        "The factorised posterior under ScalePrior, as the paper states it and as the reference code has it",
        ScalePriorConfig,
        configurations,
        run,
        group=group_key,
        check=uci_splits.check,
        largest_group=80,
    )
}
