"""Functions of complex numbers at infinities, zeros of both signs, NaN and sizes whose squares leave the range: beside
Python's `cmath`, which follows C99's annex G, and facts that PyTorch 2.13 shows."""

from __future__ import annotations

import cmath
import math

import pytest

import torchlike as torch

INF, NAN = math.inf, math.nan
PARTS = (0.0, -0.0, 1.0, -1.0, 0.3, -0.3, 2.5, -2.5, INF, -INF, NAN, 3.5e20, 1e-20, -1e-12)
GRID = [complex(x, y) for x in PARTS for y in PARTS]
CIRCULAR = ["sin", "cos", "tan", "asin", "acos", "atan"]
FUNCTIONS = ["exp", "log", "log10", "sqrt", *CIRCULAR, *(name + "h" for name in CIRCULAR)]


def known(name, z):
    """What cmath says, or None where it refuses or C99 leaves the sign of a part open."""
    try:
        return getattr(cmath, name)(z)
    except (ValueError, OverflowError):
        return None


def agree(ours, theirs, relative=1e-12):
    if math.isnan(theirs):
        return math.isnan(ours)
    if theirs == 0 or math.isinf(theirs):
        return abs(ours) == abs(theirs)
    return abs(ours - theirs) <= relative * abs(theirs)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_of_annex_g(name):
    results = getattr(torch, name)(torch.tensor(GRID, dtype=torch.complex128)).tolist()
    compared = 0
    for z, ours in zip(GRID, results, strict=True):
        theirs = known(name, z)
        if theirs is None:
            continue
        compared += 1
        for part in ("real", "imag"):
            us, them = getattr(ours, part), getattr(theirs, part)
            # Of NaN later editions of the standard know more than cmath.
            assert agree(us, them) or (cmath.isnan(z) and math.isnan(them)), (z, ours, theirs)
    assert compared > 100


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "acos"])
def test_zeros_keep_the_side_of_a_branch_cut(name):
    finite = [z for z in GRID if cmath.isfinite(z) and abs(z) < 100]
    results = getattr(torch, name)(torch.tensor(finite, dtype=torch.complex128)).tolist()
    for z, ours in zip(finite, results, strict=True):
        theirs = known(name, z)
        if theirs is not None:
            signs = [
                math.copysign(1, part) for part in (ours.real, ours.imag, theirs.real, theirs.imag)
            ]
            assert signs[:2] == signs[2:], (z, ours, theirs)


def test_an_arccosine_on_the_real_axis_has_a_zero_without_a_sign():
    for z in (complex(0.3, 0.0), complex(2.5, -0.0)):
        assert abs(torch.tensor(z, dtype=torch.complex128).acos().item() - cmath.acos(z)) < 1e-12
    assert math.copysign(1, torch.tensor(0.3 + 0j).acos().item().imag) == 1


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_quotients_of_numbers_whose_squares_leave_the_range(dtype):
    big = torch.finfo(dtype).max / 4
    tiny = torch.finfo(dtype).tiny * 4
    for size in (big, tiny):
        z = torch.tensor([complex(size, size), complex(0, size), complex(-size, 0)], dtype=dtype)
        assert (z / z - 1).abs().max().item() < 1e-6
        assert (z * z.reciprocal() - 1).abs().max().item() < 1e-6
    one = torch.tensor([1 + 2j], dtype=dtype)
    assert (one / 0).item() == complex(INF, INF)
    assert torch.addcdiv(
        torch.zeros(1, dtype=dtype), one * big / 4, one * big / 4
    ).item() == pytest.approx(1)


def test_small_numbers_keep_their_digits():
    z = torch.tensor([3e-15 + 4e-15j, 1e-200 - 1e-200j], dtype=torch.complex128)
    for there, back in (("log1p", "expm1"), ("asinh", "sinh"), ("atan", "tan"), ("tanh", "atanh")):
        for first, second in ((there, back), (back, there)):
            again = getattr(torch, second)(getattr(torch, first)(z))
            assert ((again - z).abs() / z.abs()).max().item() < 1e-14, (first, second)
    near = torch.tensor([1 + 1e-12j, 2.5 + 1e-20j], dtype=torch.complex128).acos().tolist()
    assert near[0].real == pytest.approx(math.sqrt(1e-12), rel=1e-6)
    assert near[1].real == pytest.approx(1e-20 / math.sqrt(2.5**2 - 1), rel=1e-12)


def test_powers_are_exponentials_of_logarithms_but_for_numbers_that_need_none():
    zero, one = torch.zeros(2, dtype=torch.complex128)
    assert cmath.isnan(torch.pow(zero, one * 0).item())
    assert torch.pow(zero, 0).item() == 1
    z = torch.tensor([complex(INF, 1), 1 - 2j, 0j], dtype=torch.complex128)
    assert torch.pow(z, 0).tolist() == [1, 1, 1]
    assert torch.pow(z, 1).tolist() == z.tolist()
    assert torch.pow(z[1], 3).item() == (1 - 2j) ** 3
    assert torch.pow(z[1:2], -2).item() == pytest.approx(1 / (1 - 2j) ** 2)
    # An infinite exponent decides, whatever NaN a plain product would have left.
    assert torch.pow(torch.tensor(2 + 0j), torch.tensor(complex(-INF, INF))).item() == 0
    assert torch.ldexp(torch.tensor(3 + 0j), torch.tensor(complex(-INF, -INF))).item() == 0


def test_truth_does_not_depend_on_squares():
    z = torch.tensor([1e-30 + 0j, 1e-30j, 0j], dtype=torch.complex64)
    assert torch.logical_and(z, z).tolist() == [True, True, False]
    assert torch.logical_or(z, z * 0).tolist() == [True, True, False]
    assert torch.logical_xor(z, z * 0).tolist() == [True, True, False]


@pytest.mark.parametrize("name", ["sigmoid", "nn.functional.silu", "sinc", "sgn"])
def test_functions_made_of_others_at_the_edges(name):
    function = torch
    for part in name.split("."):
        function = getattr(function, part)
    z = torch.tensor(
        [complex(-40, 0.5), complex(800, 0.5), -0j, complex(0, 1e-30)], dtype=torch.complex128
    )
    expected = {
        "sigmoid": [cmath.exp(complex(-40, 0.5)), 1, 0.5, 0.5],
        "nn.functional.silu": [
            complex(-40, 0.5) * cmath.exp(complex(-40, 0.5)),
            800 + 0.5j,
            0,
            0.5e-30j,
        ],
        "sinc": [None, None, 1, 1],
        "sgn": [
            complex(-40, 0.5) / abs(complex(40, 0.5)),
            complex(800, 0.5) / abs(complex(800, 0.5)),
            0,
            1j,
        ],
    }[name]
    for ours, theirs in zip(function(z).tolist(), expected, strict=True):
        assert theirs is None or ours == pytest.approx(theirs)


class TestPairsOfHalves:
    def test_are_filled_with_both_parts(self):
        x = torch.zeros(2, dtype=torch.complex32)
        assert x.fill_(2 - 3j).tolist() == [2 - 3j] * 2
        assert torch.full((2,), 1 - 2j, dtype=torch.complex32).tolist() == [1 - 2j] * 2
        assert x.new_full((), 1j).item() == 1j

    def test_become_integers_as_other_floats_do(self):
        values = [complex(v) for v in (math.inf, -math.inf, math.nan, -2.7, 300)]
        x = torch.tensor(values, dtype=torch.complex32)
        for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8):
            assert x.to(dtype).equal(x.to(torch.complex64).to(dtype)), dtype

    def test_are_summed_into_places(self):
        x = torch.tensor([1 + 1j, 2 - 2j, 3], dtype=torch.complex32)
        places, want = torch.tensor([0, 0, 2]), [4 + 0j, 2 - 2j, 6 + 0j]
        assert x.index_add(0, places, x).tolist() == want
        assert x.index_put((places,), x, accumulate=True).tolist() == want


def test_parts_are_written():
    z = torch.zeros(3, dtype=torch.complex64)
    z.imag = torch.tensor([1.0, 2.0, 3.0])
    z.real = 5
    z[0].imag = 9.0
    assert z.tolist() == [5 + 9j, 5 + 2j, 5 + 3j] and z._version == 3
    leaf = torch.ones(2, dtype=torch.complex128, requires_grad=True)
    made = leaf * 2
    made.imag = torch.ones(2, dtype=torch.float64)
    made.real = made.real * 3
    assert made.grad_fn.name() == "torch::autograd::CopySlices"
    made.real.sum().backward()
    assert leaf.grad.tolist() == [6, 6]
    x = torch.ones(2)
    x.real = 3
    assert x.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="not implemented for tensors with non-complex"):
        x.imag = 1
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        z.imag = torch.ones(4)
    with pytest.raises(AttributeError, match="can't delete attribute 'imag'"):
        del z.imag


def test_bilinear_forms():
    torch.manual_seed(0)
    x, y = (torch.randn(2, n, dtype=torch.complex64) for n in (3, 4))
    w, b = torch.randn(5, 3, 4, dtype=torch.complex64), torch.randn(5, dtype=torch.complex64)
    want = torch.einsum("bi,oij,bj->bo", x, w, y) + b
    assert torch.allclose(torch.nn.functional.bilinear(x, y, w, b), want, atol=1e-5)
    with pytest.raises(RuntimeError, match=r"^_trilinear does not support automatic"):
        torch.nn.functional.bilinear(x.requires_grad_(), y, w)
