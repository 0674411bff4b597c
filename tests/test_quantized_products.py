"""Linear layers, convolutions and sums of quantised tensors against sums of integers, and what PyTorch 2.13 gives."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import torchlike as torch

Q = torch.ops.quantized


def bytes_of(seed, *shape, low=0, high=256):
    values = np.random.default_rng(seed).integers(low, high, shape)
    return torch.from_numpy(values.astype(np.uint8 if low >= 0 else np.int8))


def activation(seed, *shape, scale=0.05, zero=40):
    return torch._make_per_tensor_quantized_tensor(bytes_of(seed, *shape), scale, zero)


def weight(seed, *shape, channels=False, zero=0):
    numbers = bytes_of(seed, *shape, low=-128, high=128)
    if not channels:
        return torch._make_per_tensor_quantized_tensor(numbers, 0.0125, zero)
    scales = torch.linspace(0.001, 0.05, shape[0])
    zeros = torch.arange(shape[0]) % 7 - 3 if zero else torch.zeros(shape[0], dtype=torch.int64)
    return torch._make_per_channel_quantized_tensor(numbers, scales, zeros, 0)


def parts(w):
    """Differences from zero points, and a scale for each row."""
    q = w.int_repr().numpy().astype(np.int64)
    across = [-1] + [1] * (q.ndim - 1)
    if w.qscheme() == torch.per_tensor_affine:
        return q - w.q_zero_point(), np.full(len(q), w.q_scale(), np.float32)
    zeros = w.q_per_channel_zero_points().numpy().reshape(across)
    return q - zeros, w.q_per_channel_scales().numpy().astype(np.float32)


def rounded(sums, scales, x, bias, scale, zero, relu=False):
    """Sums `[..., channels]` as the integers of a result."""
    step = np.float32(x.q_scale()) * scales
    single = sums.astype(np.float32)
    if bias is not None:
        single = single + bias.numpy() / step
    made = np.rint(single * (step / np.float32(scale))) + zero
    return np.clip(made, zero if relu else 0, 255).astype(np.uint8)


@pytest.mark.parametrize("rows", [1, 5, 8, 9, 70])
@pytest.mark.parametrize("depth", [3, 64, 2000])
@pytest.mark.parametrize("channels", [False, True])
def test_linear_layers_are_exact_sums_rounded_once(rows, depth, channels):
    x, w = activation(rows, rows, depth), weight(depth, 33, depth, channels=channels, zero=3)
    bias = torch.linspace(-3, 3, 33) if channels else None
    packed = Q.linear_prepack(w, bias)
    differences, scales = parts(packed.unpack()[0])
    sums = (x.int_repr().numpy().astype(np.int64) - x.q_zero_point()) @ differences.T
    for name, relu in (("linear", False), ("linear_relu", True)):
        made = getattr(Q, name)(x, packed, 0.3 * depth**0.5, 77)
        want = rounded(sums, scales, x, bias, 0.3 * depth**0.5, 77, relu)
        assert (made.dtype, made.q_zero_point()) == (torch.quint8, 77)
        assert (made.int_repr().numpy() == want).mean() > 0.999  # a bias of one scale is multiplied
    kept, same = Q.linear_unpack(packed)
    assert torch.equal(kept.int_repr(), w.int_repr()) and (same is bias)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("inputs", [4, 96])
def test_convolutions_are_exact_sums_rounded_once(groups, inputs):
    x = activation(inputs, 2, inputs, 9, 8)
    w = weight(groups, 6, inputs // groups, 3, 3, channels=True)
    bias = torch.linspace(-3, 3, 6)
    packed = Q.conv2d_prepack(w, bias, [2, 1], [1, 0], [1, 2], groups)
    differences, scales = parts(packed.unpack()[0])
    real = torch.nn.functional.conv2d(
        x.int_repr().double() - 40,
        torch.from_numpy(differences).double(),
        None,
        (2, 1),
        (1, 0),
        (1, 2),
        groups,
    )
    sums = real.permute(0, 2, 3, 1).numpy()
    for name, relu in (("conv2d", False), ("conv2d_relu", True)):
        made = getattr(Q, name)(x, packed, 1.5, 70)
        want = rounded(sums, scales, x, bias, 1.5, 70, relu)
        assert (made.int_repr().permute(0, 2, 3, 1).numpy() == want).all()
        assert made.is_contiguous(memory_format=torch.channels_last)
    assert (packed.stride(), packed.padding(), packed.groups()) == ([2, 1], [1, 0], groups)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups", "window", "moves", "zero"),
    [
        (3, 64, 1, (7, 7), ([2, 2], [3, 3], [1, 1]), 0),
        (64, 32, 1, (3, 3), ([1, 1], [1, 1], [1, 1]), 5),
        (6, 34, 2, (3, 2), ([1, 2], [0, 1], [2, 1]), 5),
        (70, 48, 1, (1, 1), ([1, 1], [0, 0], [1, 1]), 0),
        (600, 33, 1, (3, 3), ([2, 1], [2, 1], [1, 2]), 5),
    ],
)
def test_convolutions_of_many_outputs(inputs, outputs, groups, window, moves, zero, threads):
    x = activation(inputs, 3, inputs, 13, 11, zero=200)
    w = weight(outputs, outputs, inputs // groups, *window, channels=True, zero=zero)
    bias = torch.linspace(-3, 3, outputs)
    packed = Q.conv2d_prepack(w, bias, *moves, groups)
    differences, scales = parts(packed.unpack()[0])
    real = torch.nn.functional.conv2d(
        x.int_repr().double() - 200, torch.from_numpy(differences).double(), None, *moves, groups
    )
    sums = real.permute(0, 2, 3, 1).numpy()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for name, relu in (("conv2d", False), ("conv2d_relu", True)):
            made = getattr(Q, name)(x, packed, 4.5, 70)
            want = rounded(sums, scales, x, bias, 4.5, 70, relu)
            assert (made.int_repr().permute(0, 2, 3, 1).numpy() == want).all()
            assert made.is_contiguous(memory_format=torch.channels_last)
    finally:
        torch.set_num_threads(before)


def test_convolutions_of_volumes_are_exact():
    x, w = activation(5, 2, 8, 4, 5, 6), weight(6, 40, 8, 3, 2, 2, channels=True)
    moves = [2, 1, 1], [1, 0, 1], [1, 2, 1]
    packed = Q.conv3d_prepack(w, None, *moves, 1)
    differences, scales = parts(packed.unpack()[0])
    exact = torch.from_numpy(differences).double()
    real = torch.nn.functional.conv3d(x.int_repr().double() - 40, exact, None, *moves)
    made = Q.conv3d(x, packed, 2.5, 70).int_repr().permute(0, 2, 3, 4, 1).numpy()
    want = rounded(real.permute(0, 2, 3, 4, 1).numpy(), scales, x, None, 2.5, 70)
    assert (made == want).all()


def test_few_rows_meet_columns_where_they_lie():
    for rows in (1, 33, 64):
        x, y = bytes_of(1, rows, 128, low=-128, high=128), bytes_of(2, 300, 128, low=-128, high=128)
        for a in (x, x.to(torch.uint8)):
            want = a.numpy().astype(np.int64) @ y.numpy().astype(np.int64).T
            assert (torch._int_mm(a, y.t()).numpy() == want).all()


def test_other_convolutions():
    for count, transposed in [(1, False), (1, True), (2, True), (3, False), (3, True)]:
        x = activation(count, 1, 4, *[5] * count)
        w = weight(count, 4, 4, *[3] * count)
        moves = [[2] * count, [1] * count]
        name = f"conv_transpose{count}d" if transposed else f"conv{count}d"
        further = [[1] * count] if transposed else []
        packed = getattr(Q, f"{name}_prepack")(w, None, *moves, *further, [1] * count, 1)
        made = getattr(Q, name)(x, packed, 1.0, 100)
        plain = getattr(torch, name)
        real = plain(x.dequantize(), w.dequantize(), None, *moves, *(further or []))
        assert made.shape == real.shape
        assert (made.dequantize() - real.clamp(-100, 155)).abs().max() <= 0.51
        assert getattr(Q, f"{name}_unpack")(packed)[0].shape == w.shape
        dynamic = getattr(Q, f"{name}_dynamic")(x.dequantize(), packed)
        assert dynamic.dtype == torch.float32 and dynamic.shape == real.shape


def test_inputs_that_are_quantised_meanwhile():
    w, bias = weight(1, 5, 16, channels=True), torch.linspace(-1, 1, 5)
    packed = Q.linear_prepack(w, bias)
    for rows in (2, 40):
        x = torch.from_numpy(np.random.default_rng(rows).standard_normal((rows, 3, 16))).float()
        made = Q.linear_dynamic(x, packed, True)
        near = torch.nn.functional.linear(x, w.dequantize(), bias)
        assert made.shape == (rows, 3, 5) and (made - near).abs().max() < 1.5
        q = torch.quantize_per_tensor_dynamic(x, torch.quint8, True)
        exact = torch.nn.functional.linear(q.dequantize(), packed.unpack()[0].dequantize(), bias)
        assert (made - exact).abs().max() < 1e-3
        assert torch.equal(Q.linear_relu_dynamic(x, packed, True), made.relu())
    half = Q.linear_prepack_fp16(torch.full((5, 16), 1 / 3), bias)
    want = torch.nn.functional.linear(x, torch.full((5, 16), 1 / 3).half().float(), bias)
    torch.testing.assert_close(Q.linear_dynamic_fp16(x, half), want)


def test_sums_and_products_of_two():
    a, b = (
        activation(1, 2, 300, scale=0.0371, zero=117),
        activation(2, 2, 300, scale=0.0271, zero=101),
    )
    x, y = a.dequantize(), b.dequantize()
    for name, real in [("add", x + y), ("mul", x * y)]:
        for relu in (False, True):
            made = getattr(Q, name + "_relu" * relu)(a, b, 0.09, 113)
            near = torch.quantize_per_tensor(real.relu() if relu else real, 0.09, 113, torch.quint8)
            apart = (made.int_repr().int() - near.int_repr().int()).abs()
            assert apart.max() <= 1 and apart.float().mean() < 0.01
    # Recorded from PyTorch: a number moves the zero point, or widens the steps.
    q = torch.quantize_per_tensor(torch.tensor([-1.0, 0.0, 1.0, 2.0]), 0.0371, 117, torch.quint8)
    made = Q.add_scalar(q, 1.3)
    assert (made.q_scale(), made.q_zero_point()) == (0.0371, 82)
    made = Q.add_scalar(q, 9.3)
    assert abs(made.q_scale() - 0.0565956862745098) < 1e-15 and made.q_zero_point() == 0
    made = Q.mul_scalar(q, -1.3)
    assert (made.q_scale(), made.q_zero_point()) == (0.0371 * 1.3, 138)
    assert Q.mul_scalar(q, 0).q_scale() == 1.0 and Q.mul_scalar_relu(q, -1.0).dequantize().max() > 0
    joined = Q.cat([a, b], 0, 0.05, 90)
    assert joined.shape == (4, 300) and joined.q_zero_point() == 90
    out = torch.quantize_per_tensor(torch.zeros(2, 300), 0.2, 100, torch.quint8)
    assert (
        Q.add.out(a, b, out) is out
        and out.q_scale() == 0.2
        and (out.dequantize() - x - y).abs().max() < 5
    )


def test_functions_that_are_looked_up_are_those_that_are_computed():
    x = activation(3, 4, 200, scale=0.05, zero=100)
    for name, before, to, after in [
        ("hardswish", (), (0.04, 3), ()),
        ("elu", (), (0.04, 30), ()),
        ("celu", (), (0.04, 30), (1.5,)),
        ("leaky_relu", (0.1, False), (0.04, 30), ()),
        ("sigmoid", (), (1 / 256, 0), ()),
    ]:
        operator = getattr(Q, name)
        whole = operator(x, *before, *to, *after)
        few = operator(x[:, :100], *before, *to, *after)  # too few for a table
        assert (whole[:, :100].int_repr().int() - few.int_repr().int()).abs().max() <= 1
        assert (whole.q_scale(), whole.q_zero_point()) == to


def test_normalisations():
    x = activation(4, 2, 6, 5, 4)
    w, b = torch.linspace(0.5, 1.5, 6), torch.linspace(-1, 1, 6)
    real, F = x.dequantize(), torch.nn.functional
    for made, want in [
        (Q.layer_norm(x, [5, 4], None, None, 1e-5, 0.03, 120), F.layer_norm(real, [5, 4])),
        (Q.group_norm(x, 3, w, b, 1e-5, 0.03, 120), F.group_norm(real, 3, w, b)),
        (Q.instance_norm(x, w, b, 1e-5, 0.03, 120), F.instance_norm(real, None, None, w, b)),
        (Q.batch_norm2d(x, w, b, b, w, 1e-5, 0.05, 120), F.batch_norm(real, b, w, w, b)),
        (Q.softmax(x, 1, 1 / 256, 0), real.softmax(1).clamp(max=255 / 256)),
    ]:
        low, high = ((e - made.q_zero_point()) * made.q_scale() for e in (0, 255))
        assert (made.dequantize() - want.clamp(low, high)).abs().max() < made.q_scale() * 0.51


def test_packed_parameters_are_pickled_as_pytorch_pickles_them(tmp_path):
    linear = Q.linear_prepack(weight(1, 5, 4), torch.ones(5))
    conv = Q.conv2d_prepack(weight(2, 6, 4, 3, 3, channels=True), None, [2, 1], [1, 0], [1, 2], 1)
    cell = Q.make_quantized_cell_params_dynamic(linear, linear, torch.ones(5), torch.ones(5), True)
    torch.save([linear, conv, cell], tmp_path / "x.pt")
    for made in (
        torch.load(tmp_path / "x.pt", weights_only=False),
        pickle.loads(pickle.dumps([linear, conv, cell])),
    ):
        assert [m._type() for m in made] == [m._type() for m in (linear, conv, cell)]
        assert torch.equal(made[0].unpack()[0], linear.unpack()[0]) and made[1].dilation() == [1, 2]
    head = conv.__getstate__()[0][1][0]
    assert head.tolist() == [2, 2, 1, 1, 0, 1, 2, 0, 0, 1, 0] and head.dtype == torch.int16
    assert str(linear) == "ScriptObject <__torch__.torch.classes.quantized.LinearPackedParamsBase>"
    with pytest.raises(AttributeError, match="no attribute or method"):
        linear.stride()


def test_embeddings_of_few_bits():
    table = torch.linspace(-1, 1, 24).reshape(4, 6)
    for bits in ("byte", "4bit"):
        packed = getattr(Q, f"embedding_bag_{bits}_prepack")(table)
        near = getattr(Q, f"embedding_bag_{bits}_unpack")(packed)
        assert (
            packed.dtype == torch.uint8
            and (near - table).abs().max() < (0.002, 0.02)[bits == "4bit"]
        )
        rows = getattr(Q, f"embedding_bag_{bits}_rowwise_offsets")
        made = rows(packed, torch.tensor([0, 2, 3]), torch.tensor([0, 2]))
        torch.testing.assert_close(made, torch.stack([near[0] + near[2], near[3]]))
    scales, zeros = torch.full((4,), 0.01), torch.full((4,), 100.0)
    q = torch.quantize_per_channel(table, scales, zeros, 0, torch.quint8)
    packed = Q.embedding_bag_prepack(q)
    index = torch.tensor([[3, 0]])
    torch.testing.assert_close(Q.embedding_byte(packed, index), q.dequantize()[index])
    with pytest.raises(RuntimeError, match="Index 1 is out of bounds: 9, range 0 to 4"):
        Q.embedding_byte(packed, torch.tensor([0, 9]))


def test_calls_that_do_not_fit():
    x, packed = activation(1, 2, 3), Q.linear_prepack(weight(1, 4, 3))
    conv = Q.conv2d_prepack(weight(1, 4, 3, 2, 2), None, [1, 1], [0, 0], [1, 1], 1)
    signed = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    for call, error, text in [
        (
            lambda: Q.linear(x.dequantize(), packed, 0.1, 0),
            NotImplementedError,
            "quantized::linear",
        ),
        (lambda: Q.linear(signed, packed, 0.1, 0), RuntimeError, "QUInt8 but got QInt8"),
        (lambda: Q.linear(activation(1, 2, 4), packed, 0.1, 0), RuntimeError, "equal to K: 4"),
        (
            lambda: Q.linear(x, x, 0.1, 0),
            RuntimeError,
            "LinearPackedParamsBase .* found type 'Tensor'",
        ),
        (lambda: Q.linear_dynamic(x, packed), NotImplementedError, "real numbers"),
        (
            lambda: Q.linear_dynamic(torch.ones(3), packed),
            RuntimeError,
            "larger than or equal to 2",
        ),
        (lambda: Q.linear_prepack(signed, torch.ones(3)), RuntimeError, "N elements: 2"),
        (lambda: Q.linear_prepack(x), RuntimeError, "expected scalar type QInt8 but found QUInt8"),
        (lambda: Q.conv2d(x, conv, 0.1, 0), RuntimeError, "4 dimensions, got 2"),
        (
            lambda: Q.conv2d(activation(1, 1, 2, 4, 4), conv, 0.1, 0),
            RuntimeError,
            "but got 2 channels",
        ),
        (lambda: Q.add(x, signed, 0.1, 0), RuntimeError, "same data type"),
        (lambda: Q.embedding_bag_prepack(x), RuntimeError, "kPerChannelAffineFloatQParams"),
    ]:
        with pytest.raises(error, match=text):
            call()


def test_long_rows_and_odd_zero_points():
    # Sums of few rows are kept in 32 bits, as long as they fit.
    made = torch._make_per_tensor_quantized_tensor
    x = made(torch.full((1, 40_000), 255, dtype=torch.uint8), 1.0, 0)
    w = torch.full((1, 40_000), 127, dtype=torch.int8)
    sums = Q.linear_dynamic(x.dequantize(), Q.linear_prepack(made(w, 1.0, -128)))
    assert sums.item() == np.float32(40_000 * 255 * 255)
    far = made(w[:, :9], 1.0, 1000)
    with pytest.raises(RuntimeError, match="zero_point 1000 is no byte"):
        Q.linear(x[:, :9], Q.linear_prepack(far), 1.0, 0)
    # Whatever is asked for, integers stay between the ends of their type.
    packed = Q.linear_prepack(made(w[:, :9], 1.0, 0))
    for zero in (-(10**12), 10**12):
        integers = Q.linear_relu(x[:, :9], packed, 1.0, zero).int_repr()
        assert integers.tolist() == [[0 if zero < 0 else 255]]


def test_every_schema_has_a_kernel():
    from torchlike._ops.quantized import KERNELS

    for name in KERNELS:
        packet, _, overload = name.partition(".")
        found = getattr(getattr(Q, packet), overload or "default")
        assert found._schema.arguments and found.name() == f"quantized::{name}"


def test_weights_are_packed_where_they_are_read_so():
    one, none = [1, 1], [0, 0]
    image, windows = activation(0, 1, 5, 9, 9), weight(1, 32, 5, 3, 3)
    integers = windows.int_repr()
    alone = torch._quantized_packed(integers[:, :1], one, none, one, 32)
    assert not alone.numel()
    packed = torch._quantized_packed(integers, one, none, one, 1)
    if not packed.numel():
        return

    def made(packed):
        moves = (one, none, one, False, none, 1)
        return torch._quantized_convolution(image, windows, None, packed, *moves, 0.2, 128)

    assert made(packed).equal(made(None))
    with pytest.raises(RuntimeError, match="packed weights are of another convolution"):
        made(packed[:-1])


def rows():
    """A call of each row by its name, and the real numbers that it stands for."""
    x, y = activation(0, 4, 6), activation(1, 4, 6, scale=0.03, zero=90)
    w, image, windows = weight(2, 5, 6), activation(3, 1, 2, 5, 5), weight(4, 3, 2, 3, 3)
    bias = torch.linspace(-1, 1, 5)
    real = x.dequantize()
    turned = torch.arange(255, -1, -1).to(torch.uint8)
    one, none = [1, 1], [0, 0]
    return {
        "_quantized_pair": ((x, y, True, 0.5, 100, False), real * y.dequantize()),
        "_quantized_looked_up": ((x, turned, 0.05, 215), real.neg()),
        "_quantized_linear": ((x, w, bias, 0.2, 128), real @ w.dequantize().t() + bias),
        "_quantized_convolution": (
            (image, windows, None, None, one, none, one, False, none, 1, 0.2, 128),
            torch.conv2d(image.dequantize(), windows.dequantize()),
        ),
        "_quantized_linear_dynamic": ((real, w, bias), real @ w.dequantize().t() + bias),
    }


@pytest.mark.parametrize("row", list(rows()))
def test_rows_stand_for_real_numbers(row):
    given, want = rows()[row]
    made = getattr(torch, row)(*given)
    if not made.is_quantized:
        torch.testing.assert_close(made, want, rtol=0.02, atol=0.2)
        return
    low, high = (made.q_scale() * (n - made.q_zero_point()) for n in (0, 255))
    off = (made.dequantize() - want.clamp(low, high)).abs().max()
    assert off <= 0.51 * made.q_scale()
