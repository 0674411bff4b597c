"""Operators of Python before those who look at calls: fake tensors, `vmap`, modes and classes with rules."""

from collections.abc import Sequence

import numpy as np
import pytest

import torchlike as torch
from test_library import Log, Wrapped
from test_library import space as space
from torchlike import library
from torchlike._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

pytestmark = pytest.mark.usefixtures("space")


def test_fake_tensors_ask_for_shapes_alone():
    host = library.Library("mine", "DEF")

    def elements(x):
        return torch.from_numpy(x.numpy() * 2)

    @library.custom_op("mine::opaque", mutates_args=())
    def opaque(x: torch.Tensor) -> torch.Tensor:
        return elements(x)

    for name in ("silent", "composed", "picky"):
        host.define(f"{name}(Tensor x) -> Tensor")
        host.impl(name, elements, "CPU")
    host.impl("composed", lambda x: x * 2, "CompositeExplicitAutograd")
    library.register_fake(
        "mine::picky", lambda x: x.new_empty(library.get_ctx().new_dynamic_size())
    )
    mode = FakeTensorMode()
    with mode:
        here, far = torch.ones(3), torch.ones(3, device="cuda:1", requires_grad=True)
        with pytest.raises(RuntimeError, match="There was no fake impl registered"):
            opaque(here)
    opaque.register_fake(lambda x: torch.empty(3, device=x.device))
    opaque.register_autograd(lambda ctx, grad: grad * 2)
    assert opaque(torch.ones(2)).tolist() == [2, 2]
    for _ in range(2):  # the second time the call is known to fit
        made = opaque(far)
        assert type(made) is type(far) and made.fake_mode is mode and made.device == far.device
        assert torch.ops.mine.composed(here).device.type == "cpu"
        with pytest.raises(UnsupportedOperatorException, match=r"mine\.silent\.default"):
            torch.ops.mine.silent(here)
    opaque(far).sum().backward()
    assert far.grad.device == far.device
    with pytest.raises(DynamicOutputShapeException, match=r"mine\.picky\.default"):
        torch.ops.mine.picky(here)
    with pytest.raises(
        RuntimeError, match=r"mine::picky .*test_custom_operators.py:.* data-dependent shape"
    ):
        torch.ops.mine.picky(torch.ones(3, device="meta"))
    assert library.get_ctx() is None


def doubled(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * k)


def test_batches_of_operators_of_python():
    opaque = library.custom_op("mine::opaque", doubled, mutates_args=())
    x = torch.arange(6.0).reshape(2, 3)
    with pytest.warns(UserWarning, match="batching rule for mine::opaque"):
        assert torch.vmap(opaque)(x).equal(x * 2)
    told = []

    @opaque.register_vmap
    def _(info, in_dims, x, k=2.0):
        told.append((info.batch_size, in_dims, tuple(x.shape)))
        return opaque(x, k), in_dims[0]

    assert torch.vmap(lambda row: opaque(row, 3.0), in_dims=1)(x).equal(x.T * 3)
    assert told.pop() == (3, (1, None), (2, 3))
    assert torch.vmap(torch.vmap(opaque))(x).equal(x * 2) and len(told) == 2
    assert torch.vmap(lambda row: row + opaque(torch.ones(3)))(x).equal(x + 2)
    opaque.register_autograd(
        lambda ctx, grad: (opaque(grad, ctx.k), None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]),
    )
    leaf = x.clone().requires_grad_()
    torch.vmap(opaque)(leaf).sum().backward()
    assert leaf.grad.equal(torch.full((2, 3), 2.0))
    opaque.register_vmap(lambda info, in_dims, x, k=2.0: x)
    with pytest.raises(RuntimeError, match=r"to have two returns.* Got a <class"):
        torch.vmap(opaque)(x)


def test_batches_one_by_one():
    names = {"listed": "Tensor[] x", "written": "Tensor(a!) x"}
    host = library.Library("mine", "DEF")
    for name, argument in names.items():
        host.define(f"{name}({argument}) -> {'()' if name == 'written' else 'Tensor'}")
        host.impl(name, lambda x: x, "CPU")
    x = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="could not generate a fallback"):
        torch.vmap(lambda row: torch.ops.mine.listed([row]))(x)
    with pytest.raises(RuntimeError, match="doesn't work on out= or view ops"):
        torch.vmap(torch.ops.mine.written)(x)
    drawn = library.custom_op(
        "mine::drawn", lambda x: torch.rand(x.shape), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    with pytest.warns(UserWarning, match="batching rule for mine::drawn"):
        made = torch.vmap(drawn)(x)
    assert made.shape == (2, 3) and not made[0].equal(made[1])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(lambda row: row + torch.rand(3))(x)


def test_rules_of_modes_and_classes():
    host = library.Library("mine", "DEF")
    for name, key in {"plain": "CPU", "made": "CompositeImplicitAutograd"}.items():
        host.define(f"{name}(Tensor x) -> Tensor")
        host.impl(name, lambda x: x * 2, key)

    @library.register_torch_dispatch("mine::plain", Log)
    def rule(mode, func, types, args, kwargs):
        return func(*args, **kwargs) + 1

    library.register_torch_dispatch(
        "mine::plain", Wrapped, lambda cls, func, types, args, kwargs: func(args[0].inner) + 10
    )
    with Log() as m:
        made = torch.ops.mine.plain(torch.ones(1))
    assert m.log == ["aten.ones.default"] and made.item() == 3
    assert torch.ops.mine.plain(Wrapped(torch.ones(1))).item() == 12
    with Log() as m:
        torch.ops.mine.made(torch.ones(1))
    assert m.log == ["aten.ones.default", "aten.mul.Tensor"]
    with pytest.raises(RuntimeError, match="already has a `__torch_dispatch__` rule"):
        library.register_torch_dispatch("mine::plain", Log, rule)
    with pytest.raises(ValueError, match="unexpected type for op: <class 'int'>"):
        library.register_torch_dispatch(3, Log, rule)


def test_what_is_made_of_others_stays_fake_however_often_it_is_called():
    host = library.Library("mine", "DEF")
    host.define("shifted(Tensor x) -> Tensor")
    host.impl("shifted", lambda x: x + torch.ones(x.shape), "CompositeExplicitAutograd")
    with FakeTensorMode():
        x = torch.ones(3)
    for _ in range(3):
        assert type(torch.ops.mine.shifted(x)) is type(x)


def test_made_rules_of_functions_take_examples_in_lists():
    class Scaled(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, factors):
            return x * factors[0] + factors[1]

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[1][0])

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0], None

    x, by = torch.arange(6.0).reshape(2, 3), torch.tensor([[1.0], [10.0]])
    made = torch.vmap(lambda row, factor: Scaled.apply(row, [factor, torch.ones(3)]))(x, by)
    assert made.equal(x * by + 1)


class Cubed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3, 3 * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx, grad, grad_slope):
        x, slope = ctx.saved_tensors
        return grad * slope + grad_slope * 6 * x


def test_made_rules_of_functions_nest_and_are_differentiated_twice():
    x = torch.arange(6.0).reshape(2, 3)

    def first(v):
        return torch.func.grad(lambda u: Cubed.apply(u)[0].sum())(v).sum()

    assert torch.vmap(torch.vmap(lambda v: Cubed.apply(v)[0]))(x).equal(x**3)
    assert torch.vmap(torch.func.grad(first))(x).equal(6 * x)
    assert torch.vmap(torch.vmap(torch.func.grad(first)))(x).equal(6 * x)


def test_gradients_of_operators_whose_results_are_in_lists():
    def parts(x: torch.Tensor, sizes: Sequence[int]) -> tuple[list[torch.Tensor], int]:
        return [p.clone() for p in x.split(sizes)], len(sizes)

    def pair(x: torch.Tensor, others: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [x * 2, others[0] * 3]

    def back(ctx, grads):
        return 2 * grads[0], [3 * grads[1], None]

    parts = torch.library.custom_op("mine::parts", parts, mutates_args=())
    parts.register_autograd(lambda ctx, grads, count: (torch.cat(grads), None))
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (a, b), count = parts(x, [1, 2])
    (a.sum() + 5 * b.sum()).backward()
    assert count == 2 and x.grad.tolist() == [1, 5, 5]

    pair = torch.library.custom_op("mine::pair", pair, mutates_args=())
    pair.register_autograd(back)
    made = pair(x, [y, y.detach()])
    assert type(made) is list
    (made[0].sum() + made[1].sum()).backward()
    assert x.grad.tolist() == [3, 7, 7] and y.grad.tolist() == [3, 3, 3]


def test_tags_say_that_what_is_written_is_returned():
    def double_(x: torch.Tensor) -> torch.Tensor:
        x.numpy()[...] *= 2
        return x

    def plus(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        out.copy_(x + 1)
        return out

    made = library.custom_op("mine::double_", double_, mutates_args={"x"}, tags=torch.Tag.inplace)
    x = torch.ones(2)
    assert made(x) is x and x.tolist() == [2, 2] and x._version > 0
    assert str(made._opoverload._schema) == "mine::double_(Tensor(a0!) x) -> Tensor(a0!)"
    assert made(torch.ones(2, device="meta")).is_meta
    made = library.custom_op("mine::plus", plus, mutates_args={"out"}, tags=torch.Tag.out)
    assert made(x, out=(out := torch.zeros(2))) is out and out.tolist() == [3, 3]
    wrong = library.custom_op(
        "mine::wrong_", lambda x: x.clone(), mutates_args={"x"}, tags=torch.Tag.inplace,
        schema="(Tensor(a!) x) -> Tensor(a!)",
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="must return its first argument"):
        wrong(x)
    with pytest.raises(ValueError, match="exactly the first positional argument"):
        library.infer_schema(double_, mutates_args=(), tags=torch.Tag.inplace)


def test_functions_that_write_are_no_nodes():
    @library.custom_op("mine::fill", mutates_args={"x"})
    def fill(x: torch.Tensor) -> None:
        x.numpy()[...] = 3

    x = torch.ones(2, requires_grad=True) * 1
    z = x * x
    fill(x)
    assert x.tolist() == [3, 3] and fill(torch.ones(2, device="meta")) is None
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_what_custom_op_refuses():
    with pytest.raises(NotImplementedError, match="kwarg-only Tensor args"):

        @library.custom_op("mine::named", mutates_args=())
        def named(x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor: ...

    with pytest.raises(ValueError, match=r"the op mutates \{'x'\}"):
        library.custom_op("mine::hidden", print, mutates_args=(), schema="(Tensor(a!) x) -> ()")
    with pytest.raises(ValueError, match=r"required to have a `device: torch\.device`"):

        @library.custom_op("mine::nowhere", mutates_args=(), device_types="cpu")
        def nowhere() -> torch.Tensor: ...

    @library.custom_op("mine::somewhere", mutates_args=(), device_types="cpu")
    def somewhere(device: torch.device) -> torch.Tensor:
        return torch.ones(1)

    assert somewhere("cpu").tolist() == [1]
    with pytest.raises(RuntimeError, match="does not have a kernel registered for cuda"):
        somewhere("cuda")


def test_kernels_are_switched_off(caplog):
    @library.custom_op("mine::one", mutates_args=())
    def one(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    library.register_kernel(one, "cpu", lambda x: x + 2)
    x = torch.zeros(1)
    with one.set_kernel_enabled("cpu", enabled=False):
        assert one(x).item() == 1
    assert one(x).item() == 2
    with one.set_kernel_enabled("cuda", enabled=True):
        assert "no kernel was registered" in caplog.text and "already enabled" in caplog.text


def test_libraries_of_the_old_kind():
    host = library.Library("mine", "DEF")

    @library.define(host, "twice(Tensor x, int n = 2) -> Tensor")
    def twice(x, n=2):
        return x * n

    host.define("thrice(Tensor x, Tensor (a!)? y = None) -> Tensor")

    @library.impl(host, "thrice", "CPU")
    def thrice(x, y=None):
        return x * 3

    x = torch.ones(1)
    assert torch.ops.mine.twice(x).item() == 2 and torch.ops.mine.thrice(x).item() == 3
    with pytest.raises(ValueError, match="prim is a reserved namespace"):
        library.Library("prim", "DEF")
    with pytest.raises(RuntimeError, match="Invalid alias_analysis type maybe"):
        host.define("f(Tensor x) -> Tensor", "maybe")


def test_schemas_are_printed_in_one_way():
    def spelled(text):
        return str(torch._C.parse_schema(text))

    assert spelled("a::f(Tensor x,int  y=1, float z=1.0, *, ScalarType t=float) ->Tensor") == (
        "a::f(Tensor x, int y=1, float z=1., *, ScalarType t=6) -> Tensor"
    )
    assert spelled("f(float[2] a=0.5, int[2] b=1, str s='x', Device d='cpu') -> (Tensor,int)") == (
        'f(float[2] a=[0.5, 0.5], int[2] b=1, str s="x", Device d=cpu) -> (Tensor, int)'
    )
    assert torch._C.parse_schema("f(int[3] a=1) -> ()").arguments[0].default_value == [1, 1, 1]
    with pytest.raises(RuntimeError, match=r"q\(Tensor x, Uh y\) -> Tensor\n {12}~~ <--- HERE"):
        torch.library.define("printed::q", "(Tensor x, Uh y) -> Tensor")


def test_checks_of_operators():
    check, ops = torch.library.opcheck, torch.ops.checked
    with torch.library._scoped_library("checked", "FRAGMENT") as lib:
        kernels = {
            "short": (lambda x: x.clone()[:1], lambda x: torch.empty_like(x)),
            "wide": (lambda x: x.double(), lambda x: torch.empty_like(x)),
            "view": (lambda x: x.view(-1), lambda x: x.view(-1)),
            "good": (lambda x: x.clone(), lambda x: torch.empty_like(x)),
        }
        for name, (real, fake) in kernels.items():
            lib.define(f"{name}(Tensor x) -> Tensor")
            lib.impl(name, real, "CPU")
            torch.library.register_fake(f"checked::{name}")(fake)
        x = torch.ones(3)
        for name, text in (
            ("short", r"Shapes \w+.Size\(\[1\]\) and \w+.Size\(\[3\]\) are not equal!"),
            ("wide", "Dtypes torch(like)?.float64 and torch(like)?.float32 are not equal!"),
            ("view", "test_schema failed with Argument x is not defined to alias output"),
        ):
            with pytest.raises(Exception, match=text):
                check(getattr(ops, name).default, (x,))
        assert set(check(ops.good, (x,)).values()) == {"SUCCESS"}
        with pytest.raises(Exception, match="test_autograd_registration failed"):
            check(ops.good, (x.requires_grad_(),))
    with pytest.raises(ValueError, match=r"op must be instance of torch\._ops\.OpOverload"):
        check(torch.sin, (x,))
    with pytest.raises(ValueError, match="but it was not"):
        check(torch.ops.aten.sin, (x,), test_utils="test_nothing")


def test_only_tensors_are_mutated():
    def f(x: torch.Tensor, y: int) -> torch.Tensor: ...

    with pytest.raises(ValueError, match="Parameter y is in mutable_args but only Tensors"):
        torch.library.infer_schema(f, mutates_args={"y"})


def test_operators_of_pytorch_keep_their_kernels():
    with torch.library._scoped_library("aten", "IMPL") as lib:
        with pytest.raises(NotImplementedError, match="aten::sum keeps its kernels"):
            lib.impl("aten::sum", lambda x: x, "CPU")
        lib.impl("aten::sum", lambda x: x, "PrivateUse1")
    assert torch.Tag.dynamic_output_shape in torch.ops.aten.argwhere.default.tags
    assert torch.Tag.out in torch.ops.aten._linalg_det.result.tags


class Tenfold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.tenfold.call(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


@pytest.mark.parametrize("key", ["Autograd", "AutogradCPU"])
def test_a_function_for_autograd_records_by_itself(key):
    with torch.library._scoped_library("tenfold", "DEF") as lib:
        seen = []
        lib.define("call(Tensor x) -> Tensor")
        lib.impl("call", lambda x: (seen.append(key), Tenfold.apply(x))[1], key)
        lib.impl("call", lambda x: (seen.append("CPU"), x * 2)[1], "CPU")
        x = torch.ones(2, requires_grad=True)
        made = torch.ops.tenfold.call(x)
        assert (type(made.grad_fn).__name__, seen) == ("TenfoldBackward", [key, "CPU"])
        made.sum().backward()
        assert x.grad.tolist() == [10, 10]
        seen.clear()
        assert torch.ops.tenfold.call(torch.ones(1)).item() == 2
        assert torch.ops.tenfold.call(torch.ones(1)).item() == 2
        with torch.inference_mode():
            torch.ops.tenfold.call(torch.ones(1))
        assert seen == [key, "CPU"] * 2 + ["CPU"]
        lib.impl("call", torch.library.fallthrough_kernel, key)
        assert torch.ops.tenfold.call(x).requires_grad


@pytest.mark.parametrize(
    ("schema", "given", "received"),
    [
        ("int k", np.int64(2), 2),
        ("int k", np.float32(1.5), 1),
        ("int k", torch.tensor(3), 3),
        ("int[] k", [np.uint8(2), 4], [2, 4]),
        ("float k", 2, 2.0),
        ("float k", np.float32(1.5), 1.5),
        ("float k", torch.tensor([2.5]), 2.5),
        ("float[] k", (1, np.float64(2.5)), [1.0, 2.5]),
        ("bool k", np.bool_(True), True),
        ("bool k", 0, False),
    ],
)
def test_numbers_of_any_kind_reach_kernels_as_the_schema_says(schema, given, received):
    with torch.library._scoped_library("numbers", "DEF") as lib:
        seen = []
        lib.define(f"call(Tensor x, {schema}) -> Tensor")
        lib.impl("call", lambda x, k: (seen.append(k), x.clone())[1], "CPU")
        for _ in range(2):
            torch.ops.numbers.call(torch.ones(1), given)
        assert seen == [received] * 2
        first = [k[0] if isinstance(k, list) else k for k in (seen[0], received)]
        assert type(first[0]) is type(first[1])


@pytest.mark.parametrize(
    ("schema", "given"),
    [("int k", 1.5), ("int k", "1"), ("float k", 1j), ("float k", "1"), ("Scalar k", np.int64(1))],
)
def test_what_is_no_such_number_is_refused(schema, given):
    with torch.library._scoped_library("numbers", "DEF") as lib:
        lib.define(f"call(Tensor x, {schema}) -> Tensor")
        lib.impl("call", lambda x, k: x.clone(), "CPU")
        with pytest.raises(RuntimeError, match="Expected a value of type"):
            torch.ops.numbers.call(torch.ones(1), given)
