"""Saving, safetensors, conversion, verification and the command line, without PyTorch."""

from __future__ import annotations

import argparse
import collections
import copy
import datetime
import decimal
import functools
import io
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import types
import zipfile
from typing import Any

import numpy as np
import pytest

import torchlike as torch
from torchlike import nn, safetensors, serialization

resource = pytest.importorskip("resource")


class _Stub:
    """Stands for PyTorch's classes and functions: remembers how it was called."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Plain(pickle.Unpickler):
    """Python's own unpickler, as PyTorch uses it, without PyTorch."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" or module.startswith("torch."):
            return type(f"{module}.{name}", (_Stub,), {})
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _unpickle(obj: Any) -> Any:
    out = io.BytesIO()
    torch.save(obj, out)
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        return _Plain(io.BytesIO(archive.read("archive/data.pkl"))).load()


def _header(path: Any) -> dict[str, Any]:
    data = pathlib.Path(path).read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    header: dict[str, Any] = json.loads(data[8 : 8 + n])
    return header


@functools.total_ordering
class Point:
    """A class of the user's."""

    def __init__(self, x: int) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.x == other.x

    def __repr__(self) -> str:
        return f"Point({self.x})"

    def __lt__(self, other: Point) -> bool:
        return self.x < other.x

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "obj",
    [
        argparse.Namespace(a=1, b=[2]),
        types.SimpleNamespace(x=1),
        pathlib.PurePosixPath("a/b"),
        collections.defaultdict(list, {"a": [1]}),
        collections.deque([1, 2], 3),
        collections.Counter("aab"),
        datetime.datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc),
        datetime.timedelta(1, 2, 3),
        decimal.Decimal("1.5"),
        range(1, 10, 2),
        slice(1, None, 2),
        ...,
        int,
        type(None),
        collections.OrderedDict,
        len,
        functools.reduce,
        np.float64(1.5),
        np.dtype(">i4"),
        2**200,
        -(2**200),
        b"\xff\x00",
        bytearray(b"abc"),
        frozenset([1, 2]),
        1 + 2j,
        "\ud800",
        Point(3),
    ],
    ids=repr,
)
def test_plain_objects_mean_the_same_to_pickle(obj: Any) -> None:
    back = _unpickle({"it": obj})["it"]
    assert type(back) is type(obj) and back == obj


def test_arrays_and_identity() -> None:
    shared = [1]
    a = np.arange(6).reshape(2, 3).T
    cycle: dict[str, Any] = {"a": a, "one": shared, "two": shared, "point": Point(1)}
    cycle["self"] = cycle
    cycle["point"].x = cycle
    back = _unpickle(cycle)
    assert back["self"] is back and back["one"] is back["two"] and back["point"].x is back
    assert (back["a"] == a).all() and back["a"].flags.f_contiguous


def test_modules_have_the_state_of_pytorch() -> None:
    made = _unpickle(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm2d(3), nn.GRU(2, 3)))
    assert type(made).__name__ == "torch.nn.modules.container.Sequential"
    linear, norm, gru = made.state["_modules"].values()
    assert type(linear).__name__ == "torch.nn.modules.linear.Linear"
    assert list(linear.state["_parameters"]) == ["weight", "bias"]
    assert linear.state["in_features"] == 2 and linear.state["_forward_hooks"] == {}
    assert list(norm.state["_buffers"]) == ["running_mean", "running_var", "num_batches_tracked"]
    assert gru.state["_flat_weights"] == list(gru.state["_parameters"].values())
    assert "_kinds" not in linear.state


def test_what_cannot_be_saved_is_named(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.pt"
    torch.save(1, path)
    for obj, error, words in [
        (lambda: 1, AttributeError, "Can't pickle local object .*<locals>.<lambda>"),
        ((x for x in []), TypeError, "generator"),
        (sys, TypeError, "module"),
    ]:
        with pytest.raises(error, match=words):
            torch.save({"a": torch.ones(3), "b": obj}, path)
    assert torch.load(path) == 1 and os.listdir(tmp_path) == ["a.pt"]


def test_hooks_are_not_saved_and_that_is_said(tmp_path: pathlib.Path) -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(print)
    with pytest.warns(
        UserWarning, match="backward hook .*print.* on tensor will not be serialized"
    ):
        torch.save({"x": x}, tmp_path / "a.pt")
    assert torch.load(tmp_path / "a.pt")["x"]._backward_hooks is None


def test_what_nobody_can_seek_in_is_refused(tmp_path: pathlib.Path) -> None:
    torch.save(1, tmp_path / "a.pt")
    whole = (tmp_path / "a.pt").read_bytes()

    class Stream(io.RawIOBase):
        """Bytes that come once."""

        def read(self, size: int = -1) -> bytes:
            return whole

    with pytest.raises(io.UnsupportedOperation, match="seekable"):
        torch.load(Stream())
    with pytest.raises(AttributeError, match="'int' object has no attribute 'seek'"):
        torch.load(5)


def test_file_objects() -> None:
    class Slow(io.RawIOBase):
        """Takes a little at a time."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            self.data += bytes(data[:100_000])
            return len(data[:100_000])

    x = torch.arange(300_000)
    slow = Slow()
    torch.save({"x": x}, slow)
    assert torch.equal(torch.load(io.BytesIO(slow.data))["x"], x)

    class Full(io.RawIOBase):
        def write(self, data: Any) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        torch.save({"x": x}, Full())
    assert caught.value.errno == 28


def test_meta_tensors(tmp_path: pathlib.Path) -> None:
    path, copy = tmp_path / "a.pt", tmp_path / "b.pt"
    x = torch.arange(12.0).reshape(3, 4).t()
    torch.save({"x": x, "tied": x[1:], "n": 1}, path)
    meta = torch.load(path, map_location="meta")
    torch.save(meta, copy)
    skeleton = torch.load(copy)
    assert skeleton["x"].is_meta and skeleton["x"].stride() == (1, 4) and skeleton["n"] == 1
    torch.save(meta, copy, materialize=True)
    back = torch.load(copy)
    assert meta["x"].is_meta and torch.equal(back["x"], x) and torch.equal(back["tied"], x[1:])
    assert back["x"].untyped_storage()._cdata == back["tied"].untyped_storage()._cdata
    with nn.utils.meta_init():
        recipe = torch.ones(3) * 2
    torch.save(recipe, copy, materialize=True)
    assert torch.load(copy).tolist() == [2, 2, 2]
    file = tmp_path / "a.safetensors"
    safetensors.save_file({"x": meta["x"]}, file)
    assert torch.equal(safetensors.load_file(file)["x"], x)
    with pytest.raises(NotImplementedError, match=r"'y'.*no data"):
        safetensors.save_file({"y": torch.ones(3, device="meta")}, file)


def test_safetensors_files(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.safetensors"
    x = torch.arange(12.0).reshape(3, 4)
    tensors = {"x": x, "t": x.t(), "tied": x, "half": torch.ones(3, dtype=torch.bfloat16)}
    safetensors.save_file(tensors, path, {"format": "pt"})
    header = _header(path)
    assert header["__metadata__"]["format"] == "pt" and "tied" not in header
    assert header["x"]["data_offsets"] == [48, 96] and header["t"]["data_offsets"] == [0, 48]
    back = safetensors.load_file(path)
    assert sorted(back) == sorted(tensors)
    for name, want in tensors.items():
        assert torch.equal(back[name], want) and back[name].is_contiguous()
    assert back["x"].untyped_storage()._cdata == back["tied"].untyped_storage()._cdata
    safetensors.save_file(tensors, path, duplicate=True)
    assert "tied" in _header(path) and "__metadata__" not in _header(path)
    assert all(t.is_meta for t in safetensors.load_file(path, device="meta").values())
    assert torch.equal(safetensors.load(safetensors.save(tensors))["t"], x.t())
    with safetensors.safe_open(path, "pt") as f:
        assert f.keys() == sorted(tensors) and f.metadata() is None
        assert torch.equal(f.get_tensor("t"), x.t())
        part = f.get_slice("x")
        assert part.get_shape() == [3, 4] and part.get_dtype() == "F32"
        assert torch.equal(part[1:, ::2], x[1:, ::2])
        with pytest.raises(safetensors.SafetensorError, match="nothing"):
            f.get_tensor("nothing")
    with pytest.raises(safetensors.SafetensorError, match="closed"):
        f.keys()
    for wrong in ([x], {"x": 1}, {1: x}):
        with pytest.raises(ValueError, match=r"Expected|expected"):
            safetensors.save_file(wrong, path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"complex128.*'c'"):
        safetensors.save_file({"c": x.to(torch.complex128)}, path)


def test_models(tmp_path: pathlib.Path) -> None:
    def tied() -> Any:
        m = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        m[1].weight = m[0].weight
        return m

    path = str(tmp_path / "m.safetensors")
    a, b = tied(), tied()
    safetensors.save_model(a, path)
    assert safetensors.load_model(b, path) == ([], [])
    assert torch.equal(a[1].weight, b[1].weight) and b[0].weight is b[1].weight


def test_shards(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "model.safetensors"
    tensors = {f"t{i}": torch.full((100,), float(i)) for i in range(6)}
    safetensors.save_file(tensors, path, max_shard_size="1KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2400
    assert sorted(set(index["weight_map"].values())) == [
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    ]
    for name, file in index["weight_map"].items():
        assert torch.equal(safetensors.load_file(tmp_path / file)[name], tensors[name])


def test_numpy_reads_what_is_converted(tmp_path: pathlib.Path) -> None:
    state = {
        "a": torch.arange(6).reshape(2, 3).t(),
        "b/c": torch.tensor(1.5),
        "e": torch.ones(0, 2),
    }
    torch.save(state, tmp_path / "a.pt")
    done = serialization.convert(tmp_path / "a.pt", tmp_path / "a.npz")
    assert done.tensors == 3 and done.left_out == []
    with np.load(tmp_path / "a.npz") as arrays:
        assert sorted(arrays) == sorted(state)
        for name, t in state.items():
            assert (arrays[name] == t.numpy()).all() and arrays[name].shape == tuple(t.shape)
    serialization.convert(tmp_path / "a.pt", tmp_path / "a.npy", include=["a"])
    assert (np.load(tmp_path / "a.npy") == state["a"].numpy()).all()
    torch.save({"a": torch.ones(1, dtype=torch.bfloat16)}, tmp_path / "b.pt")
    with pytest.raises(ValueError, match="bfloat16"):
        serialization.convert(tmp_path / "b.pt", tmp_path / "b.npz")


def test_convert_and_fingerprint(tmp_path: pathlib.Path) -> None:
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    pt, st, again = (tmp_path / n for n in ("a.pt", "a.safetensors", "b.pt"))
    torch.save({"state_dict": m.state_dict(), "epoch": 3}, pt)
    done = serialization.convert(pt, st)
    assert done.left_out == ["epoch"] and done.files == [str(st)]
    serialization.convert(st, again)
    prints = {serialization.fingerprint(p) for p in (pt, st, again)}
    assert len(prints) == 1
    serialization.convert(pt, st, prefix="state_dict.")
    assert sorted(safetensors.load_file(st)) == sorted(m.state_dict())
    assert serialization.fingerprint(st) not in prints


def test_whole_modules_give_the_names_of_their_state(tmp_path: pathlib.Path) -> None:
    m = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3)))
    torch.save({"model": m}, tmp_path / "a.pt")
    serialization.convert(tmp_path / "a.pt", tmp_path / "a.safetensors", prefix="model.")
    state = safetensors.load_file(tmp_path / "a.safetensors")
    assert sorted(state) == sorted(m.state_dict())
    assert torch.equal(state["0.weight"], m[0].weight)


def test_sparse_and_quantised_tensors(tmp_path: pathlib.Path) -> None:
    indices, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])
    coo = torch._C._sparse_coo(indices, values, [2, 2], True)
    path = tmp_path / "a.pt"
    torch.save({"coo": coo}, path)
    back = torch.load(path)["coo"]
    assert torch.equal(back.to_dense(), coo.to_dense())
    with pytest.raises(NotImplementedError, match=r"'coo'.*sparse"):
        safetensors.save_file({"coo": coo}, tmp_path / "a.safetensors")


def test_conversion_needs_memory_for_the_largest_tensor_only(tmp_path: pathlib.Path) -> None:
    size, count = 2 << 20, 16
    torch.save({f"t{i}": torch.full((size,), float(i)) for i in range(count)}, tmp_path / "a.pt")
    code = """
import resource, sys
from torchlike import serialization
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
serialization.convert(sys.argv[1], sys.argv[2])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    for target in ("a.safetensors", "a.npz", "b.pt"):
        command = [sys.executable, "-c", code, str(tmp_path / "a.pt"), str(tmp_path / target)]
        grown = int(subprocess.check_output(command)) * 1024
        assert grown < 3 * size * 4, f"{target}: {grown} bytes for tensors of {size * 4}"


def test_verify(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.pt"
    torch.save({"good": torch.ones(1000), "bad": torch.arange(1000.0)}, path)
    assert serialization.verify(path) == (2, 8000, 0)
    data = bytearray(path.read_bytes())
    at = data.index(struct.pack("<3f", 500, 501, 502))
    data[at] ^= 1
    path.write_bytes(data)
    torch.load(path)
    with pytest.raises(serialization._C.CheckpointError, match="'bad' is damaged"):
        torch.load(path, verify=True)
    with pytest.raises(serialization._C.CheckpointError, match="'bad' is damaged"):
        torch.load(path, verify=True, map_location="meta")
    with pytest.raises(serialization._C.CheckpointError, match="'bad' is damaged"):
        serialization.verify(path)


def _cli(*args: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torchlike._cli", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_command_line(tmp_path: pathlib.Path) -> None:
    a, b = tmp_path / "a.pt", tmp_path / "b.safetensors"
    torch.save({"x": torch.ones(3), "y": torch.zeros(2)}, a)
    assert _cli("convert", a, b).returncode == 0
    assert _cli("diff", "--values", "--tensors-only", a, b).returncode == 0
    done = _cli("fingerprint", "--json", a)
    assert json.loads(done.stdout)["fingerprint"] == serialization.fingerprint(b)
    safetensors.save_file({"x": torch.ones(3), "y": torch.ones(2)}, b)
    done = _cli("diff", "--values", a, b)
    assert done.returncode == 1 and "2 of 2 differ" in done.stdout and done.stderr == ""
    assert _cli("verify", a).returncode == 0
    done = _cli("inspect", tmp_path / "none")
    assert done.returncode == 2 and "No such file" in done.stderr
    done = _cli("tree", a)
    assert done.returncode == 0 and "├─ x: float32 [3], 12 B" in done.stdout
    # Nobody reads on: no error, no noise.
    command = f"{sys.executable} -m torchlike._cli inspect {a} | true"
    piped = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert piped.returncode == 0 and piped.stderr == b""


@pytest.mark.parametrize("again", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_lazily_negated_and_conjugated_tensors_are_copied_as_they_are(again: Any) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj()
    assert again(x).is_conj()
    assert torch.equal(again(x), x)
    assert again(x.imag).is_neg()
    assert torch.equal(again(x.imag), x.imag)


def test_what_is_saved_into_an_open_file_can_be_read_by_its_name(tmp_path):
    path = tmp_path / "open.pt"
    with open(path, "wb") as f:
        torch.save({"a": torch.ones(2)}, f)
        assert torch.load(path)["a"].tolist() == [1.0, 1.0]


class TestWithoutData:
    def test_room_is_made(self, tmp_path):
        path = tmp_path / "a.pt"
        whole = torch.arange(6.0)
        with torch.serialization.skip_data():
            torch.save({"whole": whole, "part": whole[2:4]}, path)
        found = torch.load(path)
        assert found["whole"].tolist() == [0.0] * 6
        found["whole"][2] = 7.0
        assert found["part"].tolist() == [7.0, 0.0]

    def test_nothing_is_read(self, tmp_path):
        path = tmp_path / "a.pt"
        torch.save({"a": torch.ones(3), "b": torch.zeros(2, dtype=torch.int8)}, path)
        with torch.serialization.skip_data():
            found = torch.load(path)
            on_meta = torch.load(path, map_location="meta")
        assert found["a"].shape == (3,) and found["a"].device.type == "cpu"
        assert found["b"].dtype == torch.int8 and on_meta["a"].is_meta
        assert torch.load(path)["a"].tolist() == [1.0] * 3

    def test_fake_tensors_as_real_ones(self, tmp_path):
        path = tmp_path / "a.pt"
        with torch._subclasses.FakeTensorMode():
            fake = torch.ones(2, 3)
        with torch.serialization.skip_data(materialize_fake_tensors=True):
            torch.save(fake, path)
        assert torch.load(path).tolist() == [[0.0] * 3] * 2


def test_files_that_do_not_say_their_order_of_bytes(tmp_path):
    path, bare = tmp_path / "a.pt", tmp_path / "b.pt"
    torch.save(torch.tensor([1, 256], dtype=torch.int16), path)
    with zipfile.ZipFile(path) as given, zipfile.ZipFile(bare, "w") as made:
        for name in given.namelist():
            if not name.endswith("byteorder"):
                made.writestr(name, given.read(name))
    s = torch.serialization
    try:
        assert torch.load(bare).tolist() == [1, 256]
        s.set_default_load_endianness(s.LoadEndianness.BIG)
        assert torch.load(bare).tolist() == [256, 1]
        assert torch.load(path).tolist() == [1, 256]
    finally:
        s.set_default_load_endianness(None)
