//! Undoing max pooling, and pooling over random windows.

use crate::cpu::pooling::{Rule, Window, Windows};
use crate::cpu::{self as host, copy};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::nn::pool::{each, execute, plan};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, ensure, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_fractional_max_pool",
        "(Tensor self, int[] kernel_size, int[] output_size, Tensor random_samples) -> (Tensor, Tensor)",
        0,
        KernelBody::new(infer_fractional, run_fractional),
        "",
    ),
    old_compose(
        "nn.functional.fractional_max_pool2d",
        "(Tensor input, int[2] kernel_size, int[2]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| fractional(a, 2, a.bool(4)),
        "Maxima of windows of random places.",
    ),
    old_compose(
        "nn.functional.fractional_max_pool3d",
        "(Tensor input, int[3] kernel_size, int[3]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| fractional(a, 3, a.bool(4)),
        "Maxima of windows of random places.",
    ),
    old_compose(
        "nn.functional.fractional_max_pool2d_with_indices",
        "(Tensor input, int[2] kernel_size, int[2]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| fractional(a, 2, true),
        "Maxima of windows of random places, and their positions.",
    ),
    old_compose(
        "nn.functional.fractional_max_pool3d_with_indices",
        "(Tensor input, int[3] kernel_size, int[3]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| fractional(a, 3, true),
        "Maxima of windows of random places, and their positions.",
    ),
];

fn fractional(a: &Args, n: usize, positions: bool) -> Result<Ret> {
    let x = a.tensor(0)?;
    let name = a.name().trim_end_matches("_with_indices");
    let kernel = each(a.ints(1)?, n, name, "kernel_size")?;
    let size = match (a.opt_ints(2), a.opt_floats(3)) {
        (Some(s), _) => each(s, n, name, "output_size")?,
        (None, Some(r)) => {
            ensure!(
                r.len() == n,
                Value,
                "{name} requires output_ratio to either be a single Int or tuple of Ints."
            );
            ensure!(x.ndim() >= n, Index, "Dimension out of range");
            (0..n)
                .map(|i| (x.shape()[x.ndim() - n + i] as f64 * r[i]) as i64)
                .collect()
        }
        (None, None) => bail!(
            Value,
            "{name} requires specifying either an output_size or an output_ratio"
        ),
    };
    let samples = match a.opt_tensor(5) {
        Some(t) => t.clone(),
        None => {
            ensure!(
                x.ndim() > n,
                Index,
                "Dimension out of range (expected to be in range of [-{}, {}], but got -{})",
                x.ndim().max(1),
                x.ndim().max(1) - 1,
                n + 1
            );
            let batch = if x.ndim() == n + 1 { 1 } else { x.shape()[0] };
            let shape = Dims::from([batch, x.shape()[x.ndim() - n - 1], n as i64]);
            run1!("rand", shape, Arg::None, x.dtype(), Arg::None, x.device())?
        }
    };
    let both = run!("_fractional_max_pool", x, kernel, size, &samples)?;
    if positions {
        return Ok(both);
    }
    both.first()
}

fn infer_fractional(a: &Args) -> Result<Plan> {
    let (x, kernel, size) = (a.tensor(0)?, a.ints(1)?, a.ints(2)?);
    let n = kernel.len();
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "fractional_max_pool{n}d(): Expected {}D or {}D tensor, but got: {}",
        n + 1,
        n + 2,
        x.shape()
    );
    let names = ["time", "height", "width"];
    for i in 0..n {
        let (have, k, want) = (x.shape()[x.ndim() - n + i], kernel[i], size[i]);
        ensure!(
            k > 0 && want > 0,
            Runtime,
            "fractional_max_pool{n}d(): kernel_size and output_size must be greater than zero"
        );
        ensure!(
            want + k - 1 <= have,
            Runtime,
            "fractional_max_pool{n}d(): pool {} {k} too large relative to input {} {have}",
            names[3 - n + i],
            names[3 - n + i]
        );
    }
    let d = x.dtype();
    d.check_float_kernel(format_args!("fractional_max_pool{n}d"))?;
    let s = a.tensor(3)?;
    ensure!(
        s.dtype() == d,
        Runtime,
        "Expect _random_samples to have the same dtype as input"
    );
    ensure!(
        s.ndim() == 3,
        Runtime,
        "Expect _random_samples to have 3 dimensions, got {}",
        s.ndim()
    );
    let channels = x.shape()[x.ndim() - n - 1];
    let batch = if x.ndim() == n + 2 { x.shape()[0] } else { 1 };
    ensure!(
        s.shape()[0] >= batch,
        Runtime,
        "Expect _random_samples.size(0) no less then input batch size."
    );
    ensure!(
        s.shape()[1] == channels,
        Runtime,
        "Expect _random_samples.size(1) equals to input channel size."
    );
    ensure!(
        s.shape()[2] == n as i64,
        Runtime,
        "Expect _random_samples.size(2) equals to {n}; got {}",
        s.shape()[2]
    );
    plan(x, size, MemoryFormat::Contiguous, true)
}

fn run_fractional(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, kernel, size) = (a.tensor(0)?, a.ints(1)?, a.ints(2)?);
    let n = kernel.len();
    let samples = copy::dense(a.tensor(3)?, DType::F64)?;
    let samples = host::slice::<f64>(&samples);
    let single = x.dtype() != DType::F64;
    let sizes = &x.shape()[x.ndim() - n..];
    let windows = |plane: usize| -> Windows {
        std::array::from_fn(|axis| {
            if axis + n < 3 {
                return vec![Window {
                    start: 0,
                    end: 1,
                    step: 1,
                    padded: 1,
                }];
            }
            let i = axis + n - 3;
            // Images have the sample of the width first.
            let sample = samples[plane * n + if n == 2 { 1 - i } else { i }];
            let (have, k, want) = (sizes[i], kernel[i], size[i]);
            let place = |o: i64| -> i64 {
                if o == want - 1 {
                    return have - k;
                }
                if single {
                    let alpha = (have - k) as f32 / (want - 1) as f32;
                    return ((o as f32 + sample as f32) * alpha) as i64
                        - (sample as f32 * alpha) as i64;
                }
                let alpha = (have - k) as f64 / (want - 1) as f64;
                ((o as f64 + sample) * alpha) as i64 - (sample * alpha) as i64
            };
            (0..want)
                .map(|o| {
                    let start = place(o).clamp(0, have - k);
                    Window {
                        start: start as usize,
                        end: (start + k) as usize,
                        step: 1,
                        padded: k as usize,
                    }
                })
                .collect()
        })
    };
    execute(
        x,
        outs,
        n,
        MemoryFormat::Contiguous,
        Rule::Max,
        false,
        &windows,
    )
}
