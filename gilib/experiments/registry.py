"""All experiments, by name."""

from __future__ import annotations

from gilib.experiments import cifar10, depth, mnist_500, toy, truth, uci, uci_run, uci_scale_prior, uci_truth
from gilib.experiments.experiment import Experiment, one_by_one

EXPERIMENTS: dict[str, Experiment] = {
    "toy": Experiment(
        "Table 2 and Fig. 1: methods on the toy problem", toy.ToyConfig, toy.table_2, one_by_one(toy.run)
    ),
    "toy_inducing": Experiment(
        "Fig. A2: the number of inducing points", toy.ToyConfig, toy.figure_a2, one_by_one(toy.run)
    ),
    "reproduction": Experiment(
        "The TensorFlow reproduction and its sweeps", toy.ToyConfig, toy.reproduction, one_by_one(toy.run)
    ),
    "toy_hmc": Experiment(
        "Hamiltonian Monte Carlo on the toy problem",
        truth.TruthConfig,
        truth.configurations,
        one_by_one(truth.run),
    ),
    "uci_search": Experiment(
        "Tables 5-7: the search for learning rates and batch sizes",
        uci.SearchConfig,
        uci.search,
        uci_run.search,
        group=uci.together,
        check=uci.check,
        largest_group=64,
    ),
    "uci": Experiment(
        "Tables 5-7: four methods and three priors on nine UCI sets",
        uci.UciConfig,
        uci.tables,
        uci_run.run,
        group=uci.together,
        check=uci.check,
        largest_group=64,
        scales=tuple(uci.SCALES),
    ),
    "uci_scale_prior": Experiment(
        "The factorised posterior under ScalePrior, as the paper states it and as the reference code has it",
        uci_scale_prior.ScalePriorConfig,
        uci_scale_prior.configurations,
        uci_scale_prior.run,
        group=uci_scale_prior.together,
        check=uci.check,
        largest_group=80,
    ),
    "uci_hmc": Experiment(
        "Hamiltonian Monte Carlo on the two smallest UCI sets",
        uci_truth.ChainsConfig,
        uci_truth.chains,
        one_by_one(uci_truth.sample),
        check=uci.check,
    ),
    "uci_fixed_noise": Experiment(
        "The four methods with the noise of these chains",
        uci_truth.FixedNoiseConfig,
        uci_truth.approximations,
        uci_truth.train,
        check=uci.check,
    ),
    "mnist_500": Experiment(
        "Fig. A7: four methods and four priors on 500 images of MNIST",
        mnist_500.MnistConfig,
        mnist_500.figure_a7,
        one_by_one(mnist_500.run),
        check=mnist_500.check,
    ),
    "mnist_500_clock": Experiment(
        "The factorised posterior under StandardPrior on the same images, until its variances arrive",
        mnist_500.MnistConfig,
        mnist_500.clock,
        one_by_one(mnist_500.run),
        check=mnist_500.check,
    ),
    "cifar10": Experiment(
        "Tables 1, 3 and 4, Fig. A5: CIFAR-10, calibration and out of distribution",
        cifar10.CifarConfig,
        cifar10.table_1,
        one_by_one(cifar10.run),
        check=cifar10.check,
    ),
    "depth": Experiment(
        "Fig. 2: deep linear networks", depth.DepthConfig, depth.figure_2, depth.run, group=depth.together
    ),
}
