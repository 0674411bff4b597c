"""Every row in a graph: what `make_fx` records gives the results of other arguments, too."""

import re

import pytest

import torchlike as torch
from rows import CASES, DRAW, another, attempt, functions
from torchlike.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.filterwarnings("ignore")

# Rows that users call are spelled without these.
OWN = re.compile(r"^_|^(resize|resize_as|set)(#|$)|^adaptive_max_pool2d")
# What cannot be in a graph: results that depend on values, what asks for them, and memory of another size.
DEPENDS = (
    "functionalize: aten.resize_",
    "It appears that you're trying to get value out of a tracing tensor",
    "aten._local_scalar_dense.default",
)
# They read how long sequences or pieces are when they are recorded, as PyTorch does.
READS = {
    "lstm#data",
    "gru#data",
    "rnn_tanh#data",
    "rnn_relu#data",
    "tensor_split#tensor",
    "_grouped_mm",
}


def alike(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if b.is_floating_point() or b.is_complex():
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
        elif b.layout == torch.strided:
            assert a.tolist() == b.tolist()


CASES = [c for c in CASES if c[0] not in DRAW | READS]


def allowed(row, error):
    """Whether a row may be refused: it depends on values, or is none that users call."""
    dynamic = "DynamicOutputShape" in type(error).__name__
    return dynamic or str(error).startswith(DEPENDS) or OWN.match(row) is not None


def graph_of(call, given, mode):
    if mode == "functional":
        return make_fx(torch.func.functionalize(call))(*given)
    return make_fx(call, tracing_mode=mode)(*given)


@pytest.mark.parametrize("mode", ["real", "fake", "functional"])
@pytest.mark.parametrize(("row", "in_place"), CASES)
def test_every_row(row, in_place, mode):
    for call, given in functions(row, in_place):
        other = [another(t) for t in given]
        wants = [attempt(lambda call=call, x=x: call(*x)) for x in (given, other)]
        if any(isinstance(w, Exception) or not w for w in wants):
            continue
        graph = attempt(lambda call=call, x=given: graph_of(call, x, mode))
        if isinstance(graph, Exception):
            assert allowed(row, graph), graph
        else:
            alike(graph(*other), wants[1])


def turned(x):
    y = x.clone()
    row = y[0]
    y.t_()
    row.add_(1)
    return y


def turned_back(x):
    y = x.clone()
    y.unsqueeze_(0)
    y[0, 1].mul_(2)
    y.squeeze_(0)
    return y.add_(1)


def turned_input(x):
    x.transpose_(0, 1)
    x.add_(1)
    return x * 2


def normalised(x):
    mean, var = torch.zeros(3), torch.ones(3)
    made = torch._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)[0]
    return made, mean, var


@pytest.mark.parametrize("func", [turned, turned_back, turned_input, normalised])
def test_what_is_written_and_seen_through_views(func):
    x = torch.arange(6.0).reshape(2, 3)
    graph = make_fx(torch.func.functionalize(func))(x.clone())
    writes = [n for n in graph.graph.nodes if n.op == "call_function" and "_." in str(n.target)]
    assert all("copy_" in str(n.target) for n in writes)
    wants = [func(x.clone() * 2), graph(x.clone() * 2)]
    alike(*[w if isinstance(w, tuple) else (w,) for w in wants])
