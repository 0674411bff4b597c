"""The table test: every public op is reachable in all its forms, and recorded calls give PyTorch's results.

`data/ops.jsonl.gz` holds calls with what PyTorch 2.13 answered on the CPU: a few for each op. Each runs on CPU
(shape, dtype, strides, values) and on meta (the same without values).
"""

from __future__ import annotations

import base64
import gzip
import json
import operator
import warnings
from pathlib import Path

import numpy as np
import pytest

import torchlike as torch
from torchlike import _C

DATA = Path(__file__).parent / "data" / "ops.jsonl.gz"
NUMPY = {
    "bool": "?", "uint8": "u1", "int8": "i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
    "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}  # fmt: skip
TOLERANCE = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip


def samples():
    with gzip.open(DATA, "rt") as lines:
        return [json.loads(line) for line in lines]


SAMPLES = samples()


def decode(value, device):
    """A recorded argument as an object of the library."""
    if isinstance(value, list):
        return [decode(v, device) for v in value]
    if not isinstance(value, dict):
        return value
    (tag, body), *_ = value.items()
    if tag == "$t":
        return tensor(body, device)
    plain = {
        "$dtype": lambda: getattr(torch, body),
        "$device": lambda: torch.device(device),
        "$memory_format": lambda: getattr(torch, body),
        "$layout": lambda: getattr(torch, body),
        "$size": lambda: torch.Size(body),
        "$tuple": lambda: tuple(decode(v, device) for v in body),
        "$dict": lambda: {k: decode(v, device) for k, v in body.items()},
        "$slice": lambda: slice(*[decode(v, device) for v in body]),
        "$ellipsis": lambda: Ellipsis,
        "$c": lambda: complex(*[float(v) for v in body]),
        "$f": lambda: float(body),
    }
    return plain[tag]()


def tensor(t, device):
    """A recorded tensor: its whole storage, seen through its strides."""
    raw = base64.b64decode(t.get("data", ""))
    dtype = getattr(torch, t["dtype"])
    flat = torch.frombuffer(bytearray(raw), dtype=dtype) if raw else torch.empty(0, dtype=dtype)
    shape = t["shape"]
    stride = t.get("stride") or contiguous(shape)
    if device == "meta":
        base = torch.empty(max(flat.numel(), 0), dtype=dtype, device="meta")
        made = base.as_strided(shape, stride, t.get("offset", 0))
    else:
        empty = torch.empty_strided(shape, stride, dtype=dtype)
        made = flat.as_strided(shape, stride, t.get("offset", 0)) if raw else empty
    return made.conj() if t.get("conj") else made


def contiguous(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return strides


def call(sample, device, args=None, kwargs=None):
    """The recorded call, with its own arguments on a device or with these."""
    if args is None:
        args = [decode(a, device) for a in sample["args"]]
        kwargs = {k: decode(v, device) for k, v in sample["kwargs"].items()}
    kind, _, name = sample["call"].partition(":")
    if name:
        found = {
            "method": lambda: getattr(args[0], name),
            "attr": lambda: lambda: getattr(args[0], name),
        }
        if kind == "operator":
            return getattr(operator, name)(*args, **kwargs)
        return found[kind]()(*args[1:], **kwargs)
    target = torch
    for part in kind.split("."):
        target = getattr(target, part)
    return target(*args, **kwargs)


def flatten(result):
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, tuple | list) and not isinstance(result, torch.Size):
        return [leaf for item in result for leaf in flatten(item)]
    return [result]


def check_layout(got, want):
    assert list(got.shape) == want["shape"]
    assert str(got.dtype).rpartition(".")[2] == want["dtype"]
    if got.numel() == 0:
        return
    strides = [want.get(k) for k in ("stride", "stride2") if want.get(k)] or [
        contiguous(want["shape"])
    ]
    seen = [s for s, n in zip(got.stride(), want["shape"], strict=True) if n > 1]
    assert seen in [
        [s for s, n in zip(option, want["shape"], strict=True) if n > 1] for option in strides
    ]


def check_values(got, want):
    raw = base64.b64decode(want["data"])
    name = want["dtype"]
    if name == "bfloat16":
        expected = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        actual = got.float().resolve_conj().contiguous().numpy().reshape(-1)
    else:
        expected = np.frombuffer(raw, NUMPY[name])
        actual = got.resolve_conj().resolve_neg().contiguous().numpy().reshape(-1)
    rtol, atol = want.get("tol") or TOLERANCE.get(name, (0, 0))
    keep = np.ones(expected.size, bool)
    keep[want.get("skip", [])] = False
    np.testing.assert_allclose(actual[keep], expected[keep], rtol=rtol, atol=atol, equal_nan=True)


CALLS = [(s, "cpu") for s in SAMPLES] + [(s, "meta") for s in SAMPLES if s["meta"]]


@pytest.mark.parametrize(("sample", "device"), CALLS, ids=[f"{d}-{s['id']}" for s, d in CALLS])
def test_recorded_call(sample, device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = flatten(call(sample, device))
    wanted = sample["cpu"]["out"]
    assert len(results) == len(wanted)
    for got, want in zip(results, wanted, strict=True):
        check_layout(got, want)
        assert got.device.type == device
        if device == "cpu" and want.get("data") and not sample.get("random"):
            check_values(got, want)


def test_recorded_calls_cover_many_ops():
    assert len({s["id"].partition("/")[0] for s in SAMPLES}) > 250


def test_every_row_is_reachable():
    """Each form of each row is an attribute where its name says."""
    missing = []
    for full, _, forms, _ in _C._op_table():
        path = full.partition("#")[0]
        *modules, name = path.split(".")
        holder = torch
        for m in modules:
            holder = getattr(holder, m, None)
        if forms & 1 and not hasattr(holder, name):
            missing.append(path)
        if forms & 2 and not hasattr(torch.Tensor, name):
            missing.append(f"Tensor.{name}")
        if forms & 4 and not hasattr(torch.Tensor, f"{name}_"):
            missing.append(f"Tensor.{name}_")
        if forms & 256 and not hasattr(holder, f"{name}_"):
            missing.append(f"{path}_")
    assert not missing


def test_every_row_has_a_sentence_and_unique_name():
    rows = _C._op_table()
    assert len({r[0] for r in rows}) == len(rows)
    assert not [r[0] for r in rows if r[2] and not r[3] and not r[0].startswith("_")]


UNARY = [
    (name, forms)
    for name, schema, forms, _ in _C._op_table()
    if schema == "(Tensor self)" and forms & 15 == 15 and "." not in name
]


@pytest.mark.parametrize(("name", "forms"), UNARY, ids=[n for n, _ in UNARY])
@pytest.mark.parametrize(
    "layout", ["contiguous", "transposed", "offset", "expanded", "empty", "scalar"]
)
def test_forms_agree(name, forms, layout):
    """Function = method = in-place = out, and meta says the same layout."""
    x = torch.linspace(0.1, 0.9, 12).reshape(3, 4)
    if name in ("bitwise_not",):
        x = torch.arange(12).reshape(3, 4)
    if name == "acosh":
        x = x + 1
    x = {
        "contiguous": lambda: x,
        "transposed": lambda: x.t(),
        "offset": lambda: x[1:, 1:],
        "expanded": lambda: x[:1].expand(5, 4),
        "empty": lambda: x[:0],
        "scalar": lambda: x[0, 0],
    }[layout]()
    function = getattr(torch, name)
    want = function(x)
    assert torch.equal(getattr(x, name)(), want)
    out = torch.empty(0, dtype=want.dtype)
    assert function(x, out=out) is out
    assert torch.equal(out, want)
    if layout != "expanded":
        y = x.clone()
        assert getattr(y, f"{name}_")() is y
        assert torch.equal(y, want.to(y.dtype))
    on_meta = function(x.to("meta"))
    assert (on_meta.shape, on_meta.dtype) == (want.shape, want.dtype)
    if layout not in ("expanded", "offset"):  # moving to meta makes these dense
        assert on_meta.stride() == want.stride()


# What this library has of its own, the modules that its files import, and names that PyTorch's `dir` does not list.
OWN = {
    "torch": {
        "CheckpointError", "clear_meta_init_cache", "compat", "context", "deferred", "fork_rng", "is_meta_init",
        "materialize", "meta_init", "plan", "safetensors",
        # An alias has the forms of what it stands for; PyTorch has negative_ but not this.
        "absolute_",
        "onnx",  # which waits for its first use there too, unseen
        "sparse_sampled_addmm",  # of PyTorch's `ops.aten` alone
    },
    "torch.Tensor": {"names", "source", "to_device"},
}  # fmt: skip


def public_names():
    """PyTorch's public names, by namespace."""
    for line in (DATA.parent / "public_names.txt").read_text().splitlines()[1:]:
        namespace, _, names = line.partition(": ")
        yield namespace, set(names.split())


@pytest.mark.parametrize(
    ("namespace", "known"), list(public_names()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_no_public_name_is_ours_alone(namespace, known):
    holder = torch
    for part in namespace.split(".")[1:]:
        holder = getattr(holder, part)
    names = {n for n in dir(holder) if not n.startswith("_")}
    assert names - known - OWN.get(namespace, set()) == set()


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64])
def test_bernoulli_writes_zeros_and_ones_of_any_real_type(dtype):
    torch.manual_seed(0)
    wanted = torch.bernoulli(torch.full((8,), 0.5))
    torch.manual_seed(0)
    out = torch.empty(8, dtype=dtype)
    torch.bernoulli(torch.full((8,), 0.5), out=out)
    assert torch.equal(out, wanted.to(dtype))
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        torch.bernoulli(torch.full((8,), 0.5), out=torch.empty(8, dtype=torch.complex64))


def test_none_stands_for_no_dimensions_where_none_are_the_default():
    x = torch.arange(6.0).view(2, 3)
    assert torch.amax(x, None) == 5 and x.amin(dim=None, keepdim=True).shape == (1, 1)
    assert torch.equal(torch.roll(x, 1, None), x.flatten().roll(1).view(2, 3))
    assert torch.equal(torch.max_pool1d(x, 2, None), torch.max_pool1d(x, 2))
    with pytest.raises(TypeError, match="must be tuple of ints, not NoneType"):
        x.flip(None)


def test_tensors_of_one_element_are_sizes_and_places():
    two, one = torch.tensor([2]), torch.tensor([1])
    x = torch.arange(4)
    assert torch.zeros(two, one).shape == torch.zeros((two, 1)).shape == (2, 1)
    assert x.view(two, -1).shape == x.reshape(two, two).shape == (2, 2)
    assert x.select(0, one) == 1 and x.topk(two).values.tolist() == [3, 2]
    assert 0 <= torch.randint(0, two, (1,)) < 2 and torch.eye(two).shape == (2, 2)
    assert [t.tolist() for t in x.split(two)] == [[0, 1], [2, 3]]
    with pytest.raises(TypeError, match=r"'dim' .* must be int, not Tensor"):
        x.unsqueeze(torch.tensor([0]))
    with pytest.raises(TypeError, match="must be int, not Tensor"):
        torch.eye(torch.tensor([2, 2]))
