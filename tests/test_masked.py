"""`torch.masked`: the elements that a mask lets through, by PyTorch's rules."""

import math

import pytest

import torchlike as tl
from torchlike import masked

X = tl.tensor([[1.0, 2.0, -3.0], [4.0, 5.0, 6.0]])
MASK = tl.tensor([[True, False, True], [False, False, False]])
INF, NAN = math.inf, math.nan

# What PyTorch 2.13 gives along dimension 1.
RESULTS = {
    "sum": [-2.0, 0.0],
    "prod": [-3.0, 1.0],
    "amax": [1.0, -INF],
    "amin": [-3.0, INF],
    "mean": [-1.0, NAN],
    "median": [-3.0, NAN],
    "argmax": [0.0, 0.0],
    "argmin": [2.0, 0.0],
    "var": [8.0, NAN],
    "std": [2.8284270763397217, NAN],
    "logsumexp": [1.018149971961975, -INF],
}


def same(found: tl.Tensor, expected: list) -> None:
    assert tl.allclose(found, tl.tensor(expected, dtype=found.dtype), equal_nan=True, rtol=1e-6)


@pytest.mark.parametrize("name", RESULTS)
def test_reductions(name: str) -> None:
    f = getattr(masked, name)
    same(f(X, 1, mask=MASK), RESULTS[name])
    kept = f(X, 1, keepdim=True, mask=MASK)
    assert kept.shape == (2, 1)
    assert f(X.to("meta"), 1, mask=MASK.to("meta")).shape == (2,)
    same(f(X, 1, mask=tl.ones_like(MASK)), f(X, 1).tolist())


def test_what_runs_along_lines() -> None:
    same(masked.cumsum(X, 1, mask=MASK)[0], [1.0, 1.0, -2.0])
    same(masked.cumprod(X, 1, mask=MASK)[0], [1.0, 1.0, -3.0])
    same(masked.softmax(X, 1, mask=MASK), [[0.98201376, 0.0, 0.01798621], [NAN] * 3])
    same(masked.softmin(X, 1, mask=MASK)[0], [0.01798621, 0.0, 0.98201376])
    same(masked.log_softmax(X, 1, mask=MASK)[0], [-0.01814996, -INF, -4.01814985])
    same(masked.normalize(X, 2.0, 1, mask=MASK), [[0.31622776, 0.0, -0.94868326], [0.0] * 3])
    same(masked.norm(X, -INF, 1, mask=MASK), [1.0, INF])
    same(masked.logaddexp(X, X, input_mask=MASK)[0], [1.69314718, 2.0, -2.30685282])


def test_a_product_over_no_dimension() -> None:
    same(masked.prod(X, [], mask=MASK), tl.where(MASK, X, 1.0).tolist())
    assert masked.prod(X, (), mask=MASK).shape == ()


def test_types_and_integers() -> None:
    ints = X.int()
    assert masked.sum(ints, mask=MASK).dtype == tl.int64
    assert masked.amax(ints, mask=MASK).item() == 1
    assert masked.cumsum(ints, 1, mask=MASK).dtype == tl.int32
    assert masked.var(ints, mask=MASK).dtype == tl.float32
    assert masked.mean(X, mask=MASK, dtype=tl.float64).dtype == tl.float64


def test_gradients_reach_what_the_mask_lets_through() -> None:
    x = X.clone().requires_grad_()
    masked.sum(x * x, mask=MASK).backward()
    assert x.grad.tolist() == [[2.0, 0.0, -6.0], [0.0, 0.0, 0.0]]


REFUSED = [
    (
        lambda: masked.sum(X, 5, mask=MASK),
        IndexError,
        "expected to be in range of [-2, 1], but got 5",
    ),
    (lambda: masked.sum(X, (0, 0)), RuntimeError, "dim=0 appears multiple times"),
    (lambda: masked.sum(X, 1, mask=MASK[None]), IndexError, "expected broadcastable mask"),
    (lambda: masked.amax(X > 0, mask=MASK), NotImplementedError, "identity of amax on torch"),
    (lambda: masked.mean(X.int(), mask=MASK), ValueError, "Could not infer output dtype"),
    (lambda: masked.median(X.int(), 1, mask=MASK), ValueError, "no fully masked out rows"),
]


@pytest.mark.parametrize(("call", "kind", "text"), REFUSED)
def test_refused(call, kind, text: str) -> None:
    with pytest.raises(kind) as e:
        call()
    assert text in str(e.value)


SPARSE = tl.tensor([[1.0, 0.0, 2.0, 0.0], [0.0] * 4, [3.0, -4.0, 0.0, 5.0]])
LETS = tl.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]], dtype=tl.bool)


@pytest.mark.parametrize("layout", [tl.sparse_coo, tl.sparse_csr])
@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin", "mean"])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_sparse_tensors_keep_their_layout(layout, name, dim) -> None:
    f = getattr(masked, name)
    given = SPARSE.to_sparse(layout=layout)
    if name == "mean" and layout is tl.sparse_coo:
        with pytest.raises(
            ValueError, match=r"strided or sparse_csr tensor \(got torch.sparse_coo"
        ):
            f(given, dim, mask=LETS)
        return
    made = f(given, dim, keepdim=True, mask=LETS.to_sparse(layout=layout))
    some = LETS.any() if dim is None else LETS.any(dim, keepdim=True)
    whole = f(SPARSE, dim, keepdim=True, mask=LETS)
    assert made.layout is layout
    assert made.to_dense().equal(tl.where(some, whole, 0.0))
    if name == "sum":
        assert f(given, dim, keepdim=True).to_dense().equal(SPARSE.sum(dim, keepdim=True))
    else:
        with pytest.raises(ValueError, match="expects explicit mask"):
            f(given, dim)
    if layout is tl.sparse_csr:
        with pytest.raises((RuntimeError, AssertionError), match="keepdim=False is unsupported"):
            f(given, dim, mask=LETS)


def test_sparse_tensors_with_dense_dimensions() -> None:
    both = tl.stack([SPARSE, 2 * SPARSE], -1)
    lets = tl.stack([LETS, LETS.logical_not()], -1)
    for dim in (1, 2, (1, 2)):
        made = masked.sum(both.to_sparse(2), dim, mask=lets)
        assert made.to_dense().equal(masked.sum(both, dim, mask=lets))
    with pytest.raises(ValueError, match="masked softmax expects strided tensor"):
        masked.softmax(SPARSE.to_sparse(), 1)
    assert masked.sum(SPARSE, 1, mask=LETS.to_sparse()).tolist() == [1, 0, 8]


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin"])
def test_sparse_numbers_have_no_dimension(name) -> None:
    number = tl.tensor(3.0).to_sparse()
    made = getattr(masked, name)(number, mask=tl.tensor(True).to_sparse())
    assert (made.layout, made.shape, made.to_dense().item()) == (tl.sparse_coo, (), 3)
    for dim in (None, (), 0, -1, (0,)):
        for keepdim in (False, True):
            made = getattr(masked, name)(
                number, dim, keepdim=keepdim, mask=tl.tensor(True).to_sparse()
            )
            assert (made.layout, made.shape, made.to_dense().item()) == (tl.sparse_coo, (), 3)
