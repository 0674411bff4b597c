//! Folds over dimensions on a GPU.

#![allow(unsafe_code, reason = "starts kernels over tensor memory")]

use super::alloc::Block;
use super::driver;
use super::launch::{arg, launch};
use super::source::{self, Fold};
use crate::cpu::reduce::{Kind, Post};
use crate::{DType, Result, Tensor, ensure, err};

/// Extents and element strides of a fold, as the kernel reads them.
#[repr(C)]
#[derive(Clone, Copy)]
struct Nest {
    kept: i64,
    folded: i64,
    kept_dims: i64,
    folded_dims: i64,
    kept_shape: [i64; 8],
    kept_in: [i64; 8],
    kept_out: [i64; 8],
    kept_index: [i64; 8],
    folded_shape: [i64; 8],
    folded_in: [i64; 8],
    lanes: i64,
    splits: i64,
    chunk: i64,
    p: f64,
    post: f64,
}

impl Nest {
    /// The layout of a fold of `dims` of `t`; `out` and `index` have the shape of the rest, with or without 1s.
    fn new(
        t: &Tensor,
        dims: &[usize],
        out: Option<&Tensor>,
        index: Option<&Tensor>,
    ) -> Result<Self> {
        let mut n = Self {
            kept: 1,
            folded: 1,
            kept_dims: 0,
            folded_dims: 0,
            kept_shape: [1; 8],
            kept_in: [0; 8],
            kept_out: [0; 8],
            kept_index: [0; 8],
            folded_shape: [1; 8],
            folded_in: [0; 8],
            lanes: 1,
            splits: 1,
            chunk: 1,
            p: 0.0,
            post: 1.0,
        };
        // The result's dimension that belongs to a kept one of the input.
        let stride = |o: Option<&Tensor>, d: usize, before: usize| {
            o.map_or(0, |o| {
                if o.ndim() == t.ndim() {
                    o.strides()[d]
                } else {
                    o.strides()[d - before]
                }
            })
        };
        for d in (0..t.ndim()).rev() {
            let (size, step) = (t.shape()[d], t.strides()[d]);
            if dims.contains(&d) {
                n.folded *= size;
                if size == 1 {
                    continue;
                }
                let at = n.folded_dims as usize;
                if at > 0 && step == n.folded_in[at - 1] * n.folded_shape[at - 1] {
                    n.folded_shape[at - 1] *= size;
                    continue;
                }
                ensure!(
                    at < 8,
                    NotImplemented,
                    "CUDA kernels take tensors of up to 8 dimensions"
                );
                (n.folded_shape[at], n.folded_in[at]) = (size, step);
                n.folded_dims += 1;
            } else {
                n.kept *= size;
                if size == 1 {
                    continue;
                }
                let before = dims.iter().filter(|&&f| f < d).count();
                let (so, si) = (stride(out, d, before), stride(index, d, before));
                let at = n.kept_dims as usize;
                if at > 0 {
                    let last = n.kept_shape[at - 1];
                    if step == n.kept_in[at - 1] * last
                        && so == n.kept_out[at - 1] * last
                        && si == n.kept_index[at - 1] * last
                    {
                        n.kept_shape[at - 1] *= size;
                        continue;
                    }
                }
                ensure!(
                    at < 8,
                    NotImplemented,
                    "CUDA kernels take tensors of up to 8 dimensions"
                );
                (
                    n.kept_shape[at],
                    n.kept_in[at],
                    n.kept_out[at],
                    n.kept_index[at],
                ) = (size, step, so, si);
                n.kept_dims += 1;
            }
        }
        Ok(n)
    }

    /// How threads share the work: neighbours read neighbours, and every multiprocessor has something to do. The kernel for it, and
    /// how many elements it reads at once, which lie at `ptr`.
    fn divide(&mut self, processors: u32, ptr: u64, size: usize) -> (&'static str, i64) {
        let inner_folded = self.folded_dims > 0
            && (self.kept_dims == 0 || self.folded_in[0].abs() <= self.kept_in[0].abs());
        let across = !inner_folded && self.kept >= 32;
        self.lanes = match self.folded {
            ..32 => 1,
            _ if across => 8,
            32..4096 => 32,
            _ => 256,
        };
        let across = across && self.lanes > 1;
        let pack = self.pack(across, ptr, size);
        let threads = self.kept * self.lanes / if across { pack } else { 1 };
        let blocks = (threads + 255) / 256;
        let room = i64::from(processors) * 8 / blocks.max(1);
        let worth = self.folded / (self.lanes * 16).max(1);
        self.splits = room.min(worth).clamp(1, 1024);
        self.chunk = (self.folded + self.splits - 1) / self.splits.max(1);
        self.chunk = ((self.chunk + pack - 1) / pack * pack).max(1);
        self.splits = ((self.folded + self.chunk - 1) / self.chunk).max(1);
        (if across { "columns" } else { "first" }, pack)
    }

    /// How many neighbours can be read at once: along what is folded, or across it.
    fn pack(&self, across: bool, ptr: u64, size: usize) -> i64 {
        let (inner, length, dims) = if across {
            (self.kept_in[0], self.kept_shape[0], self.kept_dims)
        } else if self.folded_dims == 1 {
            (self.folded_in[0], self.folded, 1)
        } else {
            return 1;
        };
        // Within a kept dimension that is dense the others stay where they are.
        let skip = usize::from(across);
        let mut pack = (16 / size as i64).max(1);
        let whole = |pack: i64| {
            inner == 1
                && dims > 0
                && length % pack == 0
                && ptr % (pack as u64 * size as u64) == 0
                && (skip..self.kept_dims as usize).all(|d| self.kept_in[d] % pack == 0)
                && (!across || self.folded_in.iter().all(|s| s % pack == 0))
        };
        while pack > 1 && !whole(pack) {
            pack /= 2;
        }
        pack
    }
}

/// As [`crate::cpu::reduce::run_kind`], on a GPU.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn run_kind(
    kind: Kind,
    out: &Tensor,
    input: &Tensor,
    dims: &[usize],
    p: f64,
    post: Post,
) -> Result<()> {
    let mut nest = Nest::new(input, dims, Some(out), None)?;
    nest.p = p;
    nest.post = match post {
        Post::Over(n) | Post::Pow(n) => n,
        Post::None | Post::Sqrt => 1.0,
    };
    let acc = source::folded(kind, input.dtype()).size();
    run(Fold::Value(kind, post), nest, acc, Some(out), None, input)
}

/// As [`crate::cpu::extreme::arg_extreme`], on a GPU.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn arg_extreme(
    values: Option<&Tensor>,
    indices: &Tensor,
    input: &Tensor,
    dims: &[usize],
    max: bool,
) -> Result<()> {
    let nest = Nest::new(input, dims, values, Some(indices))?;
    let wide = nest.folded > i64::from(i32::MAX);
    let acc = if wide || source::computed(input.dtype()).size() == 8 {
        16
    } else {
        8
    };
    run(Fold::Arg { max }, nest, acc, values, Some(indices), input)
}

/// Variance (or its root) and mean over dimensions of real numbers.
///
/// # Errors
/// If the kernel cannot be compiled or started.
pub fn moments(
    var: &Tensor,
    mean: Option<&Tensor>,
    input: &Tensor,
    dims: &[usize],
    correction: f64,
    root: bool,
) -> Result<()> {
    let mut nest = Nest::new(input, dims, Some(var), mean)?;
    (nest.p, nest.post) = (correction, f64::from(u8::from(root)));
    let acc = 3 * source::computed(input.dtype()).size();
    run(Fold::Moments, nest, acc, Some(var), mean, input)
}

fn run(
    fold: Fold,
    mut nest: Nest,
    acc: usize,
    out: Option<&Tensor>,
    index: Option<&Tensor>,
    input: &Tensor,
) -> Result<()> {
    if nest.kept == 0 {
        return Ok(());
    }
    let gpu = driver::gpu(input.device())?;
    let address = |t: Option<&Tensor>| t.map_or(0u64, |t| t.data_ptr() as usize as u64);
    let (mut p_in, mut p_out, mut p_index) = (address(Some(input)), address(out), address(index));
    let (kernel, pack) = nest.divide(gpu.processors, p_in, input.dtype().size());
    let out_type = out.map_or(input.dtype(), Tensor::dtype);
    let wide = nest.folded > i64::from(i32::MAX);
    let text = source::reduce(fold, input.dtype(), out_type, pack as usize, wide)
        .ok_or_else(|| unknown(input.dtype()))?;
    let scratch = if nest.splits > 1 {
        let n = (nest.splits * nest.kept) as usize;
        Some(Block::new(
            gpu,
            n.checked_mul(acc)
                .ok_or_else(|| err!(Memory, "the fold is too large"))?,
        )?)
    } else {
        None
    };
    let mut p_scratch = scratch.as_ref().map_or(0u64, Block::ptr);
    let per_block = 256 / nest.lanes * if kernel == "columns" { pack } else { 1 };
    let too_many = |_| err!(Runtime, "too many elements for one launch");
    let blocks = u32::try_from((nest.kept + per_block - 1) / per_block).map_err(too_many)?;
    let first = super::module::function(gpu, &text.head, text.file, kernel)?;
    let mut args = [
        arg(&mut p_in),
        arg(&mut p_scratch),
        arg(&mut p_out),
        arg(&mut p_index),
        arg(&mut nest),
    ];
    let splits = nest.splits;
    // SAFETY: the values are the kernel's parameters in order; the layouts lie within the tensors, and the scratch block
    // holds one value a result and split.
    unsafe { launch(gpu, first, (blocks, splits as u32), &mut args) }?;
    if splits > 1 {
        let second = super::module::function(gpu, &text.head, text.file, "second")?;
        // Many results have a thread each, few a block.
        nest.lanes = if nest.kept >= 1024 || splits <= 4 {
            1
        } else {
            256
        };
        let blocks = if nest.lanes == 1 {
            (nest.kept + 255) / 256
        } else {
            nest.kept
        };
        let blocks = u32::try_from(blocks).map_err(too_many)?;
        let mut args = [
            arg(&mut p_scratch),
            arg(&mut p_out),
            arg(&mut p_index),
            arg(&mut nest),
        ];
        // SAFETY: as above. The scratch block goes back to the cache afterwards, which the stream's order allows.
        unsafe { launch(gpu, second, (blocks, 1), &mut args) }?;
    }
    Ok(())
}

fn unknown(d: DType) -> crate::Error {
    err!(
        NotImplemented,
        "no CUDA fold for dtype '{}'",
        d.scalar_type()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernels do, in order: every lane of every split, then the splits. Packs lie along the fold, or across it.
    fn simulate(n: &Nest, kernel: &str, pack: i64, input: &[f64], out: &mut [f64]) {
        let (along, beside) = if kernel == "columns" {
            (1, pack)
        } else {
            (pack, 1)
        };
        for o in (0..n.kept).step_by(beside as usize) {
            let (mut rest, mut base, mut at) = (o, 0, 0);
            for k in 0..n.kept_dims as usize {
                let step = rest % n.kept_shape[k];
                rest /= n.kept_shape[k];
                base += step * n.kept_in[k];
                at += step * n.kept_out[k];
            }
            for e in 0..beside {
                out[(at + e * n.kept_out[0]) as usize] =
                    fold(n, along, &input[(base + e) as usize..]);
            }
        }
    }

    /// The sum of a result's elements, `along` neighbours at a time.
    fn fold(n: &Nest, along: i64, input: &[f64]) -> f64 {
        let mut sum = 0.0;
        for split in 0..n.splits {
            for lane in 0..n.lanes {
                let (begin, end) = (split * n.chunk, ((split + 1) * n.chunk).min(n.folded));
                for j in (begin + lane * along..end).step_by((n.lanes * along) as usize) {
                    let (mut rest, mut inside) = (j, 0);
                    for k in 0..n.folded_dims as usize {
                        inside += rest % n.folded_shape[k] * n.folded_in[k];
                        rest /= n.folded_shape[k];
                    }
                    sum += (0..along)
                        .map(|e| input[(inside + e) as usize])
                        .sum::<f64>();
                }
            }
        }
        sum
    }

    #[test]
    fn nests_visit_every_element_once_and_write_to_its_place() {
        let values: Vec<f64> = (0..6 * 70 * 50)
            .map(|i| f64::from((i * 37) % 101))
            .collect();
        let whole = Tensor::from_slice(&values, &[6, 70, 50]).unwrap();
        for perm in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
            let t = whole.look(&crate::plan::ViewPlan::of(&whole).permuted(&perm));
            for dims in [&[0usize][..], &[1], &[2], &[0, 2], &[1, 2], &[0, 1, 2], &[]] {
                for keep in [false, true] {
                    let shape = crate::dims::reduced_shape(t.shape(), dims, keep);
                    let want = Tensor::empty(&shape, DType::F64, crate::Device::CPU).unwrap();
                    crate::cpu::reduce::run_kind(Kind::Sum, &want, &t, dims, 0.0, Post::None)
                        .unwrap();
                    let want = want.to_vec::<f64>().unwrap();
                    for processors in [1, 132] {
                        let mut nest = Nest::new(
                            &t,
                            dims,
                            Some(&Tensor::empty(&shape, DType::F64, crate::Device::CPU).unwrap()),
                            None,
                        )
                        .unwrap();
                        // Numbers of 8 bytes, packs of two.
                        let (kernel, pack) = nest.divide(processors, 0, 8);
                        let mut got = vec![f64::NAN; want.len()];
                        simulate(&nest, kernel, pack, &values, &mut got);
                        assert_eq!(got, want, "{perm:?} {dims:?} {keep}");
                    }
                }
            }
        }
    }
}
