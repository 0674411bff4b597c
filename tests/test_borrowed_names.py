"""What published libraries take from PyTorch's less known corners: names, their values, and how they behave."""

from __future__ import annotations

import copy
import importlib
import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
from test_gloo import played
from torchlike import nn


class Wrapper(nn.Module):
    """Gives what it has not from the module in it, as many libraries do."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


def test_wrappers_ask_modules_for_what_is_not_there() -> None:
    made = Wrapper(nn.Linear(2, 3))
    assert made.weight.shape == (3, 2) and made.in_features == 2 and not hasattr(made, "nothing")
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        _ = made.nothing
    assert copy.deepcopy(made).weight is not made.weight
    assert nn.Module.__getattr__(made.inner, "bias") is made.inner.bias
    bare = nn.Module.__new__(nn.Linear)
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'weight'"):
        _ = bare.weight


def test_tables_of_modules_are_copied_as_dictionaries() -> None:
    made = nn.Linear(2, 3)._parameters
    assert type(made)({"a": 1}) == {"a": 1} and type(type(made)()) is dict
    assert sorted(made) == ["bias", "weight"]


@pytest.mark.parametrize(
    "t",
    [
        nn.Parameter(torch.ones(2)),
        nn.Parameter(torch.ones(2, device="meta")),
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(3)[1:],
    ],
    ids=["parameter", "meta", "conj", "view"],
)
def test_copies_are_no_views(t: Any) -> None:
    made = copy.deepcopy(t)
    assert not made._is_view() and type(made) is type(t) and made.is_conj() == t.is_conj()
    assert made.detach_() is made


def test_operators_have_tags() -> None:
    aten = torch.ops.aten
    assert aten.add.Tensor.tags == [
        torch.Tag.core,
        torch.Tag.pointwise,
        torch.Tag.pt2_compliant_tag,
    ]
    assert torch.Tag.nondeterministic_seeded in aten.randn.default.tags
    assert torch.Tag.inplace in aten.add_.Tensor.tags and torch.Tag.out in aten.add.out.tags
    assert torch.Tag.dynamic_output_shape in aten.nonzero.default.tags
    assert torch.Tag.inplace_view in aten.t_.default.tags
    assert str(torch.Tag.core) == "Tag.core" and repr(torch.Tag.out) == "<Tag.out: 14>"
    library = torch.library.Library("borrowed", "DEF")
    library.define("tagged(Tensor x) -> Tensor", tags=torch.Tag.pointwise)
    assert torch.ops.borrowed.tagged.default.tags == [torch.Tag.pointwise]


def test_an_argument_is_written_without_a_name_for_its_memory() -> None:
    schema = torch._C.parse_schema("a::b(Tensor x, Tensor! out) -> ()")
    assert schema.is_mutable and schema.arguments[1].alias_info.is_write
    assert not schema.arguments[0].alias_info


def test_records_of_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(3.0)}, path)
    reader = torch.PyTorchFileReader(str(path))
    assert reader.has_record("data.pkl") and not reader.has_record("other")
    assert "data/0" in reader.get_all_records() and reader.get_record_size("data/0") == 12
    at = reader.get_record_offset("data/0")
    assert path.read_bytes()[at : at + 12] == reader.get_record("data/0")
    assert reader.get_storage_from_record("data/0", 3, torch.float32).tolist() == [0, 1, 2]
    assert len(reader.serialization_id()) > 10
    with pytest.raises(RuntimeError, match="failed locating file other"):
        torch.PyTorchFileReader(io.BytesIO(path.read_bytes())).get_record("other")


SCRIPT_TYPES = (
    "AnyType AwaitType BoolType ClassType ComplexType DeviceObjType DictType EnumType FloatType FutureType IntType "
    "InterfaceType ListType NoneType NumberType OptionalType PyObjectType RRefType StreamObjType StringType "
    "SymBoolType SymIntType TupleType UnionType"
)


@pytest.mark.parametrize("name", SCRIPT_TYPES.split())
def test_types_of_scripts_are_names(name: str) -> None:
    kind = getattr(torch, name)
    assert isinstance(kind, type) and not isinstance(3, kind)
    with pytest.raises(NotImplementedError, match=f"torch.{name} is not supported"):
        kind()


def test_names_and_what_they_are() -> None:
    assert isinstance(torch.ones(1).untyped_storage(), torch.StorageBase)
    assert torch.TensorType.get() == torch.TensorType.get() and torch.Future is torch.futures.Future
    assert str(torch.uint4) == "torchlike.uint4" and copy.deepcopy(torch.int3) is torch.int3
    assert torch.serialization.DEFAULT_PROTOCOL == 2
    assert torch.serialization.normalize_storage_type(torch.FloatStorage) is torch.FloatStorage
    assert not torch.profiler.kineto_available() and torch._C._TensorMeta is type(torch.Tensor)
    assert torch.profiler.profiler.schedule is torch.profiler.schedule
    assert torch._has_compatible_shallow_copy_type(torch.ones(1), torch.ones(2))
    assert not torch._has_compatible_shallow_copy_type(torch.ones(1), torch.ones(1, device="meta"))
    assert not torch.cuda._initialized or torch.cuda.is_available()
    assert torch.autograd.Variable._execution_engine is not None
    with pytest.raises(NotImplementedError, match="emit_nvtx is not supported"):
        torch.autograd.profiler.emit_nvtx().__enter__()
    with torch.autograd.profiler.emit_nvtx(enabled=False):
        pass
    assert not torch.autograd._profiler_enabled()
    with torch.autograd.profiler.profile():
        assert torch.autograd._profiler_enabled()
        torch.autograd._disable_profiler()
        assert not torch.autograd._profiler_enabled()


def test_tensors_one_after_the_other() -> None:
    from torchlike._utils import _flatten_dense_tensors, _unflatten_dense_tensors

    given = [torch.ones(2, 2), torch.zeros(3)]
    flat = _flatten_dense_tensors(given)
    assert flat.tolist() == [1, 1, 1, 1, 0, 0, 0]
    back = _unflatten_dense_tensors(flat, given)
    assert [t.shape for t in back] == [(2, 2), (3,)] and back[0].data_ptr() == flat.data_ptr()


def test_contexts_decorate() -> None:
    from torchlike.utils._contextlib import (
        _DecoratorContextManager,
        _NoParamDecoratorContextManager,
        context_decorator,
    )

    seen = []

    class Noting(_DecoratorContextManager):
        def __init__(self, name: str) -> None:
            self.name = name

        def clone(self) -> Noting:
            return type(self)(self.name)

        def __enter__(self) -> None:
            seen.append(self.name)

        def __exit__(self, *exc: object) -> None:
            seen.append("end")

    class Plain(_NoParamDecoratorContextManager):
        def __enter__(self) -> None:
            seen.append("plain")

        def __exit__(self, *exc: object) -> None: ...

    assert Noting("a")(lambda: 3)() == 3 and Plain(lambda: 4)() == 4
    assert context_decorator(lambda: Noting("b"), lambda: 5)() == 5
    with Plain():
        pass
    assert seen == ["a", "end", "plain", "b", "end", "plain"]


def test_devices_of_contexts() -> None:
    from torchlike.utils._device import DeviceContext, set_device

    with DeviceContext("meta"):
        assert torch.ones(1).is_meta
    assert set_device("meta")(torch.ones)(1).is_meta and not torch.ones(1).is_meta


def test_weak_dictionaries() -> None:
    from torchlike.utils.weak import TensorWeakRef, WeakIdKeyDictionary

    table, key = WeakIdKeyDictionary(), torch.ones(2)
    table[key] = 1
    ref = TensorWeakRef(key)
    assert key in table and torch.ones(2) not in table and table[key] == 1 and ref() is key
    assert 3 not in table and list(table) == [key] and len(table) == 1
    del key
    assert ref() is None and len(table) == 0


def test_ordered_sets() -> None:
    from torchlike.utils._ordered_set import OrderedSet

    made = OrderedSet([3, 1, 3, 2])
    made.add(0)
    made.discard(1)
    assert list(made) == [3, 2, 0] and list(reversed(made)) == [0, 2, 3]
    assert list(made.union([9, 3])) == [3, 2, 0, 9] and list(made.difference([2])) == [3, 0]
    assert list(made.intersection([0, 3])) == [3, 0] and made == {0, 2, 3}


def test_members_are_exchanged() -> None:
    from torchlike.nn.utils._named_member_accessor import NamedMemberAccessor, swap_tensor

    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    accessor, mine = NamedMemberAccessor(net), nn.Parameter(torch.zeros(2, 2))
    before = accessor.swap_tensor("0.weight", mine)
    assert net[0].weight is mine and accessor.get_tensor("0.weight") is mine
    assert swap_tensor(net[0], "weight", before) is mine
    assert accessor.check_keys(["0.weight", "x"])[1] == ["x"]
    old, missing = accessor.swap_tensors_dict({"0.bias": None, "0.other": mine}, True)
    assert list(old) == ["0.bias", "0.other"] and missing == ["0.other"]
    assert accessor.swap_tensors_dict(old, True)[0]["0.other"] is mine
    assert not hasattr(net[0], "other")
    with pytest.raises(RuntimeError, match=r"Missing key.*'0.other'"):
        accessor.swap_tensors_dict({"0.bias": None, "0.other": mine})
    assert net[0].bias is not None and not hasattr(net[0], "other")
    with pytest.raises(AttributeError, match="has no attribute `nothing`"):
        accessor.swap_tensor("0.nothing", mine)
    assert accessor.swap_submodule("1", nn.Identity()) is not net[1]


def test_pipes_by_name() -> None:
    from torchlike.utils.data import IterDataPipe, functional_datapipe

    @functional_datapipe("doubled_for_a_test")
    class Doubled(IterDataPipe):
        def __init__(self, source: Any, by: int = 2) -> None:
            self.source, self.by = source, by

        def __iter__(self) -> Any:
            return (x * self.by for x in self.source)

    assert list(Doubled([1, 2]).doubled_for_a_test(by=3)) == [6, 12]
    with pytest.raises(Exception, match="already taken"):
        functional_datapipe("doubled_for_a_test")(IterDataPipe)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = Doubled([1]).nothing


def test_examples_of_batches() -> None:
    functorch: Any = importlib.import_module("torchlike._C._functorch")
    seen = []

    def f(x: Any) -> Any:
        seen.append((functorch.is_batchedtensor(x), torch._C._are_functorch_transforms_active()))
        assert functorch.get_unwrapped(x).shape == (2, 3) and functorch.maybe_get_bdim(x) == 0
        return x

    torch.vmap(f)(torch.ones(2, 3))
    assert seen == [(True, True)] and not torch._C._are_functorch_transforms_active()
    assert functorch.maybe_get_level(torch.ones(1)) == -1
    level = functorch._vmap_increment_nesting(2, "error")
    each = functorch._add_batch_dim(torch.arange(6).view(3, 2), 1, level)
    assert each.shape == (3,)
    assert functorch._remove_batch_dim(each * 2, level, 2, 0).tolist() == [[0, 4, 8], [2, 6, 10]]
    torch._C._batch_exit(level)


@pytest.mark.filterwarnings("ignore:We've integrated functorch:FutureWarning")
def test_modules_as_functions() -> None:
    functorch: Any = importlib.import_module("torchlike._functorch.package")
    net, x = nn.Linear(2, 3), torch.ones(4, 2)
    f, params = functorch.make_functional(net)
    assert torch.equal(f(params, x), net(x))
    grads = functorch.grad(lambda p: f(p, x).sum())(params)
    assert [g.shape for g in grads] == [(3, 2), (3,)]
    before = net.weight.clone()
    with torch.no_grad():
        params[0].zero_()
    assert torch.equal(net.weight, before) and f(params, x).shape == (4, 3)
    _, params = functorch.make_functional(net, disable_autograd_tracking=True)
    assert not any(p.requires_grad for p in params) and net.weight.requires_grad
    with pytest.raises(RuntimeError, match="`model` has buffers"):
        functorch.make_functional(nn.BatchNorm1d(2))
    nets = [nn.Linear(2, 3) for _ in range(3)]
    f, params, buffers = functorch.combine_state_for_ensemble(nets)
    assert not any(p.requires_grad for p in params)
    made = functorch.vmap(f, (0, 0, None))(params, buffers, x)
    assert torch.allclose(made, torch.stack([n(x) for n in nets]))
    with pytest.raises(RuntimeError, match="at least one model"):
        functorch.combine_state_for_ensemble([])


def test_operators_of_functions_run_their_kernels() -> None:
    key: Any = torch._C.DispatchKey
    twice = torch._ops.HigherOrderOperator("twice")
    with pytest.raises(NotImplementedError, match=r"twice: .* without a kernel"):
        twice(torch.ones(1))
    twice.py_impl(key.CompositeExplicitAutograd)(lambda f, x: f(f(x)))
    x = torch.ones(2, requires_grad=True)
    twice(lambda t: t * 3, x).sum().backward()
    assert x.grad.tolist() == [9, 9]
    twice.py_autograd_impl(lambda f, x: f(x))
    assert twice(lambda t: t * 3, x).tolist() == [3, 3]
    with torch.no_grad():
        assert twice(lambda t: t * 3, x).tolist() == [9, 9]


def test_collectives_have_gradients(tmp_path: Path) -> None:
    body = """
    from torchlike.distributed import nn as dnn
    begin()
    def grad(f):
        x = torch.tensor([1., 2.], requires_grad=True)
        with torch.enable_grad():
            out = f(x * (rank + 1))
            outs = out if isinstance(out, tuple) else (out,)
            sum((o * (rank + 2 + i)).sum() for i, o in enumerate(outs)).backward()
        return [o.tolist() for o in outs], x.grad.tolist()
    def check(got, results, gradient):
        assert got == (results, gradient), (rank, got, results, gradient)
    r = rank + 1
    check(grad(dnn.all_reduce), [[3, 6]], [5 * r, 5 * r])
    mine = {0: [5, 5], 1: [14, 14]}
    check(grad(dnn.all_gather), [[1, 2], [2, 4]], mine[rank])
    check(grad(lambda x: dnn.broadcast(x, 1)), [[2, 4]], [[0, 0], [10, 10]][rank])
    check(grad(lambda x: dnn.reduce(x, 0)), [[[3, 6]], [[2, 4]]][rank], [2 * r, 2 * r])
    outs = dnn.gather(torch.ones(2) * r, 1)
    assert [o.tolist() for o in outs] == [[[0, 0], [0, 0]], [[1, 1], [2, 2]]][rank]
    check(grad(lambda x: dnn.scatter([x, x * 10], 0)), [[[1, 2], [10, 20]][rank]], [[32, 32], [0, 0]][rank])
    check(grad(lambda x: dnn.reduce_scatter(torch.empty(2), [x, x * 10])),
          [[[3, 6], [30, 60]][rank]], [32 * r, 32 * r])
    check(grad(lambda x: dnn.all_to_all([torch.empty(2), torch.empty(2)], [x, x * 10])),
          [[[1, 2], [2, 4]], [[10, 20], [20, 40]]][rank], [[32, 32], [86, 86]][rank])
    check(grad(lambda x: dnn.all_to_all_single(torch.empty(2), x)),
          [[[1, 2], [2, 4]][rank]], [[2, 3], [4, 6]][rank])
    dist.destroy_process_group()
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        played(tmp_path, body)


OLD_FORMS = [
    ("add", lambda a, b, c: (a.add(2, b), a.add(b, alpha=2))),
    ("add_", lambda a, b, c: (a.clone().add_(2, b), a.add(b, alpha=2))),
    ("sub", lambda a, b, c: (torch.sub(a, 2, b), a.sub(b, alpha=2))),
    ("addcmul", lambda a, b, c: (torch.addcmul(a, 2, b, c), a.addcmul(b, c, value=2))),
    ("addcdiv_", lambda a, b, c: (a.clone().addcdiv_(0.5, b, c), a.addcdiv(b, c, value=0.5))),
    ("addmm", lambda a, b, c: (torch.addmm(2, a, 3, b, c), a.addmm(b, c, beta=2, alpha=3))),
    ("addmm", lambda a, b, c: (a.addmm(2, 3, b, c), a.addmm(b, c, beta=2, alpha=3))),
    ("addmm", lambda a, b, c: (a.addmm(2, b, c), a.addmm(b, c, beta=2))),
    ("addmv", lambda a, b, c: (torch.addmv(2, a[0], b, c[0]), a[0].addmv(b, c[0], beta=2))),
    (
        "addr_",
        lambda a, b, c: (a.clone().addr_(2, 3, b[0], c[0]), a.addr(b[0], c[0], beta=2, alpha=3)),
    ),
    ("addbmm", lambda a, b, c: (a.addbmm(2, b[None], c[None]), a.addbmm(b[None], c[None], beta=2))),
    (
        "baddbmm",
        lambda a, b, c: (
            a[None].baddbmm(2, 3, b[None], c[None]),
            a[None].baddbmm(b[None], c[None], beta=2, alpha=3),
        ),
    ),
]


@pytest.mark.parametrize(("name", "pair"), OLD_FORMS, ids=[n for n, _ in OLD_FORMS])
def test_numbers_may_stand_between_tensors_as_long_ago(name: str, pair: Any) -> None:
    given = [torch.rand(2, 2, requires_grad=True) for _ in range(3)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", f"This overload of {name} is deprecated")
        made, wanted = pair(*given)
    assert torch.equal(made, wanted) and made.grad_fn.name() == wanted.grad_fn.name()


def test_old_forms_are_asked_for_where_somebody_watches() -> None:
    class Seen(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            called.append([type(a).__name__ for a in args])
            return func(*args, **(kwargs or {}))

    called: list[Any] = []
    x = torch.ones(2)
    with Seen(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = x.add(2, x)
    assert made.tolist() == [3, 3]
    assert called == [["Tensor", "int", "Tensor"]]
    out = torch.empty(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.add(x, 3, x, out=out) is out and out.tolist() == [4, 4]
    for wrong in (lambda: x.add(x, x), lambda: torch.add(2, x, x), lambda: x.add(1, 2, x)):
        with pytest.raises(TypeError):
            wrong()


def test_operands_of_einsum_in_a_list_are_traced_one_by_one() -> None:
    graph = torch.fx.symbolic_trace(lambda a, b: torch.einsum("ij,jk", [a, b])).graph
    node = next(n for n in graph.nodes if n.op == "call_function")
    assert [str(a) for a in node.args] == ["ij,jk", "a", "b"]


def test_old_forms_say_once_what_to_write() -> None:
    program = """
import warnings
import torchlike as torch
x = torch.ones(2, 2)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    x.addmm(1, 1, x, x), x.add_(2, x)
text, = [str(w.message) for w in said]
assert text == (
    "This overload of addmm is deprecated:\\n\\taddmm(Number beta, Number alpha, Tensor mat1, Tensor mat2)\\n"
    "Consider using one of the following signatures instead:\\n"
    "\\taddmm(Tensor mat1, Tensor mat2, *, Number beta = 1, Number alpha = 1)"), text
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["eig", "lstsq", "matrix_rank", "solve", "symeig"])
def test_what_is_gone_says_what_to_write(name: str) -> None:
    x = torch.eye(2)
    given = (x, x) if name in ("lstsq", "solve") else (x,)
    said = r"was deprecated since version 1.9 and is now removed\.[\s\S]*torch\.linalg\."
    with pytest.raises(RuntimeError, match=said):
        getattr(torch, name)(*given)
    if name != "matrix_rank":
        with pytest.raises(RuntimeError, match=said):
            getattr(x, name)(*given[1:])


def test_old_tensors_lie_on_storages() -> None:
    x = torch.arange(4.0).view(2, 2)
    made = torch.FloatTensor(x.storage())
    assert made.tolist() == [0, 1, 2, 3] and made.data_ptr() == x.data_ptr()
    assert torch.nn.functional._Reduction.get_enum("sum") == 2


def test_hooks_of_one_place_are_given_the_same_object() -> None:
    seen: list[Any] = []

    def first(grad: Any) -> None:
        grad.mark = 1
        seen.append(grad)

    def second(grad: Any) -> Any:
        seen.append(grad)
        return grad * 2

    x = torch.ones(2, requires_grad=True)
    y = x * 2
    for hook in (first, second, seen.append):
        y.register_hook(hook)
    y.sum().backward()
    assert seen[0] is seen[1] and seen[1].mark == 1 and seen[2] is not seen[1]
    assert x.grad.tolist() == [4, 4]
    z = x * 3
    seen.clear()
    for _ in range(2):
        z.grad_fn.register_prehook(lambda grads: seen.append(grads[0]))
    z.sum().backward()
    assert seen[0] is seen[1]


def test_functions_of_layers_under_the_name_of_their_letter() -> None:
    assert torch.functional.F is torch.nn.functional


def test_functions_of_layers_that_are_operators_alone() -> None:
    nn = torch._C._nn
    x = torch.ones(1, 1, 2, 2)
    assert nn.upsample_bilinear2d(x, (4, 4), False, None, None).shape == (1, 1, 4, 4)
    assert nn.reflection_pad2d(x, (1, 1, 1, 1)).shape == (1, 1, 4, 4)
    assert nn.pad_sequence([x[0, 0, 0], x[0, 0, 0, :1]], True, 0.0).tolist() == [[1, 1], [1, 0]]
    assert not hasattr(nn, "no_such_function")
