"""Forward mode: tangents beside gradients, row by row, and dual tensors in calls of every form."""

from __future__ import annotations

import pytest

import torchlike as torch
import torchlike.autograd.forward_ad as fw
from derivatives import SavesInputs, direction, inner, leaf
from test_gradients import ONCE, RULES, STEADY, calls_of


def compare(row):
    """The product of a tangent's image with a cotangent is that of the tangent with the cotangent's."""
    for _, function, wanted in calls_of(row):
        torch.manual_seed(1)
        tangents = {id(t): direction(t) for t in wanted}

        def dual(t, tangents=tangents):
            return fw.make_dual(t, tangents[id(t)]) if id(t) in tangents else t

        with fw.dual_level():
            made = [fw.unpack_dual(o) for o in function(dual) if o.requires_grad]
        if not made:
            continue
        cotangents = [direction(u.primal) for u in made]
        grads = torch.autograd.grad([u.primal for u in made], wanted, cotangents, allow_unused=True)
        pairs = [(tangents[id(t)], g) for t, g in zip(wanted, grads, strict=True)]
        want = sum(inner(t, g) for t, g in pairs if g is not None)
        images = [(c, u.tangent) for c, u in zip(cotangents, made, strict=True)]
        got = sum(inner(c, t) for c, t in images if t is not None)
        assert got == pytest.approx(want, rel=1e-6, abs=1e-8, nan_ok=True)
        for u in made:
            assert u.tangent is None or u.tangent.shape == u.primal.shape
            assert u.tangent is None or u.tangent.dtype == u.primal.dtype


def compare_of_gradients(row):
    """The tangent of a gradient, along a direction, is what its own gradient says."""
    for _, function, wanted in calls_of(row):
        torch.manual_seed(1)
        tangents, along = [direction(t) for t in wanted], [direction(t) for t in wanted]
        made = [o for o in function(lambda t: t) if o.requires_grad]
        if not made:
            continue
        cotangents = [direction(o) for o in made]
        grads = torch.autograd.grad(made, wanted, cotangents, create_graph=True, allow_unused=True)
        pairs = [
            (g, v) for g, v in zip(grads, along, strict=True) if g is not None and g.requires_grad
        ]
        if not pairs:
            continue
        back = torch.autograd.grad(
            [g for g, _ in pairs], wanted, [v for _, v in pairs], allow_unused=True
        )
        want = sum(inner(t, b) for t, b in zip(tangents, back, strict=True) if b is not None)
        with fw.dual_level():
            duals = {id(t): fw.make_dual(t, v) for t, v in zip(wanted, tangents, strict=True)}
            again = [o for o in function(lambda t, d=duals: d.get(id(t), t)) if o.requires_grad]
            grads = torch.autograd.grad(again, list(duals.values()), cotangents, allow_unused=True)
            images = [g if g is None else fw.unpack_dual(g).tangent for g in grads]
        got = sum(inner(v, t) for v, t in zip(along, images, strict=True) if t is not None)
        assert got == pytest.approx(want, rel=1e-6, abs=1e-8, nan_ok=True)


# As in PyTorch, tangents are those of matrices that need not be triangular, gradients are not.
MATRICES = {"triangular_solve"}
# By the gradient of the gradient, which these have not.
WITHOUT = {r for r in ONCE if r != "_nn.hardsigmoid"}


@pytest.mark.parametrize("row", sorted(WITHOUT & set(RULES)))
def test_what_has_no_tangent_says_so(row):
    with pytest.raises((RuntimeError, NotImplementedError), match="implemented"):
        compare(row)


@pytest.mark.parametrize("row", [r for r in STEADY if r not in MATRICES | WITHOUT])
def test_tangent_is_the_transpose_of_the_gradient(row):
    compare(row)


@pytest.mark.parametrize("row", [r for r in STEADY if r not in MATRICES | WITHOUT | set(ONCE)])
def test_tangent_of_the_gradient_is_the_transpose_of_its_gradient(row):
    compare_of_gradients(row)


class TestDuals:
    def test_a_call(self):
        with fw.dual_level():
            d = fw.make_dual(torch.tensor([2.0, 3.0]), torch.tensor([1.0, 10.0]))
            y = d * d
            assert fw.unpack_dual(y).tangent.tolist() == [4, 60]
            assert fw.unpack_dual(y).primal.tolist() == [4, 9]
            assert "tangent=tensor([ 4., 60.])" in repr(y)
            assert fw.unpack_dual(y > 1).tangent is None
            assert fw.unpack_dual(d.detach()).tangent is None
            with torch.no_grad():
                assert fw.unpack_dual(d * 2).tangent.tolist() == [2, 20]
            with torch.inference_mode():
                assert fw.unpack_dual(d * 2).tangent is None
        assert fw.unpack_dual(y).tangent is None
        with fw.dual_level():
            assert fw.unpack_dual(d * 2).tangent is None

    def test_writes_and_views(self):
        with fw.dual_level():
            d = fw.make_dual(torch.ones(4), torch.arange(4.0))
            row = d.view(2, 2)[0]
            row.mul_(3)
            assert fw.unpack_dual(d).tangent.tolist() == [0, 3, 2, 3]
            d.mul_(2)
            assert fw.unpack_dual(row).tangent.tolist() == [0, 6]
            d.zero_()
            assert fw.unpack_dual(d).tangent.tolist() == [0, 0, 0, 0]

    def test_a_base_learns_of_its_view_where_gradients_are_off(self):
        with torch.no_grad(), fw.dual_level():
            base = torch.zeros(3)
            base[:2].copy_(fw.make_dual(torch.ones(2), torch.tensor([1.0, 10.0])))
            assert fw.unpack_dual(base).tangent.tolist() == [1, 10, 0]

    def test_a_base_learns_of_its_view(self):
        with fw.dual_level():
            base = torch.zeros(2, 3)
            base[0].copy_(fw.make_dual(torch.ones(3), torch.ones(3)))
            assert fw.unpack_dual(base).tangent.tolist() == [[1, 1, 1], [0, 0, 0]]
            assert fw.unpack_dual(base.sum()).tangent.item() == 3
            assert fw.unpack_dual(fw.unpack_dual(base).primal).tangent is None

    def test_reverse_over_forward(self):
        x = leaf(1.0, 2.0)
        with fw.dual_level():
            y = fw.unpack_dual(fw.make_dual(x, torch.ones(2)) ** 3).tangent
            assert y.grad_fn is not None
            y.sum().backward()
        assert x.grad.tolist() == [6, 12]

    def test_forward_over_reverse(self):
        with fw.dual_level():
            x = fw.make_dual(leaf(1.0, 2.0), torch.tensor([1.0, 10.0]))
            (g,) = torch.autograd.grad((x**3).sum(), x)
            assert fw.unpack_dual(g).tangent.tolist() == [6, 120]
            written = x.clone().pow_(3)
            (g,) = torch.autograd.grad(written.mul_(x).sum(), x)
            torch.testing.assert_close(fw.unpack_dual(g).tangent, torch.tensor([12.0, 480.0]))
            (g,) = torch.autograd.grad(x.exp().sum(), x)
            torch.testing.assert_close(
                fw.unpack_dual(g).tangent, x.detach().exp() * torch.tensor([1.0, 10.0])
            )

    def test_on_meta(self):
        with fw.dual_level():
            d = fw.make_dual(torch.ones(2, 3, device="meta"), torch.ones(2, 3, device="meta"))
            y = fw.unpack_dual(torch.nn.functional.layer_norm(d, (3,)))
            assert y.tangent.device.type == "meta"
            assert y.tangent.shape == (2, 3)

    def test_mistakes(self):
        one = torch.ones(2)
        with pytest.raises(RuntimeError, match="no level exists"):
            fw.make_dual(one, one)
        with fw.dual_level():
            d = fw.make_dual(one, one)
            with pytest.raises(RuntimeError, match="already has a forward gradient"):
                fw.make_dual(d, one)
            with pytest.raises(RuntimeError, match=r"size \[2\] while .* size \[3\]"):
                fw.make_dual(one, torch.ones(3))
            with pytest.raises(ValueError, match="Expected tangent to be floating"):
                fw.make_dual(one, torch.ones(2, dtype=torch.int64))
            with pytest.raises(RuntimeError, match="Nested forward mode"):
                fw.enter_dual_level()
            with pytest.raises(NotImplementedError, match="mul_out that does not support it"):
                torch.mul(d, d, out=torch.empty(2))
            with pytest.raises(NotImplementedError, match="aten::floor_divide"):
                torch.floor_divide(d, 2)
            with pytest.raises(RuntimeError, match="not the last one"):
                fw.exit_dual_level(level=3)


class Square(SavesInputs):
    """A function with all of its parts."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x

    @staticmethod
    def jvp(ctx, tangent):
        (x,) = ctx.saved_tensors
        return 2 * x * tangent


class OwnRule(Square):
    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        return OwnRule.apply(x) + info.batch_size, in_dims[0]


class TestFunctions:
    def test_tangents_by_jvp(self):
        with fw.dual_level():
            d = fw.make_dual(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 10.0]))
            assert fw.unpack_dual(Square.apply(d)).tangent.tolist() == [2, 40]
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(Square.apply, x, check_forward_ad=True)
        with fw.dual_level():
            d = fw.make_dual(torch.ones(2), torch.ones(2))
            with pytest.raises(NotImplementedError, match="must implement the jvp function"):
                NoTangent.apply(d)

    def test_batches(self):
        from torchlike.func import grad, vmap

        x = torch.arange(4.0).view(2, 2)
        assert vmap(Square.apply)(x).tolist() == [[0, 1], [4, 9]]
        assert vmap(grad(Square.apply))(torch.arange(3.0)).tolist() == [0, 2, 4]
        assert vmap(OwnRule.apply)(x).tolist() == [[2, 3], [6, 11]]
        with pytest.raises(RuntimeError, match="does not have vmap support"):
            vmap(NoRule.apply)(x)
        with pytest.raises(RuntimeError, match="must override the setup_context"):
            vmap(NoTangent.apply)(x)


class NoRule(Square):
    generate_vmap_rule = False


class NoTangent(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def test_tangents_that_others_wrote_end_at_their_level():
    # The gradient of a complex absolute value asks for one again.
    with fw.dual_level():
        x = fw.make_dual(torch.tensor([3 + 4j, 1j]), torch.tensor([1 + 0j, 2j]))
        base = torch.zeros(4, dtype=torch.complex64)
        base[:2].copy_(x)
        sizes = fw.unpack_dual(base.abs())
    torch.testing.assert_close(sizes.tangent, torch.tensor([0.6, 2.0, 0.0, 0.0]))


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, float("inf")])
def test_norms_of_zeros_have_a_tangent_of_zero(p):
    for size in (3,) if p in (1, float("inf")) else (3, 0):
        x = torch.zeros(size)
        with fw.dual_level():
            made = torch.linalg.vector_norm(fw.make_dual(x, torch.ones_like(x)), p)
            tangent = fw.unpack_dual(made).tangent
        assert tangent.item() == 0


def test_rows_that_are_shortened_keep_their_tangents():
    weight, tangent = torch.arange(12.0).view(4, 3), torch.ones(4, 3)
    made, along = torch.func.jvp(
        lambda w: torch.nn.functional.embedding(torch.tensor([1, 2]), w, max_norm=1.0),
        (weight,),
        (tangent,),
    )
    torch.testing.assert_close(made.norm(dim=1), torch.ones(2))
    assert torch.equal(along, torch.ones(2, 3)) and torch.equal(made, weight[1:3])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, c: (x + x * x) * c,
        lambda x, c: torch.addcmul(x, x, x) * c,
        lambda x, c: x.lerp(x * x, 0.3).index_select(0, torch.tensor([0, 0])),
        lambda x, c: torch.nn.functional.binary_cross_entropy_with_logits((x * x + 1).sqrt(), c),
    ],
)
def test_tangents_of_gradients_that_meet(f):
    x = torch.tensor([0.3, -0.4, 0.7], dtype=torch.float64)
    c = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def loss(x):
        return f(x, c).sum()

    other = torch.func.jacrev(torch.func.grad(loss))(x)
    torch.testing.assert_close(torch.func.hessian(loss)(x), other)
    v = torch.tensor([1.0, 0.5, -2.0], dtype=torch.float64)
    made = torch.func.jvp(torch.func.grad(loss), (x,), (v,))[1]
    torch.testing.assert_close(made, other @ v)


def overwritten(x):
    v = x * 2
    v[1].mul_(2)
    v.exp_()
    return v


def turned(x):
    v = x * x
    v.view(2, 2).t_()[0].mul_(3)
    return v * x


def through_the_conjugate(x):
    v = torch.complex(x, x * x)
    v.conj().exp_()
    return v.real * 2 + v.imag


def into_one_part(x):
    v = torch.zeros(4, dtype=torch.complex128)
    v.imag.copy_(x * x)
    return (v * v).real + v.imag


def moved_after_a_write(x):
    v = x.view(1, 4).mT * 1
    v[:1].copy_(v.sum().view(1, 1))
    return v.mT.exp()


WRITES = [
    lambda x: torch.nn.functional.silu(x * 2, inplace=True),
    lambda x: (x * x).masked_fill_(x > 0.5, 0.3) * x,
    lambda x: (x * x)[:].sigmoid_() * x,
    overwritten,
    turned,
    through_the_conjugate,
    into_one_part,
    moved_after_a_write,
]


@pytest.mark.parametrize("f", WRITES)
def test_both_modes_agree_about_writes(f):
    x = torch.tensor([0.3, -0.4, 0.7, 1.1], dtype=torch.float64)
    v = torch.tensor([1.0, 0.5, -2.0, 0.25], dtype=torch.float64)

    def loss(x):
        made = f(x).flatten()
        return (made * torch.arange(1.0, 5.0, dtype=torch.float64)).sum()

    def along(x):
        return torch.func.jvp(loss, (x,), (v,))[1]

    def slope(x):
        return (torch.func.grad(loss)(x) * v).sum()

    h = 1e-4
    found = ((loss(x + h * v) - loss(x - h * v)) / (2 * h)).item()
    assert along(x).item() == pytest.approx(found, rel=1e-5)
    assert slope(x).item() == pytest.approx(found, rel=1e-5)
    bend = ((loss(x + h * v) - 2 * loss(x) + loss(x - h * v)) / (h * h)).item()
    for first in (along, slope):
        twice = torch.func.jvp(first, (x,), (v,))[1], (torch.func.grad(first)(x) * v).sum()
        for got in twice:
            assert got.item() == pytest.approx(bend, rel=1e-3, abs=1e-4)


def test_tangents_of_places_that_are_written_twice():
    x, t = torch.tensor([0.5, -1.0, 2.0]), torch.ones(3)
    twice = torch.tensor([0, 0])
    for f in (
        lambda x: x.index_put((twice,), x.sum()),
        lambda x: x.put(twice, x.sum().expand(2)),
        lambda x: x.scatter(0, twice, x.sum().expand(2)),
        lambda x: x.index_copy(0, twice, x.sum().expand(2)),
    ):
        assert torch.func.jvp(f, (x,), (t,))[1].tolist() == [3.0, 1.0, 1.0]


def test_tangents_of_constants_do_not_matter():
    scores, of = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -2.0]]), torch.tensor([2, 0])
    weight = torch.tensor([1.0, 2.0, 3.0])

    def loss(x, weight):
        return torch.nn.functional.nll_loss(x, of, weight, reduction="none")

    made = torch.func.jvp(loss, (scores, weight), (scores + 1, weight))
    assert made[1].equal(loss(scores + 1, weight))
    m, least = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor(1e-5)
    made = torch.func.jvp(lambda m, r: torch.linalg.pinv(m, rtol=r), (m, least), (m, least))
    torch.testing.assert_close(made[1], -m.inverse())

    def weighted(x, weight):
        return torch.nn.functional.binary_cross_entropy(x, x.round(), weight)

    with pytest.raises(NotImplementedError, match="Trying to use forward AD"):
        torch.func.jvp(weighted, (scores.sigmoid(), weight), (scores, weight))


def test_a_view_by_strides_sees_tangents_as_it_sees_values():
    x, t = torch.arange(9.0).reshape(3, 3), torch.arange(9.0).reshape(3, 3) * 10

    def corner(x, t):
        return torch.func.jvp(lambda x: x.as_strided((2, 2), (1, 2), 0), (x,), (t,))

    for place in (0, -1):
        both = torch.stack([x, x + 1], place)
        along = torch.stack([t, t + 10], 0)
        values, tangents = torch.vmap(corner, (place, 0))(both, along)
        assert tangents.equal(values * 10)
    assert corner(x.t(), t)[1].tolist() == [[0, 60], [30, 10]]


def test_tangents_of_rows_that_get_no_gradient():
    table, rows = torch.arange(6.0).reshape(3, 2), torch.tensor([1, 2, 1])

    def looked_up(t):
        return torch.nn.functional.embedding(rows, t, padding_idx=1, scale_grad_by_freq=True)

    assert torch.func.jvp(looked_up, (table,), (table,))[1].equal(table[rows])


def test_tangents_of_complex_bilinear_forms():
    made = lambda *s: torch.randn(*s, dtype=torch.complex128)  # noqa: E731
    operands = (made(2, 3), made(2, 4), made(5, 3, 4), made(5))
    along = tuple(torch.randn_like(t) for t in operands)
    f = torch.nn.functional.bilinear
    value, tangent = torch.func.jvp(f, operands, along)
    step = 1e-6
    ends = [f(*(x + s * t for x, t in zip(operands, along, strict=True))) for s in (step, -step)]
    torch.testing.assert_close(value, f(*operands))
    torch.testing.assert_close(tangent, (ends[0] - ends[1]) / (2 * step), rtol=1e-6, atol=1e-6)
    with pytest.raises(RuntimeError, match="_trilinear does not support automatic"):
        f(operands[0].requires_grad_(), *operands[1:])


def written(write, size=2):
    """The cubes of what a function writes into zeros, summed up."""

    def f(x):
        made = torch.zeros(size)
        write(made, x)
        return (made**3).sum() + made.prod()

    return f


def by_columns(z, x):
    z[0, 0] = x[0] * x[1]
    z[0, 1] = 1
    z[1, 1] = x[0] ** 3


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "f",
    [
        written(lambda z, x: z.__setitem__(slice(None), x[:2])),
        written(lambda z, x: z.__setitem__(..., x[0])),
        written(lambda z, x: z.__setitem__([0, 1], x[:2] * x[1])),
        written(lambda z, x: z.__setitem__(torch.tensor([True, True]), x[:2])),
        written(lambda z, x: z.narrow(0, 0, 1).add_(x[0])),
        written(lambda z, x: (z.__setitem__(0, x[0]), z.__setitem__(1, x[1]))),
        written(by_columns, (2, 2)),
    ],
)
def test_derivatives_by_way_of_what_is_written(f):
    x = torch.tensor([1.0, 2.0, 3.0])
    first, second = torch.func.jacrev(f)(x), torch.func.jacrev(torch.func.jacrev(f))(x)
    assert torch.func.jacfwd(f)(x).equal(first) and first.count_nonzero() > 0
    along = tuple(torch.func.jvp(f, (x,), (row,))[1] for row in torch.eye(3))
    assert torch.stack(along).equal(first)
    torch.testing.assert_close(torch.func.jacrev(torch.func.jacfwd(f))(x), second)
    for row, wanted in zip(torch.eye(3), second, strict=True):
        along = lambda y, row=row: torch.func.jvp(f, (y,), (row,))[1]  # noqa: E731
        twice = [torch.func.jvp(along, (x,), (other,))[1] for other in torch.eye(3)]
        torch.testing.assert_close(torch.stack(twice), wanted)
