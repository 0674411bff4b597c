"""Reading checkpoints of every format: what comes out, what is refused, and what is read when."""

import array
import base64
import collections
import datetime
import decimal
import fractions
import gzip
import io
import json
import os
import pathlib
import pickle
import struct
import tarfile
import uuid
import zipfile
from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

import torchlike as torch
from torchlike import nn
from torchlike.serialization import Opaque

DATA = pathlib.Path(__file__).parent / "data" / "ckpt"
MORE = DATA / "more"
GOOD = DATA / "good"
GGUF_BLOCKS = json.loads(gzip.decompress((DATA.parent / "gguf_blocks.json.gz").read_bytes()))


def zip_of(obj, root="archive", protocol=2):
    """A checkpoint without tensors around anything Python can pickle."""
    return zip_of_pickle(pickle.dumps(obj, protocol), root)


def zip_of_pickle(data, root="archive"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(f"{root}/data.pkl", data)
        z.writestr(f"{root}/version", "3\n")
    return io.BytesIO(out.getvalue())


def values(protocol):
    yield {1: [2.5, None, True], "a": (b"bytes", bytearray(b"ba"), 1 << 80)}
    yield Namespace(lr=0.1, sub=Namespace(x=[1]))
    yield SimpleNamespace(a=1)
    yield collections.defaultdict(list, {"a": [1]})
    yield collections.deque([1, 2, 3], maxlen=5)
    yield collections.Counter("abca")
    yield collections.OrderedDict([("z", 1), ("a", 2)])
    yield [datetime.date(2020, 1, 2), datetime.time(3, 4), datetime.timedelta(1, 2, 3)]
    yield datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    yield pathlib.PurePosixPath("a/b")
    yield pathlib.PureWindowsPath("C:\\x")
    yield decimal.Decimal("1.10")
    yield fractions.Fraction(1, 7)
    yield uuid.UUID(int=5)
    yield frozenset({1, 2})
    yield [range(3, 9, 2), slice(1, None, 2), ..., NotImplemented, type(None)]
    yield [int, float, str, dict]
    yield array.array("d", [1.0, 2.0])
    yield complex(1, -2)
    yield np.float32(1.5)
    yield np.dtype(">f4")
    yield np.bool_(True)


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_of_the_standard_library_and_numpy(protocol):
    for value in values(protocol):
        if protocol < 2 and isinstance(value, array.array):
            continue  # its reducer needs protocol 3 for bytes
        got = torch.load(zip_of(value, protocol=protocol), weights_only=False)
        assert type(got) is type(value), value
        assert got == value


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "made",
    [
        np.arange(6, dtype="f8").reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype="i4").reshape(2, 3)),
        np.array(3, dtype="u2"),
        np.array(["ab", "c"]),
        np.array([b"ab", b"c"]),
        np.zeros(0, dtype="c16"),
        np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.array([1, "a", None], dtype=object),
    ],
    ids=lambda a: str(a.dtype),
)
def test_arrays(made, protocol):
    got = torch.load(zip_of(made, protocol=protocol), weights_only=False)
    assert got.dtype == made.dtype
    assert got.shape == made.shape
    assert got.tolist() == made.tolist()
    assert got.flags.f_contiguous == made.flags.f_contiguous


def test_random_states_of_numpy():
    state = np.random.RandomState(3)
    got = torch.load(zip_of(state), weights_only=False)
    assert got.randint(1000) == state.randint(1000)
    generator = np.random.default_rng(3)
    got = torch.load(zip_of(generator, protocol=4), weights_only=False)
    assert got.integers(1000) == generator.integers(1000)


def test_data_beyond_tensors_is_refused_by_default():
    with pytest.raises(
        pickle.UnpicklingError, match=r"GLOBAL argparse\.Namespace was not an allowed"
    ):
        torch.load(zip_of(Namespace(a=1)))


class Config(dict):
    def __init__(self, *args):
        super().__init__(*args)
        self.extra = 5


def foreign(name):
    """A pickle of an object of a class that exists nowhere."""
    return (
        b"\x80\x02cnolib.models\n" + name.encode() + b"\n)\x81}(X\x05\x00\x00\x00depthK\x03"
        b"X\x04\x00\x00\x00nextNub."
    )


def test_unknown_classes_become_opaque():
    with pytest.raises(pickle.UnpicklingError, match=r"nolib\.models\.Net"):
        torch.load(zip_of_pickle(foreign("Net")))
    got = torch.load(zip_of_pickle(foreign("Net")), weights_only=False)
    assert isinstance(got, Opaque)
    assert (got.module, got.name, got.state) == ("nolib.models", "Net", {"depth": 3, "next": None})
    assert got.depth == 3
    with pytest.raises(AttributeError, match=r"nolib\.models\.Net"):
        _ = got.width
    # What a function would return nobody can know.
    with pytest.raises(pickle.UnpicklingError, match=r"nolib\.models\.make"):
        torch.load(zip_of_pickle(b"\x80\x02cnolib.models\nmake\n)R."), weights_only=False)


@pytest.mark.parametrize(
    "name",
    ["posix\nsystem", "builtins\neval", "subprocess\nPopen", "torch.hub\nload", "numpy\nload"],
)
@pytest.mark.parametrize("how", [b"R", b"\x81"])
def test_nothing_is_called(name, how, tmp_path):
    canary = tmp_path / "canary"
    text = f"open({str(canary)!r}, 'w')".encode()
    data = (
        b"\x80\x02c" + name.encode() + b"\nX" + struct.pack("<I", len(text)) + text + b"\x85" + how
    )
    for tail in (b".", b"0N."):  # used, and thrown away again
        with pytest.raises(pickle.UnpicklingError):
            torch.load(zip_of_pickle(data + tail), weights_only=False)
    assert not canary.exists()


def test_registered_classes_are_called():
    data = zip_of(Config({"a": 1}))
    with pytest.raises(pickle.UnpicklingError, match="Config"):
        torch.load(data)
    data.seek(0)
    with torch.serialization.safe_globals([Config]):
        assert torch.serialization.get_safe_globals() == [Config]
        got = torch.load(data)
    assert type(got) is Config
    assert got == {"a": 1}
    assert got.extra == 5
    assert torch.serialization.get_safe_globals() == []
    # Under the name that a file has for it.
    net = zip_of_pickle(foreign("Net"))
    with torch.serialization.safe_globals([(SimpleNamespace, "nolib.models.Net")]):
        assert torch.load(net) == SimpleNamespace(depth=3, next=None)
    net.seek(0)
    assert torch.serialization.get_unsafe_globals_in_checkpoint(net) == ["nolib.models.Net"]


# Tensors that are more than strided.


@pytest.mark.parametrize("where", ["cpu", "meta"])
def test_sparse_tensors(where):
    t = torch.load(MORE / "sparse_coo.pt", map_location=where)
    assert t.layout == torch.sparse_coo
    assert t.is_sparse
    assert t.device.type == where
    assert t._indices().shape[0] == t.sparse_dim()
    for name, layout in (("csr", "sparse_csr"), ("csc", "sparse_csc"), ("block", "sparse_bsr")):
        t = torch.load(MORE / f"sparse_{name}.pt", map_location=where)
        t = t[0] if isinstance(t, list) else t
        assert str(t.layout) == f"torchlike.{layout}"
        with pytest.raises(NotImplementedError, match="compressed sparse tensors"):
            t + 1
        dense = torch.materialize(t).to_dense()
        assert dense.shape == t.shape
        assert dense.count_nonzero() <= t.values().numel()


def test_sparse_parts_must_fit():
    from torchlike import _C

    indices, values = torch.tensor([[0, 5]]), torch.ones(2)
    with pytest.raises(RuntimeError, match="index 5 lies outside a dimension of 4"):
        _C._sparse_coo(indices, values, [4], False)
    made = _C._sparse_coo(torch.tensor([[3, 1, 3]]), torch.tensor([1.0, 2.0, 3.0]), [4], False)
    assert made.to_dense().tolist() == [0, 2, 0, 4]
    assert made.coalesce().indices().tolist() == [[1, 3]]
    assert made.coalesce().values().tolist() == [2, 4]


@pytest.mark.parametrize("kind", ["per_tensor", "per_channel", "4_bits", "2_bits"])
def test_quantized_tensors(kind):
    path = MORE / f"quantized_{kind}.pt"
    t = torch.load(path)
    assert t.is_quantized
    assert t.dequantize().shape == t.shape
    with pytest.raises(NotImplementedError, match="mmap=True"):
        torch.load(path, map_location="meta")
    assert torch.equal(torch.load(path, mmap=True).dequantize(), t.dequantize())


def test_nested_tensors():
    for where in ("cpu", "meta"):
        t = torch.load(MORE / "nested_strided.pt", map_location=where)
        assert t.is_nested
        assert [tuple(x.shape) for x in t.unbind()] == [(2, 3), (1, 3)]


# Modules and generators.


def test_whole_modules():
    net = torch.load(MORE / "module_convnet.pt", weights_only=False)
    assert isinstance(net, nn.Sequential)
    assert isinstance(net[0], nn.Conv2d)
    tied = torch.load(MORE / "module_tied.pt", weights_only=False)["net"]
    assert tied[0].weight is tied[1].weight
    layer = torch.load(
        MORE / "module_transformer_layer.pt", weights_only=False, map_location="meta"
    )
    assert layer.self_attn.out_proj.weight.is_meta
    torch.materialize(layer)
    assert layer.eval()(torch.ones(2, 1, 4)).shape == (2, 1, 4)
    assert isinstance(torch.load(MORE / "legacy_module.pt", weights_only=False), nn.Linear)
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules"):
        torch.load(MORE / "module_convnet.pt")


def test_objects_of_pytorch_without_a_meaning_here_are_kept():
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.optim\.adam\.Adam"):
        torch.load(MORE / "training_objects.pt")
    got = torch.load(MORE / "training_objects.pt", weights_only=False, map_location="meta")
    (group,) = got["optimizer"].param_groups
    assert group["lr"] == 0.001
    assert group["params"][0].shape == (2, 3)
    factory = got["scaler"].state["_per_optimizer_states"].default_factory
    with pytest.raises(TypeError, match="_refresh_per_optimizer_state"):
        factory()
    # A hook that is data fails where it would be called: the module does not go on without it.
    net = torch.load(MORE / "module_weight_norm.pt", weights_only=False)
    assert set(net.state_dict()) == {"bias", "weight_g", "weight_v"}
    with pytest.raises(TypeError, match="Opaque"):
        net(torch.ones(1, 3))


def test_the_old_format_with_the_old_pickles():
    got = torch.load(MORE / "legacy_protocol_1.pt")
    assert got["w"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_torch_objects():
    assert torch.load(MORE / "torchobj_qscheme.pt")[0] is torch.per_tensor_affine
    made = torch.load(MORE / "torchobj_return_type.pt", weights_only=False)
    assert made.values.shape == made.indices.shape
    assert isinstance(
        torch.load(MORE / "torchobj_generator.pt", weights_only=False), torch.Generator
    )


# Other formats.


def test_tar_and_torchscript_and_views_of_old_storages():
    for name in ("tar_tensors.pt", "tar_views.pt"):
        real = torch.load(MORE / name)
        meta = torch.load(MORE / name, map_location="meta")
        assert len(real) == len(meta) > 0
    traced = torch.load(MORE / "torchscript_traced.pt")
    assert traced
    assert all(isinstance(t, torch.Tensor) for t in traced.values())
    assert torch.load(MORE / "old_view_metadata.pt")[0].shape == (4,)


def test_two_in_one_file():
    (path,) = MORE.glob("fileobj_two_in_sequence*")
    with open(path, "rb") as f:
        first, second = torch.load(f), torch.load(f)
        assert f.read() == b""
    assert first is not second


@pytest.mark.parametrize("folder", ["sharded", "sharded_bin"])
def test_shards(folder, tmp_path):
    from shutil import copytree

    copy = copytree(MORE / folder, tmp_path / "copy")
    whole = torch.load(copy)
    (index,) = copy.glob("*.index.json")
    again = torch.load(index, map_location="meta")
    assert list(whole) == list(again)
    torch.materialize(again)
    assert all(torch.equal(whole[k], again[k]) for k in whole)
    files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    os.remove(copy / files[0])
    with pytest.raises(RuntimeError, match=f"is missing, the first is .*{files[0]}.*download it"):
        torch.load(index)


def test_an_index_cannot_lead_elsewhere(tmp_path):
    for name in ("../x.safetensors", "/etc/passwd", "model.safetensors.index.json"):
        index = tmp_path / "model.safetensors.index.json"
        index.write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(RuntimeError):
            torch.load(index)


def test_distributed_checkpoints():
    real = torch.load(MORE / "dcp")
    assert real["step"] == 5
    assert real["cfg"] == {"name": "a"}
    meta = torch.load(MORE / "dcp", map_location="meta")
    assert meta["model"]["w"].is_meta
    assert torch.equal(torch.materialize(meta["model"]["w"]), real["model"]["w"])


def gguf(kind, shape, data, values=()):
    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(values))
    for key, number in values:
        out += text(key) + struct.pack("<II", 4, number)
    out += text("w") + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
    out += struct.pack("<IQ", kind, 0)
    return out + b"\0" * (-len(out) % 32) + data


def test_gguf_numbers():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 32)).astype("f4")
    got = torch.load(gguf(0, (2, 32), x.tobytes()))["w"]
    assert np.array_equal(got.numpy(), x)
    # Q8_0: blocks of 32 with one scale.
    q = rng.integers(-127, 128, (2, 32)).astype("i1")
    data = b"".join(np.float16(0.5).tobytes() + row.tobytes() for row in q)
    got = torch.load(gguf(8, (2, 32), data))["w"]
    assert got.dtype == torch.float32
    assert np.array_equal(got.numpy(), q * np.float32(0.5))
    # Q4_0: two numbers in a byte, the first half of the block in the low bits.
    q = rng.integers(0, 16, 32)
    data = np.float16(2).tobytes() + bytes(
        int(a | b << 4) for a, b in zip(q[:16], q[16:], strict=True)
    )
    got = torch.load(gguf(2, (32,), data))["w"]
    assert got.tolist() == [(v - 8) * 2.0 for v in q.tolist()]
    # Q1_0 and Q2_0: one scale, and the first numbers in the low bits.
    bits = rng.integers(0, 2, 128)
    data = np.float16(0.25).tobytes() + np.packbits(bits.astype("u1"), bitorder="little").tobytes()
    assert torch.load(gguf(41, (128,), data))["w"].tolist() == (bits * 0.5 - 0.25).tolist()
    q = rng.integers(0, 4, 64)
    packed = sum(q.reshape(16, 4)[:, i] << 2 * i for i in range(4)).astype("u1")
    got = torch.load(gguf(42, (64,), np.float16(0.5).tobytes() + packed.tobytes()))["w"]
    assert got.tolist() == ((q - 1) * 0.5).tolist()
    blob = gguf(0, (1,), b"\0" * 4, [("general.block_count", 7)])
    assert torch.serialization.file_metadata(blob) == {"general.block_count": "7"}
    with pytest.raises(RuntimeError, match="truncated"):
        torch.load(gguf(0, (2, 32), x.tobytes()[:-1]))


@pytest.mark.parametrize("kind", GGUF_BLOCKS)
def test_gguf_blocks_are_the_numbers_that_ggml_makes_of_them(kind):
    number, block, want = GGUF_BLOCKS[kind]
    want = np.frombuffer(base64.b64decode(want), "<f4")
    blob = gguf(number, (2, len(want)), 2 * base64.b64decode(block))
    assert torch.load(blob, map_location="meta")["w"].shape == (2, len(want))
    for row in torch.load(blob)["w"]:
        np.testing.assert_allclose(row.numpy(), want, rtol=1e-6)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(save, tmp_path):
    arrays = {
        "a": np.arange(6, dtype="f4").reshape(2, 3),
        "big": np.arange(3, dtype=">i4"),
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "zero": np.array(5, dtype="u1"),
        "names": np.array(["x", "yz"]),
    }
    save(tmp_path / "x.npz", **arrays)
    got = torch.load(tmp_path / "x.npz")
    assert got["names"] == ["x", "yz"]
    for k in ("a", "big", "f", "zero"):
        assert got[k].tolist() == arrays[k].tolist()
    assert got["f"].stride() == (1, 2)
    meta = torch.load(tmp_path / "x.npz", map_location="meta")
    assert torch.materialize(meta["big"]).tolist() == [0, 1, 2]
    np.save(tmp_path / "x.npy", arrays["a"])
    assert torch.load(tmp_path / "x.npy").tolist() == arrays["a"].tolist()
    np.savez(tmp_path / "o.npz", o=np.array([{}], dtype=object))
    with pytest.raises(RuntimeError, match="pickled Python objects"):
        torch.load(tmp_path / "o.npz")


def test_a_tar_that_is_no_checkpoint(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as t:
        t.add(__file__, "source.py")
    with pytest.raises(RuntimeError, match="tar archive"):
        torch.load(path)


# Where the bytes are, and when they are read.


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "x.pt"
    state = {
        "a.weight": torch.arange(200_000.0).reshape(1000, 200),
        "a.bias": torch.arange(5),
        "b.weight": torch.ones(3),
    }
    torch.save(state, path)
    return path, state


def test_map_location_in_all_forms(saved):
    path, state = saved
    for where in ("meta", "meta:0", torch.device("meta"), {"cpu": "meta"}):
        assert torch.load(path, map_location=where)["a.weight"].is_meta
    seen = []
    got = torch.load(path, map_location=lambda s, where: seen.append(where) or s)
    assert seen == ["cpu"] * 3
    assert torch.equal(got["a.weight"], state["a.weight"])
    assert not torch.load(path, map_location=lambda s, where: None)["a.bias"].is_meta
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        torch.load(path, map_location="nowhere")
    with pytest.raises(TypeError, match="map_location"):
        torch.load(path, map_location=5)


@pytest.mark.parametrize("mmap", [False, True])
def test_from_path_bytes_and_files(saved, mmap):
    path, state = saved
    forms = [path, str(path)] if mmap else [path, path.read_bytes(), io.BytesIO(path.read_bytes())]
    for form in forms:
        got = torch.load(form, mmap=mmap)
        got["a.weight"] += 1  # is this process's own
        assert torch.equal(got["a.bias"], state["a.bias"])
    with open(path, "rb") as f:
        assert torch.equal(torch.load(f)["a.weight"], state["a.weight"])


def test_slices_read_only_their_bytes(saved):
    path, state = saved
    meta = torch.load(path, map_location="meta")
    w = meta["a.weight"]
    for index in (slice(10, 20), (slice(None), 3), 999, (slice(0, 900, 300), slice(5, 7))):
        assert torch.equal(torch.materialize(w, index=index), state["a.weight"][index])
        assert w.is_meta
    assert torch.equal(
        torch.materialize(w.t(), index=(2, slice(1, 4))), state["a.weight"].t()[2, 1:4]
    )


def test_names_choose(saved):
    path, state = saved
    meta = torch.load(path, map_location="meta")
    assert torch.materialize(meta, names="a.*") is meta
    assert [t.is_meta for t in meta.values()] == [False, False, True]
    assert torch.equal(meta["a.bias"], state["a.bias"])
    with pytest.raises(KeyError, match=r"c\.\*"):
        torch.materialize(meta, names=["b.*", "c.*"])


def test_assigned_state_becomes_real(tmp_path):
    path = tmp_path / "x.pt"
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    torch.save(net.state_dict(), path)
    with torch.device("meta"):
        other = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    other.load_state_dict(torch.load(path, map_location="meta"), assign=True)
    torch.materialize(other[1])
    assert other[0].weight.is_meta
    torch.materialize(other)
    x = torch.ones(1, 3)
    assert torch.equal(other(x), net(x))


def test_a_changed_file_is_an_error(saved):
    path, _ = saved
    meta = torch.load(path, map_location="meta")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(RuntimeError, match="has changed since it was loaded: its size was"):
        torch.materialize(meta["a.bias"])
    path.write_bytes(data)
    os.utime(path, (1, 1))
    with pytest.raises(RuntimeError, match="it was written to"):
        torch.materialize(meta["a.bias"])
    os.remove(path)
    with pytest.raises(RuntimeError, match="cannot be opened any more"):
        torch.materialize(meta["a.bias"])


def test_one_step_tensors_are_the_same_as_many_steps():
    # A pickle that refers to the shape of an earlier tensor cannot be read in one step each.
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\nq\x01((X\x07\x00\x00\x00storageq\x02ctorch\nFloatStorage\nq\x03"
        b"X\x01\x00\x00\x000q\x04X\x03\x00\x00\x00cpuq\x05K\x02tq\x06QK\x00K\x02\x85q\x07K\x01\x85q\x08\x89"
        b"ccollections\nOrderedDict\nq\x09)Rq\x0atq\x0bRq\x0c"
    )
    again = (
        b"h\x01((h\x02h\x03X\x01\x00\x00\x001q\x0dh\x05K\x02tq\x0eQK\x00K\x02\x85q\x0fK\x01\x85q\x10"
        b"\x89h\x09)Rq\x11tq\x12Rq\x13"
    )
    for tail, expect in ((b"t.", None), (b"h\x0ft.", (2,)), (b"h\x13t.", "same")):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            z.writestr("a/data.pkl", b"\x80\x02(" + tensor + again + tail)
            for key, numbers in (("0", (1, 2)), ("1", (3, 4))):
                z.writestr(f"a/data/{key}", np.array(numbers, "f4").tobytes())
        got = torch.load(out.getvalue())
        assert got[0].tolist() == [1, 2]
        assert got[1].tolist() == [3, 4]
        if expect == "same":
            assert got[2] is got[1]
        elif expect is not None:
            assert got[2] == expect
