"""`jit.trace`: what it takes and gives, and what it notices of functions that are more than their calls."""

import collections
import io
import warnings

import pytest

import torchlike as torch
from torchlike import jit, nn

X = torch.ones(3)


def test_a_tensor_that_is_known_by_two_names():
    """Each argument stays its own, and so does a parameter that is also the example."""
    traced = jit.trace(lambda a, b: a - b, (X, X))
    assert traced(X, X * 3).tolist() == [-2, -2, -2]
    traced = jit.trace(lambda pair: pair[0]["k"] - pair[1]["k"], (({"k": X}, {"k": X}),))
    assert traced(({"k": X}, {"k": X * 3})).tolist() == [-2, -2, -2]

    class Added(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.own + x

    model = Added()
    assert jit.trace(model, model.own)(X * 4).tolist() == [5, 5, 5]


def test_checks_leave_the_examples_alone():
    x = torch.zeros(2)
    jit.trace(lambda a: a.add_(1), x)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ((1,), r"Type 'Tuple\[int\]' cannot be traced"),
        ((X, 2), r"Type 'Tuple\[Tensor, int\]' cannot be traced"),
        (({},), "Dictionary inputs must have entries"),
        (({1: []},), "List trace inputs must have elements"),
        (([X, (X, X)],), "consistent element type. Found Tensor and"),
    ],
)
def test_inputs_that_are_refused(inputs, text):
    with pytest.raises(RuntimeError, match=text):
        jit.trace(lambda *args: X, inputs)


def test_results():
    with pytest.raises(RuntimeError, match="didn't return any values"):
        jit.trace(lambda a: None, X)
    for result in (lambda a: (a, 1), lambda a: [[a], [a]]):
        with pytest.raises(RuntimeError, match="Only tensors, lists, tuples"):
            jit.trace(result, X)
    with pytest.raises(RuntimeError, match="cannot be understood by the tracer"):
        jit.trace(lambda a: {"a": (a, 1)}, X, strict=False)
    with pytest.raises(RuntimeError, match="Encountering a dict"):
        jit.trace(lambda a: {"a": a}, X)
    by_tensor = jit.trace(lambda a: {a: a + 1}, X, strict=False)
    ((key, value),) = by_tensor(X).items()
    assert (key is not value) and value.tolist() == [2, 2, 2]
    with pytest.warns(jit.TracerWarning, match="Encountering a list"):
        assert len(jit.trace(lambda a: [a, a + 1], X)(X)) == 2
    sizes = jit.trace(lambda a: (a.shape[0] * 2, a), X, check_trace=False)
    buffer = io.BytesIO()
    jit.save(sizes, buffer)
    buffer.seek(0)
    for each in (sizes, jit.load(buffer)):
        assert torch.equal(each(torch.ones(5))[0], torch.tensor(10))


def test_what_a_trace_cannot_hold():
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Cannot insert a Tensor that requires grad"):
        jit.trace(lambda a: a + weight, X)
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(ValueError, match="backward hooks assigned can't be compiled"):
        jit.trace(model, X)


def test_traces_that_differ():
    def kept(a):
        if not hasattr(kept, "before"):
            kept.before = a.neg()
        return a + kept.before

    with pytest.raises(jit.TracingCheckError, match="Graphs differed across invocations!"):
        jit.trace(kept, X)

    def loops(a):
        for _ in range(a.size(0)):
            a = a.neg()
        return a

    jit.trace(loops, X)
    with (
        pytest.warns(jit.TracerWarning, match="does not match"),
        pytest.raises(jit.TracingCheckError, match="Graphs differed"),
    ):
        jit.trace(loops, X, check_inputs=[torch.ones(4)])
    jit.trace(loops, X, check_inputs=[torch.ones(4)], check_trace=False)


def test_random_results():
    before = torch.get_rng_state()
    with pytest.warns(jit.TracerWarning) as found:
        jit.trace(lambda a: torch.dropout(a, 0.5, True), torch.ones(50))
    texts = [str(w.message) for w in found]
    assert any("nondeterministic nodes" in t and "torch.dropout" in t for t in texts)
    assert any(t.startswith("Output nr 1. of the traced function") for t in texts)
    torch.set_rng_state(before)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jit.trace(lambda a: torch.dropout(a, 0.5, False), torch.ones(50))


def test_inputs_by_name():
    """They are the arguments of their names, whatever stands between."""

    class Middle(nn.Module):
        def forward(self, a=None, b=None, c=None):
            return (a if b is None else b) - c

    for given in ({"c": X, "a": X * 3}, {"a": X * 3, "c": X}):
        traced = jit.trace(Middle(), example_kwarg_inputs=given, check_inputs=[given])
        both = jit.trace_module(Middle(), {"forward": given}, example_inputs_is_kwarg=True)
        for each in (traced, both):
            assert each(c=X, a=X * 5).tolist() == [4, 4, 4]
    of_function = jit.trace(lambda a, b=None, c=None: a - c, example_kwarg_inputs={"c": X, "a": X})
    assert of_function(a=X * 2, c=X).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"missing value for argument 'c'"):
        of_function(a=X, z=X)


def test_named_tuples_are_traced_as_tuples():
    point = collections.namedtuple("point", ["x", "y"])

    def difference(p):
        return p[0] - p[1]

    made = torch.jit.trace(difference, (point(torch.ones(2), torch.zeros(2)),))
    assert made((torch.full((2,), 3.0), torch.ones(2))).tolist() == [2.0, 2.0]


def test_calls_that_nobody_needs_are_left_out():
    def f(x, y):
        torch.digamma(x)
        z = x.clone()
        z.add_(1)
        nn.functional.batch_norm(x, y, y + 1, training=True)
        return z, x.chunk(2)[0]

    code = jit.trace(f, (torch.ones(4, 2), torch.ones(2)), check_trace=False).code
    assert "digamma" not in code and "batch_norm" in code and "add_" in code


def test_values_that_stay_are_told_in_pytorchs_words():
    x = torch.ones(3)
    for ask, kind in ((bool, "Python boolean"), (float, "Python float"), (int, "Python integer")):
        with pytest.warns(jit.TracerWarning, match=f"Converting a tensor to a {kind} might cause"):
            jit.trace(lambda x, ask=ask: x * ask(x.sum()), x, check_trace=False)
    with pytest.warns(
        jit.TracerWarning, match="Using len to get tensor shape might cause the trace"
    ):
        jit.trace(lambda x: x * len(x), x, check_trace=False)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.einsum("ij,kj->ik", x, torch.ones(2, 3)),
        lambda x: nn.functional.normalize(x),
    ],
)
def test_sizes_are_those_of_the_input(function):
    file = io.BytesIO()
    jit.save(jit.trace(function, torch.ones(4, 3)), file)
    x = torch.randn(5, 3)
    torch.testing.assert_close(jit.load(io.BytesIO(file.getvalue()))(x), function(x))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match=r"The provided filename .*none.pt does not exist"):
        jit.load(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="is a directory"):
        jit.load(tmp_path)
