"""Every row in a graph: what `make_fx` records gives the results of other arguments, too."""

import re
import warnings

import pytest

import torchlike as torch
from test_vmap_rows import DRAW, IN_PLACE, SAMPLES, another, attempt, functions
from torchlike.fx.experimental.proxy_tensor import make_fx

# Rows that users call are spelled without these.
OWN = re.compile(r"^_|^(resize|resize_as|set)(#|$)|^adaptive_max_pool2d")
# What cannot be in a graph: results that depend on values, and what asks for them.
DEPENDS = (
    "It appears that you're trying to get value out of a tracing tensor",
    "aten._local_scalar_dense.default",
)
# They read how long sequences or pieces are when they are recorded, as PyTorch does.
READS = {"lstm#data", "gru#data", "rnn_tanh#data", "rnn_relu#data", "tensor_split#tensor"}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def alike(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.is_floating_point() or b.is_complex():
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
        elif b.layout == torch.strided:
            assert a.tolist() == b.tolist()


CASES = [(r, False) for r in SAMPLES] + [(r, True) for r in IN_PLACE if r in SAMPLES]
CASES = [c for c in CASES if c[0] not in DRAW | READS]


def allowed(row, error):
    """Whether a row may be refused: it depends on values, or is none that users call."""
    dynamic = "DynamicOutputShape" in type(error).__name__
    return dynamic or str(error).startswith(DEPENDS) or OWN.match(row) is not None


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_every_row(row, in_place, mode):
    for call, given in functions(row, in_place):
        other = [another(t) for t in given]
        wants = [attempt(lambda call=call, x=x: call(*x)) for x in (given, other)]
        if any(isinstance(w, Exception) or not w for w in wants):
            continue
        graph = attempt(lambda call=call, x=given: make_fx(call, tracing_mode=mode)(*x))
        if isinstance(graph, Exception):
            assert allowed(row, graph), graph
        else:
            alike(graph(*other), wants[1])
