"""The type that gradients of a leaf have, and whether first gradients lie as the leaf does."""

import pytest

import torchlike as torch
from torchlike.autograd import enforce_grad_layout_policy


def leaf(dtype=torch.float32):
    return torch.ones(2, dtype=dtype, requires_grad=True)


def test_gradients_are_brought_to_the_type_that_was_asked_for():
    x = leaf()
    assert x.grad_dtype == torch.float32
    assert torch.ones(2, dtype=torch.int64).grad_dtype == torch.int64
    x.grad_dtype = torch.float16
    for total in (2, 4):
        (x * 2).sum().backward()
        assert (x.grad.dtype, x.grad.tolist()) == (torch.float16, [total] * 2)
    (grad,) = torch.autograd.grad((x * 2).sum(), x)
    assert grad.dtype == torch.float16
    seen = []
    x.register_hook(lambda g: seen.append(g.dtype))
    (x * 2).sum().backward()
    assert seen == [torch.float16]
    assert x.detach().grad_dtype == torch.float32


def test_any_type():
    x = leaf()
    x.grad_dtype = None
    assert x.grad_dtype is None
    x.grad = torch.ones(2, dtype=torch.float64)
    (x * 2).sum().backward()
    assert (x.grad.dtype, x.grad.tolist()) == (torch.float64, [3, 3])


def test_what_is_refused():
    x = leaf()
    y = x * 2
    for act, text in (
        (lambda: y.grad_dtype, "grad_dtype can only be accessed on leaf tensors."),
        (lambda: setattr(y, "grad_dtype", None), "grad_dtype can only be set on leaf tensors."),
        (lambda: setattr(x, "grad_dtype", 5), "must be a torch.dtype or None, but got int"),
        (lambda: setattr(torch.ones(2), "grad_dtype", None), "that require gradients"),
    ):
        with pytest.raises(RuntimeError, match=text):
            act()
    x.grad_dtype = torch.float16
    with pytest.raises(RuntimeError, match="dtype 'float' to a tensor with grad_dtype 'Half'"):
        x.grad = torch.ones(2)
    x.grad = torch.ones(2, dtype=torch.float16)
    with pytest.raises(RuntimeError, match=r"already a gradient with dtype 'c10::Half'"):
        x.grad_dtype = torch.float64


def gradient(policy):
    x = torch.ones(3, 2).t().requires_grad_()
    with policy:
        x.backward(torch.arange(6.0).view(2, 3))
    return x.grad.stride()


def test_first_gradients_lie_as_their_leaf_unless_told_otherwise():
    assert gradient(enforce_grad_layout_policy(True)) == (1, 2)
    assert gradient(enforce_grad_layout_policy(False)) == (1, 2)  # somebody else has it too

    def made(enforced):
        x = torch.ones(3, 2).t().requires_grad_()
        with enforce_grad_layout_policy(enforced):
            (x * torch.arange(6.0).view(2, 3).clone()).sum().backward()
        return x.grad

    assert made(True).stride() == (1, 2)
    assert torch.equal(made(True), made(False))
    assert torch._C._is_grad_layout_enforcement_enabled()

    @enforce_grad_layout_policy(False)
    def inside():
        return torch._C._is_grad_layout_enforcement_enabled()

    assert not inside()
    assert torch._C._is_grad_layout_enforcement_enabled()
    assert enforce_grad_layout_policy(True).clone().mode is True
