"""CPU kernels beside others': `python benches/kernels.py [--torch PYTHON] [--before PYTHON] [--filter REGEX]`.

Pointwise operators, reductions and matrix products with one thread and with two, beside PyTorch's and, if a Python
with another build of torchlike is named, beside that one's. Each library runs in a process of its own, and they take
turns on every case, so that what else the machine does falls on all; the best turn of each counts. Ratios above 1
mean that this torchlike is faster.
"""

from __future__ import annotations

import _turns

SIZES = {"1e5": 100_000, "1e6": 1_000_000, "1e7": 10_000_000}
DTYPES = {
    "f32": "torch.float32",
    "f64": "torch.float64",
    "bf16": "torch.bfloat16",
    "f16": "torch.float16",
    "i64": "torch.int64",
    "i32": "torch.int32",
    "u8": "torch.uint8",
    "bool": "torch.bool",
}
POINTWISE = {
    "add": "torch.add(x, y, out=o)",
    "mul_number": "torch.mul(x, 2.5, out=o)",
    "add_fresh": "x + y",
    "add_": "o.add_(x)",
    "addcmul": "torch.addcmul(x, y, y, out=o)",
    "maximum": "torch.maximum(x, y)",
    "where": "torch.where(k, x, y)",
    "compare": "x > y",
    "relu": "torch.relu(x)",
    "clamp": "x.clamp(0.2, 0.8)",
    "exp": "torch.exp(x)",
    "log": "torch.log(x)",
    "tanh": "torch.tanh(x)",
    "sigmoid": "torch.sigmoid(x)",
    "gelu": "F.gelu(x)",
    "silu": "F.silu(x)",
    "sin": "torch.sin(x)",
    "sqrt": "torch.sqrt(x)",
    "div": "x / y",
    "copy": "o.copy_(x)",
    "fill": "o.fill_(1.5)",
    "cumsum": "x.cumsum(0)",
    "row_add": "m + m[0]",
    "column_add": "m + m[:, :1]",
    "transpose": "m.t().contiguous()",
}
HALF = (
    "add",
    "add_fresh",
    "mul_number",
    "relu",
    "exp",
    "tanh",
    "gelu",
    "silu",
    "sigmoid",
    "compare",
    "div",
    "cumsum",
)
HALF_REDUCTIONS = (
    "sum",
    "mean",
    "amax",
    "sum_rows",
    "sum_columns",
    "max_rows",
    "softmax",
    "softmax_columns",
    "var",
)
CASTS = {
    "cast_f32_bf16": ("f32", "x.to(torch.bfloat16)"),
    "cast_bf16_f32": ("bf16", "x.to(torch.float32)"),
    "cast_f32_f16": ("f32", "x.to(torch.float16)"),
    "cast_f16_f32": ("f16", "x.to(torch.float32)"),
    "cast_f32_f64": ("f32", "x.to(torch.float64)"),
    "cast_i64_f32": ("i64", "x.to(torch.float32)"),
    "cast_f32_i64": ("f32", "x.to(torch.int64)"),
}
REDUCTIONS = {
    "sum": "x.sum()",
    "mean": "x.mean()",
    "amax": "x.amax()",
    "max": "x.max()",
    "prod": "p.prod()",
    "nansum": "x.nansum()",
    "norm": "x.norm()",
    "norm1": "x.norm(1)",
    "var": "x.var()",
    "argmax": "x.argmax()",
    "logsumexp": "x.logsumexp(0)",
    "sum_rows": "m.sum(1)",
    "sum_columns": "m.sum(0)",
    "mean_rows": "m.mean(-1, keepdim=True)",
    "amax_rows": "m.amax(1)",
    "amin_columns": "m.amin(0)",
    "max_rows": "m.max(1)",
    "max_columns": "m.max(0)",
    "argmax_rows": "m.argmax(1)",
    "prod_rows": "q.prod(1)",
    "var_rows": "m.var(1)",
    "var_columns": "m.var(0)",
    "std_mean_rows": "torch.std_mean(m, 1)",
    "norm_rows": "m.norm(dim=1)",
    "logsumexp_rows": "m.logsumexp(1)",
    "softmax": "torch.softmax(m, -1)",
    "log_softmax": "torch.log_softmax(m, -1)",
    "softmax_columns": "torch.softmax(m, 0)",
    "cumsum_rows": "m.cumsum(1)",
    "cumsum_columns": "m.cumsum(0)",
    "cumprod": "p.cumprod(0)",
    "all": "k.all()",
    "any_float": "(o.zero_()).any()",
    "layer_norm": "F.layer_norm(m, m.shape[1:])",
}
INTEGERS = {
    "sum_i64": ("i64", "x.sum()"),
    "sum_i32": ("i32", "x.sum()"),
    "sum_u8": ("u8", "x.sum()"),
    "sum_bool": ("bool", "x.sum()"),
    "max_i64": ("i64", "x.max()"),
    "max_rows_i64": ("i64", "m.max(1)"),
    "any_bool": ("bool", "(x & ~x).any()"),
    "all_bool": ("bool", "(x | ~x).all()"),
    "sum_rows_i64": ("i64", "m.sum(1)"),
    "sum_columns_i64": ("i64", "m.sum(0)"),
    "add_i64": ("i64", "x + x"),
    "add_i32": ("i32", "x + x"),
    "add_u8": ("u8", "x + x"),
    "mul_i64": ("i64", "x * x"),
    "floor_divide_i64": ("i64", "x // 3"),
    "eq_i64": ("i64", "x == 3"),
    "and_bool": ("bool", "x & x"),
    "sum_f64": ("f64", "x.sum()"),
    "add_f64": ("f64", "x + x"),
    "exp_f64": ("f64", "x.exp()"),
}
# Shapes and layouts beside whole rows: `w` has few columns, `s` short rows, `c` channels innermost.
BESIDE = {
    "sum_narrow": ("f32", "w.sum(0)"),
    "amax_narrow": ("i64", "w.amax(0)"),
    "softmax_pairs": ("f32", "x.view(-1, 2).softmax(-1)"),
    "softmax_short": ("f32", "s.softmax(-1)"),
    "log_softmax_short": ("f32", "s.log_softmax(-1)"),
    "logsumexp_short": ("f32", "w.logsumexp(-1)"),
    "logsumexp_columns": ("f32", "m.logsumexp(0)"),
    "max_apart": ("f32", "x[::2].max()"),
    "sum_apart": ("f32", "x[::2].sum()"),
    "max_cut_rows": ("f32", "s[:, :40].max()"),
    "argmax_single": ("f32", "x.view(-1, 1).argmax(1)"),
    "any_single": ("bool", "x.view(-1, 1).any(1)"),
    "exp_cut_rows": ("f32", "m[:, :-3].exp()"),
    "lerp_row": ("f32", "torch.lerp(m, m[0], 0.3)"),
    "add_channels": ("f32", "c + x[:64].view(-1, 1, 1)"),
    "add_outer": ("u8", "m[:, :1] + m[0]"),
    "add_outer_f32": ("f32", "m[:, :1] + m[0]"),
    "sub_outer_f32": ("f32", "m[:, :1] - m[0]"),
    "column_less": ("f32", "m[:, :1] - m"),
    "pad_line": ("f32", "F.pad(x.view(1, -1), (128, 128), 'reflect')"),
    "sigmoid_i64": ("i64", "(x * 20).sigmoid()"),
    "add_complex": ("f32", "z + z"),
    "mul_complex": ("f32", "z * z"),
    "tril_turned": ("f32", "w.t().contiguous().t().tril()"),
    "cast_cut_rows": ("u8", "w[:, :3].to(torch.float32)"),
    "cast_f64_i32": ("f64", "x.to(torch.int32)"),
    "equal": ("f32", "torch.equal(x, x.clone())"),
    "unequal": ("f32", "torch.equal(x, y)"),
    "pad_channels": ("f32", "F.pad(c, (1, 1, 1, 1), 'reflect')"),
    "max_pool_channels": ("f32", "F.max_pool2d(c, 2, return_indices=True)"),
    "multinomial": ("f32", "m.multinomial(9, True)"),
}
PRODUCTS = {
    "matmul": "x @ y",
    "matmul_nt": "x @ y.t()",
    "addmv": "x @ y[0]",
    "addmm": "torch.addmm(x, x, y, beta=0.5, alpha=2)",
    "linear": "F.linear(x, y, x[0])",
}
# Of a tensor of bytes `q`, packed weights `w` of a matrix and `c` of a convolution, and images `i`.
QUANTIZED = {
    "relu": "torch.relu(q)",
    "add": "Q.add(q, q, 0.1, 3)",
    "quantize": "torch.quantize_per_tensor(r, 0.05, 3, torch.quint8)",
    "linear_1_row": "Q.linear(q[:1], w, 0.1, 3)",
    "linear_256_rows": "Q.linear(q[:256], w, 0.1, 3)",
    "linear_dynamic": "Q.linear_dynamic(r[:32], w)",
    "conv2d": "Q.conv2d(i, c, 0.1, 3)",
    "max_pool2d": "torch.max_pool2d(i, [2, 2], [2, 2], [0, 0], [1, 1], False)",
    "avg_pool2d": "F.avg_pool2d(i, 2)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(i, 1)",
    "interpolate": "F.interpolate(i, scale_factor=2)",
    "dequantize_channels": "p.dequantize()",
}
# Of weights in eight and four bits, by rows of the other operand.
PACKED = {
    "int8pack": (
        "w = torch.randint(-128, 128, (2048, 2048), dtype=torch.int8); s = torch.rand(2048).bfloat16()",
        "torch._weight_int8pack_mm(x, w, s)",
    ),
    "int4pack": (
        "w = torch.randint(0, 16, (2048, 2048), dtype=torch.int32); s = torch.rand(32, 2048, 2).bfloat16(); "
        "w = torch._convert_weight_to_int4pack_for_cpu(w, 2)",
        "torch._weight_int4pack_mm_for_cpu(x, w, 64, s)",
    ),
}
NARROW = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
DISTANCES = {
    "cdist_1": "torch.cdist(x, y, 1.0)",
    "cdist_2": "torch.cdist(x, y)",
    "cdist_3": "torch.cdist(x, y, 3.0)",
    "cdist_inf": "torch.cdist(x, y, float('inf'))",
    "cross": "torch.linalg.cross(v, w)",
    "cross_first": "torch.linalg.cross(v.t(), w.t(), dim=0)",
    "histc": "torch.histc(z, 100)",
    "histogram": "torch.histogram(z, 100)",
}
# Places in images, groups of rows, and lines.
PLACES = {
    "grid_sample": "F.grid_sample(i, g, align_corners=False)",
    "grid_sample_few": "F.grid_sample(i[:, :3], g, align_corners=False)",
    "grid_sample_nearest": "F.grid_sample(i, g, mode='nearest', align_corners=False)",
    "grid_sample_cubic": "F.grid_sample(i, g, mode='bicubic', align_corners=False)",
    "resize_bytes": "F.interpolate(b, size=(100, 100), mode='bilinear')",
    "scatter_mean": "z.scatter_reduce(0, k.expand(512, 512), z, 'mean', include_self=False)",
    "segment_sum": "torch.segment_reduce(v, 'sum', lengths=h)",
    "cumprod_lines": "z.cumprod(1)",
    "cummax_bytes": "b[0].cummax(2)",
    "multi_margin": "F.multi_margin_loss(z, k[:, 0])",
    "dot": "v.dot(v)",
    "index_add_half": "e.index_add_(0, k[:64, 0], e[:64])",
    "index_put_half": "e.index_put_((k[:64, 0],), e[:64], accumulate=True)",
    "scatter_add_half": "e.scatter_add_(0, k[:64].expand(64, 1024), e[:64])",
}
WHOLE_PRODUCTS = {"matmul": "x @ y", "dot": "x.view(-1).dot(y.view(-1))"}


def cases() -> dict[str, tuple[str, str]]:
    """Setup and statement of each case."""
    out = {}

    def add(name: str, size: str, dtype: str, code: str) -> None:
        n, scale = SIZES[size], 7 if dtype[0] in "iu" else 1
        setup = [
            f"g = torch.rand({n}) * 0.9 + 0.05",
            f"x = (g * {scale}).to({DTYPES[dtype]})",
            "y = x.flip(0).contiguous()",
            "o = torch.empty_like(x)",
            f"m = x.view(-1, {500 if n < 10**6 else 1000})",
            # Factors whose product stays a number: what underflows times the processor's handling of that.
            "p = 0.99 + 0.02 * (g > 0.5).to(torch.float32)",
            "q = p.view(m.shape)",
            "k = g > 0.5",
            f"w, s = x[:{n // 7 * 7}].view(-1, 7), x[:{n // 43 * 43}].view(-1, 43)",
            f"c = x[:{n // 4096 * 4096}].view(-1, 8, 8, 64).permute(0, 3, 1, 2)",
            "z = torch.view_as_complex(g.view(-1, 2))",
        ]
        out[f"{name}/{dtype}/{size}"] = ("; ".join(setup), code)

    for size in SIZES:
        for name, code in POINTWISE.items():
            add(name, size, "f32", code)
            if name in HALF:
                add(name, size, "bf16", code)
                add(name, size, "f16", code)
        for name, code in REDUCTIONS.items():
            add(name, size, "f32", code)
            if name in HALF_REDUCTIONS:
                add(name, size, "bf16", code)
                add(name, size, "f16", code)
        for name, (dtype, code) in {**CASTS, **INTEGERS, **BESIDE}.items():
            add(name, size, dtype, code)
    for dtype in ("f32", "bf16", "f64"):
        for n in (256, 512, 1024, 2048):
            for name, code in PRODUCTS.items():
                out[f"{name}/{dtype}/{n}"] = (
                    f"x = torch.rand({n}, {n}).to({DTYPES[dtype]}); y = torch.rand({n}, {n}).to({DTYPES[dtype]})",
                    code,
                )
    for dtype in ("i64", "i32", "u8"):
        for name, code in WHOLE_PRODUCTS.items():
            made = f"torch.randint(0, 9, (512, 512)).to({DTYPES[dtype]})"
            out[f"{name}/{dtype}/512"] = (f"x = {made}; y = {made}", code)
    out |= tiled()
    single = (
        (3, 256, 5, 1),
        (32, 112, 3, 2),
        (64, 56, 3, 1),
        (144, 56, 3, 1),
        (256, 28, 3, 1),
        (960, 7, 3, 1),
    )
    for c, size, k, stride in single:
        setup = [
            f"x = torch.randn(1, {c}, {size}, {size}).contiguous(memory_format=torch.channels_last)",
            f"w = torch.randn({c}, 1, {k}, {k})",
        ]
        code = f"F.conv2d(x, w, padding={k // 2}, stride={stride}, groups={c})"
        out[f"depthwise/f32/{c}x{size}"] = ("; ".join(setup), code)
    setup = [
        "Q = torch.ops.quantized",
        "r = torch.randn(1024, 1024)",
        "q = torch.quantize_per_tensor(r, 0.05, 60, torch.quint8)",
        "w = Q.linear_prepack(torch.quantize_per_tensor(r, 0.05, 0, torch.qint8), None)",
        "v = torch.quantize_per_tensor(torch.randn(64, 64, 3, 3), 0.05, 0, torch.qint8)",
        "c = Q.conv2d_prepack(v, None, [1, 1], [1, 1], [1, 1], 1)",
        "i = q[:784].reshape(4, 64, 56, 56).contiguous(memory_format=torch.channels_last)",
        "s, o = torch.rand(1024) + 0.01, torch.zeros(1024, dtype=torch.int64)",
        "p = torch.quantize_per_channel(r, s, o, 0, torch.qint8)",
    ]
    out |= {f"quantized_{name}": ("; ".join(setup), code) for name, code in QUANTIZED.items()}
    return out | narrow()


def narrow() -> dict[str, tuple[str, str]]:
    """Numbers of eight bits and fewer, and what is done to vectors and to bins."""
    out = {}
    for c, o, k, stride, size in (
        (3, 64, 7, 2, 112),
        (64, 256, 1, 1, 56),
        (128, 128, 3, 2, 56),
        (512, 512, 3, 1, 7),
    ):
        setup = [
            f"i = torch.quantize_per_tensor(torch.randn(2, {c}, {size}, {size}), 0.05, 60, torch.quint8)",
            "i = i.contiguous(memory_format=torch.channels_last)",
            f"s, z = torch.rand({o}) + 0.01, torch.zeros({o}, dtype=torch.int64)",
            f"v = torch.quantize_per_channel(torch.randn({o}, {c}, {k}, {k}), s, z, 0, torch.qint8)",
            "Q = torch.ops.quantized",
            f"c = Q.conv2d_prepack(v, torch.randn({o}), [{stride}] * 2, [{k // 2}] * 2, [1, 1], 1)",
        ]
        name = f"quantized_conv2d/{c}-{o}/{k}x{k}/{stride}/{size}"
        out[name] = ("; ".join(setup), "Q.conv2d_relu(i, c, 0.1, 3)")
    for rows in (1, 8, 64):
        for name, (setup, code) in PACKED.items():
            made = f"x = torch.randn({rows}, 2048).bfloat16(); {setup}"
            out[f"{name}/{rows}"] = (made, code)
    for d in NARROW:
        for wide in ("float32", "bfloat16"):
            made = f"x = torch.randn(1000000).to(torch.{wide})"
            out[f"cast/{wide}/{d}"] = (made, f"x.to(torch.{d})")
            out[f"cast/{d}/{wide}"] = (f"{made}.to(torch.{d})", f"x.to(torch.{wide})")
    made = "x, y = torch.rand(200, 64), torch.rand(300, 64); v, w = torch.rand(2, 30000, 3); z = torch.rand(100000)"
    out |= {name: (made, code) for name, code in DISTANCES.items()}
    setup = [
        "i, g = torch.rand(4, 32, 32, 32), torch.rand(4, 32, 32, 2) * 2.2 - 1.1",
        "b = torch.randint(0, 256, (1, 3, 256, 256), dtype=torch.uint8)",
        "z, k = torch.rand(512, 512) + 0.5, torch.randint(0, 512, (512, 1))",
        "v, h = torch.rand(100000), torch.full((1000,), 100)",
        "e = torch.zeros(4096, 1024, dtype=torch.bfloat16)",
    ]
    return out | {f"{name}/places": ("; ".join(setup), code) for name, code in PLACES.items()}


def tiled() -> dict[str, tuple[str, str]]:
    """What tile registers are for besides products of bf16: its convolutions and attentions, and products of bytes."""
    out = {}
    for c, o, k, stride, size in (
        (64, 64, 3, 1, 56),
        (128, 128, 3, 2, 56),
        (256, 512, 1, 2, 56),
        (256, 256, 3, 1, 14),
        (512, 512, 3, 1, 7),
    ):
        setup = [
            f"x = torch.randn(8, {c}, {size}, {size}).bfloat16().requires_grad_()",
            f"w = torch.randn({o}, {c}, {k}, {k}).bfloat16().requires_grad_()",
            f"f = lambda: F.conv2d(x, w, None, {stride}, {k // 2})",
            "y = f(); g = torch.ones_like(y)",
        ]
        name = f"bf16/{c}-{o}/{k}x{k}/{stride}/{size}"
        out[f"conv2d/{name}"] = ("; ".join(setup), "f()")
        for what in "xw":
            code = f"torch.autograd.grad(y, {what}, g, retain_graph=True)"
            out[f"conv2d_d{what}/{name}"] = ("; ".join(setup), code)
    for batch, heads, n, width in (
        (1, 8, 512, 64),
        (8, 12, 64, 64),
        (4, 16, 256, 64),
        (1, 32, 2048, 128),
    ):
        setup = f"q, k, v = torch.randn(3, {batch}, {heads}, {n}, {width}).bfloat16()"
        for causal in (False, True):
            code = f"F.scaled_dot_product_attention(q, k, v, is_causal={causal})"
            out[f"attention/bf16/{batch}x{heads}x{n}x{width}/{causal}"] = (setup, code)
    for m, k, n in ((64, 64, 64), (512, 512, 512), (1024, 1024, 1024), (32, 4096, 4096)):
        made = [f"torch.randint(-128, 128, {s}, dtype=torch.int8)" for s in ((m, k), (n, k))]
        setup = f"x = {made[0]}; y = {made[1]}; z = y.t().contiguous()"
        out[f"int_mm/{m}x{k}x{n}/rows"] = (setup, "torch._int_mm(x, z)")
        out[f"int_mm/{m}x{k}x{n}/columns"] = (setup, "torch._int_mm(x, y.t())")
    return out


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())
