"""assert_close, make_tensor, finfo and iinfo, against facts recorded from PyTorch."""

import json
import pathlib

import numpy as np
import pytest

import torchlike as torch
from torchlike.testing import assert_close, make_tensor

FACTS = json.loads((pathlib.Path(__file__).parent / "data" / "testing.json").read_text())
NAMES = {
    "torch": torch,
    "np": np,
    "t": torch.tensor,
    "ac": assert_close,
    "nan": float("nan"),
    "inf": float("inf"),
}


@pytest.mark.parametrize(
    ("code", "want"), FACTS["assert_close"], ids=[c[0] for c in FACTS["assert_close"]]
)
def test_assert_close(code, want):
    try:
        eval(code, dict(NAMES))
        got = None
    except Exception as e:
        got = [type(e).__name__, str(e).replace("torchlike.", "torch.")]
    assert got == want


def test_meta_tensors_have_no_values_to_compare():
    a, b = torch.ones(2, device="meta"), torch.zeros(2, device="meta")
    with pytest.raises(NotImplementedError, match="no values to compare"):
        assert_close(a, b)
    assert_close(a, b, metadata_only=True)
    with pytest.raises(AssertionError, match="attribute 'shape'"):
        assert_close(a, torch.ones(3, device="meta"))


@pytest.mark.parametrize(("kind", "dtype", "text", "values"), FACTS["limits"])
def test_limits(kind, dtype, text, values):
    info = getattr(torch, kind)(getattr(torch, dtype))
    assert repr(info) == text
    assert {name: getattr(info, name) for name in values} == values


def test_limits_of_wrong_dtypes():
    with pytest.raises(TypeError, match=r"requires a floating point input type"):
        torch.finfo(torch.int64)
    with pytest.raises(TypeError, match=r"requires an integer input type"):
        torch.iinfo(torch.float32)
    with pytest.raises(TypeError, match=r"must be torch.dtype, not str"):
        torch.finfo("float32")
    assert torch.finfo() == torch.finfo(torch.float32)
    assert torch.finfo(torch.float16) != torch.finfo(torch.float32)


def test_limits_of_quantised_types():
    for kind, kept in [
        ("quint8", "uint8"),
        ("qint8", "int8"),
        ("qint32", "int32"),
        ("quint4x2", "uint8"),
    ]:
        own, plain = torch.iinfo(getattr(torch, kind)), torch.iinfo(getattr(torch, kept))
        assert (own.min, own.max, own.bits) == (plain.min, plain.max, plain.bits)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]
)
def test_make_tensor(dtype):
    t = make_tensor((3, 4), dtype=dtype, device="cpu")
    assert t.shape == (3, 4)
    assert t.dtype == dtype
    assert not make_tensor(3, 4, dtype=dtype, device="cpu", noncontiguous=True).is_contiguous()


def test_old_tensor_types():
    t = torch.FloatTensor([1, 2])
    assert t.dtype == torch.float32
    assert isinstance(t, torch.FloatTensor)
    assert not isinstance(t, torch.LongTensor)
    assert not isinstance(t.to("meta"), torch.FloatTensor)
    assert torch.LongTensor(2, 3).shape == (2, 3)
    with pytest.raises(RuntimeError, match="legacy constructor expects device type: cpu"):
        torch.FloatTensor(2, device="meta")


def test_new_tensor_and_element_functions():
    t = torch.ones(2, dtype=torch.float64)
    assert t.new_tensor([1]).dtype == torch.float64
    assert t.apply_(lambda v: v + 1).tolist() == [2.0, 2.0]
    assert t.map_(torch.tensor([1.0, 5.0], dtype=torch.float64), lambda a, b: a * b).tolist() == [
        2.0,
        10.0,
    ]
    assert torch.ones(2, 3).t().dim_order() == (1, 0)


def test_swap_tensors():
    a, b = torch.ones(2), torch.zeros(3, device="meta")
    a.note = "a"
    torch.utils.swap_tensors(a, b)
    assert a.is_meta
    assert a.shape == (3,)
    assert b.tolist() == [1.0, 1.0]
    assert b.note == "a"
    assert not hasattr(a, "note")


def test_the_widest_integers():
    a = torch.tensor([1, 2**63 + 5], dtype=torch.uint64)
    near = torch.tensor([1, 2**63 + 6], dtype=torch.uint64)
    torch.testing.assert_close(a, a.clone())
    torch.testing.assert_close(a, near, rtol=0, atol=1)
    assert torch.isclose(a, near, rtol=0, atol=1).all()
    assert torch.isclose(a[:1], torch.tensor([3], dtype=torch.uint64), atol=1).tolist() == [False]
    with pytest.raises(AssertionError, match="Mismatched elements: 2 / 2"):
        torch.testing.assert_close(a, torch.tensor([3, 7], dtype=torch.uint64))
