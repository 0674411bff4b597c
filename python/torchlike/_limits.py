"""`finfo` and `iinfo`: the limits of the dtypes."""

from __future__ import annotations

from typing import Any

from torchlike import _C

_REAL = {_C.complex32: _C.float16, _C.complex64: _C.float32, _C.complex128: _C.float64}

# resolution, distance from 1 to the next number, smallest normal number, largest number
_FLOATS = {
    _C.float64: (1e-15, 2.0**-52, 2.0**-1022, 1.7976931348623157e308),
    _C.float32: (1e-06, 2.0**-23, 2.0**-126, (2 - 2.0**-23) * 2.0**127),
    _C.float16: (1e-03, 2.0**-10, 2.0**-14, 65504.0),
    _C.bfloat16: (1e-02, 2.0**-7, 2.0**-126, (2 - 2.0**-7) * 2.0**127),
    _C.float8_e4m3fn: (1.0, 2.0**-3, 2.0**-6, 448.0),
    _C.float8_e5m2: (1.0, 2.0**-2, 2.0**-14, 57344.0),
    _C.float8_e4m3fnuz: (1.0, 2.0**-3, 2.0**-7, 240.0),
    _C.float8_e5m2fnuz: (1.0, 2.0**-3, 2.0**-15, 57344.0),
    _C.float8_e8m0fnu: (1.0, 1.0, 2.0**-127, 2.0**127),
}
INTEGERS = (
    _C.uint8,
    _C.int8,
    _C.int16,
    _C.int32,
    _C.int64,
    _C.uint16,
    _C.uint32,
    _C.uint64,
)


def _kind(value: Any) -> str:
    """What errors call the type of an argument."""
    return "torch.dtype" if isinstance(value, _C.dtype) else type(value).__name__


class _Limits:
    """Limits of a dtype, made once and not written again: models ask for them in every layer."""

    __slots__ = ("bits", "dtype", "max", "min")
    __hash__ = None  # type: ignore[assignment]
    _known: dict[Any, Any]
    bits: int
    dtype: str
    max: Any
    min: Any

    def __init_subclass__(cls) -> None:
        base = cls.__mro__[1]
        if base is not _Limits:
            raise TypeError(f"type 'torch.{base.__name__}' is not an acceptable base type")
        cls._known = {}

    @classmethod
    def _of(cls, type: Any) -> Any:
        try:
            return cls._known[type]
        except (KeyError, TypeError):  # TypeError: what has no hash is no dtype either
            pass
        if not isinstance(type, _C.dtype):
            raise TypeError(
                f"{cls.__name__}(): argument 'type' (position 1) must be torch.dtype, not {_kind(type)}"
            )
        self = object.__new__(cls)
        for name, value in cls._values(type).items():
            object.__setattr__(self, name, value)
        cls._known[type] = self
        return self

    @staticmethod
    def _values(type: Any) -> dict[str, Any]:
        raise NotImplementedError

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"attribute '{name}' of 'torch.{type(self).__name__}' objects is not writable"
        )

    def __delattr__(self, name: str) -> None:
        self.__setattr__(name, None)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle 'torch.{type(self).__name__}' object")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Limits) and repr(self) == repr(other)


class finfo(_Limits):
    """The limits of a floating point dtype; of a complex one, those of its parts."""

    __module__ = "torchlike"
    __slots__ = ("eps", "resolution", "smallest_normal", "tiny")
    eps: float
    resolution: float
    smallest_normal: float
    tiny: float

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return cls._of(_C.get_default_dtype())
        if len(args) + len(kwargs) > 1:
            types = [_kind(a) for a in args] + [f"{k}={_kind(v)}" for k, v in kwargs.items()]
            raise TypeError(
                f"finfo() received an invalid combination of arguments - got ({', '.join(types)}), but expected one of:"
                "\n * (torch.dtype type)\n * ()\n"
            )
        if not args and "type" not in kwargs:
            raise TypeError('finfo() missing 1 required positional arguments: "type"')
        return cls._of(args[0] if args else kwargs["type"])

    @staticmethod
    def _values(type: Any) -> dict[str, Any]:
        real = _REAL.get(type, type)
        if real not in _FLOATS:
            raise TypeError(
                "torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'"
            )
        resolution, eps, tiny, most = _FLOATS[real]
        return {
            "resolution": resolution,
            "eps": eps,
            "tiny": tiny,
            "smallest_normal": tiny,
            "min": tiny if real == _C.float8_e8m0fnu else -most,
            "max": most,
            "bits": real.itemsize * 8,
            "dtype": str(real).rpartition(".")[2],
        }

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.tiny:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


# Those of less than a byte have the limits of one.
_QUANTIZED = (_C.quint8, _C.qint8, _C.qint32, _C.quint4x2, _C.quint2x4)


class iinfo(_Limits):
    """The limits of an integer dtype, or of the integers that a quantised one keeps."""

    __module__ = "torchlike"
    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            raise TypeError(f"iinfo() takes 1 positional argument but {len(args)} were given")
        if not args and "type" not in kwargs:
            raise TypeError('iinfo() missing 1 required positional arguments: "type"')
        if args and "type" in kwargs:
            raise TypeError("iinfo() got multiple values for argument 'type'")
        given = cls._of(args[0] if args else kwargs["type"])
        for name in kwargs.keys() - {"type"}:
            raise TypeError(f"iinfo() got an unexpected keyword argument '{name}'")
        return given

    @staticmethod
    def _values(type: Any) -> dict[str, Any]:
        if type == _C.bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if type not in INTEGERS and type not in _QUANTIZED:
            raise TypeError(
                "torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'"
            )
        bits = type.itemsize * 8
        signed = type.is_signed if type in INTEGERS else type in (_C.qint8, _C.qint32)
        return {
            "bits": bits,
            "min": -(1 << (bits - 1)) if signed else 0,
            "max": (1 << (bits - signed)) - 1,
            "dtype": str(type).rpartition(".")[2],
        }

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
