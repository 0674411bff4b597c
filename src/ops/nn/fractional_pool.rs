//! Max pooling over windows of random places.

use crate::cpu::pooling::{Job, Rule, Window, windows};
use crate::cpu::pooling_room::forward;
use crate::cpu::{self as host, copy};
use crate::ops::core::helpers;
use crate::ops::core::op::{Cast, F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::pool::{plan, wanted};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// What the rows of all dimensions take.
struct Operands<'a> {
    x: &'a Tensor,
    kernel: &'a [i64],
    size: Option<&'a [i64]>,
    ratio: Option<&'a [f64]>,
    samples: Option<&'a Tensor>,
}

macro_rules! operands {
    ($a:ident) => {
        Operands {
            x: $a.input,
            kernel: $a.kernel_size,
            size: $a.output_size,
            ratio: $a.output_ratio,
            samples: $a._random_samples,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_fractional_max_pool",
        "(Tensor self, int[] kernel_size, int[] output_size, Tensor random_samples) -> (Tensor, Tensor)",
        0,
        body!(rule, run, scratch: |a, _, outs, room| {
            room.dense(a.random_samples, DType::F64)?;
            forward(room, (MemoryFormat::Contiguous, Rule::Max), a.input, outs)
        }),
        "",
    ).samples("f32[1, 2, 6, 6], [2, 2], [3, 3], f32[1, 2, 2].unit")
    .grad("FractionalMaxPool{kernel_size.count}DBackward0 | self: _grad.fractional_max_pool2d_backward(grad, self, kernel_size, output_size, result1) if kernel_size.count == 2 else _grad.fractional_max_pool3d_backward(grad, self, kernel_size, output_size, result1); random_samples: constant('fractional_max_pool{kernel_size.count}d')"),
    compose(
        "nn.functional.fractional_max_pool2d",
        "(Tensor input, int[2] kernel_size, int[2]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| maxima(2, "fractional_max_pool2d", &operands!(a), a.return_indices),
        "Maxima of windows of random places.",
    ).samples(
        "f32[1, 3, 9, 9], (4, 4), output_size=2; \
         f32[1, 1, 16, 16], (1, 1), output_ratio=(0.5, 0.5), return_indices=True, _random_samples=f32[1, 1, 2]",
    )
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.fractional_max_pool3d",
        "(Tensor input, int[3] kernel_size, int[3]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| maxima(3, "fractional_max_pool3d", &operands!(a), a.return_indices),
        "Maxima of windows of random places.",
    ).samples(
        "f32[2, 3, 5, 5, 5], (2, 2, 2), output_size=2; \
         f32[2, 3, 5, 5, 5], (2, 2, 2), output_size=(2, 3, 2), return_indices=True",
    )
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.fractional_max_pool2d_with_indices",
        "(Tensor input, int[2] kernel_size, int[2]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| maxima(2, "fractional_max_pool2d", &operands!(a), true),
        "Maxima of windows of random places, and their positions.",
    ).samples("f32[1, 2, 6, 6], 2, 3, _random_samples=f32[1, 2, 2].unit"),
    compose(
        "nn.functional.fractional_max_pool3d_with_indices",
        "(Tensor input, int[3] kernel_size, int[3]? output_size=None, float[]? output_ratio=None, bool return_indices=False, Tensor? _random_samples=None)",
        F,
        |a| maxima(3, "fractional_max_pool3d", &operands!(a), true),
        "Maxima of windows of random places, and their positions.",
    ).samples("f32[1, 2, 4, 4, 4], 2, 2, _random_samples=f32[1, 2, 3].unit"),
];

fn maxima(n: usize, name: &str, o: &Operands, positions: bool) -> Result<Ret> {
    let x = o.x;
    let kernel = each(o.kernel, n, name, "kernel_size")?;
    let size = output_size(n, name, o)?;
    let drawn;
    let samples = match o.samples {
        Some(t) => t,
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
            drawn = f::Rand::new(&shape)
                .dtype(x.dtype())
                .device(helpers::beside(x))
                .call()?;
            &drawn
        }
    };
    let maxima = f::_fractional_max_pool(x, &kernel, &size, samples)?;
    Ok(wanted(maxima, positions))
}

/// A number for each dimension; a tuple of one is none for all.
fn each(list: &[i64], n: usize, name: &str, what: &str) -> Result<Dims> {
    let several = if n == 3 { "three Ints" } else { "Ints" };
    ensure!(
        list.len() == n,
        Runtime,
        "{name}: {what} must either be a single Int or tuple of {several}"
    );
    Ok(Dims::new(list))
}

/// The size asked for, or the part of the input's that is.
fn output_size(n: usize, name: &str, o: &Operands) -> Result<Dims> {
    let sizes = o.x.shape();
    match (o.size, o.ratio) {
        (Some(s), _) => each(s, n, name, "output_size"),
        (None, Some(r)) => {
            ensure!(
                r.len() == n,
                Value,
                "{name} requires output_ratio to either be a single Int or tuple of Ints."
            );
            ensure!(sizes.len() >= n, Index, "Dimension out of range");
            let spatial = &sizes[sizes.len() - n..];
            Ok((spatial.iter().zip(r))
                .map(|(&s, r)| (s as f64 * r) as i64)
                .collect())
        }
        (None, None) => bail!(
            Value,
            "{name} requires specifying either an output_size or an output_ratio"
        ),
    }
}

fn rule(a: &calls::_FractionalMaxPool) -> Result<Plan> {
    let (x, kernel, size) = (a.input, a.kernel_size, a.output_size);
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
    let name = if n == 2 {
        "fractional_max_pool2d"
    } else {
        "fractional_max_pool3d_out"
    };
    for i in 1..x.ndim() {
        ensure!(
            x.shape()[i] > 0,
            Runtime,
            "{name}(): Expected input to have non-zero size for non-batch dimensions, but got{} with dimension {i} being empty.",
            x.shape()
        );
    }
    for i in 0..n {
        let (have, k, want) = (x.shape()[x.ndim() - n + i], kernel[i], size[i]);
        ensure!(
            k > 0,
            Runtime,
            "{name}(): kernel_size must be greater than zero"
        );
        ensure!(
            want.saturating_add(k - 1) < have + i64::from(n == 2), // volumes have to be larger
            Runtime,
            "{name}(): pool {} {k} too large relative to input {} {have}",
            names[3 - n + i],
            names[3 - n + i]
        );
    }
    x.dtype()
        .check_float_kernel(format_args!("fractional_max_pool{n}d"))?;
    check_samples(a, n)?;
    plan(x, size, MemoryFormat::Contiguous, true)
}

fn check_samples(a: &calls::_FractionalMaxPool, n: usize) -> Result<()> {
    let (x, s) = (a.input, a.random_samples);
    ensure!(
        s.dtype() == x.dtype(),
        Runtime,
        "Expect _random_samples to have the same dtype as input"
    );
    ensure!(
        s.ndim() == 3,
        Runtime,
        "Expect _random_samples to have 3 dimensions, got {}",
        s.ndim()
    );
    let batch = if x.ndim() == n + 2 { x.shape()[0] } else { 1 };
    ensure!(
        s.shape()[0] >= batch,
        Runtime,
        "Expect _random_samples.size(0) no less then input batch size."
    );
    ensure!(
        s.shape()[1] == x.shape()[x.ndim() - n - 1],
        Runtime,
        "Expect _random_samples.size(1) equals to input channel size."
    );
    ensure!(
        s.shape()[2] == n as i64,
        Runtime,
        "Expect _random_samples.size(2) equals to {n}; got {}.",
        s.shape()[2]
    );
    Ok(())
}

/// One dimension whose windows begin at random.
struct Axis {
    size: i64,
    kernel: i64,
    count: i64,
}

impl Axis {
    /// Where window `o` starts, in the precision of the input.
    fn start(&self, o: i64, sample: f64, single: bool) -> i64 {
        let room = self.size - self.kernel;
        if o == self.count - 1 {
            return room;
        }
        let start = if single {
            let alpha = room as f32 / (self.count - 1) as f32;
            ((o as f32 + sample as f32) * alpha) as i64 - (sample as f32 * alpha) as i64
        } else {
            let alpha = room as f64 / (self.count - 1) as f64;
            ((o as f64 + sample) * alpha) as i64 - (sample * alpha) as i64
        };
        start.clamp(0, room)
    }

    fn windows(&self, sample: f64, single: bool) -> Vec<Window> {
        (0..self.count)
            .map(|o| {
                let start = self.start(o, sample, single);
                Window {
                    start: start as usize,
                    end: (start + self.kernel) as usize,
                    step: 1,
                    padded: self.kernel as usize,
                }
            })
            .collect()
    }
}

fn run(a: &calls::_FractionalMaxPool, (): &(), outs: &[Tensor]) -> Result<()> {
    let (x, n) = (a.input, a.kernel_size.len());
    let samples = copy::dense(a.random_samples, DType::F64)?;
    let samples = host::slice::<f64>(&samples);
    let single = x.dtype() != DType::F64;
    let sizes = &x.shape()[x.ndim() - n..];
    let job = Job {
        n,
        format: MemoryFormat::Contiguous,
        rule: Rule::Max,
        shared: false,
        windows: &|plane| {
            windows(n, |i| {
                let axis = Axis {
                    size: sizes[i],
                    kernel: a.kernel_size[i],
                    count: a.output_size[i],
                };
                // Images have the sample of the width first.
                let sample = samples[plane * n + if n == 2 { 1 - i } else { i }];
                axis.windows(sample, single)
            })
        },
    };
    job.run(x, outs)
}
