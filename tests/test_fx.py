"""`torchlike.fx`: tracing, generated code, copies, hooks; texts are PyTorch's, recorded."""

import copy
import inspect
import linecache
import math
import operator
import pickle
import threading
import traceback
from typing import Any

import pytest

import torchlike as torch
from fx_models import Conv, Net, body, wrapped
from torchlike import fx, nn
from torchlike.fx.passes import (
    shape_prop,
)
from torchlike.fx.proxy import TraceError

NET = """
torch.fx._symbolic_trace.wrap("len")
torch.fx._symbolic_trace.wrap("fx_models_wrapped")

def forward(self, x, y = None):
    lin = self.lin(x)
    seq_0 = getattr(self.seq, "0")(lin);  lin = None
    seq_1 = getattr(self.seq, "1")(seq_0);  seq_0 = None
    seq_2 = getattr(self.seq, "2")(seq_1);  seq_1 = None
    w = self.w
    mul = seq_2 * w;  seq_2 = w = None
    b = self.b
    add = mul + b;  mul = b = None
    getattr_1 = x.shape
    len_1 = len(getattr_1);  getattr_1 = None
    mul_1 = x * len_1;  x = len_1 = None
    wrapped = fx_models_wrapped(add, mul_1);  add = mul_1 = None
    plain = self.plain
    add_1 = wrapped + plain;  wrapped = plain = None
    return add_1
    """


def test_code_and_values():
    net = Net().eval()
    gm = fx.symbolic_trace(net)
    assert gm.code.replace("torchlike.", "torch.").replace("tests.", "") == NET
    x = torch.randn(2, 4)
    assert torch.equal(gm(x), net(x))
    assert torch.equal(fx.Interpreter(gm).run(x), net(x))
    assert torch.equal(fx.Transformer(gm).transform()(x), net(x))
    assert type(gm).__name__ == "Net" and not gm.training
    assert gm.lin is net.lin and gm.w is net.w
    # nothing stays patched
    assert len([1]) == 1 and "__getattribute__" not in vars(nn.Module)
    gm.graph.lint()


def test_nodes_know_where_they_come_from():
    nodes = {n.name: n for n in fx.symbolic_trace(Net()).graph.nodes}
    stack = nodes["seq_1"].meta["nn_module_stack"]
    assert list(stack) == ["seq", "seq.1"] and stack["seq.1"] == ("seq.1", nn.Dropout)
    assert nodes["wrapped"].meta["is_wrapped"]

    class Noting(fx.Tracer):
        record_stack_traces = True

    graph = Noting().trace(Net())
    node = next(n for n in graph.nodes if n.name == "add")
    assert "in forward" in node.stack_trace and "self.w + self.b" in node.stack_trace


def test_tracing_other_threads_are_left_alone():
    layer, results = nn.Linear(2, 2), []

    class Waiting(nn.Module):
        def forward(self, x):
            thread = threading.Thread(target=lambda: results.append(layer(torch.ones(1, 2))))
            thread.start()
            thread.join()
            return x + 1

    fx.symbolic_trace(Waiting())
    assert isinstance(results[0], torch.Tensor)


def test_arguments():
    def of_tree(x, d):
        return {"out": x + d[0], "in": [x]}

    gm = fx.symbolic_trace(of_tree, concrete_args={"d": (fx.PH, 3)})
    assert body(gm) == [
        "def forward(self, x, d):",
        "x, d_1, d_2, = fx_pytree.tree_flatten_spec([x, d], self._in_spec)",
        "eq = d_2 == 3",
        "_assert = torch._assert(eq, 'd has been specialized to have value 3 but got another value')",
        "add = x + d_1",
        "return pytree.tree_unflatten([add, x], self._out_spec)",
    ]
    one = torch.ones(1)
    for run in (gm, fx.Interpreter(gm).run):
        got = run(one, (one, 3))
        assert got["out"].tolist() == [2.0] and got["in"][0] is one
    with pytest.raises(AssertionError, match="specialized to have value 3"):
        gm(one, (one, 4))

    def typed(x: torch.Tensor, n: list[int], *rest, scale: "int | None" = None, **more) -> tuple:
        return x, 3

    code = fx.symbolic_trace(typed)
    assert [n.target for n in code.graph.nodes][:5] == ["x", "n", "scale", "*rest", "**more"]

    def unpacking(x):
        a, b = x
        return a * b

    assert body(fx.symbolic_trace(unpacking))[1:] == [
        "getitem = x[0]",
        "getitem_1 = x[1]",
        "mul = getitem * getitem_1",
        "return mul",
    ]
    numbers = fx.symbolic_trace(lambda x: x.clamp(-math.inf, math.nan).to(torch.float64))
    assert body(numbers)[1:3] == ["clamp = x.clamp(-inf, nan)", "to = clamp.to(torch.float64)"]
    assert numbers(one).dtype is torch.float64


def test_names_that_are_taken():
    graph = fx.Graph()
    names = ["a.b", "1a", "a_b", "a_b_3", "a_b_3", "for", "int", "inf", "", "torch", "a_b_0", "_"]
    made = [graph._graph_namespace.create_name(n, None) for n in names]
    assert made == [
        "a_b",
        "_1a",
        "a_b_1",
        "a_b_3",
        "a_b_4",
        "for_1",
        "int_1",
        "inf_1",
        "_unnamed",
    ] + [
        "torch_1",
        "a_b_0",
        "_",
    ]


def test_functions_have_pytorchs_names():
    F = nn.functional
    gm = fx.symbolic_trace(
        lambda x: (
            (
                torch.linalg.norm(x),
                torch.special.erf(x),
                F.logsigmoid(x),
                F.conv2d,
                torch.split(x, 1),
            )
            and F.logsigmoid(torch.linalg.norm(x)) + torch.einsum("i->i", x)
        )
    )
    lines = body(gm)
    assert "linalg_norm = torch._C._linalg.linalg_norm(x)" in lines
    assert "log_sigmoid_1 = torch._C._nn.log_sigmoid(linalg_norm_1)" in lines
    assert "split = torch.functional.split(x, 1, dim = 0)" in lines
    x = torch.randn(3)
    assert torch.equal(gm(x), F.logsigmoid(torch.linalg.norm(x)) + x)


@pytest.mark.parametrize(
    ("program", "kind", "text"),
    [
        (lambda x: 1 if x.sum() > 0 else 2, TraceError, "cannot be used as inputs to control flow"),
        (lambda x: list(x), TraceError, "Proxy object cannot be iterated"),
        (lambda x: x.shape.__len__(), RuntimeError, "'len' is not supported"),
        (
            lambda x: range(x.size(0)),
            TypeError,
            "'Proxy' object cannot be interpreted as an integer",
        ),
        (
            lambda x: torch.add(x, fx.Proxy(fx.Graph().placeholder("u"))),
            RuntimeError,
            "multiple different",
        ),
        (lambda x: wrapped({x: 1}, 2), Exception, "dict"),
        (
            lambda x: torch.add(x, nn.Parameter(torch.ones(1))),
            NameError,
            "parameter is not a member",
        ),
        (lambda x: nn.Linear(2, 2)(x), NameError, "module is not installed as a submodule"),
        (torch.relu, AssertionError, "Expected FunctionType"),
    ],
)
def test_what_cannot_be_traced(program, kind, text):
    with pytest.raises(kind, match=text):
        fx.symbolic_trace(program)
    assert not fx._symbolic_trace.is_fx_tracing()
    assert nn.Linear(1, 1)(torch.ones(1)).shape == (1,)


def test_tracers_that_override():
    class Leaves(fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    graph = Leaves().trace(Net())
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["lin", "seq"]

    class Asserts(fx.Tracer):
        trace_asserts = True

    space = {}  # pytest rewrites the assertions of this file
    exec("def checked(x):\n    assert x.sum() > 0\n    return x", space)
    checked = space["checked"]
    gm = fx.GraphModule(nn.Module(), Asserts().trace(checked))
    assert gm(torch.ones(1)).tolist() == [1.0]
    with pytest.raises(AssertionError, match="Assertion failed"):
        gm(-torch.ones(1))

    from torchlike import _assert

    checked = fx.symbolic_trace(lambda x: (_assert(x.shape[0] == 2, "two"), x)[1])
    assert "torchlike._assert(eq, 'two')" in checked.code
    with pytest.raises(AssertionError, match="two"):
        checked(torch.ones(3))

    class Shapes(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3, 2))

        def forward(self, x):
            return x.view(self.w.shape[0]) if self.w.dim() == 2 else x

    graph = fx.Tracer(param_shapes_constant=True).trace(Shapes())
    assert next(n for n in graph.nodes if n.op == "call_method").args[1] == 3

    class Values(fx.Tracer):
        def to_bool(self, obj):
            return True

        def iter(self, obj):
            return iter([obj[i] for i in range(2)])

    graph = Values().trace(lambda x: sum(x) if x else x)
    assert [n.name for n in graph.nodes] == ["x", "getitem", "getitem_1", "add", "add_1", "output"]

    class Refusing(fx.Tracer):
        check_mutable_operations = True

    with pytest.raises(RuntimeError, match="mutable operation"):
        Refusing().trace(lambda x: torch.ops.aten.add_.Tensor(x, x))


def test_nodes_and_graphs():
    g = fx.Graph()
    x = g.placeholder("x")
    y = g.call_function(torch.relu, (x,))
    z = g.call_method("view", (y, [1, 2]), {"a": {"b": x}})
    assert list(x.users) == [y, z] and z.all_input_nodes == [y, x]
    assert z.format_node() == (
        "%view : [num_users=0] = call_method[target=view](args = (%relu, [1, 2]), kwargs = {a: {b: %x}})"
    )
    with pytest.raises(TypeError, match="does not support mutation"):
        z.args[1].append(3)
    z.update_arg(1, 5)
    z.insert_arg(1, y)
    z.update_kwarg("a", 1)
    assert z.args == (y, y, 5) and list(x.users) == [y]
    with pytest.raises(RuntimeError, match="still had 1 users"):
        g.erase_node(x)
    with g.inserting_before(y):
        a = g.call_function(torch.sin, (x,))
        b = g.call_function(torch.cos, (x,))
    with g.inserting_after(y):
        c = g.call_method("neg", (y,))
        d = g.call_method("neg", (y,))
    assert [n.name for n in g.nodes] == ["x", "sin", "cos", "relu", "neg_1", "neg", "view"]
    assert a < b < y < d < c < z and sorted([z, a, y]) == [a, y, z]
    assert y.replace_all_uses_with(a, lambda user: user is z) == [z]
    assert list(y.users) == [c, d] and list(a.users) == [z]
    g.output(z)
    assert g.eliminate_dead_code() and [n.name for n in g.nodes] == ["x", "sin", "view", "output"]
    assert not g.eliminate_dead_code()
    with pytest.warns(UserWarning, match="already erased"):
        g.erase_node(b)
    z.prepend(g.create_node("call_function", operator.add, (a, 1), name="for"))
    assert [n.name for n in g.nodes][2] == "for_1"
    for _ in range(200):  # more insertions at one place than numbers have bits
        with g.inserting_before(z):
            last = g.call_function(torch.neg, (x,))
    assert a < last < z and len(g.nodes) == 205
    z.append(a)
    with pytest.raises(RuntimeError, match="was used before it has been defined"):
        g.lint()
    for wrong in ("nowhere", 3):
        with pytest.raises((ValueError, AssertionError)):
            g.create_node("call_function", wrong, ())
    with pytest.raises(AssertionError, match="is not in _legal_ops"):
        g.create_node("jump", "x")


def test_impure_nodes_stay():
    g = fx.Graph()
    x = g.placeholder("x")
    assert fx.map_arg([x, {"a": x, "b": 1}], lambda n: n.name) == ["x", {"a": "x", "b": 1}]

    def noted(x):
        return x

    assert fx.has_side_effect(noted) is noted
    stay = [
        torch.rand,
        torch.bernoulli,
        operator.setitem,
        torch._assert,
        torch.ops.aten.add_.Tensor,
    ]
    go = [torch.relu, torch.relu_, operator.iadd, torch.ops.aten.add.Tensor]
    for f in (*stay, *go):
        g.call_function(f, (x,))
    g.output(x)
    g.eliminate_dead_code()
    assert [n.target for n in g.nodes if n.op == "call_function"] == stay


def test_source_is_seen_in_tracebacks(capsys):
    gm = fx.symbolic_trace(lambda x: torch.relu(x).missing(3))
    with pytest.raises(AttributeError, match="missing"):
        gm(torch.ones(1))
    shown = capsys.readouterr().err
    assert "Call using an FX-traced Module, line 6" in shown and "<--- HERE" in shown
    assert "missing = relu.missing(3)" in inspect.getsource(gm.forward)
    try:
        gm.forward(torch.ones(1))
    except AttributeError:
        assert "relu.missing(3)" in traceback.format_exc()
    name = gm.forward.__code__.co_filename
    assert name.startswith("<eval_with_key>.") and name in linecache.cache
    with pytest.raises(AttributeError, match="While executing %missing"):
        fx.Interpreter(gm).run(torch.ones(1))
    del gm
    import gc

    gc.collect()
    assert name not in linecache.cache


def test_recompiling_uses_the_graph_of_that_moment():
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    relu = gm.graph.find_nodes(op="call_function", target=torch.relu)[0]
    relu.target = torch.neg
    assert gm(torch.ones(1)).tolist() == [2.0] and "relu(" in gm.code
    gm.recompile()
    assert gm(torch.ones(1)).tolist() == [0.0] and "neg(" in gm.code


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "copy"])
def test_copies(how):
    gm = fx.symbolic_trace(Net().eval())
    gm.meta["mine"] = 1
    if how == "pickle":
        made = pickle.loads(pickle.dumps(gm))
    else:
        made = copy.deepcopy(gm) if how == "deepcopy" else copy.copy(gm)
    assert made.code == gm.code and made.graph is not None and not made.training
    assert (made.lin is gm.lin) == (how == "copy")
    x = torch.randn(2, 4)
    assert torch.equal(made(x), gm(x))
    assert sorted(made.state_dict()) == sorted(gm.state_dict())
    assert how == "pickle" or made.meta == {"mine": 1}
    if how != "copy":
        made.graph.find_nodes(op="call_function", target=operator.add)[-1].target = operator.sub
        made.recompile()
        assert torch.equal(gm(x), fx.Interpreter(gm).run(x)) and not torch.equal(made(x), gm(x))


def test_local_functions_cannot_be_pickled():
    def local(x):
        return x

    graph = fx.Graph()
    graph.output(graph.call_function(local, (graph.placeholder("x"),)))
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(fx.GraphModule(nn.Module(), graph))


def test_a_traced_model_becomes_real():
    torch.manual_seed(3)
    with torch.meta_init():
        deferred = Conv()
    gm = fx.symbolic_trace(deferred.eval())
    assert all(p.is_meta for p in gm.parameters())
    made = copy.deepcopy(gm.graph)
    torch.materialize(gm)
    torch.manual_seed(3)
    eager = Conv().eval()
    x = torch.randn(2, 3, 8, 8)
    assert not any(p.is_meta for p in gm.parameters()) and torch.equal(gm(x), eager(x))
    assert torch.equal(fx.GraphModule(gm, made)(x), eager(x))
    gm.to(torch.float64)
    assert gm(x.double()).dtype is torch.float64
    assert gm.to("meta")(x.to("meta").double()).is_meta
    with torch.device("meta"):
        shapes = fx.symbolic_trace(Conv())
    shape_prop.ShapeProp(shapes).propagate(torch.empty(7, 3, 9, 9, device="meta"))
    assert [tuple(n.meta["tensor_meta"].shape) for n in shapes.graph.nodes][1:4] == [
        (7, 4, 7, 7),
        (7, 4, 7, 7),
        (7, 4),
    ]


def test_modules_of_a_graph():
    gm = fx.symbolic_trace(Net())
    assert gm.add_submodule("new.below", nn.ReLU()) and isinstance(gm.new.below, nn.ReLU)
    assert not gm.add_submodule("b.x", nn.ReLU()) and not gm.delete_submodule("lin.none")
    gm.delete_all_unused_submodules()
    assert not hasattr(gm, "new") and hasattr(gm, "lin")
    graph = fx.Graph()
    graph.output(graph.call_module("deep.act", (graph.placeholder("x"),)))
    made = fx.GraphModule({"deep.act": nn.ReLU()}, graph, "Named")
    assert type(made).__name__ == "Named" and made(-torch.ones(1)).tolist() == [0.0]
    with pytest.raises(RuntimeError, match="not provided in ``root``"):
        fx.GraphModule({}, graph)
    with pytest.raises(RuntimeError, match="Unsupported type 3"):
        fx.GraphModule(3, graph)
    with pytest.raises(AssertionError, match="Expected a Graph instance"):
        made.graph = 3


def test_code_generation_can_be_changed():
    gm = fx.symbolic_trace(lambda x: x + 1)
    with gm.graph.on_generate_code(lambda old: lambda lines: ["x = x * 2\n", *lines]):
        gm.recompile()
    assert gm(torch.ones(1)).tolist() == [3.0]
    gm.recompile()
    assert gm(torch.ones(1)).tolist() == [2.0]

    class Listed(fx.CodeGen):
        def gen_fn_def(self, free_vars, annotation):
            return super().gen_fn_def(free_vars, annotation) + "\n    assert Any"

        def generate_output(self, out) -> str:
            return f"return [{out!r}]"

        def additional_globals(self):
            return [("Any", Any)]

    gm.graph.set_codegen(Listed())
    gm.recompile()
    assert gm(torch.ones(1))[0].tolist() == [2.0]
    readable = fx.symbolic_trace(Conv())
    shape_prop.ShapeProp(readable).propagate(torch.ones(2, 3, 8, 8))
    text = readable.print_readable(print_output=False, include_stride=True, include_device=True)
    assert (
        'conv: "f32[2, 4, 6, 6][144, 36, 6, 1]cpu" = self.conv(x)' in text
        or 'conv: "f32[2, 4, 6, 6]"' in text
    )
    assert text.startswith("class Conv(torch.nn.Module):\n    def forward(self, x: ")


def test_signatures_of_operators():
    from torchlike.fx.operator_schemas import get_signature_for_torch_op

    signatures = get_signature_for_torch_op(torch.add)
    assert "(input: torch.Tensor, other: torch.Tensor, *, alpha: numbers.Number = 1)" in str(
        signatures[0]
    ).replace("torchlike", "torch").replace("torch._C", "torch")
    # PyTorch writes these in Python; of `unfold` the operator is that of tensors.
    assert get_signature_for_torch_op(nn.functional.unfold) is None
    assert get_signature_for_torch_op(nn.functional.max_pool2d) is None
    pool = get_signature_for_torch_op(torch.max_pool2d)[0]
    assert pool.parameters["padding"].default == [0, 0]


def test_waiting_for_a_collective_is_kept():
    import torchlike.distributed._functional_collectives  # noqa: F401

    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.ops._c10d_functional.wait_tensor.default, (x,))
    graph.call_function(torch.ops._c10d_functional.wait_tensor, (x,))
    graph.call_function(torch.neg, (x,))
    graph.output(x)
    graph.eliminate_dead_code()
    assert [n.op for n in graph.nodes].count("call_function") == 2
