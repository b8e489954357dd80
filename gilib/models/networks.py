"""Networks with weights: fully connected and convolutional."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gilib.arguments import Count, checked
from gilib.layers import Conv2d, InducingBatchNorm, Layer, Linear, Residual, Sequential, Sum
from gilib.network import Network
from gilib.posteriors import Factorised, GlobalInducing, Posterior
from gilib.priors import NealPrior, Prior
from gilib.randomness import GeneratorLike
from gilib.validation import as_tensor, check_image_shape, check_instance, check_tensor, from_numpy


@checked
def mlp(
    in_features: Count,
    hidden: Sequence[Count],
    out_features: Count,
    *,
    posterior: Posterior | Sequence[Posterior] | None = None,
    prior: Prior | None = None,
    inducing_points: Tensor | None = None,
    pseudo_outputs: Tensor | None = None,
    activation: type[nn.Module] | nn.Module | None = nn.ReLU,
    bias: bool = True,
    replicas: tuple[int, ...] = (),
    generator: GeneratorLike | None = None,
    dtype: torch.dtype | None = None,
) -> Network:
    """Build a fully connected network.

    Args:
        in_features: D, the number of inputs.
        hidden: widths of the hidden layers; `()` for Bayesian linear regression.
        out_features: O, the number of outputs.
        posterior: one posterior for all layers, or one for each weight layer, or two, `(lower, last)`.
            Default: `(Factorised(), GlobalInducing())`, which on tables has a better bound than
            `GlobalInducing()` in all layers and is far cheaper.
        prior: prior of all layers. None: `NealPrior(learn=True)` with the default posterior, else
            `NealPrior()`. Learn scales only if a divergence is trained: a point estimate would shrink them.
        inducing_points: initial inducing points U_0, `[M, D]`, some of the training inputs.
        pseudo_outputs: initial pseudo-outputs of the last layer, `[M, O]`, or labels, `[M]`: the targets at
            the inducing points.
        activation: a class of nonlinearity, or a module such as `nn.LeakyReLU(0.2)`, which is copied to each
            place; None for a deep linear network.
        bias: whether each layer has a bias.
        replicas: shape of the replica axes.
        generator: source of the initial values.
        dtype: dtype of the parameters.

    >>> net = mlp(1, (50, 50), 1, inducing_points=torch.randn(100, 1))
    >>> net.draw(10)(torch.zeros(4, 1)).shape
    torch.Size([10, 4, 1])
    """
    hidden = tuple(hidden)
    widths = (in_features, *hidden, out_features)
    if posterior is None:
        posterior = [*[Factorised()] * len(hidden), GlobalInducing()]
        prior = NealPrior(learn=True) if prior is None else prior
    posteriors = one_per_layer(posterior, len(widths) - 1)
    layers: list[Layer | nn.Module] = []
    for k, layer_posterior in enumerate(posteriors):
        if k and activation is not None:
            layers.append(_activation(activation))
        layers.append(Linear(widths[k], widths[k + 1], layer_posterior, prior or NealPrior(), bias))
    return Network(
        None if inducing_points is None else as_points(inducing_points, in_features),
        layers,
        pseudo_outputs=pseudo_outputs,
        replicas=replicas,
        generator=generator,
        dtype=dtype,
    )


@checked
def lenet(
    image_shape: tuple[Count, Count, Count] = (1, 28, 28),
    classes: Count = 10,
    *,
    channels: Count = 64,
    posterior: Posterior | Sequence[Posterior] | None = None,
    prior: Prior | None = None,
    boundary: str = "circular",
    **settings: Any,
) -> Network:
    """Build a small convolutional network as for MNIST (Ober & Aitchison, 2021, App. N).

    It has two blocks conv-relu-maxpool, then conv-relu-linear. Kernels are 3 × 3 and keep the size of images.

    Args:
        image_shape: shape (C, H, W) of an image.
        classes: O, the number of classes.
        channels: number of channels of every convolution.
        posterior: one posterior for all 4 weight layers, one for each, or two, `(lower, last)`.
        prior: prior of all layers; default `NealPrior()`.
        boundary: treatment of the boundary in the posterior's statistics, see `Conv2d`.
        settings: `inducing_points` (images `[M, C, H, W]`), `pseudo_outputs` (one-hot targets
            `[M, classes]`), `replicas`, `generator` and `dtype`, as for `Network`.

    >>> lenet(channels=4, inducing_points=torch.randn(5, 1, 28, 28)).output_shape
    (10,)
    """
    _, height, width = check_image_shape(image_shape, "lenet")
    make = _Layers(iter(one_per_layer(posterior, 4)), prior, boundary)
    layers: list[Layer | nn.Module] = [
        *(make.conv(image_shape[0], channels), nn.ReLU(), nn.MaxPool2d(2)),
        *(make.conv(channels, channels), nn.ReLU(), nn.MaxPool2d(2)),
        *(make.conv(channels, channels), nn.ReLU(), nn.Flatten()),
        make.linear(channels * (height // 4) * (width // 4), classes),
    ]
    return _image_network(layers, image_shape, settings)


@checked
def resnet8(
    image_shape: tuple[Count, Count, Count] = (3, 32, 32),
    classes: Count = 10,
    *,
    channels: Count = 32,
    posterior: Posterior | Sequence[Posterior] | None = None,
    prior: Prior | None = None,
    boundary: str = "circular",
    **settings: Any,
) -> Network:
    """Build a residual network with 8 weight layers, as for CIFAR-10 (Ober & Aitchison, 2021, Sec. 3.4).

    Its layers are conv-relu-block-pool-block-pool-block-pool-linear. A block adds conv-relu-conv-relu to its
    input. Pooling takes averages; the last one averages over the whole image. Arguments are those of `lenet`.

    >>> resnet8(channels=4, inducing_points=torch.randn(5, 3, 32, 32)).output_shape
    (10,)
    """
    check_image_shape(image_shape, "resnet8")
    make = _Layers(iter(one_per_layer(posterior, 8)), prior, boundary)
    layers: list[Layer | nn.Module] = [make.conv(image_shape[0], channels), nn.ReLU()]
    for pool in (nn.AvgPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)):
        branch = [make.conv(channels, channels), nn.ReLU(), make.conv(channels, channels), nn.ReLU()]
        layers += [Residual(branch), pool]
    layers += [nn.Flatten(), make.linear(channels, classes)]
    return _image_network(layers, image_shape, settings)


@checked
def resnet18(
    image_shape: tuple[Count, Count, Count] = (3, 32, 32),
    classes: Count = 10,
    *,
    widths: Sequence[Count] = (64, 128, 256, 512),
    batch_norm: bool = True,
    posterior: Posterior | Sequence[Posterior] | None = None,
    prior: Prior | None = None,
    boundary: str = "circular",
    **settings: Any,
) -> Network:
    """Build a ResNet-18 for small images (He et al., 2016; Ober & Aitchison, 2021, Sec. 3.4).

    The first kernel is 3 × 3 and there is no first pooling. `widths` are the channels of the four stages.
    Each stage has two blocks, and all but the first halve the image. With `batch_norm`, `InducingBatchNorm`
    follows each convolution. Other arguments are those of `lenet`, with 21 weight layers: 17 convolutions,
    3 shortcuts and 1 dense layer.

    >>> images = torch.randn(3, 3, 16, 16)
    >>> resnet18((3, 16, 16), widths=(2, 3, 4, 5), inducing_points=images).output_shape
    (10,)
    """
    if not len(widths):
        raise ValueError(f"widths must be a sequence of channels, one for each stage, got {widths!r}")
    posteriors = iter(one_per_layer(posterior, 2 + 5 * len(widths) - 1))
    make = _Layers(posteriors, prior, boundary, batch_norm)
    layers: list[Layer | nn.Module] = [*make.normalised_conv(image_shape[0], widths[0]), nn.ReLU()]
    channels = widths[0]
    for stage, width in enumerate(widths):
        for stride in (2 if stage else 1, 1):
            layers += [make.block(channels, width, stride), nn.ReLU()]
            channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), make.linear(channels, classes)]
    return _image_network(layers, image_shape, settings)


def as_points(given: object, features: int, name: str = "inducing_points") -> Tensor:
    """Convert points `[..., M, features]` from numpy if needed, and check them."""
    points = check_tensor(from_numpy(given), name)
    if not points.is_floating_point():
        raise ValueError(f"{name} must be floating-point numbers, got {points.dtype}")
    if points.shape[-1] != features:
        raise ValueError(f"{name} must have {features} features, got shape {list(points.shape)}")
    return points


def _activation(given: type[nn.Module] | nn.Module) -> nn.Module:
    if isinstance(given, type) and issubclass(given, nn.Module):
        return given()
    if not isinstance(given, nn.Module):
        raise TypeError(
            "activation must be a class of modules such as torch.nn.ReLU, or a module such as "
            f"torch.nn.LeakyReLU(0.2), got {given!r}"
        )
    return deepcopy(given)


@dataclass(frozen=True)
class _Layers:
    """Makes weight layers in order, and gives each its posterior."""

    posteriors: Iterator[Posterior]
    prior: Prior | None
    boundary: str
    batch_norm: bool = False

    def conv(self, inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1) -> Conv2d:
        sizes = inputs, outputs, kernel_size
        return Conv2d(*sizes, next(self.posteriors), self.prior, stride=stride, boundary=self.boundary)

    def linear(self, inputs: int, outputs: int) -> Linear:
        return Linear(inputs, outputs, next(self.posteriors), self.prior)

    def normalised_conv(
        self, inputs: int, outputs: int, kernel_size: int = 3, stride: int = 1
    ) -> list[Layer]:
        conv = self.conv(inputs, outputs, kernel_size, stride)
        return [conv, InducingBatchNorm()] if self.batch_norm else [conv]

    def block(self, inputs: int, outputs: int, stride: int) -> Layer:
        """Return conv-relu-conv plus a shortcut: the identity, or a 1 × 1 convolution to another shape."""
        branch: list[Layer | nn.Module] = [*self.normalised_conv(inputs, outputs, stride=stride), nn.ReLU()]
        branch += self.normalised_conv(outputs, outputs)
        if stride == 1 and inputs == outputs:
            return Residual(branch)
        return Sum([Sequential(branch), Sequential(self.normalised_conv(inputs, outputs, 1, stride))])


def _image_network(
    layers: list[Layer | nn.Module], image_shape: tuple[Count, Count, Count], settings: dict[str, Any]
) -> Network:
    points = settings.pop("inducing_points", None)
    points = None if points is None else as_tensor(points, "inducing_points")
    if points is not None and tuple(points.shape[-3:]) != tuple(image_shape):
        raise ValueError(
            f"inducing_points must be images of shape {list(image_shape)}, got shape {list(points.shape)}: "
            "give image_shape, or other images"
        )
    return Network(points, layers, input_shape=tuple(image_shape), **settings)


def one_per_layer(posterior: Posterior | Sequence[Posterior] | None, layers: int) -> list[Posterior]:
    """Return one posterior for every layer, given one for all, two (lower layers, last), or one for each."""
    if posterior is None:
        return [GlobalInducing()] * layers
    if not isinstance(posterior, Sequence) or isinstance(posterior, str):
        return [check_instance(posterior, Posterior, "posterior")] * layers
    if len(posterior) == layers:
        return list(posterior)
    if len(posterior) == 2 and layers > 2:
        return [posterior[0]] * (layers - 1) + [posterior[1]]
    raise ValueError(
        f"give one posterior, two (lower layers, last layer), or one for each of the {layers} layers; "
        f"got {len(posterior)}"
    )
