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


FAR = 2**63
ONE = torch.ones(1, dtype=torch.int64)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x, n: x.clamp(n),
        lambda x, n: x.clamp(0, n),
        lambda x, n: x.clamp_max_(n),
        lambda x, n: torch.where(x > 0, x, n),
        lambda x, n: torch.add(x, x, alpha=n),
        lambda x, n: torch.addcmul(x, x, x, value=n),
        lambda x, n: torch.addmv(x, x.view(1, 1), x, alpha=n),
        lambda x, n: torch.baddbmm(x.view(1, 1, 1), x.view(1, 1, 1), x.view(1, 1, 1), beta=n),
        lambda x, n: x.index_add(0, torch.zeros_like(x), x, alpha=n),
        lambda x, n: torch.nn.functional.hardtanh(x, n, n),
        lambda x, n: torch.nn.functional.threshold(x, 0, n),
        lambda x, n: torch.arange(0, n, n, dtype=x.dtype, device=x.device),
        lambda x, n: torch.full_like(x, n),
        lambda x, n: x.masked_fill(x > 0, n),
    ],
)
def test_numbers_that_a_type_cannot_hold_are_refused(call, device):
    with pytest.raises(RuntimeError, match="to type int64_t without overflow"):
        call(ONE.to(device), FAR)


def test_powers_ask_for_natural_numbers_first():
    small = ONE.to(torch.int32)
    for exponent, text in ((2**31, "type int without"), (FAR, "int64_t"), (-(2**40), "negative")):
        with pytest.raises(RuntimeError, match=text):
            small**exponent


def test_numbers_beyond_those_of_python_that_fit_anywhere():
    for far, text in ((-FAR - 1, "can't convert negative int to unsigned"), (2**64, "too big")):
        with pytest.raises(OverflowError, match=text):
            ONE + far
    for far in (FAR, 2**64, -FAR - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            ONE.clone()[0] = far
    # What is left of a number in a smaller type divides; what is taken away is turned round first
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ONE.to(torch.int32) // 2**32
    assert torch.sub(ONE, ONE, alpha=FAR).item() == 1 - FAR


def test_real_numbers_become_integers_as_on_x86():
    for dtype, low, high in ((torch.int64, -FAR, 2.0**63), (torch.int8, -128, 127.0)):
        assert torch.full((1,), high, dtype=dtype).item() in (low, int(high))
        assert torch.tensor([float(low)], dtype=dtype).item() == low
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.tensor([low * 1.01], dtype=dtype)
    assert torch.full((1,), 2.0**63, dtype=torch.int64).item() == -FAR
    far = torch.tensor([2.0**32 + 5, -(2.0**31) - 1, 2.0**63, float("nan")], dtype=torch.float64)
    assert far.to(torch.uint8).tolist() == [5, 255, 0, 0]
    assert far.to(torch.int8).tolist() == [0, 0, 0, 0]
    assert far.to(torch.int64).tolist() == [2**32 + 5, -(2**31) - 1, -FAR, -FAR]
