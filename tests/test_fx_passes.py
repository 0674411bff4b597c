"""`torchlike.fx`: rewriting, splitting, folding and passes; texts are PyTorch's, recorded."""

import copy
import operator

import pytest

import torchlike as torch
from fx_models import Conv, Net, body
from torchlike import fx, nn
from torchlike.fx.experimental import const_fold, normalize, optimization
from torchlike.fx.passes import (
    graph_drawer,
    graph_manipulation,
    operator_support,
    param_fetch,
    pass_manager,
    split_module,
    split_utils,
    tools_common,
)
from torchlike.fx.passes.dialect.common import cse_pass
from torchlike.fx.passes.infra import partitioner
from torchlike.fx.passes.infra import pass_manager as infra
from torchlike.fx.passes.infra.pass_base import PassBase, PassResult
from torchlike.fx.passes.utils import source_matcher_utils
from torchlike.fx.proxy import GraphAppendingTracer


def test_replacing_patterns():
    def program(x, y):
        return torch.add(torch.mul(x, y), x) + torch.mul(y, y)

    gm = fx.symbolic_trace(program)
    found = fx.replace_pattern(gm, lambda a, b: torch.mul(a, b), lambda a, b: torch.div(a, b))
    assert [m.anchor.name for m in found] == ["mul"]
    assert body(gm)[1:] == [
        "div = torch.div(x, y)",
        "add = torch.add(div, x)",
        "mul_1 = torch.mul(y, y)",
        "add_1 = add + mul_1",
        "return add_1",
    ]
    gm = fx.symbolic_trace(lambda x: x.relu().relu().relu())
    assert len(fx.replace_pattern(gm, lambda a: a.relu().relu(), lambda a: a.sigmoid())) == 1
    assert body(gm)[1:] == ["sigmoid = x.sigmoid()", "relu_2 = sigmoid.relu()", "return relu_2"]
    gm = fx.symbolic_trace(lambda x: x.add(3).add(4))
    with_filters = fx.subgraph_rewriter.replace_pattern_with_filters
    old, new = (lambda a: a.add(9)), (lambda a: a.mul(2))
    assert len(with_filters(gm, old, new, [lambda m, g, p: False], ignore_literals=True)) == 0
    assert len(with_filters(gm, old, new, ignore_literals=True)) == 2
    assert body(gm)[1:] == ["mul = x.mul(2)", "mul_1 = mul.mul(2)", "return mul_1"]

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(x)

    gm = fx.symbolic_trace(lambda x: torch.relu(x))
    fx.replace_pattern(gm, lambda a: torch.relu(a), fx.symbolic_trace(Layer()))
    assert gm(torch.ones(1, 2)).shape == (1, 2) and len(list(gm.parameters())) == 2


def test_transformers_keep_what_they_are_not_told_to_change():
    class Swap(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.cos if target is torch.sin else target, args, kwargs)

        def call_method(self, target, args, kwargs):
            return args[0] if target == "neg" else super().call_method(target, args, kwargs)

    gm = Swap(fx.symbolic_trace(lambda x: torch.sin(x).neg())).transform()
    assert torch.equal(gm(torch.ones(2)), torch.cos(torch.ones(2)))
    inputs = fx.Interpreter(fx.symbolic_trace(lambda x, y: x))
    with pytest.raises(RuntimeError, match="Expected positional argument for parameter y"):
        inputs.run(1)
    with pytest.raises(RuntimeError, match="expected 2 arguments for placeholders but received 1"):
        inputs.boxed_run([1])
    args = [torch.ones(1), 2]
    assert inputs.boxed_run(args) is not None and args == []


def test_proxies_made_by_hand():
    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    assert isinstance(x.tracer, GraphAppendingTracer)
    graph.output((torch.relu(x) + x.sum(0)).node)
    assert fx.GraphModule(nn.Module(), graph)(torch.ones(2)).tolist() == [3.0, 3.0]
    assert copy.deepcopy(x).node.name == "x"

    class Pair(metaclass=fx.ProxyableClassMeta):
        def __init__(self, a):
            self.a = a

        def twice(self):
            return self.a + self.a

    gm = fx.symbolic_trace(lambda x: Pair(x).twice())
    assert [n.op for n in gm.graph.nodes] == [
        "placeholder",
        "call_function",
        "call_method",
        "output",
    ]
    assert gm(torch.ones(1)).tolist() == [2.0]


def test_splitting():
    count = iter(range(100))
    net = Net().eval()
    gm = fx.symbolic_trace(net)
    paths = {}
    split = split_module.split_module(gm, net, lambda n: min(next(count) // 3, 2), paths)
    x = torch.randn(2, 4)
    assert torch.equal(split(x), net(x))
    assert [n for n, _ in split.named_children()] == ["submod_0", "submod_1", "submod_2"]
    assert paths["submod_0.seq_0"] == "seq.0"
    names = {"lin": 0, "seq_0": 1, "seq_1": 0}
    with pytest.raises(RuntimeError, match="cycle exists"):
        split_module.split_module(gm, net, lambda n: names.get(n.name, 2))
    for i, node in enumerate(gm.graph.nodes):
        node.tag = "first" if i < 5 else "second"
    tagged, moved = split_utils.split_by_tags(gm, ["first", "second"], return_fqn_mapping=True)
    assert torch.equal(tagged(x, None), net(x)) and moved["seq.0"] == "first.seq.0"


def test_partitions():
    def program(x):
        a = torch.add(x, 1)
        b = torch.relu(torch.sin(torch.add(a, a)))
        return b + torch.cos(a)

    gm = fx.symbolic_trace(program)
    supported = operator_support.create_op_support(
        lambda _, n: n.op == "call_function" and n.target in (torch.add, torch.cos, operator.add)
    )
    chosen = partitioner.CapabilityBasedPartitioner(
        gm, supported, allows_single_node_partition=True
    )
    names = sorted(sorted(n.name for n in p.nodes) for p in chosen.propose_partitions())
    # `cos` may join either side, never both, or a group would need itself
    assert names == [["add", "add_1", "cos"], ["add_2"]] or names == [
        ["add", "add_1"],
        ["add_2", "cos"],
    ]
    x = torch.randn(3)
    want = gm(x)
    assert torch.equal(chosen.partition_and_fuse()(x), want)
    table = operator_support.OperatorSupport({"torchlike.add": None})
    assert table.is_node_supported({}, fx.symbolic_trace(program).graph.find_nodes(
        op="call_function", target=torch.add)[0])  # fmt: skip


def test_constants_and_layers_are_folded():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.v = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.full((2, 2), 3.0))

        def forward(self, x):
            return x @ (self.w.t() + self.v) + self.w.sum(), x * torch.relu(self.v)

    with pytest.warns(UserWarning, match="no underlying reference"):
        folded = const_fold.split_const_subgraphs(Constant())
    got = folded(torch.eye(2))
    assert got[0].tolist() == [[8.0, 8.0], [8.0, 8.0]] and got[1].tolist() == [
        [3.0, 0.0],
        [0.0, 3.0],
    ]
    assert len(folded.graph.find_nodes(op="call_function", target=torch.relu)) == 0
    conv = Conv().eval()
    conv.bn.running_mean.add_(0.3)
    fused = optimization.fuse(conv)
    x = torch.randn(2, 3, 8, 8)
    assert [n for n, _ in fused.named_modules()] == ["", "conv", "lin", "drop"]
    torch.testing.assert_close(fused(x), conv(x), rtol=1e-4, atol=1e-5)
    assert "drop" not in optimization.remove_dropout(conv).code
    with pytest.raises(NotImplementedError, match="mkldnn"):
        optimization.optimize_for_inference(conv, {"mkldnn_layout_optimize": True})


def test_passes(tmp_path):
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + torch.relu(x))
    assert body(cse_pass.CSEPass()(gm).graph_module)[1:] == [
        "relu = torch.relu(x)",
        "add = relu + relu",
        "return add",
    ]

    class Nothing(PassBase):
        def call(self, graph_module):
            return PassResult(graph_module, False)

    first, second = Nothing(), infra.pass_result_wrapper(lambda m: None)
    before = infra.this_before_that_pass_constraint
    manager = infra.PassManager([second, first], [before(first, second)])
    assert manager(gm).modified and manager.passes == [first, second]
    with pytest.raises(RuntimeError, match="Circular dependency"):
        infra.PassManager([first, second], [before(first, second), before(second, first)])(gm)
    with pytest.raises(Exception, match="An error occurred when running"):
        infra.PassManager([lambda m: 3])(gm)
    looped = pass_manager.loop_pass(lambda n: n + 1, n_iter=3)
    assert pass_manager.PassManager([looped])(1) == 4
    conv = fx.symbolic_trace(Conv())
    graph_manipulation.get_size_of_all_nodes(conv, [torch.ones(2, 3, 8, 8)])
    sizes = [n.size_bytes for n in conv.graph.nodes if n.op == "call_module"]
    assert sizes[0] == (1152, 1600)
    param_fetch.lift_lowering_attrs_to_nodes(
        fx.symbolic_trace(nn.Sequential(nn.Linear(1, 1), nn.ReLU()))
    )
    drawn = graph_drawer.FxGraphDrawer(conv, "net").get_dot_graph()
    assert 'conv" -> "bn"' in drawn.to_string() and "PowderBlue" in drawn.to_string()
    args = conv.graph.find_nodes(op="call_module", target="conv")[0].normalized_arguments(conv)
    assert [a.name for a in args.args] == ["x"] and args.kwargs == {}
    relu = fx.symbolic_trace(lambda x: nn.functional.relu(x))
    assert normalize.NormalizeArgs(relu).transform().code.count("inplace = False") == 1
    order = fx.symbolic_trace(lambda x: torch.relu(torch.sin(x)))
    sin, act = list(order.graph.nodes)[1:3]
    act.append(sin)
    assert tools_common.stable_topological_sort(order)(torch.ones(1)) is not None
    parts = source_matcher_utils.get_source_partitions(conv.graph, [nn.Conv2d])
    assert parts == {}


def test_folders(tmp_path, monkeypatch):
    conv = fx.symbolic_trace(Conv().eval())
    with pytest.warns(UserWarning, match="saved as pickled files instead"):
        conv.to_folder(tmp_path / "net", "Made")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = __import__("net").Made().eval()
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(made(x), conv(x))


def test_every_public_name_has_pytorchs_place():
    for name in fx.__all__:
        assert getattr(fx, name).__module__.startswith("torchlike.fx"), name
    assert fx.wrap.__module__ == "torchlike.fx._symbolic_trace"


def test_hooks():
    seen = []
    gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
    gm._register_create_node_hook(lambda n: seen.append(("made", n.name)))
    gm._register_erase_node_hook(lambda n: seen.append(("gone", n.name)))
    gm._register_deepcopy_hook(lambda m: seen.append(("copy", m.code == gm.code)))
    relu = gm.graph.find_nodes(op="call_function", target=torch.relu)[0]
    with gm._set_replace_hook(lambda old, new, user: seen.append((old.name, new, user.name))):
        with gm.graph.inserting_after(relu):
            new = gm.graph.call_function(torch.sigmoid, relu.args)
        relu.replace_all_uses_with(new)
        gm.graph.erase_node(relu)
        new.name = "other"
    assert seen == [
        ("made", "sigmoid"),
        ("relu", "sigmoid", "add"),
        ("gone", "relu"),
        ("sigmoid", "other", "add"),
    ]
    gm.recompile()
    copy.deepcopy(gm)
    assert seen[-1] == ("copy", True)
    with pytest.raises(AssertionError, match="must be a callable"):
        gm._register_create_node_hook(3)


def test_what_is_folded_is_what_it_was():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x - (self.a + self.a)

    gm = fx.symbolic_trace(Net())
    for at, node in enumerate(gm.graph.nodes):
        node.meta["at"] = at
    with pytest.warns(UserWarning, match="no underlying reference"):
        folded = const_fold.split_const_subgraphs(gm)
    assert [n.meta.get("at") for n in folded.graph.nodes] == [0, 2, 3, None]


def test_arguments_of_packets_and_builtins_are_named() -> None:
    from torchlike.fx.operator_schemas import normalize_function

    a, b = torch.rand(1), torch.rand(4)
    for target in (torch.ops.aten.resize_as_, torch.ops.aten.resize_as_.default):
        found = normalize_function(target, (a,), {"the_template": b}, None, None, True)
        assert found.args == () and found.kwargs["input"] is a and found.kwargs["the_template"] is b
    assert normalize_function(torch.nn.functional.logsigmoid, (a,)) == ((a,), {})


def test_arithmetic_of_python_stands_first_where_order_is_open() -> None:
    gm = fx.symbolic_trace(lambda x: (torch.relu(torch.sin(x) + 1), torch.cos(torch.exp(x))))
    names = [n.name for n in tools_common.legalize_graph(gm).graph.nodes]
    assert names == ["x", "sin", "add", "exp", "relu", "cos", "output"]
    add = next(n for n in gm.graph.nodes if n.name == "add")
    assert add.normalized_arguments(gm) is None  # Python's operator has no schema


def test_an_argument_that_is_put_in_is_the_last_input() -> None:
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    relu = graph.call_function(torch.relu, (x,))
    graph.output(relu)
    relu.insert_arg(0, y)
    assert relu.args == (y, x) and relu.all_input_nodes == [x, y] and list(y.users) == [relu]


def test_a_buffer_is_assigned_while_it_is_traced() -> None:
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("last", torch.zeros(2))

        def forward(self, x):
            self.last = x + 1
            return self.last

    assert body(fx.symbolic_trace(Keeps()))[1:] == ["add = x + 1", "return add"]


def test_nodes_of_a_pattern_by_name():
    from torchlike.fx.passes.utils.matcher_with_name_node_map_utils import (
        SubgraphMatcherWithNameNodeMap,
    )

    class Pattern(nn.Module):
        def forward(self, x, w):
            y = nn.functional.conv2d(x, w)
            z = y.relu()
            return z, {"conv": y, "relu": z}

    class Target(nn.Module):
        def forward(self, x, w):
            return nn.functional.conv2d(x, w).relu() * 2

    given = torch.ones(1, 1, 3, 3), torch.ones(1, 1, 2, 2)
    graph = torch.export.export(Target(), given).module().graph
    pattern = torch.export.export(Pattern(), given).module()
    (match,) = SubgraphMatcherWithNameNodeMap(pattern).match(graph)
    assert {k: n.op for k, n in match.name_node_map.items()} == dict.fromkeys(
        ["conv", "relu"], "call_function"
    )
    assert all(n.graph is graph for n in match.name_node_map.values())
    with pytest.raises(AssertionError, match=r"at least two outputs|return a tuple"):
        SubgraphMatcherWithNameNodeMap(torch.export.export(Target(), given).module())
