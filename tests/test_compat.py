"""`import torch` gives torchlike: aliases, names, metadata, pickles, scripts and the hook."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import torchlike
from torchlike.compat import _hook, _run
from torchlike.torch_version import TorchVersion

INSTALL = "import torchlike.compat; torchlike.compat.install_as_torch()\n"


def run(code: str, *args: str, env: dict[str, str] | None = None, cwd: str | None = None) -> str:
    """What a program prints; it has to end well."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def installed(code: str, *args: str) -> str:
    """The same, with torchlike as `torch`."""
    return run(INSTALL + textwrap.dedent(code), *args)


def test_modules_are_the_same_objects_and_run_once() -> None:
    assert (
        installed("""
        import sys
        import torch, torchlike
        assert torch is torchlike
        import torch.nn.functional as F
        assert F is torchlike.nn.functional
        import torch.utils.data.distributed, torch.signal.windows, torch.library
        assert torch.library is torchlike.library and torch.signal.windows is torchlike.signal.windows
        from torch.nn.attention.flex_attention import flex_attention
        import torchlike.nn.attention.flex_attention as own
        assert own.flex_attention is flex_attention
        for name, module in list(sys.modules.items()):
            if name.startswith("torchlike"):
                alias = sys.modules.get("torch" + name[9:])
                assert alias is None or alias is module, name
        import torch.hub
        assert torch.hub.__spec__.name == "torchlike.hub"
        import torch._C
        assert torch._C is torchlike._C
        try:
            import torch.there_is_none
        except ModuleNotFoundError as e:
            print(e)
        try:
            torch.there_is_none
        except AttributeError as e:
            print(e)
        """)
        == "No module named 'torch.there_is_none'\nmodule 'torch' has no attribute 'there_is_none'"
    )


def test_parts_of_packages_that_wait_run_once() -> None:
    assert (
        installed("""
        import sys
        import torchlike.optim.optimizer, torchlike.fx.graph, torchlike.distributions.normal
        import torch
        assert torch.optim.optimizer is sys.modules["torchlike.optim.optimizer"]
        from torchlike.optim.optimizer import register_optimizer_step_pre_hook as register
        with torch.no_grad():
            p = torch.nn.Parameter(torch.ones(1))
            p.grad = torch.ones(1)
            handle = register(lambda *_: print("before"))
            torch.optim.SGD([p]).step()
        assert torch.distributions.Normal is torchlike.distributions.normal.Normal
        assert torch.fx.Graph is torchlike.fx.graph.Graph
        """)
        == "before"
    )


def test_everything_says_torch_while_it_is_installed() -> None:
    said = installed("""
        import torch
        from torch.distributions import Normal
        print(torch.__name__, torch.float32, torch.strided, torch.contiguous_format, torch.per_tensor_affine)
        print(torch.Size([2]), torch.Tensor, torch.device, torch.nn.Linear, Normal, torch.nn.functional.relu.__module__)
        print(torch.max(torch.ones(1, 1), 0).__class__, repr(torch.zeros(0).untyped_storage()).strip())
        print(torch.optim.SGD, torch.ones(1, dtype=torch.float64))
        class Mine(torch.nn.Module): pass
        print(Mine, Mine.__mro__[1])
    """).splitlines()
    assert said == [
        "torch torch.float32 torch.strided torch.contiguous_format torch.per_tensor_affine",
        "torch.Size([2]) <class 'torch.Tensor'> <class 'torch.device'> <class 'torch.nn.modules.linear.Linear'> "
        "<class 'torch.distributions.normal.Normal'> torch.nn.functional",
        "<class 'torch.return_types.max'> [torch.storage.UntypedStorage(device=cpu) of size 0]",
        "<class 'torch.optim.sgd.SGD'> tensor([1.], dtype=torch.float64)",
        "<class '__main__.Mine'> <class 'torch.nn.modules.module.Module'>",
    ]


def test_functorch_is_a_package() -> None:
    assert (
        installed("""
        import functorch, torch
        from functorch.einops import rearrange
        from functorch.experimental import chunk_vmap
        from functorch.experimental.control_flow import cond
        assert cond is torch.cond and functorch.vmap(torch.sin)(torch.ones(2)).shape == (2,)
        try:
            import functorch.nothing
        except ModuleNotFoundError as e:
            print(e.name)
    """)
        == "functorch.nothing"
    )


def test_version_and_metadata() -> None:
    assert installed("""
        import importlib.metadata as m, importlib.util as u
        import torch
        assert str(torch.__version__).startswith("2.13.0") and torch.__version__ >= (2, 13)
        assert torch.version.__version__ == m.version("torch") and m.version("torch").startswith("2.13.0")
        assert u.find_spec("torch") and u.find_spec("torch.nn") and not u.find_spec("torch.none")
        assert m.packages_distributions()["torch"] == ["torch"]
        assert m.distribution("torch").metadata["Name"] == "torch"
        assert torch.version.cuda is None and torch.version.hip is None and torch.version.git_version
        print(torch.cuda.__name__)
    """).endswith("cuda")


def test_uninstall_undoes_it() -> None:
    assert (
        installed("""
        import sys
        import torch
        from torch import nn
        import torch.distributions.normal as normal
        torchlike.compat.install_as_torch()
        assert torchlike.compat.installed_as_torch()
        torchlike.compat.uninstall()
        torchlike.compat.uninstall()
        assert not torchlike.compat.installed_as_torch()
        assert not [n for n in sys.modules if n.split(".")[0] == "torch"]
        assert torch.__name__ == "torchlike" and torchlike.__version__ == torchlike.version.__version__ == "0.1.0"
        print(torch.float32, torch.Size([1]), nn.Linear, normal.Normal)
        try:
            import torch
        except ModuleNotFoundError as e:
            assert e.name == "torch"
        torchlike.compat.install_as_torch()
        import torch
        assert str(torch.int8) == "torch.int8" and normal.Normal.__module__ == "torch.distributions.normal"
        """)
        == "torchlike.float32 torchlike.Size([1]) <class 'torchlike.nn.modules.linear.Linear'> "
        "<class 'torchlike.distributions.normal.Normal'>"
    )


def test_an_installed_pytorch_is_left_alone(tmp_path: Path) -> None:
    """A package of the name `torch` on the path: hidden while torchlike stands for it; an error if it is imported."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("real = True\n")
    (package / "only_theirs.py").write_text("")
    before = sorted(p.name for p in package.iterdir())
    env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    code = """
        import torchlike.compat
        torchlike.compat.install_as_torch()
        import torch
        assert torch is torchlike
        try:
            import torch.only_theirs
        except ModuleNotFoundError:
            pass
        torchlike.compat.uninstall()
        import torch as theirs
        assert theirs.real
        try:
            torchlike.compat.install_as_torch()
        except RuntimeError as e:
            print(str(e).split(" (")[0])
        assert theirs.real and not torchlike.compat.installed_as_torch()
    """
    assert run(code, env=env) == "PyTorch is imported already"
    assert sorted(p.name for p in package.iterdir()) == before


def test_pickles_of_plain_pickle_and_of_save(tmp_path: Path) -> None:
    """What is written as `torch` loads without it being installed, and the other way round."""
    file = tmp_path / "m.pt"
    installed(
        """
        import pickle, sys, torch
        for value in (torch.float32, torch.add, torch.Size([2]), torch.nn.Linear, torch.device("cpu")):
            assert pickle.loads(pickle.dumps(value)) == value
        assert b"torchlike" not in pickle.dumps(torch.nn.Linear) + pickle.dumps(torch.float32)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again[0].weight, model[0].weight)
        torch.save(model, sys.argv[1])
        """,
        str(file),
    )
    assert b"torchlike.nn" not in file.read_bytes()
    loaded = torchlike.load(file, weights_only=False)
    assert type(loaded[0]) is torchlike.nn.Linear
    torchlike.save(loaded, file)
    installed(
        "import sys, torch; m = torch.load(sys.argv[1], weights_only=False); "
        "assert type(m[0]).__module__ == 'torch.nn.modules.linear'",
        str(file),
    )


def test_scripts_modules_and_code_run_with_torch(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, pickle\nfrom beside import value\n"
        "class Own:\n    pass\n"
        "assert isinstance(pickle.loads(pickle.dumps(Own())), Own)\n"
        "print(__name__, sys.argv[1:], value, torch.float32)\nsys.exit(3)\n"
    )

    def command(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "torchlike", *args], capture_output=True, text=True, cwd=tmp_path
        )

    done = command(str(script), "a", "-b")
    assert (done.returncode, done.stdout) == (3, "__main__ ['a', '-b'] 7 torch.float32\n")
    done = command("-m", "script", "c")
    assert (done.returncode, done.stdout) == (3, "__main__ ['c'] 7 torch.float32\n")
    done = command("-c", "import torch, sys; print(torch.int8, sys.argv)", "d")
    assert (done.returncode, done.stdout) == (0, "torch.int8 ['-c', 'd']\n")
    assert (
        "Usage: torchlike COMMAND" in command("--help").stdout
    )  # the commands of checkpoints are still there
    assert command("no_such_command").returncode == 2
    done = command("no_such_script.py")
    assert done.returncode == 1 and done.stderr.startswith(
        "torchlike: can't open file 'no_such_script.py'"
    )
    script.write_text(
        "import sys, torch, torch.multiprocessing as mp\n"
        "def work(rank, queue):\n    queue.put((rank, str(torch.float32), __file__ == sys.argv[1]))\n"
        "if __name__ == '__main__':\n"
        "    queue = mp.get_context('spawn').Queue()\n    mp.spawn(work, (queue,), nprocs=1)\n"
        "    print(queue.get(), __file__ == sys.argv[1])\n"
    )
    done = command("script.py", str(script))
    assert (done.returncode, done.stdout) == (0, "(0, 'torch.float32', True) True\n"), done.stderr
    assert not _run.wanted([]) and not _run.wanted(["list", "x.py"]) and not _run.wanted(["-m"])


def test_the_hook_is_written_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_hook, "path", lambda: tmp_path / _hook.NAME)
    assert not _hook.remove()
    assert _hook.command(["install"]) == 0 and (tmp_path / _hook.NAME).read_text() == _hook.LINE
    assert _hook.command(["status"]) == 0 and str(tmp_path) in capsys.readouterr().out
    line = "import sys; exec(open(sys.argv[1]).read())\n"
    asked = line + "import torch; print(torch.float32)"
    assert (
        run(asked, str(tmp_path / _hook.NAME), env={"TORCHLIKE_AS_TORCH": "1"}) == "torch.float32"
    )
    idle = line + "print('torchlike' in sys.modules)"
    assert run(idle, str(tmp_path / _hook.NAME), env={"TORCHLIKE_AS_TORCH": "0"}) == "False"
    assert _hook.command(["remove"]) == 0 and not (tmp_path / _hook.NAME).exists()
    assert _hook.command(["status"]) == 0 and _hook.command(["other"]) == 2


def test_the_package_is_there_without_an_import_of_its_own() -> None:
    run(
        "import torchlike; torchlike.compat.install_as_torch(); import torch; assert torch is torchlike"
    )


def test_installing_is_cheap() -> None:
    """No module runs that was waiting to be asked for, but those of `compat`."""
    code = """
        import sys
        import torchlike
        import torchlike.compat
        waiting = [n for n, m in sys.modules.items() if type(m).__name__ == "_LazyModule"]
        torchlike.compat.install_as_torch()
        assert waiting and all(type(sys.modules[n]).__name__ == "_LazyModule" for n in waiting)
        assert "importlib.metadata" not in sys.modules
    """
    run(code)


def test_versions_compare_by_their_numbers() -> None:
    v = TorchVersion("2.13.0+torchlike")
    assert v == "2.13.0+torchlike" and v != "2.13.0" and v >= "2.13" and v > "2.9" and v < (2, 14)
    assert v > TorchVersion("2.13.0a0") and TorchVersion("2.1") == (2, 1, 0) and v != "junk"
    assert (
        hash(v) == hash("2.13.0+torchlike") and TorchVersion("1.0rc1") < "1.0" and v <= [2, 13, 1]
    )
    with pytest.raises(TypeError, match="not supported between instances"):
        assert v > 3
