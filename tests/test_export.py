"""`torchlike.export`: programs of operators, sizes that vary, and archives of them, also hostile ones."""

import ast
import io
import json
import zipfile

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.export import Dim, UserError, _expressions, _symbols

X = torch.export


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("shift", torch.ones(3), persistent=False)
        self.scale = torch.arange(3.0)

    def forward(self, x, times=2):
        self.calls.add_(1)
        y = self.lin(x) * self.scale + self.shift + torch.tensor([1.0, 2.0, 3.0])
        return {"flat": y.view(x.shape[0] * 3) * times, "both": [x.max(1)[0], times]}


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.encoder = nn.TransformerEncoderLayer(8, 2, batch_first=True)

    def forward(self, x, t):
        y = self.conv(x)
        b, _, h, w = y.shape
        y = nn.functional.interpolate(y, size=(h * 2, w)).reshape(b, -1)
        return y, self.encoder(t), t.reshape(t.shape[0] * t.shape[1], 8)


def close(got, want):
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_program_and_its_signature():
    net = Net()
    batch = Dim("batch", min=2, max=64)
    program = X.export(net, (torch.ones(5, 4),), dynamic_shapes={"x": {0: batch}})
    assert net.calls.item() == 0  # tracing leaves the model as it was
    signature = program.graph_signature
    assert signature.parameters == ("lin.weight", "lin.bias")
    assert signature.inputs_to_buffers == {"b_calls": "calls", "b_shift": "shift"}
    assert signature.non_persistent_buffers == ("shift",)
    assert signature.lifted_tensor_constants == ("scale", "lifted_tensor_0")
    assert signature.user_inputs == ("x",)
    assert list(signature.buffers_to_mutate.values()) == ["calls"]
    assert str(program.range_constraints) == "{s77: VR[2, 64]}"
    assert [n for n, _ in program.named_parameters()] == ["lin.weight", "lin.bias"]
    assert sorted(program.state_dict) == ["calls", "lin.bias", "lin.weight"]
    assert "sym_size" in str(program) and "f32[3*batch]" in str(program)
    made = program.module()
    for size in (2, 9, 64):
        x = torch.randn(size, 4)
        got, want = made(x), net(x)
        assert torch.equal(got["flat"], want["flat"]) and got["both"][1] == 2
    assert made.calls is net.calls or made.calls.item() == 6
    with pytest.raises(RuntimeError, match="Unable to call ExportedProgram directly"):
        program(x)
    for wrong, kind, text in (
        ((torch.ones(65, 4),), AssertionError, r"Guard failed: x.size\(\)\[0\] <= 64"),
        ((torch.ones(1, 4),), AssertionError, r"Guard failed: x.size\(\)\[0\] >= 2"),
        ((torch.ones(5, 5),), AssertionError, r"Guard failed: x.size\(\)\[1\] == 4"),
        ((x, 3), ValueError, "Trying to flatten user inputs"),
    ):
        with pytest.raises(kind, match=text):
            made(*wrong)
    again = program.run_decompositions({torch.ops.aten.t.default: lambda w: w.permute(1, 0)})
    assert "permute" in again.graph_module.code and "aten.t.default" not in again.graph_module.code
    assert torch.equal(again.module()(x)["flat"], net(x)["flat"])
    lifted = signature.inputs_to_lifted_tensor_constants
    assert lifted and again.graph_signature.inputs_to_lifted_tensor_constants == lifted


def test_several_sizes_that_vary():
    net = Image().eval()
    b, h, s = X.dims("b", "h", "s")
    example = (torch.randn(2, 3, 8, 8), torch.randn(2, 5, 8))
    program = X.export(net, example, dynamic_shapes=({0: b, 2: h}, {0: b, 1: s}))
    for batch, high, length in ((3, 13, 9), (2, 8, 5), (5, 20, 2)):
        inputs = torch.randn(batch, 3, high, 8), torch.randn(batch, length, 8)
        close(program.module()(*inputs), net(*inputs))
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.randn(3, 3, 8, 8), torch.randn(2, 5, 8))

    class Twice(nn.Module):
        def forward(self, x, y):
            return x.repeat(2, 1) + y

    n = Dim("n")
    program = X.export(
        Twice(), (torch.ones(3, 2), torch.ones(6, 2)), dynamic_shapes=({0: n}, {0: 2 * n})
    )
    assert program.module()(torch.ones(5, 2), torch.ones(10, 2)).shape == (10, 2)
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(5, 2), torch.ones(11, 2))


class Branching(nn.Module):
    def forward(self, x):
        return x * 2 if x.shape[0] > 10 else x


class Fixed(nn.Module):
    def forward(self, x):
        return x + torch.ones(5, 4)


class Reading(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def test_what_cannot_vary_says_so():
    x = torch.ones(5, 4)
    b = Dim("b", max=64)
    with pytest.raises(UserError, match="another one at b = 64 than at b = 5"):
        X.export(Branching(), (x,), dynamic_shapes={"x": {0: b}})
    with pytest.raises(UserError, match="fails at b = "):
        X.export(Fixed(), (x,), dynamic_shapes={"x": {0: b}})
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        X.export(Reading(), (x,))
    # nobody insists on sizes that are AUTO
    program = X.export(Fixed(), (x,), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.STATIC}})
    assert program.range_constraints == {}
    with pytest.raises(AssertionError, match="Guard failed"):
        program.module()(torch.ones(6, 4))
    program = X.export(nn.ReLU(), (x,), dynamic_shapes=({0: Dim.AUTO},))
    assert program.module()(torch.ones(9, 4)).shape == (9, 4)
    for shapes, text in (
        ({"z": {0: b}}, "top-level keys must be the arg names"),
        (({0: b}, None), "Detected mismatch between the structure"),
        ({"x": {0: Dim("c", max=3)}}, r"5 not in range \[2, 3\]"),
        ({"x": {0: 4}}, "Static shape constraint of 4"),
    ):
        with pytest.raises(RuntimeError, match=text):
            X.export(Fixed(), (x,), dynamic_shapes=shapes)
    with pytest.raises(ValueError, match="Expected `mod` to be an instance"):
        X.export(lambda x: x, (x,))
    with pytest.raises(UserError, match="Expecting `args` to be a tuple"):
        X.export(Fixed(), x)
    with pytest.raises(RuntimeError, match="get value out of a tracing tensor"):
        X.export(nn.BatchNorm1d(4, momentum=None), (x,))
    with pytest.raises(AssertionError, match="inconsistent"):
        Dim("d", min=3, max=2)


def test_expressions():
    points = [
        {"a": a, "b": b} for a, b in ((5, 7), (6, 7), (11, 7), (5, 8), (5, 13), (9, 9), (4, 3))
    ]

    def fitted(f):
        return _expressions.fit(points, [f(p["a"], p["b"]) for p in points])

    for f in (
        lambda a, b: 3 * a + 2,
        lambda a, b: a * b - b,
        lambda a, b: 2 * a - b + 1,
        lambda a, b: 4 * ((a + 1) // 2) - 3,
    ):
        found = fitted(f)
        assert found.at({"a": 20, "b": 31}) == f(20, 31)
        text = found.sympy({"a": "a", "b": "b"})
        assert _symbols.parse(text).at({"a": 20, "b": 31}) == f(20, 31)
    assert fitted(lambda a, b: 7) == 7
    assert fitted(lambda a, b: a**3) is None and fitted(lambda a, b: a > 5) is None
    for text in ("__import__('os')", "x", "Symbol(3)", "1 + 1", "(" * 9000, "Integer('a')"):
        with pytest.raises(torch.CheckpointError):
            _symbols.parse(text)
    with pytest.raises(NotImplementedError, match="Mod"):
        _symbols.parse("Mod(Symbol('s0', integer=True), Integer(2))")
    square = _symbols.parse("Pow(Add(Symbol('s0'), Integer(-1)), Integer(2))")
    assert square.at({"s0": 5}) == 16


def archive_of(program):
    buffer = io.BytesIO()
    X.save(program, buffer)
    return buffer.getvalue()


def test_archives_come_back(tmp_path):
    net = Image().eval()
    b, h = X.dims("b", "h")
    example = (torch.randn(2, 3, 8, 8), torch.randn(2, 5, 8))
    program = X.export(net, example, dynamic_shapes=({0: b, 2: h}, {0: b}))
    path = tmp_path / "net.pt2"
    X.save(program, path, extra_files={"note": "mine"})
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        assert "net/models/model.json" in names and "net/data/weights/weight_0" in names
        data = json.loads(file.read("net/models/model.json"))
        assert data["schema_version"] == {"major": 8, "minor": 20}
    extra = {"note": ""}
    loaded = X.load(path, extra_files=extra)
    assert extra == {"note": "mine"}
    inputs = torch.randn(3, 3, 11, 8), torch.randn(3, 5, 8)
    close(loaded.module()(*inputs), net(*inputs))
    assert [str(s) for s in loaded.graph_signature.input_specs] == [
        str(s) for s in program.graph_signature.input_specs
    ]
    twice = X.load(io.BytesIO(archive_of(loaded)))
    close(twice.module()(*inputs), net(*inputs))
    net = Net()
    loaded = X.load(io.BytesIO(archive_of(X.export(net, (torch.ones(5, 4),), {"times": 3}))))
    got = loaded.module()(torch.ones(5, 4), times=3)
    assert torch.equal(got["flat"], net(torch.ones(5, 4), 3)["flat"]) and got["both"][1] == 3
    with pytest.raises(AssertionError, match="Guard failed: times == 3"):
        loaded.module()(torch.ones(5, 4), times=4)
    tied = nn.Linear(2, 2)
    tied.twin = tied.weight
    loaded = X.load(io.BytesIO(archive_of(X.export(tied, (torch.ones(1, 2),)))))
    weights = loaded.state_dict
    assert weights["weight"].untyped_storage()._cdata == weights["twin"].untyped_storage()._cdata
    with torch.device("meta"):
        hollow = nn.Linear(2, 2)
        program = X.export(hollow, (torch.ones(1, 2),))
    with pytest.raises(RuntimeError, match="'weight' is on meta and has no values"):
        X.save(program, path)
    assert extra and zipfile.is_zipfile(path)  # the old file is whole
    with pytest.raises(TypeError, match="must be an instance of 'ExportedProgram'"):
        X.save(net, path)


def rewritten(raw, change):
    """The archive with records changed by a function of name and bytes; None leaves a record out."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = change(name, old.read(name))
            if data is not None:
                new.writestr(name, data)
    return out


def of_model(change):
    def apply(name, data):
        if not name.endswith("models/model.json"):
            return data
        model = json.loads(data)
        change(model, model["graph_module"]["graph"])
        return json.dumps(model)

    return apply


def set_target(name):
    return of_model(lambda m, g: g["nodes"][0].update(target=name))


def of_weights(**fields):
    def apply(name, data):
        if not name.endswith("model_weights_config.json"):
            return data
        config = json.loads(data)
        entry = config["config"]["weight"]
        for key, value in fields.items():
            (entry if key in entry else entry["tensor_meta"])[key] = value
        return json.dumps(config)

    return apply


BIG = [{"as_int": 1 << 62}, {"as_int": 1 << 62}]
HOSTILE = {
    "os.system": set_target("os.system"),
    "builtins": set_target("builtins.eval"),
    "attribute": set_target("torch.ops.__class__.__base__.mro"),
    "dunder": set_target("torch.ops.aten.__init__.__globals__"),
    "no operator": set_target("torch.ops.aten.add.overloads"),
    "files": set_target("torch.ops.aten.from_file.default"),
    "parameter": of_model(
        lambda m, g: g["nodes"][0]["inputs"][0].update(kind=2, name="self=1); x(")
    ),
    "structure": of_model(
        lambda m, g: m["graph_module"]["module_call_graph"][0]["signature"].update(
            in_spec="[1, {}]"
        )
    ),
    "class": of_model(
        lambda m, g: m["graph_module"]["module_call_graph"][0]["signature"].update(
            out_spec='[1, {"type": "os.system", "context": "null", "children_spec": []}]'
        )
    ),
    "unknown operator": set_target("torch.ops.aten.no_such.default"),
    "missing value": of_model(
        lambda m, g: g["nodes"][0]["inputs"][0].update(arg={"as_tensor": {"name": "u"}})
    ),
    "name": of_model(
        lambda m, g: g["nodes"][0]["outputs"][0]["as_tensor"].update(name="a; import os")
    ),
    "twice": of_model(lambda m, g: g["nodes"].append(g["nodes"][0])),
    "no tensor": of_model(lambda m, g: g["tensor_values"].clear()),
    "huge sizes": of_model(lambda m, g: g["tensor_values"]["input_1"].update(sizes=BIG)),
    "expression": of_model(
        lambda m, g: g["tensor_values"]["input_1"]["sizes"].__setitem__(
            0, {"as_expr": {"expr_str": "__import__('os').system('x')", "hint": {"as_int": 1}}}
        )
    ),
    "no graph": of_model(lambda m, g: m.pop("graph_module")),
    "lists for objects": of_model(lambda m, g: g.update(nodes=[[]], inputs=[3])),
    "other version": of_model(lambda m, g: m["schema_version"].update(major=9)),
    "argument names": of_model(
        lambda m, g: m["graph_module"]["module_call_graph"][0]["signature"].update(
            forward_arg_names=["x):\n    import os\n    def f(self"]
        )
    ),
    "deep": lambda n, d: b"[" * 100_000 if n.endswith("model.json") else d,
    "no json": lambda n, d: b"\xff\x00" if n.endswith("model.json") else d,
    "no format": lambda n, d: None if n.endswith("archive_format") else d,
    "short weight": lambda n, d: d[:3] if n.endswith("weight_0") else d,
    "no weight": lambda n, d: None if n.endswith("weight_0") else d,
    "path": of_weights(path_name="../../../etc/passwd"),
    "pickle": of_weights(use_pickle=True),
    "offset": of_weights(storage_offset={"as_int": 1 << 40}),
    "strides": of_weights(strides=[{"as_int": 1 << 40}, {"as_int": 1}]),
    "negative": of_weights(sizes=[{"as_int": -2}, {"as_int": 2}]),
    "other shape": of_weights(sizes=[{"as_int": 4}, {"as_int": 1}]),
    "dtype": of_weights(dtype=999),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_refused(name):
    raw = archive_of(
        X.export(nn.Linear(2, 2), (torch.ones(1, 2),), dynamic_shapes=({0: Dim("b")},))
    )
    # the archive itself is read: what is refused is what was changed
    assert X.load(rewritten(raw, lambda n, d: d)).module()(torch.ones(4, 2)).shape == (4, 2)
    with pytest.raises((torch.CheckpointError, NotImplementedError)):
        X.load(rewritten(raw, HOSTILE[name]))


def test_names_in_archives_are_no_code():
    """Names of parameters and arguments that would be code, if they were written into it as they are."""
    net = nn.Module()
    evil = 'w"), print("executed'
    net.register_buffer(evil, torch.ones(2))
    net.forward = lambda x, **more: x + getattr(net, evil) + sum(more.values())
    key = "k':1}), print('executed'"
    program = X.export(net, (torch.ones(2),), {key: torch.ones(2)})
    program._module_call_graph[0].signature.forward_arg_names = ["x", "more"]
    loaded = X.load(io.BytesIO(archive_of(program)))
    code = loaded.module(check_guards=False).code
    compile(code, "code", "exec")
    assert 'getattr(self, "w\\"), print(\\"executed")' in code
    assert "print" not in {n.id for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Name)}


def test_files_that_are_no_archives(tmp_path):
    raw = archive_of(X.export(nn.Linear(2, 2), (torch.ones(1, 2),)))
    for data in (b"", b"PK\x03\x04", raw[:100], raw[: len(raw) // 2], raw[len(raw) // 2 :]):
        with pytest.raises(torch.CheckpointError):
            X.load(io.BytesIO(data))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/archive_format", "pt2" + " " * 1000)
    with pytest.raises(torch.CheckpointError, match="compressed"):
        X.load(packed)
    with pytest.raises(FileNotFoundError):
        X.load(tmp_path / "none.pt2")


def test_other_names():
    table = X.default_decompositions()
    assert torch.ops.aten.glu.default in table and torch.ops.aten.sin.default not in table
    assert repr(2 * Dim("n", min=3) + 1) == "2*n + 1" and repr(Dim("n", min=3)) == "Dim('n', min=3)"
    assert (
        isinstance(X.ModuleCallEntry("a").signature, type(None))
        and X.ModuleCallSignature is not None
    )
    assert X.ExportGraphSignature().user_outputs == () and X.ExportedProgram is not None
    with pytest.raises(ValueError, match="dataclass"):
        X.register_dataclass(int)


def test_constants_that_are_results():
    class Made(nn.Module):
        def forward(self):
            return torch.tensor([1, 2, 3]), torch.tensor([4.0, 5.0]).view(2, 1)

    program = X.export(Made(), ())
    kinds = [n.op for n in program.graph.nodes]
    assert kinds == sorted(kinds, key=lambda op: op != "placeholder")
    module = program.module()
    for _ in range(2):  # results are fresh, as the model's are
        whole, column = module()
        assert whole.tolist() == [1, 2, 3] and column.tolist() == [[4], [5]]
        whole.zero_(), column.zero_()


def test_constants_are_no_parameters():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = {"w": nn.Parameter(torch.ones(2))}
            self.shift = torch.ones(2, requires_grad=True)

        def forward(self, x):
            return x * self.weights["w"] + self.shift

    program = X.export(Hidden(), (torch.ones(2),))
    assert not any(isinstance(c, nn.Parameter) for c in program.constants.values())
    with pytest.warns(UserWarning, match="not properly registered as a parameter"):
        module = program.module()
    assert list(module.parameters()) == [] and not module.shift.requires_grad
    assert module(torch.ones(2)).tolist() == [2, 2]


def test_models_know_that_they_are_exported():
    class Asks(nn.Module):
        def forward(self, x):
            assert torch.compiler.is_exporting() == torch.compiler.is_compiling()
            return x * 2 if torch.compiler.is_compiling() else x * 3

    x = torch.ones(2)
    assert X.export(Asks(), (x,)).module()(x).tolist() == [2, 2]
    assert Asks()(x).tolist() == [3, 3] and not torch.compiler.is_exporting()


def test_state_is_not_what_hooks_make_of_it():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("unsaved", torch.ones(2), persistent=False)
            self._register_state_dict_hook(self.rename)

        @staticmethod
        def rename(module, state, prefix, *args):
            for key in list(state):
                state[f"{prefix}{key.removeprefix(prefix + 'layer.')}"] = state.pop(key)

        def forward(self, x):
            return self.layer(x) + self.unsaved

    model, x = Renamed(), torch.ones(1, 2)
    program = X.export(model, (x,))
    assert list(program.state_dict) == ["layer.weight", "layer.bias"]
    assert torch.equal(program.module()(x), model(x))


def test_sizes_of_one_name_have_one_range():
    class Product(nn.Module):
        def forward(self, x, y):
            return x @ y

    square = torch.ones(4, 4)
    one, other = Dim("n", min=3), Dim("n", max=12)
    with pytest.raises(
        UserError, match=r"definitions Dim\('n', min=3\) and Dim\('n', min=0, max=12\)"
    ):
        X.export(Product(), (square, square), dynamic_shapes=((one, other), (other, one)))
