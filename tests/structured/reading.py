"""Structured networks of the library whose parameters are at random, and their reading as oracle's models.

All that the tests assume of the library's parameters is here: unknowns are ordered by layer, GP and inducing
point; `weights.rows` has one strip of C for every GP in this order, `[R, M, columns]`: its blocks from left
to right, without those that the family leaves out. The block on the diagonal is the last; its lower triangle
counts.
"""

import torch

import gilib
from gilib.structured import FullyCoupled, MeanField, Process, ProcessIndex, StripesAndArrow, StructuredGP
from tests.structured import oracle
from tests.support import D, normals, seeded

FAMILIES = {"mean_field": MeanField, "fully_coupled": FullyCoupled, "stripes_and_arrow": StripesAndArrow}
DEEP = ((2, 2, 1), (4, 3, 5))  # widths and numbers of inducing inputs
WIDE = ((3, 2), (3, 2))  # two outputs


def matrix(entering, width):
    """Of the mean function of a hidden layer."""
    return torch.eye(width, dtype=D) if entering == width else normals(entering, width, seed=90)


def processes(widths, sizes, inputs=2, seed=0):
    """Sub-layers with a lengthscale for every input, and mean functions below the last one."""
    found, entering = [], inputs
    for k, (width, size) in enumerate(zip(widths, sizes, strict=True)):
        scale = 0.8 + 0.5 * normals(entering, seed=70 + k).square()
        kernel = gilib.kernels.RBF(tuple(scale.tolist()), variance=1.3 + 0.2 * k)
        mean = torch.nn.Identity()
        if entering != width:
            mean = gilib.layers.FixedLinear(entering, width, matrix(entering, width))
        start = normals(size, entering, seed=seed + 10 * k)
        last = k == len(widths) - 1
        found.append(Process(entering, width, kernel, mean=None if last else mean, inducing_inputs=start))
        entering = width
    return found


def network(family, shape=DEEP, *, inputs=2, replicas=(), seed=0, jitter=1e-3, **settings):
    """A network of one structured layer, float64, its mean and its factor at random."""
    widths, sizes = shape
    family = FAMILIES[family]() if isinstance(family, str) else family
    layer = StructuredGP(processes(widths, sizes, inputs, seed), family, jitter=jitter, **settings)
    net = gilib.Network(None, [layer], input_shape=(inputs,), replicas=replicas, generator=seeded(), dtype=D)
    size = sum(width * points for width, points in zip(widths, sizes, strict=True))
    root = 0.25 + 0.25 * normals(*replicas, size, size, seed=seed + 5)
    write_root(net, root.tril(-1) + (0.3 + root.diagonal(dim1=-2, dim2=-1).abs()).diag_embed())
    for k, mean in enumerate(layer_of(net).weights.means):
        mean.data.copy_(normals(*mean.shape, seed=seed + 50 + k))
    return net


def layer_of(net) -> StructuredGP:
    (layer,) = net.layers
    return layer


def strips(net):
    """For every GP its parameter, its rows of C, and the columns of its blocks in order, as slices."""
    layer, places, start = layer_of(net), [], 0
    for k, mean in enumerate(layer.weights.means):
        for t in range(mean.shape[-1]):
            places.append((ProcessIndex(k, t), slice(start, start + mean.shape[-2])))
            start += mean.shape[-2]
    depth = len(layer.weights.means)
    for i, (strip, (row, rows)) in enumerate(zip(layer.weights.rows, places, strict=True)):
        below = [own for column, own in places[:i] if layer.family.couples(row, column, depth)]
        yield strip, rows, [*below, rows]


def unknowns(net):
    return sum(mean.shape[-2:].numel() for mean in layer_of(net).weights.means)


def dense_root(net, replica=()):
    """C of one replica, `[n, n]`, with gradients."""
    lines, size = [], unknowns(net)
    for strip, rows, columns in strips(net):
        line, blocks = [], strip[replica].split([own.stop - own.start for own in columns], -1)
        end = 0
        for own, block in zip(columns, blocks, strict=True):
            line += [block.new_zeros(len(block), own.start - end), block.tril() if own == rows else block]
            end = own.stop
        lines.append(torch.cat([*line, strip.new_zeros(rows.stop - rows.start, size - end)], -1))
    return torch.cat(lines)


def write_root(net, root):
    """Set the blocks that the family has from C, `[R, n, n]`."""
    for strip, rows, columns in strips(net):
        strip.data.copy_(torch.cat([root[..., rows, own] for own in columns], -1))


def oracle_of(net, replica=()):
    """The model of one replica, with gradients to all parameters."""
    layer, layers = layer_of(net), []
    widths = [mean.shape[-1] for mean in layer.weights.means]
    for k, process in enumerate(layer):
        inputs, hyperparameters = process.inducing_inputs[replica], process.hyperparameters
        layers.append(
            oracle.Layer(
                inputs=inputs,
                lengthscale=hyperparameters.log["lengthscale"][replica].exp(),
                variance=hyperparameters.log["variance"][replica].exp()[0],
                outputs=widths[k],
                mean=None if k == len(widths) - 1 else matrix(inputs.shape[-1], widths[k]),
            )
        )
    mean = torch.cat([value[replica].mT.flatten() for value in layer.weights.means])
    return oracle.from_whitened(tuple(layers), mean, dense_root(net, replica), layer.jitter)
