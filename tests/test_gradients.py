"""The gradient of every row that has one, and its gradient, beside differences of values, by the row's own samples."""

from __future__ import annotations

import math

import pytest

import derivatives
import samples
import torchlike as torch
from torchlike import _C

GRADIENTS = {name: (kind, text) for name, kind, text, _ in _C._op_gradients()}
SAMPLES = dict(_C._op_samples())
SCHEMAS = {name: schema for name, schema, _, _ in _C._op_table()}
KINDS = dict(_C._op_kinds())

# Draws, and what is not continuous where the samples lie.
UNSTEADY = {
    "bernoulli", "bernoulli#p", "bernoulli#inplace", "bernoulli#tensor_inplace", "cauchy", "exponential", "geometric",
    "log_normal", "normal#inplace", "poisson", "random", "random#from", "random#to", "uniform", "_nn.rrelu",
    "fmod", "remainder", "scatter", "_standard_gamma",
}  # fmt: skip
# PyTorch says their gradient: of discrete values, among others.
CHOSEN = {
    "ceil", "floor", "round", "round#decimals", "trunc", "sign", "nextafter", "copysign",
    "fill", "zero", "_grad.sgn", "renorm", "normal", "normal#mean", "normal#std",
    "_ctc_loss", "as_strided_scatter", "_grad.embedding",
    "_fake_quantize_learnable_per_channel_affine", "_fake_quantize_learnable_per_tensor_affine",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "fake_quantize_per_channel_affine_cachemask",
    "fake_quantize_per_tensor_affine_cachemask", "_grad.learned_quantizer",
    # It says why it has none.
    "_grad.once",
    # Of the statistics' own numbers, which are functions of the input.
    "_grad.batch_norm", "_grad.group_norm", "_grad.layer_norm", "_grad.rms_norm",
}  # fmt: skip
# Of symmetric and triangular matrices.
SYMMETRIC = {"linalg.eigh", "linalg.eigvalsh", "cholesky", "linalg.cholesky_ex"}
LOWER = {"cholesky_inverse", "cholesky_solve"}
# PyTorch differentiates them for real numbers alone.
REAL = {
    "_nn.silu",
    "_grad.silu_backward",
    "_nn.soft_margin_loss",
    "_attention",
    "_nn.trilinear",
    "bilinear",
    "nan_to_num",
}
# Results after the first have no gradient of their own.
FIRST = {"_scaled_dot_product_flash_attention_for_cpu"}
# PyTorch has no second derivative of them.
ONCE = {
    "_attention", "_cdist_forward", "_nn.hardsigmoid", "_nn.multi_margin_loss", "_nn.multilabel_margin_loss",
    "_pdist_forward", "_scaled_dot_product_flash_attention_for_cpu", "embedding_bag", "pdist", "segment_reduce",
}  # fmt: skip
# Signs or phases of these results are free: their sizes are compared.
FREE_PHASES = {"linalg.eig", "linalg.eigh", "linalg.svd"}
# Results that change with their arguments and have no gradient in PyTorch either, or that nobody has written.
FREE = {n for n in GRADIENTS if n.startswith("special.")} | {
    "_div_trunc", "empty_like", "empty_permuted", "new_empty", "new_empty_strided", "resize", "resize_as",
    # Of single precision alone.
    "_amp.update_scale", "_amp_foreach_non_finite_check_and_unscale_",
}  # fmt: skip


def wide(t):
    """The tensor in double precision, wanting a gradient."""
    if t.dtype.is_complex:
        return t.to(torch.complex128).detach().requires_grad_()
    if t.dtype.is_floating_point:
        return t.to(torch.float64).detach().requires_grad_()
    return t


def inputs(row):
    """The parameters whose gradients the row's text gives."""
    kind, text = GRADIENTS[row]
    if kind == "through":
        return set(parameters(row))
    clauses = text.rpartition("|")[2].split(";")
    pairs = [c.partition(":") for c in clauses]
    return {
        n.strip()
        for names, _, text in pairs
        for n in names.split(",")
        if not text.strip().startswith("refused")
        and not text.strip().startswith(("never", "constant"))
        and n.strip() != "jvp"
    }


def parameters(row):
    """The names of the row's parameters, in order."""
    schema = SCHEMAS[row].partition(") -> ")[0].strip("()")
    parts, depth, part = [], 0, ""
    for c in schema + ",":
        depth += c in "[("
        depth -= c in "])"
        if c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += c
    return [p.partition("=")[0].split(" ")[-1] for p in parts if p and p != "*"]


def deep(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(deep(v, change) for v in value)
    return torch.float64 if value is torch.float32 else value


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if isinstance(value, list | tuple):
        return [t for v in value for t in leaves(v)]
    return []


def outputs(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return (
        [t for v in value if v is not None for t in outputs(v)]
        if isinstance(value, list | tuple)
        else []
    )


def calls_of(row, complex_numbers=False):
    """The row's samples as functions of their leaves, in double precision.

    What they are given, if anything, says what stands in the place of a tensor.
    """
    change = turned if complex_numbers else wide

    def fixed(t):
        return change(t).detach()

    given = inputs(row)
    names = parameters(row)
    for call in samples.calls(SAMPLES[row]):
        args, kwargs = samples.arguments(call, "cpu")

        def widened(name, value):
            return deep(value, change if name in given else fixed)

        args = (
            tuple(widened(n, v) for n, v in zip(names, args, strict=False))
            if len(args) <= len(names)
            else deep(args, change)
        )
        kwargs = {k: widened(k, v) for k, v in kwargs.items()}
        wanted = leaves(list(args)) + leaves(list(kwargs.values()))
        if not wanted or (row in REAL and any(t.dtype.is_complex for t in wanted)):
            continue

        def function(instead=lambda t: t, args=args, kwargs=kwargs):
            args, kwargs = deep(args, instead), {k: deep(v, instead) for k, v in kwargs.items()}
            results = outputs(_C._call_row(row, False, shaped(row, args), kwargs))
            if row in FREE_PHASES:
                results = [o.abs() for o in results]
                # Of the rows that belong to no singular value only the space is determined.
                results[2:] = [o[..., : results[1].shape[-1], :] for o in results[2:]]
            wide_results = (torch.float64, torch.complex128)
            some = [o if o.dtype in wide_results else o.detach() for o in results]
            return [o.detach() if row in FIRST and i else o for i, o in enumerate(some)]

        yield call, function, wanted


def shaped(row, args):
    """Matrices as symmetric or triangular as the row takes them to be."""
    if row in SYMMETRIC:
        return ((args[0] + args[0].mH) / 2, *args[1:])
    if row in LOWER:
        at = len(args) - 1 if isinstance(args[-1], torch.Tensor) else len(args) - 2
        return (*args[:at], args[at].tril(), *args[at + 1 :])
    return args


def agree(found, rel=2e-4):
    """Whether what gradients say is what differences say; outside of the domain they say nothing."""
    if found is not None and not math.isnan(found[1]):
        assert found[0] == pytest.approx(found[1], rel=rel, abs=rel / 10)


def turned(t):
    """The tensor as complex numbers, wanting a gradient."""
    if not t.dtype.is_floating_point:
        return wide(t)
    t = t.to(torch.float64)
    return torch.complex(t, t.flip(-1) / 2 if t.ndim else t / 2).requires_grad_()


RULES = sorted(n for n, (kind, _) in GRADIENTS.items() if kind in ("rule", "through"))


def test_all_texts_are_read():
    assert [e for _, _, _, e in _C._op_gradients() if e] == []


STEADY = [r for r in RULES if r not in UNSTEADY | CHOSEN]


def test_every_row_says_what_its_gradient_is():
    """Composed rows need not: they are differentiated by what they are made of."""
    silent = [n for n, (kind, _) in GRADIENTS.items() if kind == "unstated"]
    assert [n for n in silent if KINDS[n] in ("kernel", "view")] == []


@pytest.mark.parametrize("row", STEADY)
def test_gradient_is_the_derivative(row):
    for _, function, wanted in calls_of(row):
        agree(derivatives.slopes(function, wanted))


@pytest.mark.parametrize("row", STEADY)
def test_gradient_of_complex_numbers_is_the_derivative(row):
    for _, function, wanted in complex_calls(row):
        agree(derivatives.slopes(function, wanted))


def complex_calls(row):
    """Those samples of a row that complex numbers can stand in."""
    for call, function, wanted in calls_of(row, complex_numbers=True):
        try:
            with torch.no_grad():
                made = function()
        except (RuntimeError, TypeError, NotImplementedError, ValueError):
            continue
        if any(o.dtype.is_complex for o in made):
            yield call, function, wanted


@pytest.mark.parametrize("row", [r for r in STEADY if r not in ONCE])
def test_gradient_of_the_gradient_is_its_derivative(row):
    for _, function, wanted in [*calls_of(row), *complex_calls(row)]:
        agree(derivatives.slopes(*derivatives.twice(function, wanted)), rel=1e-3)


@pytest.mark.parametrize("row", sorted(ONCE))
def test_there_is_no_second_gradient(row):
    """Where PyTorch has none."""
    _, function, wanted = next(calls_of(row))
    with pytest.raises((RuntimeError, NotImplementedError), match="is not implemented"):
        derivatives.slopes(*derivatives.twice(function, wanted))


ZERO = sorted(n for n, (kind, _) in GRADIENTS.items() if kind == "zero")


@pytest.mark.parametrize("row", [r for r in ZERO if r not in FREE])
def test_what_has_no_gradient_does_not_change(row):
    """Results that never want a gradient stay as they are while their arguments move."""
    for call in samples.calls(SAMPLES[row]):
        args, kwargs = samples.arguments(call, "cpu")
        args, kwargs = deep(args, wide), {k: deep(v, wide) for k, v in kwargs.items()}
        moved = leaves(list(args)) + leaves(list(kwargs.values()))
        with torch.no_grad():
            torch.manual_seed(1)
            before = outputs(_C._call_row(row, False, args, kwargs))
            steps = [derivatives.direction(t) for t in moved]
            derivatives.move(moved, steps, 1e-9)
            torch.manual_seed(1)
            after = outputs(_C._call_row(row, False, args, kwargs))
        for b, a in zip(before, after, strict=True):
            if b.dtype.is_floating_point or b.dtype.is_complex:
                assert torch.equal(b.nan_to_num(), a.nan_to_num())


@pytest.mark.parametrize("row", [r for r in RULES if r not in UNSTEADY])
def test_gradient_on_meta_looks_the_same(row):
    """Shapes, dtypes and strides of gradients are those of the CPU's."""
    for call in samples.calls(SAMPLES[row]):
        found = []
        for device in ("cpu", "meta"):
            args, kwargs = samples.arguments(call, device)
            args, kwargs = (
                deep_as_is(args, tracked),
                {k: deep_as_is(v, tracked) for k, v in kwargs.items()},
            )
            wanted = leaves(list(args)) + leaves(list(kwargs.values()))
            try:
                made = [
                    o for o in outputs(_C._call_row(row, False, args, kwargs)) if o.requires_grad
                ]
                if not made or not wanted:
                    break
                cotangents = [torch.ones(o.shape, dtype=o.dtype, device=device) for o in made]
                grads = torch.autograd.grad(made, wanted, cotangents, allow_unused=True)
            except NotImplementedError as e:
                texts = ("depends on the values", "the derivative for", "not implemented for")
                if any(t in str(e) for t in texts):
                    break
                raise
            except RuntimeError as e:
                if "ill-defined" in str(e):
                    break  # for what these values are
                found.append(str(e))
                continue
            found.append(
                [None if g is None else (g.shape, g.dtype, g.numel() and g.stride()) for g in grads]
            )
        if len(found) == 2:
            assert found[0] == found[1]


def tracked(t):
    return t.requires_grad_() if t.dtype.is_floating_point or t.dtype.is_complex else t


def deep_as_is(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(deep_as_is(v, change) for v in value)
    return value


F = torch.nn.functional


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


SEGMENTS = torch.tensor([1, 3])
MASK, PLACES = torch.tensor([True, False]), torch.tensor([1, 9])


def pooled(grad, x):
    """The gradient of a pool, which depends on what was pooled by its shape alone."""
    return torch.ops.aten.avg_pool2d_backward(
        grad.view(1, 2, 2), x, [1, 1], [1, 1], [0, 0], False, True, None
    )


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("SqueezeBackward4", lambda x: (x * 1).squeeze_(0)),
        ("TransposeBackward1", lambda x: (x * 1).transpose_(0, 1)),
        ("CeluBackward1", lambda x: F.celu(x * 1, inplace=True)),
        ("MseLossBackward0", lambda x: F.mse_loss(x, x.detach())),
        ("ReshapeAliasBackward0", lambda _: leaf(2, 3).t().reshape(3, 2, 1)),
        ("SqueezeBackward4", lambda x: torch.quantile(x, 0.3)),
        ("CloneBackward0", lambda x: torch.matmul(x.t(), torch.ones(3, 1, 2, dtype=x.dtype))),
        ("MeanBackward1", lambda x: F.adaptive_avg_pool2d(x[None, None], 1)),
        ("MulBackward1", torch.special.ndtr),
        ("CopySlices", lambda x: F.pad(x, (1, 2), mode="circular")),
        ("SqueezeBackward4", lambda x: torch.stft(x[0], 4, return_complex=True)),
        ("SqueezeBackward4", lambda x: F.dropout3d(x.reshape(1, 2, 2, 1) * 1, inplace=True)),
        ("RreluWithNoiseBackward1", lambda x: F.rrelu(x * 1, inplace=True)),
        ("RreluWithNoiseBackward1", lambda x: F.rrelu(x * 1, training=True, inplace=True)),
        ("SegmentReduceBackward0", lambda x: torch.segment_reduce(x[0], "sum", lengths=SEGMENTS)),
        (
            "UnsafeMaskedIndexBackward0",
            lambda x: torch._unsafe_masked_index(x[0], MASK, [PLACES], 1),
        ),
        ("ViewBackward0", lambda x: torch.cdist(x, x, compute_mode="use_mm_for_euclid_dist")),
        ("CdistBackward0", lambda x: torch.cdist(x, x)),
        (
            "ViewBackward0",
            lambda x: F.nll_loss(x.view(1, 2, 2), torch.tensor([[0, 1]]), reduction="none"),
        ),
        (
            "AvgPool2DBackwardBackward0",
            lambda x: pooled(x.detach(), x.new_ones(1, 2, 2).requires_grad_()),
        ),
    ],
)
def test_nodes_have_pytorchs_names(name, made):
    assert made(leaf(1, 4)).grad_fn.name().endswith(name)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        (
            "The function 'soft_margin_loss' is not differentiable with respect to argument 'target'",
            lambda: F.soft_margin_loss(leaf(3).detach(), leaf(3)),
        ),
        (
            "The function 'nll_loss2d_forward' is not differentiable with respect to argument 'weight'",
            lambda: F.nll_loss(
                leaf(1, 2, 1, 1), torch.zeros(1, 1, 1, dtype=torch.int64), weight=leaf(2)
            ),
        ),
        (
            "silu does not support automatic differentiation for outputs with complex dtype",
            lambda: F.silu(leaf(3, dtype=torch.complex128)),
        ),
        (
            "the derivative for 'igamma: input' is not implemented",
            lambda: torch.igamma(leaf(3).abs(), leaf(3).abs()).sum().backward(),
        ),
        (
            "derivative for aten::_chunk_cat is not implemented",
            lambda: torch._chunk_cat([leaf(3), leaf(2)], 0, 2).sum().backward(),
        ),
        (
            "derivative for aten::_histogramdd_from_bin_cts is not implemented",
            lambda: torch.histogramdd(leaf(6, 2), [2, 3]).hist.sum().backward(),
        ),
        (
            "derivative for aten::_histogramdd_from_bin_tensors is not implemented",
            lambda: torch.histogramdd(leaf(6, 1), [torch.ones(2).double()]).hist.sum().backward(),
        ),
        (
            "the derivative for '_unique2' is not implemented",
            lambda: torch.unique(leaf(3)).sum().backward(),
        ),
        (
            "linalg_eigh_backward: The eigenvectors in the complex case",
            lambda: torch.linalg.eigh(leaf(3, 3, dtype=torch.complex128))[1].real.sum().backward(),
        ),
    ],
)
def test_what_has_no_gradient_says_so_as_pytorch_does(text, call):
    with pytest.raises((RuntimeError, NotImplementedError), match=text):
        call()


def test_weights_of_a_depthwise_convolution_may_lie_inside_other_memory():
    both = torch.randn(4, 1, 3, 3, 2, dtype=torch.float64)
    x, g = leaf(2, 4, 6, 6), torch.randn(2, 4, 4, 4, dtype=torch.float64)
    inside, apart = (F.conv2d(x, w, groups=4) for w in (both[..., 1], both[..., 1].contiguous()))
    grads = [torch.autograd.grad(y, x, g)[0] for y in (inside, apart)]
    torch.testing.assert_close(*grads)


def test_gradients_by_statistics():
    """Means and deviations that group_norm gives back have gradients, too."""
    x, w = leaf(2, 4, 3), leaf(4)

    def function():
        return list(torch.native_group_norm(x, w, None, 2, 4, 3, 2, 1e-5))

    agree(derivatives.slopes(function, [x, w]))
    agree(derivatives.slopes(*derivatives.twice(function, [x, w])), rel=1e-3)


def test_the_product_of_one_vector_is_that_vector():
    x = leaf(3)
    made = torch.cartesian_prod(x)
    assert made.is_leaf and made.requires_grad
    made.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_a_module_in_place_gives_its_input_back():
    base = leaf(2, 3, 4, 5) * 1
    for training in (True, False):
        made = F.dropout3d(base, training=training, inplace=True)
        assert made is base and base.shape == (2, 3, 4, 5)


def test_elements_behind_the_last_segment_have_no_gradient():
    for reduce in ("sum", "mean", "prod", "max", "min"):
        x = torch.tensor([1.0, 2, 3, 4], requires_grad=True)
        made = torch.segment_reduce(x, reduce, lengths=torch.tensor([2]), unsafe=True)
        made.sum().backward()
        assert x.grad[2:].tolist() == [0, 0] and x.grad[:2].abs().sum() > 0


def test_the_second_gradient_of_distances_by_a_product():
    x, y = leaf(3, 4), leaf(2, 4)

    def distances(x, y):
        return torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist")

    assert torch.autograd.gradgradcheck(distances, (x, y))
