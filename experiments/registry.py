"""All experiments, by name: the tables at the ends of the modules of each paper."""

from __future__ import annotations

from experiments.comparisons import against, asking, columns, defaults_run, everyday, posteriors_run
from experiments.kurle2024 import benchmarks as bali_benchmarks
from experiments.kurle2024 import search as bali_search
from experiments.kurle2024 import settings as bali_settings
from experiments.kurle2024 import toys as bali_toys
from experiments.lindinger2020 import chains, convergence, covariance, runtime
from experiments.lindinger2020 import uci_run as structured_uci
from experiments.ober2021 import (
    cifar10,
    depth,
    dgp_toy,
    dgp_uci_run,
    mnist_500,
    toy,
    toy_hmc,
    toy_layers,
    uci_hmc,
    uci_run,
    uci_scale_prior,
)
from experiments.runner.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    **toy.EXPERIMENTS,
    **toy_hmc.EXPERIMENTS,
    **toy_layers.EXPERIMENTS,
    **uci_run.EXPERIMENTS,
    **uci_scale_prior.EXPERIMENTS,
    **uci_hmc.EXPERIMENTS,
    **mnist_500.EXPERIMENTS,
    **cifar10.EXPERIMENTS,
    **depth.EXPERIMENTS,
    **dgp_toy.EXPERIMENTS,
    **dgp_uci_run.EXPERIMENTS,
    **structured_uci.EXPERIMENTS,
    **convergence.EXPERIMENTS,
    **covariance.EXPERIMENTS,
    **chains.EXPERIMENTS,
    **runtime.EXPERIMENTS,
    **bali_search.EXPERIMENTS,
    **posteriors_run.EXPERIMENTS,
    **bali_settings.EXPERIMENTS,
    **bali_benchmarks.EXPERIMENTS,
    **bali_toys.EXPERIMENTS,
    **against.EXPERIMENTS,
    **asking.EXPERIMENTS,
    **columns.EXPERIMENTS,
    **everyday.EXPERIMENTS,
    **defaults_run.EXPERIMENTS,
}
