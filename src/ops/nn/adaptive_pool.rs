//! Pooling to a given output size.

use crate::cpu::pooling::{Job, Rule, Window, windows};
use crate::cpu::pooling_room::forward;
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, compose, kernel};
use crate::ops::core::schema::NONE;
use crate::ops::f;
use crate::ops::nn::pool::{both, check_1d, format, plan, wanted};
use crate::{Dims, MemoryFormat, Result, Tensor, bail, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "adaptive_avg_pool1d",
        "(Tensor input, int[1] output_size)",
        F,
        |a| {
            check_sequences(a.input, a.output_size, "adaptive_avg_pool1d")?;
            let wide = f::unsqueeze(a.input, -2)?;
            let means = f::nn_functional_adaptive_avg_pool2d(&wide, &[1, a.output_size[0]])?;
            f::squeeze_dim(&means, -2)
        },
        "Means of as many windows as asked for.",
    )
    .samples("f64[3, 4], 1; f64[3, 4], (5,)"),
    compose(
        "nn.functional.adaptive_avg_pool2d",
        "(Tensor input, int?[] output_size)",
        F,
        |a| match mean_of_all(a.input, a.output_size, 2)? {
            Some(mean) => Ok(mean),
            None => f::_adaptive_avg_pool2d(a.input, a.output_size),
        },
        "Means of as many windows as asked for.",
    )
    .samples("f32[2, 3, 4], 5; f32[2, 3, 4], (5, None); f32[2, 3, 4, 4], 1"),
    kernel(
        "_adaptive_avg_pool2d",
        "(Tensor input, int?[] output_size)",
        0,
        body!(|a| means(a.input, a.output_size, 2), anywhere: run, scratch: |_, p, outs, room| forward(room, (p.format, p.rule), p.x, outs)),
        "Means of as many windows as asked for.",
    )
    .samples("f32[2, 3, 4], [5, 5]; f32[2, 3, 4], [5, None]")
    .grad("input: _grad._adaptive_avg_pool2d_backward(grad, input)")
    .batch(Batch::Fold(3)),
    compose(
        "nn.functional.adaptive_avg_pool3d",
        "(Tensor input, int?[] output_size)",
        F,
        |a| match mean_of_all(a.input, a.output_size, 3)? {
            Some(mean) => Ok(mean),
            None => f::_adaptive_avg_pool3d(a.input, a.output_size),
        },
        "Means of as many windows as asked for.",
    )
    .samples("f32[8, 8, 8, 8], (5, 7, 4); f32[2, 3, 4, 4], 1")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "_adaptive_avg_pool3d",
        "(Tensor input, int?[] output_size)",
        0,
        body!(|a| means(a.input, a.output_size, 3), anywhere: run, scratch: |_, p, outs, room| forward(room, (p.format, p.rule), p.x, outs)),
        "Means of as many windows as asked for.",
    )
    .samples("f32[8, 8, 8, 8], [5, 7, 4]")
    .grad("input: _grad._adaptive_avg_pool3d_backward(grad, input)")
    .batch(Batch::Fold(4)),
    compose(
        "adaptive_max_pool1d",
        "(Tensor input, int[1] output_size) -> (Tensor, Tensor)",
        F,
        |a| {
            check_sequences(a.input, a.output_size, "adaptive_max_pool1d")?;
            check_filled(a.input, 1, "adaptive_max_pool1d")?;
            let wide = f::unsqueeze(a.input, -2)?;
            let [most, at] = f::adaptive_max_pool2d(&wide, &[1, a.output_size[0]])?;
            Ok(both([f::squeeze_dim(&most, -2)?, f::squeeze_dim(&at, -2)?]))
        },
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[2, 3, 6], 2"),
    kernel(
        "adaptive_max_pool2d",
        "(Tensor input, int?[] output_size) -> (Tensor, Tensor)",
        0,
        body!(|a| maxima(a.input, a.output_size, 2), anywhere: run, scratch: |_, p, outs, room| forward(room, (p.format, p.rule), p.x, outs)),
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[1, 2, 6, 6], [2, 3]; f32[2, 6, 6], [2, None]")
    .grad("input: _grad.adaptive_max_pool2d_backward(grad, input, result1)")
    .batch(Batch::Fold(3)),
    kernel(
        "adaptive_max_pool3d",
        "(Tensor input, int?[] output_size) -> (Tensor, Tensor)",
        0,
        body!(|a| maxima(a.input, a.output_size, 3), anywhere: run, scratch: |_, p, outs, room| forward(room, (p.format, p.rule), p.x, outs)),
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[1, 2, 4, 4, 4], [2, 2, 2]")
    .grad("input: _grad.adaptive_max_pool3d_backward(grad, input, result1)")
    .batch(Batch::Fold(4))
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.adaptive_max_pool1d",
        "(Tensor input, int[1] output_size, bool return_indices=False)",
        F,
        |a| {
            f::adaptive_max_pool1d(a.input, a.output_size)
                .map(|maxima| wanted(maxima, a.return_indices))
        },
        "Maxima of as many windows as asked for.",
    )
    .samples("f32[3, 4], 3, True"),
    compose(
        "nn.functional.adaptive_max_pool2d",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| {
            f::adaptive_max_pool2d(a.input, a.output_size)
                .map(|maxima| wanted(maxima, a.return_indices))
        },
        "Maxima of as many windows as asked for.",
    )
    .samples("f32[2, 3, 4], (2, 3), True"),
    compose(
        "nn.functional.adaptive_max_pool3d",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| {
            f::adaptive_max_pool3d(a.input, a.output_size)
                .map(|maxima| wanted(maxima, a.return_indices))
        },
        "Maxima of as many windows as asked for.",
    )
    .samples("f32[4, 4, 3, 5], (1, 1, 1), True")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.adaptive_max_pool1d_with_indices",
        "(Tensor input, int[1] output_size, bool return_indices=False)",
        F,
        |a| f::adaptive_max_pool1d(a.input, a.output_size).map(both),
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[2, 3, 6], 2"),
    compose(
        "nn.functional.adaptive_max_pool2d_with_indices",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| f::adaptive_max_pool2d(a.input, a.output_size).map(both),
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[1, 2, 6, 6], 2"),
    compose(
        "nn.functional.adaptive_max_pool3d_with_indices",
        "(Tensor input, int?[] output_size, bool return_indices=False)",
        F,
        |a| f::adaptive_max_pool3d(a.input, a.output_size).map(both),
        "Maxima of as many windows as asked for, and their positions.",
    )
    .samples("f32[1, 2, 4, 4, 4], 2"),
];

/// One window is the mean of all: its operator, where the call is that of one, laid out as the input is.
fn mean_of_all(x: &Tensor, asked: &[i64], n: usize) -> Result<Option<Tensor>> {
    let one = !asked.is_empty() && asked.iter().all(|&v| v == 1) && asked.len() <= n;
    let fits = (x.ndim() == n + 1 || x.ndim() == n + 2) && x.dtype().is_float();
    if !(one && fits) {
        return Ok(None);
    }
    let over: Vec<i64> = (1..=n as i64).map(|d| -d).collect();
    let mean = f::MeanDim::new(x, &over[..]).keepdim(true).call()?;
    let format = format(x, n, true);
    if format == MemoryFormat::Contiguous {
        return Ok(Some(mean));
    }
    let strides = crate::dims::format_strides(mean.shape(), format)?;
    f::as_strided(&mean, mean.shape(), &strides).map(Some)
}

fn check_sequences(x: &Tensor, size: &[i64], name: &str) -> Result<()> {
    check_1d(x, name)?;
    ensure!(
        size.len() == 1,
        Runtime,
        "{name}() argument 'output_size' should contain one int (got {})",
        size.len()
    );
    Ok(())
}

/// What the rules find.
struct Found<'a> {
    x: &'a Tensor,
    size: Dims,
    format: MemoryFormat,
    rule: Rule,
}

/// The output size with `None`s replaced by the input's sizes.
fn sizes(x: &Tensor, asked: &[i64], n: usize) -> Result<Dims> {
    let asked = match asked {
        [one] => Dims::filled(n, *one),
        list => Dims::new(list),
    };
    ensure!(
        x.ndim() > asked.len(),
        Value,
        "Input dimension should be at least {}",
        asked.len() + 1
    );
    let spatial = &x.shape()[x.ndim() - asked.len()..];
    Ok((asked.iter().zip(spatial))
        .map(|(&v, &have)| if v == NONE { have } else { v })
        .collect())
}

fn check_asked(x: &Tensor, asked: &[i64]) -> Result<()> {
    ensure!(
        asked.len() < 2 || x.ndim() > asked.len(),
        Value,
        "Input dimension should be at least {}",
        asked.len() + 1
    );
    Ok(())
}

fn check_filled(x: &Tensor, first: usize, name: &str) -> Result<()> {
    for i in first..x.ndim() {
        ensure!(
            x.shape()[i] > 0,
            Runtime,
            "{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {} with dimension {i} being empty",
            x.shape()
        );
    }
    Ok(())
}

fn means<'a>(x: &'a Tensor, asked: &[i64], n: usize) -> Result<(Plan, Found<'a>)> {
    let name = format!("adaptive_avg_pool{n}d");
    check_asked(x, asked)?;
    if x.ndim() != n + 1 && x.ndim() != n + 2 && asked.len() <= n {
        bail!(
            Runtime,
            "{name}(): Expected {}D or {}D tensor, but got {}",
            n + 1,
            n + 2,
            x.shape()
        );
    }
    let size = sizes(x, asked, n)?;
    ensure!(size.len() == n, Runtime, "{name}: output_size must be {n}");
    if size.iter().any(|&v| v < 0) {
        let shown: Vec<String> = size.iter().map(ToString::to_string).collect();
        bail!(
            Runtime,
            "{name}: elements of output_size must be greater than or equal to 0 but received {{{}}}",
            shown.join(", ")
        );
    }
    check_filled(x, if n == 2 { x.ndim() - 2 } else { 1 }, &name)?;
    let (d, whole) = (x.dtype(), size.iter().all(|&v| v == 1));
    if whole && !d.is_float() {
        bail!(
            Runtime,
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: {}",
            d.scalar_type()
        );
    }
    d.check_float_kernel(name)?;
    let found = Found {
        x,
        format: format(x, n, whole),
        size,
        rule: Rule::Mean {
            divisor: None,
            padding: false,
        },
    };
    Ok((plan(x, &found.size, found.format, false)?, found))
}

fn maxima<'a>(x: &'a Tensor, asked: &[i64], n: usize) -> Result<(Plan, Found<'a>)> {
    let name = format!("adaptive_max_pool{n}d");
    check_asked(x, asked)?;
    if x.ndim() != n + 1 && x.ndim() != n + 2 {
        bail!(
            Runtime,
            "{name}(): Expected {}D or {}D tensor, but got: {}",
            n + 1,
            n + 2,
            x.shape()
        );
    }
    let size = sizes(x, asked, n)?;
    ensure!(
        size.len() == n,
        Runtime,
        "{name}(): internal error: output_size.size() must be {n}"
    );
    check_filled(x, 1, &name)?;
    x.dtype().check_float_kernel(name)?;
    let found = Found {
        x,
        format: format(x, n, false),
        size,
        rule: Rule::Max,
    };
    Ok((plan(x, &found.size, found.format, true)?, found))
}

/// Windows that share the input evenly.
pub(in crate::ops) fn shares(size: i64, count: i64) -> Vec<Window> {
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
}

fn run<A>(_: &A, found: &Found, outs: &[Tensor]) -> Result<()> {
    let (x, size) = (found.x, &found.size);
    let n = size.len();
    let sizes = &x.shape()[x.ndim() - n..];
    let job = Job {
        n,
        format: found.format,
        rule: found.rule,
        shared: true,
        windows: &|_| windows(n, |i| shares(sizes[i], size[i])),
    };
    kernels::pool::run(&job, x, outs)
}
