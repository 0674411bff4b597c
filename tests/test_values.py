"""Tensors of Python's and NumPy's values, and indices by sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import torchlike as torch


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float64(1.0), torch.float64),
        ([np.float16(1.0)], torch.float16),
        ([np.int8(1), 2], torch.int64),
        ([np.float64(1.0), 1.5], torch.float64),
        ([torch.tensor(1.0, dtype=torch.float16), 1.5], torch.float32),
        ((7, np.array(5)), torch.int64),
        ((7, np.array(5.0)), torch.float64),
        ([True, 1j], torch.complex64),
        ([], torch.float32),
    ],
)
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_types(value: Any, dtype: Any) -> None:
    assert torch.tensor(value).dtype == dtype


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list")
def test_lists_of_arrays_keep_their_type() -> None:
    made = torch.tensor([np.ones(2), np.zeros(2)])
    assert made.dtype == torch.float64 and made.tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_big_integers() -> None:
    assert torch.tensor([2**64], dtype=torch.float64).item() == 2.0**64
    assert torch.tensor([2**70, 0], dtype=torch.bool).tolist() == [True, False]
    for value, dtype, error in (
        (2**64, None, ValueError),
        (2**64, torch.int32, ValueError),
        (2**64, torch.uint64, OverflowError),
    ):
        with pytest.raises(error):
            torch.tensor([value], dtype=dtype)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ([0, "a"], TypeError, "invalid data type 'str'"),
        (["a"], ValueError, "too many dimensions 'str'"),
        ([b"a"], TypeError, "invalid data type 'bytes'"),
        ([1, None], RuntimeError, "Could not infer dtype of NoneType"),
    ],
)
def test_refusals(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torch.tensor(value)


@pytest.mark.parametrize(
    ("value", "dtype", "error", "text"),
    [
        ([1, None], torch.int64, TypeError, "'NoneType' object cannot be interpreted"),
        ({1: 2}, torch.int64, TypeError, "'dict' object cannot be interpreted"),
        ({1: 2}, torch.float32, TypeError, "must be real number, not dict"),
        (np.float32(2.5), torch.uint8, TypeError, "'numpy.float32' object cannot"),
        ([np.bool_(True)], torch.int32, TypeError, "object cannot be interpreted as an integer"),
        ([torch.tensor(1.5)], torch.int64, TypeError, "only integer tensors of a single element"),
        (2**63, torch.uint8, ValueError, "Overflow when unpacking long long"),
    ],
)
def test_refusals_for_a_type(value: Any, dtype: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        torch.tensor(value, dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.int64, math.inf),
        (torch.int64, 1e19),
        (torch.int64, 2**63),
        (torch.uint8, -1.0),
        (torch.uint8, -256),
        (torch.float16, 7e4),
    ],
)
def test_numbers_that_do_not_fit_fill_nothing(dtype: Any, value: Any) -> None:
    x = torch.zeros(2, dtype=dtype)
    for call in (
        lambda: torch.full((2,), value, dtype=dtype),
        lambda: torch.full_like(x, value),
        lambda: x.new_full((2,), value),
        lambda: x.fill_(value),
        lambda: x.masked_fill(torch.tensor([True, False]), value),
        lambda: x.index_fill(0, torch.tensor([0]), value),
        lambda: x.scatter(0, torch.tensor([0]), value),
    ):
        with pytest.raises(RuntimeError, match=r"value cannot be converted to type .* without"):
            call()


def test_numbers_that_wrap_or_are_rounded_fill() -> None:
    assert torch.full((2,), -1, dtype=torch.uint8).tolist() == [255, 255]
    assert torch.full((2,), 1j, dtype=torch.bool).tolist() == [True, True]
    for made in (
        torch.full((), 7e4, dtype=torch.float16),
        torch.zeros(1, dtype=torch.float16).fill_(7e4),
        torch.scalar_tensor(7e4, dtype=torch.float16),
    ):
        assert made.isinf().all()
    with pytest.raises(RuntimeError, match="without overflow"):
        torch.scalar_tensor(300, dtype=torch.int8)


def test_ends_of_ranges_of_narrow_integers() -> None:
    assert torch.linspace(3, -3, 7, dtype=torch.uint8).tolist() == [3, 44, 86, 128, 169, 211, 253]
    for ends, dtype in (((0, 255), torch.int8), ((300, 0), torch.uint8), ((1e10, 0), torch.int32)):
        for make in (torch.linspace, torch.logspace):
            with pytest.raises(RuntimeError, match="without overflow"):
                make(*ends, 4, dtype=dtype)
    assert torch.linspace(5, 2, 1, dtype=torch.bool).tolist() == [True]
    assert torch.logspace(5, 2, 0, dtype=torch.bool).shape == (0,)
    assert torch.arange(1.0, 2.5, 0.5, dtype=torch.int32).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="step must be nonzero"):
        torch.arange(1.0, 2.5, 0.5, dtype=torch.int64)
    for make in (torch.tril_indices, torch.triu_indices):
        with pytest.raises(NotImplementedError, match=r"_indices. not implemented for 'Float'"):
            make(2, 2, dtype=torch.float32)


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ([math.nan, 2.0, 2.0], (2.0, 2)),
        ([1.0, math.nan, 0.0], (0.0, 2)),
        ([3.0, 2.0, math.nan, 1.0, 2.0, math.nan, 0.0, 5.0], (0.0, 6)),
        ([2.0, math.nan, 2.0, math.nan, math.nan], (2.0, 0)),
    ],
)
def test_modes_beside_nan(line: list[float], want: tuple[float, int]) -> None:
    value, index = torch.tensor(line).mode()
    assert (value.item(), index.item()) == want


def test_results_of_out_have_a_class_of_their_own() -> None:
    x, outs = torch.ones(2, 3), (torch.empty(0), torch.empty(0, dtype=torch.int64))
    made = torch.max(x, 0, out=outs)
    assert type(made) is torch.return_types.max_out and made.values is outs[0]
    assert type(torch.max(x, 0)) is torch.return_types.max


def test_lists_that_are_no_box() -> None:
    around: list[Any] = [0]
    around.append(around)
    with pytest.raises(TypeError, match="self-referential lists are incompatible"):
        torch.tensor(around)
    with pytest.raises(TypeError, match="must be real number, not list"):
        torch.tensor([1, [2]], dtype=torch.float32)
    with pytest.raises(TypeError, match="'list' object cannot be interpreted as an integer"):
        torch.tensor([1, [2]])


def test_dlpack_objects_and_buffers() -> None:
    class Other:
        def __dlpack__(self, **options: Any) -> Any:
            return torch.ones(2, dtype=torch.float64).__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for make in (torch.tensor, torch.as_tensor, torch.asarray):
        assert make(Other()).dtype == torch.float64
    assert torch.asarray(bytearray(b"\0\0\x80?")).tolist() == [1.0]
    assert torch.asarray(torch.ones(2).__dlpack__()).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="can't alias NumPy scalars"):
        torch.asarray(np.float64(1.0), copy=False)
    with pytest.raises(ValueError, match="with dtype 'Double' into dtype 'Float'"):
        torch.asarray(np.ones(2), copy=False, dtype=torch.float32)


def test_equality_with_arrays() -> None:
    t = torch.ones(2)
    for equal in (t == np.ones(2), np.ones(2) == t):
        assert isinstance(equal, torch.Tensor) and equal.tolist() == [True, True]


@pytest.mark.filterwarnings("ignore:Using a non-tuple sequence")
def test_sequences_as_indices() -> None:
    x = torch.arange(9.0).reshape(3, 3)
    assert x[[[0, 1], [1, 2]]].tolist() == [1.0, 5.0]
    assert x[[torch.tensor(0), torch.tensor(1)]] == 1.0
    assert x[range(2), range(1, 3)].tolist() == [1.0, 5.0]
    assert x[[0, 1]].shape == (2, 3) and x[((0, 1),)].shape == (2, 3)
    assert x[[slice(0, 2), 1]].tolist() == [1.0, 4.0] and x[[1.0]].shape == (1, 3)
    x[range(2)] = 0
    assert x.sum() == 21.0
    for index in ("ab", b"ab"):
        with pytest.raises(TypeError, match="invalid data type"):
            x[index]


def test_assigned_numbers() -> None:
    x = torch.zeros(2, dtype=torch.complex64)
    x[0] = complex("nan")
    assert x[0].isnan()
    h = torch.zeros(1, dtype=torch.float16)
    h[0] = 1e300
    assert h.isinf()
    with pytest.raises(RuntimeError, match="only supports boolean masks"):
        h[torch.ones(1, dtype=torch.uint8)] = 1


def test_factories_fill_an_out_of_their_size() -> None:
    for call in (
        lambda out: torch.arange(4, out=out),
        lambda out: torch.linspace(0, 3, 4, out=out),
    ):
        x = torch.zeros(2, 3)
        call(x[:, 1:])
        assert x.tolist() == [[0.0, 0.0, 1.0], [0.0, 2.0, 3.0]]


def test_gradients_of_segments_with_what_is_no_number() -> None:
    nan = float("nan")
    for reduce, wanted in (("max", [0, 1, 0, 1]), ("min", [0, 1, 1, 0])):
        d = torch.tensor([1.0, nan, 3.0, 4.0], requires_grad=True)
        torch.segment_reduce(d, reduce, lengths=torch.tensor([2, 2])).sum().backward()
        assert d.grad is not None and d.grad.tolist() == wanted
    d = torch.tensor([nan, 5.0, 2.0, 3.0], requires_grad=True)
    torch.segment_reduce(d, "prod", lengths=torch.tensor([2, 2])).sum().backward()
    assert d.grad is not None
    assert d.grad[0] == 5 and d.grad[1].isnan() and d.grad[2:].tolist() == [3.0, 2.0]


def test_bounds_of_random_test_tensors() -> None:
    made = torch.testing.make_tensor(50, dtype=torch.uint8, device="cpu", low=-9, high=9)
    assert made.min() >= 0 and made.max() < 9
    with pytest.raises(ValueError, match="cannot be NaN"):
        torch.testing.make_tensor(2, dtype=torch.float32, device="cpu", low=float("nan"))
