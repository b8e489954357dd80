"""What the benchmarks time computes the same thing on both sides."""

import importlib.util
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def load(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)  # a script sees its neighbours
        spec = importlib.util.spec_from_file_location(f"{name}_benchmark", BENCHMARKS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def test_bounds_and_gradients_agree_with_the_plain_computation():
    load("training_step").check("toy")


@pytest.mark.parametrize("method", ["fac", "gi"])
def test_replicas_train_alike_both_ways(method):
    load("replicas").check(method, torch.device("cpu"), replicas=2, points=8, samples=1)


def test_ways_to_convolve_with_several_weights_agree():
    load("weight_samples").check()


def test_one_layer_has_the_bound_of_gpytorch():
    load("deep_gp").check()


def test_mean_field_has_the_bound_of_doubly_stochastic_layers():
    load("structured").check()


@pytest.mark.parametrize("shape", ["yacht", "mnist"])
def test_layerwise_inference_and_adam_step_on_the_same_network(shape):
    load("bali").check(shape)
