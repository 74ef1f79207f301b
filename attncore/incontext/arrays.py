"""One spelling for the few array functions the simulation loop needs, on numpy (CPU) or torch (any other device).

The loops below do many small operations in sequence; on a CPU numpy's overhead for each is a fraction of
torch's, on an accelerator the arrays have to stay where they are.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch

NUMPY = SimpleNamespace(exp=np.exp, log=np.log, log1p=np.log1p, expm1=np.expm1, where=np.where, clip=np.clip,
                        maximum=np.maximum,
                        amax=np.max, amin=np.min, dot=np.vecdot, stack=np.stack, concat=np.concatenate,
                        zeros=np.zeros, array=np.asarray)


def backend(device: torch.device) -> SimpleNamespace:
    """The namespace of functions for arrays on `device`."""
    if device.type == "cpu":
        return NUMPY
    return SimpleNamespace(
        exp=torch.exp, log=torch.log, log1p=torch.log1p, expm1=torch.expm1, where=torch.where, clip=torch.clamp,
        maximum=lambda x, low: x.clamp(min=low),
        amax=torch.amax, amin=torch.amin, dot=torch.linalg.vecdot, stack=torch.stack, concat=torch.cat,
        zeros=lambda shape: torch.zeros(shape, dtype=torch.float64, device=device),
        array=lambda a: torch.as_tensor(np.asarray(a), dtype=torch.float64).to(device),
    )


def local(tensor: torch.Tensor):
    """A tensor as its backend wants it: a numpy view on the CPU, itself elsewhere."""
    return tensor.detach().numpy() if tensor.device.type == "cpu" else tensor


def as_torch(array, device: torch.device) -> torch.Tensor:
    """An array of either backend as a float64 tensor on `device`."""
    if isinstance(array, torch.Tensor):
        return array
    return torch.from_numpy(np.array(array, dtype=np.float64)).to(device)


def stack_records(items: list):
    """Stack records (arrays of either backend, or tuples of them) along a new first axis."""
    if isinstance(items[0], tuple):
        return tuple(stack_records([item[i] for item in items]) for i in range(len(items[0])))
    return torch.stack(items) if isinstance(items[0], torch.Tensor) else np.stack(items)
