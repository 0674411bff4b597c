//! Convolutions and their gradients, by where the data is. On a GPU they are products with windows as columns, but for groups that
//! are too small for that.

use super::job::{Job, Kernel, computed};
use super::{accelerator, converted, copy, dense, fill, on_host, placed};
use crate::cpu::conv::Geometry;
use crate::cpu::rows::Operand;
use crate::plan::ViewPlan;
use crate::{DType, Dims, MemoryFormat, Result, Scalar, Tensor, cpu, dims};

const FILE: &str = include_str!("../cuda/kernels/conv.cu");
const fn kernel(name: &'static str) -> Kernel {
    Kernel { file: FILE, name }
}

/// Bytes of columns at a time.
const COLUMNS: usize = 512 << 20;
/// Groups from which on products are too small.
const MANY_GROUPS: usize = 8;

/// What is compiled for a dtype, for checks without a device.
pub(super) fn samples(d: DType) -> Vec<Job> {
    vec![Job::new(kernel("columns")).ty("T", d)]
}

/// What a convolution is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Its result.
    Forward,
    /// The gradient of what windows are taken of.
    ToInput,
    /// The gradient of its weight.
    ToWeight,
}

/// A convolution for a library: all tensors lie in the geometry's format, one of them is written.
#[derive(Debug)]
pub struct Work<'a> {
    /// Which is written.
    pub direction: Direction,
    /// What windows are taken of.
    pub x: &'a Tensor,
    /// The weight.
    pub w: &'a Tensor,
    /// An element for each window.
    pub y: &'a Tensor,
    /// Sizes in the direction in which windows are taken.
    pub g: &'a Geometry,
}

/// A tensor in the geometry's format; itself if it lies so.
fn laid(t: &Tensor, g: &Geometry) -> Result<Tensor> {
    if lies(t, g)? {
        return Ok(t.clone());
    }
    let made = like(t, g)?;
    copy(&made, t)?;
    Ok(made)
}

/// Room for a tensor in the geometry's format.
fn like(t: &Tensor, g: &Geometry) -> Result<Tensor> {
    Tensor::empty_strided(t.shape().clone(), strides(t, g)?, t.dtype(), t.device())
}

/// The strides that a tensor has in the geometry's format.
fn strides(t: &Tensor, g: &Geometry) -> Result<Dims> {
    let format = match t.ndim() {
        4 if g.channels_last => MemoryFormat::ChannelsLast,
        5 if g.channels_last => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    };
    dims::format_strides(t.shape(), format)
}

/// Runs a convolution by a library; false if none does it. `out` is one of the three.
fn by_library(direction: Direction, [x, w, y]: [&Tensor; 3], windows: &Windows) -> Result<bool> {
    let g = &windows.g;
    let out = match direction {
        Direction::Forward => y,
        Direction::ToInput => x,
        Direction::ToWeight => w,
    };
    let made = if lies(out, g)? {
        out.clone()
    } else {
        like(out, g)?
    };
    let ready = |t: &Tensor| {
        if std::ptr::eq(t, out) {
            Ok(made.clone())
        } else {
            laid(t, g)
        }
    };
    let (x, w, y) = (ready(x)?, ready(w)?, ready(y)?);
    let work = Work {
        direction,
        x: &x,
        w: &w,
        y: &y,
        g,
    };
    if !accelerator()?.convolve(&work)? {
        return Ok(false);
    }
    if !made.shares_storage(out) {
        copy(out, &made)?;
    }
    Ok(true)
}

/// True if a tensor lies in the geometry's format.
fn lies(t: &Tensor, g: &Geometry) -> Result<bool> {
    Ok(!t.is_lazy() && *t.strides() == strides(t, g)?)
}

/// A geometry in the direction in which windows are taken, whichever way the convolution goes.
#[derive(Clone)]
struct Windows {
    g: Geometry,
}

impl Windows {
    fn new(g: &Geometry) -> Self {
        let mut own = g.clone();
        if g.transposed {
            (own.inputs, own.outputs) = (g.outputs, g.inputs);
            (own.size, own.out) = (g.out, g.size);
            own.transposed = false;
        }
        Self { g: own }
    }

    fn positions(&self) -> i64 {
        self.g.out.iter().product::<usize>() as i64
    }

    fn places(&self) -> i64 {
        self.g.window.iter().product::<usize>() as i64
    }

    fn size(&self) -> i64 {
        self.g.size.iter().product::<usize>() as i64
    }

    fn inputs(&self) -> i64 {
        self.g.inputs as i64
    }

    fn outputs(&self) -> i64 {
        self.g.outputs as i64
    }

    /// True if a column is an element of the input.
    fn plain(&self) -> bool {
        let g = &self.g;
        g.window == [1; 3] && g.stride == [1; 3] && g.pad == [0; 3]
    }

    /// True if products serve.
    fn by_products(&self, d: DType) -> bool {
        use DType::*;
        let has = matches!(d, F16 | BF16 | F32 | F64 | C64 | C128);
        has && (self.g.groups < MANY_GROUPS || self.g.inputs / self.g.groups >= 32)
    }

    fn pass(&self, job: Job) -> Job {
        let g = &self.g;
        let counts = [g.batch, g.inputs, g.outputs, g.groups].map(|n| n as i64);
        let sizes = [g.size, g.out, g.window].map(|s| s.map(|n| n as i64));
        let steps = [g.stride, g.pad, g.dilation];
        job.group(
            [],
            counts
                .into_iter()
                .chain(sizes.into_iter().chain(steps).flatten()),
        )
    }

    /// How many images have their columns in memory at a time.
    fn images(&self, d: DType) -> i64 {
        let one = (self.inputs() * self.places() * self.positions()) as usize * d.size();
        ((COLUMNS / one.max(1)) as i64).clamp(1, (self.g.batch as i64).max(1))
    }

    /// Columns of `images` images from the first of `x` on.
    fn columns(&self, x: &Tensor, images: i64, whole: bool) -> Result<Tensor> {
        let rows = self.inputs() * self.places();
        let shape = if whole {
            [rows, images, self.positions()]
        } else {
            [images, rows, self.positions()]
        };
        let out = Tensor::empty(&shape, x.dtype(), x.device())?;
        let job = Job::new(kernel("columns"))
            .ty("T", x.dtype())
            .at(&out)
            .at(x);
        let job = job.int(images).int(i64::from(whole));
        self.pass(job).each(&out, out.numel())?;
        Ok(out)
    }
}

/// The windows of images of a tensor beside the host as columns.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn unfold(out: &Tensor, x: &Tensor, g: &Geometry) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let made = Windows::new(g).columns(&dense(x)?, g.batch as i64, false)?;
    let strides = dims::contiguous_strides(out.shape());
    copy(
        out,
        &made.raw_view(&ViewPlan::with(&made, out.shape().clone(), strides, 0)),
    )
}

/// Columns of a tensor beside the host added back into images.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn fold(out: &Tensor, columns: &Tensor, g: &Geometry) -> Result<()> {
    let columns = converted(columns, computed(columns.dtype()))?;
    placed(out, |out| {
        let job = Job::new(kernel("back"))
            .ty("T", out.dtype())
            .at(out)
            .at(&columns);
        let windows = Windows::new(g);
        windows.pass(job.int(g.batch as i64)).each(out, out.numel())
    })
}

/// Matrices within a dense tensor: how many, rows and columns, the strides, and where the first begins.
fn matrices(t: &Tensor, shape: [i64; 3], strides: [i64; 3], first: i64) -> Tensor {
    let (shape, strides) = (Dims::new(&shape), Dims::new(&strides));
    t.raw_view(&ViewPlan::with(t, shape, strides, t.offset() + first))
}

fn multiply(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    accelerator()?.product(c, a, b, Scalar::Int(1), Scalar::Int(0), None)
}

/// See [`cpu::conv::convolve`].
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn convolve(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    if on_host(out) {
        return cpu::conv::convolve(out, x, w, bias, g);
    }
    if out.numel() == 0 {
        return Ok(());
    }
    let windows = Windows::new(g);
    let parts = if g.transposed {
        [out, w, x]
    } else {
        [x, w, out]
    };
    let direction = if g.transposed {
        Direction::ToInput
    } else {
        Direction::Forward
    };
    if x.numel() == 0 || w.numel() == 0 {
        fill(out, Scalar::Int(0))?;
    } else if !by_library(direction, parts, &windows)? {
        own(out, x, w, &windows, g.transposed)?;
    }
    let Some(bias) = bias else { return Ok(()) };
    let mut strides = Dims::filled(out.ndim(), 0);
    strides[1] = bias.strides()[0];
    let bias = bias.raw_view(&ViewPlan::with(
        bias,
        out.shape().clone(),
        strides,
        bias.offset(),
    ));
    let operands = [Operand::Tensor(out), Operand::Tensor(&bias)];
    accelerator()?.map("a + b", &operands, out.dtype(), &Default::default(), out)
}

/// A convolution by kernels of our own.
fn own(out: &Tensor, x: &Tensor, w: &Tensor, windows: &Windows, transposed: bool) -> Result<()> {
    let (x, w) = (dense(x)?, dense(w)?);
    placed(out, |out| {
        if !windows.by_products(out.dtype()) {
            let name = if transposed { "backward" } else { "forward" };
            let job = Job::new(kernel(name)).ty("T", out.dtype());
            windows
                .pass(job.at(out).at(&x).at(&w))
                .each(out, out.numel())
        } else if transposed {
            spread(out, &x, &w, windows)
        } else {
            gathered(out, &x, &w, windows)
        }
    })
}

/// Weights times columns, for some images at a time.
fn gathered(out: &Tensor, x: &Tensor, w: &Tensor, windows: &Windows) -> Result<()> {
    let (g, p) = (&windows.g, windows.positions());
    let (batch, groups) = (g.batch as i64, g.groups as i64);
    let (rows, depth) = (
        windows.outputs() / groups,
        windows.inputs() / groups * windows.places(),
    );
    let step = if windows.plain() {
        batch
    } else {
        windows.images(x.dtype())
    };
    let mut first = 0;
    while first < batch {
        let n = step.min(batch - first);
        let made;
        let columns = if windows.plain() {
            x
        } else {
            let start = first * windows.inputs() * windows.size();
            made = windows.columns(&matrices(x, [1, 1, 1], [1; 3], start), n, false)?;
            &made
        };
        for group in 0..groups {
            let a = matrices(w, [n, rows, depth], [0, depth, 1], group * rows * depth);
            let b = matrices(
                columns,
                [n, depth, p],
                [groups * depth * p, p, 1],
                group * depth * p,
            );
            let at = (first * groups + group) * rows * p;
            let c = matrices(out, [n, rows, p], [groups * rows * p, p, 1], at);
            multiply(&c, &a, &b)?;
        }
        first += n;
    }
    Ok(())
}

/// Columns from weights and elements, added up where they came from.
fn spread(out: &Tensor, x: &Tensor, w: &Tensor, windows: &Windows) -> Result<()> {
    let (g, p) = (&windows.g, windows.positions());
    let (batch, groups) = (g.batch as i64, g.groups as i64);
    let (each, depth) = (
        windows.outputs() / groups,
        windows.inputs() / groups * windows.places(),
    );
    let step = windows.images(x.dtype());
    let mut first = 0;
    while first < batch {
        let n = step.min(batch - first);
        // What is added up later is not rounded before.
        let columns = if windows.plain() {
            out.clone()
        } else {
            Tensor::empty(&[n, groups * depth, p], computed(x.dtype()), x.device())?
        };
        let start = if windows.plain() {
            first * groups * depth * p
        } else {
            0
        };
        for group in 0..groups {
            let a = matrices(w, [n, depth, each], [0, 1, depth], group * each * depth);
            let at = (first * groups + group) * each * p;
            let b = matrices(x, [n, each, p], [groups * each * p, p, 1], at);
            let strides = [groups * depth * p, p, 1];
            let c = matrices(&columns, [n, depth, p], strides, start + group * depth * p);
            multiply(&c, &a, &b)?;
        }
        if !windows.plain() {
            let at = first * windows.inputs() * windows.size();
            let part = matrices(out, [1, 1, 1], [1; 3], at);
            let job = Job::new(kernel("back"))
                .ty("T", x.dtype())
                .at(&part)
                .at(&columns)
                .int(n);
            let n = n * windows.inputs() * windows.size();
            windows.pass(job).each(out, n)?;
        }
        first += n;
    }
    Ok(())
}

/// See [`cpu::conv::weight_gradient`]: `x` is what windows are taken of.
///
/// # Errors
/// If a kernel or memory cannot be had.
pub fn weight_gradient(out: &Tensor, grad: &Tensor, x: &Tensor, g: &Geometry) -> Result<()> {
    if on_host(out) {
        return cpu::conv::weight_gradient(out, grad, x, g);
    }
    if grad.numel() == 0 || x.numel() == 0 {
        return fill(out, Scalar::Int(0));
    }
    let windows = Windows::new(g);
    if by_library(Direction::ToWeight, [x, out, grad], &windows)? {
        return Ok(());
    }
    let (grad, x) = (dense(grad)?, dense(x)?);
    placed(out, |out| {
        if windows.by_products(out.dtype()) {
            return weighed(out, &grad, &x, &windows);
        }
        let job = Job::new(kernel("by_weight"))
            .ty("T", out.dtype())
            .at(out)
            .at(&grad)
            .at(&x);
        windows.pass(job).blocks(out, out.numel())
    })
}

/// The gradient of weights as a product over all positions of some images at a time.
fn weighed(out: &Tensor, grad: &Tensor, x: &Tensor, windows: &Windows) -> Result<()> {
    let (g, p) = (&windows.g, windows.positions());
    let (batch, groups) = (g.batch as i64, g.groups as i64);
    let (rows, depth) = (
        windows.outputs() / groups,
        windows.inputs() / groups * windows.places(),
    );
    let step = windows.images(x.dtype());
    // Gradients with images and positions side by side.
    let turned = Tensor::empty(&[windows.outputs(), batch, p], grad.dtype(), grad.device())?;
    copy(
        &turned,
        &matrices(
            grad,
            [windows.outputs(), batch, p],
            [p, windows.outputs() * p, 1],
            0,
        ),
    )?;
    let mut first = 0;
    let mut sum: Option<Tensor> = None;
    while first < batch {
        let n = step.min(batch - first);
        let start = first * windows.inputs() * windows.size();
        let columns = windows.columns(&matrices(x, [1, 1, 1], [1; 3], start), n, true)?;
        let long = n * p;
        let part = if first == 0 {
            out.clone()
        } else {
            Tensor::empty(out.shape(), out.dtype(), out.device())?
        };
        for group in 0..groups {
            let a = matrices(
                &turned,
                [1, rows, long],
                [0, batch * p, 1],
                group * rows * batch * p + first * p,
            );
            let b = matrices(
                &columns,
                [1, long, depth],
                [0, 1, long],
                group * depth * long,
            );
            let c = matrices(&part, [1, rows, depth], [0, depth, 1], group * rows * depth);
            multiply(&c, &a, &b)?;
        }
        if first > 0 {
            let before = sum.as_ref().unwrap_or(out);
            let wide = converted(before, computed(out.dtype()))?;
            let operands = [Operand::Tensor(&wide), Operand::Tensor(&part)];
            let next = Tensor::empty(out.shape(), wide.dtype(), out.device())?;
            accelerator()?.map("a + b", &operands, wide.dtype(), &Default::default(), &next)?;
            sum = Some(next);
        }
        first += n;
    }
    sum.map_or(Ok(()), |sum| copy(out, &sum))
}
