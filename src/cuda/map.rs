//! Pointwise kernels, made from the CUDA expressions of the table.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::driver::{self, Gpu};
use super::launch::{arg, launch};
use super::source::{self, ANY, Read, Walk};
use crate::cpu::map::Ctx;
use crate::cpu::rows::Operand;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, dims, ensure, err};
use smallvec::SmallVec;

/// The first of `b` and `c` where `a` is not zero.
pub(super) const CHOOSE: &str = "a != T(0) ? b : c";

/// Extents and element strides of the result and three operands, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Layout {
    n: i64,
    dims: i64,
    shape: [i64; 8],
    stride: [[i64; 8]; 4],
}

/// Numbers of a call, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Numbers {
    f: [f64; 6],
    i: [i64; 6],
    re: [f64; 6],
    im: [f64; 6],
}

impl Numbers {
    fn set(&mut self, k: usize, s: Scalar) {
        let c = s.to_c64();
        (self.f[k], self.i[k], self.re[k], self.im[k]) = (s.to_f64(), s.to_i64(), c.re, c.im);
    }

    fn of(ctx: &Ctx) -> Self {
        let mut n = Self::default();
        n.f[..3].copy_from_slice(&ctx.f);
        n.i[..3].copy_from_slice(&ctx.i);
        for (k, c) in ctx.c.iter().enumerate() {
            (n.re[k], n.im[k]) = (c.re, c.im);
        }
        n
    }
}

/// Runs the expression of a pointwise row; a host tensor without dimensions counts as a number.
///
/// # Errors
/// If it cannot be compiled or started.
pub fn run(
    expression: &str,
    operands: &[Operand],
    compute: DType,
    ctx: &Ctx,
    out: &Tensor,
) -> Result<()> {
    let mut inputs: SmallVec<[Operand; 3]> = SmallVec::new();
    for operand in operands {
        inputs.push(match *operand {
            Operand::Tensor(t) if t.device() == out.device() => Operand::Tensor(t),
            Operand::Tensor(t) => Operand::Number(t.item()?),
            Operand::Number(s) => Operand::Number(s),
        });
    }
    apply(expression, compute, out, &inputs, ctx)
}

/// Fills a tensor on a GPU.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn fill_with(t: &Tensor, value: Scalar) -> Result<()> {
    if source::storage_type(t.dtype()).is_none() {
        let host = Tensor::empty(t.shape(), t.dtype(), crate::Device::CPU)?;
        crate::cpu::fill(&host, value)?;
        return super::copy::copy_into(t, &host);
    }
    let mut ctx = Ctx::default();
    (ctx.f[0], ctx.i[0], ctx.c[0]) = (value.to_f64(), value.to_i64(), value.to_c64());
    apply("f0", t.dtype(), t, &[], &ctx)
}

/// Joins neighbouring dimensions that all operands step through as one; innermost first.
fn collapse(shape: &[i64], strides: &[Dims]) -> Result<Layout> {
    let mut l = Layout {
        n: shape.iter().product(),
        dims: 0,
        shape: [1; 8],
        stride: [[0; 8]; 4],
    };
    let mut at = 0usize;
    for d in (0..shape.len()).rev() {
        if shape[d] == 1 {
            continue;
        }
        let joins = at > 0
            && strides
                .iter()
                .enumerate()
                .all(|(k, s)| s[d] == l.stride[k][at - 1] * l.shape[at - 1]);
        if joins {
            l.shape[at - 1] *= shape[d];
            continue;
        }
        ensure!(
            at < 8,
            NotImplemented,
            "CUDA kernels take tensors of up to 8 dimensions"
        );
        l.shape[at] = shape[d];
        for (k, s) in strides.iter().enumerate() {
            l.stride[k][at] = s[d];
        }
        at += 1;
    }
    l.dims = at as i64;
    Ok(l)
}

/// Brings dimensions into the order in which the result lies.
fn reorder(shape: &mut Dims, strides: &mut [Dims]) {
    let steps = strides[0].clone();
    if steps.windows(2).all(|w| w[0].abs() >= w[1].abs()) {
        return;
    }
    let mut order: SmallVec<[usize; 8]> = (0..steps.len()).collect();
    dims::settle(&mut order, |&d| -steps[d].abs());
    for list in strides.iter_mut().chain([shape]) {
        *list = order.iter().map(|&d| list[d]).collect();
    }
}

/// Bytes of an element of the result and of three operands; 0 for those that are no tensors.
fn sizes(out: &Tensor, inputs: &[Operand]) -> [i64; 4] {
    let mut sizes = [out.dtype().size() as i64, 0, 0, 0];
    for (size, input) in sizes[1..].iter_mut().zip(inputs) {
        if let Operand::Tensor(t) = input {
            *size = t.dtype().size() as i64;
        }
    }
    sizes
}

impl Layout {
    /// How threads share the work, and the layout as the kernel reads it then.
    fn walk(&mut self, ptrs: [u64; 4], sizes: [i64; 4]) -> Walk {
        // Sixteen bytes of the widest operand at once, where all of them begin at such places.
        let together = 16 / sizes.iter().max().copied().unwrap_or(16).clamp(1, 16);
        let dense = |k: usize| sizes[k] == 0 || self.stride[k][0] == 1;
        if self.dims == 0 || self.dims == 1 && (0..4).all(dense) {
            let aligned = ptrs.iter().all(|p| p % 16 == 0);
            return Walk::Dense(if aligned { together as usize } else { 1 });
        }
        let mut pack = together;
        while pack > 1 {
            if self.has_neighbours(pack, ptrs, sizes) {
                return self.rows(pack);
            }
            pack /= 2;
        }
        self.tiles(sizes).unwrap_or(ANY)
    }

    /// True if operands are read by so many neighbours of the first dimension, or do not move along it.
    fn has_neighbours(&self, pack: i64, ptrs: [u64; 4], sizes: [i64; 4]) -> bool {
        let outer = 1..self.dims as usize;
        self.shape[0] % pack == 0
            && self.stride[0][0] == 1
            && (0..4).all(|k| {
                let s = &self.stride[k];
                let whole = || {
                    ptrs[k] % (pack * sizes[k]) as u64 == 0
                        && outer.clone().all(|d| s[d] % pack == 0)
                };
                sizes[k] == 0 || s[0] == 0 || s[0] == 1 && whole()
            })
    }

    /// Counts neighbours instead of elements.
    fn rows(&mut self, pack: i64) -> Walk {
        let along = [1, 2, 3].map(|k| self.stride[k][0] == 1);
        self.shape[0] /= pack;
        self.n /= pack;
        for s in &mut self.stride {
            s[0] *= pack;
        }
        Walk::Rows {
            pack: pack as usize,
            along,
        }
    }

    /// Tiles, if there is an operand that is dense along another dimension than the result.
    fn tiles(&mut self, sizes: [i64; 4]) -> Option<Walk> {
        let outer = 1..self.dims as usize;
        let far = |k: usize| sizes[k] > 0 && !(0..2).contains(&self.stride[k][0]);
        let second = (1..4)
            .filter(|&k| far(k))
            .find_map(|k| outer.clone().find(|&d| self.stride[k][d] == 1))?;
        if self.stride[0][0] != 1 || self.shape[0] < 16 || self.shape[second] < 16 {
            return None;
        }
        // Shared memory has room for two of them.
        let mut turned = [1, 2, 3].map(|k| far(k) && self.stride[k][second] == 1);
        turned[2] &= !(turned[0] && turned[1]);
        let small = (1..4).all(|k| !turned[k - 1] || sizes[k] <= 4);
        self.shape.swap(1, second);
        self.stride.iter_mut().for_each(|s| s.swap(1, second));
        Some(Walk::Tiles {
            tile: if small { 64 } else { 32 },
            turned,
        })
    }

    fn blocks(&self, walk: Walk) -> i64 {
        let up = |n: i64, by: i64| (n + by - 1) / by;
        match walk {
            Walk::Dense(pack) => up(self.n, 256 * pack as i64),
            Walk::Rows { pack: 1, .. } => up(self.n, 1024),
            Walk::Rows { .. } => up(self.n, 256),
            Walk::Tiles { tile, .. } => {
                let both = self.shape[0] * self.shape[1];
                let [a, b] = [0, 1].map(|d| up(self.shape[d], tile as i64));
                self.n / both * a * b
            }
        }
    }
}

/// Writes an expression of up to three operands, broadcast and converted to `compute`, into `out`.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub(super) fn apply(
    expression: &str,
    compute: DType,
    out: &Tensor,
    inputs: &[Operand],
    ctx: &Ctx,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let gpu: &'static Gpu = driver::gpu(out.device())?;
    let mut numbers = Numbers::of(ctx);
    let mut kinds: SmallVec<[Read; 3]> = SmallVec::new();
    let mut ptrs = [out.data_ptr() as usize as u64, 0, 0, 0];
    let mut shape = out.shape().clone();
    let mut strides: SmallVec<[Dims; 4]> = SmallVec::new();
    strides.push(out.strides().clone());
    for (k, input) in inputs.iter().enumerate() {
        match input {
            Operand::Number(s) => {
                numbers.set(3 + k, *s);
                kinds.push(Read::Number);
                strides.push(out.strides().clone());
            }
            Operand::Tensor(t) => {
                kinds.push(Read::Tensor(t.dtype()));
                ptrs[k + 1] = t.data_ptr() as usize as u64;
                strides.push(t.strides_for(out.shape()));
            }
        }
    }
    reorder(&mut shape, &mut strides);
    let mut layout = collapse(&shape, &strides)?;
    let wide = layout.n > i64::from(i32::MAX);
    let sizes = sizes(out, inputs);
    let walk = layout.walk(ptrs, sizes);
    let Some(text) = source::map(expression, compute, out.dtype(), &kinds, walk, wide) else {
        bail!(
            NotImplemented,
            "no CUDA kernel for dtype '{}'",
            compute.scalar_type()
        )
    };
    let f = super::module::function(gpu, &text.head, text.file, "kernel")?;
    let blocks = u32::try_from(layout.blocks(walk))
        .map_err(|_| err!(Runtime, "too many elements for one launch"))?;
    let [mut p0, mut p1, mut p2, mut p3] = ptrs;
    let mut args = [
        arg(&mut p0),
        arg(&mut p1),
        arg(&mut p2),
        arg(&mut p3),
        arg(&mut layout),
        arg(&mut numbers),
    ];
    // SAFETY: the values are the kernel's parameters in order; the layouts lie within the tensors' storages, which the
    // stream's order keeps until the kernel is done.
    unsafe { launch(gpu, f, (blocks, 1), &mut args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_fit_layouts() {
        let walk = |shape: &[i64], out: &[i64], a: &[i64]| {
            let (mut shape, mut strides) = (Dims::new(shape), [Dims::new(out), Dims::new(a)]);
            reorder(&mut shape, &mut strides);
            let mut l = collapse(&shape, &strides).unwrap();
            let walk = l.walk([64, 128, 0, 0], [4, 4, 0, 0]);
            (walk, l.blocks(walk))
        };
        assert_eq!(walk(&[64, 64], &[64, 1], &[64, 1]), (Walk::Dense(4), 4));
        // Both turned alike: the order of elements does not matter.
        assert_eq!(walk(&[64, 64], &[1, 64], &[1, 64]), (Walk::Dense(4), 4));
        let along = [true, false, false];
        let rows = Walk::Rows { pack: 4, along };
        assert_eq!(walk(&[64, 64], &[64, 1], &[0, 1]), (rows, 4));
        let rows = Walk::Rows { pack: 2, along };
        assert_eq!(walk(&[64, 62], &[62, 1], &[64, 1]), (rows, 8));
        let turned = [true, false, false];
        let tiles = Walk::Tiles { tile: 64, turned };
        assert_eq!(
            walk(&[3, 100, 65], &[6500, 65, 1], &[6500, 1, 100]),
            (tiles, 12)
        );
        assert_eq!(walk(&[64, 61], &[61, 1], &[128, 2]), (ANY, 4));
    }

    #[test]
    fn dimensions_that_continue_each_other_are_joined() {
        let l = collapse(&[2, 3, 4], &[[12, 4, 1].into(), [12, 4, 1].into()]).unwrap();
        assert_eq!((l.n, l.dims, l.shape[0]), (24, 1, 24));
        let l = collapse(&[2, 3, 4], &[[12, 4, 1].into(), [0, 4, 1].into()]).unwrap();
        assert_eq!(
            (l.dims, &l.shape[..2], &l.stride[1][..2]),
            (2, &[12, 2][..], &[1, 0][..])
        );
    }
}
