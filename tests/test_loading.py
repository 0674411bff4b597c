"""What checkpoints hold: plain data, tensors of every kind, modules, and what is refused."""

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import io
import json
import os
import pathlib
import pickle
import struct
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


def test_functions_with_arguments_are_kept_uncalled():
    given = {
        "layer": functools.partial(torch.nn.LayerNorm, eps=1e-6),
        "softmax": functools.partial(torch.nn.functional.softmax, dim=1),
        "print": functools.partial(print, "text"),
        "forward": torch.nn.Linear(2, 2).forward,
        "len": len,
    }
    file = io.BytesIO()
    torch.save(given, file)
    file.seek(0)
    got = torch.load(file, weights_only=False)
    assert got["layer"].func is torch.nn.LayerNorm and got["layer"](3).eps == 1e-6
    assert torch.equal(got["softmax"](torch.ones(1, 2)), torch.full((1, 2), 0.5))
    assert got["print"].args == ("text",)
    assert got["forward"](torch.ones(1, 2)).shape == (1, 2)
    for unknown in (got["print"], got["len"]):
        with pytest.raises(TypeError, match="came from a checkpoint as a name"):
            unknown()


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


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), 3

    def forward(self, x):
        return self.layer(x) * self.scale


class Counted(Own):
    """One whose objects do not come from nothing."""

    def __new__(cls, number):
        made = super().__new__(cls)
        made.number = number
        return made

    def __init__(self, number):
        super().__init__()


class Running(Own):
    """One that has a say in how it is made again."""

    def __setstate__(self, state):
        raise AssertionError("code of a class ran")


class Kind(enum.Enum):
    ONE, TWO = 1, "two"


def test_members_of_enumerations_that_the_program_has():
    file = io.BytesIO()
    torch.save({"kind": Kind.TWO, Kind.ONE: 1}, file, _use_new_zipfile_serialization=False)
    got = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert got == {"kind": Kind.TWO, Kind.ONE: 1}
    changed = file.getvalue().replace(b"two", b"six")
    with pytest.raises(pickle.UnpicklingError, match="a member of Kind"):
        torch.load(io.BytesIO(changed), weights_only=False)


def test_modules_of_classes_that_the_program_has(monkeypatch):
    file = io.BytesIO()
    model = nn.Sequential(Own(), Running(), Counted(7))
    torch.save(model, file)
    with pytest.raises(pickle.UnpicklingError, match="Sequential was not an allowed"):
        torch.load(io.BytesIO(file.getvalue()))
    monkeypatch.setattr(Own, "__init__", lambda self: pytest.fail("a constructor ran"))
    got = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert type(got[0]) is Own and got[0].scale == 3
    assert torch.equal(got[0](torch.ones(1, 2)), model[0](torch.ones(1, 2)))
    assert isinstance(got[1], Opaque) and got[1].scale == 3
    assert type(got[2]) is Counted and got[2].number == 7
    monkeypatch.delattr(__import__(__name__), "Own")
    gone = torch.load(io.BytesIO(file.getvalue()), weights_only=False, map_location="meta")
    assert isinstance(gone[0], Opaque)


@pytest.mark.parametrize("path", [False, True])
def test_the_format_before_1_6_is_written_too(path, tmp_path):
    a = torch.randn(3, 4)
    given = {
        "tied": [a, a[1:], a.t(), nn.Parameter(a)],
        "bits": a.to(torch.float8_e4m3fn),
        "words": torch.arange(8).view(torch.int32),
        "half": a.bfloat16(),
        "none": torch.empty(0),
        "plain": (1, "x", 2.5, None),
    }
    target = tmp_path / "old.pt" if path else io.BytesIO()
    torch.save(given, target, _use_new_zipfile_serialization=False)
    if not path:
        torch.save([1], target, _use_new_zipfile_serialization=False)
        target.seek(0)
    data = target.read_bytes() if path else target.getvalue()
    assert data.startswith(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19")
    got = torch.load(target)
    for x, y in zip(got["tied"], given["tied"], strict=True):
        assert torch.equal(x, y) and type(x) is type(y)
        assert x.untyped_storage().data_ptr() == got["tied"][0].untyped_storage().data_ptr()
    for name in ("words", "half", "none"):
        assert torch.equal(got[name], given[name])
    assert torch.equal(got["bits"].float(), given["bits"].float())
    assert got["plain"] == given["plain"]
    assert path or torch.load(target) == [1]


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


def test_the_pickle_module_of_python_may_be_named():
    file = io.BytesIO()
    torch.save({"a": Namespace(b=1)}, file, pickle_module=pickle)
    file.seek(0)
    assert torch.load(file, pickle_module=pickle)["a"].b == 1
    file.seek(0)
    with pytest.raises(RuntimeError, match="when explicit pickle_module is specified"):
        torch.load(file, pickle_module=pickle, weights_only=True)
    with pytest.raises(TypeError, match="no other pickle_module"):
        torch.load(file, pickle_module=json)


class Around(torch.nn.Module):
    """A module that asks another one for what it has not."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


def test_modules_that_say_what_they_have_are_modules_again():
    file = io.BytesIO()
    torch.save(Around(torch.nn.Linear(2, 3)), file)
    file.seek(0)
    got = torch.load(file, weights_only=False)
    assert type(got) is Around
    assert got.out_features == 3
    assert got.state_dict().keys() == {"inner.weight", "inner.bias"}


def test_a_process_may_work_elsewhere_meanwhile(tmp_path, monkeypatch):
    torch.save({"a": torch.arange(3)}, tmp_path / "c.pt")
    monkeypatch.chdir(tmp_path)
    state = torch.load("c.pt", map_location="meta")
    monkeypatch.chdir("/")
    assert torch.materialize(state["a"]).tolist() == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_nobody_waits_for_who_writes_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe.pt")
    with pytest.raises(OSError, match=r"pipe\.pt.*is not a regular file"):
        torch.load(tmp_path / "pipe.pt", map_location="meta")


def of_python_2(text: bytes) -> io.BytesIO:
    """A checkpoint of a dictionary with a string that has no encoding for its key."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        short = b"U" + bytes([len(text)]) + text
        archive.writestr("archive/data.pkl", b"\x80\x02}" + short + b"K\x01s.")
        archive.writestr("archive/version", "3\n")
    file.seek(0)
    return file


@pytest.mark.parametrize("safe", [True, False])
def test_strings_of_python_2_have_the_encoding_that_is_asked_for(safe):
    def key(text, **how):
        (made,) = torch.load(of_python_2(text), weights_only=safe, **how)
        return made

    for text, encoding, wanted in (
        (b"a", None, "a"),
        (b"a", "bytes", b"a"),
        (b"a", "ascii", "a"),
        (b"\xe9", "latin1", "\xe9"),
        (b"\xe9", "cp1252", "\xe9"),
        (b"\xe9", "bytes", b"\xe9"),
        (b"\xc3\xa9", "utf-8", "\xe9"),
        (b"\xc3\xa9", "latin1", "\xc3\xa9"),
    ):
        assert key(text, **({} if encoding is None else {"encoding": encoding})) == wanted
    with pytest.raises(UnicodeDecodeError, match="ascii"):
        key(b"\xe9", encoding="ascii")
    with pytest.raises(LookupError, match="unknown encoding: nosuch"):
        key(b"a", encoding="nosuch")
