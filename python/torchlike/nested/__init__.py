"""Tensors of parts that differ in size, in two layouts.

With `layout=torch.jagged` one dimension differs, and its size in the shape is no number but a ragged size (`j1`) that
equals itself. With `layout=torch.strided` parts may differ in every size, and there is no shape.
"""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import Tensor

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def _for_jagged() -> Any:
    from torchlike.nested._internal import nested_tensor

    return nested_tensor


def _for_strided() -> Any:
    from torchlike.nested import _strided

    return _strided


def _is_tensors(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and isinstance(given[0], Tensor)


def _unsupported(layout: Any, what: str = "tensors") -> RuntimeError:
    return RuntimeError(f"Specified layout is unsupported for nested {what}: {layout}")


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Tensor:
    """A nested tensor of a list of tensors, or of those along the first dimension of one, with their gradients.

    A nested tensor of the same layout is itself, converted if another dtype or device is asked for. Tensors of a list
    are copied, one contiguous tensor is not.

    Raises:
        TypeError: for what is neither.
        RuntimeError: if the tensors do not fit one another, or for a change of layout.
    """
    listed = isinstance(ts, list | tuple) and all(isinstance(t, Tensor) for t in ts)
    if not isinstance(ts, Tensor) and not listed:
        raise TypeError(
            "as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors "
        )
    if not listed and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    if not listed and ts.is_nested:
        if layout != ts.layout:
            raise RuntimeError(
                "as_nested_tensor(): Converting between nested tensor layouts is not supported"
            )
        converted: Tensor = ts.to(device=device, dtype=dtype)
        return converted
    layout = torch.strided if layout is None else layout
    if layout == torch.strided:
        made = _for_strided().from_list(list(ts)) if listed else _for_strided().from_tensor(ts)
        return made.to(device=device, dtype=dtype)
    if layout != torch.jagged:
        raise _unsupported(layout)
    if listed:
        return _for_jagged().jagged_from_list(list(ts), None, dtype, device)[0]
    values = ts.contiguous().flatten(0, 1).to(device=device, dtype=dtype)
    batch, length = ts.shape[:2]
    offsets = length * torch.arange(batch + 1, device=values.device)
    _for_jagged().ragged_size(offsets, (length,) * batch)
    return _for_jagged().nested_view_from_values_offsets(values, offsets, 1, length, length)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Any = None, out: Any = None
) -> Tensor:
    """A plain tensor of all parts, each filled up to the size of the largest, or to `output_size`.

    Raises:
        NotImplementedError: for what is no nested tensor.
    """
    made: Tensor = input.to_padded_tensor(padding, output_size)
    if out is not None:
        out.resize_(made.shape).copy_(made)
        return out
    return made


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A nested tensor without a history, of copies of tensors or of lists of numbers that have equally many dimensions.

    Raises:
        RuntimeError: if they do not fit one another, or for another layout.
    """
    layout = torch.strided if layout is None else layout
    if layout not in (torch.strided, torch.jagged):
        raise _unsupported(layout)
    with torch.no_grad():
        if layout == torch.strided:
            kind = dtype or (tensor_list[0].dtype if _is_tensors(tensor_list) else torch.float32)
            if requires_grad and not (kind.is_floating_point or kind.is_complex):
                raise RuntimeError(
                    "Only Tensors of floating point and complex dtype can require gradients"
                )
            made = _for_strided().from_data(tensor_list, dtype, device)
        else:
            parts = [t if isinstance(t, Tensor) else torch.as_tensor(t) for t in tensor_list]
            made = _for_jagged().jagged_from_list(parts, None, dtype, device)[0].detach()
    made.requires_grad_(requires_grad)
    return made.pin_memory() if pin_memory else made


def narrow(
    tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = torch.strided
) -> Tensor:
    """Parts of the sequences `[B, S, ...]` of a plain tensor, each from its own start and of its own length.

    With the strided layout they are copies, and `start` and `length` numbers; with the jagged one a view, with holes
    where there is something between them, and `dim` is 1.

    Raises:
        RuntimeError: for other arguments than these.
    """
    for name, value in (("start", start), ("length", length)):
        if not isinstance(value, int | Tensor | torch.SymInt):
            raise RuntimeError(f"{name} must be an integer or a tensor")
    if layout == torch.strided:
        if isinstance(start, Tensor) or isinstance(length, Tensor):
            raise RuntimeError("start and length must be integers for the strided layout NT impl")
        parts = as_nested_tensor(torch.unbind(tensor), layout=torch.strided)
        return parts.narrow(dim, start, length)
    if layout != torch.jagged:
        raise _unsupported(layout, "narrow")
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    where = [
        t if isinstance(t, Tensor) else torch.tensor([t], device=tensor.device, dtype=torch.int64)
        for t in (start, length)
    ]
    return _for_jagged().jagged_from_tensor_and_lengths(tensor, *where)[0]


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> Tensor:
    """A jagged view of sequences that lie one after another in a dimension of `values`.

    `offsets` `[B + 1]` say where they begin, `lengths` `[B]` how long they are; both together leave holes.
    `jagged_dim` counts with the batch. What is known of the shortest and longest sequence need not be computed.

    Raises:
        RuntimeError: if both offsets and lengths are missing.
        ValueError: if the batch would be ragged.
    """
    from torchlike.fx._symbolic_trace import is_fx_tracing

    if is_fx_tracing():
        raise RuntimeError(
            "torch.nested.nested_tensor_from_jagged does not support tracing with fx.symbolic_trace. "
            "Use fx.wrap to wrap the function that calls nested_tensor_from_jagged."
        )
    if offsets is None:
        if lengths is None:
            raise RuntimeError(
                "nested_tensor_from_jagged(): At least one of offsets or lengths is required."
            )
        offsets, lengths = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)), None
    if jagged_dim is not None and jagged_dim < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {jagged_dim}.")
    return _for_jagged().nested_view_from_values_offsets_lengths(
        values, offsets, lengths, jagged_dim or 1, min_seqlen, max_seqlen
    )


def masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    """A jagged tensor of what a mask lets through in each row of a plain tensor.

    Raises:
        RuntimeError: if one of the two is not strided.
    """
    for name, t in (("tensor", tensor), ("mask", mask)):
        if t.layout != torch.strided:
            given = "given" if name == "tensor" else "given:"
            raise RuntimeError(
                f"torch.nested.masked_select requires a strided {name}, {given} {t.layout}"
            )
    counts = mask.expand(tensor.shape).sum(dim=tensor.ndim - 1).view(-1)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    return _for_jagged().nested_view_from_values_offsets(tensor.masked_select(mask), offsets)
