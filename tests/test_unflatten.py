"""Exported programs as modules again, and the other ways to say what a program is to be exported for."""

from __future__ import annotations

import copy
import importlib
import io
import sys
import zipfile
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.export import Dim

X: Any = torch.export
# the function has the module's name
UNFLATTEN: Any = sys.modules["torchlike.export.unflatten"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.register_buffer("shift", torch.ones(4), persistent=False)
        self.plain = torch.arange(4.0)

    def forward(self, x: Any) -> Any:
        return self.lin(x).relu() * self.scale + self.shift + self.plain + torch.tensor(0.5)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.lists = nn.ModuleList([nn.ModuleList([nn.Linear(4, 4), nn.GELU()]) for _ in range(2)])
        self.again = self.block
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.block.lin.weight
        self.unused = nn.Linear(2, 2)
        self.factor = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x: Any) -> Any:
        x = self.block(self.block(x)) * self.factor
        for row in self.lists:
            for module in row:
                x = module(x)
        return {"again": self.again(x), "tied": [self.tied(x)]}


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.shared = nn.Conv2d(4, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        x = self.shared(self.shared(self.first(x)))
        return self.head(nn.functional.max_pool2d(x, 2).mean((2, 3)))


class Counting(nn.Module):
    """Does something else in each call, and counts them in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any, times: int = 1, *, plus: Any) -> Any:
        self.calls.add_(1)
        return {"y": self.lin(x) * self.calls * times + plus[0], "plus": plus[1]}


class Calling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Counting()
        self.act = nn.ReLU()

    def forward(self, x: Any, y: Any) -> Any:
        r = self.inner(x, plus=(y, x))
        r = self.inner(r["y"], 3, plus=(y, r["plus"]))
        return self.act(r["y"]) + r["plus"] + self.inner.calls


def alike(a: Any, b: Any) -> bool:
    left, right = (torch.utils._pytree.tree_leaves(t) for t in (a, b))
    return len(left) == len(right) and all(
        torch.equal(x, y) for x, y in zip(left, right, strict=True)
    )


def archived(program: Any) -> Any:
    file = io.BytesIO()
    X.save(program, file)
    file.seek(0)
    return X.load(file)


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), (3, 4)),
    "shared": (Shared, (3, 4)),
    "images": (Images, (2, 3, 8, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "training": (lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), (5, 2, 8)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", ["itself", "archived", "decomposed"])
def test_modules_are_those_of_the_original(name: str, way: str) -> None:
    make, shape = MODELS[name]
    model = make()
    model.train(name == "training")
    inputs = (torch.randn(shape),) * (2 if name == "training" else 1)
    program = X.export(model, inputs)
    if way != "itself":
        program = archived(program) if way == "archived" else program.run_decompositions()
    made = X.unflatten(program)
    assert alike(made(*inputs), model(*inputs))
    assert list(made.state_dict()) == list(model.state_dict())
    assert all(
        torch.equal(a, b)
        for a, b in zip(made.state_dict().values(), model.state_dict().values(), strict=True)
    )
    wanted = [n for n, _ in model.named_modules(remove_duplicate=False)]
    assert [n for n, _ in made.named_modules(remove_duplicate=False)] == wanted
    kinds = {n: p.requires_grad for n, p in model.named_parameters(remove_duplicate=False)}
    assert {n: p.requires_grad for n, p in made.named_parameters(remove_duplicate=False)} == kinds
    assert dict(made.named_buffers()).keys() == dict(model.named_buffers()).keys()
    # the state is its own
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    assert not alike(made(*inputs), model(*inputs))


@pytest.mark.parametrize("way", ["module", "unflattened", "archived", "decomposed"])
def test_statistics_are_written_in_training(way: str) -> None:
    model = Images()
    model.first[1].momentum = 0.3
    inputs, before = torch.randn(4, 3, 8, 8), copy.deepcopy(model)
    program = X.export(model, (inputs,))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), before.buffers(), strict=True))
    made = {
        "module": program.module,
        "unflattened": lambda: X.unflatten(program),
        "archived": lambda: X.unflatten(archived(program)),
        "decomposed": program.run_decompositions().module,
    }[way]()
    for _ in range(2):
        assert torch.equal(made(inputs), before(inputs))
        found, wanted = made.state_dict(), before.state_dict()
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert wanted["first.1.num_batches_tracked"] == 2


def test_what_is_not_saved_stays_so() -> None:
    program = X.export(Shared(), (torch.ones(1, 4),))
    for made in (program.module(), program.run_decompositions().module()):
        assert set(made.state_dict()) <= set(program.state_dict)
        assert "block.shift" in dict(made.named_buffers())
        assert "block.shift" not in made.state_dict()


def test_what_was_one_is_one() -> None:
    model = Shared()
    made = X.unflatten(X.export(model, (torch.ones(2, 4),)))
    assert made.tied.weight is made.block.lin.weight and made.again is made.block
    targets = [n.target for n in made.graph.nodes if n.op == "call_module"]
    assert targets.count("block") == 3 and "lists.1.0" in targets
    loaded = X.unflatten(archived(X.export(model, (torch.ones(2, 4),))))
    assert loaded.tied.weight is loaded.block.lin.weight
    x = torch.randn(5, 4)
    assert torch.equal(made.block(x), model.block(x))
    inner = made.get_submodule("lists.1.0")
    assert torch.equal(inner(**{inner.arg_names[0]: x}), model.lists[1][0](x))
    assert made.block.type_name().endswith("Block")
    assert made.tied.type_name() == "torch.nn.modules.linear.Linear"
    with pytest.raises(NotImplementedError):
        made.unused(torch.ones(1, 2))


def test_calls_that_differ_and_write() -> None:
    model = Calling()
    inputs = torch.randn(3, 4), torch.randn(3, 4)
    for preserved in ((), ("inner",)):
        for program in (
            X.export(model, inputs, preserve_module_call_signature=preserved),
            X.export(model, inputs, preserve_module_call_signature=preserved).run_decompositions(),
            archived(X.export(model, inputs, preserve_module_call_signature=preserved)),
        ):
            made, other = X.unflatten(program), copy.deepcopy(model)
            for _ in range(2):
                assert alike(made(*inputs), other(*inputs))
                assert torch.equal(made.inner.calls, other.inner.calls)
            assert list(made.state_dict()) == list(model.state_dict())
            if preserved:
                kind = UNFLATTEN.InterpreterModuleDispatcher
                assert isinstance(made.inner, kind) and len(made.inner.call_modules()) == 2
            else:
                assert "inner@1" in dict(made.named_modules())


def test_signatures_that_are_kept() -> None:
    model = Calling()
    inputs = torch.randn(3, 4), torch.randn(3, 4)
    program = X.export(model, inputs, preserve_module_call_signature=("inner",))
    found = {e.fqn: e.signature for e in program.module_call_graph}
    assert [a.name for a in found["inner"].inputs] == ["x", "y", "x"]
    assert list(found) == ["", "inner", "inner.lin", "act", "inner@1"]
    second = found["inner@1"]
    assert second.inputs[1].value == 3 and second.in_spec.num_leaves == 4
    made = X.unflatten(program)
    plus = inputs[1], inputs[0]
    got = made.inner(inputs[0], plus=plus)
    assert alike(got, model.inner(inputs[0], plus=plus))
    # a module of one's own takes its place
    other = Counting()
    made, model = X.unflatten(program), Calling()
    made.inner, model.inner = other, copy.deepcopy(other)
    assert alike(made(*inputs), model(*inputs))
    with pytest.raises(AttributeError, match="nothing"):
        X.export(model, inputs, preserve_module_call_signature=("nothing",))


def test_a_kept_signature_hides_nothing() -> None:
    class Leaking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))
            self.inner = nn.ReLU()

        def forward(self, x: Any) -> Any:
            self.inner.register_forward_pre_hook(lambda m, a: (a[0] * self.w,))
            return self.inner(x)

    program = X.export(Leaking(), (torch.ones(4),), preserve_module_call_signature=("inner",))
    with pytest.raises(RuntimeError, match="'inner' keeps its signature, but uses 'p_w'"):
        X.unflatten(program)


def test_what_a_module_takes_from_elsewhere() -> None:
    class Adding(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    class Lending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("const", torch.randn(4))
            self.layers = nn.ModuleList([Adding(), Adding()])
            self.other = nn.Linear(4, 4)
            self.outer = nn.ModuleDict({"in": Block()})

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x, self.const)
            self.outer["in"].lin.register_forward_hook(lambda m, a, r: self.other(r))
            return self.outer["in"](x)

    model, x = Lending(), torch.randn(2, 4)
    made = X.unflatten(X.export(model, (x,)))
    model.outer["in"].lin._forward_hooks.clear()
    assert torch.equal(made(x), model(x))
    assert [n.op for n in made.get_submodule("layers.0").graph.nodes][:2] == ["placeholder"] * 2


def test_sizes_that_vary() -> None:
    class Half(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return y[: x.size(0) // 2]

    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = Half(), Half()

        def forward(self, x: Any, y: Any) -> Any:
            return y[x.size(0) // 2 :] + self.a(x, y) + self.b(x, y)

    size = 2 * Dim("half", max=64)
    inputs = torch.ones(10), torch.arange(10.0)
    program = X.export(
        Halves(),
        inputs,
        dynamic_shapes=({0: size}, {0: size}),
        preserve_module_call_signature=("a", "b"),
    )
    for made in (X.unflatten(program), X.unflatten(archived(program))):
        for n in (4, 10, 26):
            x = torch.ones(n), torch.arange(float(n))
            assert torch.equal(made(*x), Halves()(*x)) and torch.equal(made.b(*x), Half()(*x))
        with pytest.raises(
            RuntimeError, match=r"Expected input at \*args\[0\].shape\[0\] to be <= 128"
        ):
            made(torch.ones(130), torch.ones(130))
    assert "floordiv" in made.a.graph.python_code("self").src


def test_what_is_given_is_checked() -> None:
    class Keyed(nn.Module):
        def forward(self, x: Any, k: int, *, z: Any) -> Any:
            return x["a"][1] * k + z

    x = torch.ones(3, 4)
    made = X.unflatten(X.export(Keyed(), ({"a": [x, x]}, 3), {"z": x}))
    given = {"a": [x, x]}
    assert torch.equal(made(given, 3, z=x), x * 3 + x)
    adapter = "There is no flat args adapter specified. Are you sure"
    for args, kwargs, kind, text in (
        ((given, 4), {"z": x}, RuntimeError, r"input at \*args\[1\] to be equal to 3, but got 4"),
        (
            ({"a": [x, x[:2]]}, 3),
            {"z": x},
            RuntimeError,
            r"args\[0\]\['a'\]\[1\].shape\[0\] to be equal to 3",
        ),
        (
            (given, 3),
            {"z": x[0]},
            RuntimeError,
            "Unexpected number of dimensions in input at 'z'.shape",
        ),
        ((given, 3), {"z": 1}, RuntimeError, "input at 'z' to be a tensor, but got <class 'int'>"),
        (
            (given,),
            {"k": 3, "z": x},
            ValueError,
            r"Got the following keywords \['k', 'z'\] but expected",
        ),
        ((given, 3), {}, TypeError, adapter),
    ):
        with pytest.raises(kind, match=text):
            made(*args, **kwargs)
    with pytest.raises(TypeError, match=r"takes the arguments \['input'\]"):
        X.unflatten(X.export(nn.Sequential(nn.ReLU()), (x,))).get_submodule("0")(x, x)


def test_adapters_of_arguments() -> None:
    class Adapter(X.FlatArgsAdapter):
        def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
            assert metadata["unflattened_module"] is made and obj == ((x, x), {})
            return input_args[: self.kept]

    x, adapter = torch.ones(2, 4), Adapter()
    made = X.unflatten(X.export(nn.Linear(4, 4), (x,)), adapter)
    adapter.kept = 1
    assert not made.adapted and made(x, x).shape == (2, 4) and made.adapted
    adapter.kept = 2
    with pytest.raises(TypeError, match="Flat args adaption failed"):
        made(x, x)
    assert adapter.get_flat_arg_paths() == []
    with pytest.raises(TypeError, match="abstract"):
        X.FlatArgsAdapter()


def test_graphs_run_as_code_and_can_be_traced() -> None:
    model, x = Shared(), torch.randn(3, 4)
    with UNFLATTEN._disable_interpreter():
        made = X.unflatten(X.export(model, (x,)))
    assert not made._run_with_interpreter and alike(made(x), model(x))
    traced = torch.fx.symbolic_trace(made, concrete_args=(x,))
    assert alike(traced(x), model(x))
    text = made.block.print_readable(print_output=False)
    assert "class InterpreterModule" in text and "aten.relu" in text
    twin = copy.deepcopy(made)
    with torch.no_grad():
        twin.factor.zero_()
    assert alike(made(x), model(x)) and not alike(twin(x), model(x))
    assert twin.tied.weight is twin.block.lin.weight
    again = X.export(made, (x,))
    assert alike(again.module()(x), model(x))


def test_archives_that_say_what_is_not_so() -> None:
    class Keyed(nn.Module):
        def forward(self, x: Any, *, by: Any) -> Any:
            return x * by

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = Keyed()

        def forward(self, x: Any) -> Any:
            return self.child(x, by=x + 1)

    file, x = io.BytesIO(), torch.ones(2)
    X.save(X.export(Outer(), (x,), preserve_module_call_signature=("child",)), file)
    with zipfile.ZipFile(file) as archive:
        records = {n: archive.read(n) for n in archive.namelist()}
    (place,) = (n for n in records if n.endswith("models/model.json"))

    def opened(old: str, new: str) -> Any:
        text = records[place].decode()
        assert old in text
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in records.items():
                archive.writestr(name, text.replace(old, new) if name == place else data)
        made.seek(0)
        with UNFLATTEN._disable_interpreter():
            return X.unflatten(X.load(made))

    assert torch.equal(opened("Outer", "Outer")(x), x * 2)
    keys = r"[\\\"by\\\"]"
    for old, new, kind, text in (
        (keys, keys.replace("by", "by=print(1)"), RuntimeError, "is no name of an argument"),
        ("L__self__child,child,", "L__self__child,", torch.CheckpointError, "damaged"),
        ('"fqn": "child"', '"fqn": "a..b"', RuntimeError, "there is no module 'a.'"),
        ('"fqn": "child"', '"fqn": "graph"', RuntimeError, "'graph' has the name of an attribute"),
    ):
        with pytest.raises(kind, match=text):
            opened(old, new)


def test_programs_on_another_device() -> None:
    class Making(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(3, 3)
            self.other = nn.Linear(3, 3)
            self.other.weight = self.lin.weight
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return self.other(self.lin(x)) + torch.ones(3, device="cpu") + torch.tensor(2.0)

    passes: Any = importlib.import_module("torchlike.export.passes")
    program = X.export(Making(), (torch.ones(2, 3),))
    for where in ("meta", {"cpu": "meta"}):
        moved = passes.move_to_device_pass(program, where)
        values = [*moved.state_dict.values(), *moved.constants.values(), *moved.example_inputs[0]]
        assert {t.device.type for t in values} == {"meta"}
        assert moved.state_dict["lin.weight"] is moved.state_dict["other.weight"]
        made = moved.module()(torch.ones(2, 3, device="meta"))
        assert made.device.type == "meta" and made.shape == (2, 3)
    same = passes.move_to_device_pass(program, {"cuda:0": "meta"})
    x = torch.randn(2, 3)
    assert torch.equal(same.module()(x), program.module()(x))


def test_names_in_a_signature_follow_the_graph() -> None:
    program = X.export(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.ones(1, 2),))
    signature = copy.deepcopy(program.graph_signature)
    assert signature.parameters_to_mutate == {} and signature.lifted_custom_objs == ()
    assert signature.backward_signature is None and signature.input_tokens == ()
    graph_module = copy.deepcopy(program.graph_module)
    graph = graph_module.graph
    (relu,) = (n for n in graph.nodes if n.name == "relu")
    with graph_module._set_replace_hook(signature.get_replace_hook()):
        with graph.inserting_after(relu):
            new = graph.call_function(torch.ops.aten.abs.default, (relu.args[0],))
        relu.replace_all_uses_with(new)
    assert signature.user_outputs == (new.name,)
    signature.replace_all_uses("p_0_weight", "w")
    assert signature.inputs_to_parameters["w"] == "0.weight"
    table = X.default_decompositions()
    assert isinstance(table.copy(), X.CustomDecompTable) and table.materialize() == table
