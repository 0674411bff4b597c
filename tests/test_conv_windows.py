"""Convolutions of every geometry against their definition: small integers, so that every sum is exact.

The kernels cut images into pieces, pack weights into tiles and share zeros between lines; sizes here are chosen to meet
the ends of all of those.
"""

import itertools

import numpy as np
import pytest

import torchlike as torch
import torchlike.nn.functional as F

FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def integers(rng, *shape):
    return rng.integers(-3, 4, shape).astype(np.float64)


def taps(g):
    """For each element of the window, the slice of the padded input that it meets."""
    for place in itertools.product(*map(range, g["window"])):
        yield (
            place,
            tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, n, s in zip(place, g["dilation"], g["out"], g["stride"], strict=True)
            ),
        )


def reference(x, w, grad, g):
    """The result, and the gradients of the sum of its products with `grad`."""
    groups = g["groups"]
    pads = [(0, 0), (0, 0)] + [(p, p) for p in g["padding"]]
    wide = np.pad(x, pads)
    y, gx, gw = np.zeros(grad.shape), np.zeros(wide.shape), np.zeros(w.shape)
    og, cg = w.shape[0] // groups, w.shape[1]
    for k in range(groups):
        outs, ins = slice(k * og, (k + 1) * og), slice(k * cg, (k + 1) * cg)
        for place, cut in taps(g):
            at = (slice(None), slice(None), *place)
            seen = wide[(slice(None), ins, *cut)]
            y[:, outs] += np.einsum("oc,nc...->no...", w[outs][at], seen)
            gx[(slice(None), ins, *cut)] += np.einsum("oc,no...->nc...", w[outs][at], grad[:, outs])
            over = [0, *range(2, x.ndim)]
            gw[outs][at] += np.tensordot(grad[:, outs], seen, (over, over))
    inner = tuple(slice(p, p + n) for p, n in zip(g["padding"], x.shape[2:], strict=True))
    return y, gx[(slice(None), slice(None), *inner)], gw


def geometry(size, window, stride=1, padding=0, dilation=1, groups=1):
    n = len(size)
    wide = [v if isinstance(v, tuple) else (v,) * n for v in (window, stride, padding, dilation)]
    out = tuple(
        (s + 2 * p - d * (k - 1) - 1) // t + 1 for s, k, t, p, d in zip(size, *wide, strict=True)
    )
    names = ("window", "stride", "padding", "dilation")
    return {**dict(zip(names, wide, strict=True)), "size": size, "out": out, "groups": groups}


CASES = {
    "3x3": (2, 5, 13, geometry((14, 14), 3, padding=1)),
    "3x3 of many channels": (2, 70, 33, geometry((7, 7), 3, padding=1)),
    "3x3 of a long sum": (1, 520, 13, geometry((5, 6), 3, padding=1)),
    "wide lines": (1, 3, 2, geometry((5, 1200), 3, padding=1)),
    "stride 2": (3, 4, 12, geometry((15, 17), 3, stride=2, padding=1)),
    "stride 3 of 2": (2, 3, 5, geometry((17, 11), 2, stride=3)),
    "stem": (2, 3, 24, geometry((33, 40), 7, stride=2, padding=3)),
    "1x1": (2, 17, 25, geometry((9, 5), 1)),
    "1x1 stride 2": (2, 17, 3, geometry((9, 8), 1, stride=2)),
    "dilated": (2, 6, 7, geometry((13, 19), 3, padding=2, dilation=(2, 3))),
    "padded beyond": (2, 2, 3, geometry((3, 2), (2, 3), padding=(2, 4))),
    "groups": (2, 12, 18, geometry((8, 9), 3, padding=1, groups=3)),
    "depthwise": (3, 20, 20, geometry((14, 15), 3, padding=1, groups=20)),
    "depthwise stride 2": (2, 16, 16, geometry((15, 9), 5, stride=2, padding=2, groups=16)),
    "depthwise of many images": (40, 3, 3, geometry((7, 7), 3, padding=1, groups=3)),
    "depthwise of a large plane": (1, 2, 2, geometry((150, 150), 7, padding=3, groups=2)),
    "depthwise of long lines": (2, 3, 3, geometry((3, 1500), (1, 9), padding=(0, 4), groups=3)),
    "depthwise of long lines twice": (1, 3, 6, geometry((3, 800), (2, 9), padding=2, groups=3)),
    "depthwise of many channels": (1, 70, 70, geometry((9, 40), 3, dilation=(1, 2), groups=70)),
    "depthwise volume": (2, 6, 12, geometry((4, 5, 6), 3, padding=1, groups=6)),
    "depthwise twice": (2, 5, 10, geometry((7, 33), 3, padding=1, groups=5)),
    "line": (2, 7, 9, geometry((5000,), 5, padding=2)),
    "line with steps": (3, 4, 3, geometry((333,), 4, stride=3, dilation=2)),
    "volume": (2, 4, 5, geometry((5, 6, 7), 3, padding=1)),
    "volume with steps": (
        1,
        3,
        4,
        geometry((7, 6, 5), (3, 2, 3), stride=(2, 1, 2), padding=(1, 0, 1)),
    ),
    "tiles": (2, 72, 80, geometry((25, 30), 3, padding=1)),
    "tiles of many channels": (3, 96, 130, geometry((18, 13), 3, padding=1)),
    "tiles of small images": (8, 96, 128, geometry((9, 11), 3, padding=1)),
    "tiles of groups": (2, 128, 130, geometry((21, 31), 3, padding=2, groups=2)),
    "tiles of wide lines": (1, 32, 40, geometry((6, 1101), 3)),
    "tiles of slices": (3, 64, 70, geometry((3, 15, 18), (1, 3, 3), padding=(0, 1, 1))),
    "stride 2 of many channels": (3, 48, 20, geometry((11, 14), 3, stride=2, padding=1)),
    "1x1 stride 2 of many channels": (2, 64, 48, geometry((9, 8), 1, stride=2)),
    "groups of many channels": (2, 99, 81, geometry((9, 33), 2, padding=1, groups=3)),
    "volume of many channels": (
        2,
        300,
        80,
        geometry((5, 6, 6), (3, 5, 3), stride=(1, 2, 1), padding=(2, 2, 0), dilation=(1, 2, 2)),
    ),
    "no image": (0, 3, 4, geometry((5, 5), 3)),
}


def made(name, dtype=torch.float32):
    batch, inputs, outputs, g = CASES[name]
    rng = np.random.default_rng(len(name))
    x = integers(rng, batch, inputs, *g["size"])
    w = integers(rng, outputs, inputs // g["groups"], *g["window"])
    grad = integers(rng, batch, outputs, *g["out"])
    return x, w, grad, g


def call(x, w, g, bias=None):
    f = (F.conv1d, F.conv2d, F.conv3d)[x.ndim - 3]
    return f(x, w, bias, g["stride"], g["padding"], g["dilation"], g["groups"])


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_exact_up_to_one_rounding(name, dtype, last):
    x, w, grad, g = made(name)
    y, gx, gw = reference(x, w, grad, g)
    a, b, c = (torch.tensor(t, dtype=dtype) for t in (x, w, grad))
    if last and a.ndim > 3:
        a, b = (t.to(memory_format=FORMATS[t.ndim]) for t in (a, b))
    a.requires_grad_()
    b.requires_grad_()
    bias = torch.arange(float(len(w)), dtype=dtype)
    out = call(a, b, g, bias)
    by_hand = y + np.arange(len(w)).reshape(-1, *[1] * (x.ndim - 2))
    assert torch.equal(out.detach(), torch.tensor(by_hand, dtype=dtype))
    of_x, of_w = torch.autograd.grad(out, [a, b], c)
    assert torch.equal(of_x, torch.tensor(gx, dtype=dtype))
    assert torch.equal(of_w, torch.tensor(gw, dtype=dtype))


@pytest.mark.parametrize("name", ["3x3", "stride 2", "stem", "groups", "depthwise", "volume"])
def test_transposed_convolutions_are_the_gradient(name):
    x, w, grad, g = made(name)
    gx = reference(x, w, grad, g)[1]
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[x.ndim - 3]
    short = [
        s - ((n - 1) * t - 2 * p + d * (k - 1) + 1)
        for s, n, t, p, d, k in zip(
            g["size"], g["out"], g["stride"], g["padding"], g["dilation"], g["window"], strict=True
        )
    ]
    a, b = torch.tensor(grad, dtype=torch.float32), torch.tensor(w, dtype=torch.float32)
    out = f(a, b, None, g["stride"], g["padding"], short, g["groups"], g["dilation"])
    assert np.array_equal(out.numpy(), gx)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_threads_do_not_change_a_bit(name, dtype):
    x, w, grad, g = made(name)
    rng = np.random.default_rng(1)
    parts = [torch.tensor(rng.standard_normal(t.shape), dtype=dtype) for t in (x, w, grad)]
    a, b = (t.requires_grad_() for t in parts[:2])
    found, threads = [], torch.get_num_threads()
    try:
        for n in (1, 2, 5):
            torch.set_num_threads(n)
            y = call(a, b, g)
            found.append([y.detach(), *torch.autograd.grad(y, [a, b], parts[2])])
    finally:
        torch.set_num_threads(threads)
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.parametrize("size", [(2, 64, 80, 56), (3, 96, 66, 14), (8, 130, 140, 11)])
def test_tiles_are_as_exact_as_single_precision(size):
    n, inputs, outputs, side = size
    torch.manual_seed(0)
    x, w = torch.randn(n, inputs, side, side), torch.randn(outputs, inputs, 3, 3)
    grad, threads = torch.randn(n, outputs, side, side), torch.get_num_threads()

    def made(dtype):
        a, b = (t.to(dtype).requires_grad_() for t in (x, w))
        y = F.conv2d(a, b, None, 1, 1)
        return y.detach(), *torch.autograd.grad(y, [a, b], grad.to(dtype))

    try:
        torch.set_num_threads(3)
        for got, want in zip(made(torch.float32), made(torch.float64), strict=True):
            assert (got - want).abs().max() < 3e-6 * want.abs().max()
    finally:
        torch.set_num_threads(threads)


def test_infinities_stay_where_windows_see_them():
    x = torch.zeros(1, 2, 9, 9)
    x[0, 0, 0, 8] = torch.inf
    x[0, 1, 8, 0] = torch.nan
    w = torch.ones(2, 1, 3, 3)
    for y in (F.conv2d(x, w, None, 1, 1, 1, 2), F.conv2d(x, torch.ones(2, 2, 3, 3), None, 1, 1)):
        assert int((~y.isfinite()).sum()) in (8, 16)
    many = torch.cat([x, torch.zeros(1, 62, 9, 9)], 1)
    for last in (torch.contiguous_format, torch.channels_last):
        y = F.conv2d(many.to(memory_format=last), torch.ones(64, 64, 3, 3), None, 1, 1)
        assert int((~y.isfinite()).sum()) == 8 * 64
    w.requires_grad_()
    y = F.conv2d(x, w, None, 1, 1, 1, 2)
    (gw,) = torch.autograd.grad(y, [w], torch.ones(y.shape))
    # The corner is under the taps of its windows, and under no others.
    assert gw[0, 0].isfinite().tolist() == [[True, False, False]] * 2 + [[True] * 3]


@pytest.mark.parametrize("pad", [0, 2])
def test_sequences_with_channels_last(pad):
    sizes = ((5, 2, 3), (2, 3, 4), (4,))
    x, w, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in sizes)
    made = torch.conv_tbc(x, w, b, pad)
    wanted = torch.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=pad).permute(2, 0, 1)
    assert torch.allclose(made, wanted) and made.is_contiguous()
    assert made.grad_fn.name() == "ConvTbcBackward0"
    assert torch.autograd.gradcheck(torch.conv_tbc, (x, w, b, pad))
    assert torch.autograd.gradgradcheck(torch.conv_tbc, (x, w, b, pad))
    assert torch.conv_tbc(x[:1], w, b).shape == (0, 2, 4)
    with pytest.raises(RuntimeError, match="Input must have 3 dims: time, batch, in_channel"):
        torch.conv_tbc(x[0], w, b)


def test_truth_values_that_overlap_stay_true():
    """256 windows meet at an element: more than a byte counts."""
    windows = torch.ones(1, 256, 256, dtype=torch.bool)
    folded = F.fold(windows, (31, 31), (16, 16))
    assert folded.dtype == torch.bool and folded.all()
