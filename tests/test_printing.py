"""Printing, against texts recorded from PyTorch."""

import json
import pathlib

import pytest

import torchlike as torch
from torchlike import _tensor_str

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "printing.json").read_text())


@pytest.fixture(autouse=True)
def default_options():
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.parametrize(("options", "code", "text"), CASES, ids=[f"{c[1]}-{c[0]}" for c in CASES])
def test_text(options, code, text):
    torch.set_printoptions(**options)
    assert repr(eval(code, {"torch": torch})).replace("torchlike.", "torch.") == text


def test_default_dtype_is_not_shown():
    torch.set_default_dtype(torch.float64)
    try:
        assert repr(torch.ones(2)) == "tensor([1., 1.])"
        assert (
            repr(torch.ones(2, dtype=torch.float32)) == "tensor([1., 1.], dtype=torchlike.float32)"
        )
        assert "dtype" not in repr(torch.ones(2, dtype=torch.complex128))
    finally:
        torch.set_default_dtype(torch.float32)


def test_subclass_shows_its_name():
    class Special(torch.Tensor):
        pass

    assert repr(torch.ones(2).as_subclass(Special)) == "Special([1., 1.])"
    meta = torch.ones(2, device="meta").as_subclass(Special)
    assert repr(meta) == "Special(..., device='meta', size=(2,))"


def test_wrong_option_is_refused():
    with pytest.raises(TypeError, match="unexpected keyword"):
        torch.set_printoptions(colour=True)


def test_options_for_a_while():
    with _tensor_str.printoptions(precision=1):
        assert repr(torch.tensor([0.25])) == "tensor([0.2])"
    assert repr(torch.tensor([0.25])) == "tensor([0.2500])"


def test_named_tuple():
    result = torch.ones(2, 3).max(1)
    assert repr(result) == (
        "torchlike.return_types.max(\nvalues=tensor([1., 1.]),\nindices=tensor([0, 0]))"
    )


def test_format():
    assert f"{torch.tensor(2.5):.3f}" == "2.500"
    assert f"{torch.tensor([1, 2])}" == "tensor([1, 2])"
    with pytest.raises(TypeError, match="unsupported format string passed to"):
        format(torch.ones(1, device="meta"), ".2f")


def test_large_meta_tensor_is_cheap():
    assert (
        repr(torch.empty(2**40, device="meta"))
        == "tensor(..., device='meta', size=(1099511627776,))"
    )
