"""All experiments, by name."""

from __future__ import annotations

from gilib.experiments import toy, truth, uci, uci_run
from gilib.experiments.experiment import Experiment, one_by_one

EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment("Table 2 and Fig. 1: methods on the toy problem", toy.table_2, one_by_one(toy.run)),
    "toy_inducing": Experiment("Fig. A2: the number of inducing points", toy.figure_a2, one_by_one(toy.run)),
    "reproduction": Experiment(
        "The TensorFlow reproduction and its sweeps", toy.reproduction, one_by_one(toy.run)
    ),
    "toy_hmc": Experiment(
        "Hamiltonian Monte Carlo on the toy problem", truth.configurations, one_by_one(truth.run)
    ),
    "uci_search": Experiment(
        "Tables 5-7: the search for learning rates and batch sizes",
        uci.search,
        uci_run.search,
        group=uci.together,
        check=uci.check,
        largest_group=64,
    ),
    "uci": Experiment(
        "Tables 5-7: four methods and three priors on nine UCI sets",
        uci.tables,
        uci_run.run,
        group=uci.together,
        check=uci.check,
        largest_group=64,
    ),
}
