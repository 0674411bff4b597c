"""Functions that are differentiated write to what they make, and to what they are given; to nothing else."""

import pytest

import torchlike as torch
from torchlike.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

REFUSED = r"in-place operation \(aten::{}\) that would mutate a captured Tensor"
TRANSFORMS = {
    "grad": lambda f, x: grad(f)(x),
    "twice": lambda f, x: grad(lambda y: grad(f)(y).sum())(x),
    "vjp": vjp,
    "jvp": lambda f, x: jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: jacrev(f)(x),
    "jacfwd": lambda f, x: jacfwd(f)(x),
    "hessian": lambda f, x: hessian(f)(x),
    "examples": lambda f, x: vmap(grad(f))(x.expand(2, 3)),
}
WRITES = {
    "add_.Tensor": lambda y, x: y.add_(x),
    "copy_": lambda y, x: y.__setitem__(slice(None), x),
    "mul_.Tensor": lambda y, x: y[1:].mul_(2),
    "zero_": lambda y, x: y.detach().zero_(),
    "relu_": lambda y, x: torch.relu_(y),
    "unsqueeze_": lambda y, x: y.unsqueeze_(0),
    "resize_": lambda y, x: y.resize_(5),
    "normal_": lambda y, x: y.normal_(),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("how", TRANSFORMS)
def test_writes_to_captured_tensors_are_refused(how, name):
    y = torch.arange(3.0)

    def f(x):
        WRITES[name](y, x)
        return (x**2).sum()

    with pytest.raises(RuntimeError, match=REFUSED.format(name)):
        TRANSFORMS[how](f, torch.ones(3))
    assert y.tolist() == [0, 1, 2]
    y.add_(1)


@pytest.mark.parametrize("how", TRANSFORMS)
def test_writes_to_what_a_function_makes(how):
    outer = torch.arange(3.0)

    def f(x):
        made = torch.zeros(3)
        made.add_(1)
        copy = outer.clone().mul_(2)
        sums = (x * outer).add_(1)
        sums[0] = 3
        return (sums * copy * made).sum()

    TRANSFORMS[how](f, torch.ones(3))


def test_writes_to_what_a_function_is_given():
    def f(x, buffer, scale=None):
        buffer.add_(1)
        scale.mul_(2)
        return (x * buffer * scale).sum()

    x, b, s = torch.ones(2), torch.zeros(2), torch.ones(2)
    assert grad(f)(x, b, scale=s).tolist() == [2, 2]
    assert jacrev(f)(x, b, scale=s).tolist() == [8, 8]
    assert jacfwd(f)(x, b, scale=s).tolist() == [24, 24]
    assert (b.tolist(), s.tolist()) == ([3, 3], [8, 8])
    value, tangent = jvp(lambda x: x.add_(1).sum(), (torch.ones(2),), (torch.ones(2),))
    assert (float(value), float(tangent)) == (4, 2)


def test_buffers_of_modules_are_captured():
    model = torch.nn.BatchNorm1d(3)
    weights, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    x = torch.arange(12.0).reshape(4, 3)

    def f(weights, *buffers):
        return functional_call(model, (weights, *buffers), (x,)).square().sum()

    with pytest.raises(RuntimeError, match=REFUSED.format("add_.Tensor")):
        grad(f)(weights)
    counted = int(model.num_batches_tracked)
    grad(f)(weights, buffers)
    assert int(model.num_batches_tracked) == counted + 1


def test_custom_functions_are_below_transforms():
    calls = torch.zeros(1)

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(x):
            calls.add_(1)
            return x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    assert grad(lambda x: Square.apply(x).sum())(torch.ones(2)).tolist() == [2, 2]
    assert calls.item() == 1
    with pytest.raises(RuntimeError, match="mutate a captured"):
        grad(lambda x: (Square.apply(x) + calls.add_(1)).sum())(torch.ones(2))


@pytest.mark.parametrize("how", TRANSFORMS)
def test_methods_that_transforms_have_no_place_for(how):
    for method in ("requires_grad_", "retain_grad"):

        def f(x, method=method):
            getattr(torch.ones(3, requires_grad=True), method)()
            return (x**2).sum()

        with pytest.raises(RuntimeError, match=rf"call {method}\(\) outside of a function"):
            TRANSFORMS[how](f, torch.ones(3))
        getattr(torch.ones(3, requires_grad=True), method)()


def test_the_memory_of_a_tangents_tensor_is_not_handed_out():
    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        jvp(lambda x: x * float(x.numpy()[0]), (torch.ones(2),), (torch.ones(2),))
