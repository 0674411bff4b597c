"""The limits of dtypes."""

import pickle

import pytest

import torchlike as torch


def test_limits_are_made_once_and_cannot_be_written():
    limits = torch.finfo(torch.bfloat16)
    assert limits is torch.finfo(torch.bfloat16) and torch.iinfo(torch.int8).min == -128
    for change in (lambda: setattr(limits, "min", 0.0), lambda: delattr(limits, "min")):
        with pytest.raises(
            AttributeError, match=r"attribute 'min' of 'torch.finfo' objects is not"
        ):
            change()
    with pytest.raises(TypeError, match=r"cannot pickle 'torch.finfo' object"):
        pickle.dumps(limits)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Own", (torch.iinfo,), {})


def test_limits_without_a_dtype_are_those_of_the_default():
    assert torch.finfo() == torch.finfo(torch.float32) != torch.finfo(torch.float64)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.finfo() == torch.finfo(torch.float64)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("given", [[1], 1.5, None, torch.float32])
def test_integer_limits_are_those_of_integers(given):
    with pytest.raises(TypeError, match="iinfo"):
        torch.iinfo(given)


def test_limits_say_which_arguments_do_not_fit():
    with pytest.raises(TypeError, match=r"got \(torch.dtype, int\), but expected one of"):
        torch.finfo(torch.float32, 1)
    with pytest.raises(TypeError, match=r"must be torch\.dtype, not NoneType"):
        torch.finfo(None)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        torch.iinfo(torch.int8, 1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        torch.iinfo(torch.int8, x=1)
