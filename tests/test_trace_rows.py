"""Every row as `jit.trace` writes it: code gives the results of other arguments, before and after it is saved."""

import io
import warnings

import pytest

import torchlike as torch
from rows import CASES, DRAW, another, attempt, copied, public, put, tensors
from rows import SAMPLES as CALLS
from samples import arguments
from torchlike import jit

pytestmark = pytest.mark.filterwarnings("ignore")


def function_of(function, args, kwargs):
    """A call of a public function as a function of its tensors."""

    def call(*each):
        new = [copied(t) for t in each]
        return tuple(tensors([function(*put(args, new), **put(kwargs, new))]))

    return call


def alike(got, want):
    got = [got] if isinstance(got, torch.Tensor) else got
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.layout == torch.strided:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)


def traced(call, given):
    """A trace, or None where it says that it keeps a value of the example."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", jit.TracerWarning)
        try:
            return jit.trace(call, tuple(given), check_trace=False)
        except jit.TracerWarning:
            return None


CASES = [c for c in CASES if c[0] not in DRAW and public(*c) is not None]
# They read their values, as in PyTorch.
KEPT = {"nn.functional.gaussian_nll_loss"}


def taken(row, in_place):
    """The samples that users may call so: the call, its tensors, others, and what it gives for these."""
    for sample in CALLS[row]:
        args, kwargs = arguments(sample, "cpu", None)
        call, given = function_of(public(row, in_place), args, kwargs), tensors((args, kwargs))
        other = [another(t) for t in given]
        wants = [attempt(lambda x=x, call=call: call(*x)) for x in (given, other)]
        if given and not any(isinstance(w, Exception) or not w for w in wants):
            yield call, given, other, wants[1]


@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_every_row(row, in_place):
    for call, given, other, want in taken(row, in_place):
        made = traced(call, given)
        if made is None:
            assert row in KEPT
            continue
        alike(made(*other), want)
        buffer = io.BytesIO()
        jit.save(made, buffer)
        buffer.seek(0)
        alike(jit.load(buffer)(*other), want)


def test_most_rows_are_taken():
    # The others make tensors of numbers alone, give none, or are given what users write otherwise.
    found = [c for c in CASES if next(taken(*c), None)]
    assert len(found) > 0.92 * len(CASES)
