"""`make_fx`: graphs of operators; the code is PyTorch's, recorded."""

import pytest

import torchlike as torch
from torchlike import nn
from torchlike._subclasses.fake_tensor import FakeTensor
from torchlike.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

X = torch.arange(6.0).view(2, 3) / 7


def lines(gm):
    rows = gm.code.replace("torchlike.", "torch.").strip().split("\n")[1:]
    return [r.strip().partition(";  ")[0].replace("torch.ops.aten.", "") for r in rows]


def test_operators_and_views():
    gm = make_fx(lambda x: torch.split(x, 1, 1)[1].squeeze(1).sin().cos_() + 1)(X)
    assert lines(gm) == [
        "split = split.Tensor(x_1, 1, 1)",
        "getitem = split[0]",
        "getitem_1 = split[1]",
        "getitem_2 = split[2]",
        "squeeze = squeeze.dim(getitem_1, 1)",
        "sin = sin.default(squeeze)",
        "cos_ = cos_.default(sin)",
        "add = add.Tensor(cos_, 1)",
        "return add",
    ]
    assert torch.equal(gm(X), X[:, 1].sin().cos() + 1)
    assert next(tuple(n.meta["val"].shape) for n in gm.graph.nodes if "tensor_meta" in n.meta) == (
        2,
        3,
    )
    assert get_proxy_mode() is None


def test_backward_is_recorded():
    def step(x, w):
        return torch.autograd.grad((x @ w).relu().sum(), w)

    w = torch.ones(3, 3, requires_grad=True)
    gm = make_fx(step)(X, w)
    assert lines(gm) == [
        "mm = mm.default(x_1, w_1)",
        "relu = relu.default(mm)",
        "detach = detach.default(relu)",
        "sum_1 = sum.default(relu)",
        "ones_like = ones_like.default(sum_1, pin_memory = False, memory_format = torch.preserve_format)",
        "expand = expand.default(ones_like, [2, 3])",
        "detach_1 = detach.default(detach)",
        "threshold_backward = threshold_backward.default(expand, detach_1, 0)",
        "t = t.default(x_1)",
        "mm_1 = mm.default(t, threshold_backward)",
        "return (mm_1,)",
    ]
    v = torch.full((3, 3), -2.0)
    assert torch.equal(gm(X, v)[0], step(X, v.requires_grad_())[0])


def test_modules_trees_and_numbers():
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    gm = make_fx(net)(X)
    assert [n for n, _ in gm.named_parameters()] == ["_param_constant0", "_param_constant1"]
    assert torch.equal(gm(X), net(X))
    tree = make_fx(lambda d: {"o": d["a"] * 2, "p": [d["b"][0]]})({"a": X, "b": [X + 1]})
    got = tree({"a": X + 1, "b": [X]})
    assert torch.equal(got["o"], X * 2 + 2) and torch.equal(got["p"][0], X)
    assert lines(make_fx(lambda x, n: (x * n, n, None))(X, 3)) == [
        "mul = mul.Tensor(x_1, 3)",
        "return (mul, 3, None)",
    ]
    constant = make_fx(lambda x: x + torch.tensor([1.0, 2.0, 3.0]))(X)
    assert lines(constant)[:2] == [
        "_tensor_constant0 = self._tensor_constant0",
        "lift_fresh_copy = lift_fresh_copy.default(_tensor_constant0)",
    ]
    assert torch.equal(constant(X), X + torch.tensor([1.0, 2.0, 3.0]))


def test_decompositions():
    def softmax(x, dim, half):
        e = torch.exp(x)
        return e / e.sum(dim, keepdim=True)

    table = {torch.ops.aten._softmax.default: softmax}
    gm = make_fx(lambda x: torch.softmax(x, -1), decomposition_table=table)(X)
    assert lines(gm)[:3] == [
        "exp = exp.default(x_1)",
        "sum_1 = sum.dim_IntList(exp, [-1], True)",
        "div = div.Tensor(exp, sum_1)",
    ]
    table = {torch.ops.aten._softmax.default: lambda *a: NotImplemented}
    assert "_softmax" in make_fx(lambda x: torch.softmax(x, -1), table)(X).code


def written(x):
    y = x.clone()
    v = y.view(-1)
    v.add_(1)
    y[0] = 3
    y.t()[1].mul_(2)
    y[:, 1:].zero_()
    return y + v.sum(), v


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_functional_graphs(remove):
    gm = make_fx(torch.func.functionalize(written, remove=remove))(X)
    names = [str(n.target) for n in gm.graph.nodes if n.op == "call_function"]
    assert not any(n.partition(".")[2].partition(".")[0].endswith("_") for n in names), names
    assert any("view_copy" in n for n in names) == (remove != "mutations")
    for x in (X, X * 3 - 1):
        for got, want in zip(gm(x), written(x), strict=True):
            assert torch.equal(got, want)

    def writes_input(x):
        x.add_(1)
        return x * 2

    gm = make_fx(torch.func.functionalize(writes_input))(X.clone())
    x = X.clone()
    assert torch.equal(gm(x), (X + 1) * 2) and torch.equal(x, X + 1)


def test_results_with_names():
    """They are plain tuples in the program, as they are not made of their items one by one."""
    gm = make_fx(lambda x: {"largest": torch.max(x, 1), "sorted": [torch.sort(x)]})(X)
    assert "return_types" not in gm.code
    for x in (X, -X):
        made = gm(x)
        assert torch.equal(made["largest"][1], x.max(1).indices)
        assert torch.equal(made["sorted"][0][0], x.sort().values)


def test_annotations():
    def annotated(x: torch.Tensor, y: int = 1) -> torch.Tensor:
        return x + y

    assert "-> torch.Tensor:" in make_fx(annotated)(X, 2).code.replace("torchlike.", "torch.")
    assert "->" not in make_fx(annotated)(X).code


def test_several_results_that_are_written():
    def extremes(x):
        low, high = torch.zeros(3), torch.empty(1, 3)
        low.add_(1)
        made = torch.aminmax(x, dim=0, out=(low, high.view(3)))
        low.mul_(2)
        return low, high, made.max + 1, made[0]

    gm = make_fx(torch.func.functionalize(extremes))(X)
    assert "aminmax.out" not in gm.code
    for got, want in zip(gm(-X), extremes(-X), strict=True):
        assert torch.equal(got, want)


def test_what_is_refused():
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        make_fx(lambda x: x * x.sum().item())(X)
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        make_fx(lambda x: x if x.sum() > 0 else -x)(X)
    with pytest.raises(NotImplementedError, match="tracing_mode='symbolic' is not supported"):
        make_fx(written, tracing_mode="symbolic")
    with pytest.raises(AssertionError, match="tracing_mode must be real/fake/symbolic"):
        make_fx(written, tracing_mode="other")
    with pytest.raises(NotImplementedError, match="pre_dispatch"):
        make_fx(written, pre_dispatch=True)
    assert get_proxy_mode() is None


def test_fake_inputs():
    fake = pytest.importorskip("torchlike._subclasses.fake_tensor")
    w = torch.ones(3, 3, requires_grad=True)
    gm = make_fx(lambda x, w: torch.autograd.grad((x @ w).sum(), w)[0], tracing_mode="fake")(X, w)
    assert torch.equal(gm(X, w), X.t() @ torch.ones(2, 3))
    from torchlike import fx
    from torchlike.fx.passes.fake_tensor_prop import FakeTensorProp
    from torchlike.fx.passes.shape_prop import ShapeProp

    net = fx.symbolic_trace(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    assert isinstance(FakeTensorProp(net, mode).propagate(X), fake.FakeTensor)
    assert all(isinstance(n.meta["val"], fake.FakeTensor) for n in net.graph.nodes)
    assert isinstance(ShapeProp(net, fake.FakeTensorMode()).propagate(X), fake.FakeTensor)


def test_tensors_of_classes_show_what_they_make_of_calls():
    class Turned(torch.Tensor):
        @staticmethod
        def __new__(cls, inner):
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.inner.cos() if isinstance(a, cls) else a for a in args]
            return func(*plain, **(kwargs or {}))

    for call in (lambda x: Turned(x) * 2, lambda x: x * Turned(x)):
        gm = make_fx(call)(X)
        assert "cos" in gm.code and torch.equal(gm(X + 1), call(X + 1))


def test_values_that_a_run_decides_are_not_kept():
    def drawn():
        value = torch.tensor([2.0])
        value.normal_()
        return torch.full((2,), value.item())

    for call, given in ((drawn, ()), (lambda x: torch.allclose(x, x * 1), (X,))):
        with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
            make_fx(call)(*given)


def test_numbers_of_the_program_are_known_on_fake_tensors():
    def filled():
        value = torch.tensor(1.0)
        value.add_(2)
        return torch.full((2, 2), value)

    def item():
        (first,) = torch.unbind(torch.tensor([2]), 0)
        return first.item()

    made = make_fx(filled, tracing_mode="fake")()
    assert torch.equal(made(), filled()) and torch.equal(made(), filled())
    assert make_fx(item, tracing_mode="fake")()() == 2


def test_views_in_place_change_one_alias():
    def aliased(x):
        v = x * 2
        w = v.transpose(0, 0)
        w.unsqueeze_(-1)
        return w, v.mul_(3)

    def flat(x):
        v = x * 2
        v.unsqueeze_(0)
        return torch.dot(v.flatten(), v.flatten())

    x = torch.tensor([1.0, 2.0])
    first, second = make_fx(aliased)(x)(x + 1)
    assert (first.tolist(), second.tolist()) == ([[12.0], [18.0]], [12.0, 18.0])
    assert make_fx(flat)(x)(x + 1).item() == 52.0


def test_scalars_move_no_dimension_and_matrices_attend():
    made = make_fx(lambda x: x.sum().movedim(-1, 0) + 1)(X)
    assert made(X).item() == X.sum().item() + 1

    def attend(x):
        return nn.functional.scaled_dot_product_attention(x, x, x)

    torch.testing.assert_close(make_fx(attend)(X)(X + 1), attend(X + 1))
    assert "mm = mm.default(mul, mul_1)" in "\n".join(lines(make_fx(attend)(X)))


def test_constants_have_their_layout_and_are_saved(tmp_path):
    gm = make_fx(lambda x: x + torch.tensor([1.0, 2.0, 3.0]))(X)
    (kept,) = [n for n in gm.graph.nodes if n.op == "get_attr"]
    assert kept.meta["val"].shape == (3,) and type(kept.meta["val"]) is FakeTensor

    class Constant(nn.Module):
        def forward(self, x):
            return torch.tensor(2)

    torch.export.save(torch.export.export(Constant(), (X,)), tmp_path / "constant.pt2")
    assert torch.export.load(tmp_path / "constant.pt2").module()(X).item() == 2


def test_overloads_take_arguments_by_their_names():
    repeat, x = torch.ops.aten.repeat_interleave, torch.tensor([1, 2])
    assert (
        repeat.self_int(x, 2, 0).tolist()
        == repeat.self_int(self=x, repeats=2).tolist()
        == [1, 1, 2, 2]
    )
    assert repeat.self_Tensor(x, x, output_size=3).tolist() == [1, 2, 2]
    assert repeat.Tensor(x).tolist() == [0, 1, 1]


def aliases(x):
    y = x.sin()
    a, b = y.view(2, 3), y.view(2, 3)
    c = b.expand(2, 3).contiguous()
    d = a.add_(1).t().t()
    return a * b, c.detach() + d, y[:], c


def turned(x):
    y = (x * 2).t_().t_()
    return y.t().t() + y, y.squeeze_(0)


def inner(x):
    y = x * 1
    return torch.func.grad(lambda q: (q * y).sum())(y.view(2, 3))


def test_each_alias_has_a_node_of_its_own():
    assert lines(make_fx(aliases)(X)) == [
        "sin = sin.default(x_1)",
        "view = view.default(sin, [2, 3])",
        "view_1 = view.default(sin, [2, 3])",
        "expand = expand.default(view_1, [2, 3])",
        "add_ = add_.Tensor(view, 1)",
        "t = t.default(add_)",
        "t_1 = t.default(t)",
        "mul = mul.Tensor(add_, view_1)",
        "detach = detach.default(expand)",
        "add = add.Tensor(detach, t_1)",
        "slice_1 = slice.Tensor(sin, 0, 0, 9223372036854775807)",
        "return (mul, add, slice_1, expand)",
    ]
    assert lines(make_fx(turned)(X))[3:] == [
        "t = t.default(t__1)",
        "t_1 = t.default(t)",
        "add = add.Tensor(t_1, t__1)",
        "squeeze_ = squeeze_.dim(t__1, 0)",
        "return (add, squeeze_)",
    ]
    found = lines(make_fx(inner)(X))
    assert found[1:3] == ["view = view.default(mul, [2, 3])", "mul_1 = mul.Tensor(view, mul)"]
    assert found[-2:] == ["mul_2 = mul.Tensor(expand, mul)", "return mul_2"]


def test_a_range_alone_is_a_slice():
    x = X.clone().requires_grad_()
    assert x[:].grad_fn.name() == "SliceBackward0"
    assert x[:,].grad_fn.name() == x[:, :].grad_fn.name() == "AliasBackward0"


def test_gradients_are_computed_in_order():
    x, y = X.clone().requires_grad_(), X.cos().requires_grad_()

    def last(f, *of):
        return lines(make_fx(lambda x, y: torch.autograd.grad(f(x, y).sum(), of or (x, y)))(x, y))

    assert last(lambda x, y: x * y)[-3:] == [
        "mul_1 = mul.Tensor(expand, x_1)",
        "mul_2 = mul.Tensor(expand, y_1)",
        "return (mul_2, mul_1)",
    ]
    assert last(torch.maximum)[4:8] == [
        "div = div.Scalar(expand, 2)",
        "eq = eq.Tensor(x_1, y_1)",
        "where = where.self(eq, div, expand)",
        "gt = gt.Tensor(x_1, y_1)",
    ]
    shared = last(lambda x, y: torch.lerp(x, x * 2, y), x)
    assert "empty_like = empty_like.default(y_1, memory_format = torch.preserve_format)" in shared
    assert "sub_ = sub_.Tensor(fill_, y_1)" in shared
    bounded = last(lambda x, y: (x * y).clamp(min=0))
    assert bounded[5].startswith("scalar_tensor = scalar_tensor.default(0.0")
    assert bounded[6] == "ge = ge.Scalar(mul, 0)"
    assert "select_1 = select.int(expand, 0, 1)" in last(lambda x, y: torch.stack([x, y]))


def test_functional_graphs_are_named_as_they_run():
    def twice(x):
        y = x.clone()
        v = y.view(3, 2)
        v.t().add_(1)
        return v.sin(), v.cos(), y

    assert lines(make_fx(torch.func.functionalize(twice))(X))[3:] == [
        "add = add.Tensor(t, 1)",
        "view_1 = view.default(clone, [3, 2])",
        "t_1 = t.default(add)",
        "view_2 = view.default(t_1, [2, 3])",
        "view_3 = view.default(view_2, [3, 2])",
        "t_2 = t.default(view_3)",
        "view_4 = view.default(view_2, [3, 2])",
        "sin = sin.default(view_4)",
        "cos = cos.default(view_4)",
        "return (sin, cos, view_2)",
    ]


class Inner(nn.Module):
    def forward(self, x):
        return x + 1


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * self.inner(x)


def test_nodes_are_told_their_modules():
    model = Outer()

    def run(x):
        return model(x)

    run._orig_mod = model
    graph = make_fx(run, record_module_stack=True)(X).graph
    found = [list(n.meta["nn_module_stack"]) for n in graph.nodes if n.op == "call_function"]
    assert found == [["", "inner"], ["", "inner@1"], [""]]
    for plain in (make_fx(run)(X), make_fx(model, record_module_stack=True)(X)):
        assert not any("nn_module_stack" in n.meta for n in plain.graph.nodes)


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_values_on_nodes_are_fake_tensors_of_one_mode(mode):
    gm = make_fx(nn.Linear(3, 4), tracing_mode=mode)(torch.ones(2, 3))
    values = [n.meta["val"] for n in gm.graph.nodes if n.op != "output"]
    assert [tuple(v.shape) for v in values] == [(2, 3), (4, 3), (3, 4), (4,), (2, 4)]
    assert all(type(v) is FakeTensor and v.device.type == "cpu" for v in values)
    assert len({id(v.fake_mode) for v in values}) == 1


def test_matrices_that_want_gradients_are_joined_with_batches():
    def names(w, x):
        gm = make_fx(torch.matmul)(w, x)
        return [n.name for n in gm.graph.nodes if n.op == "call_function"]

    x, w = torch.ones(2, 5, 3), torch.ones(4, 5)
    assert "bmm" in names(w, x) and "mm" in names(w.requires_grad_(), x)
    assert "mv" in names(torch.ones(5, requires_grad=True), x)
    made = make_fx(torch.matmul)(w, x)(w, x)
    assert made.is_contiguous() and torch.equal(made, torch.matmul(w, x))


def test_attention_of_16_bits_is_computed_in_single_precision():
    q = torch.ones(2, 3, 4, 8, dtype=torch.bfloat16, device="meta")
    gm = make_fx(torch.nn.functional.scaled_dot_product_attention)(q, q, q)
    kinds = {n.name: n.meta["val"].dtype for n in gm.graph.nodes if n.op == "call_function"}
    assert kinds["bmm"] == kinds["bmm_1"] == kinds["_safe_softmax"] == torch.float32
    assert list(kinds.values())[-1] == torch.bfloat16
