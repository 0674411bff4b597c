"""What scatters and reduces: means where indices are alike, gradients of products with several zeros at one place."""

import numpy as np
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


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("width", [0, 3, 5])
def test_means_of_indices_that_are_alike(include_self, dtype, width):
    """Indices expanded along a dimension, which covers the result or a part of it."""
    rng = np.random.default_rng(width)
    start = torch.tensor(rng.integers(-9, 9, (4, 2, 5))).to(dtype)
    source = torch.tensor(rng.integers(-9, 9, (7, 2, 5))).to(dtype)
    places = rng.integers(0, 3, (7, 2))
    index = torch.tensor(places)[:, :, None].expand(7, 2, width)
    want = start.double().numpy().copy()
    for p, q, r in np.ndindex(4, 2, width):
        values = source[:, q, r].double().numpy()[places[:, q] == p]
        if len(values):
            own = want[p, q, r : r + 1] if include_self else []
            want[p, q, r] = np.concatenate([own, values]).mean()
    if dtype == torch.int64:
        want = np.floor(want)
    found = start.scatter_reduce(0, index, source, "mean", include_self=include_self)
    torch.testing.assert_close(found, torch.tensor(want).to(dtype))
    whole = start.scatter_reduce(0, index.clone(), source, "mean", include_self=include_self)
    assert torch.equal(found, whole)
    if width == 5:
        found = start.index_reduce(0, index[:, 0, 0], source, "mean", include_self=include_self)
        assert torch.equal(found[:, 0], whole[:, 0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "width"), [(1, 300), (50, 1), (50, 5), (200, 256), (50, 700)])
def test_halves_are_summed_in_single_precision_in_their_place(dtype, rows, width):
    rng = np.random.default_rng(width)
    place = torch.tensor(rng.integers(0, 9, rows))
    start = torch.tensor(rng.standard_normal((300, width))).to(dtype)
    source = torch.tensor(rng.standard_normal((rows, width))).to(dtype)
    want = start.float().index_add(0, place, source.float()).to(dtype)
    index = place[:, None].expand(rows, width)
    calls = [
        lambda: start.clone().index_add_(0, place, source),
        lambda: start.t().clone().index_add_(1, place, source.t()).t(),
        lambda: start.clone().scatter_add_(0, index, source),
        lambda: start.clone().scatter_reduce_(0, index, source, "sum"),
        lambda: start.clone().index_put_((place,), source, accumulate=True),
    ]
    for call in calls:
        assert torch.equal(call(), want)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        start.index_add_(0, place + 300, source)


def test_few_sums_in_halves_leave_the_others_alone():
    x, place = torch.zeros(1000, 1000, dtype=torch.bfloat16), torch.tensor([3, 7, 3])
    rows = torch.ones(3, 1000, dtype=torch.bfloat16)
    torch.cpu.reset_peak_memory_stats()
    before = torch.cpu.memory_allocated()
    x.index_add_(0, place, rows)
    x.index_put_((place,), rows, accumulate=True)
    x.index_add_(0, place[:1], rows[:1])
    assert torch.cpu.max_memory_allocated() - before < x.nbytes
    assert x[[3, 7, 8], 9].tolist() == [5, 2, 0]
