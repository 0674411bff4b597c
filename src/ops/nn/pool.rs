//! What all poolings share: regular windows and the layouts of results.

use crate::cpu::pooling::{Job, Rule, Window, Windows, windows};
use crate::cpu::pooling_room;
use crate::cpu::room::Room;
use crate::ops::core::op::{OutSpec, Plan, Ret};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, dims, ensure, kernels};
use smallvec::smallvec;

/// One value for each dimension; PyTorch's text if there are too many or too few.
pub(in crate::ops) fn each(list: &[i64], n: usize, op: &str, what: &str) -> Result<Dims> {
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
        Dims::new(list)
    } else {
        Dims::filled(n, list[0])
    })
}

/// What a call of a pooling by regular windows asks for.
pub(in crate::ops) struct Asked<'a> {
    /// Spatial dimensions.
    pub(in crate::ops) n: usize,
    /// What messages call the operator.
    pub(in crate::ops) name: &'static str,
    pub(in crate::ops) x: &'a Tensor,
    pub(in crate::ops) kernel: &'a [i64],
    /// Empty: as the kernel.
    pub(in crate::ops) stride: &'a [i64],
    pub(in crate::ops) padding: &'a [i64],
    /// None where elements of a window are always neighbours: in means.
    pub(in crate::ops) dilation: Option<&'a [i64]>,
    pub(in crate::ops) ceil: bool,
}

/// The parameters of windows that follow each other regularly.
pub(in crate::ops) struct Regular {
    kernel: Dims,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    out: Dims,
}

/// A pooling by regular windows: what its rule found.
pub(in crate::ops) struct Pooling<'a> {
    x: &'a Tensor,
    regular: Regular,
    format: MemoryFormat,
    rule: Rule,
}

/// The rule of a pooling by regular windows.
pub(in crate::ops) fn pooled<'a>(
    x: &'a Tensor,
    regular: Regular,
    rule: Rule,
    positions: bool,
) -> Result<(Plan, Pooling<'a>)> {
    let format = format(x, regular.out.len(), matches!(rule, Rule::Max));
    let mut plan = plan(x, &regular.out, format, positions)?;
    if matches!(rule, Rule::Max) && is_volume_of_pixels(x, regular.out.len()) {
        for out in &mut plan.outs {
            let whole = out.shape.inserted(0, 1);
            out.strides = dims::format_strides(&whole, MemoryFormat::ChannelsLast3d)?.removed(0);
        }
    }
    let found = Pooling {
        x,
        regular,
        format,
        rule,
    };
    Ok((plan, found))
}

/// The kernel of a pooling by regular windows.
pub(in crate::ops) fn run<A>(_: &A, p: &Pooling, outs: &[Tensor]) -> Result<()> {
    let n = p.regular.out.len();
    let sizes = &p.x.shape()[p.x.ndim() - n..];
    let job = Job {
        n,
        format: p.format,
        rule: p.rule,
        shared: true,
        windows: &|_| p.regular.windows(sizes, matches!(p.rule, Rule::Max)),
    };
    kernels::pool::run(&job, p.x, outs)
}

/// What that kernel takes.
pub(in crate::ops) fn scratch<A>(
    _: &A,
    p: &Pooling,
    outs: &[Tensor],
    room: &mut Room,
) -> Result<()> {
    pooling_room::forward(room, (p.format, p.rule), p.x, outs)
}

/// Checks parameters and input; the windows.
pub(in crate::ops) fn regular(a: &Asked) -> Result<Regular> {
    let (x, n) = (a.x, a.n);
    let kernel = each(a.kernel, n, a.name, "kernel_size")?;
    let stride = if a.stride.is_empty() {
        kernel.clone()
    } else {
        each(a.stride, n, a.name, "stride")?
    };
    let padding = each(a.padding, n, a.name, "padding")?;
    let dilation = match a.dilation {
        Some(d) => each(d, n, a.name, "dilation")?,
        None => Dims::filled(n, 1),
    };
    let mut r = Regular {
        kernel,
        stride,
        padding,
        dilation,
        out: Dims::filled(n, 0),
    };
    r.check()?;
    check_input(a)?;
    let sizes = &x.shape()[x.ndim() - n..];
    for i in 0..n {
        r.out[i] = pooled_size(
            sizes[i],
            r.kernel[i],
            r.padding[i],
            r.stride[i],
            r.dilation[i],
            a.ceil,
        );
    }
    if n == 3 && a.dilation.is_none() {
        r.check_volume(sizes)?;
    }
    r.check_out(sizes, x.shape()[x.ndim() - n - 1])?;
    Ok(r)
}

impl Regular {
    /// The spatial sizes of the result.
    pub(in crate::ops) fn out(&self) -> &[i64] {
        &self.out
    }

    fn check(&self) -> Result<()> {
        let n = self.kernel.len();
        let axis = |names: [&str; 3], list: &Dims| -> String {
            (0..n)
                .map(|i| format!("{}: {}", names[3 - n + i], list[i]))
                .collect::<Vec<_>>()
                .join(" ")
        };
        ensure!(
            self.stride.iter().all(|&s| s != 0),
            Runtime,
            "stride should not be zero"
        );
        for (what, names, list) in [
            ("kernel size", ["kT", "kH", "kW"], &self.kernel),
            ("stride", ["dT", "dH", "dW"], &self.stride),
            (
                "dilation",
                ["dilationT", "dilationH", "dilationW"],
                &self.dilation,
            ),
        ] {
            ensure!(
                list.iter().all(|&v| v > 0),
                Runtime,
                "{what} should be greater than zero, but got {}",
                axis(names, list)
            );
        }
        for i in 0..n {
            let (p, k, d) = (self.padding[i], self.kernel[i], self.dilation[i]);
            ensure!(
                p >= 0,
                Runtime,
                "pad must be non-negative, but got pad: {p}"
            );
            ensure!(
                p <= d.saturating_mul(k - 1).saturating_add(1) / 2,
                Runtime,
                "pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
            );
        }
        Ok(())
    }

    /// Means of volumes need one whole window.
    fn check_volume(&self, sizes: &[i64]) -> Result<()> {
        let k = &self.kernel;
        ensure!(
            (0..3).all(|i| sizes[i].saturating_add(self.padding[i].saturating_mul(2)) >= k[i]),
            Runtime,
            "input image (T: {} H: {} W: {}) smaller than kernel size (kT: {} kH: {} kW: {})",
            sizes[0],
            sizes[1],
            sizes[2],
            k[0],
            k[1],
            k[2]
        );
        Ok(())
    }

    fn check_out(&self, sizes: &[i64], planes: i64) -> Result<()> {
        let shown = |s: &[i64]| {
            s.iter()
                .map(|v| v.to_string())
                .collect::<Vec<_>>()
                .join("x")
        };
        ensure!(
            self.out.iter().all(|&o| o >= 1),
            Runtime,
            "Given input size: ({planes}x{}). Calculated output size: ({planes}x{}). Output size is too small",
            shown(sizes),
            shown(&self.out)
        );
        Ok(())
    }

    /// The windows of all planes, for maxima or for means.
    pub(in crate::ops) fn windows(&self, sizes: &[i64], max: bool) -> Windows {
        windows(self.out.len(), |i| {
            (0..self.out[i])
                .map(|o| {
                    let start = o * self.stride[i] - self.padding[i];
                    if max {
                        self.maximum(i, start, sizes[i])
                    } else {
                        self.mean(i, start, sizes[i])
                    }
                })
                .collect()
        })
    }

    /// A window without its padding.
    fn maximum(&self, i: usize, start: i64, size: i64) -> Window {
        let (k, d) = (self.kernel[i], self.dilation[i]);
        let first = if start < 0 {
            start + (-start + d - 1) / d * d
        } else {
            start
        };
        let end = (start + (k - 1) * d + 1).min(size).max(0);
        Window {
            start: first as usize,
            end: end as usize,
            step: d as usize,
            padded: k as usize,
        }
    }

    /// A window whose padding counts.
    fn mean(&self, i: usize, start: i64, size: i64) -> Window {
        let end = (start + self.kernel[i]).min(size + self.padding[i]);
        Window {
            start: start.max(0) as usize,
            end: end.min(size).max(0) as usize,
            step: 1,
            padded: (end - start) as usize,
        }
    }
}

/// The parameter of a pool of sequences, a list of one number.
pub(super) fn only(list: &[i64], name: &str, parameter: &str) -> Result<i64> {
    ensure!(
        list.len() == 1,
        Runtime,
        "{name}() argument '{parameter}' should contain one int (got {})",
        list.len()
    );
    Ok(list[0])
}

fn check_input(a: &Asked) -> Result<()> {
    let (s, most) = (a.x.shape(), a.dilation.is_some());
    if a.n == 2 {
        let good = match s.len() {
            3 => s.iter().all(|&v| v != 0),
            4 => s[1..].iter().all(|&v| v != 0),
            k if k < 3 || most => bail!(
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
    let name = if most {
        "max_pool3d_with_indices_out_cpu_template()"
    } else {
        "avg_pool3d()"
    };
    // The dimension that PyTorch names is its size.
    ensure!(
        s[usize::from(s.len() == 5)..].iter().all(|&v| v > 0),
        Runtime,
        "{name}: Expected input's non-batch dimensions to have positive length, but input has a shape of {s} and non-batch \
         dimension 0 has length zero!"
    );
    Ok(())
}

pub(in crate::ops) fn pooled_size(size: i64, k: i64, p: i64, s: i64, d: i64, ceil: bool) -> i64 {
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

/// The format of a pooled result: that of the input, for the dimensions that know it.
pub(in crate::ops) fn format(x: &Tensor, n: usize, three: bool) -> MemoryFormat {
    let last = x.ndim() == n + 2 && dims::strides_like_channels_last(x.shape(), x.strides());
    match (last, n) {
        (true, 2) => MemoryFormat::ChannelsLast,
        (true, 3) if three => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    }
}

/// Whether a volume without a batch lies as one of a batch in channels last would.
fn is_volume_of_pixels(x: &Tensor, n: usize) -> bool {
    n == 3 && x.ndim() == 4 && !x.is_contiguous() && {
        let (shape, strides) = (x.shape().inserted(0, 1), x.strides().inserted(0, x.numel()));
        dims::is_channels_last(&shape, &strides, MemoryFormat::ChannelsLast3d)
    }
}

/// The result of a pooling to `out`, and perhaps the positions beside it.
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

/// The check of poolings over sequences.
pub(in crate::ops) fn check_1d(x: &Tensor, name: &str) -> Result<()> {
    ensure!(
        matches!(x.ndim(), 2 | 3),
        Runtime,
        "Expected 2 to 3 dimensions, but got {}-dimensional tensor for argument #1 'self' (while checking arguments for {name})",
        x.ndim()
    );
    Ok(())
}

/// Maxima with their positions.
pub(in crate::ops) fn both(maxima: [Tensor; 2]) -> Ret {
    Ret::Tuple(maxima.into())
}

/// Maxima with their positions, or alone.
pub(in crate::ops) fn wanted(maxima: [Tensor; 2], positions: bool) -> Ret {
    let [most, at] = maxima;
    if positions {
        both([most, at])
    } else {
        most.into()
    }
}
