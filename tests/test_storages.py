"""Storages: typed and untyped, their items, casts, buffers and files, and what is said of their age."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
from torchlike import storage as storages


def test_bytes_and_parts() -> None:
    s = torch.UntypedStorage([1, 2, 3, 300])
    assert list(s) == [1, 2, 3, 44]
    s[1:3] = 7
    assert s.tolist() == [1, 7, 7, 44] and s[1:3].tolist() == [7, 7]
    assert s.float().tolist() == [1.0, 7.0, 7.0, 44.0]
    assert copy.copy(s).tolist() == s.tolist() and s.to(device="cpu") is s
    assert s.type() == "torchlike.storage.UntypedStorage" and not s.is_pinned()
    wide = torch.UntypedStorage(range(8))
    wide.byteswap(torch.int32)
    assert wide.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.UntypedStorage(1, 2), TypeError, r"got \(int, int\)"),
        (lambda: torch.UntypedStorage("a"), RuntimeError, "one of the items was of type str"),
        (lambda: torch.UntypedStorage(2.5), RuntimeError, "Expected a sequence type"),
        (lambda: torch.UntypedStorage([1])["a"], TypeError, "can't index"),
        (lambda: torch.UntypedStorage([1, 2])[::2], RuntimeError, "step of 2"),
        (lambda: torch.UntypedStorage([1]).fill_(1.5), RuntimeError, "fill_ expects int"),
        (lambda: torch.FloatStorage([1.0])[0:1], RuntimeError, "slices are only supported"),
        (lambda: torch.FloatStorage(1, 2), RuntimeError, "Too many positional arguments"),
        (lambda: torch.FloatStorage(dtype=torch.int8), RuntimeError, "'dtype' cannot be"),
        (lambda: storages._LegacyStorage(), RuntimeError, "Only child classes"),
        (lambda: torch.TypedStorage.from_file("a"), RuntimeError, "derived classes"),
        (lambda: torch.ones(2).set_(torch.IntStorage([1])), RuntimeError, "Storage of type"),
        (lambda: torch.tensor(torch.IntStorage([1]), dtype=torch.int8), RuntimeError, "got Int"),
    ],
)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_meta() -> None:
    s = torch.ones(2, device="meta").untyped_storage()
    s[0] = 1
    for call in (s.cpu, lambda: torch.UntypedStorage(8).copy_(s)):
        with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):
            call()
    with pytest.raises(NotImplementedError, match="Not available for 'meta'"):
        s.tolist()
    with pytest.raises(RuntimeError, match="only available on CPU"):
        s.share_memory_()
    with pytest.raises(TypeError, match="only CPU memory can be pinned"):
        s.pin_memory()


def test_casts_and_old_classes() -> None:
    s = torch.IntStorage([-1, 0, 2])
    assert s.type() == "torchlike.IntStorage" and isinstance(s, torch.IntStorage)
    assert s.byte().tolist() == [255, 0, 2] and s.bool().tolist() == [True, False, True]
    assert s.complex_double().dtype == torch.complex128 and s.float8_e5m2().tolist()[2] == 2.0
    assert torch.ones(2).storage_type() is torch.FloatStorage
    for quantized in (torch.QInt8Storage, torch.QUInt8Storage, torch.QInt32Storage):
        assert quantized([1, 2]).tolist() == [1, 2]
    assert len(torch.QUInt4x2Storage(2)) == len(torch.QUInt2x4Storage(2)) == 2
    assert s.pickle_storage_type() == "IntStorage"
    with pytest.raises(KeyError, match="not recognized"):
        torch.TypedStorage([1], dtype=torch.uint16).pickle_storage_type()


def test_the_storage_is_that_of_the_default_dtype() -> None:
    assert torch.Storage is torch.FloatStorage
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.Storage is torch.DoubleStorage and torch.Storage(2).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.Storage is torch.FloatStorage


def test_buffers() -> None:
    assert torch.ByteStorage.from_buffer(b"\1\2").tolist() == [1, 2]
    assert torch.ShortStorage.from_buffer(b"\1\2\3\4", "big").tolist() == [258, 772]
    assert torch.BoolStorage.from_buffer(b"\0\5", "native").tolist() == [False, True]
    for args, text in (
        ((b"abcd",), "missing required argument 'byte_order'"),
        ((b"abcd", "x"), "invalid byte_order"),
        ((b"abc", "big"), "must be a multiple"),
        ((b"abcd", "big", 3), "has only 4 elements"),
        ((b"abcd", "big", -1, 9), "offset must be non-negative"),
    ):
        with pytest.raises((RuntimeError, ValueError), match=text):
            torch.IntStorage.from_buffer(*args)


def test_one_object_for_one_storage() -> None:
    t = torch.ones(2)
    s = t.untyped_storage()
    s.note = 3  # type: ignore[attr-defined]
    assert t.untyped_storage() is s and t.view(2, 1).untyped_storage() is s
    own = torch.UntypedStorage(8)
    assert torch.empty(0).set_(own).untyped_storage() is own
    gone = weakref.ref(s)
    del s
    gc.collect()
    assert gone() is None and t.untyped_storage().nbytes() == 8


def test_copies_keep_sharing() -> None:
    a, b = torch.ones(4), torch.zeros(2)
    made = copy.deepcopy([a, [a.storage(), b.storage()], b, a.view(2, 2)])
    made[0].add_(1)
    assert made[1][0][0] == 2.0 and made[3][1, 1] == 2.0 and a[0] == 1.0
    made[2].sub_(1)
    assert made[1][1].tolist() == [-1.0, -1.0]


def test_files(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    s = torch.FloatStorage.from_file(path, True, 4)
    assert s.filename == path and s.tolist() == [0.0] * 4
    torch.FloatTensor(s).fill_(2)
    t = torch.from_file(path, shared=True, size=4)
    assert t.tolist() == [2.0] * 4 and t.untyped_storage().filename == path
    assert torch.from_file(path, size=4).untyped_storage().filename is None


def test_age_is_told_once() -> None:
    storages._reset_warn_typed_storage_removal()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.FloatStorage(2)
        torch.ones(2).storage()
        torch.ones(2)._typed_storage()._size()
    assert [str(w.message)[:26] for w in told] == ["TypedStorage is deprecated"]


def test_tensors_of_storages() -> None:
    typed = torch.FloatStorage([1.0, 2.0])
    assert torch.tensor(typed).tolist() == [1.0, 2.0]
    assert torch.tensor(typed.untyped(), dtype=torch.int16).tolist() == [0, 16256, 0, 16384]
    with pytest.raises(RuntimeError, match="Storage of type Double"):
        torch.tensor(typed, dtype=torch.float64)
