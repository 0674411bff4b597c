//! Matrix products in GFLOP/s: `cargo bench --bench gemm`; `benches/gemm_torch.py` prints PyTorch's numbers for the same cases.

#![allow(unsafe_code, reason = "the products take matrices by pointer")]

use half::{bf16, f16};
use std::time::Instant;
use torchlike::host::gemm::{GemmElement, Mat, MatMut, gemm, gemm_batch};
use torchlike::host::pool;

fn best(mut f: impl FnMut()) -> f64 {
    f();
    let (mut best, start) = (f64::MAX, Instant::now());
    while start.elapsed().as_millis() < 250 {
        let t = Instant::now();
        f();
        best = best.min(t.elapsed().as_secs_f64());
    }
    best
}

fn case<T: GemmElement>(
    name: &str,
    m: usize,
    n: usize,
    k: usize,
    nt: bool,
    batch: usize,
    one: T,
    alpha: T::Scale,
    beta: T::Scale,
) {
    let a = vec![one; batch * m * k];
    let b = vec![one; batch * k * n];
    let mut c = vec![one; batch * m * n];
    let bm = if nt {
        Mat::new(b.as_ptr(), 1, k as isize)
    } else {
        Mat::new(b.as_ptr(), n as isize, 1)
    };
    let (am, cm) = (
        Mat::new(a.as_ptr(), k as isize, 1),
        MatMut::new(c.as_mut_ptr(), n as isize, 1),
    );
    let t = best(|| {
        // SAFETY: the buffers hold `batch` matrices each.
        unsafe {
            if batch == 1 {
                gemm(m, n, k, alpha, am, bm, beta, cm, None);
            } else {
                gemm_batch(
                    batch,
                    m,
                    n,
                    k,
                    alpha,
                    (am, (m * k) as isize),
                    (bm, (k * n) as isize),
                    beta,
                    (cm, (m * n) as isize),
                );
            }
        }
    });
    let flops = 2.0 * (batch * m * n * k) as f64;
    println!(
        "{name:5} {} {batch:3}x {m:5}x{n:5}x{k:5}  {:8.1} GFLOP/s",
        if nt { "NT" } else { "NN" },
        flops / t / 1e9
    );
}

fn main() {
    for threads in [1, 2] {
        pool::set_num_threads(threads);
        println!("{threads} thread(s)");
        for nt in [false, true] {
            for s in [64, 128, 256, 512, 1024, 2048] {
                case("f32", s, s, s, nt, 1, 1f32, 1.0, 0.0);
            }
            case("f32", 1, 4096, 4096, nt, 1, 1f32, 1.0, 0.0);
            case("f32", 4, 4096, 4096, nt, 1, 1f32, 1.0, 0.0);
            case("f32", 32, 4096, 4096, nt, 1, 1f32, 1.0, 0.0);
            for (m, n, k) in [(16, 1024, 256), (256, 3072, 768), (512, 1024, 4096)] {
                case("f32", m, n, k, nt, 1, 1f32, 1.0, 0.0);
            }
            case("f32", 64, 64, 64, nt, 64, 1f32, 1.0, 0.0);
            case("f64", 1024, 1024, 1024, nt, 1, 1f64, 1.0, 0.0);
            case("bf16", 1024, 1024, 1024, nt, 1, bf16::ONE, 1.0, 0.0);
            case("bf16", 1, 4096, 4096, nt, 1, bf16::ONE, 1.0, 0.0);
            case("f16", 1024, 1024, 1024, nt, 1, f16::ONE, 1.0, 0.0);
        }
    }
}
