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
