"""Kernels that take elements, rows or indices in blocks: what lies at their ends, in all layouts, on any threads."""

import numpy as np
import pytest

import torchlike as tl

SIZES = [0, 1, 63, 64, 65, 1023, 1024, 1025, 40000]


@pytest.fixture(params=[1, 2])
def threads(request):
    before = tl.get_num_threads()
    tl.set_num_threads(request.param)
    yield request.param
    tl.set_num_threads(before)


@pytest.mark.parametrize("n", SIZES)
def test_sequences(n, threads):
    k = np.arange(n, dtype=np.float64)
    assert tl.arange(n).tolist() == list(range(n))
    assert np.array_equal(tl.arange(0.5, 0.5 + n, dtype=tl.float64).numpy(), 0.5 + k)
    assert np.array_equal(
        tl.arange(0.5, 0.5 + 0.25 * n, 0.25).numpy(), (0.5 + 0.25 * k).astype(np.float32)
    )
    line = tl.linspace(-3, 5, n, dtype=tl.float64)
    assert len(line) == n and np.allclose(
        line.numpy(), np.linspace(-3, 5, n), rtol=1e-15, atol=1e-15
    )
    whole = tl.linspace(
        -7, 9, n, dtype=tl.int64, out=tl.zeros(2 * n, dtype=tl.int64)[::2] if n else None
    )
    assert whole.tolist() == [int(v) for v in line_of(-7.0, 9.0, n)]
    parts = np.array([line_of(-3.0, 5.0, n), line_of(2.0, -1.0, n)])
    for dtype, real in ((tl.complex128, np.float64), (tl.complex64, np.float32)):
        made = tl.view_as_real(tl.linspace(-3 + 2j, 5 - 1j, n, dtype=dtype)).numpy()
        assert np.array_equal(made.T, parts.astype(real))


def line_of(start, end, n):
    step = (end - start) / (n - 1) if n > 1 else 0.0
    return [
        start + step * i if i < n // 2 or n == 1 else end - step * (n - 1 - i) for i in range(n)
    ]


@pytest.mark.parametrize("n", [1, 5, 63, 64, 65, 200])
def test_functions_of_halves_are_those_of_single_precision_rounded(n):
    x = (7 * tl.arange(n) % 23 - 11) * tl.tensor([0.25, 1.0, 256.0]).repeat(n)[:n]
    x[::9] = tl.tensor([tl.nan, tl.inf, -tl.inf, -0.0]).repeat(n)[: len(x[::9])]
    y = x.flip(0)
    functions = [
        *(tl.ceil, tl.floor, tl.trunc, tl.round, tl.relu, tl.sqrt),
        *(lambda x, other=other: tl.maximum(x, other.to(x.dtype)) for other in (y, y[0])),
        *(lambda x, other=other: tl.lerp(x, other.to(x.dtype), 0.25) for other in (y, y[0])),
        *(lambda x, other=other: x.clone().add_(other.to(x.dtype)) for other in (y, y[0])),
        *(lambda x: x.clone().ceil_(), lambda x: x.mul(1.5), lambda x: x.clone().clamp_(-3, 2)),
    ]
    for f in functions:
        for dtype in (tl.float16, tl.bfloat16):
            for one in (x, x.repeat_interleave(2)[::2]):
                want = f(one.to(dtype).float()).to(dtype)
                got = f(one.to(dtype))
                assert tl.allclose(got, want, equal_nan=True, rtol=0, atol=0)
                assert tl.equal(tl.signbit(got) & ~got.isnan(), tl.signbit(want) & ~want.isnan())


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 1023, 1024, 1040, 3000])
def test_random_halves_are_those_of_single_precision_rounded(n, dtype):
    tl.manual_seed(n)
    single = tl.rand(n)
    tl.manual_seed(n)
    # What is rounded up to the excluded end becomes the other one.
    rounded = single.to(dtype)
    assert tl.rand(n, dtype=dtype).tolist() == tl.where(rounded == 1, 0.0, rounded).tolist()
    whole = n // 16 * 16
    if whole:
        tl.manual_seed(n)
        single = tl.randn(whole)
        tl.manual_seed(n)
        halves = tl.randn(n, dtype=dtype)
        kept = whole if whole == n else n - 16
        assert halves[:kept].tolist() == single[:kept].to(dtype).tolist()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_indices_are_checked_wherever_they_are(n, threads):
    x = tl.arange(5 * n).view(5, n)
    at = tl.arange(n).flip(0)
    want = x.numpy()[:, ::-1]
    assert np.array_equal(x.index_select(1, at).numpy(), want)
    assert np.array_equal(x[:, at - n].numpy(), want)
    assert np.array_equal(x.gather(1, at.expand(5, n)).numpy(), want)
    assert np.array_equal(x.t().gather(0, at.expand(5, n).t()).numpy(), want.T)
    for k in {0, n // 2, n - 1}:
        for bad in (n, -n - 1):
            wrong = at.clone()
            wrong[k] = bad
            with pytest.raises((IndexError, RuntimeError)):
                x.gather(1, wrong.expand(5, n))
            with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
                x[:, wrong]


@pytest.mark.parametrize("shape", [(7,), (300, 400), (40, 30, 5), (1000, 1), (0, 3)])
def test_masks_of_every_layout(shape, threads):
    x = tl.arange(np.prod(shape, dtype=int).item()).view(shape)
    mask = x * 7919 % 5 < 2
    for a, m in [
        (x, mask),
        (x.mT, mask.mT) if x.ndim > 1 else (x, mask),
        (x[::2], mask[::2]),
        (x.flip(0), mask),
    ]:
        want = a.numpy()[m.numpy()]
        assert np.array_equal(a[m].numpy(), want)
        assert np.array_equal(a.masked_select(m).numpy(), want)
        assert np.array_equal(m.nonzero().numpy(), np.argwhere(m.numpy()))
        filled = a.clone()
        filled[m] = tl.arange(len(want)) + 10
        whole = a.numpy().copy()
        whole[m.numpy()] = np.arange(len(want)) + 10
        assert np.array_equal(filled.numpy(), whole)
    if x.ndim == 3:
        rows = mask[:, :, 0]
        assert np.array_equal(x[rows].numpy(), x.numpy()[rows.numpy()])
        assert np.array_equal(
            x.transpose(0, 2)[:, rows.t()].numpy(), x.numpy().transpose(2, 1, 0)[:, rows.numpy().T]
        )


@pytest.mark.parametrize("dtype", [tl.float32, tl.bfloat16, tl.int64, tl.bool])
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17])
def test_copies_of_short_rows(n, dtype, threads):
    x = (tl.arange(2000 * n).view(2000, n) % 3).to(dtype)
    plain = x.float().numpy()
    assert np.array_equal(x.repeat_interleave(n, 1).float().numpy(), plain.repeat(n, 1))
    assert np.array_equal(
        x[:, None].expand(2000, 3, n).contiguous().float().numpy(), plain[:, None].repeat(3, 1)
    )
    shifted = x.clone()
    shifted[:, 1:] = x[:, :-1]
    over = x.clone()
    over[:, 1:] = over[:, :-1].clone()
    assert shifted.tolist() == over.tolist()


@pytest.mark.parametrize("span", [3, 250, 10**6, 2**62])
def test_members_and_distinct_integers(span, threads):
    x = tl.arange(3000) * 7919 % span - span // 2
    for among in (x[:0], x[:1], x[5:60], tl.cat([x[:3], tl.tensor([-(2**63), 2**63 - 1])])):
        for invert in (False, True):
            want = np.isin(x.numpy(), among.numpy(), invert=invert)
            assert np.array_equal(tl.isin(x, among, invert=invert).numpy(), want)
    values, inverse, counts = tl.unique(x, return_inverse=True, return_counts=True)
    want = np.unique(x.numpy(), return_inverse=True, return_counts=True)
    assert all(
        np.array_equal(a.numpy(), b) for a, b in zip((values, inverse, counts), want, strict=True)
    )
    assert tl.unique(x).tolist() == values.tolist()


def test_lists_of_every_shape():
    for shape in [(), (0,), (3, 0), (0, 3), (2, 1, 3)]:
        for dtype in (tl.float16, tl.int32, tl.bool, tl.complex64):
            x = tl.ones(shape, dtype=dtype)
            assert x.tolist() == np.ones(shape, dtype=x.numpy().dtype).tolist()
            assert x.mT.tolist() == x.mT.contiguous().tolist() if x.ndim > 1 else True
    assert tl.tensor([1 + 2j]).conj().tolist() == [1 - 2j]


def test_rows_that_share_memory_are_written_one_after_the_other():
    x = tl.arange(1.0, 9.0)
    over = x.as_strided((3, 4), (2, 1))
    over.square_()
    want = np.arange(1.0, 9.0, dtype=np.float32)
    for r in range(3):
        want[2 * r : 2 * r + 4] **= 2
    assert np.array_equal(x.numpy(), want)
    y = tl.zeros(8)
    y.as_strided((3, 4), (2, 1)).copy_(tl.arange(12.0).view(3, 4))
    assert y.tolist() == [0, 1, 4, 5, 8, 9, 10, 11]


TILES = [1, 63, 64, 65, 200]
POINTWISE = [
    lambda x, y: tl.add(x, y, alpha=0.25),
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: x.maximum(y),
    lambda x, y: x.copysign(y),
    lambda x, y: x.sqrt(),
    lambda x, y: x.ceil(),
    lambda x, y: x.reciprocal(),
    lambda x, y: -x.round(),
    lambda x, y: tl.nn.functional.leaky_relu(x, 0.125),
    lambda x, y: x.clamp(-0.5, 0.75),
    lambda x, y: x.clamp(y, y.flip(0)),
]


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16])
@pytest.mark.parametrize("n", TILES)
@pytest.mark.parametrize("f", POINTWISE)
def test_halves_are_single_precision_rounded(n, dtype, f):
    tl.manual_seed(n)
    x, y = tl.randn(2, 5, n).to(dtype)
    x[0, n // 2], y[1, 0] = float("nan"), float("inf")
    found = f(x, y).float().numpy()
    steps = f(x.float(), y.float())
    assert np.array_equal(found, steps.to(dtype).float().numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16])
@pytest.mark.parametrize("n", TILES)
def test_halves_beside_numbers_and_in_place(n, dtype):
    tl.manual_seed(n)
    x, y = tl.randn(2, 9, n).to(dtype)
    for other in (0.3, tl.tensor(0.3), y[:, :1], y[0], y[:, :1].float(), y):
        want = (x.float() * other).to(dtype)
        assert (x * other).to(dtype).tolist() == want.tolist()
        assert x.clone().mul_(other).tolist() == want.tolist()
    assert (
        tl.outer(x[0], y[0]).tolist() == (x[0, :, None].float() * y[0].float()).to(dtype).tolist()
    )
    over = x.clone()
    assert over.abs_().neg_().tolist() == (-x.float().abs()).to(dtype).tolist()
    assert tl.add(x, y, out=over).tolist() == (x.float() + y.float()).to(dtype).tolist()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_indices_are_written_to_wherever_they_are(n, threads):
    x, at = tl.arange(5.0 * n).view(5, n), tl.arange(n).flip(0).expand(5, n)
    want = x.numpy()[:, ::-1]
    for a in (x, x.t().contiguous().t()):
        assert np.array_equal(tl.zeros(5, n).scatter(1, at, a).numpy(), want)
        assert np.array_equal(tl.ones(5, n).scatter_add(1, at, a).numpy(), want + 1)
        assert np.array_equal(tl.zeros(n, 5).scatter(0, at.t(), a.t()).numpy(), want.T)
        assert np.array_equal(a.take(at - n * 5).numpy(), x.numpy().ravel()[at.numpy() - n * 5])
    for bad in (n, -1):
        wrong = at.clone()
        wrong[3, n // 2] = bad
        with pytest.raises(RuntimeError, match=f"index {bad} is out of bounds"):
            tl.zeros(5, n).scatter_(1, wrong, x)


@pytest.mark.parametrize("dtype", [tl.uint8, tl.bool, tl.bfloat16, tl.float32, tl.complex128])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_lines_are_turned_round(n, dtype):
    x = (tl.arange(3 * n).view(3, n) % 7).to(dtype)
    plain = x.to(tl.complex128).numpy()
    assert np.array_equal(x.flip(1).to(tl.complex128).numpy(), plain[:, ::-1])
    assert np.array_equal(x[:, 1:].flip(0, 1).to(tl.complex128).numpy(), plain[::-1, :0:-1])


@pytest.mark.parametrize("dtype", [tl.float16, tl.float32, tl.float64, tl.int64])
def test_operands_whose_neighbours_are_apart(dtype, threads):
    x = (tl.arange(150 * 150) % 401).view(150, 150).to(dtype)
    y = tl.arange(20 * 30 * 40).view(20, 40, 30).transpose(1, 2).to(dtype)
    for a, b in [(x, x.t()), (x.t(), x), (y.contiguous(), y), (y, y.contiguous())]:
        assert (a + b).tolist() == (a.contiguous() + b.contiguous()).tolist()
        assert (a < b).tolist() == (a.contiguous() < b.contiguous()).tolist()
        assert (a + b).stride() == a.stride()
    want = (x + x.t().contiguous()).tolist()
    assert x.clone().add_(x.t()).tolist() == want
    assert tl.where(x > 3, x.t(), x).tolist() == tl.where(x > 3, x.t().contiguous(), x).tolist()


@pytest.mark.parametrize("p", [1, 2, 3, float("inf")])
@pytest.mark.parametrize("dtype", [tl.float16, tl.float32, tl.float64, tl.complex64])
def test_slices_scaled_to_a_norm(p, dtype, threads):
    tl.manual_seed(0)
    x = tl.randn(3, 40, 5, dtype=tl.complex128 if dtype.is_complex else tl.float64).to(dtype)
    for a in (x, x.transpose(0, 2), x[:, ::2]):
        for dim in range(3):
            wide = a.numpy().astype(np.complex128)
            others = tuple(d for d in range(3) if d != dim)
            size = np.abs(wide)
            norm = size.max(others, keepdims=True)
            if p != float("inf"):
                norm = (size**p).sum(others, keepdims=True) ** (1 / p)
            want = wide * np.where(norm > 2, 2 / (norm + 1e-7), 1)
            eps = 1e-3 if dtype == tl.float16 else 1e-6
            found = a.renorm(p, dim, 2)
            np.testing.assert_allclose(found.numpy().astype(np.complex128), want, eps, eps)
            assert a.clone().renorm_(p, dim, 2).tolist() == found.tolist()


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16])
def test_halves_scaled_to_a_norm_are_single_ones_rounded(dtype, threads):
    x = ((tl.arange(3 * 700 * 5) % 31 - 15) / 16).view(3, 700, 5).to(dtype)
    for dim in range(3):
        want = x.float().renorm(2, dim, 3).to(dtype)
        eps = tl.finfo(dtype).eps
        assert tl.allclose(x.renorm(2, dim, 3), want, rtol=eps, atol=0), dim


@pytest.mark.parametrize("dtype", [tl.float16, tl.bfloat16, tl.complex64])
@pytest.mark.parametrize("shape", [(3, 70, 40), (600, 3), (2, 1200)])
def test_products_of_types_that_are_folded_as_they_are(dtype, shape, threads):
    tl.manual_seed(0)
    # Near 1 in size, so that no product vanishes.
    x = (1 + (tl.rand(shape, dtype=tl.float64) - 0.5) / 16).to(dtype)
    if dtype.is_complex:
        x = x * tl.exp(1j * tl.arange(x.numel()).view(shape)).to(dtype)
    for t in (x, x.t() if len(shape) == 2 else x.transpose(0, 2)):
        wide = t.to(tl.complex128).numpy()
        for dim in range(t.ndim):
            found = t.prod(dim).to(tl.complex128).numpy()
            eps = 1e-4 if dtype.is_complex else tl.finfo(dtype).eps
            np.testing.assert_allclose(found, wide.prod(dim), eps)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("dtype", [tl.float32, tl.float64, tl.bfloat16])
def test_grids_of_many_places_are_those_of_their_rows(mode, dtype, threads):
    tl.manual_seed(0)
    x = tl.randn(2, 3, 9, 11).to(dtype)
    x[1, 2, 0, 0] = tl.inf
    grid = (2.4 * tl.rand(2, 41, 37, 2) - 1.2).to(dtype)
    sample = tl.nn.functional.grid_sample
    rows = [sample(x, grid[:, i : i + 1], mode, align_corners=False) for i in range(41)]
    found = sample(x, grid, mode, align_corners=False)
    assert tl.equal(found.nan_to_num(7), tl.cat(rows, 2).nan_to_num(7))


@pytest.mark.parametrize(("mode", "name"), [("reflect", "reflect"), ("replicate", "edge")])
@pytest.mark.parametrize("dtype", [tl.uint8, tl.float32])
def test_pads_of_many_rows(mode, name, dtype, threads):
    x = (tl.arange(3 * 5 * 70 * 9) % 251).view(3, 5, 70, 9).to(dtype)
    found = tl.nn.functional.pad(x, (3, 2, 1, 4), mode)
    want = np.pad(x.numpy(), ((0, 0), (0, 0), (1, 4), (3, 2)), name)
    assert np.array_equal(found.numpy(), want)


@pytest.mark.parametrize("dtype", [tl.float32, tl.float64, tl.bfloat16])
def test_images_are_resized_in_their_place(dtype, threads):
    x = (tl.arange(2 * 3 * 20 * 30) % 97).view(2, 3, 20, 30).to(dtype)
    resize = tl.nn.functional.interpolate
    near = resize(x, size=(50, 60), mode="nearest")
    rows, columns = np.arange(50) * 20 // 50, np.arange(60) * 30 // 60
    assert near.tolist() == x[:, :, rows][..., columns].tolist()
    last = resize(x.to(memory_format=tl.channels_last), size=(50, 60), mode="nearest")
    assert last.tolist() == near.tolist()
    line = resize(x[0], size=59, mode="linear", align_corners=True)
    half = (x[0].float()[..., 1:] + x[0].float()[..., :-1]) / 2
    assert line[..., ::2].tolist() == x[0].tolist()
    assert line[..., 1::2].tolist() == half.to(dtype).tolist()
    # A scale of its own makes another map of sizes that are equal.
    both = [
        resize(x.double(), scale_factor=(1.04, 2), mode="bicubic", recompute_scale_factor=False),
        resize(
            resize(x.double(), scale_factor=(1.04, 1), mode="bicubic"),
            scale_factor=(1, 2),
            mode="bicubic",
        ),
    ]
    tl.testing.assert_close(*both, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [tl.int32, tl.int64])
def test_numbers_of_triangles(dtype):
    for offset in (-3, 0, 2):
        lower = tl.tril_indices(7, 5, offset, dtype=dtype).numpy()
        assert np.array_equal(lower, np.tril_indices(7, offset, 5))
        upper = tl.triu_indices(7, 5, offset, dtype=dtype).numpy()
        assert np.array_equal(upper, np.triu_indices(7, offset, 5))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "complex64", "complex128"])
def test_rows_of_any_length_are_brought_together(dtype, threads):
    rng = np.random.default_rng(0)
    for n in (1, 2, 15, 16, 17, 31, 33, 64, 65, 127, 300, 513):
        x = rng.integers(0, 90, (3, 40, 5, n + 3)).astype(dtype)
        mine = tl.tensor(x)[..., 2 : 2 + n].transpose(1, 2)
        wanted = np.ascontiguousarray(x[..., 2 : 2 + n].swapaxes(1, 2))
        np.testing.assert_array_equal(mine.contiguous().numpy(), wanted)
        into = tl.zeros(3, 5, 40, n + 1, dtype=mine.dtype)
        into[..., 1:] = mine
        np.testing.assert_array_equal(into[..., 1:].numpy(), wanted)
        assert not into[..., 0].any()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(40, 40, 160), (17, 300, 100), (300, 33, 65), (96, 130, 1090)]
)
def test_products_of_halves_have_the_same_bits_on_any_threads(m, n, k, turned):
    tl.manual_seed(m)
    a = tl.randn(k, m).t() if turned[0] else tl.randn(m, k)
    b = tl.randn(n, k).t() if turned[1] else tl.randn(k, n)
    for dtype in (tl.bfloat16, tl.float16):
        x, y, bias = a.to(dtype), b.to(dtype), tl.randn(n).to(dtype)
        before, made = tl.get_num_threads(), []
        for count in (1, 2, 3):
            tl.set_num_threads(count)
            made.append(tl.addmm(bias, x, y, alpha=0.5))
        tl.set_num_threads(before)
        want = 0.5 * (x.double() @ y.double()) + bias.double()
        assert all(tl.equal(t, made[0]) for t in made)
        tl.testing.assert_close(made[0].double(), want, rtol=8e-3, atol=1e-2)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("n", [0, 1, 63, 64, 300])
def test_places_of_values_in_any_order(n, right, threads):
    rng = np.random.default_rng(n)
    edges = np.sort(rng.integers(0, 100, (2, n)) / 4, 1)
    values = np.concatenate(
        [np.sort(rng.integers(-9, 110, 3000) / 4), rng.integers(-9, 110, 3000) / 4]
    )
    values[[0, 700]] = np.nan
    side = "right" if right else "left"
    want = [np.searchsorted(e, values, side) for e in edges]
    found = tl.searchsorted(tl.tensor(edges[0]), tl.tensor(values), right=right)
    assert np.array_equal(found.numpy(), want[0])
    both = tl.tensor(np.stack([values, values]))
    found = tl.searchsorted(tl.tensor(edges), both, right=right)
    assert np.array_equal(found.numpy(), want)
    order = rng.permutation(n)
    back = tl.tensor(np.argsort(order, kind="stable"))
    found = tl.searchsorted(tl.tensor(edges[1][order]), tl.tensor(values), right=right, sorter=back)
    assert np.array_equal(found.numpy(), want[1])


@pytest.mark.parametrize("antialias", [False, True])
def test_images_of_bytes_are_resized_alike_alone_and_together(antialias, threads):
    x = (tl.arange(3 * 150 * 170) * 37 % 251).to(tl.uint8).view(3, 1, 150, 170)
    how = {"size": (120, 140), "mode": "bilinear", "antialias": antialias}
    resize = tl.nn.functional.interpolate
    found = resize(x, **how)
    for i in range(3):
        assert tl.equal(found[i], resize(x[i : i + 1], **how)[0])
    near = resize(x.double(), **how)
    assert (found.double() - near).abs().max() <= 1.01


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 70, 40001])
def test_inner_products(n, threads):
    for dtype in (tl.float32, tl.float64, tl.complex64):
        x = (tl.arange(n) % 5 - 2).to(dtype) * (1 + 2j if dtype.is_complex else 1)
        y = (tl.arange(n) % 3 - 1).to(dtype)
        assert x.dot(y).item() == (x * y).sum().item()
        assert tl.vdot(x, y).item() == (x.conj() * y).sum().item()


@pytest.mark.parametrize("dtype", [tl.uint8, tl.int8, tl.int16, tl.int32, tl.int64])
@pytest.mark.parametrize("step", [1, 2])
def test_occurrences(dtype, step):
    for n in (1, 65, 3001):
        x = (tl.arange(n) * 37 % 101).to(dtype)[::step]
        assert np.array_equal(tl.bincount(x).numpy(), np.bincount(x.numpy()))
        assert np.array_equal(tl.bincount(x, x.double()).numpy(), np.bincount(x.numpy(), x.numpy()))
    if dtype != tl.uint8:
        with pytest.raises(RuntimeError, match="non-negative"):
            tl.bincount(tl.tensor([1, -1], dtype=dtype))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("pads", [(0, 0), (3, 2), (-1, 4), (4, -5), (-6, 0), (0, -9), (-2, -3)])
def test_pads_on_either_side_of_a_line(mode, pads):
    x, (left, right) = tl.arange(10), pads
    inside = list(range(max(-left, 0), 10 - max(-right, 0)))
    ends = {"replicate": "edge", "circular": "wrap"}
    # A mirror shows the line as it was before it was cut.
    whole = range(10) if mode != "circular" else inside
    before = np.pad(list(whole), (max(left, 0), 0), ends.get(mode, mode))[: max(left, 0)]
    after = np.pad(list(whole), (0, max(right, 0)), ends.get(mode, mode))[len(whole) :]
    found = tl.nn.functional.pad(x[None], pads, mode)[0]
    assert found.tolist() == [*before, *inside, *after]


@pytest.mark.parametrize("dtype", [tl.uint8, tl.int64, tl.float32, tl.float64, tl.bfloat16])
@pytest.mark.parametrize("n", [5, 33, 200, 512, 700])
def test_first_operands_that_are_one_element_a_row(n, dtype, threads):
    column, row = tl.arange(1, 12).to(dtype)[:, None], (tl.arange(n) % 7 + 1).to(dtype)
    for f in (tl.add, tl.sub, tl.mul, tl.div, tl.maximum, tl.gt):
        want = f(column.expand(11, n).contiguous(), row.expand(11, n).contiguous())
        assert f(column, row).tolist() == want.tolist()
        assert f(column.expand(11, n), want.to(dtype)).tolist() == [
            f(c.expand(n).contiguous(), w.to(dtype)).tolist()
            for c, w in zip(column, want, strict=True)
        ]
    for alpha in (1, 3):
        want = column.expand(11, n).contiguous() + alpha * row.expand(11, n).contiguous()
        assert tl.add(column, row, alpha=alpha).tolist() == want.tolist()


def test_sigmoids_of_what_is_lost_beside_one():
    x = tl.arange(-120.0, 121.0)
    want = 1 / (1 + np.exp(-x.double().numpy()))
    np.testing.assert_allclose(x.sigmoid().numpy(), want.astype(np.float32), 3e-7, 1e-45)
    assert tl.tensor([tl.inf, -tl.inf]).sigmoid().tolist() == [1, 0]
    assert tl.tensor([tl.nan]).sigmoid().isnan().item()
