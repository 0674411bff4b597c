"""Walks back where few go: hooks of results without gradients, nodes that are called, threads, views moved."""

from __future__ import annotations

import gc
import sys
import threading
import warnings
import weakref

import pytest

import torchlike as torch
import torchlike.autograd.forward_ad as fw
import torchlike.nn.functional as F
from derivatives import leaf, made


def clone(ctx, x):
    return x.clone()


def saved(ctx, x):
    ctx.save_for_backward(x)
    return x.clone()


class TestHooks:
    def test_results_without_gradients_are_told(self):
        x = torch.arange(3.0, requires_grad=True)
        first, second, _ = x.unbind()
        seen = []
        first.register_hook(seen.append)
        second.backward()
        assert seen == [None]
        first.backward()
        assert seen[1].item() == 1.0

    def test_nothing_takes_the_place_of_no_gradient(self):
        x = torch.arange(2.0, requires_grad=True)
        first, second = x.unbind()
        first.register_hook(lambda grad: torch.ones(()))
        with pytest.raises(RuntimeError, match="can't replace a None gradient"):
            second.backward()

    def test_places_that_do_not_run_tell_nobody(self):
        x = leaf(2.0)
        y = x.clone()
        x.register_hook(lambda grad: pytest.fail("told"))
        y.sum().backward(inputs=[y])
        assert y.grad.item() == 1.0 and x.grad is None

    def test_inputs_of_backward_run_whole(self):
        runs = []

        def counted(ctx, grad):
            runs.append(grad)
            return grad

        y = made(clone, counted)(leaf(2.0))
        y.backward(inputs=[y])
        assert len(runs) == 1

    def test_order_at_a_leaf(self):
        t = torch.rand(3, requires_grad=True)
        gathers = t.view_as(t).grad_fn.next_functions[0][0]
        t.register_hook(lambda grad: grad.sub(2.0))
        gathers.register_prehook(lambda grads: (grads[0].div(5.0),))

        def kept(t):
            t.grad.add_(0.5)

        t.register_post_accumulate_grad_hook(kept)

        def last(grads, others):
            t.grad = others[0].mul(10)

        gathers.register_hook(last)
        t.sum().backward()
        # ((1 - 2) / 5 + 0.5) * 10: who looks after the leaf sees the gradient that it keeps.
        assert torch.allclose(t.grad, torch.full((3,), 3.0))

    def test_prehooks_see_all_outputs_of_a_function(self):
        def forward(ctx, x, a, y):
            ctx.a = a
            return a * x, a, a * y

        def backward(ctx, g1, none, g2):
            assert none is None
            return ctx.a * g1, None, ctx.a * g2

        seen = []
        x, y = leaf(1.0), leaf(2.0)
        first, _, last = made(forward, backward)(x, 3, y)
        first.grad_fn.register_prehook(seen.extend)
        (first + last).backward()
        assert [g is None for g in seen] == [False, True, False]
        assert (x.grad.item(), y.grad.item(), last.output_nr) == (3.0, 3.0, 2)

    def test_cycles_through_hooks_are_collected(self):
        def cycle():
            node = leaf(1.0).clone().grad_fn
            kept = type("Kept", (), {})()
            node.register_hook(lambda *_: (node, kept))
            return weakref.ref(kept)

        gone = cycle()
        gc.collect()
        assert gone() is None

    def test_collections_while_functions_are_called(self):
        same = made(clone)
        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            y = leaf(1.0)
            for _ in range(200):
                y = same(y)
        finally:
            gc.set_threshold(*before)
        y.backward()


class TestNodes:
    def test_a_node_can_be_called(self):
        y = leaf(3.0) ** 2
        assert y.grad_fn(torch.tensor(1.0)).item() == 6.0
        mean = torch.stack([leaf(1.0), leaf(2.0)]).grad_fn
        assert [g.item() for g in mean(torch.tensor([5.0, 7.0]))] == [5.0, 7.0]
        with pytest.raises(TypeError, match="expected 1 arguments, got 2 instead"):
            y.grad_fn(torch.tensor(1.0), torch.tensor(1.0))
        with pytest.raises(TypeError, match="expected Variable or None"):
            y.grad_fn(1.0)

    def test_edges_are_checked_as_tensors_are(self):
        x = leaf(1.0)
        y = x.clone()
        edge = torch.autograd.graph.get_gradient_edge(y)
        with pytest.raises(RuntimeError, match=r"Mismatch in shape.*GradientEdge\[0\]"):
            torch.autograd.grad(edge, x, torch.ones(4))
        unused = torch.autograd.graph.get_gradient_edge(leaf(1.0).clone())
        with pytest.raises(RuntimeError, match="materialize_grads cannot be used"):
            torch.autograd.grad(y, (x, unused), materialize_grads=True)

    def test_passes_inside_one_another_end(self):
        def forward(ctx, x):
            ctx.x = x.detach() - 1
            return ctx.x.clone()

        def backward(ctx, grad):
            if ctx.x > 0:
                with torch.enable_grad():
                    deep(ctx.x.requires_grad_()).sum().backward()
            return grad

        deep = made(forward, backward)
        deep(leaf(20.0)).backward()
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(20_000)
        try:
            with pytest.raises(RuntimeError, match="more than 100 backward passes"):
                deep(leaf(400.0)).backward()
        finally:
            sys.setrecursionlimit(before)


def test_threads_share_a_graph():
    began, met, ended = (threading.Event() for _ in range(3))
    found = {}

    def backward(ctx, grad):
        # The walk that holds the graph ends while the other one is in the middle of it.
        if threading.current_thread().name == "first":
            began.set()
            assert met.wait(timeout=10)
        else:
            met.set()
            assert ended.wait(timeout=10)
        return grad

    x = torch.ones(3, requires_grad=True)
    out = (made(clone, backward)(x * 2) * 3).sum()

    def walk():
        (grad,) = torch.autograd.grad(out, x, retain_graph=True)
        found[threading.current_thread().name] = grad.tolist()

    first, second = (threading.Thread(target=walk, name=name) for name in ("first", "second"))
    first.start()
    assert began.wait(timeout=10)
    second.start()
    first.join()
    ended.set()
    second.join()
    assert found == {"first": [6.0] * 3, "second": [6.0] * 3}


class TestFunctions:
    def test_views_of_inputs_where_gradients_are_off(self):
        x = torch.rand(2, requires_grad=True)
        with torch.no_grad():
            y, z = made(lambda ctx, x: x[:])(x), x[:]
        assert y.requires_grad == z.requires_grad
        with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
            y.zero_()

    def test_what_is_marked_dirty_is_an_input(self):
        def forward(ctx, x):
            y = 3 * x
            ctx.mark_dirty(y)
            return y

        with pytest.warns(
            UserWarning, match=r"Only input Tensors should be given to ctx.mark_dirty"
        ):
            made(forward)(leaf(1.0))

    def test_jvp_sees_what_was_saved_for_it(self):
        def backward(ctx, grad):
            return grad * len(ctx.saved_tensors)

        def jvp(ctx, tangent):
            assert ctx.saved_tensors == ()
            return tangent

        x = leaf(1.0)
        with fw.dual_level():
            made(saved, backward, jvp=jvp)(fw.make_dual(x, torch.ones_like(x))).backward()
        assert x.grad.item() == 1.0

    @pytest.mark.parametrize(
        ("tangent", "text"),
        [
            (lambda t: t.clone(), "the jvp is not returning a view"),
            (lambda t: t.clone()[:], "a view of the given grad input"),
        ],
    )
    def test_tangents_of_views_are_views(self, tangent, text):
        part = made(lambda ctx, x: x[:2], jvp=lambda ctx, t: tangent(t[:2]))
        with fw.dual_level(), pytest.raises(RuntimeError, match=text):
            part(fw.make_dual(torch.ones(3), torch.ones(3)))


class TestViews:
    @pytest.mark.parametrize("move", ["t_", "squeeze_", "unsqueeze_"])
    def test_moved_in_place_without_history(self, move):
        base = torch.rand(2, 3, requires_grad=True).clone()
        view = base.view_as(base)
        with torch.no_grad():
            getattr(view, move)(*((0,) if move == "unsqueeze_" else ()))
        view.add_(1)
        several = base.unbind()[0]
        with torch.no_grad():
            several.unsqueeze_(0)
        with pytest.raises(RuntimeError, match="returns multiple views"):
            several.add_(1)

    def test_views_made_before_a_leaf_wants_a_gradient(self):
        a = torch.zeros(2, 3)
        b = a[:]
        a.requires_grad = True
        assert b.requires_grad and b.is_leaf
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
            b.add_(5)

    def test_views_of_inference_tensors(self):
        with torch.inference_mode():
            c = torch.ones(2, 3, requires_grad=True)
            inside = c.view(-1)
        for view in (inside, c.view(-1)):
            assert view.is_inference() and not view.requires_grad and not view._is_view()

    def test_copies_of_real_numbers_do_not_warn(self):
        x = torch.ones(2, dtype=torch.float64, requires_grad=True)
        to = torch.zeros(2, dtype=torch.complex128)
        to.copy_(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            to.sum().abs().backward()
        assert x.grad.tolist() == [1.0, 1.0]


class TestInPlace:
    @pytest.mark.parametrize(
        "call",
        [lambda x: F.leaky_relu_(x, 0.1), F.elu_, torch.celu_, torch.selu_],
        ids=["leaky_relu", "elu", "celu", "selu"],
    )
    def test_saves_what_it_wrote(self, call):
        x = torch.tensor([-1.5, -0.5, 2.0], dtype=torch.float64, requires_grad=True)
        y = call(x.clone())
        assert y.grad_fn._saved_result.data_ptr() == y.data_ptr()
        assert torch.autograd.gradcheck(lambda x: call(x.clone()), x)

    def test_slopes_that_cannot_be_undone(self):
        x = torch.tensor([-1.0, 1.0], requires_grad=True)
        with pytest.raises(RuntimeError, match="call out-of-place version"):
            F.leaky_relu_(x.clone(), -2).sum().backward()


class TestDuals:
    def test_no_results_are_written_into_duals(self):
        plain = torch.rand(2)
        with fw.dual_level():
            dual = fw.make_dual(torch.rand(2), torch.rand(2))
            for x, y, out in ((plain, plain, dual), (dual, plain, plain.clone())):
                with pytest.raises(NotImplementedError, match="out= function"):
                    torch.add(x, y, out=out)
            with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
                fw.make_dual(plain, dual)

    def test_tangents_lie_as_their_primals(self):
        primal, tangent = torch.randn(5)[:4], torch.randn(4)
        kept = tangent.clone()
        with fw.dual_level():
            dual = fw.make_dual(primal, tangent)
            fw.unpack_dual(dual).tangent.mul_(2)
            assert torch.equal(tangent, kept)
            assert dual.as_strided((5,), (1,), 0).shape == (5,)


def test_anomalies_tell_what_induced_them():
    inner = made(clone, lambda ctx, grad: grad * float("nan"), name="Inner")
    outer = made(saved, lambda ctx, grad: inner(grad * ctx.saved_tensors[0]), name="Outer")

    def run():
        x = leaf(1.0)
        (made,) = torch.autograd.grad(outer(x * x), x, create_graph=True)
        made.backward()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with (
            pytest.raises(RuntimeError, match="returned nan values"),
            torch.autograd.detect_anomaly(),
        ):
            run()
    texts = [str(w.message) for w in told]
    assert "Error detected in InnerBackward" in texts[1] and "inner(grad" in texts[1]
    assert "induced by OuterBackward" in texts[2] and "outer(x" in texts[2]


def test_anomalies_are_printed_where_warnings_are_errors(capsys):
    def run():
        with torch.autograd.detect_anomaly():
            warnings.simplefilter("error")
            x = leaf(1.0) + 1
            y = x**2
            x += 1
            y.backward()

    with (
        pytest.raises(RuntimeError, match="modified by an inplace operation"),
        warnings.catch_warnings(),
        pytest.warns(UserWarning, match="Anomaly"),
    ):
        run()
    assert "Error detected in PowBackward0" in capsys.readouterr().err


@pytest.mark.parametrize("early", [True, False])
def test_checkpoints_with_gradients_inside(early):
    from torchlike.utils.checkpoint import checkpoint, set_checkpoint_early_stop

    def part(x):
        a = x.sin().exp().sin()
        torch.autograd.grad(a, x)
        return x.sin()

    x = leaf(0.3)
    with set_checkpoint_early_stop(early):
        y = checkpoint(part, x, use_reentrant=False)
    y.backward()
    assert torch.equal(x.grad, x.detach().cos())


def names(node, depth=3):
    """A graph as names, of leaves their word alone."""
    if node is None or depth == 0:
        return ""
    if node.name() == "torch::autograd::AccumulateGrad":
        return "leaf"
    below = ",".join(names(n, depth - 1) for n, _ in node.next_functions)
    return node.name().removesuffix("Backward0") + (f"({below})" if below.strip(",") else "")


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda x, q: x.__rsub__(x.exp()), "Rsub(leaf,Exp(leaf))"),
        (lambda x, q: F.hinge_embedding_loss(x, x.detach(), reduction="none"), "Add(Where(ClampMin,),Where(leaf,))"),
        (lambda x, q: torch.rand(4, 2, 2) @ q[None], "UnsafeView(Mm(,SqueezeBackward1))"),
        (lambda x, q: torch.linalg.matrix_power(q, 3), "Mm(Mm(leaf,leaf),leaf)"),
        (lambda x, q: torch.linalg.multi_dot([q, q, q]), "View(Mm(Mm,leaf))"),
        (lambda x, q: F.rms_norm(x, (2,)), "Mul(leaf,Rsqrt(AddBackward1))"),
        (lambda x, q: torch.nn.RNN(2, 2)(x[None])[0], "Stack(Tanh(Add))"),
        (lambda x, q: F.affine_grid(q[None, :, :1].expand(1, 2, 3), (1, 1, 2, 2), False),
         "AffineGridGenerator(Expand(Slice))"),
    ],
)  # fmt: skip
def test_graphs_are_those_of_what_calls_come_down_to(call, wanted):
    x, q = (torch.ones(2, 2, requires_grad=True) for _ in range(2))
    assert names(call(x, q).grad_fn) == wanted


def test_writes_in_place_of_other_shapes_are_refused_before_types():
    x = torch.ones(2, 1, dtype=torch.float16)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.bitwise_xor_(torch.ones(2, 3, dtype=torch.float16))
    y = torch.ones(4)[:2].requires_grad_()
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        y.add_(1)


@pytest.mark.parametrize(
    "freeze",
    [
        lambda x: x.requires_grad_(False),
        lambda x: setattr(x, "requires_grad", False),
        lambda x: x.detach_(),
    ],
)
def test_a_leaf_that_was_frozen_gathers_nothing(freeze):
    x, w = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    (x * w).sum().backward()
    seen = []
    x.register_hook(seen.append)
    loss, again = (2 * x * w).sum(), (3 * x * w).sum()
    freeze(x)
    loss.backward()
    assert x.grad.tolist() == [1.0, 1.0] and w.grad.tolist() == [3.0, 3.0] and len(seen) == 1
    x.requires_grad_()
    again.backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_gradients_of_convolutions_have_pytorchs_name():
    x, w = torch.ones(1, 1, 4).requires_grad_(), torch.ones(1, 1, 2).requires_grad_()
    for wanted in (x, w):
        total = F.conv1d(x, w).pow(2).sum()
        (grad,) = torch.autograd.grad(total, wanted, create_graph=True)
        assert grad.grad_fn.name() == "ConvolutionBackwardBackward0"


def test_an_unused_logarithm_leaves_no_gradient():
    a = leaf([2.0, 1], [0.0, 3])
    torch.linalg.slogdet(a).sign.backward()
    assert a.grad is None
    torch.linalg.slogdet(a).logabsdet.backward()
    assert a.grad is not None


def test_comparing_a_view_that_lost_its_history():
    base = leaf(1.0, 2) * 2
    with torch.no_grad():
        view = base.view(-1)
    base.mul_(2)
    assert (view == 8).tolist() == [False, True] and (view > 4).tolist() == [False, True]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        view + 1


def test_the_gradient_of_sampled_images_leads_to_them():
    image = leaf([[[1.0, 2], [3, 4]]])
    found = F.grid_sample(image, torch.zeros(1, 1, 1, 2), align_corners=False)
    (grad,) = torch.autograd.grad(found.sum(), image, create_graph=True)
    assert grad.requires_grad and grad.tolist() == [[[[0.25, 0.25], [0.25, 0.25]]]]
    grad.sum().backward()
    assert not image.grad.any()


@pytest.mark.parametrize(
    ("call", "shape"),
    [(lambda x: x.resize_(1, 2), (1, 2)), (lambda x: x.resize_as_(torch.ones(3, 2)), (3, 2))],
)
def test_what_nobody_records_is_resized_in_inference_mode(call, shape):
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        call(x)
    with torch.inference_mode():
        x = torch.ones(2, requires_grad=True)
        assert call(x).shape == shape and x.requires_grad
