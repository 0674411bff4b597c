"""Checkpoints of every format: where their bytes are, and when they are read."""

import base64
import gzip
import io
import json
import os
import pathlib
import struct
import tarfile
import zipfile

import numpy as np
import pytest

import torchlike as torch
from torchlike import nn

DATA = pathlib.Path(__file__).parent / "data" / "ckpt"
MORE = DATA / "more"
GOOD = DATA / "good"
GGUF_BLOCKS = json.loads(gzip.decompress((DATA.parent / "gguf_blocks.json.gz").read_bytes()))


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
