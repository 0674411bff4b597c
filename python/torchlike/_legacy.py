"""The old tensor types: `FloatTensor(2, 3)`, `isinstance(t, LongTensor)`."""

from __future__ import annotations

from typing import Any

from torchlike import _C

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class tensortype(type):
    """The type of the old tensor types: calling one makes a tensor of its dtype on its device."""

    dtype: Any
    device: str

    def __new__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> Any:
        """Makes the types there are; none derives from them.

        Raises:
            TypeError: for classes that would.
        """
        if bases and isinstance(bases[0], tensortype):
            base = bases[0]
            raise TypeError(
                f"type '{base.__module__}.{base.__name__}' is not an acceptable base type"
            )
        return super().__new__(cls, name, bases, attributes)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _C._legacy(args, kwargs, cls.dtype, cls.device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _C.Tensor) and (
            instance.dtype == cls.dtype and instance.device.type == cls.device
        )

    @property
    def is_cuda(cls) -> bool:
        return cls.device == "cuda"

    @property
    def layout(cls) -> Any:
        return _C.strided


def sparse(args: tuple[Any, ...], dtype: Any, device: Any) -> Any:
    """A sparse COO tensor by the old constructors: of positions, values and perhaps sizes, or of sizes alone.

    Raises:
        TypeError: for other arguments.
    """
    import torchlike

    tensors = [isinstance(a, _C.Tensor) for a in args]
    if len(args) in (2, 3) and tensors == [True, True, False][: len(args)]:
        return torchlike.sparse_coo_tensor(*args, device=device)
    if len(args) == 1 and isinstance(args[0], tuple | list):
        if not isinstance(args[0], torchlike.Size) and all(isinstance(n, int) for n in args[0]):
            raise TypeError(
                "torch.sparse.SparseTensor(sequence) only accepts sizes.  Please use torch.sparse_coo_tensor() or "
                "construct a strided tensor and convert it to sparse via to_sparse."
            )
        args = tuple(args[0]) if isinstance(args[0], torchlike.Size) else args
    if not all(isinstance(a, int) for a in args):
        kinds = ", ".join(type(a).__name__ for a in args)
        raise TypeError(
            f"new() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
            " * (*, torch.device device = None)\n"
            " * (Tensor indices, Tensor values, *, torch.device device = None)\n"
            " * (Tensor indices, Tensor values, tuple of ints size, *, torch.device device = None)\n"
            " * (tuple of ints size, *, torch.device device = None)\n"
        )
    return torchlike.sparse_coo_tensor(args or (0,), dtype=dtype, device=device)


_DTYPES = {
    "BFloat16": _C.bfloat16,
    "Bool": _C.bool,
    "Byte": _C.uint8,
    "Char": _C.int8,
    "Double": _C.float64,
    "Float": _C.float32,
    "Half": _C.float16,
    "Int": _C.int32,
    "Long": _C.int64,
    "Short": _C.int16,
}


def types(module: str, device: str) -> dict[str, Any]:
    """The old tensor types of a device, by name."""
    return {
        f"{name}Tensor": tensortype(
            f"{name}Tensor", (), {"dtype": dtype, "device": device, "__module__": module}
        )
        for name, dtype in _DTYPES.items()
    }


_own = types("torchlike", "cpu")
BFloat16Tensor = _own["BFloat16Tensor"]
BoolTensor = _own["BoolTensor"]
ByteTensor = _own["ByteTensor"]
CharTensor = _own["CharTensor"]
DoubleTensor = _own["DoubleTensor"]
FloatTensor = _own["FloatTensor"]
HalfTensor = _own["HalfTensor"]
IntTensor = _own["IntTensor"]
LongTensor = _own["LongTensor"]
ShortTensor = _own["ShortTensor"]
