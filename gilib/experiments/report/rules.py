"""Rules: which records answer which printed table.

A printed table without a rule is listed as not run. When an experiment records its numbers, add an entry to
`RULES`: the experiment, the configuration fields that a claim asks for, and where the metric is found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gilib.data.catalogue import find_set
from gilib.experiments.report.claims import Claim

METHODS = {"factorised": "fac", "local_inducing": "li", "global_inducing": "gi", "fac_to_gi": "fac_gi"}


@dataclass(frozen=True)
class Rule:
    """Where our numbers for a printed table are.

    Attributes:
        experiment: name of the experiment, `results/<experiment>.jsonl`.
        settings: fields of the configuration and the values that a claim asks for; a value None: nothing of
            ours answers this claim.
        metrics: printed metric -> key of the record's metrics; `name.0` is the first entry of a list. Printed
            metrics that are not named are not recorded.
        repetitions: how many splits or draws of the data the print averages over; None: it does not say.
        print_is_one_draw: whether the print is one draw of what our repetitions vary over, so that its errors
            leave this variation out: our standard deviation then stands for it.
        remark: what a reader must know to judge the comparison.
        factors: printed metric -> the printed unit's number for one of ours; 1 where it is not named.
        each: a field of the configuration, such as the data set, of which all claims with the same value rest
            on one scale: the largest that is complete, see `gilib.experiments.scales_of`; "": each claim on
            the largest of its own.
        cells: further fields that tell the cells of the table apart.
    """

    experiment: str
    settings: Callable[[Claim], dict[str, Any]]
    metrics: Mapping[str, str]
    repetitions: Callable[[Claim], int] | None = None
    print_is_one_draw: bool = False
    remark: str = ""
    factors: Mapping[str, float] = field(default_factory=dict)
    each: str = ""
    cells: tuple[str, ...] = ()


def _toy(claim: Claim) -> dict[str, Any]:
    return {"method": METHODS.get(claim.method), "normalise": True}


def _reproduction(claim: Claim) -> dict[str, Any]:
    return {"method": METHODS.get(claim.method), "prior_scale": 2.0, "num_inducing": 100}


def _uci(claim: Claim) -> dict[str, Any]:
    return {"dataset": claim.dataset, "method": METHODS.get(claim.method), "prior": claim.prior}


def _cifar10(claim: Claim) -> dict[str, Any]:
    """The printed network and prior; the print's SpatialIWPrior is that of the reference code."""
    network = {"small ResNet, 32 channels": "resnet8", "ResNet-18": "resnet18"}.get(claim.architecture)
    prior = "SpatialIWPrior (reference)" if claim.prior == "SpatialIWPrior" else claim.prior
    return {"network": network, "method": METHODS.get(claim.method), "prior": prior}


def _against_svhn(claim: Claim) -> dict[str, Any]:
    return _cifar10(claim) | {"outside": "svhn"}


def _splits(claim: Claim) -> int:
    return find_set(claim.dataset).num_splits


def _tables_5_to_7(metrics: Mapping[str, str]) -> Rule:
    return Rule("uci", _uci, metrics, _splits, each="dataset", cells=("method", "prior"))


RULES: dict[str, Rule] = {
    "ober2021_table2_toy_elbo_variances": Rule(
        "toy",
        _toy,
        {"elbo": "elbo", **{f"variance_F{layer + 1}": f"layer_variances.{layer}" for layer in range(3)}},
        remark=(
            "Ours: totals over the normalised training points, one run for each draw of the data. The print "
            "states neither its number of draws nor whether the bound is a total."
        ),
    ),
    "repro_gip_elbo_iwbo": Rule(
        "reproduction",
        _reproduction,
        {"elbo": "elbo", "iwbo": "iwbo"},
        print_is_one_draw=True,
        remark=(
            "The printed errors are over evaluations of one network on one unseeded draw of the data. Ours "
            "are over draws of the data, which move both bounds by far more, so our standard deviation over "
            "draws is part of the combined error. The gap of the two bounds is steadier and a sharper test: "
            "see the chapter on global inducing points."
        ),
    ),
    "ober2021_table1_cifar10": Rule(
        "cifar10",
        _cifar10,
        {"test_log_likelihood": "test_log_likelihood", "accuracy": "accuracy", "elbo_per_datapoint": "elbo"},
        remark=(
            "At reduced scale networks train on 2000 of the 50000 images, and ResNet-18 has an eighth of its "
            "channels: the numbers tell methods apart, and are far from the print for want of data. The "
            "printed times are those of MNIST on a P100, and are left out."
        ),
        factors={"accuracy": 100.0},
    ),
    "ober2021_table3_ece": Rule(
        "cifar10", _cifar10, {"expected_calibration_error": "expected_calibration_error"}
    ),
    "ober2021_table4_entropy_ratio": Rule(
        "cifar10",
        _against_svhn,
        {"predictive_entropy_ratio": "entropy_ratio"},
        remark="The print is for SVHN. Ratios to another set, recorded where it is missing, do not answer.",
    ),
    "ober2021_table5_uci_bnn_test_ll": _tables_5_to_7({"test_log_likelihood": "test_log_likelihood"}),
    "ober2021_table6_uci_bnn_rmse": _tables_5_to_7({"rmse": "rmse"}),
    "ober2021_table7_uci_bnn_elbo": _tables_5_to_7({"elbo_per_datapoint": "elbo"}),
}
