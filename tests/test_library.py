"""`ops.aten`, dispatch modes and operators of Python."""

import pickle

import pytest

import torchlike as torch
from torchlike import library, nn
from torchlike.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
F = torch.nn.functional


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.log = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.log.append(str(func))
        return func(*args, **(kwargs or {}))


def test_types_of_arguments_are_spelled_as_in_python():
    def spelled(op, real=False):
        return [str(a.real_type if real else a.type) for a in op._schema.arguments]

    assert spelled(aten.clamp.default) == ["Tensor", "Optional[number]", "Optional[number]"]
    assert spelled(aten.index.Tensor) == ["Tensor", "List[Optional[Tensor]]"]
    assert spelled(aten.sum.dim_IntList)[1:] == ["Optional[List[int]]", "bool", "Optional[int]"]
    assert spelled(aten.sum.dim_IntList, real=True)[3] == "Optional[ScalarType]"
    assert repr(aten.as_strided.default._schema.arguments[3].type) == "Optional[int]"
    with pytest.raises(RuntimeError, match=r"value of type 'List\[int\]' for argument 'size'"):
        aten.view.default(torch.ones(2), "a")


def test_overloads_have_schemas():
    f = aten.add.Tensor
    assert (
        str(f._schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    )
    assert f is torch.ops.aten.add.Tensor and pickle.loads(pickle.dumps(f)) is f
    assert [a.name for a in f._schema.arguments] == ["self", "other", "alpha"]
    assert aten.add_.Tensor._schema.is_mutable and not f._schema.is_mutable
    with pytest.raises(RuntimeError, match="missing value for argument 'other'"):
        f(torch.ones(1))
    with pytest.raises(RuntimeError, match="Unknown keyword argument 'nonsense'"):
        f(torch.ones(1), torch.ones(1), nonsense=1)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_overloads_are_called(device):
    x = torch.ones(2, 3, device=device)
    assert aten.add(x, 1).shape == aten.mul.Tensor(x, x).shape == (2, 3)
    assert aten._softmax(x, 1, False).shape == (2, 3)
    assert aten.native_layer_norm(x, [3], None, None, 1e-5)[1].shape == (2, 1)
    assert type(aten.split.Tensor(x, 1)) is list and type(aten.max.dim(x, 0)) is tuple


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_dispatch_mode_sees_leaves(device):
    x, w = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    with Log() as m:
        x + 1
        F.linear(x, w)
        x.add_(1)
        torch.ones(1, device=device)
    torch.zeros(1)
    leaves = ["add.Tensor", "t.default", "mm.default", "add_.Tensor", "ones.default"]
    assert m.log == [f"aten.{n}" for n in leaves]


def test_a_dispatch_mode_may_answer():
    class Seven(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is aten.add.Tensor:
                return torch.full((3,), 7.0)
            return func(*args, **(kwargs or {}))

    with Seven():
        assert (torch.ones(2) + torch.ones(2)).tolist() == [7.0] * 3


def test_an_error_of_a_dispatch_mode_arrives():
    class Fails(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    with Fails(), pytest.raises(KeyError, match="mine"):
        torch.ones(2) + 1
    assert torch.ones(1).item() == 1


class Wrapped(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        tree_map = torch.utils._pytree.tree_map
        args = tree_map(lambda x: x.inner if isinstance(x, Wrapped) else x, args)
        result = func(*args, **(kwargs or {}))
        return tree_map(lambda x: Wrapped(x) if isinstance(x, torch.Tensor) else x, result)


def test_wrapper_subclasses_handle_their_calls():
    x = Wrapped(torch.ones(2, 3))
    y = x + 1
    assert type(y) is Wrapped and y.inner.tolist() == [[2.0] * 3] * 2
    assert x.shape == (2, 3) and x.device.type == "cpu" and type(x.t()) is Wrapped


@pytest.fixture
def space():
    yield
    torch.ops.__dict__.pop("mine", None)


def test_operators_of_python(space):
    @library.custom_op("mine::twice", mutates_args=())
    def twice(x: torch.Tensor, n: int = 2) -> torch.Tensor:
        return x * n

    @twice.register_fake
    def _(x, n=2):
        return torch.empty_like(x)

    assert (
        str(torch.ops.mine.twice.default._schema) == "mine::twice(Tensor x, SymInt n=2) -> Tensor"
    )
    assert twice(torch.ones(1)).item() == 2 and torch.ops.mine.twice(torch.ones(1), 5).item() == 5
    assert twice(torch.ones(3, device="meta")).is_meta
    assert set(library.opcheck(twice, (torch.ones(2),)).values()) == {"SUCCESS"}
    with Log() as m:
        twice(torch.ones(1))
    assert m.log == ["aten.ones.default", "mine.twice.default"]


def test_opcheck_finds_writes(space):
    @library.custom_op("mine::writes", mutates_args=())
    def writes(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return x.clone()

    with pytest.raises(Exception, match="not defined as mutable but was mutated"):
        library.opcheck(writes, (torch.ones(2),))


def test_libraries(space):
    lib = library.Library("mine", "DEF")
    lib.define("g(Tensor x, int n) -> Tensor")
    with pytest.raises(NotImplementedError, match="Could not run 'mine::g'"):
        torch.ops.mine.g(torch.ones(1), 1)
    lib.impl("g", lambda x, n: x * n, "CPU")
    lib.impl("g", lambda x, n: torch.empty_like(x), "Meta")
    assert torch.ops.mine.g(torch.ones(1), 3).item() == 3
    assert torch.ops.mine.g(torch.ones(1, device="meta"), 3).is_meta
    with pytest.raises(RuntimeError, match="Tried to register an operator"):
        lib.define("g(Tensor x, int n) -> Tensor")


def test_later_calls_are_looked_at_like_the_first(space):
    lib = library.Library("mine", "DEF")
    lib.define("twice(Tensor x, int n) -> Tensor")
    lib.impl("twice", lambda x, n: x * n, "CompositeExplicitAutograd")
    call = torch.ops.mine.twice.default
    for _ in range(2):
        assert call(torch.ones(1), 3).item() == 3
    with pytest.raises(RuntimeError, match="Expected a value of type 'int'"):
        call(torch.ones(1), "3")
    with pytest.raises(RuntimeError, match="missing value for argument 'n'"):
        call(torch.ones(1))
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        call(torch.ones(1), 3)
    assert "mine.twice.default" in seen
    lib.impl("twice", lambda x, n: x - n, "CPU")
    assert call(torch.ones(1), 3).item() == -2


CALLS = {
    "linear": lambda x, q: F.linear(x, x, torch.ones(4)),
    "attention": lambda x, q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
    "batch_norm": lambda x, q: F.batch_norm(q, torch.zeros(2), torch.ones(2), training=True),
    "layer_norm": lambda x, q: F.layer_norm(x, (3,)),
    "cross_entropy": lambda x, q: F.cross_entropy(x, torch.tensor([0, 1, 2, 1])),
    "conv2d": lambda x, q: F.conv2d(q, torch.ones(2, 2, 2, 2), padding="same"),
    "max_pool2d": lambda x, q: F.max_pool2d(q, 2),
    "interpolate": lambda x, q: F.interpolate(q, scale_factor=2),
    "one_hot": lambda x, q: F.one_hot(torch.tensor([0, 1]), 3).float(),
    "dropout": lambda x, q: F.dropout(x, 0.5),
    "matmul": lambda x, q: torch.matmul(q, q.transpose(-2, -1)),
    "std": lambda x, q: x.std(),
    "prelu": lambda x, q: F.prelu(q, torch.full((2,), 0.2)),
    "isclose": lambda x, q: torch.isclose(x, x).float(),
    "reflected": lambda x, q: 1 - x,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_decompositions_give_the_same_values(call):
    torch.manual_seed(0)
    x, q = torch.randn(4, 3), torch.randn(1, 2, 4, 8)
    torch.manual_seed(1)
    plain = call(x, q)
    torch.manual_seed(1)
    with Log() as m:
        shown = call(x, q)
    assert m.log and torch.allclose(plain, shown, atol=1e-6)


# what a dispatch mode may do, and what it sees ---------------------------------------------------


class Refuses(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return NotImplemented


class Gives(TorchDispatchMode):
    def __init__(self, result):
        super().__init__()
        self.result = result

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self.result


def test_answers_of_modes_are_checked():
    x = torch.ones(2)
    with (
        Refuses(),
        pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+: 'Tensor' and 'int'"),
    ):
        x + 1
    with Gives(0), pytest.raises(RuntimeError, match="Unable to cast 0 to Tensor"):
        torch.relu(x)
    with Gives(0), pytest.raises(RuntimeError, match="Unable to cast 0 to Tensor"):
        torch.ops.aten.relu.default(x)


def shown(function):
    with Log() as m:
        function()
    return m.log


def test_a_mode_sees_values_that_come_and_go():
    x = torch.ones(2, 3)
    assert shown(lambda: torch.tensor([1.0])) == ["aten.lift_fresh.default"]
    assert shown(lambda: torch.tensor([1.0], device="meta")) == []
    assert shown(lambda: x[[0, 1]]) == ["aten.lift_fresh.default", "aten.index.Tensor"]
    for read in (float, int, bool, lambda t: t.item()):
        assert shown(lambda read=read: read(x[0, 0])) == ["aten.select.int"] * 2 + [
            "aten._local_scalar_dense.default"
        ]


def test_a_mode_does_not_see_what_belongs_to_autograd():
    x = torch.ones(2, 3)
    assert shown(lambda: nn.Parameter(x)) == []
    assert shown(lambda: x.detach_()) == []
    with torch.inference_mode():
        assert shown(lambda: F.linear(x, x)) == ["aten.linear.default"]
        assert shown(lambda: x.reshape(6)) == ["aten.reshape.default"]
        assert shown(lambda: torch.ones(1).detach_()) == [
            "aten.ones.default",
            "aten.detach_.default",
        ]
        assert (
            shown(lambda: F.cross_entropy(x, torch.tensor([0, 1])))[-1]
            == "aten.cross_entropy_loss.default"
        )


@pytest.mark.parametrize(
    "loss",
    [
        "mse_loss",
        "smooth_l1_loss",
        "huber_loss",
        "soft_margin_loss",
        "binary_cross_entropy_with_logits",
    ],
)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_words_for_reductions_are_numbers_to_operators(loss, reduction):
    x, y = torch.tensor([0.5, 2.0]), torch.tensor([1.0, 0.0])
    function = getattr(F, loss)
    with Log() as m:
        seen = function(x, y, reduction=reduction)
    assert m.log == [f"aten.{loss}.default"]
    assert torch.equal(seen, function(x, y, reduction=reduction))


def test_errors_of_definitions():
    with pytest.raises(RuntimeError, match="expected \\[ but found 'None' here"):
        library.define("mine::listed", "(Tensor x, int[] sizes=None) -> Tensor")
    with pytest.raises(ValueError, match="Unsupported kind: WRONG"):
        library.Library("mine", "WRONG")


def test_functions_as_operators_are_held_to_what_they_say():
    @library.custom_op("held::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @library.custom_op("held::same", mutates_args=())
    def same(x: torch.Tensor) -> torch.Tensor:
        return x

    with pytest.raises(RuntimeError, match="Expected a value of type 'Tensor' for argument 'x'"):
        twice(1)
    with pytest.raises(RuntimeError, match=r"no fake impl registered for .*held::twice"):
        twice(torch.ones(1, device="meta"))
    twice.register_fake(torch.empty_like)
    assert twice(torch.ones(1, device="meta")).is_meta
    with pytest.raises(RuntimeError, match="must not also be an input"):
        same(torch.ones(1))

    def no_tensors(x: tuple[int, ...]) -> torch.Tensor: ...

    with pytest.raises(ValueError, match=r"try to use List instead. For example, list\[int\]"):
        library.infer_schema(no_tensors, mutates_args=())
    with pytest.raises(ValueError, match="or the string 'unknown'"):
        library.infer_schema(no_tensors, mutates_args="x")


def test_kernels_may_come_before_their_operator(space):
    library.impl("mine::later", "cpu", lambda x: x + 1)
    torch.library.define("mine::later", "(Tensor x) -> Tensor")
    assert torch.ops.mine.later(torch.ones(1)).item() == 2
    with pytest.raises(NotImplementedError, match="no fake impl or Meta kernel"):
        torch.ops.mine.later(torch.ones(1, device="meta"))
    library.impl("mine::anywhere", "CompositeImplicitAutograd", lambda x: x + 2)
    torch.library.define("mine::anywhere", "(Tensor x) -> Tensor")
    assert torch.ops.mine.anywhere(torch.ones(1)).item() == 3
    with pytest.raises(RuntimeError, match="device type at start of device string: nonsense"):
        library.impl("mine::later", "nonsense", lambda x: x)
    with pytest.raises(ValueError, match="expected schema to look like"):
        library.define("mine::other", "Tensor x")
    with pytest.raises(ValueError, match='of the form "namespace::name"'):
        library.define("other", "(Tensor x) -> Tensor")


def test_operators_have_gradients_of_their_own(space):
    @torch.library.custom_op(f"{space}::scaled", mutates_args=())
    def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by

    x = torch.tensor([3.0], requires_grad=True)
    y = scaled(x, 2.0)
    assert type(y.grad_fn).__name__ == f"GeneratedBackwardFor_{space}_scaled_defaultBackward"
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.backward()

    def note(ctx, inputs, output):
        ctx.by = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=note)
    scaled(x, 5.0).backward()
    assert x.grad.tolist() == [5]
    assert not scaled(x.detach(), 1.0).requires_grad


def test_operators_of_lists_have_gradients(space):
    @torch.library.custom_op(f"{space}::ends", mutates_args=())
    def ends(xs: list[torch.Tensor], *, by: float) -> tuple[torch.Tensor, torch.Tensor]:
        return xs[0] * by, xs[-1].clone()

    def note(ctx, inputs, keyword_only_inputs, output):
        ctx.by = keyword_only_inputs["by"]

    ends.register_autograd(lambda ctx, a, b: [a * ctx.by, b], setup_context=note)
    x, y = (torch.tensor([v], requires_grad=True) for v in (1.0, 2.0))
    first, last = ends([x, y], by=3.0)
    (first + last).backward()
    assert (x.grad.item(), y.grad.item()) == (3, 1)

    @torch.library.custom_op(f"{space}::grown", mutates_args=("x",))
    def grown(x: torch.Tensor) -> None:
        x.add_(1)

    with pytest.raises(RuntimeError, match="Cannot register autograd formula"):
        grown.register_autograd(lambda ctx, g: g)


def test_wrapper_subclasses_want_gradients(space):
    class Wrapped(torch.Tensor):
        @staticmethod
        def __new__(cls, inner, requires_grad=False):
            made = torch.Tensor._make_wrapper_subclass(
                cls, inner.size(), dtype=inner.dtype, requires_grad=requires_grad
            )
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            plain = [a.inner if isinstance(a, cls) else a for a in args]
            made = func(*plain, **(kwargs or {}))
            return cls(made) if isinstance(made, torch.Tensor) else made

    x = Wrapped(torch.tensor([1.0, 2.0]), requires_grad=True)
    (x * x).sum().backward()
    assert type(x.grad) is Wrapped
    assert x.grad.inner.tolist() == [2, 4]
