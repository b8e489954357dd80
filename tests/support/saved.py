"""Models that tests save, and damage to the files."""

import pickle

import torch

import gilib
from gilib import persistence
from tests.support import small_net


def ordinary():
    return small_net(gilib.GlobalInducing()), gilib.Gaussian(0.1)


def loaded_after_flips(path, kind, bits):
    """How many files with one of these bits flipped are read; what is read must be what was written."""
    whole, loaded = path.read_bytes(), 0
    wanted = pickle.dumps(_plain(persistence.read(path, kind)))
    for bit in bits:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = persistence.read(path, kind)
        except persistence.CheckpointError:
            continue
        assert pickle.dumps(_plain(found)) == wanted, f"bit {bit}"
        loaded += 1
    return loaded


def _plain(value):
    """Tensors as their bytes."""
    if isinstance(value, torch.Tensor):
        return value.numpy().tobytes()
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, (list, tuple)) else value
