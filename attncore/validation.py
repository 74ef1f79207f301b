"""Turning user input into tensors, with errors that name the argument, its value and what was expected."""

from __future__ import annotations

import numbers

import numpy as np
import torch

FLOATS = (torch.float32, torch.float64)


def short(value) -> str:
    """Show a value in an error message, in at most 80 characters."""
    if isinstance(value, (torch.Tensor, np.ndarray)) and value.ndim:
        return f"{type(value).__name__} of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def as_tensor(value, name: str, *, dtype=None, device=None) -> torch.Tensor:
    """Return `value` as a float32 or float64 tensor where it lives.

    Integers and booleans become float64; lists and arrays give CPU tensors unless `device` is given.

    Raises
    ------
    TypeError
        If `value` is not numeric data.
    ValueError
        If it is float16, bfloat16 or complex, ragged, or holds nan or inf.
    """
    if not isinstance(value, torch.Tensor):
        if isinstance(value, str) or value is None:
            raise TypeError(f"{name} must be a tensor, an array or nested numbers, got {short(value)}")
        if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
            try:
                value = torch.stack([torch.as_tensor(v) for v in value])
            except RuntimeError as error:
                raise ValueError(f"{name} must be rectangular, got tensors that do not stack: {error}") from None
        else:
            try:
                array = np.asarray(value)
            except ValueError:
                raise ValueError(f"{name} must be rectangular, got ragged nested numbers {short(value)}") from None
            if array.dtype.kind not in "biufc":
                raise TypeError(f"{name} must hold numbers, got {short(value)} of dtype {array.dtype}")
            if array.dtype.kind == "f" and array.dtype.itemsize not in (4, 8):
                raise ValueError(f"{name} must be float32 or float64 (integers become float64), got {array.dtype}")
            value = torch.from_numpy(np.array(array, order="C"))
    if value.is_complex() or value.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"{name} must be float32 or float64 (integers become float64), got {value.dtype}")
    if not value.is_floating_point():
        value = value.to(torch.float64)
    if value.dtype not in FLOATS:
        raise ValueError(f"{name} must be float32 or float64 (integers become float64), got {value.dtype}")
    value = value.to(dtype=dtype, device=device)
    if not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name} must be finite, got nan or inf among its {value.numel()} entries")
    return value


def as_indices(value, name: str, upper: int, *, device=None) -> torch.Tensor:
    """Return `value` as an int64 tensor with entries in ``0 .. upper - 1``; refuse anything else."""
    if not isinstance(value, torch.Tensor):
        try:
            array = np.array(value)
        except ValueError:
            raise ValueError(f"{name} must be rectangular, got ragged nested numbers {short(value)}") from None
        if array.dtype.kind not in "biufc":
            raise TypeError(f"{name} must hold integers, got {short(value)}")
        value = torch.from_numpy(array)
    if value.dtype == torch.bool or value.is_floating_point() or value.is_complex():
        raise TypeError(f"{name} must hold integers, got dtype {value.dtype}")
    tensor = value.to(dtype=torch.int64, device=device)
    if tensor.numel() and (int(tensor.min()) < 0 or int(tensor.max()) >= upper):
        span = f"{int(tensor.min())} to {int(tensor.max())}"
        raise ValueError(f"{name} must lie in 0..{upper - 1}, got values from {span}")
    return tensor


def common(**named) -> list[torch.Tensor]:
    """Give several tensors one dtype (the widest) and check that they live on one device.

    Values may be anything `as_tensor` takes; lists and arrays move to the device of the tensors.
    """
    device = next((v.device for v in named.values() if isinstance(v, torch.Tensor)), None)
    tensors = {k: as_tensor(v, k, device=None if isinstance(v, torch.Tensor) else device) for k, v in named.items()}
    devices = {k: str(t.device) for k, t in tensors.items()}
    if len(set(devices.values())) > 1:
        raise ValueError(f"arguments must live on one device, got {devices}")
    dtype = torch.float64 if any(t.dtype == torch.float64 for t in tensors.values()) else torch.float32
    return [t.to(dtype) for t in tensors.values()]


def placement(dtype, device) -> dict:
    """Where and how drawn data are stored: ``dtype`` (default float64) and ``device`` for a tensor's constructor."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be torch.float32, torch.float64 or None, got {short(dtype)}")
    if dtype is not None and dtype not in FLOATS:
        raise ValueError(f"dtype must be torch.float32, torch.float64 or None, got {dtype}")
    if device is not None and not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a torch.device, its name or None, got {short(device)}")
    try:
        place = torch.device("cpu" if device is None else device)
    except RuntimeError:
        raise ValueError(f"device must name a device that torch knows, got {short(device)}") from None
    return {"dtype": dtype or torch.float64, "device": place}


def broadcast_batch(**shapes) -> torch.Size:
    """The common shape of leading axes, or ValueError naming each argument and its leading axes."""
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        found = ", ".join(f"{tuple(shape)} of {name}" for name, shape in shapes.items())
        *some, last = shapes
        raise ValueError(f"{', '.join(some)} and {last} must have leading axes that broadcast, got {found}") from None


def positive_int(value, name: str, minimum: int = 1) -> int:
    """Return `value` as an int that is at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {short(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def real(value, name: str, *, above: float | None = None, at_least: float | None = None) -> float:
    """Return `value` as a finite float, optionally ``> above`` or ``>= at_least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {short(value)}")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value}")
    if above is not None and not number > above:
        raise ValueError(f"{name} must be greater than {above}, got {value}")
    if at_least is not None and not number >= at_least:
        raise ValueError(f"{name} must be at least {at_least}, got {value}")
    return number


def one_of(value, name: str, choices) -> str:
    """Return `value` if it is one of the strings in `choices`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {short(value)}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value
