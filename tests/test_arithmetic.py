"""Facts of arithmetic that PyTorch 2.13 shows and that are easy to lose: orders of operands, widths, casts."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import torchlike as torch


def strided(*strides):
    shape = (9, 5, 2)
    return torch.arange(400.0).as_strided(shape, strides, 3)


def test_layout_follows_the_first_operand_in_pytorchs_order():
    a, b = strided(10, 1, 5), strided(10, 2, 1)
    assert (a + b).stride() == (10, 1, 5)
    assert torch.rsub(a, b).stride() == (b - a).stride() == (10, 2, 1)
    assert (a.to(torch.int32) | b.to(torch.int32)).stride() == (10, 1, 5)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_numbers_are_operands_without_dimensions_where_results_lie(device):
    # What lies in several formats at once is ordered by its strides as soon as operands differ in shape
    x = torch.rand(10, 3, 1, 1, device=device).to(memory_format=torch.channels_last)
    ordered, plain = (3, 1, 3, 3), (3, 1, 1, 1)
    for made in (x * 5, 5 * x, x > 0, x % 2, 1 - x, torch.where(x > 0, x, 0.0), x + x[:1]):
        assert made.stride() == ordered
    for made in (x * x, x.pow(2), x.clamp(0, 1), x.clamp_min(0), torch.lerp(x, x, 0.5), -x):
        assert made.stride() == plain
    # A number to the power of a tensor lies row by row
    y = torch.rand(3, 4, device=device).t()
    assert (2**y).stride() == torch.float_power(2.0, y).stride() == (3, 1)
    assert (y**2).stride() == (y + 2).stride() == torch.pow(torch.tensor(2.0), y).stride() == (1, 4)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_reflected_operators_with_numbers(device):
    x = torch.tensor([1, 2, 4]).to(device)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor"):
        result = getattr(operator, name)(7, x)
        assert (result.device.type, result.shape) == (device, x.shape)
    if device == "cpu":
        assert (7 - x).tolist() == [6, 5, 3]
        assert (7 // x).tolist() == [7, 3, 1]
        assert (7 % x).tolist() == [0, 1, 3]
        assert (7 ^ x).tolist() == [6, 5, 3]


def test_a_number_divided_by_a_tensor_is_its_reciprocal_times_the_number():
    x = torch.tensor([49.0])
    assert (3.0 / x).item() == (x.reciprocal() * 3.0).item()
    assert torch.div(3.0, x).item() == torch.tensor(3.0).div(x).item()
    with pytest.raises(TypeError, match="unsupported operand"):
        "3" / x


def test_only_the_four_operations_make_tensors_of_numbers_alone():
    assert torch.add(3, 2).item() == 5
    assert torch.floor_divide(-8.5, -1.75).item() == 4
    for name in ("remainder", "bitwise_and", "pow", "atan2", "eq"):
        with pytest.raises(TypeError):
            getattr(torch, name)(3, 2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_a_zero_anywhere_in_a_divisor_is_an_error(dtype):
    x = torch.arange(1, 101, dtype=dtype)
    divisor = x.clone()
    for name in ("floor_divide", "remainder", "fmod"):
        assert getattr(torch, name)(x, divisor)[3].item() == (1 if name == "floor_divide" else 0)
    divisor[99] = 0
    for name in ("floor_divide", "remainder", "fmod"):
        for number in (divisor, divisor.reshape(10, 10).t().reshape(-1), 0):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                getattr(torch, name)(x, number)
    assert torch.floor_divide(x.to("meta"), divisor.to("meta")).shape == (100,)


def test_interpolation_keeps_a_number_in_single_precision():
    a, b = torch.tensor([0.0], dtype=torch.bfloat16), torch.tensor([256.0], dtype=torch.bfloat16)
    assert torch.lerp(a, b, 0.7).item() == 179.0
    a, b = torch.tensor([0.0], dtype=torch.float16), torch.tensor([1024.0], dtype=torch.float16)
    assert torch.lerp(a, b, 0.7).item() == 717.0  # with the weight rounded first 716.5


@pytest.mark.parametrize(
    ("dtype", "nan", "large", "minus_one"),
    [
        (torch.int64, -(2**63), -(2**63), -1),
        (torch.int32, -(2**31), -(2**31), -1),
        (torch.int16, 0, 0, -1),
        (torch.int8, 0, 0, -1),
        (torch.uint8, 0, 0, 255),
    ],
)
def test_casts_beyond_an_integer_type(dtype, nan, large, minus_one):
    for source in (torch.float32, torch.float64):
        x = torch.tensor([math.nan, 1e30, -1.0, 100.0], dtype=source)
        assert x.to(dtype).tolist() == [nan, large, minus_one, 100]


def test_unsigned_casts():
    x = torch.tensor([3e9, -1.0, 1e19], dtype=torch.float64)
    assert x.to(torch.uint64).tolist() == [3000000000, 2**64 - 1, 10**19]
    assert x[:2].to(torch.uint32).tolist() == [3000000000, 2**32 - 1]


def test_differences_of_order_zero_ignore_what_would_be_joined():
    x, more = torch.ones(5, 5), torch.ones(5, 2)
    assert torch.diff(x, 0, 1, more, more).shape == (5, 5)
    assert torch.diff(x, 1, 1, more, more).shape == (5, 8)


def test_moving_to_the_format_a_tensor_suggests_is_no_copy():
    x = torch.arange(24.0).as_strided((2, 3), (6, 2))
    assert x.float(memory_format=torch.contiguous_format) is x
    nhwc = torch.empty(1, 2, 3, 3).to(memory_format=torch.channels_last)
    assert nhwc.to(memory_format=torch.contiguous_format) is not nhwc


def test_resize_as_and_conj_physical():
    x = torch.empty(2)
    assert torch.resize_as_(x, torch.empty(3, 4)) is x
    assert x.shape == (3, 4)
    z = torch.tensor([1 + 2j])
    assert torch.conj_physical(z).tolist() == [1 - 2j]
    assert not torch.conj_physical(z).is_conj()
    assert z.conj_physical_() is z
    assert z.tolist() == [1 - 2j]
    lazy = z.conj()
    plain = torch.conj_physical(lazy)
    plain.zero_()  # memory of its own
    assert z.tolist() == [1 - 2j]
    assert lazy.conj_physical_().tolist() == [1 - 2j]
    assert z.tolist() == [1 + 2j]


def test_the_logarithm_of_a_sum_of_complex_exponentials():
    a, b = torch.tensor([1 + 1j]), torch.tensor([0.5 - 2j])
    want = torch.log(torch.exp(a) + torch.exp(b))
    assert torch.allclose(torch.logaddexp(a, b), want)
    huge = torch.tensor([1000 + 0j])
    assert torch.allclose(torch.logaddexp(huge, huge), huge + math.log(2))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_more_dimensions_than_reductions_take(device):
    x = torch.zeros([1] * 65, device=device)
    assert x.dim() == x.permute(*range(64, -1, -1)).dim() == (x + x).dim() == 65
    assert x.squeeze().dim() == 0
    assert x[0].dim() == 64
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        x.amax(0)
    for whole in (x.sum(), x.amax(), x.mean(), x.argmax(), x.std(correction=0), x.max()):
        assert whole.dim() == 0


LAYOUTS = {
    "tail": lambda x: x,
    "whole": lambda x: x[:64].clone(),
    "strided": lambda x: torch.stack([x, x], 1)[:, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_with_a_factor_are_rounded_once(dtype, layout):
    """Sums of numbers from 1 to 2 and their products are exact in double precision, and then rounded once."""
    torch.manual_seed(0)
    x, y, z = (LAYOUTS[layout]((torch.rand(1003) + 1).to(dtype)) for _ in range(3))
    a, b, c = (t.double() for t in (x, y, z))
    single = lambda t: t.to(torch.float32).to(dtype)  # noqa: E731
    assert torch.equal(torch.add(x, y, alpha=1.25), single(a + b * 1.25))
    assert torch.equal(torch.sub(x, y, alpha=1.25), single(a - b * 1.25))
    assert torch.equal(torch.addcmul(x, y, z, value=0.5), single(a + 0.5 * b * c))
    quotient = (0.5 * y.float()) / z.float()
    assert torch.equal(torch.addcdiv(x, y, z, value=0.5), (x.float() + quotient).to(dtype))
    step = (y.float() - x.float()).double()
    assert torch.equal(torch.lerp(x, y, 0.25), single(a + 0.25 * step))
    weight = (z.float() - 1).to(dtype)
    w = weight.double()
    low, high = a + w * step, b - step * (1 - weight.float()).double()
    assert torch.equal(torch.lerp(x, y, weight), single(torch.where(w < 0.5, low, high)))


@pytest.mark.parametrize("n", [1, 63, 64, 1001, 5000])
def test_complex_halves_have_results_of_their_own_size(n):
    """What a loop writes is wider than the result here, so it may not go to the result's memory."""
    z = torch.complex(torch.full((n,), 3.0), torch.full((n,), 4.0)).to(torch.complex32)
    assert z.abs().dtype == torch.float16
    assert torch.equal(z.abs(), torch.full((n,), 5.0, dtype=torch.float16))
    assert torch.equal(z.angle(), torch.full((n,), math.atan2(4, 3), dtype=torch.float16))
    assert torch.equal(z + z, z * 2)
    assert (z == z).all() and torch.allclose(z, z)
    out = torch.empty(2 * n, dtype=torch.float32)[::2]
    assert torch.equal(torch.abs(z, out=out), torch.full((n,), 5.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.complex64])
def test_operands_in_the_results_place(dtype):
    x = (torch.arange(1, 1200) % 7).to(dtype)
    for n in (1, 5, 64, 1199):
        a, number = x[:n].clone(), x[:n].clone()
        assert torch.equal(a.add_(a), x[:n] * 2)
        assert torch.equal(a.sub_(x[:n]), x[:n])
        assert torch.equal(a.mul_(a[0].clone()), x[:n] * x[0])
        assert torch.equal(number.add_(3), x[:n] + 3)
        assert torch.equal(number.neg_(), -(x[:n] + 3))


def _bits(dtype, count=20_000):
    """Numbers of every size: random bits, and the special ones."""
    rng = np.random.default_rng(5)
    width = np.dtype(dtype).itemsize
    any_bits = rng.integers(0, 256, count * width, dtype=np.uint8).view(dtype)
    special = np.array([0.0, -0.0, 1, -1, 0.5, 3, np.inf, -np.inf, np.nan], dtype)
    return np.concatenate([any_bits, np.repeat(special, len(special))]), np.concatenate(
        [any_bits[::-1], np.tile(special, len(special))]
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore")
def test_remainders_are_exact(dtype):
    for spread in (1, 1e-3):
        x, y = _bits(dtype)
        # Operands of like sizes have quotients that are computed without a library.
        near = np.random.default_rng(6).standard_normal((2, 5000)).astype(dtype)
        x, y = np.concatenate([x, near[0]]), np.concatenate([y, near[1] * dtype(spread)])
        a, b = torch.from_numpy(x), torch.from_numpy(y)
        np.testing.assert_array_equal(torch.fmod(a, b).numpy(), np.fmod(x, y))
        m = np.fmod(x, y)
        signed = np.where((m != 0) & ((y < 0) != (m < 0)), m + y, m)
        np.testing.assert_array_equal(torch.remainder(a, b).numpy(), signed)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_of_any_size(name):
    x = np.array([1e4, 4e4, 1e7, 1e10, -1e20, 3e38, 0.1] * 20, np.float32)
    got = getattr(torch, name)(torch.from_numpy(x))
    want = getattr(np, name)(x.astype(np.float64))
    np.testing.assert_allclose(got.numpy(), want, rtol=3e-7)
    endless = getattr(torch, name)(torch.tensor([float("inf"), float("nan")]))
    assert endless.isnan().all()


@pytest.mark.parametrize("exponent", [0.5, 1, 2, 3, -0.5, -1, 2.0, 1.5, 0, -3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_powers_by_numbers_are_powers(exponent, dtype):
    x = torch.linspace(0.1, 4, 100, dtype=getattr(torch, dtype))
    want = x.double() ** torch.full((100,), float(exponent), dtype=torch.float64)
    torch.testing.assert_close(x**exponent, want.to(x.dtype))
    y = x.clone()
    y **= exponent
    assert torch.equal(y, x**exponent)


def test_squares_of_complex_numbers():
    x = torch.complex(torch.linspace(-2, 2, 50), torch.linspace(3, -1, 50))
    assert torch.equal(x**2, x * x)
    assert torch.equal(x.clone().pow_(2), x * x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int64"])
def test_inner_products_of_any_length_and_layout(dtype):
    for n in (0, 1, 100, 40_000, 70_001):
        x = torch.randint(-3, 4, (2 * n,)).to(getattr(torch, dtype))
        for a, b in ((x[:n], x[n:]), (x[::2], x[1::2])):
            want = (a.double() * b.double()).sum().to(a.dtype)
            assert torch.equal(a.dot(b), want)
    assert not torch.empty(0, dtype=x.dtype).dot(torch.empty(0, dtype=x.dtype)).signbit()


SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, 3.0e38]


def some(n, dtype):
    """Numbers of both signs, special ones among them."""
    torch.manual_seed(n)
    x = torch.randn(n).mul_(3)
    x[: len(SPECIAL)] = torch.tensor(SPECIAL)
    return x.to(dtype)


@pytest.mark.parametrize("n", [8, 70, 5000])
@pytest.mark.parametrize("function", ["mul", "add", "sub", "div", "clamp_min"])
def test_halves_beside_numbers_are_rounded_once(function, n):
    x = some(n, torch.bfloat16)
    # Factors and divisors keep single precision, other numbers are rounded first.
    wide = function in ("mul", "div")
    number = 1.1 if wide else float(torch.tensor(1.1, dtype=torch.bfloat16))
    call = getattr(torch, function)
    wanted = call(x.float(), number).bfloat16()
    for made in (call(x, number), call(x.clone(), number, out=x.clone()), call(x[::2], number)):
        torch.testing.assert_close(made, wanted[:: n // len(made)], rtol=0, atol=0, equal_nan=True)
    if wide:
        zero_d = call(x, torch.tensor(number))
        assert zero_d.dtype == torch.bfloat16
        torch.testing.assert_close(zero_d, wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
@pytest.mark.parametrize("n", [7, 64, 2001])
def test_what_gives_operands_back_does_so_in_place(n, dtype):
    x, y = some(n, dtype), some(n, dtype).flip(0)
    calls = {
        "relu": lambda x, out: torch.relu_(out) if out is not None else torch.relu(x),
        "maximum": lambda x, out: torch.maximum(x, y, out=out),
        "minimum": lambda x, out: torch.minimum(x, y, out=out),
        "clamp": lambda x, out: torch.clamp(x, -1, 1, out=out),
        "leaky_relu": lambda x, out: torch.nn.functional.leaky_relu(x, 0.1, out is not None),
        "threshold": lambda x, out: torch.nn.functional.threshold(x, 0.5, 9, out is not None),
        "abs": lambda x, out: torch.abs(x, out=out),
        "neg": lambda x, out: torch.neg(x, out=out),
        "floor": lambda x, out: torch.floor(x, out=out),
        "sqrt": lambda x, out: torch.sqrt(x, out=out),
    }
    for name, call in calls.items():
        wanted, place = call(x, None), x.clone()
        call(place, place)
        assert torch.equal(place.isnan(), wanted.isnan()), name
        assert torch.equal(place.nan_to_num(), wanted.nan_to_num()), name
        assert place.view(-1)[3:5].signbit().equal(wanted[3:5].signbit()), name
        exact = call(x.double(), None) if name in ("abs", "neg", "floor", "relu") else None
        if exact is not None:
            torch.testing.assert_close(wanted.double(), exact, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("ahead", [1, 3, 40, -3])
def test_copies_between_places_that_are_nearly_alike_within_a_page(ahead, dtype):
    x = np.arange(70_000).astype(dtype)
    t = torch.from_numpy(x.copy())
    assert t.roll(ahead).numpy().tolist() == np.roll(x, ahead).tolist()
    assert t.flip(0).numpy().tolist() == x[::-1].tolist()
    made = torch.zeros(2, 80_000, dtype=t.dtype)
    made[:, 7 + ahead : 7 + ahead + 70_000].copy_(t)
    assert made[1, 7 + ahead : 7 + ahead + 70_000].equal(t) and made[:, : 7 + ahead].sum() == 0


@pytest.mark.parametrize(
    ("dtype", "largest", "least", "step"),
    [
        (torch.float16, 65504.0, 2.0**-24, 2.0**-10),
        (torch.bfloat16, float(np.float32(2) ** 127 * (2 - 2**-7)), 2.0**-133, 2.0**-7),
        (torch.float32, float(np.finfo(np.float32).max), 2.0**-149, 2.0**-23),
    ],
)
def test_neighbours_are_those_of_the_type(dtype, largest, least, step):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, largest], dtype=dtype)

    def towards(v):
        return torch.nextafter(x, torch.full_like(x, v)).double().tolist()[:6]

    up = [least, least, 1 + step, -1 + step / 2, math.inf, -largest]
    down = [-least, -least, 1 - step / 2, -1 - step, largest, -math.inf]
    assert (towards(math.inf), towards(-math.inf)) == (up, down)
    assert torch.nextafter(x[-1], x[4]).item() == math.inf
    assert torch.nextafter(x[6], x[2]).isnan()
    assert torch.nextafter(torch.tensor(-least, dtype=dtype), x[2] * 0).signbit()


@pytest.mark.parametrize("divisor", [2.7, torch.tensor(2.7)])
def test_numbers_that_divide_halves_keep_their_precision(divisor):
    # x holds 2.703125 for 2.7: a divisor in bfloat16 would go into -2.7 exactly once. Recorded with PyTorch 2.13.
    x = torch.tensor([5.4, -5.4, 2.7, 8.1, -2.7], dtype=torch.bfloat16)
    assert torch.floor_divide(x, divisor).tolist() == [2, -3, 1, 3, -2]
    assert torch.div(x, divisor, rounding_mode="trunc").tolist() == [2, -2, 1, 3, -1]


NARROW = [
    *(torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]


@pytest.mark.parametrize("dtype", NARROW)
def test_numbers_are_written_among_narrow_ones(dtype):
    wide = torch.complex64 if dtype.is_complex else torch.float32
    x, mask = torch.tensor([1.0, 4.0, 4.0]).to(dtype), torch.tensor([True, False, True])
    x[mask] = 2.0
    assert torch.equal(x.to(wide), torch.tensor([2.0, 4.0, 2.0]).to(wide))
    x.index_fill_(0, torch.tensor([1]), 8.0)
    assert torch.equal(x.to(wide), torch.tensor([2.0, 8.0, 2.0]).to(wide))
    assert x.fill_(2.0)[::2].fill_(4.0).to(wide).tolist() == [4.0, 4.0]
    assert torch.equal(torch.where(mask, x, 1.0).to(wide), torch.tensor([4.0, 1.0, 4.0]).to(wide))


def test_whether_real_numbers_are_real_lies_as_they_do():
    x = torch.empty_strided((1, 0, 3), (6, 6, 2))
    assert x.isreal().stride() == torch.ones_like(x, dtype=torch.bool).stride() == (6, 6, 2)
    assert torch.empty_strided((0,), (2,), dtype=torch.complex64).isreal().stride() == (1,)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_numbers_of_eight_bits_are_looked_at(dtype):
    x = torch.tensor([1.0, float("nan"), -4.0]).to(dtype)
    assert x.isnan().tolist() == [False, True, False]
    assert x.isfinite().tolist() == [True, False, True]
    assert x.isreal().all() and not x.isinf().any()
    assert x[::2].abs().dtype == dtype and x[::2].abs().tolist() == [1.0, 4.0]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_numbers_are_finite(dtype):
    x = torch.tensor([0, 7], dtype=dtype)
    assert torch.equal(torch.nan_to_num(x), x)
    assert not torch.isposinf(x).any() and not torch.isneginf(x).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n", [3, 400])
def test_numbers_that_take_the_place_of_others_are_rounded(dtype, n):
    given = [float("nan"), float("inf"), -float("inf")]
    x, wanted = torch.tensor(given * n).to(dtype), torch.tensor([0.1, 0.7, -0.3] * n).to(dtype)
    assert torch.equal(torch.nan_to_num(x, 0.1, 0.7, -0.3), wanted)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers_are_weighed_from_either_end(dtype):
    x, y = (torch.randn(67, dtype=dtype) for _ in range(2))
    w = torch.randn(67, dtype=dtype)
    wanted = torch.where(w.abs() < 0.5, x + w * (y - x), y - (y - x) * (1 - w))
    assert torch.equal(torch.lerp(x, y, w), wanted)
    assert torch.equal(x.clone().lerp_(y, w), wanted)
    assert torch.equal(torch.lerp(x, y, 0.3), x + 0.3 * (y - x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_whole_powers_of_two_keep_the_type_and_reach_everywhere(dtype):
    info = torch.finfo(dtype)
    x = torch.tensor([1.5, info.smallest_normal, info.max], dtype=dtype)
    up, down = torch.tensor([3, 1, 1]), torch.tensor([-1, -1, -5000], dtype=torch.int32)
    assert torch.ldexp(x, up).tolist() == [12, info.smallest_normal * 2, math.inf]
    assert torch.ldexp(x, down).tolist() == [0.75, info.smallest_normal / 2, 0]
    least = torch.tensor(info.smallest_normal, dtype=dtype)
    far = int(-2 * math.log2(info.smallest_normal)) - 1
    assert torch.ldexp(least, torch.tensor([far])).item() == 0.5 / info.smallest_normal
    for shape in ((), (3,)):
        assert torch.ldexp(x, torch.ones(shape, dtype=torch.int64)).dtype == dtype
        assert torch.ldexp(x[0], torch.ones(3, dtype=torch.uint8)).dtype == dtype
    made = torch.ldexp(x.to("meta"), up.to("meta"))
    assert (made.dtype, made.shape) == (dtype, (3,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ["sum", "mean", "nansum"])
def test_sums_are_made_in_the_type_of_what_they_are_written_to(name, dtype):
    f, x, out = getattr(torch, name), torch.randn(7, 301).to(dtype), torch.empty(0).double()
    assert f(x, 1, out=out) is out
    torch.testing.assert_close(out, f(x.double(), 1), rtol=1e-13, atol=1e-13)
    text = "nansum: provided dtype must match" if name == "nansum" else "to have dtype double"
    with pytest.raises(RuntimeError, match=text):
        f(x, 1, dtype=torch.float64, out=torch.empty(7))


def test_means_of_integers_are_refused_wherever_they_go():
    with pytest.raises(RuntimeError, match="Input dtype must be either a floating point"):
        torch.mean(torch.arange(3), 0, out=torch.empty(()))
