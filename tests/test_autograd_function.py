"""Functions whose gradient the user writes."""

from __future__ import annotations

import pytest

import torchlike as torch
from derivatives import leaf
from torchlike.autograd import Function
from torchlike.autograd.function import FunctionCtx, NestedIOFunction, once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class TestFunction:
    def test_gradient(self):
        x = leaf(2.0)
        y = Cube.apply(x)
        assert type(y.grad_fn).__name__ == "CubeBackward"
        y.backward()
        assert x.grad.tolist() == [12]

    def test_twice(self):
        x = leaf(2.0)
        (g,) = torch.autograd.grad(Cube.apply(x), x, create_graph=True)
        (h,) = torch.autograd.grad(g, x)
        assert h.tolist() == [12]

    def test_context_apart(self):
        class Scale(Function):
            @staticmethod
            def forward(x, by):
                return x * by

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.by = inputs[1]

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.by, None

        x = leaf(2.0)
        Scale.apply(x, 5).backward()
        assert x.grad.tolist() == [5]

    def test_several_outputs(self):
        class Both(Function):
            @staticmethod
            def forward(ctx, x):
                y, z = x * 2, x.long()
                ctx.mark_non_differentiable(z)
                return y, z

            @staticmethod
            def backward(ctx, gy, gz):
                assert gz.tolist() == [0]
                return gy * 2

        x = leaf(2.0)
        y, z = Both.apply(x)
        assert not z.requires_grad
        y.backward()
        assert x.grad.tolist() == [2]

    def test_wrong_counts(self):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad, grad

        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            Wrong.apply(leaf(1.0)).backward()

    def test_once(self):
        class Once(Function):
            @staticmethod
            def forward(ctx, x):
                assert isinstance(ctx, FunctionCtx)
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                return grad * 2 * ctx.saved_tensors[0]

        x = leaf(3.0)
        (g,) = torch.autograd.grad(Once.apply(x), x, leaf(1.0), create_graph=True)
        assert g.item() == 6
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.backward()

    def test_nested_arguments_are_refused(self):
        with pytest.raises(NotImplementedError, match="NestedIOFunction"):
            NestedIOFunction.apply(1)

    def test_errors_pass_through(self):
        class Fails(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            Fails.apply(leaf(1.0)).backward()
