"""Maxima of windows of every kind against a plain walk: ties, infinities and NaN among the values.

Windows that look alike are taken some at a time; sizes here meet the ends of that.
"""

import itertools

import numpy as np
import pytest

import torchlike as torch
import torchlike.nn.functional as F

KINDS = [
    (kernel, stride, padding)
    for kernel, stride, padding in itertools.product((2, 3, 4, 5), (1, 2, 3), (0, 1, 2))
    if padding <= kernel // 2
]


def walk(x, kernel, stride, padding):
    """Maxima and their places: of equal elements the first counts, of NaNs the last."""
    height, width = x.shape
    rows, columns = ((n + 2 * padding - kernel) // stride + 1 for n in x.shape)
    most, places = np.empty((rows, columns), x.dtype), np.empty((rows, columns), np.int64)
    for i, j in itertools.product(range(rows), range(columns)):
        top, left = i * stride - padding, j * stride - padding
        inside = itertools.product(
            range(max(top, 0), min(top + kernel, height)),
            range(max(left, 0), min(left + kernel, width)),
        )
        best, place = -np.inf, max(top, 0) * width + max(left, 0)
        for h, w in inside:
            if x[h, w] > best or np.isnan(x[h, w]):
                best, place = x[h, w], h * width + w
        most[i, j], places[i, j] = best, place
    return most, places


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_maxima_are_those_of_a_walk(kind, dtype):
    rng = np.random.default_rng(0)
    for width in (7, 16, 17, 18, 19, 33, 40):
        x = rng.integers(-3, 4, (9, width)).astype(dtype)
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.3] = -np.inf
        most, places = walk(x, *kind)
        planes = torch.tensor(x)[None, None]
        y, at = F.max_pool2d(planes, *kind, return_indices=True)
        np.testing.assert_array_equal(y.numpy()[0, 0], most)
        np.testing.assert_array_equal(at.numpy()[0, 0], places)
        np.testing.assert_array_equal(F.max_pool2d(planes, *kind).numpy()[0, 0], most)


def test_a_volume_without_a_batch_keeps_its_channels_innermost():
    x = torch.rand(8, 5, 6, 7)
    last = x[None].contiguous(memory_format=torch.channels_last_3d)[0]
    for made, want in zip(
        F.max_pool3d(last, 2, return_indices=True),
        F.max_pool3d(x, 2, return_indices=True),
        strict=True,
    ):
        assert torch.equal(made, want)
        assert made.stride() == (1, 72, 24, 8)
    assert F.avg_pool3d(last, 2).is_contiguous()


@pytest.mark.parametrize(("kernel", "size"), [((2,), 3), ((), 3), (2, (3,)), (2, (3, 3, 3, 3))])
def test_random_windows_have_a_size_for_each_dimension(kernel, size):
    for pool, n in ((F.fractional_max_pool2d, 2), (F.fractional_max_pool3d, 3)):
        with pytest.raises(RuntimeError, match="must either be a single Int or tuple of"):
            pool(torch.rand(2, *(7,) * n), kernel, size)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_infinite_powers_are_extremes(dims):
    pool, most = (getattr(F, f"{kind}_pool{dims}d") for kind in ("lp", "max"))
    x = torch.arange(-64.0, 64.0).view(2, *(4,) * 3)[
        (slice(None),) * (dims + 1) + (0,) * (3 - dims)
    ]
    assert pool(x, float("inf"), 2).equal(most(x.abs(), 2))
    assert pool(x, -float("inf"), 2, stride=1).equal(-most(-x.abs(), 2, stride=1))
