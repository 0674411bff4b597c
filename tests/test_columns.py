"""Kernels over columns and lines of numbers: blocks of columns with a rest, best elements among equal ones."""

import numpy as np
import pytest

import torchlike as torch
import torchlike.nn.functional as F


@pytest.mark.parametrize("channels", [3, 64, 70, 130])
@pytest.mark.parametrize("train", [True, False])
def test_batches_with_channels_innermost_are_those_of_planes(channels, train):
    torch.manual_seed(channels)
    x = torch.randn(5, channels, 9, 7, dtype=torch.float64)
    g = torch.randn(x.shape, dtype=torch.float64)
    w, b, mean = torch.randn(3, channels, dtype=torch.float64)
    var = torch.rand(channels, dtype=torch.float64) + 0.5
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        leaf = x.to(memory_format=layout, copy=True).requires_grad_()
        parameters = [t.clone().requires_grad_() for t in (w, b)]
        means = [mean.clone(), var.clone()]
        y = F.batch_norm(leaf, *means, *parameters, train)
        assert y.is_contiguous(memory_format=layout)
        seed = g.to(memory_format=layout)
        found.append([y, *means, *torch.autograd.grad(y, [leaf, *parameters], seed)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 70, 9, 7), (300, 3, 2, 2), (2, 4, 70, 71), (40, 6)])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_batches_in_halves_are_those_of_single_precision(dtype, shape, last, train):
    torch.manual_seed(0)
    x, g = torch.randn(2, *shape).to(dtype)
    if last and x.ndim == 4:
        x, g = (t.contiguous(memory_format=torch.channels_last) for t in (x, g))
    w, b, mean = torch.randn(3, shape[1]).to(dtype)
    var = (torch.rand(shape[1]) + 0.5).to(dtype)
    found = []
    for to in (dtype, torch.float32):
        leaves = [t.to(to, copy=True).requires_grad_() for t in (x, w, b)]
        y = F.batch_norm(leaves[0], mean.to(to), var.to(to), *leaves[1:], train)
        assert y.stride() == x.stride()
        found.append([y, *torch.autograd.grad(y, leaves, g.to(to))])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2 * b.abs().max().item())


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("largest", [True, False])
def test_best_elements_are_the_first_of_the_order(dtype, largest):
    rng = np.random.default_rng(1)
    for n, k in [(16, 2), (64, 16), (65, 17), (300, 50), (3000, 50), (3000, 200), (400, 399)]:
        x = rng.integers(0, 90, n).astype(dtype)
        if dtype == "float32":
            x[rng.random(n) < 0.01] = np.nan
        values, at = torch.tensor(x).topk(k, largest=largest)
        whole = torch.tensor(x).sort(descending=largest)[0][:k]
        np.testing.assert_array_equal(values.numpy(), whole.numpy())
        np.testing.assert_array_equal(x[at.numpy()], values.numpy())
        assert len(set(at.tolist())) == k


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 6, 3), (3, 8, 64, 64), (2, 4, 70, 71), (2, 300, 1), (5, 8)])
def test_gradients_of_groups_in_halves_are_those_of_single_precision(dtype, shape):
    torch.manual_seed(0)
    x, g = torch.randn(2, *shape).to(dtype)
    w, b = torch.randn(2, shape[1]).to(dtype)
    found = []
    for to in (dtype, torch.float32):
        leaves = [t.to(to, copy=True).requires_grad_() for t in (x, w, b)]
        y = F.group_norm(leaves[0], 2, *leaves[1:])
        found.append(torch.autograd.grad(y, leaves, g.to(to)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2 * b.abs().max().item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(4, 5, 3), (2, 64, 64), (2, 70, 300)])
@pytest.mark.parametrize("f", [F.softmax, F.log_softmax])
def test_gradients_of_columns_in_halves_are_those_of_single_precision(dtype, shape, f):
    torch.manual_seed(0)
    x, g = torch.randn(2, *shape).to(dtype)
    found = []
    for to in (dtype, torch.float32):
        leaf = x.to(to, copy=True).requires_grad_()
        found.append(torch.autograd.grad(f(leaf, 1), leaf, g.to(to))[0].float())
    torch.testing.assert_close(*found, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 6, 7, 7), (300, 2, 5), (2, 3, 70, 71), (9, 4)])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_gradients_of_batches_in_halves_are_those_of_single_precision(dtype, shape, train, last):
    torch.manual_seed(0)
    x, g = torch.randn(2, *shape).to(dtype)
    if last and x.ndim == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    mean, var = torch.rand(2, shape[1])
    w, b = torch.randn(2, shape[1])
    found = []
    for to in (dtype, torch.float32):
        leaves = [x.to(to, copy=True).requires_grad_()]
        leaves += [t.clone().requires_grad_() for t in (w, b)]
        y = F.batch_norm(leaves[0], mean.clone(), var.clone(), *leaves[1:], train)
        found.append(torch.autograd.grad(y, leaves, g.to(to)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a.float(), b, rtol=2e-2, atol=2e-2 * b.abs().max().item())


@pytest.mark.parametrize("lines", [1, 3, 4, 9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex128])
def test_lines_side_by_side_run_as_each_alone(lines, dtype):
    x = (torch.arange(lines * 37).view(lines, 37) * 7 % 5 - 1).to(dtype)
    for name in ("cumsum", "cumprod"):
        found = getattr(x, name)(1)
        for i in range(lines):
            assert torch.equal(found[i], getattr(x[i], name)(0))
    want = np.cumprod(x.to(torch.complex128).numpy(), 1)
    np.testing.assert_allclose(x.cumprod(1).to(torch.complex128).numpy(), want, rtol=1e-2)
    assert x.new_empty(lines, 0).cumprod(1).shape == (lines, 0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_running_extremes_are_the_last_of_equals(dtype):
    x = (torch.arange(300).view(3, 100) * 37 % 11 % 4).to(dtype)
    for name, better in (("cummax", np.greater_equal), ("cummin", np.less_equal)):
        values, places = getattr(x, name)(1)
        for line, best, at in zip(x.tolist(), values.tolist(), places.tolist(), strict=True):
            last = 0
            for k, v in enumerate(line):
                last = k if better(v, line[last]) else last
                assert (best[k], at[k]) == (line[last], last)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_hinges_of_all_classes_but_the_own(p, weighted):
    torch.manual_seed(p)
    for classes in (1, 5, 64, 203):
        x = torch.randn(6, classes, dtype=torch.float64)
        t = torch.arange(6) * 7 % classes
        w = torch.rand(classes, dtype=torch.float64) if weighted else None
        gaps = (0.5 - x.gather(1, t[:, None]) + x).clamp_min(0) ** p
        gaps = gaps.scatter(1, t[:, None], 0) * (1 if w is None else w[t][:, None])
        found = F.multi_margin_loss(x, t, p, 0.5, w, reduction="none")
        torch.testing.assert_close(found, gaps.sum(1) / classes)


PIECES = [(4097,), (70000,), (3, 4095), (2, 9001), (9, 1365), (40, 25), (3, 50, 9), (4, 33, 257)]


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16]
)
@pytest.mark.parametrize("shape", PIECES)
def test_lines_that_are_read_in_pieces_are_those_of_numpy(dtype, shape):
    torch.manual_seed(len(shape))
    x = torch.randint(0, 100, shape).to(dtype)
    wide = x.float().numpy() if dtype.is_floating_point else x.long().numpy()
    for dim in range(x.dim()):
        sums = torch.from_numpy(np.cumsum(wide, dim, dtype=wide.dtype))
        assert x.cumsum(dim, dtype=dtype).equal(sums.to(dtype))
        values, places = x.cummax(dim)
        assert (values.double().numpy() == np.maximum.accumulate(wide, dim)).all()
        assert x.gather(dim, places).equal(values)
        for found, best in ((x.max(dim), wide.argmax(dim)), (x.min(dim), wide.argmin(dim))):
            assert (found.indices.numpy() == best).all()
            assert x.gather(dim, found.indices.unsqueeze(dim)).squeeze(dim).equal(found.values)
        middle = (x.shape[dim] - 1) // 2
        values, places = x.median(dim)
        assert (values.double().numpy() == np.sort(wide, dim).take(middle, dim)).all()
        assert x.gather(dim, places.unsqueeze(dim)).squeeze(dim).equal(values)
    assert x.argmax() == wide.argmax() and x.argmin() == wide.argmin()
    assert [float(t) for t in x.aminmax()] == [wide.min(), wide.max()]
    assert float(x.median()) == np.sort(wide, None)[(x.numel() - 1) // 2]


def test_the_least_and_the_largest_of_many_are_nan_if_any_is():
    x = torch.arange(200_000, dtype=torch.float32).view(400, 500) - 1000
    assert [t.item() for t in x.aminmax()] == [-1000.0, 198_999.0]
    assert [t.item() for t in x.T.aminmax()] == [-1000.0, 198_999.0]
    x[399, 499] = torch.nan
    assert all(t.isnan() for t in x.aminmax())
