"""What is built upon gradients: products and matrices of derivatives, checkpoints, checks."""

from __future__ import annotations

import warnings

import pytest

import torchlike as torch
from derivatives import leaf
from torchlike.autograd import Function
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils.checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointError,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)


class Wrong(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


class WrongTangent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 3


class Entries(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        return grad.to_sparse()


class WantsAll(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            raise RuntimeError("no gradient")
        return grad * 2


class TestFunctional:
    def test_products(self):
        functional = torch.autograd.functional
        x, v = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0])
        assert functional.vjp(lambda t: t**2, x, v)[1].tolist() == [2, 40]
        assert functional.jvp(lambda t: t**2, x, v)[1].tolist() == [2, 40]
        assert functional.hvp(lambda t: (t**3).sum(), x, v)[1].tolist() == [6, 120]
        assert functional.vhp(lambda t: (t**3).sum(), x, v)[1].tolist() == [6, 120]
        with pytest.raises(RuntimeError, match="invalid size"):
            functional.vjp(lambda t: t**2, x, torch.ones(3))


class TestTools:
    @pytest.mark.parametrize("reentrant", [True, False])
    def test_checkpoint(self, reentrant):
        calls = []

        def part(x):
            calls.append(1)
            return (x * 2).exp()

        x = leaf(0.5, 1.0)
        checkpoint(part, x, use_reentrant=reentrant).sum().backward()
        again = leaf(0.5, 1.0)
        part(again).sum().backward()
        assert torch.equal(x.grad, again.grad)
        assert len(calls) == 3

    def test_checkpoints_in_a_row(self):
        layers = [torch.nn.Linear(2, 2) for _ in range(4)]
        x = torch.ones(1, 2, requires_grad=True)
        checkpoint_sequential(layers, 2, x, use_reentrant=False).sum().backward()
        assert all(layer.weight.grad is not None for layer in layers)

    def test_recomputing_has_to_save_the_same(self):
        times = []

        def part(t):
            times.append(1)
            return t.exp() if len(times) == 1 else t.exp().exp()

        with set_checkpoint_early_stop(False):
            y = checkpoint(part, leaf(1.0), use_reentrant=False)
        with pytest.raises(CheckpointError, match="save more tensors during recomputation"):
            y.backward()

    def test_gradcheck(self):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda t: (t * t).sin(), x)
        assert torch.autograd.gradgradcheck(lambda t: (t * t).sin(), x)
        with pytest.raises(RuntimeError, match="Jacobian mismatch"):
            torch.autograd.gradcheck(Wrong.apply, x)

    def test_gradcheck_of_lazy_conjugates(self):
        x = torch.randn(2, dtype=torch.complex128).conj().requires_grad_()
        before = x.detach().clone()
        assert x.is_conj() and torch.autograd.gradcheck(lambda t: t * t.conj() + t, x)
        assert x.equal(before)

    def test_gradcheck_of_gradients_that_are_no_multiples(self):
        def off(by):
            def call(t):
                t = t.clone()
                t.register_hook(lambda grad: by(grad))
                return t

            return call

        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        with pytest.raises(RuntimeError, match="backward not multiplied by grad_output"):
            torch.autograd.gradcheck(off(lambda grad: grad + 1e-9), x)
        near = {"masked": True, "check_undefined_grad": False}
        assert torch.autograd.gradcheck(off(lambda grad: grad + 1e-9), x, **near)
        with pytest.raises(RuntimeError, match="grad is incorrect layout"):
            torch.autograd.gradcheck(Entries.apply, x)
        z = torch.randn(2, dtype=torch.complex128, requires_grad=True)
        with pytest.raises(RuntimeError, match="the imaginary part of complex outputs only, Jac"):
            torch.autograd.gradcheck(off(lambda grad: grad * 2), z)

    def test_gradcheck_of_absent_gradients(self):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        with (
            pytest.warns(UserWarning, match="New undefined gradient support"),
            pytest.raises(RuntimeError, match="handle undefined output grads"),
        ):
            torch.autograd.gradcheck(WantsAll.apply, x)
        assert torch.autograd.gradcheck(WantsAll.apply, x, check_undefined_grad=False)
        assert torch.autograd.gradgradcheck(torch.sin, x, gen_non_contig_grad_outputs=True)

    def test_checks_of_tangents_and_batches(self):
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        z = torch.randn(2, dtype=torch.complex128, requires_grad=True)
        every = {
            "check_forward_ad": True,
            "check_batched_grad": True,
            "check_batched_forward_grad": True,
        }
        for t in (x, z):
            assert torch.autograd.gradcheck(lambda t: (t.exp() * t, t.sum()), t, **every)
        assert torch.autograd.gradgradcheck(
            torch.exp, x, check_fwd_over_rev=True, check_batched_grad=True
        )
        with pytest.raises(RuntimeError, match="Jacobian computed with forward mode mismatch"):
            torch.autograd.gradcheck(WrongTangent.apply, x, check_forward_ad=True)
        with pytest.raises(AssertionError, match="requires check_forward_ad"):
            torch.autograd.gradcheck(torch.sin, x, check_batched_forward_grad=True)

    @pytest.mark.parametrize("how", ["argument", "context"])
    def test_a_debugged_checkpoint_tells_what_was_called(self, how):
        first = [True]

        def part(t):
            if first:
                first.clear()
                return (t * t).exp()
            return t.exp()

        with set_checkpoint_debug_enabled(True if how == "context" else None):
            y = checkpoint(part, leaf(1.0), use_reentrant=False, debug=how == "argument")
        with pytest.raises(CheckpointError, match="because you passed `debug=True`") as e:
            y.backward()
        assert str(e.value).count("aten.mul.Tensor($0, $0)") == 2
        assert "Operations executed during recomputation:" in str(e.value)

    def test_a_checkpoint_is_walked_back_more_than_once(self):
        x = leaf(2.0)
        y = checkpoint(lambda t: t * t * t, x, use_reentrant=False)
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        (second,) = torch.autograd.grad(first, x)
        assert (first.item(), second.item()) == (12, 12)
        again = checkpoint(torch.exp, x, use_reentrant=True)
        with pytest.raises(RuntimeError, match="use_reentrant=True, torch"):
            torch.autograd.grad(again, x)

    def test_selective_checkpoints(self):
        calls = []

        def policy(context, op, *args, **kwargs):
            calls.append((context.is_recompute, str(op)))
            if op is torch.ops.aten.mul.Tensor:
                return CheckpointPolicy.MUST_SAVE
            return CheckpointPolicy.PREFER_RECOMPUTE

        def contexts():
            return create_selective_checkpoint_contexts(policy)

        x = leaf(2.0)
        y = checkpoint(lambda t: (t * t).exp().sin(), x, use_reentrant=False, context_fn=contexts)
        y.backward()
        expected = leaf(2.0)
        (expected * expected).exp().sin().backward()
        assert torch.equal(x.grad, expected.grad)
        assert (True, "aten.mul.Tensor") in calls
        with pytest.raises(TypeError, match="either a function or a list of ops"):
            create_selective_checkpoint_contexts(5)
        assert torch.ops.aten.detach.default in SAC_IGNORED_OPS
        assert SelectiveCheckpointContext(is_recompute=True).is_recompute

    def test_strategies(self):
        functional, x = torch.autograd.functional, torch.tensor([1.0, 2.0])
        for make in (
            lambda s: functional.jacobian(torch.sin, x, strategy=s),
            lambda s: functional.hessian(torch.sum, x, outer_jacobian_strategy=s),
        ):
            with pytest.raises(NotImplementedError, match="implemented for `vectorize=True`"):
                make("forward-mode")
            with pytest.raises(AssertionError, match="Expected strategy"):
                make("sideways")
        with pytest.raises(RuntimeError, match="not supported together"):
            functional.jacobian(torch.sin, x, strict=True, vectorize=True)
        rows = functional.jacobian(lambda t: t**2, x, vectorize=True)
        assert rows.tolist() == [[2, 0], [0, 4]]
        columns = functional.jacobian(
            lambda t: (t**2, t.sum()), x, vectorize=True, strategy="forward-mode"
        )
        assert [c.tolist() for c in columns] == [[[2, 0], [0, 4]], [1, 1]]
        second = functional.hessian(
            lambda t: (t**3).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode"
        )
        assert second.tolist() == [[6, 0], [0, 12]]

    @pytest.mark.parametrize(
        ("call", "text"),
        [
            (
                lambda f, x: f.jacobian(lambda t: t.detach(), x, strict=True),
                "does not require grad",
            ),
            (lambda f, x: f.vjp(lambda t: t.detach(), x, x, strict=True), "does not require grad"),
            (lambda f, x: f.jacobian(lambda t: t * 2, x, True, True), "The jacobian of the user"),
            (lambda f, x: f.hessian(torch.sum, x, strict=True), "While computing the hessian"),
            (lambda f, x: f.hvp(torch.sum, x, x, strict=True), "While computing the hessian"),
        ],
    )
    def test_strictness(self, call, text):
        with pytest.raises(RuntimeError, match=text):
            call(torch.autograd.functional, torch.tensor([1.0, 2.0]))

    def test_batches_of_gradients(self):
        x = leaf(1.0, 2.0)
        (g,) = torch.autograd.grad(x * x, x, torch.eye(2), is_grads_batched=True)
        assert g.tolist() == [[2, 0], [0, 4]]
        with pytest.raises(RuntimeError, match="first dimension of each grad_output as the batch"):
            torch.autograd.grad(x * x, x, torch.ones(3, 3), is_grads_batched=True)
        with pytest.raises(RuntimeError, match="cannot be empty"):
            torch.autograd.grad(x.sum(), [])

    def test_functional(self):
        x = torch.tensor([1.0, 2.0])
        jac = torch.autograd.functional.jacobian(lambda t: t**2, x)
        assert jac.tolist() == [[2, 0], [0, 4]]
        hess = torch.autograd.functional.hessian(lambda t: (t**3).sum(), x)
        assert hess.tolist() == [[6, 0], [0, 12]]

    def test_switches_and_marks(self):
        assert not torch.is_anomaly_enabled()
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            assert torch.is_anomaly_enabled()
            assert not torch.is_anomaly_check_nan_enabled()
        with torch.autograd.set_multithreading_enabled(False):
            assert not torch.autograd.is_multithreading_enabled()
        assert torch.autograd.is_multithreading_enabled()
        with torch.profiler.record_function("part") as mark:
            assert mark.name == "part"
        assert torch.autograd.profiler.record_function("f")(lambda v: v + 1)(1) == 2

    def test_anomaly(self):
        x = leaf(-1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly():
                y = x.sqrt()
                with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
                    y.backward()

    def test_deferred(self):
        with torch.meta_init():
            torch.manual_seed(0)
            layer = torch.nn.Linear(3, 2)
            layer(torch.ones(1, 3)).sum().backward()
        grad = layer.weight.grad
        assert grad.is_meta
        torch.materialize(grad)
        assert grad.tolist() == [[1, 1, 1]] * 2


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda x, y: x @ y, "mm"),
        (lambda x, y: x.atan2(y), "mul"),
        (lambda x, y: torch.conv1d(x[None], y[None]), "convolution_backward"),
    ],
)
def test_what_leads_to_no_input_is_not_computed(make, kernel):
    """As PyTorch: a walk to some inputs computes no gradients of the others."""
    calls = []

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            calls.append((func._opname, args))
            return func(*args, **(kwargs or {}))

    x, y = (torch.rand(3, 3, requires_grad=True) for _ in range(2))
    out = make(x, y)
    seed = torch.ones_like(out)
    counts = []
    for inputs in ((x,), (y,), (x, y)):
        calls.clear()
        with Seen():
            torch.autograd.grad(out, inputs, seed, retain_graph=True)
        called = [args for name, args in calls if name == kernel]
        masks = [sum(args[-1]) for args in called if kernel == "convolution_backward"]
        counts.append(sum(masks) if masks else len(called))
    assert counts[0] == counts[1] and 0 < counts[0] < counts[2]
    # What hooks are told, and what is gathered, is the same.
    out.backward(seed, inputs=[y])
    assert x.grad is None and y.grad.shape == (3, 3)


def test_a_traceback_of_a_forward_call_ends_where_it_was_made(recwarn):
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
        torch.sqrt(torch.tensor(-1.0, requires_grad=True)).backward()
    (told,) = [str(w.message) for w in recwarn if "forward call" in str(w.message)]
    assert "anomaly_mode.py" not in told and "torch.sqrt(torch.tensor(-1.0" in told
