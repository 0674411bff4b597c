//! Convolutions.

use crate::cpu::conv::{self as cpu, Geometry};
use crate::cpu::{copy, matrix::has_product};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::{Dims, MemoryFormat, Result, Tensor, bail, dims, ensure, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

macro_rules! conv_rows {
    ($($path:literal, $same:literal, $n:literal, $ints:literal, $doc:literal;)+) => { [$(
        old_compose($path, concat!("(Tensor input, Tensor weight, Tensor? bias=None, ", $ints, " stride=1, ", $ints, " padding=0, ", $ints, " dilation=1, int groups=1)"), F, |a| ordinary(a, $n), $doc),
        old_compose($same, concat!("(Tensor input, Tensor weight, Tensor? bias=None, ", $ints, " stride=1, str padding='valid', ", $ints, " dilation=1, int groups=1)"), F, |a| padded_by_name(a, $n), $doc),
    )+] };
}

macro_rules! transposed_rows {
    ($($path:literal, $n:literal, $ints:literal;)+) => { [$(
        old_compose($path, concat!("(Tensor input, Tensor weight, Tensor? bias=None, ", $ints, " stride=1, ", $ints, " padding=0, ", $ints, " output_padding=0, int groups=1, ", $ints, " dilation=1)"), F, |a| transposed(a, $n), "A transposed convolution."),
    )+] };
}

/// The rows of ordinary convolutions.
pub static CONVOLUTIONS: &[OpDef] = &conv_rows! {
    "conv1d", "conv1d#padding", 1, "int[1]", "A convolution over sequences.";
    "conv2d", "conv2d#padding", 2, "int[2]", "A convolution over images.";
    "conv3d", "conv3d#padding", 3, "int[3]", "A convolution over volumes.";
    "nn.functional.conv1d", "nn.functional.conv1d#padding", 1, "int[1]", "A convolution over sequences.";
    "nn.functional.conv2d", "nn.functional.conv2d#padding", 2, "int[2]", "A convolution over images.";
    "nn.functional.conv3d", "nn.functional.conv3d#padding", 3, "int[3]", "A convolution over volumes.";
};

/// The rows of transposed convolutions.
pub static TRANSPOSED: &[OpDef] = &transposed_rows! {
    "conv_transpose1d", 1, "int[1]";
    "conv_transpose2d", 2, "int[2]";
    "conv_transpose3d", 3, "int[3]";
    "nn.functional.conv_transpose1d", 1, "int[1]";
    "nn.functional.conv_transpose2d", 2, "int[2]";
    "nn.functional.conv_transpose3d", 3, "int[3]";
};

/// The other rows.
#[operators]
pub static OPS: &[OpDef] = &[kernel(
    "convolution",
    "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)",
    F,
    KernelBody::new(infer, run),
    "A convolution of any kind.",
)];

/// Adds the batch dimension that an unbatched input lacks.
fn batched(x: &Tensor, n: usize, name: &str) -> Result<(Tensor, bool)> {
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "Expected {}D (unbatched) or {}D (batched) input to {name}, but got input of size: {}",
        n + 1,
        n + 2,
        x.shape()
    );
    if x.ndim() == n + 2 {
        Ok((x.clone(), false))
    } else {
        Ok((run1!("unsqueeze", x, 0i64)?, true))
    }
}

fn finish(out: Tensor, single: bool) -> Result<Ret> {
    Ok(if single {
        run1!("squeeze#dim", &out, 0i64)?
    } else {
        out
    }
    .into())
}

#[allow(clippy::too_many_arguments)]
fn call(
    x: &Tensor,
    w: &Tensor,
    b: Option<&Tensor>,
    stride: &Dims,
    padding: &Dims,
    dilation: &Dims,
    transposed: bool,
    output: &Dims,
    groups: i64,
) -> Result<Tensor> {
    run1!(
        "convolution",
        x,
        w,
        b,
        stride.clone(),
        padding.clone(),
        dilation.clone(),
        transposed,
        output.clone(),
        groups
    )
}

fn ordinary(a: &Args, n: usize) -> Result<Ret> {
    let (x, single) = batched(a.tensor(0)?, n, a.name())?;
    let zeros = Dims::filled(n, 0);
    finish(
        call(
            &x,
            a.tensor(1)?,
            a.opt_tensor(2),
            a.ints(3)?,
            a.ints(4)?,
            a.ints(5)?,
            false,
            &zeros,
            a.int(6)?,
        )?,
        single,
    )
}

pub(in crate::ops) fn transposed(a: &Args, n: usize) -> Result<Ret> {
    let (x, single) = batched(a.tensor(0)?, n, a.name())?;
    finish(
        call(
            &x,
            a.tensor(1)?,
            a.opt_tensor(2),
            a.ints(3)?,
            a.ints(4)?,
            a.ints(7)?,
            true,
            a.ints(5)?,
            a.int(6)?,
        )?,
        single,
    )
}

fn padded_by_name(a: &Args, n: usize) -> Result<Ret> {
    let (x, single) = batched(a.tensor(0)?, n, a.name())?;
    let (w, stride, dilation) = (a.tensor(1)?, a.ints(3)?, a.ints(5)?);
    let zeros = Dims::filled(n, 0);
    let padding = match a.str(4).unwrap_or("valid") {
        "valid" => zeros.clone(),
        "same" => {
            ensure!(
                w.ndim() > 2,
                Runtime,
                "weight should have at least three dimensions"
            );
            ensure!(
                stride.iter().all(|&s| s == 1),
                Runtime,
                "padding='same' is not supported for strided convolutions"
            );
            ensure!(
                w.ndim() == n + 2 && dilation.len() == n,
                Runtime,
                "expected dilation to be a single integer value or a list of {} values to match the convolution dimensions, but got \
                 dilation={dilation}",
                w.ndim() - 2
            );
            // Odd totals have their extra zero behind: the list then says how much before, then how much behind.
            let total: Dims = (0..n)
                .map(|i| dilation[i] * (w.shape()[i + 2] - 1).max(0))
                .collect();
            let front: Dims = total.iter().map(|t| t / 2).collect();
            if total.iter().all(|t| t % 2 == 0) {
                front
            } else {
                front.concat(&total.iter().map(|t| t - t / 2).collect::<Dims>())
            }
        }
        other => bail!(Runtime, "Invalid padding string: '{other}'"),
    };
    finish(
        call(
            &x,
            w,
            a.opt_tensor(2),
            stride,
            &padding,
            dilation,
            false,
            &zeros,
            a.int(6)?,
        )?,
        single,
    )
}

/// One value for every dimension.
fn expanded(list: &Dims, n: usize, name: &str) -> Result<Dims> {
    if list.len() == 1 && n > 1 {
        return Ok(Dims::filled(n, list[0]));
    }
    ensure!(
        list.len() == n || (name == "padding" && list.len() == 2 * n),
        Runtime,
        "expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but got {name}={list}"
    );
    Ok(list.clone())
}

fn joined(values: impl Iterator<Item = i64>) -> String {
    values
        .map(|v| v.to_string())
        .collect::<Vec<_>>()
        .join(" x ")
}

struct Rule {
    shape: Dims,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
}

fn rule(a: &Args) -> Result<Rule> {
    let (x, w, bias) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let (transposed, groups) = (a.bool(6), a.int(8)?);
    ensure!(
        w.ndim() > 2,
        Runtime,
        "weight should have at least three dimensions"
    );
    let n = w.ndim() - 2;
    ensure!(n <= 3, Runtime, "unsupported ConvNd parameters");
    let stride = expanded(a.ints(3)?, n, "stride")?;
    let padding = expanded(a.ints(4)?, n, "padding")?;
    let dilation = expanded(a.ints(5)?, n, "dilation")?;
    let output = expanded(a.ints(7)?, n, "output_padding")?;
    ensure!(
        padding.iter().all(|&p| p >= 0),
        Runtime,
        "negative padding is not supported"
    );
    ensure!(
        output.iter().all(|&p| p >= 0),
        Runtime,
        "negative output_padding is not supported"
    );
    ensure!(
        stride.iter().all(|&s| s > 0),
        Runtime,
        "non-positive stride is not supported"
    );
    ensure!(groups > 0, Runtime, "non-positive groups is not supported");
    ensure!(
        dilation.iter().all(|&d| d > 0),
        Runtime,
        "dilation should be greater than zero, but got {dilation}"
    );
    let (xs, ws) = (x.shape(), w.shape());
    ensure!(
        x.ndim() == n + 2,
        Runtime,
        "Expected {}-dimensional input for {}-dimensional weight {ws}, but got {}-dimensional input of size {xs} instead",
        n + 2,
        n + 2,
        x.ndim()
    );
    ensure!(
        ws[0] >= groups,
        Runtime,
        "Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size {ws} instead"
    );
    ensure!(
        ws[0] % groups == 0,
        Runtime,
        "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size [{ws}] instead"
    );
    let outputs = if transposed { ws[1] * groups } else { ws[0] };
    if transposed {
        ensure!(
            xs[1] == ws[0],
            Runtime,
            "Given transposed=1, weight of size {ws}, expected input{xs} to have {} channels, but got {} channels instead",
            ws[0],
            xs[1]
        );
    } else {
        ensure!(
            xs[1] == ws[1] * groups,
            Runtime,
            "Given groups={groups}, weight of size {ws}, expected input{xs} to have {} channels, but got {} channels instead",
            ws[1] * groups,
            xs[1]
        );
    }
    if let Some(b) = bias {
        ensure!(
            b.ndim() == 1 && b.shape()[0] == outputs,
            Runtime,
            "Given {}weight of size {ws}, expected bias to be 1-dimensional with {outputs} elements, but got bias of size {} instead",
            if transposed { "transposed=1, " } else { "" },
            b.shape()
        );
    }
    let behind = |i: usize| {
        if padding.len() == n {
            padding[i]
        } else {
            padding[n + i]
        }
    };
    let mut shape = Dims::from([xs[0], if xs[1] == 0 { 0 } else { outputs }]);
    if transposed {
        ensure!(
            (0..n).all(|i| output[i] < stride[i].max(dilation[i])),
            Runtime,
            "output padding must be smaller than either stride or dilation, but got output_padding: {output}, stride: {stride}, \
             dilation: {dilation}"
        );
    } else {
        let padded = |i: usize| xs[i + 2] + padding[i] + behind(i);
        let window = |i: usize| dilation[i].saturating_mul(ws[i + 2] - 1).saturating_add(1);
        ensure!(
            (0..n).all(|i| padded(i) >= window(i)),
            Runtime,
            "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than actual input size",
            joined((0..n).map(padded)),
            joined((0..n).map(window))
        );
    }
    for i in 0..n {
        let reach = dilation[i].saturating_mul(ws[i + 2] - 1);
        let size = if transposed {
            (xs[i + 2] - 1)
                .saturating_mul(stride[i])
                .saturating_sub(2 * padding[i])
                .saturating_add(reach)
                .saturating_add(output[i] + 1)
        } else {
            (xs[i + 2] + padding[i] + behind(i) - reach - 1) / stride[i] + 1
        };
        shape = shape.concat(&[size]);
    }
    ensure!(
        shape[2..].iter().all(|&s| s > 0) || x.numel() == 0,
        Runtime,
        "Given input size per channel: {}. Calculated output size per channel: {}. Output size is too small",
        Dims::new(&xs[2..]),
        Dims::new(&shape[2..])
    );
    ensure!(
        x.numel() != 0 || xs[0] == 0 || xs[1] == 0,
        Runtime,
        "Only zero batch or zero channel inputs are supported, but got input shape: {xs}"
    );
    Ok(Rule {
        shape,
        stride,
        padding,
        dilation,
    })
}

fn format_of(x: &Tensor, w: &Tensor) -> MemoryFormat {
    let last = |t: &Tensor| dims::strides_like_channels_last(t.shape(), t.strides());
    match x.ndim() {
        4 if last(x) || last(w) => MemoryFormat::ChannelsLast,
        5 if last(x) || last(w) => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    }
}

fn infer(a: &Args) -> Result<Plan> {
    let (x, w, bias) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let r = rule(a)?;
    let d = x.dtype();
    if w.dtype() != d {
        bail!(
            Runtime,
            "expected scalar type {} but found {}",
            d.scalar_type(),
            w.dtype().scalar_type()
        );
    }
    if let Some(b) = bias {
        let name = crate::ops::linalg::matrix::cpp_name;
        ensure!(
            b.dtype() == d,
            Runtime,
            "Input type ({}) and bias type ({}) should be the same",
            name(d),
            name(b.dtype())
        );
    }
    d.check_kernel(
        has_product(d),
        format_args!("slow_conv{}d_cpu", (x.ndim() - 2).max(2)),
    )?;
    let strides = dims::format_strides(&r.shape, format_of(x, w))?;
    Ok(Plan {
        outs: smallvec![OutSpec {
            shape: r.shape,
            strides,
            dtype: d
        }],
        device: None,
    })
}

pub(in crate::ops) fn triple<T: Copy>(values: &[i64], fill: T, f: impl Fn(i64) -> T) -> [T; 3] {
    let lead = 3 - values.len().min(3);
    std::array::from_fn(|i| if i < lead { fill } else { f(values[i - lead]) })
}

fn run(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, w, out) = (a.tensor(0)?, a.tensor(1)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let r = rule(a)?;
    let n = w.ndim() - 2;
    let usizes = |s: &[i64]| triple(s, 1usize, |v| v as usize);
    let format = format_of(x, w);
    let g = Geometry {
        batch: x.shape()[0] as usize,
        inputs: x.shape()[1] as usize,
        outputs: out.shape()[1] as usize,
        groups: a.int(8)? as usize,
        size: usizes(&x.shape()[2..]),
        out: usizes(&out.shape()[2..]),
        window: usizes(&w.shape()[2..]),
        stride: triple(&r.stride, 1, |v| v),
        pad: triple(&r.padding[..n], 0, |v| v),
        dilation: triple(&r.dilation, 1, |v| v),
        transposed: a.bool(6),
        channels_last: format != MemoryFormat::Contiguous,
    };
    let strides = dims::format_strides(out.shape(), format)?;
    if *out.strides() == strides {
        return cpu::convolve(out, x, w, a.opt_tensor(2), &g);
    }
    let dense = Tensor::empty_strided(
        out.shape().clone(),
        strides,
        out.dtype(),
        crate::Device::CPU,
    )?;
    cpu::convolve(&dense, x, w, a.opt_tensor(2), &g)?;
    copy::copy(out, &dense)
}
