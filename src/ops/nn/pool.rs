//! Max pooling, and what all poolings share.

use crate::cpu::pooling::{self as cpu, Layout, Rule, Window, Windows};
use crate::cpu::{self as host, copy};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::{
    DType, Device, Dims, MemoryFormat, Result, Scalar, Tensor, bail, dims, ensure, op, run, run1,
};
use smallvec::smallvec;
use torchlike_macros::operators;

const MAX2: &str = "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False)";

const MAX3: &str = "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False)";

const MAX1: &str = "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False)";

const MAX1_AT: &str = "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)";

const MAX2_AT: &str = "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)";

const MAX3_AT: &str = "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)";

macro_rules! max_rows {
    ($($n:literal, $name:literal, $with:literal, $ints:literal;)+) => { [$(
        old_compose($name, concat!("(Tensor input, ", $ints, " kernel_size, ", $ints, "? stride=None, ", $ints, " padding=0, ", $ints, " dilation=1, bool ceil_mode=False, bool return_indices=False)"), F, |a| max_function(a, $n, false), "The largest elements of windows."),
        old_compose($with, concat!("(Tensor input, ", $ints, " kernel_size, ", $ints, "? stride=None, ", $ints, " padding=0, ", $ints, " dilation=1, bool ceil_mode=False, bool return_indices=False)"), F, |a| max_function(a, $n, true), "The largest elements of windows, and their positions."),
    )+] };
}

/// The functions of nn.functional for maxima.
pub static MAXIMA: &[OpDef] = &max_rows! {
    1, "nn.functional.max_pool1d", "nn.functional.max_pool1d_with_indices", "int[1]";
    2, "nn.functional.max_pool2d", "nn.functional.max_pool2d_with_indices", "int[2]";
    3, "nn.functional.max_pool3d", "nn.functional.max_pool3d_with_indices", "int[3]";
};

macro_rules! unpool_rows {
    ($($n:literal, $name:literal, $ints:literal;)+) => { [$(
        old_compose($name, concat!("(Tensor input, Tensor indices, ", $ints, " kernel_size, ", $ints, "? stride=None, ", $ints, " padding=0, int[]? output_size=None)"), F, |a| unpool_function(a, $n), "Pooled values put back where they came from, zeros elsewhere."),
    )+] };
}

/// The functions of nn.functional that undo maxima.
pub static UNPOOL: &[OpDef] = &unpool_rows! {
    1, "nn.functional.max_unpool1d", "int[1]";
    2, "nn.functional.max_unpool2d", "int[2]";
    3, "nn.functional.max_unpool3d", "int[3]";
};

/// The other rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "max_pool1d",
        MAX1,
        F,
        |a| max1(a, false),
        "The largest elements of windows.",
    ),
    old_compose(
        "max_pool1d_with_indices",
        MAX1_AT,
        F,
        |a| max1(a, true),
        "The largest elements of windows, and their positions.",
    ),
    kernel(
        "max_pool2d",
        MAX2,
        F,
        KernelBody::new(|a| infer_max(a, 2, false), |a, o| run_max(a, o, 2)),
        "The largest elements of windows.",
    ),
    kernel(
        "max_pool3d",
        MAX3,
        F,
        KernelBody::new(|a| infer_max(a, 3, false), |a, o| run_max(a, o, 3)),
        "The largest elements of windows.",
    ),
    kernel(
        "max_pool2d_with_indices",
        MAX2_AT,
        F,
        KernelBody::new(|a| infer_max(a, 2, true), |a, o| run_max(a, o, 2)),
        "The largest elements of windows, and their positions.",
    ),
    kernel(
        "max_pool3d_with_indices",
        MAX3_AT,
        F,
        KernelBody::new(|a| infer_max(a, 3, true), |a, o| run_max(a, o, 3)),
        "The largest elements of windows, and their positions.",
    ),
    kernel(
        "_max_unpool",
        "(Tensor self, Tensor indices, int[] output_size)",
        0,
        KernelBody::new(infer_unpool, run_unpool),
        "",
    ),
];

/// One value for each dimension; PyTorch's text if there are too many or too few.
pub(in crate::ops) fn each(list: &Dims, n: usize, op: &str, what: &str) -> Result<Dims> {
    let may = if what == "stride" {
        "be omitted, a single int"
    } else {
        "be a single int"
    };
    let words = ["", "one int", "two ints", "three ints"][n.min(3)];
    ensure!(
        list.len() == 1 || list.len() == n,
        Runtime,
        "{op}: {what} must either {may}, or a tuple of {words}"
    );
    Ok(if list.len() == n {
        list.clone()
    } else {
        Dims::filled(n, list[0])
    })
}

/// The parameters of windows that follow each other regularly.
pub(in crate::ops) struct Regular {
    pub(in crate::ops) kernel: Dims,
    pub(in crate::ops) stride: Dims,
    pub(in crate::ops) padding: Dims,
    pub(in crate::ops) dilation: Dims,
    pub(in crate::ops) out: Dims,
}

/// Reads kernel, stride and padding from positions 1 to 3.
pub(in crate::ops) fn regular(
    a: &Args,
    n: usize,
    dilation: Option<&Dims>,
    ceil: bool,
) -> Result<Regular> {
    let name = a.name().trim_end_matches("_with_indices");
    let kernel = each(a.ints(1)?, n, name, "kernel_size")?;
    let stride = match a.opt_ints(2) {
        Some(s) if !s.is_empty() => each(s, n, name, "stride")?,
        _ => kernel.clone(),
    };
    let padding = each(a.ints(3)?, n, name, "padding")?;
    let dilation = match dilation {
        Some(d) => each(d, n, name, "dilation")?,
        None => Dims::filled(n, 1),
    };
    let x = a.tensor(0)?;
    let axis = |names: [&str; 3], list: &Dims| -> String {
        (0..n)
            .map(|i| format!("{}: {}", names[3 - n + i], list[i]))
            .collect::<Vec<_>>()
            .join(" ")
    };
    ensure!(
        stride.iter().all(|&s| s != 0),
        Runtime,
        "stride should not be zero"
    );
    ensure!(
        kernel.iter().all(|&k| k > 0),
        Runtime,
        "kernel size should be greater than zero, but got {}",
        axis(["kT", "kH", "kW"], &kernel)
    );
    ensure!(
        stride.iter().all(|&s| s > 0),
        Runtime,
        "stride should be greater than zero, but got {}",
        axis(["dT", "dH", "dW"], &stride)
    );
    ensure!(
        dilation.iter().all(|&d| d > 0),
        Runtime,
        "dilation should be greater than zero, but got {}",
        axis(["dilationT", "dilationH", "dilationW"], &dilation)
    );
    for i in 0..n {
        let (p, k, d) = (padding[i], kernel[i], dilation[i]);
        ensure!(
            p >= 0,
            Runtime,
            "pad must be non-negative, but got pad: {p}"
        );
        ensure!(
            p <= (d.saturating_mul(k - 1) + 1) / 2,
            Runtime,
            "pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
        );
    }
    check_input(x, n)?;
    let sizes = &x.shape()[x.ndim() - n..];
    let mut out = Dims::filled(n, 0);
    for i in 0..n {
        out[i] = pooled_size(
            sizes[i],
            kernel[i],
            padding[i],
            stride[i],
            dilation[i],
            ceil,
        );
    }
    if n == 3
        && dilation.iter().all(|&d| d == 1)
        && (0..3).any(|i| sizes[i] + 2 * padding[i] < kernel[i])
        && a.name().starts_with("avg")
    {
        bail!(
            Runtime,
            "input image (T: {} H: {} W: {}) smaller than kernel size (kT: {} kH: {} kW: {})",
            sizes[0],
            sizes[1],
            sizes[2],
            kernel[0],
            kernel[1],
            kernel[2]
        );
    }
    let planes = x.shape()[x.ndim() - n - 1];
    let shown = |s: &[i64]| {
        s.iter()
            .map(|v| v.to_string())
            .collect::<Vec<_>>()
            .join("x")
    };
    ensure!(
        out.iter().all(|&o| o >= 1),
        Runtime,
        "Given input size: ({planes}x{}). Calculated output size: ({planes}x{}). Output size is too small",
        shown(sizes),
        shown(&out)
    );
    Ok(Regular {
        kernel,
        stride,
        padding,
        dilation,
        out,
    })
}

fn check_input(x: &Tensor, n: usize) -> Result<()> {
    let s = x.shape();
    if n == 2 {
        let good = match s.len() {
            3 => s.iter().all(|&v| v != 0),
            4 => s[1..].iter().all(|&v| v != 0),
            k if k < 3 => bail!(
                Runtime,
                "non-empty 3D or 4D (batch mode) tensor expected for input"
            ),
            _ => false,
        };
        ensure!(
            good,
            Runtime,
            "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for input, but got:{s}"
        );
        return Ok(());
    }
    ensure!(
        s.len() == 4 || s.len() == 5,
        Runtime,
        "non-empty 4D or 5D (batch mode) tensor expected for input"
    );
    let skip = usize::from(s.len() == 5);
    for (i, &v) in s.iter().enumerate().skip(skip) {
        ensure!(
            v > 0,
            Runtime,
            "pool3d(): Expected input's non-batch dimensions to have positive length, but input has a shape of {s} and non-batch \
             dimension {} has length zero!",
            i - skip
        );
    }
    Ok(())
}

fn pooled_size(size: i64, k: i64, p: i64, s: i64, d: i64, ceil: bool) -> i64 {
    let room = size
        .saturating_add(2 * p)
        .saturating_sub(d.saturating_mul(k - 1))
        - 1;
    let out = (room + if ceil { s - 1 } else { 0 }).div_euclid(s) + 1;
    if ceil && (out - 1) * s >= size + p {
        out - 1
    } else {
        out
    }
}

impl Regular {
    pub(in crate::ops) fn windows(&self, sizes: &[i64], max: bool) -> Windows {
        let n = self.out.len();
        let one = Window {
            start: 0,
            end: 1,
            step: 1,
            padded: 1,
        };
        std::array::from_fn(|axis| {
            if axis + n < 3 {
                return vec![one];
            }
            let i = axis + n - 3;
            let (k, s, p, d, size) = (
                self.kernel[i],
                self.stride[i],
                self.padding[i],
                self.dilation[i],
                sizes[i],
            );
            (0..self.out[i])
                .map(|o| {
                    let start = o * s - p;
                    if max {
                        let first = if start < 0 {
                            start + (-start + d - 1) / d * d
                        } else {
                            start
                        };
                        let end = (start + (k - 1) * d + 1).min(size).max(0);
                        return Window {
                            start: first as usize,
                            end: end as usize,
                            step: d as usize,
                            padded: k as usize,
                        };
                    }
                    let end = (start + k).min(size + p);
                    Window {
                        start: start.max(0) as usize,
                        end: end.min(size).max(0) as usize,
                        step: 1,
                        padded: (end - start) as usize,
                    }
                })
                .collect()
        })
    }
}

/// The format of a pooled result: that of the input, for the dimensions that know it.
pub(in crate::ops) fn format(x: &Tensor, n: usize, three: bool) -> MemoryFormat {
    let last = x.ndim() == n + 2 && dims::strides_like_channels_last(x.shape(), x.strides());
    match (last, n) {
        (true, 2) => MemoryFormat::ChannelsLast,
        (true, 3) if three => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    }
}

pub(in crate::ops) fn plan(
    x: &Tensor,
    out: &[i64],
    format: MemoryFormat,
    positions: bool,
) -> Result<Plan> {
    let shape = Dims::new(&x.shape()[..x.ndim() - out.len()]).concat(out);
    if let Some(&d) = shape.iter().find(|&&d| d < 0) {
        bail!(
            Runtime,
            "Trying to create tensor with negative dimension {d}: {shape}"
        );
    }
    let strides = dims::format_strides(&shape, format)?;
    let mut outs = smallvec![OutSpec {
        shape: shape.clone(),
        strides: strides.clone(),
        dtype: x.dtype()
    }];
    if positions {
        outs.push(OutSpec {
            shape,
            strides,
            dtype: DType::I64,
        });
    }
    Ok(Plan { outs, device: None })
}

/// Runs a pooling kernel on dense tensors in one format.
pub(in crate::ops) fn execute(
    x: &Tensor,
    outs: &[Tensor],
    n: usize,
    format: MemoryFormat,
    rule: Rule,
    shared: bool,
    windows: &(dyn Fn(usize) -> Windows + Sync),
) -> Result<()> {
    let out = &outs[0];
    if out.numel() == 0 {
        return Ok(());
    }
    let last = format != MemoryFormat::Contiguous;
    let input = if last {
        let mut order: Vec<usize> = (0..x.ndim()).collect();
        order.remove(1);
        order.push(1);
        copy::dense(&x.permuted(&order), x.dtype())?
    } else {
        copy::dense(x, x.dtype())?
    };
    let triple = |t: &Tensor| -> [usize; 3] {
        let s = &t.shape()[t.ndim() - n..];
        std::array::from_fn(|i| if i + n < 3 { 1 } else { s[i + n - 3] as usize })
    };
    let lead: i64 = x.shape()[..x.ndim() - n].iter().product();
    let inner = if last { x.shape()[1] } else { 1 };
    let l = Layout {
        planes: (lead / inner) as usize,
        size: triple(x),
        out: triple(out),
        inner: inner as usize,
    };
    let strides = dims::format_strides(out.shape(), format)?;
    let fresh = |t: &Tensor| {
        if *t.strides() == strides {
            Ok(t.clone())
        } else {
            Tensor::empty_strided(t.shape().clone(), strides.clone(), t.dtype(), Device::CPU)
        }
    };
    let dense: Vec<Tensor> = outs.iter().map(fresh).collect::<Result<_>>()?;
    cpu::pool(&dense[0], dense.get(1), &input, l, rule, shared, windows)?;
    for (o, d) in outs.iter().zip(&dense) {
        if *o.strides() != strides {
            copy::copy(o, d)?;
        }
    }
    Ok(())
}

fn infer_max(a: &Args, n: usize, positions: bool) -> Result<Plan> {
    let x = a.tensor(0)?;
    let r = regular(a, n, Some(a.ints(4)?), a.bool(5))?;
    let d = x.dtype();
    d.check_kernel(
        !d.is_complex()
            && d != DType::Bool
            && !d.is_storage_only()
            && !matches!(d, DType::U16 | DType::U32 | DType::U64),
        format_args!("max_pool{n}d"),
    )?;
    plan(x, &r.out, format(x, n, true), positions)
}

fn run_max(a: &Args, outs: &[Tensor], n: usize) -> Result<()> {
    let x = a.tensor(0)?;
    let r = regular(a, n, Some(a.ints(4)?), a.bool(5))?;
    let sizes = &x.shape()[x.ndim() - n..];
    execute(x, outs, n, format(x, n, true), Rule::Max, true, &|_| {
        r.windows(sizes, true)
    })
}

fn max1(a: &Args, positions: bool) -> Result<Ret> {
    let x = a.tensor(0)?;
    let s = x.shape();
    let good =
        matches!(s.len(), 2 | 3) && s.iter().skip(s.len().saturating_sub(2)).all(|&v| v != 0);
    ensure!(
        good,
        Runtime,
        "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:{s}"
    );
    for (i, name) in [(1, "kernel_size"), (3, "padding"), (4, "dilation")] {
        let len = a.ints(i)?.len();
        ensure!(
            len == 1,
            Runtime,
            "max_pool1d() {name} must be an int, list of ints or tuple of ints of size 1 but got size {len}"
        );
    }
    let kernel = a.ints(1)?[0];
    let stride = a
        .opt_ints(2)
        .and_then(|s| s.first().copied())
        .unwrap_or(kernel);
    let (padding, dilation) = (a.ints(3)?[0], a.ints(4)?[0]);
    for (v, name) in [
        (kernel, "kernel_size"),
        (stride, "stride"),
        (dilation, "dilation"),
    ] {
        ensure!(
            v > 0,
            Runtime,
            "max_pool1d() {name} must be greater than zero, but got {v}"
        );
    }
    ensure!(
        padding >= 0,
        Runtime,
        "max_pool1d() padding must be non-negative, but got {padding}"
    );
    ensure!(
        padding <= kernel / 2,
        Runtime,
        "max_pool1d() padding should be at most half of kernel size, but got padding={padding} and kernel_size={kernel}"
    );
    let out = pooled_size(s[s.len() - 1], kernel, padding, stride, dilation, a.bool(5));
    ensure!(
        out > 0,
        Runtime,
        "max_pool1d() Invalid computed output size: {out}"
    );
    x.dtype()
        .check_kernel(x.dtype().is_float(), "max_pool1d_impl")?;
    let x = if positions {
        x.clone()
    } else {
        run1!("contiguous", x)?
    };
    let wide = run1!("unsqueeze", &x, -2i64)?;
    let pair = |first: i64, v: i64| Dims::from([first, v]);
    let (k, st, p, d) = (
        pair(1, kernel),
        pair(1, stride),
        pair(0, padding),
        pair(1, dilation),
    );
    let narrow = |t: &Tensor| run1!("squeeze#dim", t, -2i64);
    if positions {
        let both = run!("max_pool2d_with_indices", &wide, k, st, p, d, a.bool(5))?.tensors();
        return Ok(Ret::Tuple(both.iter().map(narrow).collect::<Result<_>>()?));
    }
    narrow(&run1!("max_pool2d", &wide, k, st, p, d, a.bool(5))?).map(Ret::from)
}

fn max_function(a: &Args, n: usize, always: bool) -> Result<Ret> {
    let positions = always || a.bool(6);
    let op = match (n, positions) {
        (1, false) => op!("max_pool1d")?,
        (1, true) => op!("max_pool1d_with_indices")?,
        (2, false) => op!("max_pool2d")?,
        (2, true) => op!("max_pool2d_with_indices")?,
        (_, false) => op!("max_pool3d")?,
        (_, true) => op!("max_pool3d_with_indices")?,
    };
    let mut values: Vec<Arg> = a.values[..6].to_vec();
    if matches!(values[2], Arg::None) {
        values[2] = Arg::Ints(Dims::EMPTY);
    }
    crate::ops::core::dispatch::run(op, &values)
}

pub(in crate::ops) fn check_1d(x: &Tensor, name: &str) -> Result<()> {
    ensure!(
        matches!(x.ndim(), 2 | 3),
        Runtime,
        "Expected 2 to 3 dimensions, but got {}-dimensional tensor for argument #1 'self' (while checking arguments for {name})",
        x.ndim()
    );
    Ok(())
}

fn unpool_function(a: &Args, n: usize) -> Result<Ret> {
    let (x, at, name) = (a.tensor(0)?, a.tensor(1)?, a.name());
    let kernel = each(a.ints(2)?, n, name, "kernel_size")?;
    let stride = match a.opt_ints(3) {
        Some(s) => each(s, n, name, "stride")?,
        None => kernel.clone(),
    };
    let padding = each(a.ints(4)?, n, name, "padding")?;
    let sizes = x.shape();
    let default: Dims = if sizes.len() >= n {
        (0..n)
            .map(|i| (sizes[sizes.len() - n + i] - 1) * stride[i] + kernel[i] - 2 * padding[i])
            .collect()
    } else {
        Dims::filled(n, 0)
    };
    let size = match a.opt_ints(5) {
        None => default,
        Some(s) => {
            let given = if s.len() == n + 2 {
                Dims::new(&s[2..])
            } else {
                s.clone()
            };
            ensure!(
                given.len() == n,
                Value,
                "output_size should be a sequence containing {n} or {} elements, but it has a length of '{}'",
                n + 2,
                s.len()
            );
            for d in 0..n {
                let (low, high) = (default[d] - stride[d], default[d] + stride[d]);
                if !(low < given[d] && given[d] < high) {
                    let list: Vec<String> = given.iter().map(ToString::to_string).collect();
                    let shown = if n == 1 {
                        format!("({},)", list[0])
                    } else {
                        format!("({})", list.join(", "))
                    };
                    bail!(
                        Value,
                        "invalid output_size \"{shown}\" (dim {d} must be between {low} and {high})"
                    );
                }
            }
            given
        }
    };
    if n == 1 {
        let (x, at) = (
            run1!("unsqueeze", x, -1i64)?,
            run1!("unsqueeze", at, -1i64)?,
        );
        let out = run1!("_max_unpool", &x, &at, Dims::from([size[0], 1]))?;
        return Ok(run1!("squeeze#dim", &out, -1i64)?.into());
    }
    Ok(run1!("_max_unpool", x, at, size)?.into())
}

fn infer_unpool(a: &Args) -> Result<Plan> {
    let (x, at, size) = (a.tensor(0)?, a.tensor(1)?, a.ints(2)?);
    let n = size.len();
    ensure!(
        at.dtype() == DType::I64,
        Runtime,
        "elements in indices should be type int64 but got: {}",
        at.dtype().scalar_type()
    );
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "Input to max_unpooling{n}d should be a {}d or {}d Tensor, but got a tensor with {} dimensions.",
        n + 1,
        n + 2,
        x.ndim()
    );
    ensure!(
        x.shape() == at.shape(),
        Runtime,
        "Expected shape of indices to be same as that of the input tensor ({}) but got indices tensor with shape: {}",
        x.shape(),
        at.shape()
    );
    let d = x.dtype();
    d.check_float_kernel(format_args!("max_unpool{n}d"))?;
    plan(x, size, format(x, n, false), false)
}

fn run_unpool(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, at, size, out) = (a.tensor(0)?, a.tensor(1)?, a.ints(2)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    host::fill(&dense, Scalar::Int(0))?;
    let planes: i64 = x.shape()[..x.ndim() - size.len()].iter().product();
    cpu::unpool(&dense, x, at, planes as usize, size, size.len() == 3)?;
    if out.is_contiguous() {
        Ok(())
    } else {
        copy::copy(out, &dense)
    }
}
