"""Programs in PyTorch's core operators: what `run_decompositions` makes of the others."""

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import nn
from torchlike._decomp import core_aten_decompositions, get_decompositions

X, Y, Z = (torch.cos(torch.arange(12.0) * k).view(3, 4) for k in (1, 2, 3))
CLASSES = torch.tensor([0, 2, 1])


class Expression(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y, z):
        return self.function(x, y, z)


def programs(function):
    whole = torch.export.export(Expression(function), (X, Y, Z))
    return whole, whole.run_decompositions()


FOUND = [
    (lambda x, y, z: F.glu(x), "slice.Tensor slice.Tensor sigmoid.default mul.Tensor"),
    (lambda x, y, z: F.mse_loss(x, y), "sub.Tensor pow.Tensor_Scalar mean.default"),
    (lambda x, y, z: torch.std_mean(x, 0), "var_mean.correction sqrt.default"),
    (lambda x, y, z: x.split(2), "split_with_sizes.default"),
    (
        lambda x, y, z: x.unbind(),
        "slice.Tensor slice.Tensor slice.Tensor squeeze.dims squeeze.dims squeeze.dims",
    ),
    (lambda x, y, z: 1 - x.t(), "permute.default sub.Tensor"),
    (lambda x, y, z: torch.stack([x, y], 1), "cat.default view.default"),
    (
        lambda x, y, z: F.binary_cross_entropy_with_logits(x, y),
        "sub.Tensor mul.Tensor full.default minimum.default abs.default neg.default exp.default log1p.default "
        "sub.Tensor sub.Tensor mean.default",
    ),
    (
        lambda x, y, z: F.hardswish(x),
        "add.Tensor clamp.default clamp.default mul.Tensor div.Tensor",
    ),
    (
        lambda x, y, z: x.tril(),
        "arange.start_step unsqueeze.default arange.start_step unsqueeze.default sub.Tensor le.Scalar "
        "scalar_tensor.default where.self",
    ),
    (lambda x, y, z: x + torch.tensor(2.0), "clone.default add.Tensor"),
    (lambda x, y, z: F.dropout(x, 0.5, False), "clone.default"),
    (lambda x, y, z: F.dropout(x, 0.5), "native_dropout.default"),
    (
        lambda x, y, z: F.batch_norm(x, y[0], z[0].abs()),
        "select.int select.int abs.default _native_batch_norm_legit_no_training.default",
    ),
]


@pytest.mark.parametrize(("function", "wanted"), FOUND)
def test_operators_are_those_of_pytorch(function, wanted):
    program = programs(function)[1]
    found = [n for n in program.graph.nodes if n.op == "call_function"]
    names = [
        str(n.target).removeprefix("aten.") for n in found if hasattr(n.target, "overloadpacket")
    ]
    assert names == wanted.split()


SAME = {
    "activations": lambda x, y, z: [
        f(x)
        for f in (
            F.silu,
            F.softplus,
            F.mish,
            F.hardsigmoid,
            F.hardshrink,
            F.softshrink,
            F.celu,
            F.logsigmoid,
            lambda x: F.softplus(x, 2.0, 1.0),
            lambda x: F.threshold(x, 0.1, 0.2),
            lambda x: F.prelu(x, x[0]),
            lambda x: F.celu(x, 0.5),
            lambda x: F.silu(x.half()),
        )
    ],
    "elements": lambda x, y, z: [
        torch.logit(x, 0.1),
        torch.nan_to_num(x / 0),
        torch.sgn(x),
        torch.sinc(x),
        torch.frac(x),
        torch.deg2rad(x),
        torch.rad2deg(x),
        torch.isposinf(x),
        torch.xlogy(x, y.abs()),
        torch.special.xlog1py(x, y.abs()),
        torch.special.entr(x),
        torch.special.log_ndtr(x),
        torch.logaddexp(x, y),
        torch.logaddexp2(x, y),
        torch.heaviside(x, y),
        torch.floor_divide(x, y),
        torch.rsub(x, y, alpha=2),
        x.clamp_min(0.1),
        x.clamp_max(y),
        torch.addcmul(x, y, z, value=2),
        torch.addcdiv(x, y, z, value=2),
        torch.lerp(x, y, 0.7),
        torch.lerp(x, y, z),
        torch.mvlgamma(x + 3, 2),
        x.masked_fill(y > 0, 1.5),
        x.masked_fill(y > 0, x[0, 0]),
    ],
    "losses": lambda x, y, z: [
        loss
        for how in ("none", "mean", "sum")
        for loss in (
            F.smooth_l1_loss(x, y, reduction=how, beta=0.5),
            F.huber_loss(x, y, reduction=how, delta=0.5),
            F.soft_margin_loss(x, y, reduction=how),
            F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction=how),
            F.binary_cross_entropy_with_logits(x, y, z, pos_weight=y[0], reduction=how),
            F.cross_entropy(x, CLASSES, y[0].abs(), reduction=how, ignore_index=1),
            F.nll_loss(x[None], x[None, 0].long(), reduction=how),
            F.multi_margin_loss(x, CLASSES, reduction=how),
        )
    ],
    "reductions": lambda x, y, z: [
        x.sum(),
        x.std(),
        x.std(1, keepdim=True),
        torch.std(x, 0, correction=0),
        torch.logsumexp(x, 0),
        torch.logsumexp(x, (0, 1), True),
        x.all(),
        x.all(0),
        *torch.aminmax(x, dim=0),
        torch.count_nonzero(x, 0),
        torch.nansum(x / x),
        x.norm(),
        x.norm(3, 0),
        torch.renorm(x, 2, 0, 0.5),
        x.trace(),
    ],
    "products": lambda x, y, z: [
        torch.mv(x, y[0]),
        torch.dot(x[0], y[0]),
        torch.vdot(x[0], y[0]),
        torch.addr(z[:, :3], x[:, 0], y[:, 0], beta=2, alpha=3),
        torch.baddbmm(z[:, :3][None], x[None], y.t()[None], beta=0.5, alpha=2),
        F.scaled_dot_product_attention(x[None], y[None], z[None]),
    ],
    "places": lambda x, y, z: [
        x.squeeze(),
        x[None].squeeze(0),
        *x.chunk(2),
        torch.stack([x, y], -1),
        x.rot90(),
        x.rot90(2),
        x.rot90(3),
        x.roll(1),
        x.roll((1, 2), (0, 1)),
        torch.diag_embed(x),
        torch.diag_embed(x, dim1=0, dim2=2),
        x.index_add(0, CLASSES, y, alpha=2),
        x.index_copy(1, CLASSES, y[:, :3]),
        x.index_fill(0, CLASSES[:2], 1.0),
        x.take(CLASSES),
        torch.isin(x, y[0]),
        x.select_scatter(y[0], 0, -1),
        x.triu(1),
        F.pixel_shuffle(x[None].expand(4, 3, 4), 2),
        F.pixel_unshuffle(x[None, :2], 2),
        F.channel_shuffle(x[None, None].expand(1, 4, 3, 4), 2),
        F.pad(x[None], (1, 2), "reflect"),
        F.pad(x[None, None], (1, 2, 0, 1), "replicate"),
        torch.linalg.cross(x[:, :3], y[:, :3]),
        F.unfold(x[None, None], 2, padding=1),
        F.interpolate(x[None], scale_factor=2),
        torch.block_diag(x, y),
        F.max_unpool2d(*F.max_pool2d(x[None], (1, 2), return_indices=True), (1, 2)),
    ],
    "new": lambda x, y, z: [
        torch.ones(2),
        torch.zeros(2, 3),
        torch.ones_like(x),
        x.new_zeros(3),
        x.new_full((2,), 3.0),
        torch.eye(3, 4),
        torch.arange(5),
        torch.arange(1, 5),
        torch.linspace(0, 2, 7),
        x.clone().fill_(2.0),
        x.clone().zero_(),
    ],
}


@pytest.mark.parametrize("kind", SAME)
def test_values_stay_the_same(kind):
    core = programs(SAME[kind])[1]
    table = core_aten_decompositions()
    assert [n.target for n in core.graph.nodes if n.target in table] == []
    for got, want in zip(core.module()(X, Y, Z), SAME[kind](X, Y, Z), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, equal_nan=True)


def test_tables():
    aten = torch.ops.aten
    assert set(get_decompositions([aten.rsub, aten.glu.default])) == {
        aten.rsub.Tensor,
        aten.rsub.Scalar,
        aten.glu.default,
    }
    program = torch.export.export(Expression(lambda x, y, z: F.glu(x)), (X, Y, Z))
    kept = program.run_decompositions({})
    assert aten.glu.default in [n.target for n in kept.graph.nodes]


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(5, 4)
        self.o = nn.Linear(4, 5, bias=False)
        self.o.weight = self.e.weight
        self.first, self.unused, self.second = torch.ones(4), torch.ones(1), torch.ones(5)
        self.register_buffer("a", torch.zeros(5))
        self.register_buffer("b", torch.zeros(5))

    def forward(self, i):
        x = self.o(self.e(i) * self.first) + torch.tensor(1.0)
        self.b.copy_(x.sum(0))
        self.a.add_(1)
        return x * self.second


def test_signatures_have_ties_and_constants_as_they_are_used():
    model = Held()
    program = torch.export.export(model, (torch.tensor([1, 2]),))
    signature = program.graph_signature
    assert signature.parameters == ("e.weight", "o.weight")
    assert signature.lifted_tensor_constants == ("first", "lifted_tensor_0", "second")
    core = program.run_decompositions()
    assert list(core.graph_signature.buffers_to_mutate.values()) == ["a", "b"]
    copied = [n for n in core.graph.nodes if n.target is torch.ops.aten.copy.default]
    assert copied == []
    want = model(torch.tensor([3, 0]))
    torch.testing.assert_close(core.module()(torch.tensor([3, 0])), want)


def test_the_table_is_whole_and_can_be_made_smaller():
    from torchlike._decomp import decomposition_table, remove_decompositions

    table = torch._decomp.core_aten_decompositions()
    assert decomposition_table == table
    gone = torch.ops.aten.silu.default, torch.ops.aten.mse_loss.default
    remove_decompositions(table, [torch.ops.aten.silu, gone[1]])
    assert not {*gone} & {*table} and {*gone} <= {*decomposition_table}
    remove_decompositions(table, gone)
