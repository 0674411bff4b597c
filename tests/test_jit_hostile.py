"""Archives of TorchScript that mean harm: nothing in them is executed, nothing hangs or takes memory."""

import io
import time
import zipfile

import pytest

import torchlike as torch
from torchlike import jit, nn

BODY = "    return x"


def archive(forward=BODY, *, extra="", klass="", rename=None):
    """An archive whose `forward` has a text of ours."""
    buffer = io.BytesIO()
    jit.save(jit.script(nn.Identity()), buffer)
    out = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("linear.py"):
                data = (
                    f"{extra}class Identity(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
                    f"{klass}  def forward(self, x: Tensor) -> Tensor:\n{forward}\n"
                ).encode()
            new.writestr((rename or {}).get(name, name), data)
    return io.BytesIO(out.getvalue())


def test_the_way_it_is_made_works():
    assert torch.equal(
        jit.load(archive("    return torch.add(x, 1)"))(torch.ones(2)), torch.full((2,), 2.0)
    )


HARM = [
    "    return __import__('os').system('touch HARM')",
    "    return eval('1')",
    "    return open('HARM', 'w')",
    "    return x.__class__.__mro__",
    "    return getattr(x, '__class__')",
    "    return torch.load('HARM')",
    "    return torch.hub.load('a', 'b')",
    "    return ops.os.system('touch HARM')",
    "    return ops.aten.__class__",
    "    return torch.utils.cpp_extension.load('HARM')",
    "    return __torch__.os.system('touch HARM')",
    "    return '{0.__class__}'.format(x).__class__",
    "    return self.__dict__",
    "    return self.save('HARM')",
    "    return (self).__reduce__()",
    "    return [].__class__.__base__.__subclasses__()",
    "    return x.numpy().tofile('HARM')",
    "    return x.register_hook(print)",
    "    return CONSTANTS.c99",
    "    self.forward = print\n    return x",
    "    self._spec = x\n    return x",
    "    return isinstance(x, __import__('os'))",
    "    return torch.__class__('a', (), {})",
    "    return torch.from_file('HARM', True, 8)",
    "    return ops.load_library.x('HARM')",
    "    return ops.loaded_libraries.add('HARM')",
    "    return torch.linalg.sys",
    "    return math.sys.exit()",
]


@pytest.mark.parametrize("text", HARM)
def test_nothing_is_executed(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((jit.CompilationUnitError, jit.Error, RuntimeError, NotImplementedError)):
        jit.load(archive(text))(torch.ones(2))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "    import os\n    return x",
        "    from os import system\n    return x",
        "    return (lambda: x)()",
        "    f'{x}'\n    return x",
        "    async def f(): pass\n    return x",
        "    try:\n      pass\n    except: pass\n    return x",
        "    global a\n    return x",
        "    del x",
        "    yield x",
        "    return (y := x)",
        "    return {*x}",
        "    return print(*x)",
        "    return b'bytes'",
        "    def f(y): pass\n    return x",
        "    def f():\n      y = fork(f)\n      return y\n    return fork(f)",
        "    with x:\n      pass\n    return x",
        "    return " + "(" * 300 + "x" + ")" * 300,
        "    return " + "-" * 100_000 + "1",
        "    return x" + ".a" * 5000,
        "    return " + "+".join(["1"] * 5000),
        "    return 'unfinished",
        "  return x",
        "\x00",
    ],
)
def test_code_that_is_no_torchscript_is_refused(text):
    start = time.monotonic()
    with pytest.raises((jit.CompilationUnitError, jit.Error, RuntimeError)):
        jit.load(archive(text))(torch.ones(2))
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    "text",
    [
        "    y = [0] * 1000000000000\n    return x",
        "    y = 'a' * 1000000000000\n    return x",
        "    return torch.mul([1], 1000000000000)",
        "    return (self).forward(x, )",
    ],
)
def test_code_that_would_take_all_memory_fails(text):
    with pytest.raises(RuntimeError):
        jit.load(archive(text))(torch.ones(2))


def test_powers_do_not_grow():
    text = "    return torch.add(x, torch.sub(torch.pow(torch.pow(10, 100), 100), torch.pow(torch.pow(10, 100), 100)))"
    assert jit.load(archive(text))(torch.ones(2)).shape == (2,)
    text = "    n = 9\n    for i in range(70):\n      n = n * n\n    return torch.add(x, n)"
    assert jit.load(archive(text))(torch.ones(2)).shape == (2,)


def test_loading_runs_no_code():
    model = jit.load(archive("    while True:\n      pass\n    return x"))
    assert "while True" in model.code


def test_classes_that_are_something_else():
    for extra, klass in (
        ("class Evil(Exception):\n  pass\n", ""),
        ("x = 1 + 1\nfor i in x: pass\n", ""),
        ("", "  @property\n"),
        ("", "  evil = __import__('os')\n  for i in 1: pass\n"),
    ):
        with pytest.raises(RuntimeError):
            jit.load(archive(extra=extra, klass=klass))


def test_bombs(tmp_path):
    """Code that inflates beyond all measure, and damaged archives."""
    buffer = archive()
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        bomb = zipfile.ZipInfo("archive/code/__torch__/bomb.py")
        bomb.compress_type = zipfile.ZIP_DEFLATED
        with new.open(bomb, "w") as record:
            for _ in range(80):
                record.write(b"#" * (1 << 20))
    with pytest.raises(RuntimeError, match="too large"):
        jit.load(str(path))
    whole = archive().getvalue()
    for cut in (10, len(whole) // 3, len(whole) // 2, len(whole) - 5):
        with pytest.raises((RuntimeError, torch.CheckpointError, EOFError)):
            jit.load(io.BytesIO(whole[:cut]))
    with pytest.raises(RuntimeError):
        jit.load(io.BytesIO(b"no archive at all"))
    torch.save({"a": torch.ones(2)}, tmp_path / "plain.pt")
    with pytest.raises(RuntimeError, match="no TorchScript archive"):
        jit.load(str(tmp_path / "plain.pt"))
