//! Pooling to a given output size.

use crate::cpu::pooling::{Rule, Window, Windows};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::core::schema::NONE;
use crate::ops::nn::pool::{check_1d, execute, format, plan};
use crate::{Dims, MemoryFormat, Result, Tensor, bail, ensure, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "adaptive_avg_pool1d",
        "(Tensor input, int[1] output_size)",
        F,
        |a| adaptive1(a, false),
        "Means of as many windows as asked for.",
    ),
    old_compose(
        "nn.functional.adaptive_avg_pool1d",
        "(Tensor input, int[1] output_size)",
        F,
        |a| adaptive1(a, false),
        "Means of as many windows as asked for.",
    ),
    kernel(
        "nn.functional.adaptive_avg_pool2d",
        "(Tensor input, int?[] output_size)",
        F,
        KernelBody::new(
            |a| infer_adaptive(a, 2, false),
            |a, o| run_adaptive(a, o, 2),
        ),
        "Means of as many windows as asked for.",
    ),
    kernel(
        "nn.functional.adaptive_avg_pool3d",
        "(Tensor input, int?[] output_size)",
        F,
        KernelBody::new(
            |a| infer_adaptive(a, 3, false),
            |a, o| run_adaptive(a, o, 3),
        ),
        "Means of as many windows as asked for.",
    ),
    old_compose(
        "adaptive_max_pool1d",
        "(Tensor input, int[1] output_size) -> (Tensor, Tensor)",
        F,
        |a| adaptive1(a, true),
        "Maxima of as many windows as asked for, and their positions.",
    ),
    kernel(
        "adaptive_max_pool2d",
        "(Tensor input, int?[] output_size) -> (Tensor, Tensor)",
        0,
        KernelBody::new(|a| infer_adaptive(a, 2, true), |a, o| run_adaptive(a, o, 2)),
        "Maxima of as many windows as asked for, and their positions.",
    ),
    kernel(
        "adaptive_max_pool3d",
        "(Tensor input, int?[] output_size) -> (Tensor, Tensor)",
        0,
        KernelBody::new(|a| infer_adaptive(a, 3, true), |a, o| run_adaptive(a, o, 3)),
        "Maxima of as many windows as asked for, and their positions.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool1d",
        "(Tensor input, int[1] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, a.bool(2)),
        "Maxima of as many windows as asked for.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool2d",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, a.bool(2)),
        "Maxima of as many windows as asked for.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool3d",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, a.bool(2)),
        "Maxima of as many windows as asked for.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool1d_with_indices",
        "(Tensor input, int[1] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, true),
        "Maxima of as many windows as asked for, and their positions.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool2d_with_indices",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, true),
        "Maxima of as many windows as asked for, and their positions.",
    ),
    old_compose(
        "nn.functional.adaptive_max_pool3d_with_indices",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| adaptive_max(a, true),
        "Maxima of as many windows as asked for, and their positions.",
    ),
];

/// The output size with `None`s replaced by the input's sizes.
fn adaptive_size(a: &Args, n: usize) -> Result<Dims> {
    let (x, asked) = (a.tensor(0)?, a.ints(1)?);
    let asked = if asked.len() == 1 {
        Dims::filled(n, asked[0])
    } else {
        asked.clone()
    };
    ensure!(
        x.ndim() > asked.len(),
        Value,
        "Input dimension should be at least {}",
        asked.len() + 1
    );
    let lead = x.ndim() - asked.len();
    Ok(asked
        .iter()
        .enumerate()
        .map(|(i, &v)| if v == NONE { x.shape()[lead + i] } else { v })
        .collect())
}

fn infer_adaptive(a: &Args, n: usize, max: bool) -> Result<Plan> {
    let x = a.tensor(0)?;
    let name = format!("adaptive_{}_pool{n}d", if max { "max" } else { "avg" });
    let colon = if max { ": " } else { " " };
    let asked = a.ints(1)?.len();
    ensure!(
        asked < 2 || x.ndim() > asked,
        Value,
        "Input dimension should be at least {}",
        asked + 1
    );
    if max && x.ndim() != n + 1 && x.ndim() != n + 2 {
        bail!(
            Runtime,
            "{name}(): Expected {}D or {}D tensor, but got{colon}{}",
            n + 1,
            n + 2,
            x.shape()
        );
    }
    if !max && x.ndim() != n + 1 && x.ndim() != n + 2 && a.ints(1)?.len() <= n {
        bail!(
            Runtime,
            "{name}(): Expected {}D or {}D tensor, but got{colon}{}",
            n + 1,
            n + 2,
            x.shape()
        );
    }
    let size = adaptive_size(a, n)?;
    let skip = x.ndim() - n - 1;
    if size.len() != n {
        if max {
            bail!(
                Runtime,
                "{name}(): internal error: output_size.size() must be {n}"
            );
        }
        bail!(Runtime, "{name}: output_size must be {n}");
    }
    if !max && size.iter().any(|&v| v < 0) {
        let shown: Vec<String> = size.iter().map(ToString::to_string).collect();
        bail!(
            Runtime,
            "{name}: elements of output_size must be greater than or equal to 0 but received {{{}}}",
            shown.join(", ")
        );
    }
    for i in skip..x.ndim() {
        ensure!(
            x.shape()[i] > 0 || (i == 0 && x.ndim() == n + 2),
            Runtime,
            "{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {} with dimension {i} being empty",
            x.shape()
        );
    }
    let d = x.dtype();
    if !max && size.iter().all(|&v| v == 1) && !d.is_float() {
        bail!(
            Runtime,
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {}",
            d.scalar_type()
        );
    }
    d.check_float_kernel(name)?;
    plan(x, &size, adaptive_format(x, n, max, &size), max)
}

fn adaptive_format(x: &Tensor, n: usize, max: bool, size: &[i64]) -> MemoryFormat {
    format(x, n, !max && size.iter().all(|&v| v == 1))
}

fn adaptive_windows(sizes: &[i64], out: &[i64]) -> Windows {
    let n = out.len();
    std::array::from_fn(|axis| {
        if axis + n < 3 {
            return vec![Window {
                start: 0,
                end: 1,
                step: 1,
                padded: 1,
            }];
        }
        let (size, count) = (sizes[axis + n - 3], out[axis + n - 3]);
        (0..count)
            .map(|o| {
                let (start, end) = (o * size / count, ((o + 1) * size + count - 1) / count);
                Window {
                    start: start as usize,
                    end: end as usize,
                    step: 1,
                    padded: (end - start) as usize,
                }
            })
            .collect()
    })
}

fn run_adaptive(a: &Args, outs: &[Tensor], n: usize) -> Result<()> {
    let x = a.tensor(0)?;
    let size = adaptive_size(a, n)?;
    let max = outs.len() == 2;
    let rule = if max {
        Rule::Max
    } else {
        Rule::Mean {
            divisor: None,
            padding: false,
        }
    };
    let sizes = &x.shape()[x.ndim() - n..];
    execute(
        x,
        outs,
        n,
        adaptive_format(x, n, max, &size),
        rule,
        true,
        &|_| adaptive_windows(sizes, &size),
    )
}

fn adaptive1(a: &Args, max: bool) -> Result<Ret> {
    let (x, size) = (a.tensor(0)?, a.ints(1)?);
    let name = if max {
        "adaptive_max_pool1d"
    } else {
        "adaptive_avg_pool1d"
    };
    check_1d(x, name)?;
    ensure!(
        size.len() == 1,
        Runtime,
        "{name}() argument 'output_size' should contain one int (got {})",
        size.len()
    );
    let wide = run1!("unsqueeze", x, -2i64)?;
    let size = Dims::from([1, size[0]]);
    if max {
        let both = run!("adaptive_max_pool2d", &wide, size)?.tensors();
        return Ok(Ret::Tuple(
            both.iter()
                .map(|t| run1!("squeeze#dim", t, -2i64))
                .collect::<Result<_>>()?,
        ));
    }
    Ok(run1!(
        "squeeze#dim",
        &run1!("nn.functional.adaptive_avg_pool2d", &wide, size)?,
        -2i64
    )?
    .into())
}

fn adaptive_max(a: &Args, positions: bool) -> Result<Ret> {
    let (x, size) = (a.tensor(0)?, a.ints(1)?.clone());
    let both = match a.name().as_bytes().get(17) {
        Some(b'1') => run!("adaptive_max_pool1d", x, size)?,
        Some(b'2') => run!("adaptive_max_pool2d", x, size)?,
        _ => run!("adaptive_max_pool3d", x, size)?,
    };
    if positions {
        return Ok(both);
    }
    both.first()
}
