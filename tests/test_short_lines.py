"""Kernels that take lines of a few elements side by side agree with NumPy, for every length up to and beyond those."""

import numpy as np
import pytest

import torchlike as tl

LENGTHS = [1, 2, 3, 7, 16, 23, 24, 25, 32, 33]
LINES = [1, 63, 64, 65, 130]


def numbers(lines, n):
    return np.random.default_rng(n * 1000 + lines).normal(size=(lines, n))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
def test_norms(dtype):
    d = getattr(tl, dtype)
    close = {"float64": 1e-12, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]
    for n in LENGTHS:
        weight, bias = numbers(1, n)[0], numbers(2, n)[1]
        for lines in LINES:
            given = tl.tensor(numbers(lines, n)).to(d)
            x = given.double().numpy()
            mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
            rstd = 1 / np.sqrt(variance + 1e-3)
            for w, b in [(None, None), (weight, None), (None, bias), (weight, bias)]:
                parameters = [None if p is None else tl.tensor(p).to(d) for p in (w, b)]
                got = tl.native_layer_norm(given, (n,), *parameters, 1e-3)
                want = (x - mean) * rstd * (1 if w is None else w) + (0 if b is None else b)
                for g, expected in zip(got, (want, mean, rstd), strict=True):
                    np.testing.assert_allclose(g.double(), expected, rtol=close, atol=4 * close)
            root = 1 / np.sqrt((x**2).mean(1, keepdims=True) + 1e-3)
            for w in (None, weight):
                parameter = None if w is None else tl.tensor(w).to(d)
                got = tl.nn.functional.rms_norm(given, (n,), parameter, 1e-3)
                want = x * root * (1 if w is None else w)
                np.testing.assert_allclose(got.double(), want, rtol=close, atol=4 * close)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_extremes(dtype):
    for n in LENGTHS:
        for lines in LINES:
            # Few different ones, so that some are equal.
            x = (numbers(lines, n) * 3 + 9).clip(0, 20).astype("int64").astype(dtype)
            if dtype.startswith("float"):
                x[::3, n // 2] = np.nan
            given = tl.tensor(x)
            for name in ("max", "min"):
                at = getattr(np, f"arg{name}")(x, axis=1)
                assert getattr(given, f"arg{name}")(1).tolist() == at.tolist(), (n, lines)
                values, indices = getattr(given, name)(1)
                assert indices.tolist() == at.tolist()
                np.testing.assert_array_equal(values, getattr(np, name)(x, axis=1))
                np.testing.assert_array_equal(
                    getattr(given, f"a{name}")(1), getattr(np, name)(x, axis=1)
                )
            wide = x.astype("float64") if dtype.startswith("float") else x.astype("int64")
            np.testing.assert_allclose(given.sum(1), wide.sum(1), rtol=1e-6)
            np.testing.assert_array_equal(given.any(1), (wide != 0).any(1))
            np.testing.assert_array_equal(given.all(1), (wide != 0).all(1))


def test_what_repeats_is_read_in_any_order():
    x = tl.tensor(numbers(5, 7))
    repeated = x[:, None, :].expand(5, 6, 7)
    dense = repeated.contiguous().numpy()
    for dims in [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)]:
        np.testing.assert_allclose(repeated.sum(dims), dense.sum(dims), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(repeated.amax(dims), dense.max(dims))


LAYOUTS = {
    "dense": lambda x: x,
    "gaps": lambda x: tl.cat([x, x, x], -1)[..., x.shape[-1] : 2 * x.shape[-1]],
    "every other": lambda x: tl.stack([x, x], -1).flatten(-2)[..., ::2],
    "turned": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "moved": lambda x: x.movedim(-1, 0).contiguous().movedim(0, -1),
}
SHAPES = [(1, 70), (70, 1), (2, 5, 300), (16, 4, 3, 5, 7, 11), (9, 41, 17), (3, 1100, 2)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
)
def test_reductions_of_any_layout(dtype, layout):
    for shape in SHAPES:
        x = np.random.default_rng(len(shape)).integers(0, 4, shape).astype(dtype)
        t = LAYOUTS[layout](tl.tensor(x))
        wide = x.astype("float64")
        for dims in [None, *range(len(shape)), (0, len(shape) - 1)]:
            name = f"{shape} {dims}"
            given = {} if dims is None else {"dim": dims}
            if dtype != "float16":  # whose sums are rounded
                assert t.sum(**given).tolist() == wide.sum(dims).tolist(), name
            assert t.count_nonzero(**given).tolist() == np.count_nonzero(x, dims).tolist(), name
            assert t.amax(**given).tolist() == x.max(dims).tolist(), name
            assert t.amin(**given).tolist() == x.min(dims).tolist(), name
            if not isinstance(dims, tuple):
                assert t.all(**given).tolist() == x.all(dims).tolist(), name
                assert t.any(**given).tolist() == x.any(dims).tolist(), name


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
def test_lines_of_one_element(dtype):
    x = (tl.arange(40).view(40, 1) % 7 - 3).to(getattr(tl, dtype))
    zeros = [[0]] * 40
    for found in (x.sort(1), x.sort(1, True), x.cummax(1), x.cummin(1)):
        assert found[0].equal(x)
        assert found[1].tolist() == zeros
    if dtype == "bool":
        return
    assert x.topk(1, 1)[0].equal(x)
    assert x.topk(1, 1)[1].tolist() == zeros
    assert x.cumsum(1).equal(x)
    assert x.cumprod(1).equal(x)
    for found in (x.kthvalue(1, 1), x.median(1), x.mode(1)):
        assert found[0].equal(x[:, 0])
        assert found[1].tolist() == [0] * 40


def test_norms_of_one_element_are_magnitudes():
    x = tl.tensor([[-1e200], [3e-200], [float("nan")]], dtype=tl.float64)
    for p in (2, 1, 3, float("inf"), -float("inf"), 0.5):
        got = tl.linalg.vector_norm(x, p, dim=1)
        assert got[:2].tolist() == [1e200, 3e-200]
        assert got[2].isnan()
    assert tl.linalg.vector_norm(x, 0, dim=1).tolist() == [1, 1, 1]
    assert x[0, 0].norm().item() == 1e200


@pytest.mark.parametrize("descending", [False, True])
def test_what_repeats_is_in_order(descending):
    x = tl.rand(1, 4, 5).expand(3, 4, 5)
    values, at = x.sort(0, descending)
    assert values.equal(x)
    assert at.equal(tl.arange(3).view(3, 1, 1).expand(3, 4, 5))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", "complex64"])
def test_equals_in_any_layouts(dtype):
    x = (tl.arange(3 * 50 * 70).view(3, 50, 70) % 5 > 2).to(getattr(tl, dtype))
    for one in LAYOUTS.values():
        for other in LAYOUTS.values():
            a, b = one(x), other(x.clone())
            assert a.equal(b)
            for at in ((0, 0, 0), (2, 49, 69), (1, 20, 30)):
                c = b.clone(memory_format=tl.preserve_format)
                c[at] = 1 - c[at].to(tl.float32)
                assert not a.equal(c), at
    assert not tl.tensor([float("nan")]).equal(tl.tensor([float("nan")]))
