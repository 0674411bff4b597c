"""`linearize`: what is kept of a function is what `jvp` computes, for any tangents."""

from __future__ import annotations

import pytest

import torchlike as torch
from derivatives import SavesInputs, direction
from test_gradients import STEADY, calls_of
from torchlike.func import functional_call, grad, jvp, linearize, vmap
from torchlike.testing import assert_close
from torchlike.utils._python_dispatch import TorchDispatchMode

X = torch.tensor([1.0, 2.0, 3.0])
V = torch.tensor([1.0, 0.5, 2.0])


@pytest.mark.parametrize("row", STEADY)
def test_the_linear_function_of_a_row_is_its_jvp(row):
    for _, function, wanted in calls_of(row):
        if not wanted:
            continue
        primals = tuple(t.detach() for t in wanted)

        def call(*given, function=function, wanted=wanted):
            at = {id(t): g for t, g in zip(wanted, given, strict=True)}
            made = tuple(function(lambda t: at.get(id(t), t)))
            return tuple(o for o in made if isinstance(o, torch.Tensor))

        torch.manual_seed(1)
        tangents = tuple(direction(t) for t in primals)
        try:
            want = jvp(call, primals, tangents)
        except (RuntimeError, NotImplementedError) as e:
            with pytest.raises(type(e), match="implemented"):
                linearize(call, *primals)
            continue
        value, push = linearize(call, *primals)
        for _ in range(2):
            assert_close((value, push(*tangents)), want, equal_nan=True)


class Doubled(SavesInputs):
    """A function of the user's, whose tangent is one of ours."""

    @staticmethod
    def forward(x):
        return 2 * x * x

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 4 * x * t


def written(x):
    y = x.clone()
    y[0] = 5
    y.mul_(x)
    z = torch.zeros(3)
    seen_before = z[1:]
    z.copy_(y)
    z.add_(x)
    return z, seen_before * 2


PROGRAMS = {
    "through views and writes": written,
    "by values": lambda x: x * 2 if x.sum().item() > 0 else x,
    "constants": lambda x: (torch.ones(2), x, x.argmax()),
    "the input": lambda x: (x, x),
    "views in place": lambda x: (x * 2).unsqueeze_(0).t_().squeeze_(),
    "a vector times a matrix": lambda x: torch.nn.functional.linear(x, torch.eye(3)[:2]),
    "a gradient": grad(lambda x: x.sin().prod()),
    "a tangent": lambda x: jvp(torch.sin, (x,), (x * V,)),
    "a batch": vmap(lambda x: x.exp() * x),
    "a function of the user's": Doubled.apply,
    "overwritten after": lambda x: [y := x.sin(), z := y * x, y.detach().zero_(), z][3],
    "detached": lambda x: x * x.detach(),
    "complex": lambda x: torch.view_as_real((x + 1j * x * x).conj() * 1j).mT,
    "nothing": lambda x: torch.ones(2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function = PROGRAMS[name]
    want = jvp(function, (X,), (V,))
    value, push = linearize(function, X)
    for _ in range(2):
        assert_close((value, push(V)), want)
    along = torch.eye(3)
    columns = vmap(push)(along)
    assert_close(columns, vmap(lambda t: jvp(function, (X,), (t,))[1])(along))
    assert_close(push(torch.stack([V, V], 1)[:, 0]), want[1])


class TestTransforms:
    def test_of_the_linear_function(self):
        push = linearize(lambda x: x.sin() * x, X)[1]
        assert_close(jvp(push, (V,), (X,)), (push(V), push(X)))
        by_v = grad(lambda t: (push(t) * X).sum())(V)
        assert_close(by_v, X * (X.cos() * X + X.sin()))

    def test_inside_of_others(self):
        def along(x):
            return linearize(lambda x: x.sin() * x, x)[1](V).sum()

        def same(x):
            return jvp(lambda x: x.sin() * x, (x,), (V,))[1].sum()

        assert_close(grad(along)(X), grad(same)(X))
        assert_close(jvp(along, (X,), (X,)), jvp(same, (X,), (X,)))
        assert_close(vmap(along)(torch.stack([X, V])), vmap(same)(torch.stack([X, V])))
        assert_close(linearize(along, X)[1](X), jvp(same, (X,), (X,))[1])

    def test_parameters_get_gradients(self):
        layer = torch.nn.Linear(3, 2)
        _, push = linearize(layer, X)
        push(V).sum().backward()
        assert_close(layer.weight.grad, V.expand(2, 3))

    def test_the_mask_of_dropout_stays(self):
        value, push = linearize(torch.nn.functional.dropout, X)
        assert_close(push(X), value)

    def test_of_parameters(self):
        layer = torch.nn.Linear(3, 2)
        params = {k: v.detach() for k, v in layer.named_parameters()}
        _, push = linearize(lambda p: functional_call(layer, p, X), params)
        assert_close(push(params), layer(X).detach())


class TestCalls:
    def test_the_function_runs_once_and_values_are_not_computed_again(self):
        class Names(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                names.append(func._opname)
                return func(*args, **(kwargs or {}))

        runs, names = [], []
        _, push = linearize(lambda x: [runs.append(1), x.exp().sin()][1], X)
        with Names():
            push(V)
        assert len(runs) == 1
        assert "exp" not in names
        assert "sin" not in names

    def test_on_meta(self):
        made = linearize(lambda x: x.sin() * x, X.to("meta"))[1](V.to("meta"))
        assert (made.device.type, made.shape) == ("meta", (3,))


class TestRefusals:
    def test_what_does_not_fit(self):
        push = linearize(torch.sin, X)[1]
        with pytest.raises(RuntimeError, match="doesn't match the shape"):
            push(V[:2])
        with pytest.raises(RuntimeError, match=r"with dtype torchlike.float64 .* match the dtype"):
            push(V.double())
        with pytest.raises(RuntimeError, match=r"with device meta .* match the device cpu"):
            push(V.to("meta"))
        with pytest.raises(RuntimeError, match="same argspec as the primals"):
            push(V, V)
        with pytest.raises(ValueError, match="floating point or complex"):
            linearize(torch.abs, torch.tensor([1]))

    def test_a_value_that_was_overwritten(self):
        x = X.clone()
        push = linearize(lambda x: x * x, x)[1]
        x.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            push(V)

    def test_values_of_tangents(self):
        class Looks(Doubled):
            @staticmethod
            def jvp(ctx, t):
                return t if t.sum() > 0 else -t

        with pytest.raises(RuntimeError, match="reads the values of a tangent"):
            linearize(Looks.apply, X)
