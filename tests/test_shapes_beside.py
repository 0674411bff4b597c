"""Kernels at shapes that choose between ways: few columns, short lines, odd rests, strides, other orders of memory."""

import numpy as np
import pytest

import torchlike as torch
import torchlike.nn.functional as F

SHAPES = [(5, 1), (1, 5), (900, 1), (900, 2), (333, 3), (257, 7), (65, 8), (100, 33), (40, 127)]
SHAPES += [(7, 900), (2, 65), (64, 64), (33, 129)]


def layouts(x):
    """The same values, however they lie."""
    wide = torch.empty(x.shape[0], 2 * x.shape[1] + 3, dtype=x.dtype)
    yield x
    yield x.t().contiguous().t()
    yield wide[:, : x.shape[1]].copy_(x)
    yield wide[:, 1 : 2 * x.shape[1] : 2].copy_(x)


def made(shape, dtype):
    """Whole numbers, whose sums are exact."""
    n = int(np.prod(shape))
    values = (np.arange(n) * 37 % 23 - (0 if dtype is torch.uint8 else 11)).reshape(shape)
    return torch.tensor(values.tolist()).to(dtype), values


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_reductions_are_those_of_numpy_however_the_elements_lie(shape, dtype):
    x, values = made(shape, dtype)
    for t in layouts(x):
        for dim in (0, 1, (0, 1)):
            high, low = values.max(dim), values.min(dim)
            assert t.amax(dim).tolist() == high.tolist()
            assert t.amin(dim).tolist() == low.tolist()
            assert t.sum(dim).double().tolist() == pytest.approx(values.sum(dim), rel=1 / 128)
            assert t.any(dim).tolist() == (values != 0).any(dim).tolist()
            if dim != (0, 1):
                assert t.argmax(dim).tolist() == values.argmax(dim).tolist()
                most = t.max(dim)
                assert most.values.tolist() == high.tolist()
                assert most.indices.tolist() == values.argmax(dim).tolist()
            if dtype is torch.float32:
                assert t.sum(dim).tolist() == values.sum(dim).tolist()
                norm = np.sqrt((values.astype(float) ** 2).sum(dim))
                np.testing.assert_allclose(t.norm(dim=dim).tolist(), norm, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_nan_wins_in_narrow_matrices_and_apart(shape):
    x, _ = made(shape, torch.float32)
    x[shape[0] // 2, shape[1] - 1] = torch.nan
    for t in layouts(x):
        for dim in (0, 1):
            want = np.isnan(np.asarray(x.tolist())).any(dim)
            assert t.amax(dim).isnan().tolist() == want.tolist()
        assert t.max().isnan() and t.min().isnan()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_softmax_of_lines_of_every_length(shape, dtype):
    x, values = made(shape, dtype)
    x, values = x / 4, values / 4
    bound = 1e-2 if dtype is torch.bfloat16 else 3e-6
    for dim in (0, 1):
        top = values.max(dim, keepdims=True)
        total = np.log(np.exp(values - top).sum(dim, keepdims=True)) + top
        for t in layouts(x):
            found = t.logsumexp(dim, keepdim=True).double().tolist()
            np.testing.assert_allclose(found, total, rtol=bound, atol=bound)
            found = t.log_softmax(dim).double().tolist()
            np.testing.assert_allclose(found, values - total, rtol=bound, atol=bound)
            found = t.softmax(dim).double().tolist()
            np.testing.assert_allclose(found, np.exp(values - total), rtol=bound, atol=bound)


def test_softmax_of_short_lines_has_infinities_and_nan_where_they_belong():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[-inf, -inf], [inf, 0.0], [nan, 0.0], [-inf, 1.0]])
    assert x.logsumexp(1).tolist()[:2] == [-inf, inf] and x.logsumexp(1)[2].isnan()
    assert x.softmax(1)[:3, 0].isnan().all() and x.softmax(1)[3].tolist() == [0.0, 1.0]
    assert torch.equal(x.t().contiguous().logsumexp(0)[[0, 1, 3]], x.logsumexp(1)[[0, 1, 3]])
    assert torch.empty(0, 3).logsumexp(1).shape == (0,)
    assert torch.empty(3, 0).logsumexp(1).tolist() == [-inf] * 3


@pytest.mark.parametrize("n", [3, 64, 65, 130, 264, 300, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int32])
def test_rows_with_a_rest_are_those_of_single_elements(n, dtype):
    x, y = ((torch.arange(9 * n).view(9, n) * k % 17 + 1).to(dtype) for k in (5, 7))
    calls = [torch.add, torch.mul, torch.sub, lambda a, b: torch.add(a, b, alpha=3)]
    if dtype.is_floating_point:
        calls += [lambda a, b: torch.lerp(a, b, 0.25), lambda a, b: a.log() + b.exp2()]
    others = [y, y[0], y[:, :1], y[:1, :1]]
    for t in layouts(x):
        for other in others:
            for call in calls:
                found = call(t, other)
                wanted = [
                    [call(x[i, j], other.expand(9, n)[i, j]).item() for j in (0, n // 2, n - 1)]
                    for i in (0, 8)
                ]
                assert found[::8][:, [0, n // 2, n - 1]].tolist() == wanted
                placed = torch.empty(9, 2 * n, dtype=dtype)[:, ::2]
                assert torch.equal(call(t, other), placed.copy_(found))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (40, 3), (2, 6, 4)])
@pytest.mark.parametrize("diagonal", [-9, -2, 0, 1, 9])
def test_triangles_of_what_lies_anyhow(shape, diagonal):
    x = torch.arange(1, int(np.prod(shape)) + 1).view(shape)
    turned = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    apart = torch.stack([x, x], -1)[..., 0]
    for t in (turned, apart):
        assert t.tril(diagonal).tolist() == np.tril(x.tolist(), diagonal).tolist()
        assert t.triu(diagonal).tolist() == np.triu(x.tolist(), diagonal).tolist()
        assert t.clone().tril_(diagonal).tolist() == np.tril(x.tolist(), diagonal).tolist()
        placed = torch.empty(shape[::-1], dtype=x.dtype).permute(*range(len(shape))[::-1])
        assert torch.triu(t, diagonal, out=placed).tolist() == x.triu(diagonal).tolist()


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_padding_is_the_same_with_channels_last(mode, dtype):
    x = torch.arange(2 * 5 * 4 * 6).view(2, 5, 4, 6).to(dtype)
    last = x.contiguous(memory_format=torch.channels_last)
    leaves = [t.clone().requires_grad_() for t in (x, last)]
    found = [F.pad(t, (1, 2, 3, 0), mode) for t in leaves]
    assert torch.equal(*found)
    grads = [
        torch.autograd.grad((y * y).sum(), leaf) for y, leaf in zip(found, leaves, strict=True)
    ]
    assert torch.equal(*(g for (g,) in grads))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_places_of_maxima_are_the_same_with_channels_last(dtype):
    x = (torch.arange(2 * 19 * 7 * 9) * 37 % 11).view(2, 19, 7, 9).to(dtype)
    x[0, 3, 2, 2] = torch.nan
    last = x.contiguous(memory_format=torch.channels_last)
    calls = [
        lambda t: F.max_pool2d(t, 3, 2, 1, return_indices=True),
        lambda t: F.max_pool2d(t, 2, return_indices=True),
        lambda t: F.adaptive_max_pool2d(t, 3, return_indices=True),
    ]
    for call in calls:
        (a, i), (b, j) = call(x), call(last)
        assert i.tolist() == j.tolist()
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("width", [2, 3, 16])
@pytest.mark.parametrize("to", [torch.float32, torch.int64, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float64, torch.bfloat16])
def test_short_rows_are_converted_as_their_elements(width, to, dtype):
    x = (torch.arange(700 * (width + 1)) % 200).view(700, width + 1).to(dtype)
    want = x.to(to)[:, :width]
    assert x[:, :width].to(to).tolist() == want.tolist()
    assert torch.empty(700, width, dtype=to).copy_(x[:, :width]).tolist() == want.tolist()


def test_conversions_of_complex_and_wide_numbers_wrap_as_others_do():
    x = torch.tensor([1.9, -2.9, 300.0, 2.0**40, torch.nan] * 20, dtype=torch.float64)
    for to in (torch.int32, torch.uint8):
        assert x.to(to).tolist() == [v.to(to).item() for v in x]
    z = torch.complex(x[:3], -x[:3])
    assert z.to(torch.complex64).to(torch.int64).tolist() == [1, -2, 300]
    assert (
        torch.tensor([1, 256, -1] * 30, dtype=torch.int32).to(torch.uint8).tolist()
        == [1, 0, 255] * 30
    )


def test_equal_looks_at_all_elements_and_no_further_than_it_has_to():
    for dtype in (torch.float32, torch.bool, torch.uint8, torch.complex64, torch.bfloat16):
        x = torch.ones(3000, dtype=dtype)
        for place in (0, 1023, 1024, 2999):
            y = x.clone()
            y[place] = 0
            assert torch.equal(x, x.clone()) and not torch.equal(x, y)
            assert not torch.equal(x[::2], y[place % 2 :: 2])
    assert not torch.equal(torch.tensor(torch.nan), torch.tensor(torch.nan))
    assert torch.equal(torch.tensor(0.0), torch.tensor(-0.0))


@pytest.mark.parametrize("index", [[2, 1, 0], [0, 0], [4, 3, 2, 1, 0, 0, 1]])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.complex64])
def test_few_columns_are_taken_from_many_rows(index, dtype):
    x = torch.arange(600 * 5).view(600, 5).to(dtype)
    want = [[row[i] for i in index] for row in x.tolist()]
    for t in layouts(x):
        assert t[:, index].tolist() == want
        assert t.index_select(1, torch.tensor(index)).tolist() == want
        placed = torch.empty(600, 2 * len(index), dtype=dtype)[:, ::2]
        assert torch.index_select(t, 1, torch.tensor(index), out=placed).tolist() == want
    with pytest.raises(RuntimeError, match="out of DATA bounds"):
        x.index_select(1, torch.tensor([0, 5]))


@pytest.mark.parametrize("n", [1, 2, 7, 15, 16, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
@pytest.mark.parametrize("descending", [False, True])
def test_short_lines_are_sorted_with_equals_as_they_came(n, dtype, descending):
    x = (torch.arange(60 * n) * 37 % 5 - 1).view(60, n).to(dtype)
    values, indices = x.sort(dim=1, descending=descending, stable=True)
    for line, found, places in zip(x.tolist(), values.tolist(), indices.tolist(), strict=True):
        order = sorted(range(n), key=lambda i: (-line[i] if descending else line[i], i))
        assert places == order
        assert found == [line[i] for i in order]


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("first", [2.0, torch.inf, torch.nan])
def test_what_is_beyond_an_image_adds_nothing_whatever_its_first_element_is(mode, first):
    x = torch.arange(30.0).view(1, 1, 5, 6) + 1
    x[0, 0, 0, 0] = first
    far = torch.full((1, 3, 70, 2), -3.0)
    assert F.grid_sample(x, far, mode, align_corners=False).tolist() == [[[[0.0] * 70] * 3]]
    inside = torch.tensor([0.3, 0.2]).expand(1, 2, 70, 2)
    found = F.grid_sample(x, inside, mode, align_corners=False)
    assert torch.equal(found, F.grid_sample(x.nan_to_num(0, 0), inside, mode, align_corners=False))
