"""The tests of GPUs on an emulated one (`gpu/`), and what the emulator finds."""

import subprocess
import sys

import pytest

import emulated_gpu
import torchlike as torch

pytestmark = [
    pytest.mark.skipif(not emulated_gpu.can_be_built(), reason="no C++ compiler"),
    pytest.mark.skipif(not torch._C._has_cuda, reason="built without CUDA"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
]


def _python(*args, **more):
    return subprocess.run(
        [sys.executable, *args],
        env=emulated_gpu.environment(**more),
        capture_output=True,
        text=True,
        check=False,
    )


FILES = [f"test_cuda{which}.py" for which in ("", "_kernels", "_rows", "_random", "_devices")]


@pytest.mark.parametrize("file", FILES)
def test_gpu_tests_pass_in_whatever_order_threads_run(file):
    path = emulated_gpu.HERE / file
    # `make gpu` tests all rows.
    emulated = {"EMULATED_ORDER": "random", "EMULATED_GPUS": "2", "EVERY_NTH_ROW": "4"}
    done = _python("-m", "pytest", "-m", "cuda", path, **emulated)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


_LAUNCH = """
import ctypes
cuda, nvrtc = ctypes.CDLL("libcuda.so"), ctypes.CDLL("libnvrtc.so")
program, size, context = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_void_p()
nvrtc.nvrtcCreateProgram(ctypes.byref(program), TEXT, b"k", 0, None, None)
assert nvrtc.nvrtcCompileProgram(program, 0, None) == 0
nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
image = ctypes.create_string_buffer(size.value)
nvrtc.nvrtcGetCUBIN(program, image)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
memory, module, function = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), 4096) == 0
assert cuda.cuModuleLoadData(ctypes.byref(module), image) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
args = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
print("code", cuda.cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, None, args, None), flush=True)
back = (ctypes.c_int * 64)()
cuda.cuMemcpyDtoHAsync_v2(back, memory, 256, None)
print("values", list(back) == list(range(63, -1, -1)), flush=True)
"""


def _launched(body, after="", **more):
    """What becomes of a kernel whose 64 threads are to write the numbers below 64 backwards."""
    text = f'extern "C" __global__ void k(int* out) {{ const unsigned t = threadIdx.x; {body} }}\n'
    return _python("-c", f"TEXT = {text.encode()!r}\n{_LAUNCH}\n{after}", **more)


_TURNED = "__shared__ int all[64]; all[t] = t; {} out[t] = all[63 - t];"


@pytest.mark.parametrize("order", ["", "random"])
@pytest.mark.parametrize("barrier", [True, False])
def test_a_missing_barrier_is_seen(barrier, order):
    done = _launched(_TURNED.format("__syncthreads();" if barrier else ""), EMULATED_ORDER=order)
    assert done.stdout == f"code 0\nvalues {barrier}\n", done.stderr


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("if (t % 32 < 16) __syncwarp(); __syncthreads();", "lanes of a warp wait in different"),
        ("__shared__ int all[4]; copy_16(shared_address(all), out, 16);", "before its copies have"),
    ],
)
def test_misuse_is_an_error(body, text):
    done = _launched(body)
    assert done.stdout.startswith("code 719\n")
    assert text in done.stderr


@pytest.mark.parametrize(
    ("body", "after"),
    [("out[1024 + t] = 0;", ""), ("out[t] = 0;", "ctypes.string_at(memory.value, 1)")],
    ids=["behind_a_block", "by_the_host"],
)
def test_memory_that_is_not_there_cannot_be_touched(body, after):
    assert _launched(body, after).returncode < 0
