"""The array API, version 2024.12: its names, what its functions give beside NumPy's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import torchlike as torch

XP = torch.ones(1).__array_namespace__(api_version="2024.12")

# The functions and constants of the standard.
MAIN = [
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argsort",
    "asarray",
    "asin",
    "asinh",
    "astype",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "bool",
    "broadcast_arrays",
    "broadcast_to",
    "can_cast",
    "ceil",
    "clip",
    "complex128",
    "complex64",
    "concat",
    "conj",
    "copysign",
    "cos",
    "cosh",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "divide",
    "e",
    "empty",
    "empty_like",
    "equal",
    "exp",
    "expand_dims",
    "expm1",
    "eye",
    "finfo",
    "flip",
    "float32",
    "float64",
    "floor",
    "floor_divide",
    "from_dlpack",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "hypot",
    "iinfo",
    "imag",
    "inf",
    "int16",
    "int32",
    "int64",
    "int8",
    "isdtype",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "linspace",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "matrix_transpose",
    "max",
    "maximum",
    "mean",
    "meshgrid",
    "min",
    "minimum",
    "moveaxis",
    "multiply",
    "nan",
    "negative",
    "newaxis",
    "nextafter",
    "nonzero",
    "not_equal",
    "ones",
    "ones_like",
    "permute_dims",
    "pi",
    "positive",
    "pow",
    "prod",
    "real",
    "reciprocal",
    "remainder",
    "repeat",
    "reshape",
    "result_type",
    "roll",
    "round",
    "searchsorted",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "square",
    "squeeze",
    "stack",
    "std",
    "subtract",
    "sum",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensordot",
    "tile",
    "tril",
    "triu",
    "trunc",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "unstack",
    "var",
    "vecdot",
    "where",
    "zeros",
    "zeros_like",
    "__array_namespace_info__",
]
LINALG = [
    "cholesky",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "inv",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
FFT = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]
METHODS = [
    "__abs__",
    "__add__",
    "__and__",
    "__array_namespace__",
    "__bool__",
    "__complex__",
    "__dlpack__",
    "__dlpack_device__",
    "__eq__",
    "__float__",
    "__floordiv__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__index__",
    "__int__",
    "__invert__",
    "__le__",
    "__lshift__",
    "__lt__",
    "__matmul__",
    "__mod__",
    "__mul__",
    "__ne__",
    "__neg__",
    "__or__",
    "__pos__",
    "__pow__",
    "__rshift__",
    "__setitem__",
    "__sub__",
    "__truediv__",
    "__xor__",
    "to_device",
    "dtype",
    "device",
    "mT",
    "ndim",
    "shape",
    "size",
    "T",
]


@pytest.mark.parametrize("name", MAIN)
def test_the_namespace_has_what_the_standard_names(name):
    assert hasattr(XP, name) and (name in XP.__all__)


def test_extensions_and_methods_are_whole():
    assert [n for n in LINALG if not hasattr(XP.linalg, n)] == []
    assert [n for n in FFT if not hasattr(XP.fft, n)] == []
    assert [n for n in METHODS if not hasattr(torch.Tensor, n)] == []
    with pytest.raises(ValueError, match="unsupported version"):
        torch.ones(1).__array_namespace__(api_version="1999.1")


X = np.array([[3.5, -1.0, 2.0], [0.5, 4.0, -2.5]])
N = np.array([[3, -1, 2], [0, 4, -2]])
B = np.array([[True, False, True], [False, False, True]])
V = np.array([2, 0, 1, 2, 5, 0])

# Calls that both libraries are given, `a` being an array of theirs.
CALLS = {
    "sum": lambda xp, a: [
        xp.sum(a(X)),
        xp.sum(a(N), axis=0),
        xp.sum(a(X), axis=(0, 1), keepdims=True),
        xp.sum(a(N.astype("uint8"))),
    ],
    "prod": lambda xp, a: [
        xp.prod(a(X)),
        xp.prod(a(N), axis=1),
        xp.prod(a(N.astype("int8")), axis=(0, 1)),
    ],
    "mean": lambda xp, a: [
        xp.mean(a(X)),
        xp.mean(a(X), axis=1, keepdims=True),
        xp.mean(a(X), axis=()),
    ],
    "var": lambda xp, a: [xp.var(a(X)), xp.var(a(X), axis=0, correction=1)],
    "std": lambda xp, a: [xp.std(a(X), axis=1), xp.std(a(X), correction=1.0)],
    "max": lambda xp, a: [xp.max(a(X)), xp.max(a(N), axis=0)],
    "min": lambda xp, a: [xp.min(a(X)), xp.min(a(N), axis=1, keepdims=True)],
    "all": lambda xp, a: [xp.all(a(B)), xp.all(a(N), axis=0), xp.all(a(B), axis=())],
    "any": lambda xp, a: [xp.any(a(B), axis=1), xp.any(a(X))],
    "count_nonzero": lambda xp, a: [xp.count_nonzero(a(N)), xp.count_nonzero(a(B), axis=0)],
    "argmax": lambda xp, a: [
        xp.argmax(a(X)),
        xp.argmax(a(X), axis=1),
        xp.argmin(a(X), axis=0, keepdims=True),
    ],
    "cumulative_sum": lambda xp, a: [
        xp.cumulative_sum(a(V)),
        xp.cumulative_sum(a(X), axis=1, include_initial=True),
    ],
    "cumulative_prod": lambda xp, a: [
        xp.cumulative_prod(a(V)),
        xp.cumulative_prod(a(X), axis=0, include_initial=True),
    ],
    "clip": lambda xp, a: [
        xp.clip(a(X), 0, 2),
        xp.clip(a(N), min=a(N[::-1].copy())),
        xp.clip(a(X), max=1.5),
        xp.clip(a(N)),
    ],
    "where": lambda xp, a: [xp.where(a(B), a(X), a(N)), xp.where(a(B), 1, a(X))],
    "add": lambda xp, a: [
        xp.add(a(N), a(N.astype("int8"))),
        xp.multiply(a(X), 2),
        xp.subtract(a(N), 1),
    ],
    "remainder": lambda xp, a: [
        xp.remainder(a(X), a(X[::-1].copy())),
        xp.floor_divide(a(X), 2.0),
        xp.pow(a(X), 2),
    ],
    "maximum": lambda xp, a: [xp.maximum(a(X), a(N)), xp.minimum(a(X), 1.0)],
    "bitwise_invert": lambda xp, a: [xp.bitwise_invert(a(N)), xp.bitwise_invert(a(B))],
    "concat": lambda xp, a: [
        xp.concat([a(X), a(X)], axis=1),
        xp.concat([a(X), a(V * 1.0)], axis=None),
    ],
    "stack": lambda xp, a: [xp.stack([a(X), a(X)], axis=-1), *xp.unstack(a(X), axis=1)],
    "expand_dims": lambda xp, a: [
        xp.expand_dims(a(X), axis=1),
        xp.squeeze(xp.expand_dims(a(X), axis=0), 0),
    ],
    "permute_dims": lambda xp, a: [
        xp.permute_dims(a(X), (1, 0)),
        xp.matrix_transpose(a(X)),
        xp.moveaxis(a(X), 0, 1),
    ],
    "reshape": lambda xp, a: [
        xp.reshape(a(X), (3, 2)),
        xp.reshape(a(X), (-1,), copy=True),
        xp.flip(a(X)),
        xp.flip(a(X), axis=1),
    ],
    "roll": lambda xp, a: [
        xp.roll(a(X), 1),
        xp.roll(a(X), (1, 2), axis=(0, 1)),
        xp.repeat(a(V), 2),
        xp.repeat(a(X), 3, axis=1),
    ],
    "tile": lambda xp, a: [
        xp.tile(a(X), (2, 1, 2)),
        xp.diff(a(X)),
        xp.diff(a(V), n=2, prepend=a(V[:1])),
    ],
    "take": lambda xp, a: [
        xp.take(a(X), a(np.array([2, 0])), axis=1),
        xp.take_along_axis(a(X), a(np.array([[1], [0]])), axis=1),
    ],
    "sort": lambda xp, a: [xp.sort(a(X)), xp.sort(-a(X), axis=0), xp.argsort(a(V), stable=True)],
    "nonzero": lambda xp, a: [
        *xp.nonzero(a(N)),
        xp.searchsorted(xp.sort(a(V)), a(np.array([1, 2])), side="right"),
    ],
    "unique_all": lambda xp, a: [
        *xp.unique_all(a(V)),
        *xp.unique_counts(a(V)),
        *xp.unique_inverse(a(N)),
        xp.sort(xp.unique_values(a(V))),
    ],
    "arange": lambda xp, a: [
        xp.arange(5),
        xp.arange(1, 4.5, 0.5, dtype=xp.float64),
        xp.arange(5, 2),
        xp.arange(5, 0, -2),
    ],
    "eye": lambda xp, a: [
        xp.eye(3, 4, k=1, dtype=xp.float64),
        xp.eye(2, k=-5, dtype=xp.int64),
        xp.full(3, 7),
        xp.zeros((2,), dtype=xp.int8),
    ],
    "linspace": lambda xp, a: [
        xp.linspace(0, 1, 5, dtype=xp.float64),
        xp.linspace(0, 1, 5, dtype=xp.float64, endpoint=False),
    ],
    "meshgrid": lambda xp, a: [*xp.meshgrid(a(V), a(V)), *xp.meshgrid(a(V), a(V), indexing="ij")],
    "astype": lambda xp, a: [
        xp.astype(a(X), xp.int32),
        xp.round(a(X)),
        xp.sign(a(X)),
        xp.signbit(a(X)),
    ],
    "vecdot": lambda xp, a: [
        xp.vecdot(a(X), a(X)),
        xp.tensordot(a(X), a(X), axes=2),
        xp.matmul(a(X), a(X.T.copy())),
    ],
    "linalg": lambda xp, a: [
        xp.linalg.outer(a(V), a(V)),
        xp.linalg.trace(a(N)),
        xp.linalg.diagonal(a(X), offset=1),
        xp.linalg.matrix_norm(a(X)),
        xp.linalg.vector_norm(a(X), axis=1),
        xp.linalg.cross(a(X), a(X[::-1].copy())),
        xp.linalg.matrix_rank(a(X)),
        xp.linalg.svd(a(X)).S,
        xp.linalg.det(a(X[:, :2].copy())),
        xp.linalg.trace(a(N.astype("uint8"))),
    ],
    "fft": lambda xp, a: [
        xp.fft.fft(a(X)),
        xp.fft.rfft(a(X), n=5, axis=0),
        xp.fft.fftn(a(X), axes=(0, 1), norm="ortho"),
        xp.fft.fftfreq(5, d=0.5),
        xp.fft.fftshift(a(X), axes=(1,)),
        xp.fft.irfft(a(X * 1j), n=4),
        xp.fft.ifftshift(a(X)),
    ],
}


@pytest.mark.parametrize("name", list(CALLS))
def test_functions_give_what_numpy_gives(name):
    torch.set_default_dtype(torch.float64)
    try:
        got = CALLS[name](XP, lambda x: torch.from_numpy(x.copy()))
    finally:
        torch.set_default_dtype(torch.float32)
    want = CALLS[name](np, lambda x: x)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        w = np.asarray(w)
        assert str(g.dtype).rpartition(".")[2] == w.dtype.name and tuple(g.shape) == w.shape
        np.testing.assert_allclose(g.numpy(), w, rtol=1e-12, atol=1e-12)


def test_types_are_told_apart():
    assert XP.isdtype(XP.int8, "signed integer") and not XP.isdtype(XP.uint8, "signed integer")
    assert XP.isdtype(XP.float32, ("integral", XP.float32)) and XP.isdtype(XP.complex64, "numeric")
    with pytest.raises(ValueError, match="unknown kind"):
        XP.isdtype(XP.int8, "prime")
    assert XP.result_type(XP.int8, torch.ones(2, dtype=XP.int16)) == XP.int16
    assert XP.result_type(torch.ones((), dtype=XP.float64), XP.float32) == XP.float64
    assert XP.can_cast(XP.int8, XP.int16) and not XP.can_cast(XP.float32, XP.int16)
    info = torch.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"] is True
    assert set(info.dtypes(kind="real floating")) == {"float32", "float64"}
    assert (
        info.default_dtypes()["integral"] == torch.int64 and torch.device("cpu") in info.devices()
    )
    assert info.default_device() == torch.device("cpu")
    with pytest.raises(ValueError, match="unknown kind"):
        info.dtypes(kind="prime")


def test_parameters_are_named_as_in_the_standard():
    named = {
        "sum": "x axis dtype keepdims",
        "var": "x axis correction keepdims",
        "sort": "x axis descending stable",
        "linspace": "start stop num dtype device endpoint",
        "asarray": "obj dtype device copy",
        "take": "x indices axis",
        "eye": "n_rows n_cols k dtype device",
    }
    for name, parameters in named.items():
        assert " ".join(inspect.signature(getattr(XP, name)).parameters) == parameters
    with pytest.raises(ValueError, match="size 1"):
        XP.squeeze(torch.ones(2), 0)
    with pytest.raises(ValueError, match="view"):
        XP.reshape(torch.ones(2, 3).T, (6,), copy=False)
