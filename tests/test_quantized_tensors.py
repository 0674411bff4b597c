"""What operators give for quantised tensors; recorded from PyTorch 2.13."""

from __future__ import annotations

import pytest

import torchlike as torch

F = torch.nn.functional


def made(kind=torch.quint8, *shape, scale=0.0371, zero=5):
    g = torch.Generator().manual_seed(1)
    return torch.quantize_per_tensor(
        torch.randn(shape or (2, 3, 8, 6), generator=g), scale, zero, kind
    )


KINDS = [torch.quint8, torch.qint8, torch.qint32]


@pytest.mark.parametrize("kind", KINDS)
def test_results_keep_the_scale(kind):
    q = made(kind)
    real, grid = q.dequantize(), torch.linspace(-1, 1, 64).reshape(2, 4, 4, 2)
    assert q.dtype == kind
    for name, call in {
        "relu": torch.relu,
        "relu6": F.relu6,
        "clamp": lambda t: t.clamp(-0.5, 0.8),
        "least": lambda t: t.clamp(min=0.3),
        "leaky": lambda t: F.leaky_relu(t, 0.25),
        "threshold": lambda t: F.threshold(t, 0.1, 0.2),
        "gelu": F.gelu,
        "mean": lambda t: t.mean((2, 3)),
        "std": lambda t: t.std(dim=1),
        "largest": lambda t: t.max(1)[0],
        "flip": lambda t: t.flip(1),
        "sorted": lambda t: t.sort(dim=1)[0],
        "first": lambda t: t.topk(2)[0],
        "windows": lambda t: F.max_pool2d(t, 3, 2, 1),
        "line": lambda t: F.max_pool1d(t[0], 2),
        "means": lambda t: F.avg_pool2d(t, 3, 2, 1, count_include_pad=False),
        "adaptive": lambda t: F.adaptive_avg_pool2d(t, (3, 2)),
        "nearest": lambda t: F.interpolate(t, scale_factor=2),
        "bilinear": lambda t: F.interpolate(t, size=(5, 9), mode="bilinear"),
        "cat": lambda t: torch.cat([t, t], 1),
        "stack": lambda t: torch.stack([t, t]),
        "index": lambda t: t[:, [0, 2]],
        "select": lambda t: t.index_select(1, torch.tensor([2, 0])),
        "mirror": lambda t: F.pad(t, (1, 2, 1, 1), mode="reflect"),
        "pad": lambda t: F.pad(t, (1, 1)),
        "repeat": lambda t: t.repeat(2, 1, 1, 1),
        "shuffle": lambda t: F.pixel_shuffle(torch.cat([t] * 4, 1), 2),
        "turned": lambda t: t.permute(0, 2, 3, 1),
        "flat": lambda t: t.flatten(1),
    }.items():
        got, want = call(q), call(real)
        assert got.dtype == kind and got.q_zero_point() == 5, name
        assert abs(got.q_scale() - 0.0371) < 1e-8, name
        assert got.shape == want.shape, name
        low = 0 if kind == torch.quint8 else -128
        assert (got.dequantize() - want.clamp(min=(low - 5) * 0.0371)).abs().max() < 0.0186, name
    if kind == torch.quint8:
        got = F.grid_sample(q, grid, align_corners=False)
        assert (
            got.dequantize() - F.grid_sample(real, grid, align_corners=False)
        ).abs().max() < 0.0186


def test_functions_of_a_known_range_have_a_scale_of_their_own():
    for kind, sigmoid, tanh in [
        (torch.quint8, (1 / 256, 0), (2 / 256, 128)),
        (torch.qint8, (1 / 256, -128), (2 / 256, 0)),
        (torch.qint32, (2.0**-32, 0), (2.0**-31, 0)),
    ]:
        for size in (6, 600):  # the second is looked up where there are few numbers
            q = made(kind, 2, size)
            for call, want in [
                (torch.sigmoid, sigmoid),
                (F.hardsigmoid, sigmoid),
                (torch.tanh, tanh),
            ]:
                got = call(q)
                assert (got.q_scale(), got.q_zero_point()) == want
                top = want[0] * (
                    (2**31 if kind == torch.qint32 else 127 + (kind == torch.quint8) * 128)
                    - want[1]
                )
                near = call(q.dequantize()).clamp(max=top)
                assert (got.dequantize() - near).abs().max() <= max(want[0] * 0.51, 1e-6)


def test_tensors_are_compared_by_the_numbers_they_stand_for():
    q, other = made(), made(scale=0.05)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(torch, name)
        assert torch.equal(compare(q, other), compare(q.dequantize(), other.dequantize()))
        assert torch.equal(compare(q, 0.1), compare(q.dequantize(), 0.1))
    assert torch.equal(q, q.clone()) and not torch.equal(q, other) and not torch.equal(q, q.flip(0))
    by_channel = torch.quantize_per_channel(
        torch.ones(2, 3), torch.ones(2), torch.zeros(2), 0, torch.qint8
    )
    assert torch.equal(by_channel, by_channel.clone())


def test_tensors_are_written():
    q = made()
    real = q.dequantize()
    assert q.clone().relu_().dequantize().min() == 0
    assert F.hardtanh_(q.clone(), -0.1, 0.1).dequantize().abs().max() < 0.12
    assert F.leaky_relu_(q.clone(), 0.0).dequantize().min() == 0
    assert q.clone().fill_(0.3).dequantize().sub(0.3).abs().max() < 0.0186
    mask = real > 0
    got = q.clone().masked_fill_(mask, 0.5).dequantize()
    assert torch.equal(got[~mask], real[~mask]) and (got[mask] - 0.5).abs().max() < 0.0186
    other = q.clone()
    other[0] = 1.0
    assert (other.dequantize()[0] - 1).abs().max() < 0.0186 and torch.equal(other[1], q[1])
    other.copy_(real * 2)
    assert (other.dequantize() - real * 2).abs().max() < 0.2 and other.q_scale() == 0.0371
    # Another quantised tensor brings its quantizer.
    other.copy_(made(scale=0.05))
    assert other.q_scale() == 0.05
    with pytest.raises(RuntimeError, match="use dequantize to get a float"):
        real.copy_(q)
    with pytest.raises(RuntimeError, match="same data type"):
        other.copy_(made(torch.qint8))
    some = q.clone()
    some[mask] = 0.5
    assert torch.equal(some.dequantize(), got)
    out = made(scale=0.1)
    assert torch.cat([q[:1], q[1:]], out=out) is out
    assert out.q_scale() == 0.1 and (out.dequantize() - real).abs().max() < 0.051


def test_layouts_of_results():
    q = made().contiguous(memory_format=torch.channels_last)
    for call in (torch.relu, torch.sigmoid, lambda t: t.clamp(0, 1), lambda t: t.dequantize()):
        assert call(q).is_contiguous(memory_format=torch.channels_last)
        assert call(made().transpose(2, 3)).is_contiguous()
    assert q.clone().is_contiguous()


def test_on_meta_there_are_shapes():
    q = made().to("meta")
    assert torch.relu(q).is_meta and F.max_pool2d(q, 2).shape == (2, 3, 4, 3)
    assert q.dequantize().dtype == torch.float32


def test_what_nobody_has_written_keeps_the_scale():
    q = made()
    like = torch.empty_like(q)
    assert (like.shape, like.dtype, like.q_scale()) == (q.shape, q.dtype, 0.0371)
    assert like.data_ptr() != q.data_ptr()
    scales = torch.tensor([0.5, 0.25])
    each = torch.quantize_per_channel(
        torch.ones(2, 3), scales, torch.tensor([0, 1]), 0, torch.quint8
    )
    assert torch.empty_like(each).q_per_channel_scales().tolist() == [0.5, 0.25]
    with pytest.raises(RuntimeError, match="not supported to specify a dtype"):
        torch.empty_like(q, dtype=torch.float32)


def test_what_is_not_computed_says_so():
    q = made()
    for call in (
        lambda: q + q,
        lambda: q.sum(),
        lambda: q.abs(),
        lambda: F.hardswish(q),
        lambda: F.softmax(q, 1),
        lambda: q @ q,
        lambda: F.interpolate(q, scale_factor=2, mode="bicubic"),
    ):
        with pytest.raises(NotImplementedError, match="dequantize"):
            call()


def test_small_ranges_have_no_smaller_scales():
    q = torch.quantize_per_tensor_dynamic(torch.tensor([-1e-3, 2e-3]), torch.quint8, False)
    assert q.q_scale() == 6.0999998822808266e-05 and q.q_zero_point() == 85


def test_unwritten_tensors_with_a_quantizer():
    t = torch._empty_affine_quantized([2, 3], scale=0.1, zero_point=3, dtype=torch.quint8)
    assert (t.shape, t.dtype, t.q_scale(), t.q_zero_point()) == ((2, 3), torch.quint8, 0.1, 3)
    t = torch._empty_affine_quantized(
        (2, 3, 2, 2), dtype=torch.qint8, memory_format=torch.channels_last
    )
    assert t.q_scale() == 1 and t.is_contiguous(memory_format=torch.channels_last)
    scales, zeros = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2])
    channels = torch._empty_per_channel_affine_quantized(
        [3, 2], scales=scales, zero_points=zeros, axis=0, dtype=torch.qint8
    )
    assert channels.q_per_channel_zero_points().tolist() == [0, 1, 2]
    other = torch.empty_quantized([3, 4], channels)
    assert (other.shape, other.dtype, other.q_per_channel_axis()) == ((3, 4), torch.qint8, 0)
    assert torch.empty_quantized([5], t).q_scale() == 1
    with pytest.raises(RuntimeError, match="requires quantized dtype like"):
        torch._empty_affine_quantized([2])


def by_channel(kind=torch.qint8):
    g = torch.Generator().manual_seed(2)
    real = torch.rand(3, 4, 5, 6, generator=g)
    return torch.quantize_per_channel(
        real, torch.rand(4, generator=g) + 0.1, torch.arange(4), 1, kind
    )


@pytest.mark.parametrize("q", [made(), by_channel()])
def test_channels_lie_innermost_where_asked(q):
    last = torch.channels_last
    for call in (torch.Tensor.contiguous, torch.Tensor.to, torch.clone):
        moved = call(q, memory_format=last)
        assert moved.is_contiguous(memory_format=last), call
        assert torch.equal(moved.int_repr(), q.int_repr())
        assert moved.qscheme() == q.qscheme()
        assert torch.equal(moved.dequantize(), q.dequantize())


def test_a_number_in_each_channel():
    for kind in KINDS:
        q = by_channel(kind)
        filled = torch.full(q.shape, 1.5)
        scales, zeros = q.q_per_channel_scales(), q.q_per_channel_zero_points()
        expected = torch.quantize_per_channel(filled, scales, zeros, 1, kind)
        assert torch.equal(q.fill_(1.5).int_repr(), expected.int_repr())


def test_the_only_element_is_a_number():
    q = torch.quantize_per_tensor(torch.tensor([1.24]), 0.5, 3, torch.quint8)
    assert q.item() == q[0].item() == 1.0
    assert float(torch.quantize_per_tensor(torch.ones(4), 0.5, 3, torch.qint8).mean()) == 1.0


def test_plain_tensors_are_no_quantised_ones():
    q = torch.quantize_per_tensor(torch.zeros(2), 0.5, 0, torch.qint8)
    assert not torch.equal(q, torch.zeros(2))
    assert not torch.equal(torch.zeros(2), q)


def test_sigmoid_takes_the_zero_point_off_the_integers():
    # 255 * scale is no number of single precision.
    q = torch.quantize_per_tensor(torch.zeros(3), 1506.38427734375, 255, torch.quint8)
    assert torch.sigmoid(q).int_repr().tolist() == [128] * 3


def test_channels_are_not_joined():
    c = by_channel()
    for call in (torch.cat, torch.stack, lambda t: torch.ops.quantized.cat(t, 0, 1.0, 0)):
        with pytest.raises(
            RuntimeError, match="Only per-tensor quantization is supported in 'cat'!"
        ):
            call([c, c])


def test_old_constructors_make_no_quantised_tensors():
    q = made()
    for given in ((), (1, 2), ([1.0],), (torch.ones(2),)):
        with pytest.raises(RuntimeError, match=r"new\(\): expected key in .*got: QuantizedCPU"):
            q.new(*given)
