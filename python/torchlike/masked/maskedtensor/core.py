"""The class of tensors that keep a mask."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torchlike as torch
from torchlike import Tensor
from torchlike.masked.maskedtensor import _calls

__all__ = ["MaskedTensor", "is_masked_tensor"]

_DTYPES = frozenset({
    torch.float16, torch.float32, torch.float64, torch.bool, torch.int8, torch.int16, torch.int32, torch.int64,
})  # fmt: skip


def is_masked_tensor(obj: Any, /) -> bool:
    """True for a :class:`MaskedTensor`."""
    return isinstance(obj, MaskedTensor)


class MaskedTensor(Tensor):
    """A strided tensor and a mask of its shape, true where an element counts.

    Functions of one element keep the mask, those of two want equal masks, views and joins treat the mask as the data,
    and reductions leave out what the mask holds back; the mask of their result says where anything was left. Gradients
    have masks as well.
    """

    _masked_data: Tensor
    _masked_mask: Tensor

    @staticmethod
    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
        """Copies of a tensor and of its mask.

        Raises:
            TypeError: if one of them is no plain strided tensor, or of a dtype that is not taken.
            ValueError: if the shapes differ.
        """
        _check(data, mask)
        warnings.warn(
            "The PyTorch API of MaskedTensors is in prototype stage and will change in the near future. Please open a "
            "Github issue for features requests and see our documentation on the torch.masked module for further "
            "information about the project.",
            UserWarning,
            stacklevel=2,
        )
        if data.requires_grad:
            warnings.warn(
                "It is not recommended to create a MaskedTensor with a tensor that requires_grad. "
                "To avoid this, you can use data.detach().clone()",
                UserWarning,
                stacklevel=2,
            )
        return cls._made(data.clone(), mask.clone(), requires_grad)

    @classmethod
    def _made(cls, data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
        """The tensor over these two, which are its own from now on."""
        root: Any = Tensor
        made: MaskedTensor = root._make_wrapper_subclass(
            cls,
            data.size(),
            strides=data.stride(),
            dtype=data.dtype,
            device=data.device,
            requires_grad=requires_grad,
        )
        made._masked_data, made._masked_mask = data.detach(), mask
        return made

    @staticmethod
    def _from_values(data: Tensor, mask: Tensor) -> MaskedTensor:
        made: MaskedTensor = _Constructor.apply(data, mask)
        return made

    def get_data(self) -> Tensor:
        """The elements, those that the mask holds back among them."""
        data: Tensor = _Data.apply(self)
        return data

    def _elements(self) -> Tensor:
        """The elements for a reduction, whose gradient has this tensor's mask."""
        data: Tensor = _Elements.apply(self)
        return data

    def get_mask(self) -> Tensor:
        """The mask, true where an element counts."""
        return self._masked_mask

    def to_tensor(self, value: float) -> Tensor:
        """A plain tensor with a number where the mask holds back."""
        return self.get_data().masked_fill(~self.get_mask(), value)

    def is_sparse_coo(self) -> bool:
        """False: the data is strided."""
        return False

    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        """False: the data is strided."""
        return False

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        data, mask = self._masked_data, self._masked_mask
        if data.dim() == 0:
            shown = _number(data.item()) if mask.item() else "--"
            return f"MaskedTensor({shown}, {mask.item()})"
        text = "\n".join("  " + line for line in _lines(data, mask).split("\n"))
        return f"MaskedTensor(\n{text}\n)"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Reductions and choices are computed above gradients, everything else below."""
        kwargs = kwargs or {}
        above = _calls.above(func)
        if above is not None:
            return above(*args, **kwargs)
        if not all(issubclass(cls, t) for t in types):
            return NotImplemented
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes with the data and the masks.

        Raises:
            TypeError: for a call that has no meaning with masks here.
        """
        below: Callable[..., Any] | None = _calls.below(func)
        if below is None:
            warnings.warn(
                f"{func.overloadpacket.__name__} is not implemented in __torch_dispatch__ for MaskedTensor.",
                UserWarning,
                stacklevel=2,
            )
            return NotImplemented
        return below(func, args, kwargs or {})


def _check(data: Any, mask: Any) -> None:
    for name, t in (("data", data), ("mask", mask)):
        if is_masked_tensor(t) or not isinstance(t, Tensor):
            raise TypeError(f"{name} must be a Tensor")
    if data.layout != mask.layout:
        raise TypeError("data and mask must have the same layout.")
    if data.layout != torch.strided:
        raise TypeError(f"data layout of {data.layout} is not supported by torchlike.")
    if mask.dtype != torch.bool:
        raise TypeError("mask must have dtype bool.")
    if data.dtype not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError("data.dim() must equal mask.dim()")
    if data.size() != mask.size():
        raise ValueError("data.size() must equal mask.size()")


class _Constructor(torch.autograd.Function):
    """From a tensor with a history to one with a mask."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, mask: Tensor) -> MaskedTensor:
        _check(data, mask)
        return MaskedTensor._made(data.detach().clone(), mask.clone())

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


class _Data(torch.autograd.Function):
    """From a tensor with a mask to its elements; the gradient gets the mask."""

    @staticmethod
    def forward(ctx: Any, masked: MaskedTensor) -> Tensor:
        ctx.mask = masked._masked_mask
        return masked._masked_data.detach()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad if is_masked_tensor(grad) else MaskedTensor._made(grad, ctx.mask)


class _Elements(_Data):
    """As `_Data`, with the mask in place of any that the gradient has."""

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        data = grad._masked_data if is_masked_tensor(grad) else grad
        return MaskedTensor._made(data, ctx.mask)


def _number(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _lines(data: Tensor, mask: Tensor) -> str:
    """The elements as nested lists, with dashes for what is held back."""
    if data.dim() > 1:
        rows = [_lines(d, m) for d, m in zip(data, mask, strict=True)]
        inner = ",\n".join("\n".join("  " + line for line in row.split("\n")) for row in rows)
        return f"[\n{inner}\n]"
    shown, counts = [_number(v) for v in data.tolist()], mask.tolist()
    width = max((len(s) if c else 8 for s, c in zip(shown, counts, strict=True)), default=8)
    items = [s if c else "--".rjust(width) for s, c in zip(shown, counts, strict=True)]
    return "[" + ", ".join(items) + "]"
