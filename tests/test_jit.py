"""TorchScript: archives of PyTorch are read and run, functions and modules are compiled, archives come back."""

import enum
import io
import json
import zipfile
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import jit, nn

DATA = Path(__file__).parent / "data" / "torchscript"
ANSWERS = json.loads((DATA / "answers.json").read_text())
INPUTS = {
    "mixed": lambda: torch.arange(12.0).view(3, 4) / 7,
    "traced": lambda: torch.arange(64.0).view(2, 2, 4, 4).sin(),
}


def first(value):
    return value[0] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", sorted(INPUTS))
def test_archives_of_pytorch_run(name):
    model = jit.load(str(DATA / f"{name}.pt"))
    assert isinstance(model, jit.RecursiveScriptModule) and isinstance(model, jit.ScriptModule)
    wanted = torch.tensor(ANSWERS[name])
    assert torch.allclose(first(model(INPUTS[name]())), wanted, atol=1e-6)
    again = io.BytesIO()
    jit.save(model, again)
    back = jit.load(io.BytesIO(again.getvalue()))
    assert torch.equal(first(back(INPUTS[name]())), first(model(INPUTS[name]())))


def test_what_a_loaded_module_is():
    model = jit.load(str(DATA / "mixed.pt"))
    assert model.original_name == "Mixed" and model.k == 3 and not model.training
    assert [n for n, _ in model.named_children()] == ["l", "bn", "m"]
    assert model.state_dict().keys() >= {"b", "l.weight", "m.0.bias", "bn.num_batches_tracked"}
    assert "torch.relu" in model.code and model.graph == model.code
    assert model.helper(torch.ones(2), 4)[1] == 4
    y = first(model(INPUTS["mixed"]()))
    y.sum().backward()
    assert model.l.weight.grad.abs().sum() > 0
    with pytest.raises(jit.Error, match=r"in helper\n|builtins\.ValueError: .*too large"):
        model(torch.ones(101, 4))


def test_an_archive_on_meta_becomes_real():
    path = str(DATA / "traced.pt")
    model = jit.load(path, map_location="meta")
    assert all(p.is_meta for p in model.parameters())
    assert model(INPUTS["traced"]().to("meta")).shape == (2, 2)
    torch.materialize(model)
    assert torch.equal(model(INPUTS["traced"]()), jit.load(path)(INPUTS["traced"]()))


def test_an_archive_as_a_graph():
    model = jit.load(str(DATA / "traced.pt"))
    graph = model.to_fx()
    assert any("conv" in str(n.target) for n in graph.graph.nodes)
    assert torch.equal(graph(INPUTS["traced"]()), model(INPUTS["traced"]()))


# Compiling


class Pair(NamedTuple):
    a: torch.Tensor
    b: int


def helper(x: torch.Tensor, times: float = 2.0) -> torch.Tensor:
    return x * times


class Everything(nn.Module):
    __constants__ = ["limit"]

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.heads = nn.ModuleDict({"p": nn.Linear(4, 2), "q": nn.Linear(4, 3)})
        self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
        self.norm = nn.BatchNorm1d(4)
        self.limit = 3
        self.names: List[str] = ["x", "y"]  # noqa: UP006
        self.nothing = None
        self.weight_of = nn.Parameter(torch.ones(4))

    def inner(self, x: torch.Tensor, n: int = 1) -> Tuple[torch.Tensor, int]:  # noqa: UP006
        return helper(x, 0.5) + n, n + 1

    def forward(self, x: torch.Tensor, y: Optional[torch.Tensor] = None, flag: bool = True):  # noqa: UP045
        out: List[torch.Tensor] = []  # noqa: UP006
        named: Dict[str, torch.Tensor] = {}  # noqa: UP006
        for i, layer in enumerate(self.layers):
            x = F.gelu(layer(x)) * float(i + 1)
            out.append(x)
        x = self.norm(self.net(x)) * self.weight_of
        if y is not None:
            x = x + y
        elif flag and x.dim() == 2:
            x = x - 1
        for name, head in self.heads.items():
            named[name] = head(x)
        total, i = 0, 0
        while i < self.limit:
            i += 1
            if i == 2:
                continue
            total += i
        for name in self.names:
            if name == "never":
                break
        p = Pair(x[:, 1:], total)
        z, n = self.inner(p.a, p.b)
        if self.nothing is not None:
            z = z * 0
        assert n > 1, f"n is {n}"
        b, _ = x.shape
        if b > 50:
            raise ValueError("too many: {}".format(b))  # noqa: UP032
        k = [v * 2 for v in range(3)]
        return z.view(b, -1).softmax(-1), out, named, "{} {}".format(n, k[1]), x[..., None].size(2)  # noqa: UP032

    @jit.export
    def other(self, x):
        return self.inner(x)[0]

    @jit.unused
    def apart(self, x):
        return [lambda: x]


def leaves(value):
    from torchlike.utils import _pytree as pytree

    return pytree.tree_leaves(value)


def same(a, b):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        assert torch.allclose(x, y, atol=1e-6) if isinstance(x, torch.Tensor) else x == y


@pytest.mark.parametrize("given", [(), (1,)])
def test_a_module_with_everything(given):
    model = Everything().eval()
    extra = tuple(torch.ones(2, 4) for _ in given)
    scripted = jit.script(model)
    x = torch.arange(8.0).view(2, 4)
    same(model(x, *extra), scripted(x, *extra))
    assert torch.equal(model.other(x), scripted.other(x))
    assert scripted.layers[0].weight is model.layers[0].weight
    buffer = io.BytesIO()
    jit.save(scripted, buffer, {"note.txt": "hello"})
    notes = {"note.txt": ""}
    loaded = jit.load(io.BytesIO(buffer.getvalue()), _extra_files=notes)
    same(model(x, *extra), loaded(x, *extra))
    assert notes["note.txt"] == b"hello"
    model.train()
    scripted.train()
    torch.manual_seed(1)
    wanted = model(x)
    torch.manual_seed(1)
    same(wanted, scripted(x))
    with pytest.raises(jit.Error, match=r"builtins\.ValueError: too many: 51"):
        loaded(torch.ones(51, 4))


def test_functions():
    @jit.script
    def f(x, n: int = 2):
        if n > 1:
            return helper(x, 3.0) + n
        else:
            return x

    assert isinstance(f, jit.ScriptFunction) and f.name == "f" and "return" in f.code
    assert f.graph == f.code and f.qualified_name.endswith("f")
    assert torch.equal(f(torch.ones(2)), torch.full((2,), 5.0))
    buffer = io.BytesIO()
    f.save(buffer)
    assert torch.equal(jit.load(io.BytesIO(buffer.getvalue()))(torch.ones(2), 1), torch.ones(2))


LAYERS = [
    (lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), [(2, 3, 6, 6)]),
    (lambda: nn.ConvTranspose1d(3, 4, 3), [(2, 3, 6)]),
    (lambda: nn.InstanceNorm2d(3, affine=True), [(2, 3, 6, 6)]),
    (lambda: nn.LSTM(4, 3, bidirectional=True), [(5, 2, 4)]),
    (lambda: nn.GRU(4, 3, batch_first=True), [(5, 2, 4)]),
    (lambda: nn.MultiheadAttention(4, 2), [(5, 2, 4)] * 3),
    (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8), 2, enable_nested_tensor=False
        ),
        [(5, 2, 4)],
    ),
    (lambda: nn.Upsample(scale_factor=2), [(2, 3, 4, 4)]),
    (lambda: nn.AdaptiveAvgPool2d(1), [(2, 3, 4, 4)]),
    (lambda: nn.Hardswish(), [(3, 4)]),
    (lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True), [(5, 2, 4)] * 3),
    (lambda: nn.MaxPool2d(2, return_indices=True), [(2, 3, 4, 4)]),
    (lambda: nn.AdaptiveMaxPool1d(2, return_indices=True), [(2, 3, 5)]),
    (lambda: nn.LPPool2d(2, 2), [(2, 3, 4, 4)]),
    (lambda: nn.Upsample(scale_factor=1.5, mode="area"), [(2, 3, 4, 4)]),
    (lambda: nn.KLDivLoss(reduction="batchmean", log_target=True), [(), ()]),
    (lambda: nn.MSELoss(), [(3, 4), (3, 4)]),
]


@pytest.mark.parametrize(("build", "shapes"), LAYERS)
def test_layers(build, shapes):
    layer = build().eval()
    inputs = [torch.randn(s) for s in shapes]
    same(layer(*inputs), jit.script(layer)(*inputs))


def refused(text):
    names = {"torch": torch, "nn": nn}
    path = f"<refused {hash(text)}>"
    import linecache

    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), names)
    return names["f"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("def f(x):\n    try:\n        return x\n    finally:\n        pass\n", "try blocks"),
        (
            "def f(x):\n    with torch.inference_mode():\n        return x\n",
            "'inference_mode' is made",
        ),
        ("def f(x):\n    with x:\n        return x\n", "With item expression must be an object"),
        ("def f(x):\n    return (lambda y: y)(x)\n", "Lambda"),
        ("def f(*x):\n    return x[0]\n", "variable number"),
        ("def f(x):\n    return open('f')\n", "currently not supported"),
        ("def f(x):\n    return unknown(x)\n", "undefined value unknown"),
        ("def f(x):\n    return x.no_such_method()\n", "no_such_method"),
        (
            "def f(x: int):\n    if x > 2:\n        x = 'text'\n    return x\n",
            "previously had type int",
        ),
        ("def f(x) -> int:\n    return 'text'\n", "annotated as having type int"),
        ("def f(x):\n    return f(x)\n", "recursively"),
        (
            "def f(x):\n    if x.dim():\n        g = torch.sin\n    else:\n        g = torch.cos\n    return g(x)\n",
            "another function or module",
        ),
        ("def f(x):\n    return f'{x:.2f}'\n", "format specifiers"),
        ("def f(x):\n    return x.__class__\n", "__class__"),
    ],
)
def test_what_is_no_torchscript_says_where(text, says):
    with pytest.raises(jit.NotSupportedError, match=says) as error:
        jit.script(refused(text))()
    assert says == "__class__" or "line" in str(error.value)


def test_types_in_code():
    @jit.script
    def f(x, y: Optional[int] = None):  # noqa: UP045
        z = jit.annotate(List[int], [])  # noqa: UP006
        z.append(3 if y is None else y)
        if isinstance(y, int):
            z.append(y)
        if torch.jit.is_scripting():
            z.append(7)
        return x.to(torch.float64), z

    assert f(torch.ones(1))[1] == [3, 7] and f(torch.ones(1), 4)[1] == [4, 4, 7]
    assert f(torch.ones(1))[0].dtype == torch.float64 and not jit.is_scripting()


class Layout(enum.Enum):
    ROWS = "rows"
    COLUMNS = "columns"


def laid(x, layout: Layout):
    if layout is Layout.COLUMNS:
        return x.mT
    return x


class Branches(nn.Module):
    """What is decided while compiling: enumerations, and whether code is scripted at all."""

    def __init__(self, layout):
        super().__init__()
        self.layout, self.steps, self.masked, self.rest = layout, False, True, (1, 1)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.forward = self.forward_steps
        self.rare = None

    @staticmethod
    def twice(x: torch.Tensor):
        return x + x

    def only_with_rare(self, x):
        assert self.rare is not None, "rare"
        return self.rare(x)

    def forward_steps(self, x):
        x = self.twice(x)
        if x.dim() > 5:
            x = self.only_with_rare(x)
        if self.steps and not torch.jit.is_scripting():
            x = (lambda y: y)(x)
        if self.masked:
            mask = torch.ones(3)
        else:
            mask = None
        if x.size(0) > 2:
            for layer in self.layers:
                x = layer(x)
        else:
            for i, layer in enumerate(self.layers):
                x = layer(x) + i
        if mask is not None:
            x = x * mask
        taken = x[(slice(None), slice(0, 2, None))]
        taken = taken.reshape(-1, *self.rest)
        x = [x, taken] if False else x
        if isinstance(x, (list, tuple)):
            x = x[0]
        if isinstance(taken, torch.Tensor) and not isinstance(taken, dict):
            x = x + taken.sum()
        taken = None
        return laid(x, self.layout), laid(x, layout=Layout.ROWS)


@pytest.mark.parametrize("layout", list(Layout))
def test_branches_that_compiling_decides(layout):
    model = Branches(layout)
    for rows in (2, 3):
        x = torch.randn(rows, 3)
        got, want = jit.script(model)(x), model(x)
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def joined(x, sizes: List[int]):  # noqa: UP006
    before = x.shape[:-1]
    return x.reshape(before + (2, -1)), sizes + (3,), (1,) + sizes


def test_tuples_that_meet_lists():
    got = jit.script(joined)(torch.ones(3, 4), [5])
    assert got[0].shape == (3, 2, 2) and got[1:] == ([5, 3], [1, 5])


# Tracing


def test_a_trace_works_at_another_size():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.head = (
                nn.Conv2d(3, 4, 3),
                nn.BatchNorm2d(4),
                nn.Linear(144, 5),
            )

        def forward(self, x):
            assert jit.is_tracing() or not self.training
            y = F.relu(self.norm(self.conv(x)))
            n, c, h, w = y.shape
            y = y.reshape(n, c * h * w)
            return {"logits": 2 - self.head(y), "n": torch.zeros(n)}

    model = Net().eval()
    traced = jit.trace(model, torch.randn(2, 3, 8, 8), strict=False)
    assert isinstance(traced, jit.TopLevelTracedModule)
    buffer = io.BytesIO()
    traced.save(buffer)
    x = torch.randn(5, 3, 8, 8)
    same(model(x), jit.load(io.BytesIO(buffer.getvalue()))(x))


def test_traces_of_functions():
    @jit.script_if_tracing
    def branch(x):
        if x.size(0) > 2:
            return x * 2
        return x

    def f(x, y):
        x = x.clone()
        x[0] = 1
        return branch(x) @ y.T + torch.ones(x.size(0), 1)

    traced = jit.trace(f, (torch.randn(3, 4), torch.randn(2, 4)))
    x, y = torch.randn(5, 4), torch.randn(6, 4)
    assert torch.allclose(traced(x, y), f(x, y))
    with pytest.warns(jit.TracerWarning):
        jit.trace(lambda x: x * float(x.sum()), torch.ones(2))
    with pytest.raises(RuntimeError, match="Only tensors"):
        jit.trace(lambda x: 3, torch.ones(2))
    both = jit.trace_module(nn.Linear(2, 2), {"forward": torch.ones(1, 2)})
    assert both(torch.ones(3, 2)).shape == (3, 2)


# Meta models


def test_a_meta_model_is_scripted_and_its_weights_streamed(tmp_path):
    """The mission's seed: `jit.script` of a meta model, saved, then real."""
    with torch.meta_init():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    jit.save(jit.script(model), tmp_path / "m.pt")
    assert model[0].weight.is_meta
    loaded = jit.load(str(tmp_path / "m.pt"))
    torch.materialize(model)
    x = torch.randn(3, 4)
    assert torch.equal(loaded(x), model(x))
    with pytest.raises(RuntimeError, match=r"'0\.weight' is on meta .* allow_meta=True"):
        jit.save(jit.script(nn.Sequential(nn.Linear(2, 2, device="meta"))), tmp_path / "n.pt")
    assert not (tmp_path / "n.pt").exists()
    jit.save(jit.script(nn.Linear(2, 2, device="meta")), tmp_path / "n.pt", allow_meta=True)
    with zipfile.ZipFile(tmp_path / "n.pt") as archive:
        assert archive.getinfo("n/data/0").file_size == 0


def test_the_rest_of_the_names():
    frozen = jit.freeze(jit.script(nn.Linear(2, 2)).eval())
    assert jit.optimize_for_inference(frozen) is frozen
    with pytest.raises(RuntimeError, match="eval mode"):
        jit.freeze(nn.Linear(2, 2))
    assert not issubclass(jit.TracingCheckError, RuntimeError)
    assert not issubclass(jit.Error, RuntimeError)
    assert issubclass(jit.CompilationUnitError, RuntimeError)

    class Ignoring(nn.Module):
        @jit.ignore
        def python(self, x):
            return x

        def forward(self, x):
            return self.python(x)

    with pytest.raises(jit.NotSupportedError, match="ignore"):
        jit.script(Ignoring())
