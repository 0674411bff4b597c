"""Gradients of what scatters by products, where several factors at one place are zero."""

import pytest

import torchlike as torch


@pytest.mark.parametrize(
    ("name", "values"), [("scatter_reduce", "src"), ("index_reduce", "source")]
)
def test_several_zeros_have_no_second_gradient(name, values):
    start = torch.tensor([2.0, 3.0])
    index = torch.tensor([0, 0, 1])
    given = torch.tensor([0.0, 0.0, 3.0], requires_grad=True)
    made = getattr(torch, name)(start, 0, index, given, "prod")
    (grad,) = torch.autograd.grad((made * made).sum(), given, create_graph=True)
    assert grad.tolist() == [0, 0, 54]
    assert grad.grad_fn.name().endswith("Error")
    text = rf"{name}\(\): Double backward is unsupported for {values} when >1 zeros"
    with pytest.raises(RuntimeError, match=text):
        grad.sum().backward()


def test_no_second_gradient_is_an_error_with_its_reason():
    with pytest.raises(RuntimeError, match=r"^only once$"):
        torch._C._call_row("_grad.never", False, (torch.ones(2), "only once"), {})


def test_a_single_zero_has_a_second_gradient():
    given = torch.tensor([0.0, 2.0], dtype=torch.float64, requires_grad=True)
    index = torch.tensor([0, 0])

    def product(given):
        return torch.scatter_reduce(given.new_ones(1), 0, index, given, "prod")

    assert torch.autograd.gradgradcheck(product, (given,))
