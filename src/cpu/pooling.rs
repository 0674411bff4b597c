//! Pooling: the largest element or the mean of windows, whatever rule chose the windows.

#![allow(unsafe_code, reason = "walks planes of dense tensors")]

mod alike;
mod row;

use super::lines::Shared;
use super::{copy, pool};
use crate::{DType, Device, Element, MemoryFormat, Result, Tensor, bail, dims};
use alike::Alike;
pub use row::plus;
use row::{Lines, Row};

/// One window along one dimension: its elements are `start`, `start + step`, ... below `end`.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First element, within the input.
    pub start: usize,
    /// Behind the last element.
    pub end: usize,
    /// Distance of elements.
    pub step: usize,
    /// Elements counted in the mean, with padding.
    pub padded: usize,
}

impl Window {
    /// The only window of a dimension that is not there.
    pub const WHOLE: Self = Self {
        start: 0,
        end: 1,
        step: 1,
        padded: 1,
    };

    /// How many elements it counts as.
    #[must_use]
    pub fn counted(&self, padding: bool) -> i64 {
        let own = self.end as i64 - self.start as i64;
        if padding { self.padded as i64 } else { own }
    }
}

/// The windows of the three spatial dimensions.
pub type Windows = [Vec<Window>; 3];

/// The windows of `n` spatial dimensions, those of each from its number; the leading ones are not there.
pub fn windows(n: usize, of: impl Fn(usize) -> Vec<Window>) -> Windows {
    std::array::from_fn(|axis| {
        if axis + n < 3 {
            vec![Window::WHOLE]
        } else {
            of(axis + n - 3)
        }
    })
}

/// What to do with a window's elements.
#[derive(Clone, Copy, Debug)]
pub enum Rule {
    /// The largest, with its position if a tensor for it is given.
    Max,
    /// The sum over this number, or over the number of elements.
    Mean {
        /// A fixed divisor.
        divisor: Option<i64>,
        /// Whether padding counts as elements.
        padding: bool,
    },
}

/// Elements that are added.
pub trait Sum: Element + std::ops::Add<Output = Self> {}
impl<T: Element + std::ops::Add<Output = Self>> Sum for T {}

/// Elements that pooling is done in.
trait Pooled: Sum + PartialOrd {
    const LEAST: Self;
    /// Whether equal elements are the same, so that the order in which they are compared is no matter.
    const WHOLE: bool = false;
    fn nan(self) -> bool;
    fn over(self, n: i64) -> Self;
}
impl Pooled for f32 {
    const LEAST: Self = f32::NEG_INFINITY;
    #[inline(always)]
    fn nan(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn over(self, n: i64) -> Self {
        self / n as f32
    }
}
impl Pooled for f64 {
    const LEAST: Self = f64::NEG_INFINITY;
    #[inline(always)]
    fn nan(self) -> bool {
        self.is_nan()
    }
    #[inline(always)]
    fn over(self, n: i64) -> Self {
        self / n as f64
    }
}
macro_rules! pooled_integers {
    ($($t:ty)+) => { $(impl Pooled for $t {
        const LEAST: Self = <$t>::MIN;
        const WHOLE: bool = true;
        #[inline(always)]
        fn nan(self) -> bool {
            false
        }
        #[inline(always)]
        fn over(self, n: i64) -> Self {
            i64::from(self).wrapping_div(n) as $t
        }
    })+ };
}
pooled_integers!(u8 i8 i64);

/// The dtype that a dtype is pooled in.
pub(super) fn working(d: DType, rule: Rule) -> DType {
    match d {
        DType::F64 => DType::F64,
        DType::U8 | DType::I8 if matches!(rule, Rule::Max) => d,
        d if d.is_float() => DType::F32,
        _ => DType::I64,
    }
}

/// Sizes of the tensors: planes outside, the input's and output's spatial sizes, channels inside (channels last).
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Independent planes.
    planes: usize,
    /// Spatial sizes of the input.
    size: [usize; 3],
    /// Spatial sizes of the output.
    out: [usize; 3],
    /// Channels innermost in memory (1: each plane is one channel).
    inner: usize,
}

/// A pooling of tensors of any layout.
pub struct Job<'w> {
    /// Spatial dimensions.
    pub n: usize,
    /// The format that the kernel reads and writes.
    pub format: MemoryFormat,
    /// What becomes of a window.
    pub rule: Rule,
    /// All planes have the same windows.
    pub shared: bool,
    /// A plane's windows.
    pub windows: &'w (dyn Fn(usize) -> Windows + Sync),
}

impl Job<'_> {
    /// Pools `x` into `outs`: the result, and perhaps the positions of maxima.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn run(&self, x: &Tensor, outs: &[Tensor]) -> Result<()> {
        let out = &outs[0];
        if out.numel() == 0 {
            return Ok(());
        }
        let last = self.format != MemoryFormat::Contiguous;
        let input = if last {
            let order: Vec<usize> = std::iter::once(0).chain(2..x.ndim()).chain([1]).collect();
            copy::dense(&x.permuted(&order), x.dtype())?
        } else {
            copy::dense(x, x.dtype())?
        };
        let strides = dims::format_strides(out.shape(), self.format)?;
        let fresh = |t: &Tensor| {
            if *t.strides() == strides {
                Ok(t.clone())
            } else {
                Tensor::empty_strided(t.shape().clone(), strides.clone(), t.dtype(), Device::CPU)
            }
        };
        let dense: Vec<Tensor> = outs.iter().map(fresh).collect::<Result<_>>()?;
        let layout = self.layout(x, out, last);
        pool(
            &dense[0],
            dense.get(1),
            &input,
            layout,
            self.rule,
            self.shared,
            self.windows,
        )?;
        for (o, d) in outs.iter().zip(&dense) {
            if *o.strides() != strides {
                copy::copy(o, d)?;
            }
        }
        Ok(())
    }

    fn layout(&self, x: &Tensor, out: &Tensor, last: bool) -> Layout {
        let n = self.n;
        let triple = |t: &Tensor| -> [usize; 3] {
            let s = &t.shape()[t.ndim() - n..];
            std::array::from_fn(|i| if i + n < 3 { 1 } else { s[i + n - 3] as usize })
        };
        let lead: i64 = x.shape()[..x.ndim() - n].iter().product();
        let inner = if last { x.shape()[1] } else { 1 };
        Layout {
            planes: (lead / inner) as usize,
            size: triple(x),
            out: triple(out),
            inner: inner as usize,
        }
    }
}

/// Pools the dense `x` into the dense `out` (and the positions of maxima into `at`).
/// `windows` gives a plane's windows; the same for all planes if `shared`.
fn pool(
    out: &Tensor,
    at: Option<&Tensor>,
    x: &Tensor,
    l: Layout,
    rule: Rule,
    shared: bool,
    windows: &(dyn Fn(usize) -> Windows + Sync),
) -> Result<()> {
    let d = working(x.dtype(), rule);
    let convert = |t: &Tensor| {
        if t.dtype() == d {
            Ok(t.clone())
        } else {
            copy::converted(t, d)
        }
    };
    let x = convert(x)?;
    let sum = if out.dtype() == d {
        out.clone()
    } else {
        Tensor::empty_strided(out.shape().clone(), out.strides().clone(), d, Device::CPU)?
    };
    match d {
        DType::F32 => typed::<f32>(&sum, at, &x, l, rule, shared, windows),
        DType::F64 => typed::<f64>(&sum, at, &x, l, rule, shared, windows),
        DType::U8 => typed::<u8>(&sum, at, &x, l, rule, shared, windows),
        DType::I8 => typed::<i8>(&sum, at, &x, l, rule, shared, windows),
        _ => typed::<i64>(&sum, at, &x, l, rule, shared, windows),
    }
    if out.dtype() == d {
        Ok(())
    } else {
        copy::copy(out, &sum)
    }
}

fn typed<T: Pooled>(
    out: &Tensor,
    at: Option<&Tensor>,
    x: &Tensor,
    l: Layout,
    rule: Rule,
    shared: bool,
    windows: &(dyn Fn(usize) -> Windows + Sync),
) {
    let planes = Planes {
        x: super::slice::<T>(x),
        out: Shared::at(out.data_ptr().cast()),
        at: at.map(|t| Shared::at(t.data_ptr().cast())),
        l,
        rule,
    };
    let common = shared.then(|| windows(0));
    let reach = common.as_ref().map_or(8, |w| {
        w.iter()
            .map(|w| w.first().map_or(1, |w| w.end - w.start))
            .product::<usize>()
    });
    let alike = common.as_ref().and_then(|w| Alike::of(&w[2]));
    // Rows of outputs are the unit of work, so that few planes are shared out too.
    let rows = (l.out[0] * l.out[1]).max(1);
    let grain = (16384 / (reach * l.out[2] * l.inner).max(1)).max(1);
    let grain = if shared { grain } else { rows };
    pool::parallel_for(l.planes * rows, grain, |range| {
        let mut lines = Lines::new(l.size[2]);
        let mut own: Option<(usize, Windows)> = None;
        for row in range {
            let (plane, within) = (row / rows, row % rows);
            if !shared && own.as_ref().is_none_or(|(of, _)| *of != plane) {
                own = Some((plane, windows(plane)));
            }
            if let Some(w) = common.as_ref().or(own.as_ref().map(|(_, w)| w)) {
                planes.row([plane, within], w, alike.as_ref(), &mut lines);
            }
        }
    });
}

/// The dense tensors of a pooling, and what becomes of a window.
struct Planes<'a, T> {
    x: &'a [T],
    out: Shared<T>,
    at: Option<Shared<i64>>,
    l: Layout,
    rule: Rule,
}

impl<T: Pooled> Planes<'_, T> {
    /// Pools one row of a plane's outputs, which no other task does.
    #[inline]
    fn row(
        &self,
        [plane, row]: [usize; 2],
        w: &Windows,
        alike: Option<&Alike>,
        lines: &mut Lines<T>,
    ) {
        let Layout { size, inner, .. } = self.l;
        let [depth, height, width] = self.l.out;
        let (each, n) = (size.iter().product::<usize>() * inner, width * inner);
        let start = (plane * depth * height + row) * n;
        // SAFETY: the row lies within the results, and other tasks have others.
        let out = unsafe { self.out.part(start, n) };
        // SAFETY: as above.
        let at = self.at.map(|at| unsafe { at.part(start, n) });
        let here = Row {
            x: &self.x[plane * each..][..each],
            size,
            inner,
            d: w[0][row / height],
            h: w[1][row % height],
            w: &w[2],
        };
        match (self.rule, at) {
            (Rule::Max, at) if inner == 1 => here.max(out, at, lines, alike),
            (Rule::Max, Some(at)) => here.max_at(out, at),
            (Rule::Max, None) => here.max_inner(out, lines),
            (Rule::Mean { divisor, padding }, _) => here.mean(out, lines, divisor, padding),
        }
    }
}

/// Puts pooled values back where their positions say; `out` is dense and of zeros.
///
/// # Errors
/// PyTorch's text for a position outside.
pub fn unpool(out: &Tensor, x: &Tensor, at: &Tensor, planes: usize, size: &[i64]) -> Result<()> {
    let x = super::normal(&copy::dense(x, x.dtype())?)?;
    let at = copy::dense(at, DType::I64)?;
    let volume: i64 = size.iter().product();
    let each = x.numel() as usize / planes.max(1);
    let places = super::slice::<i64>(&at);
    if let Some(bad) = places.iter().find(|&&p| p < 0 || p >= volume) {
        let shown: Vec<String> = size.iter().map(ToString::to_string).collect();
        bail!(
            Runtime,
            "Found an invalid max index: {bad} (output volumes are of size {})",
            shown.join("x")
        );
    }
    crate::with_dtype!(x.dtype(), [bool int half float complex] => T, {
        let (from, to) = (super::slice::<T>(&x), super::slice_mut::<T>(out));
        for (i, (&v, &p)) in from.iter().zip(places).enumerate() {
            to[i / each.max(1) * volume as usize + p as usize] = v;
        }
        return Ok(());
    }, else {});
    Err(x.dtype().no_kernel("max_unpool"))
}
