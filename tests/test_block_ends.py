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


def line_of(start, end, n):
    step = (end - start) / (n - 1) if n > 1 else 0.0
    return [
        start + step * i if i < n // 2 or n == 1 else end - step * (n - 1 - i) for i in range(n)
    ]


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
