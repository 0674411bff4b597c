//! Means and variances: exact within blocks, blocks merged in double precision.

#![allow(
    unsafe_code,
    reason = "loops over raw, checked memory, copied per instruction set"
)]

use super::{lines, nest::Nest, pool, simd};
use crate::cpu::room::Room;
use crate::{DType, Result, Tensor};
use num_complex::Complex64;
use std::mem::MaybeUninit;

/// Count, mean and sum of squared deviations.
#[derive(Clone, Copy, Default)]
struct Moments {
    n: f64,
    mean: f64,
    m2: f64,
}

impl Moments {
    #[inline(always)]
    fn merge(self, b: Self) -> Self {
        if self.n == 0.0 {
            return b;
        }
        if b.n == 0.0 {
            return self;
        }
        let n = self.n + b.n;
        let delta = b.mean - self.mean;
        Self {
            n,
            mean: self.mean + delta * (b.n / n),
            m2: self.m2 + b.m2 + delta * delta * (self.n * b.n / n),
        }
    }
}

const BLOCK: usize = 1024;
const SLICE: usize = 64 * 1024;
const COLS: usize = 128;
const ROWS: usize = 32;

#[inline(always)]
unsafe fn run_body<T: Copy + Into<f64>>(p: *const u8, step: isize, n: usize) -> Moments {
    let mut all = Moments::default();
    let mut at = 0;
    // Short runs need little of it.
    let mut copy = [const { MaybeUninit::<f64>::uninit() }; BLOCK];
    while at < n {
        let m = BLOCK.min(n - at);
        let block = &mut copy[..m];
        // SAFETY: the caller gives n elements `step` bytes apart.
        unsafe {
            if step == size_of::<T>() as isize {
                let q = p.cast::<T>().add(at);
                for (i, b) in block.iter_mut().enumerate() {
                    b.write((*q.add(i)).into());
                }
            } else {
                for (i, b) in block.iter_mut().enumerate() {
                    b.write((*p.offset((at + i) as isize * step).cast::<T>()).into());
                }
            }
        }
        // SAFETY: each of them was just written.
        let block = unsafe { std::slice::from_raw_parts(block.as_ptr().cast::<f64>(), m) };
        let mean = sum(block, |x| x) / m as f64;
        let m2 = sum(block, |x| (x - mean) * (x - mean));
        all = all.merge(Moments {
            n: m as f64,
            mean,
            m2,
        });
        at += m;
    }
    all
}

#[inline(always)]
fn sum(v: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    let mut lanes = [0f64; 16];
    let mut groups = v.chunks_exact(16);
    for g in &mut groups {
        for l in 0..16 {
            lanes[l] += f(g[l]);
        }
    }
    let rest: f64 = groups.remainder().iter().map(|&x| f(x)).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Folds `rows` rows of `m` neighbours into their moments.
#[inline(always)]
unsafe fn cols_body<T: Copy + Into<f64>>(
    p: *const u8,
    row: isize,
    col: isize,
    rows: usize,
    acc: &mut [Moments],
) {
    let m = acc.len();
    let mut at = 0;
    while at < rows {
        let k = ROWS.min(rows - at);
        let mut mean = [0f64; COLS];
        let mut m2 = [0f64; COLS];
        let start = p.wrapping_offset(at as isize * row);
        let get = |r: usize, j: usize| -> f64 {
            // SAFETY: the caller gives rows x m elements with these steps.
            unsafe {
                (*start
                    .offset(r as isize * row + j as isize * col)
                    .cast::<T>())
                .into()
            }
        };
        let dense = col == size_of::<T>() as isize;
        for pass in 0..2 {
            for r in 0..k {
                if dense {
                    // SAFETY: as above; neighbours are adjacent.
                    let line = unsafe {
                        std::slice::from_raw_parts(start.offset(r as isize * row).cast::<T>(), m)
                    };
                    if pass == 0 {
                        line.iter()
                            .zip(&mut mean[..m])
                            .for_each(|(&x, a)| *a += x.into());
                    } else {
                        for j in 0..m {
                            let d: f64 = line[j].into() - mean[j];
                            m2[j] += d * d;
                        }
                    }
                } else {
                    for j in 0..m {
                        if pass == 0 {
                            mean[j] += get(r, j);
                        } else {
                            let d = get(r, j) - mean[j];
                            m2[j] += d * d;
                        }
                    }
                }
            }
            if pass == 0 {
                mean[..m].iter_mut().for_each(|a| *a /= k as f64);
            }
        }
        for j in 0..m {
            acc[j] = acc[j].merge(Moments {
                n: k as f64,
                mean: mean[j],
                m2: m2[j],
            });
        }
        at += k;
    }
}

macro_rules! per_level {
    ($name:ident, $avx2:ident, $body:ident, ($($a:ident: $t:ty),+) $(-> $r:ty)?) => {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        unsafe fn $avx2<T: Copy + Into<f64>>($($a: $t),+) $(-> $r)? {
            // SAFETY: as the caller promises.
            unsafe { $body::<T>($($a),+) }
        }
        unsafe fn $name<T: Copy + Into<f64>>($($a: $t),+) $(-> $r)? {
            #[cfg(target_arch = "x86_64")]
            if simd::level() != simd::Level::Baseline {
                // SAFETY: the machine has these features; the rest as the caller promises.
                return unsafe { $avx2::<T>($($a),+) };
            }
            // SAFETY: as the caller promises.
            unsafe { $body::<T>($($a),+) }
        }
    };
}
per_level!(run, run_avx2, run_body, (p: *const u8, step: isize, n: usize) -> Moments);
per_level!(cols, cols_avx2, cols_body, (p: *const u8, row: isize, col: isize, rows: usize, acc: &mut [Moments]));

/// Offset of the k-th combination of outer reduced dimensions.
fn outer(nest: &Nest, mut k: usize) -> isize {
    let mut at = 0;
    for &(n, s) in nest.red.iter().skip(1) {
        at += (k % n) as isize * s;
        k /= n;
    }
    at
}

fn moments<T: Copy + Into<f64> + Sync>(input: &Tensor, nest: &Nest, out: &mut [Moments]) {
    let base = lines::Shared::at(input.data_ptr());
    let (n, s) = nest.red[0];
    let runs: usize = nest.red.iter().skip(1).map(|d| d.0).product();
    if nest.depth() == 0 {
        return;
    }
    let shared = lines::Shared::new(out);
    let (width, step, _) = nest.kept.first().copied().unwrap_or((1, 0, 0));
    let outputs = nest.outputs();
    if nest.rows_first() || width < 8 {
        if outputs < 8 && n >= 2 * SLICE && runs == 1 {
            let slices = n.div_ceil(SLICE);
            for t in 0..outputs {
                let at = nest.place(t / width).0 + (t % width) as isize * step;
                let mut parts = vec![Moments::default(); slices];
                let p = lines::Shared::new(&mut parts);
                pool::parallel_for(slices, 1, |range| {
                    for k in range {
                        let m = SLICE.min(n - k * SLICE);
                        // SAFETY: slice k of the run; each task writes its own part.
                        unsafe {
                            p.part(k, 1)[0] =
                                run::<T>(base.get().offset(at + (k * SLICE) as isize * s), s, m)
                        };
                    }
                });
                // SAFETY: no task runs any more.
                unsafe {
                    shared.part(t, 1)[0] = parts.iter().fold(Moments::default(), |a, b| a.merge(*b))
                };
            }
            return;
        }
        pool::parallel_for(
            outputs,
            (super::iter::GRAIN / nest.depth()).max(1),
            |range| {
                for t in range {
                    let at = nest.place(t / width).0 + (t % width) as isize * step;
                    let mut all = Moments::default();
                    for k in 0..runs {
                        // SAFETY: the nest lies within the input.
                        all = all.merge(unsafe {
                            run::<T>(base.get().offset(at + outer(nest, k)), s, n)
                        });
                    }
                    // SAFETY: each task writes its own part.
                    unsafe { shared.part(t, 1)[0] = all };
                }
            },
        );
        return;
    }
    let chunks = width.div_ceil(COLS);
    pool::parallel_for(
        outputs / width * chunks,
        (super::iter::GRAIN / (nest.depth() * COLS)).max(1),
        |range| {
            for t in range {
                let j = t % chunks * COLS;
                let m = COLS.min(width - j);
                let at = nest.place(t / chunks).0 + j as isize * step;
                // SAFETY: each task writes its own part; the nest lies within the input.
                unsafe {
                    let acc = shared.part(t / chunks * width + j, m);
                    for k in 0..runs {
                        cols::<T>(base.get().offset(at + outer(nest, k)), s, step, n, acc);
                    }
                }
            }
        },
    );
}

/// Variance (or its root) and mean over `dims`.
///
/// # Errors
/// If the dtype has no variance, or memory cannot be had.
pub fn variance(
    var: &Tensor,
    mean: Option<&Tensor>,
    input: &Tensor,
    dims: &[usize],
    correction: f64,
    root: bool,
) -> Result<()> {
    let finish = |m2: f64, n: f64| {
        let v = m2 / (n - correction).max(0.0);
        if root { v.sqrt() } else { v }
    };
    if input.dtype().is_complex() {
        return complex(var, mean, input, dims, finish);
    }
    let wide;
    let input = if input.dtype().is_reduced_float() {
        wide = super::copy::converted(input, DType::F32)?;
        &wide
    } else {
        input
    };
    // The moments come in the nest's order of outputs, whose places `place` knows.
    let scratch = Tensor::empty(var.shape(), DType::F64, crate::Device::CPU)?;
    let nest = Nest::new(input, dims, &scratch);
    let mut out = vec![Moments::default(); nest.outputs()];
    match input.dtype() {
        DType::F32 => moments::<f32>(input, &nest, &mut out),
        DType::F64 => moments::<f64>(input, &nest, &mut out),
        d => return Err(d.no_kernel("std_cpu")),
    }
    let (width, _, step) = nest.kept.first().copied().unwrap_or((1, 0, 0));
    let write = |to: &Tensor, f: &dyn Fn(&Moments) -> f64| -> Result<()> {
        let flat = super::slice_mut::<f64>(&scratch);
        for (t, m) in out.iter().enumerate() {
            let at = (nest.place(t / width).1 + (t % width) as isize * step) / 8;
            flat[at as usize] = f(m);
        }
        super::copy::copy(to, &scratch)
    };
    write(var, &|m| finish(m.m2, m.n))?;
    match mean {
        Some(mean) => write(mean, &|m| if m.n == 0.0 { f64::NAN } else { m.mean }),
        None => Ok(()),
    }
}

/// Follows what [`variance`] takes.
///
/// # Errors
/// If a size overflows.
pub fn scratch(room: &mut Room, var: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    if input.dtype().is_complex() {
        room.dense(
            &input.permuted(&lines::order(input.ndim(), dims)),
            DType::C128,
        )?;
        room.empty(var.shape(), DType::F64)?;
        return room.empty(var.shape(), DType::C128).map(drop);
    }
    if input.dtype().is_reduced_float() {
        room.converted(input, DType::F32)?;
    }
    room.empty(var.shape(), DType::F64).map(drop)
}

fn complex(
    var: &Tensor,
    mean: Option<&Tensor>,
    input: &Tensor,
    dims: &[usize],
    finish: impl Fn(f64, f64) -> f64,
) -> Result<()> {
    let from = lines::read(input, dims, DType::C128)?;
    let n = from.shape()[1] as usize;
    let v = Tensor::empty(var.shape(), DType::F64, crate::Device::CPU)?;
    let m = Tensor::empty(var.shape(), DType::C128, crate::Device::CPU)?;
    let data = super::slice::<Complex64>(&from);
    for (i, (v, m)) in super::slice_mut::<f64>(&v)
        .iter_mut()
        .zip(super::slice_mut::<Complex64>(&m))
        .enumerate()
    {
        let line = &data[i * n..(i + 1) * n];
        *m = line.iter().sum::<Complex64>() / n as f64;
        *v = finish(line.iter().map(|z| (z - *m).norm_sqr()).sum(), n as f64);
    }
    super::copy::copy(var, &v)?;
    match mean {
        Some(mean) => super::copy::copy(mean, &m),
        None => Ok(()),
    }
}
