"""PyTorch's numbers for the cases of benches/gemm.rs."""

import time

import torch


def best(f):
    f()
    t_best, start = 1e9, time.perf_counter()
    while time.perf_counter() - start < 0.25:
        t = time.perf_counter()
        f()
        t_best = min(t_best, time.perf_counter() - t)
    return t_best


def case(name, dtype, m, n, k, nt, batch=1):
    lead = (batch,) if batch > 1 else ()
    a = torch.ones(*lead, m, k, dtype=dtype)
    b = (
        torch.ones(*lead, n, k, dtype=dtype).transpose(-1, -2)
        if nt
        else torch.ones(*lead, k, n, dtype=dtype)
    )
    c = torch.empty(*lead, m, n, dtype=dtype)
    t = best(lambda: torch.matmul(a, b, out=c))
    print(
        f"{name:5} {'NT' if nt else 'NN'} {batch:3}x {m:5}x{n:5}x{k:5}  {2 * batch * m * n * k / t / 1e9:8.1f} GFLOP/s"
    )


for threads in (1, 2):
    torch.set_num_threads(threads)
    print(f"{threads} thread(s)")
    for nt in (False, True):
        for s in (64, 128, 256, 512, 1024, 2048):
            case("f32", torch.float32, s, s, s, nt)
        for m in (1, 4, 32):
            case("f32", torch.float32, m, 4096, 4096, nt)
        for m, n, k in ((16, 1024, 256), (256, 3072, 768), (512, 1024, 4096)):
            case("f32", torch.float32, m, n, k, nt)
        case("f32", torch.float32, 64, 64, 64, nt, 64)
        case("f64", torch.float64, 1024, 1024, 1024, nt)
        case("bf16", torch.bfloat16, 1024, 1024, 1024, nt)
        case("bf16", torch.bfloat16, 1, 4096, 4096, nt)
        case("f16", torch.float16, 1024, 1024, 1024, nt)
