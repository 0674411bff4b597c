"""What writes do to the history of views, and which of them are refused."""

from __future__ import annotations

import gc
import weakref

import pytest

import torchlike as torch
from derivatives import leaf


def names(t, depth=3):
    """The graph as nested names."""

    def of(node, depth):
        if node is None:
            return "None"
        below = [of(n, depth - 1) for n, _ in node.next_functions] if depth else []
        return node.name().replace("torch::autograd::", "") + (
            f"({', '.join(below)})" if below else ""
        )

    return of(t.grad_fn, depth)


class TestWrites:
    def test_through_views_of_other_types(self):
        z = torch.tensor([1 + 0j, 2 + 0j], requires_grad=True)
        b = z.clone()
        r = torch.view_as_real(b)
        r.mul_(2)
        assert names(r, 1) == "ViewAsRealBackward0(CopySlices)"
        b.real.sum().backward()
        assert z.grad.tolist() == [2, 2]

    @pytest.mark.parametrize("part", ["real", "imag"])
    def test_through_parts_of_complex_numbers(self, part):
        z = torch.tensor([1 + 2j, 2 + 3j], requires_grad=True)
        b = z.clone()
        getattr(b, part).mul_(3)
        b.real.sum().backward()
        assert z.grad.tolist() == ([3, 3] if part == "real" else [1, 1])

    def test_through_conjugates_and_complex_views(self):
        z = torch.tensor([1 + 2j], requires_grad=True)
        b = z.clone()
        b.conj().mul_(2j)
        b.imag.sum().backward()
        assert z.grad.tolist() == [-2 + 0j]
        x = leaf(1.0, 2.0, 3.0, 4.0)
        b = x.clone()
        torch.view_as_complex(b.view(2, 2)).mul_(2)
        (b * b).sum().backward()
        assert x.grad.tolist() == [8, 16, 24, 32]

    def test_without_history_give_views_a_new_one(self):
        x = leaf(1.0, 2.0)
        for base in (x, x * 1):
            v = base[:1]
            with torch.no_grad():
                base.add_(1)
            assert v.grad_fn.name() == "AsStridedBackward0"
            assert (
                v.grad_fn.next_functions[0][0] is torch.autograd.graph.get_gradient_edge(base).node
            )

    def test_of_one_view_are_seen_by_all(self):
        b = leaf(1.0, 2.0, 3.0, 4.0).clone()
        v, w = b.view(2, 2), b[1:]
        v[0] = 100
        assert w.tolist() == [100, 3, 4]
        assert names(w) == "AsStridedBackward0(CopySlices(CloneBackward0(AccumulateGrad), None))"

    def test_second_derivatives(self):
        x = leaf(1.0, 2.0)
        for write, first, second in (
            (lambda v, x: v.mul_(x[:1]), [4, 4], [12, 2]),
            (lambda v, x: v.exp_(), [2 * torch.tensor(2.0).exp().item(), 4], None),
        ):
            b = x.clone()
            write(b[:1], x)
            (g,) = torch.autograd.grad((b * b).sum(), x, create_graph=True)
            assert g.tolist() == pytest.approx(first)
            (h,) = torch.autograd.grad(g.sum(), x)
            assert h.tolist() == pytest.approx(second or [4 * torch.tensor(2.0).exp().item(), 2])

    def test_have_names_of_their_own(self):
        b = torch.ones(2, 2, requires_grad=True).clone()
        for write, name in (
            (lambda: b.t_(), "TBackward1"),
            (lambda: b.unsqueeze_(0), "UnsqueezeBackward1"),
            (lambda: b.squeeze_(0), "SqueezeBackward4"),
            (lambda: b.transpose_(0, 1), "TransposeBackward1"),
            (lambda: b.fill_(2), "FillBackward2"),
            (lambda: b.fill_(torch.tensor(2.0)), "FillBackward3"),
            (lambda: torch.nn.functional.leaky_relu_(b), "LeakyReluBackward1"),
            (lambda: torch.nn.functional.elu_(b), "EluBackward1"),
            (lambda: b.conj_physical_(), "ConjPhysicalBackward1"),
        ):
            write()
            assert b.grad_fn.name() == name

    def test_see_how_the_tensor_lies_now(self):
        for x in (torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)):
            b = x.clone()
            b.t_()
            b.unsqueeze_(0)
            v = b[0, 1]
            v.mul_(leaf(2.0, 3.0))
            assert b.shape == (1, 3, 2)
            (b * b).sum().backward()
            if x.requires_grad:
                assert x.grad.tolist() == [[2, 8, 2], [2, 18, 2]]

    def test_detach_ends_the_history_of_what_was_written(self):
        b = torch.zeros(2)
        b.mul_(leaf(1.0, 2.0))
        b.detach_()
        assert not b.requires_grad
        assert b.grad_fn is None


NO_GRAD = "A view was created in no_grad mode and {} modified inplace with grad mode enabled"
SEVERAL = "This view is the output of a function that returns multiple views"


class TestMarks:
    @pytest.mark.parametrize(
        "views",
        [
            lambda b: b.split(1),
            lambda b: b.chunk(2),
            lambda b: b.unbind(),
            lambda b: tuple(b),
            lambda b: [v[:] for v in b.view(2, 1).split(1)],
        ],
    )
    def test_of_several_views(self, views):
        with pytest.raises(RuntimeError, match=SEVERAL):
            views(leaf(1.0, 2.0).clone())[0].mul_(2)
        with pytest.raises(RuntimeError, match=SEVERAL):
            views(leaf(1.0, 2.0))[0].mul_(2)
        b = torch.zeros(2)
        part = views(b)[0]
        b.mul_(leaf(1.0, 2.0))
        with pytest.raises(RuntimeError, match="its base or another view of its base has been"):
            part * 2

    def test_of_views_made_without_gradients(self):
        b = leaf(1.0, 2.0, 3.0).clone()
        with torch.no_grad():
            v = b[:2]
        assert v.requires_grad
        assert v.is_leaf
        assert v.grad_fn is None
        assert (v * 2).grad_fn.next_functions[0] == (None, 0)
        with pytest.raises(RuntimeError, match=NO_GRAD.format("is being")):
            v.mul_(2)
        with pytest.raises(RuntimeError, match="Output 0 of Slice is a view of a view which was"):
            v[:1].mul_(2)
        with torch.no_grad():
            v.mul_(2)
        around = NO_GRAD.format("its base or another view of its base has been")
        with pytest.raises(RuntimeError, match=around):
            v.grad_fn  # noqa: B018
        assert b.tolist() == [2, 4, 3]

    def test_of_views_made_in_inference_mode(self):
        b = leaf(1.0, 2.0).clone()
        with torch.inference_mode():
            v = b[:1]
        assert not v.is_inference()
        with pytest.raises(
            RuntimeError, match="inference mode and is being modified inplace in normal"
        ):
            v.add_(1)

    def test_of_what_functions_make(self):
        class View(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view(2, 1)

            @staticmethod
            def backward(ctx, g):
                return g.view(2)

        x = leaf(1.0, 2.0)
        y = View.apply(x)
        assert y._is_view()
        assert y._base is x
        with pytest.raises(
            RuntimeError, match="Output 0 of View is a view and is being modified"
        ) as e:
            y.add_(1)
        assert "This view was created inside a custom Function" in str(e.value)

    def test_without_history_are_allowed(self):
        a, b = torch.zeros(2).split(1)
        a.add_(1)
        with torch.no_grad():
            v = torch.zeros(2)[:1]
        v.add_(1)
        assert (a.item(), b.item(), v.item()) == (1, 0, 1)


class TestBase:
    def test_is_the_tensor_itself(self):
        b = leaf(1.0, 2.0, 3.0, 4.0).clone()
        views = [
            b[0],
            b[1:][:1],
            b.view(2, 2).T,
            b.split(2)[1],
            *b,
            b.narrow(0, 1, 1),
            b.expand(2, 4),
        ]
        assert all(v._base is b for v in views)
        assert all(t._base is None for t in (b, b.clone(), b.detach()))

    def test_lives_as_long_as_its_views(self):
        b = torch.zeros(2)
        v, alive = b[:1], weakref.ref(b)
        del b
        assert alive() is v._base
        del v
        assert alive() is None

    def test_in_a_cycle_is_freed(self):
        b = torch.zeros(2)
        b.view_of_it, alive = b[:1], weakref.ref(b)
        del b
        gc.collect()
        assert alive() is None


class TestInference:
    def test_tensors_keep_to_the_mode(self):
        with torch.inference_mode():
            a = torch.ones(2, 2)
            a.add_(1)
            with torch.enable_grad():
                assert not (leaf(1.0) * 2).requires_grad
        for write in (lambda: a.add_(1), lambda: a[0].add_(1), lambda: a.zero_()):
            with pytest.raises(
                RuntimeError, match="Inplace update to inference tensor outside InferenceMode"
            ):
                write()
        with pytest.raises(RuntimeError, match="do not track version counter"):
            a._version  # noqa: B018
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
            a.requires_grad_()

    def test_generators_see_their_own_mode(self):
        @torch.no_grad()
        def numbers():
            try:
                got = yield torch.is_grad_enabled()
                yield got, torch.is_grad_enabled()
            except KeyError:
                yield torch.is_grad_enabled()
            return 5

        run = numbers()
        assert next(run) is False and torch.is_grad_enabled()
        assert run.send(3) == (3, False)
        assert run.throw(KeyError()) is False
        with pytest.raises(StopIteration) as end:
            next(run)
        assert end.value.value == 5


def test_parts_of_an_unsafe_split_have_histories_of_their_own():
    """PyTorch's outputs of `unsafe_split` are no views to autograd: each is written as if it had its own memory."""
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    whole = (x * 1).add_(x)
    a, b, c = whole.unsafe_chunk(3, 1)
    a.mul_(3)
    b.exp_()
    (a + b * c).sum().backward()
    y = x.detach().clone().requires_grad_()
    a, b, c = (2 * y).chunk(3, 1)
    (3 * a + b.exp() * c).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("cell", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_recurrent_networks_write_their_gates_in_place(cell):
    """The gates of a step share the memory of one product: that is what PyTorch's cells save for the gradient."""
    net = cell(3, 4, dtype=torch.float64)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: net(v)[0], (x,))
    kept = set()
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: kept.add(t.untyped_storage()._cdata) or t, lambda t: t
    ):
        net(x)
    named = {p.untyped_storage()._cdata for p in net.parameters()}
    each = {torch.nn.GRU: 5, torch.nn.LSTM: 4, torch.nn.RNN: 1}[cell]
    assert len(kept - named) <= 5 * each + 2


@pytest.mark.parametrize("tracked", [False, True])
def test_results_that_nobody_else_sees_are_no_views(tracked):
    x, w = (torch.randn(s, requires_grad=True) for s in ((3, 4, 5), (5, 2)))
    with torch.set_grad_enabled(tracked):
        made = [
            x @ w,
            x.transpose(0, 1).reshape(4, 15),
            torch.kron(w, w),
            torch.ops.aten._unsafe_view(x * 1, [12, 5]),
            torch.unsafe_split(x, 1)[0],
        ]
        for t in made:
            assert not t._is_view() and t._base is None and t._version == 0
            assert (t.grad_fn is not None) == tracked
    if tracked:
        made[0].add_(1)
        assert names(made[0], 1) == "AddBackward0(UnsafeViewBackward0, None)"
        product = x @ w
        kept = product.exp()
        kept.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            kept.sum().backward()
    made[1].detach_()
    assert made[1].is_leaf


@pytest.mark.parametrize(
    "part",
    [lambda x: x.diagonal(), lambda x: x[0], lambda x: x[:, 1:], lambda x: x.unfold(0, 2, 1)],
)
def test_jacobians_of_jacobians_go_through_views(part):
    x = torch.randn(3, 3, dtype=torch.float64)
    jacrev, jacfwd = torch.func.jacrev, torch.func.jacfwd

    def squares(x):
        return part(x) ** 2

    made = jacrev(jacrev(squares))(x)
    assert torch.equal(made, jacfwd(jacfwd(squares))(x))
    value, _ = torch.func.vjp(lambda x: part(jacrev(squares)(x)), x)
    assert value.numel() > 0 and value.grad_fn is None


@pytest.mark.parametrize("first", [True, False])
def test_a_view_keeps_its_gradient_after_a_write_through_another(first):
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    v, w = y[:2], y[:1]
    if first:
        v.retain_grad()
    w.mul_(3)
    if not first:
        v.retain_grad()
    (v * 2).sum().backward(retain_graph=True)
    assert v.grad.tolist() == [2.0, 2.0] and x.grad.tolist() == [6.0, 2.0, 0.0, 0.0]
    y.mul_(2)
    (v * v.detach()).sum().backward()
    assert v.retains_grad and v.grad.tolist() == [8.0, 4.0]


def test_a_view_that_is_cut_off_is_still_read():
    p = torch.nn.Parameter(torch.zeros(3))
    with torch.no_grad():
        v = p.unsqueeze(0)
        v.add_(1)
    assert v.detach().tolist() == v.data.tolist() == [[1.0, 1.0, 1.0]]
    assert v.argmax() == 0 and v.contiguous().data_ptr() == p.data_ptr()
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        v * 2


def test_a_view_made_without_gradients_asks_the_base():
    t = torch.ones(6).reshape(2, 3).requires_grad_()
    with torch.no_grad():
        parts = [t[..., :1], *t.split(1), t.view(-1)[1:]]
    assert [p.requires_grad for p in parts] == [False] * 4
    with torch.no_grad():
        assert torch.ones(6, requires_grad=True).reshape(3, 2)[0].requires_grad
    assert t[0].requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float16, torch.int32])
def test_memory_read_as_another_dtype_has_no_history(dtype):
    base = torch.arange(8.0).reshape(4, 2)
    whole = torch.arange(8.0).reshape(4, 2).requires_grad_()
    for t in (
        torch.view_as_complex(base).reshape(2, 2).requires_grad_(),
        base[1:].requires_grad_(),
        whole,
        whole * 2,
    ):
        made = t.view(dtype)
        assert not made.requires_grad and made.grad_fn is None and not made._is_view()
        assert made.data_ptr() == t.data_ptr()
    product = whole * 2
    ints, before = product.view(torch.int32), product._version
    product.add_(1)
    assert ints._version == before + 1


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t[1:],
        lambda t: t.t(),
        lambda t: t[0].unsqueeze(0),
        lambda t: t.conj()[1:],
        lambda t: t.conj().imag,
    ],
)
def test_a_view_is_made_again_of_another_tensor(view):
    made = torch.arange(6.0).reshape(2, 3)
    base, other = torch.complex(made, made), torch.complex(made * 2, made - 1).requires_grad_()
    again = view(base)._view_func(other)
    assert again.equal(view(other))
    assert (again.is_conj(), again.is_neg()) == (view(other).is_conj(), view(other).is_neg())
    assert again.requires_grad
    assert view(base)._view_func(other[0]) is None
    assert base._view_func(other) is None


def test_a_tensor_with_a_plus_is_itself():
    x = torch.ones(2)
    assert +x is x and torch.positive(x) is x
