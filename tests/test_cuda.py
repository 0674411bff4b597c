"""GPUs: what can be said without one, the kernels' texts through NVRTC, and results beside the CPU's."""

import ctypes
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import torchlike as torch

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="torchlike.cuda.is_available() is False"
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_questions_are_answered_and_uses_are_errors():
    assert torch.cuda.device_count() == 0
    assert not torch.cuda.is_initialized()
    assert torch.cuda.memory_allocated() == 0
    torch.cuda.empty_cache()
    torch.cuda.manual_seed_all(0)
    error, text = (
        (RuntimeError, "Found no NVIDIA driver on your system")
        if torch._C._has_cuda
        else (AssertionError, "Torch not compiled with CUDA enabled")
    )
    for use in (
        lambda: torch.zeros(2, device="cuda"),
        lambda: torch.zeros(2).cuda(),
        lambda: torch.rand(2, device="cuda:0"),
        torch.cuda.current_device,
        torch.cuda.synchronize,
        torch.cuda.get_device_name,
    ):
        with pytest.raises(error, match=text):
            use()


def test_asking_for_a_gpu_prints_nothing():
    code = "import torchlike; torchlike.cuda.is_available(); torchlike.cuda.device_count()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b""
    assert done.stderr == b""


def _nvrtc():
    """NVRTC from TORCHLIKE_NVRTC (a file) or NVIDIA's Python package."""
    given = os.environ.get("TORCHLIKE_NVRTC")
    files = [Path(given)] if given else []
    if not files:
        spec = importlib.util.find_spec("nvidia")
        for root in (spec.submodule_search_locations or []) if spec else []:
            files += sorted(Path(root).glob("*/lib/libnvrtc.so.*"))
    if not files:
        pytest.skip("no NVRTC: set TORCHLIKE_NVRTC or install nvidia-cuda-nvrtc")
    for builtins in sorted(files[0].parent.glob("libnvrtc-builtins.so.*")):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(files[0]))


def _compile(lib, name, text, arch):
    program = ctypes.c_void_p()
    assert (
        lib.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
        == 0
    )
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture=compute_{arch}".encode(), b"--std=c++14")
    failed = lib.nvrtcCompileProgram(program, 2, options)
    size = ctypes.c_size_t()
    lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetProgramLog(program, log)
    lib.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() if failed else ""


@pytest.mark.parametrize("arch", [80, 90])
def test_every_kernel_compiles(arch):
    sources = torch._C._cuda_sources()
    assert len(sources) > 1000
    if not os.environ.get("TORCHLIKE_ALL_KERNELS"):
        sources = sources[:: len(sources) // 40]  # all of them take minutes
    lib = _nvrtc()
    bad = {name: log for name, text in sources if (log := _compile(lib, name, text, arch))}
    assert bad == {}


DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64]
LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "sliced": lambda t: t[:, ::2, 1:],
    "expanded": lambda t: t[:, :1].expand(-1, 3, -1),
}


def _values(dtype, shape=(3, 8, 5)):
    torch.manual_seed(1)
    if dtype.is_complex:
        return torch.complex(torch.randn(shape), torch.randn(shape)).to(dtype)
    return (torch.randn(shape) * 3).to(dtype)


def _close(gpu, cpu):
    assert gpu.device.type == "cuda"
    assert gpu.dtype == cpu.dtype
    assert gpu.shape == cpu.shape
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-10}.get(
        cpu.dtype, 2e-5
    )
    assert torch.allclose(gpu.cpu(), cpu, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_copies_keep_values(dtype, layout):
    t = LAYOUTS[layout](_values(dtype))
    g = LAYOUTS[layout](_values(dtype).cuda())
    assert torch.equal(g.cpu(), t)
    assert torch.equal(t.cuda().cpu(), t)
    assert torch.equal(g.clone().cpu(), t)
    assert torch.equal(g.contiguous().cpu(), t)
    if not dtype.is_complex:
        for to in (torch.float32, torch.int32, torch.bool, torch.bfloat16):
            assert torch.equal(g.to(to).cpu(), t.to(to))


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_pointwise_matches_the_cpu(dtype, layout):
    t, g = LAYOUTS[layout](_values(dtype)), LAYOUTS[layout](_values(dtype).cuda())
    _close(g + g * 2, t + t * 2)
    _close(g * t[0, 0, 0], t * t[0, 0, 0])
    _close(g.add(g, alpha=3), t.add(t, alpha=3))
    _close(g == 1, t == 1)
    _close(torch.where(g == g, g, 0), torch.where(t == t, t, 0))
    names = ["exp", "sin", "sqrt", "tanh", "sigmoid", "log1p"]
    if not dtype.is_complex:
        names += ["floor", "sign", "relu", "isnan", "erf"]
        _close(torch.maximum(g, -g), torch.maximum(t, -t))
        _close(torch.clamp(g, -1, 1), torch.clamp(t, -1, 1))
    for name in names:
        _close(getattr(torch, name)(g), getattr(torch, name)(t))


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize("dim", [None, 0, 1, 2, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 8, 5), (2, 3, 70000), (70000, 3, 2), (1, 1, 1)])
def test_folds_match_the_cpu(shape, dim):
    t = _values(torch.float64, shape)
    g = t.cuda()
    for name in ("sum", "mean", "amax", "amin", "any", "all"):
        args = () if dim is None and name in ("any", "all") else (() if dim is None else (dim,))
        _close(getattr(g, name)(*args), getattr(t, name)(*args))
    _close(torch.linalg.vector_norm(g, 2, dim), torch.linalg.vector_norm(t, 2, dim))
    if not isinstance(dim, tuple):
        args = () if dim is None else (dim,)
        for name in ("argmax", "argmin", "prod"):
            _close(getattr(g, name)(*args), getattr(t, name)(*args))
    if isinstance(dim, int):
        for got, want in zip(g.max(dim), t.max(dim), strict=True):
            _close(got, want)


@pytest.mark.cuda
@needs_gpu
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_products_match_the_cpu(dtype):
    a, b, c = _values(dtype, (7, 5)), _values(dtype, (5, 9)), _values(dtype, (9,))
    batch = _values(dtype, (4, 7, 5))
    ga, gb, gc, gbatch = a.cuda(), b.cuda(), c.cuda(), batch.cuda()
    for got, want in (
        (ga @ gb, a @ b),
        (gb.t() @ ga.t(), b.t() @ a.t()),
        (gbatch @ gb, batch @ b),
        (torch.bmm(gbatch, gbatch.transpose(1, 2)), torch.bmm(batch, batch.transpose(1, 2))),
        (torch.addmm(gc, ga, gb, beta=2, alpha=3), torch.addmm(c, a, b, beta=2, alpha=3)),
        (torch.nn.functional.linear(ga, gb.t(), gc), torch.nn.functional.linear(a, b.t(), c)),
        (gb @ gc, b @ c),
        (gc @ gc, c @ c),
    ):
        scale = want.abs().max().item()
        _close(got / scale, want / scale)


@pytest.mark.cuda
@needs_gpu
def test_factories_and_draws():
    assert torch.equal(torch.arange(5, device="cuda").cpu(), torch.arange(5))
    assert torch.equal(torch.full((2, 3), 7, device="cuda").cpu(), torch.full((2, 3), 7))
    torch.cuda.manual_seed(0)
    first = torch.rand(100_000, device="cuda")
    torch.cuda.manual_seed(0)
    assert torch.equal(first, torch.rand(100_000, device="cuda"))
    assert abs(first.mean().item() - 0.5) < 0.01
    assert 0 <= first.amin().item() <= first.amax().item() < 1
    torch.cuda.manual_seed(0)  # what PyTorch prints for this seed
    known = torch.tensor([0.3990, 0.5167, 0.0249, 0.9401, 0.9459, 0.7967])
    assert torch.allclose(torch.rand(6, device="cuda").cpu(), known, atol=1e-4)
    torch.cuda.manual_seed(0)
    known = torch.tensor([-0.9247, -0.4253, -2.6438, 0.1452])
    assert torch.allclose(torch.randn(4, device="cuda").cpu(), known, atol=1e-3)
    whole = torch.randint(3, 9, (1000,), device="cuda")
    assert whole.dtype == torch.int64
    assert 3 <= whole.amin().item() <= whole.amax().item() < 9


@pytest.mark.cuda
@needs_gpu
def test_memory_is_counted_and_given_back():
    before = torch.cuda.memory_allocated()
    t = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() >= before + (4 << 20)
    del t
    assert torch.cuda.memory_allocated() == before
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() >= before
