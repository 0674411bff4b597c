"""GPUs: shapes and layouts at the edges of how kernels cut their work, beside what the CPU computes."""

import pytest

import torchlike as torch
from torchlike.nn import functional

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torchlike.cuda.is_available() is False"
    ),
]

LOW = {torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def _flat(value):
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _alike(f, *inputs, tolerance=1e-4):
    """Checks a function of tensors on the GPU against the CPU's, layouts included."""
    wants, gots = _flat(f(*inputs)), _flat(f(*(t.cuda() for t in inputs)))
    assert len(wants) == len(gots)
    for want, got in zip(wants, gots, strict=True):
        assert (got.device.type, got.dtype, got.stride()) == ("cuda", want.dtype, want.stride())
        if want.dtype.is_floating_point or want.dtype.is_complex:
            near = LOW.get(want.dtype, tolerance)
            torch.testing.assert_close(got.cpu(), want, rtol=near, atol=near, equal_nan=True)
        else:
            assert torch.equal(got.cpu(), want)


def _made(shape, dtype):
    t = torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32)
    return (t * 3).to(dtype)


POINTWISE = [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.complex128, torch.bool]


@pytest.mark.parametrize("dtype", POINTWISE, ids=str)
@pytest.mark.parametrize("shape", [(64, 64), (3, 65, 130), (2, 17, 3, 40), (1, 129), (5, 16, 16)])
def test_operands_that_lie_otherwise(dtype, shape):
    turned = (*shape[:-2], shape[-1], shape[-2])
    x, y = _made(shape, dtype), _made(turned, dtype)
    row, column, one = _made(shape[-1:], dtype), _made((*shape[:-1], 1), dtype), _made((1,), dtype)
    _alike(lambda x, y: x + y.mT, x, y)
    _alike(lambda x, y: y.mT * x, x, y)
    _alike(lambda x, y: x.mT + y, x, y)
    _alike(lambda y: y.mT.contiguous(), y)
    _alike(lambda y: y.mT + y.mT, y)
    _alike(lambda x, row: x + row, x, row)
    _alike(lambda x, column: column + x, x, column)
    _alike(lambda x, one: x * one, x, one)
    _alike(lambda x, row, y: torch.where(x != 0, y.mT, row), x, row, y)
    _alike(lambda x: x[..., 1:] + x[..., :-1], x)
    _alike(lambda x: x[..., ::2] + x[..., ::2], x)
    _alike(lambda x, y: torch.cat([x, y.mT, x], -1), x, y)


def test_all_dimensions_turned():
    x = torch.randn(3, 40, 20, 33)
    for order in ((3, 2, 1, 0), (0, 2, 3, 1), (0, 3, 1, 2), (2, 0, 3, 1)):
        _alike(lambda t, order=order: t.permute(order).contiguous(), x)
        _alike(lambda t, order=order: t.permute(order) + t.permute(order), x)
    last = x.contiguous(memory_format=torch.channels_last)
    _alike(lambda a, b: a + b, x, last)
    _alike(lambda a, b: b + a, x, last)

    def into(t):
        out = torch.zeros(33, 20, 40, 3, device=t.device).permute(3, 2, 1, 0)
        out.copy_(t)
        out[:, 1:].mul_(t[:, 1:])
        return out

    _alike(into, x)


FOLDS = [torch.float32, torch.bfloat16, torch.float64, torch.int32, torch.uint8]


@pytest.mark.parametrize("dtype", FOLDS, ids=str)
@pytest.mark.parametrize(
    "shape", [(1000, 64), (7, 333), (65, 4096), (3, 100, 130), (2, 5000, 8), (40000, 5), (9, 1, 4)]
)
def test_folds_along_and_across(dtype, shape):
    # Whole numbers of few bits: sums are exact whatever the order.
    x = torch.randint(0, 7, shape).to(dtype)
    wide = x.to(torch.float64)
    for dims in (*range(len(shape)), tuple(range(len(shape)))):
        _alike(lambda t, d=dims: t.sum(d, dtype=torch.float64), x)
        _alike(lambda t, d=dims: t.amax(d), x)
        _alike(lambda t, d=dims: (t > 5).any(d), x)
    for d in range(len(shape)):
        # The first of equal ones.
        _alike(lambda t, d=d: t.argmax(d), x)
        assert torch.equal(x.cuda().min(d).values.cpu(), x.min(d).values)
        _alike(lambda t, d=d: torch.var_mean(t, d), wide)
        _alike(lambda t, d=d: t.norm(dim=d), wide)
    if dtype.is_floating_point:
        x = x.clone()
        x[..., shape[-1] // 2] = float("nan")
        _alike(lambda t: t.argmax(-1), x)
        _alike(lambda t: t.sum(-1), x)
    _alike(lambda t: t[..., 1:].sum(0, dtype=torch.float64), x)
    _alike(lambda t: t.mT.sum(-1, dtype=torch.float64), x)


def test_moments_far_from_zero():
    x = torch.randn(6, 4099) + 1e4
    x[0, 0] = -1e4
    _alike(lambda t: t.var(-1), x, tolerance=1e-3)
    _alike(lambda t: t.mT.contiguous().var(0), x, tolerance=1e-3)


LINES = [1, 2, 7, 8, 31, 32, 64, 100, 256, 1000, 1024, 1028, 2048, 4100, 20000]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("n", LINES)
def test_lines_of_all_lengths(dtype, n):
    x, w, b = _made((5, n), dtype), _made((n,), dtype), _made((n,), dtype)
    for t in (x, torch.cat([x.new_zeros(1), x.flatten()])[1:].view(5, n)):
        _alike(lambda t: t.softmax(-1), t)
        _alike(lambda t: t.log_softmax(-1), t)
        _alike(lambda t: t[:, 1:].softmax(-1), t)
        _alike(lambda t, w, b: functional.layer_norm(t, (n,), w, b), t, w, b, tolerance=1e-3)
        _alike(lambda t, w: functional.rms_norm(t, (n,), w, 1e-5), t, w, tolerance=1e-3)
    leaf = x.detach().requires_grad_()
    there = x.cuda().detach().requires_grad_()
    for make in (
        lambda t: t.softmax(-1),
        lambda t: t.log_softmax(-1),
        lambda t: functional.layer_norm(t, (n,), w.to(t.device), b.to(t.device)),
    ):
        by = _made((5, n), dtype)
        (want,) = torch.autograd.grad(make(leaf), leaf, by)
        (got,) = torch.autograd.grad(make(there), there, by.cuda())
        near = 5 * LOW.get(dtype, 1e-4)
        torch.testing.assert_close(got.cpu(), want, rtol=near, atol=near)


def test_lines_of_infinities():
    low, high, nan = -float("inf"), float("inf"), float("nan")
    for n in (4, 40, 5000):
        x = torch.randn(5, n)
        x[0] = low
        x[1, 0], x[2, n // 2], x[3, n - 1] = high, nan, low
        x[4, : n // 2] = low
        _alike(lambda t: t.softmax(-1), x)
        _alike(lambda t: t.log_softmax(-1), x)


@pytest.mark.parametrize("shape", [(4, 6, 5), (2, 8, 9, 7), (3, 64, 16, 16), (2, 4, 130, 128)])
@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_channels(shape, groups):
    w, b = torch.randn(shape[1]), torch.randn(shape[1])
    x = torch.randn(shape) * 3 + 2
    _alike(lambda x, w, b: functional.group_norm(x, groups, w, b), x, w, b, tolerance=1e-3)
    _alike(lambda x: functional.group_norm(x, groups), x, tolerance=1e-3)


SORTED = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8]


@pytest.mark.parametrize("dtype", SORTED, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 500, 512, 513, 2048, 2049, 4096, 4097, 9000])
def test_order_of_long_lines(dtype, n):
    for lines in (1, 3):
        x = (torch.randn(lines, n) * 50).to(dtype)
        if dtype.is_floating_point:
            x[0, n // 2] = float("nan")
        for descending in (False, True):
            want = x.sort(dim=-1, descending=descending, stable=True)
            got = x.cuda().sort(dim=-1, descending=descending, stable=True)
            assert torch.equal(got.indices.cpu(), want.indices)
            assert torch.equal(got.values.cpu().nan_to_num(), want.values.nan_to_num())


def test_order_of_a_million():
    x = torch.randint(0, 100000, (1 << 20,))
    want, got = x.sort(stable=True), x.cuda().sort(stable=True)
    assert torch.equal(got.indices.cpu(), want.indices)
    y = torch.randn(3, 300000)
    assert torch.equal(y.cuda().sort(-1).values.cpu(), y.sort(-1).values)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bool, torch.int16, torch.complex64], ids=str
)
@pytest.mark.parametrize("shape", [(), (1,), (2047,), (2048,), (3, 5, 700), (0, 3), (600000,)])
def test_elements_that_are_not_zero(dtype, shape):
    x = torch.randint(0, 3, shape).to(dtype)
    _alike(lambda t: t.nonzero(), x)
    _alike(lambda t: torch.nonzero_static(t, size=4), x)
    _alike(lambda t: torch.count_nonzero(t), x)
    if dtype == torch.bool:
        values = torch.randn(shape)
        _alike(lambda t, m: t.masked_select(m), values, x)
        _alike(lambda t, m: t[m], values, x)
        _alike(lambda t: t.masked_select(torch.tensor(True, device=t.device)), values)
    if len(shape) == 3:
        rows = x[..., 0] != 0
        _alike(lambda t, m: t[m], x, rows)
        _alike(lambda t: t.mT.nonzero(), x)
        _alike(lambda t, m: t.masked_select(m[..., None]), x, rows)

        def put(t, m):
            t = t.clone()
            t[m] = 1
            t[~m, 3:5] = t[~m, 1:3]
            return t

        _alike(put, x, rows)


@pytest.mark.parametrize("n", [4096 * 2048 - 1, 4096 * 2048, 9_000_000])
def test_few_elements_of_many(n):
    x = torch.zeros(n, dtype=torch.bool)
    x[torch.randint(0, n, (1000,))] = True
    x[-1] = True
    _alike(lambda t: t.nonzero(), x)
    _alike(lambda t: torch.arange(n, device=t.device)[t], x)


ATTENTIONS = [
    # batch, heads, heads of keys, queries, keys, width
    (2, 4, 4, 64, 64, 64),
    (1, 3, 3, 65, 130, 32),
    (2, 8, 2, 200, 200, 64),
    (1, 2, 1, 129, 63, 128),
    (1, 2, 2, 300, 300, 80),
    (2, 2, 2, 1, 100, 16),
    (1, 2, 2, 100, 1, 48),
    (1, 4, 2, 500, 1000, 96),
]


@pytest.mark.parametrize("sizes", ATTENTIONS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention_and_its_gradients(sizes, dtype, causal):
    batch, heads, few, queries, keys, width = sizes
    shapes = [(batch, queries, heads), (batch, keys, few), (batch, keys, few)]
    # Heads beside each other, as layers make them.
    sides = [torch.randn(*s, width).transpose(1, 2) for s in shapes]
    by = torch.randn(batch, queries, heads, width).transpose(1, 2)

    def run(device, dtype):
        q, k, v = (t.to(device, dtype).detach().requires_grad_() for t in sides)
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=heads != few
        )
        return [out, *torch.autograd.grad(out, (q, k, v), by.to(device, dtype))]

    for got, want in zip(run("cuda", dtype), run("cpu", torch.float64), strict=True):
        # Gradients of one query or key alone are zero but for rounding.
        apart = (got.cpu().to(torch.float64) - want).norm() / (want.norm() + 0.1 * by.norm())
        assert apart < (2e-2 if dtype == torch.bfloat16 else 3e-3)
    first, again = run("cuda", dtype), run("cuda", dtype)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("norm", ["backward", "ortho"])
def test_fourier_transforms(dtype, norm):
    near = 1e-3 if dtype == torch.float32 else 1e-9
    x = torch.randn(3, 6, 5, 7, 8, dtype=dtype)
    z = torch.complex(x, x.flip(0))
    for dims in ((-1,), (0,), (1, 3), (3, 1), (0, 2, 4), (0, 1, 2, 3), (4, 3, 2, 1, 0)):
        _alike(lambda t, d=dims: torch.fft.fftn(t, dim=d, norm=norm), z, tolerance=near)
        _alike(lambda t, d=dims: torch.fft.ifftn(t, dim=d, norm=norm), z, tolerance=near)
        _alike(lambda t, d=dims: torch.fft.rfftn(t, dim=d, norm=norm), x, tolerance=near)
        _alike(lambda t, d=dims: torch.fft.fftn(t, dim=d, norm=norm), x, tolerance=near)
        _alike(lambda t, d=dims: torch.fft.irfftn(t, dim=d, norm=norm), z, tolerance=near)
    for n in (1, 5, 8, 13):
        _alike(lambda t, n=n: torch.fft.rfft(t, n, norm=norm), x, tolerance=near)
        _alike(lambda t, n=n: torch.fft.irfft(t, n, norm=norm), z, tolerance=near)
        _alike(lambda t, n=n: torch.fft.hfft(t.mT, n, norm=norm), z, tolerance=near)
    there = z.cuda()
    torch.fft.irfft(there)
    assert torch.equal(there.cpu(), z)  # what a transform reads stays as it is
