"""What dispatch modes see: the operators that PyTorch would come down to, with its arguments."""

import inspect
import re
import sys

import pytest

import torchlike as torch
from torchlike import _C, nn
from torchlike._ops import decompositions
from torchlike.utils._python_dispatch import TorchDispatchMode

F = nn.functional


class Log(TorchDispatchMode):
    """Notes the operators, or the operators with their arguments."""

    def __init__(self, arguments=False):
        super().__init__()
        self.log, self.arguments = [], arguments

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert types == ()
        name = str(func).removeprefix("aten.").removesuffix(".default")
        self.log.append((name, args[1:], dict(kwargs or {})) if self.arguments else name)
        return func(*args, **(kwargs or {}))


def seen(call):
    """The names that a call comes down to."""
    with torch.no_grad(), Log() as m:
        call()
    return " ".join(m.log)


x, y = torch.ones(2, 3), torch.ones(2, 3)
mask, places = x > 0, torch.zeros(2, dtype=torch.int64)
image, square = torch.ones(1, 2, 5, 5), torch.eye(2) * 2
q, thrice = torch.ones(1, 2, 4, 8), torch.ones(2, 2, 3)
wide, cube = torch.ones(4, 3), torch.ones(2, 3, 3)
z = torch.complex(x, y)

CALLS = {
    "a complex number chosen": (lambda: torch.where(mask, 1j, x), "scalar_tensor _to_copy where.self"),
    "close whole numbers": (
        lambda: torch.isclose(places, places),
        "eq.Tensor _to_copy mul.Scalar abs add.Scalar sub.Tensor abs abs ne.Scalar eq.Tensor mul.Tensor le.Tensor "
        "bitwise_and_.Tensor bitwise_or_.Tensor",
    ),
    "finite truth values": (lambda: mask.isfinite(), "ones_like"),
    "nothing dropped of nothing": (lambda: F.dropout(x[:0], 0.5), "slice.Tensor"),
    "a rank": (
        lambda: torch.linalg.matrix_rank(square, atol=0.5),
        "empty.memory_format full full _linalg_svd slice.Tensor unsqueeze mul.Tensor unsqueeze maximum gt.Tensor "
        "sum.dim_IntList",
    ),
    "a complex convolution": (
        lambda: F.conv1d(z[None], z[None]),
        "unsqueeze unsqueeze view_as_real select.int select.int view_as_real select.int select.int "
        "convolution convolution add.Tensor add.Tensor convolution sub.Tensor sub.Tensor mul.Scalar "
        "sub.Tensor add.Tensor",
    ),
    # an overload is chosen by all of the arguments
    "mean of a dimension": (lambda: x.mean(1), "mean.dim"),
    "largest of two": (lambda: x.max(y), "maximum"),
    "squeezed dimensions": (lambda: x.squeeze((0, 1)), "squeeze.dims"),
    "filled from a tensor": (lambda: x.masked_fill(mask, x[0, 0]), "select.int select.int masked_fill.Tensor"),
    "a range": (lambda: torch.arange(1, 3), "arange.start"),
    "identity into a tensor": (lambda: torch.eye(2, 3, out=x.clone()), "clone eye.m_out"),
    # numbers beside tensors, from Python and from a composite
    "number from Python": (lambda: x * 2, "mul.Tensor"),
    "number from a composite": (
        lambda: torch.trapezoid(x),
        "select.int select.int add.Tensor mul.Scalar sum.dim_IntList sub.Tensor mul.Scalar",
    ),
    "numbers chosen": (lambda: torch.where(mask, x, 1.0), "scalar_tensor where.self"),
    # elements assigned
    "a number assigned": (lambda: x.clone().__setitem__(0, 1.0), "clone lift_fresh select.int fill_.Tensor"),
    "a number assigned to one": (
        lambda: x.clone().__setitem__((0, 1), 1.0),
        "clone lift_fresh select.int select.int copy_",
    ),
    "a number assigned where": (lambda: x.clone().__setitem__(mask, 0.0), "clone lift_fresh index_put_"),
    "a row assigned": (
        lambda: x.clone().__setitem__(slice(None), x[0]),
        "clone select.int view expand copy_",
    ),
    # linear algebra: a factorisation, and a look at what failed
    "inverse": (lambda: torch.linalg.inv(square), "linalg_inv_ex _linalg_check_errors"),
    "solution": (
        lambda: torch.linalg.solve(square, x[0, :2]),
        "select.int slice.Tensor _linalg_solve_ex _linalg_check_errors",
    ),
    "singular values": (lambda: torch.linalg.svdvals(x), "_linalg_svd"),
    "inner products": (lambda: torch.linalg.vecdot(x, y), "mul.Tensor sum.dim_IntList"),
    # networks
    "rows that lie apart": (
        lambda: F.linear(thrice.transpose(0, 1), wide, torch.ones(4)),
        "transpose.int ones t expand view expand view bmm _unsafe_view add.Tensor",
    ),
    "root mean square": (lambda: F.rms_norm(x, (3,)), "pow.Tensor_Scalar mean.dim add_.Scalar rsqrt mul.Tensor"),
    "attention": (lambda: F.scaled_dot_product_attention(q, q, q), "_scaled_dot_product_flash_attention_for_cpu"),
    "bags": (lambda: F.embedding_bag(places, x, places[:1]), "slice.Tensor _embedding_bag_forward_only"),
    "maxima and places": (lambda: F.max_pool2d(image, 2, return_indices=True), "max_pool2d_with_indices"),
    "one mean": (lambda: F.adaptive_avg_pool1d(thrice, 1), "unsqueeze mean.dim squeeze.dim"),
    "mirrored": (lambda: F.pad(image, (1, 1, 1, 1), mode="reflect"), "reflection_pad2d"),
    "larger": (lambda: F.interpolate(image, scale_factor=2, mode="bilinear"), "upsample_bilinear2d"),
    "folded": (lambda: F.fold(torch.ones(1, 8, 16), (5, 5), 2), "ones col2im"),
    "dropout in place": (
        lambda: F.dropout(x.clone(), 0.5, inplace=True),
        "clone empty_like bernoulli_.float div_.Scalar mul_.Tensor",
    ),
    # losses
    "pairs": (lambda: F.pairwise_distance(x, y), "sub.Tensor add.Scalar norm.ScalarOpt_dim"),
    "ranking": (
        lambda: F.margin_ranking_loss(x, x, y),
        "sub.Tensor neg mul.Tensor add.Scalar clamp_min_ mean",
    ),
    "classes": (
        lambda: F.one_hot(places, 3),
        "aminmax _local_scalar_dense _local_scalar_dense zeros unsqueeze scatter_.value",
    ),
    # statistics
    "covariance": (
        lambda: torch.cov(x),
        "scalar_tensor sum.dim_IntList div.Tensor scalar_tensor le.Scalar new_ones equal "
        "unsqueeze sub.Tensor t mm div.Tensor squeeze",
    ),
    "quantiles": (
        lambda: torch.quantile(x, x[0, :2] / 2, 1, interpolation="nearest"),
        "select.int slice.Tensor div.Tensor sort view mul.Scalar isnan any.dim expand expand masked_fill.Scalar "
        "round_ _to_copy gather unsqueeze_ transpose_ squeeze_.dim",
    ),
    "differences": (
        lambda: torch.gradient(x[0]),
        "select.int slice.Tensor slice.Tensor sub.Tensor div.Scalar slice.Tensor slice.Tensor sub.Tensor div.Scalar "
        "slice.Tensor slice.Tensor sub.Tensor div.Scalar div.Scalar cat",
    ),
    "normal variances": (
        lambda: F.gaussian_nll_loss(x, y, x, full=True),
        "lt.Scalar any _local_scalar_dense clone clamp_ log sub.Tensor pow.Tensor_Scalar div.Tensor add.Tensor "
        "mul.Tensor add_.Tensor mean",
    ),
    "bilinear": (lambda: F.bilinear(x, y, cube), "view view _trilinear view"),
    "one matrix for all": (lambda: cube @ thrice[:1].mT, "slice.Tensor transpose.int squeeze.dim view mm _unsafe_view"),
    "masked mean": (
        lambda: torch.masked.mean(x, 1, mask=mask[0]),
        "select.int clone expand sum.dim_IntList lift_fresh where.self sum.dim_IntList div.Tensor",
    ),
    # conjugates are copied for what does not read them
    "of conjugates": (lambda: z.conj().exp(), "_conj clone exp"),
    "parts of conjugates": (lambda: z.conj().imag, "_conj _conj view_as_real _neg_view select.int"),
    "conjugates in place": (lambda: z.conj().add_(1), "_conj clone add_.Tensor copy_"),
    "products of conjugates": (lambda: z.mm(z.conj().t()), "_conj t mm"),
    # what prints is not seen
    "text": (lambda: repr(x), ""),
    # what a keyword or a size changes
    "stable places of a sort": (lambda: x.argsort(stable=True), "sort.stable"),
    "close, or both no numbers": (
        lambda: torch.isclose(x, y, equal_nan=True),
        "eq.Tensor isnan isnan bitwise_and.Tensor bitwise_or_.Tensor mul.Scalar abs add.Scalar sub.Tensor abs abs "
        "ne.Scalar eq.Tensor mul.Tensor le.Tensor bitwise_and_.Tensor bitwise_or_.Tensor",
    ),
    "product of two vectors": (lambda: torch.linalg.vecdot(x[0], y[0]), "select.int select.int vdot"),
    "weighted entropy": (
        lambda: F.binary_cross_entropy(x, y, weight=x), "expand binary_cross_entropy"
    ),
    "Poisson's whole loss": (
        lambda: F.poisson_nll_loss(x, y, full=True),
        "mul.Tensor exp sub.Tensor mul.Scalar log mul.Scalar log mul.Tensor sub.Tensor add.Tensor le.Scalar "
        "masked_fill.Scalar add_.Tensor mean",
    ),
    "bags of one length": (
        lambda: F.embedding_bag(places[None], cube[0]),
        "unsqueeze select.int arange.start_step view _embedding_bag_forward_only",
    ),
    "places of a number": (
        lambda: torch.argwhere(x[0, 0]), "select.int select.int nonzero"
    ),
    "few singular values": (
        lambda: torch.svd_lowrank(wide, q=2, niter=1),
        "randn mm linalg_qr transpose.int mm linalg_qr mm linalg_qr transpose.int mm _linalg_svd transpose.int mm",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "wanted"), CALLS.values(), ids=CALLS)
def test_a_call_comes_down_to_these(call, wanted):
    assert seen(call) == wanted


def test_recurrent_steps():
    step = "t addmm t addmm add_.Tensor"
    gates = "unsafe_split.Tensor sigmoid_ sigmoid_ tanh_ sigmoid_ mul.Tensor mul.Tensor add_.Tensor"
    for cell, rest in (
        (nn.RNNCell(3, 4), "tanh"),
        (nn.RNNCell(3, 4, nonlinearity="relu"), "relu"),
        (nn.LSTMCell(3, 4), f"{gates} tanh mul.Tensor"),
    ):
        assert seen(lambda cell=cell: cell(x)) == f"zeros {step} {rest}"
    net = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True).eval()
    given = torch.randn(2, 5, 3)
    with torch.no_grad():
        plain, (h, c) = net(given)
        with Log():
            shown, (h2, c2) = net(given)
    for a, b in ((plain, shown), (h, h2), (c, c2)):
        assert a.shape == b.shape and torch.allclose(a, b, atol=1e-6)


def test_steps_of_optimizers_are_parts_with_a_name():
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    step = torch.optim.SGD([p], 0.5, momentum=0.5).step
    enter, leave = (
        "profiler._record_function_enter_new",
        "profiler._record_function_exit._RecordFunction",
    )
    assert seen(step) == f"{enter} detach clone add_.Tensor {leave}"
    with Log(arguments=True) as m, torch.profiler.record_function("part", "of it"):
        pass
    assert m.log[0] == (enter, ("of it",), {})
    assert p.tolist() == [0.5, 0.5]


def test_arguments_are_as_pytorch_passes_them():
    with Log(arguments=True) as m:
        x[:, 1:]
        torch.zeros(2)
        torch.full((2,), 3, device="meta")
    made = {"pin_memory": False}
    assert m.log == [
        ("slice.Tensor", (1, 1, sys.maxsize), {}),
        ("zeros", (), {"device": torch.device("cpu"), **made}),
        ("full", (3,), {"device": torch.device("meta"), **made}),
    ]


def test_a_factorisation_that_fails_says_why():
    empty = torch.zeros(2, 2, 2)
    for call, text in (
        (lambda: torch.linalg.inv(empty), r"linalg.inv: \(Batch element 0\): The diagonal element 1 is zero"),
        (lambda: torch.linalg.cholesky(-square), "linalg.cholesky: The factorization could not be completed"),
        (lambda: torch.linalg.solve(empty[0], x[:, 0]), "torch.linalg.solve: The solver failed"),
        (lambda: torch.linalg.lu_factor(empty[0]), r"torch.linalg.lu_factor: U\[1,1\] is zero"),
    ):  # fmt: skip
        with Log(), pytest.raises(RuntimeError, match=text):
            call()


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_who_watches_hides_no_check(device):
    x = torch.ones(3, 3, device=device)
    short = torch.zeros(2, dtype=torch.int64, device=device)
    for call, text in (
        (lambda: F.nll_loss(x, short), "Expected input batch_size"),
        (lambda: F.one_hot(x, 3), "only applicable to index tensor"),
        (lambda: x.movedim(0, 3), "Dimension out of range"),
        (lambda: torch.take_along_dim(x, short.int()[None], 1), "indices should be Long"),
        (lambda: nn.RNNCell(2, 3, device=device)(x), "inconsistent input_size: got 3 expected 2"),
    ):
        with Log(), pytest.raises((RuntimeError, ValueError, IndexError), match=text):
            call()


def test_lists_of_tensors_are_one_operator():
    both = [torch.ones(2), torch.ones(3)]
    p = [nn.Parameter(t.clone()) for t in both]
    for q in p:
        q.grad = torch.ones_like(q)
    clip = torch.nn.utils
    for call, wanted in (
        (lambda: torch._foreach_add(both, 1), "_foreach_add.Scalar"),
        (lambda: torch._foreach_add(both, both, alpha=2), "_foreach_add.List"),
        (lambda: torch._foreach_mul(both, [1.0, 2.0]), "_foreach_mul.ScalarList"),
        (lambda: torch._foreach_neg_(both), "_foreach_neg_"),
        (lambda: clip.get_total_norm(both), "_foreach_norm.Scalar stack linalg_vector_norm"),
        (lambda: clip.clip_grad_value_(p, 0.5), "_foreach_clamp_min_.Scalar _foreach_clamp_max_.Scalar"),
        (lambda: clip.clip_grad_value_(p, 0.5, foreach=False), "clamp_ clamp_"),
    ):  # fmt: skip
        assert seen(call) == wanted
    assert both[0].tolist() == [-1.0, -1.0] and p[0].grad.tolist() == [0.5, 0.5]
    with pytest.raises(RuntimeError, match="can't use the foreach API on meta tensors"):
        clip.get_total_norm([torch.ones(2, device="meta")], foreach=True)


def test_operators_written_by_hand_write_what_they_are_given():
    x, out = torch.randn(3), torch.empty(0)
    assert torch.ops.aten._softmax.out(x, 0, False, out=out) is out
    assert torch.equal(out, x.softmax(0))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        torch.ops.aten.gelu.out(x, out=torch.zeros(3, dtype=torch.float64))


def test_calls_of_operators_are_recorded_above_those_who_watch():
    class Instead(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            assert not made.requires_grad
            return torch.full_like(made, 3.0)

    g = torch.ones(2, requires_grad=True)
    with Instead():
        made = torch.ops.aten.exp(g)
    assert type(made.grad_fn).__name__ == "ExpBackward0"
    assert torch.autograd.grad(made.sum(), g)[0].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (lambda g: torch.ops.aten.tanh(g), "ones tanh detach"),
        (lambda g: F.relu(g), "ones relu detach"),
        (
            lambda g: g.mean().backward(),
            "ones mean ones_like expand div.Scalar detach",
        ),
        (
            lambda g: (g * 2).sum().backward(),
            "ones mul.Tensor sum ones_like expand mul.Tensor detach",
        ),
        (
            lambda g: g.backward(torch.ones(2)),
            "ones ones new_empty_strided copy_",
        ),
        (
            lambda g: g.var().backward(),
            "ones var.correction ones_like mean sub.Tensor mul.Scalar mul.Tensor detach",
        ),
        (
            lambda g: g.amax(0).backward(),
            "ones amax detach ones_like detach view eq.Tensor view sum.dim_IntList div.Tensor mul.Tensor detach",
        ),
        (
            lambda g: g.max(0).values.backward(),
            "ones max.dim ones_like unsqueeze unsqueeze new_zeros scatter.src detach",
        ),
        (
            lambda g: F.binary_cross_entropy_with_logits(g, torch.ones(2)).backward(),
            "ones ones binary_cross_entropy_with_logits ones_like sigmoid sub.Tensor mul.Tensor div_.Scalar detach",
        ),
    ],
)
def test_leaves_and_numbers_and_saved_results_of_gradients(call, wanted):
    with Log() as m:
        call(torch.ones(2, requires_grad=True))
    assert " ".join(m.log) == wanted


def test_what_rows_come_down_to_takes_their_arguments():
    decompositions._found("add")
    schemas = {row: schema for row, schema, *_ in _C._op_table()}
    checked = 0
    for name, function in decompositions._TABLE.items():
        taken = inspect.signature(function).parameters
        if name not in schemas or any(p.kind is p.VAR_KEYWORD for p in taken.values()):
            continue
        said = re.sub(r"\[[^]]*\]|=[^,)]*", "", schemas[name].split(" -> ")[0].strip("()"))
        names = [p.split()[-1] for p in said.split(", ") if p != "*"]
        assert set(names) <= set(taken), name
        checked += 1
    assert checked > 100
