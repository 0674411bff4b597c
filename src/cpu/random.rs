//! Random fills of tensors: values go into memory in storage order, as PyTorch draws them.

use super::room::{self, Room};
use super::slice_mut;
use crate::random::{self, Distribution, Generator, SharedGenerator};
use crate::{DType, Device, Dims, Result, Tensor, bail, dims, with_dtype};
use std::f64::consts::SQRT_2;

/// The distribution of the real and imaginary parts, where a complex tensor is drawn.
fn of_parts(d: Distribution) -> Distribution {
    match d {
        Distribution::Normal { mean, std } => Distribution::Normal {
            mean,
            std: std / SQRT_2,
        },
        d => d,
    }
}

fn splits(d: &Distribution) -> bool {
    matches!(
        d,
        Distribution::Normal { .. } | Distribution::Uniform { .. }
    )
}

/// Checks a distribution for an element type (complex types where they are drawn by parts).
///
/// # Errors
/// PyTorch's texts.
pub fn check(d: &Distribution, dtype: DType) -> Result<()> {
    if dtype.is_complex() {
        match d {
            Distribution::Normal { .. } | Distribution::Uniform { .. } => {
                return d.check(dtype.to_real());
            }
            Distribution::RandomRange {
                from: i64::MIN,
                to: None,
            } => {}
            Distribution::RandomRange { to, .. } => {
                let of = match to {
                    Some(_) => "check_random_bounds",
                    None => "random_from_to_impl",
                };
                bail!(
                    Runtime,
                    "{of} handles only integral, floating-point and boolean types"
                )
            }
            _ => {}
        }
    }
    d.check(dtype)
}

/// A tensor's memory as a flat row, if it has no gaps.
fn flat(t: &Tensor) -> Option<Tensor> {
    dims::is_dense(t.shape(), t.strides()).then(|| {
        t.reinterpret(
            t.dtype(),
            Dims::new(&[t.numel()]),
            Dims::new(&[1]),
            t.offset(),
        )
    })
}

/// Whether numbers are drawn into a tensor where it lies.
pub(super) fn dense_row(t: &Tensor) -> bool {
    t.is_contiguous() || flat(t).is_some()
}

/// Calls `f` with a contiguous tensor whose elements lie in the order of `out`'s memory, then stores what `f` wrote.
///
/// # Errors
/// Those of `f`, or if memory cannot be had.
pub fn in_memory_order(out: &Tensor, f: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    if out.is_contiguous() {
        return f(out);
    }
    if let Some(row) = flat(out) {
        return f(&row);
    }
    let strides = dims::preserved_strides(out.shape(), out.strides());
    let temp = Tensor::empty_strided(out.shape().clone(), strides, out.dtype(), Device::CPU)?;
    let Some(row) = flat(&temp) else {
        bail!(Runtime, "a fresh tensor is not dense")
    };
    f(&row)?;
    super::copy::copy(out, &temp)
}

/// The values of `t` (broadcast to `out`) in the memory order of `out`, as a flat row of `dtype`.
///
/// # Errors
/// If memory cannot be had.
pub fn row_like(t: &Tensor, out: &Tensor, dtype: DType) -> Result<Tensor> {
    let strides = dims::preserved_strides(out.shape(), out.strides());
    let temp = Tensor::empty_strided(out.shape().clone(), strides, dtype, Device::CPU)?;
    super::copy::copy(&temp, t)?;
    flat(&temp).ok_or_else(|| crate::err!(Runtime, "a fresh tensor is not dense"))
}

/// Fills a tensor of any layout.
///
/// # Errors
/// Those of [`check`].
pub fn fill(d: &Distribution, g: &SharedGenerator, out: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    if out.dtype().is_complex() && splits(d) {
        return fill(&of_parts(*d), g, &parts(out));
    }
    let contiguous = out.is_contiguous();
    in_memory_order(out, |row| {
        with_dtype!(row.dtype(), [bool int uint half float] => T, {
            return d.fill::<T>(&mut *g.host()?, slice_mut::<T>(row), contiguous);
        }, else {});
        check(d, row.dtype())
    })
}

/// What [`fill`] takes besides its result.
///
/// # Errors
/// If the size overflows.
pub fn fill_room(d: &Distribution, out: &Tensor, room: &mut Room) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    if out.dtype().is_complex() && splits(d) {
        return fill_room(&of_parts(*d), &parts(out), room);
    }
    if !dense_row(out) {
        room.converted(out, out.dtype())?;
    }
    Ok(())
}

/// The real view of a complex tensor.
fn parts(t: &Tensor) -> Tensor {
    let strides: Dims = t.strides().iter().map(|s| s * 2).chain([1]).collect();
    t.reinterpret(
        t.dtype().to_real(),
        t.shape().concat(&[2]),
        strides,
        t.offset() * 2,
    )
}

/// Moves the generator as [`fill`] would.
pub fn advance(d: &Distribution, g: &mut Generator, out: &Tensor) {
    let n = out.numel() as usize;
    if n == 0 {
        return;
    }
    // Parameters were checked by the layout rule; a failed check leaves the generator alone.
    let _ = if out.dtype().is_complex() && splits(d) {
        of_parts(*d).advance(g, out.dtype().to_real(), 2 * n, out.is_contiguous())
    } else {
        d.advance(g, out.dtype(), n, out.is_contiguous())
    };
}

/// 0 or 1 by a probability for each element.
///
/// # Errors
/// Where a probability lies outside [0, 1].
pub fn bernoulli_probs(g: &SharedGenerator, out: &Tensor, p: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let wide = p.dtype() == DType::F64;
    let probs = row_like(p, out, if wide { DType::F64 } else { DType::F32 })?;
    in_memory_order(out, |row| {
        with_dtype!(row.dtype(), [bool int half float] => T, {
            let to = slice_mut::<T>(row);
            return if wide {
                random::bernoulli_probs_f64(&mut *g.host()?, to, super::slice::<f64>(&probs))
            } else {
                random::bernoulli_probs_f32(&mut *g.host()?, to, super::slice::<f32>(&probs))
            };
        }, else {});
        Err(row.dtype().no_kernel("bernoulli_tensor_cpu_self_"))
    })
}

/// A Poisson count for each rate.
///
/// # Errors
/// Where a rate is negative.
pub fn poisson(g: &SharedGenerator, out: &Tensor, rates: &Tensor) -> Result<()> {
    let rates = super::copy::dense(rates, out.dtype())?;
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    with_dtype!(out.dtype(), [half float] => T, {
        random::poisson(&mut *g.host()?, slice_mut::<T>(&dense), super::slice::<T>(&rates))?;
    }, else {
        return Err(out.dtype().no_kernel("poisson_cpu"))
    });
    if out.is_contiguous() {
        Ok(())
    } else {
        super::copy::copy(out, &dense)
    }
}

/// A random permutation of 0, 1, ...
///
/// # Errors
/// If the element type is none that PyTorch permutes.
pub fn randperm(g: &SharedGenerator, out: &Tensor) -> Result<()> {
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    with_dtype!(out.dtype(), [int uint half float] => T, {
        random::randperm(&mut *g.host()?, slice_mut::<T>(&dense));
    }, else {
        return Err(out.dtype().no_kernel("randperm"))
    });
    if out.is_contiguous() {
        Ok(())
    } else {
        super::copy::copy(out, &dense)
    }
}

/// Samples row numbers of weights (one or two dimensions).
///
/// # Errors
/// PyTorch's texts for weights that are no weights.
pub fn multinomial(
    g: &SharedGenerator,
    out: &Tensor,
    weights: &Tensor,
    samples: usize,
    replacement: bool,
) -> Result<()> {
    let rows = if weights.ndim() == 2 {
        weights.shape()[0] as usize
    } else {
        1
    };
    let cols = weights.shape()[weights.ndim() - 1] as usize;
    if out.numel() == 0 {
        return Ok(());
    }
    if cols == 0 {
        bail!(
            Runtime,
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        );
    }
    let w = super::copy::dense(weights, weights.dtype())?;
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    with_dtype!(w.dtype(), [half float] => T, {
        let (to, from) = (slice_mut::<i64>(&dense), super::slice::<T>(&w));
        if replacement && samples > 1 {
            let _sums = room::lists(1, random::sums_of(cols, w.dtype()));
            random::multinomial_with_replacement::<T>(&mut *g.host()?, to, from, rows, cols, samples)?;
        } else {
            random::check_multinomial_weights::<T>(from, rows, cols, samples)?;
            // The exponentials are drawn in the memory order of the weights.
            let strides = dims::preserved_strides(weights.shape(), weights.strides());
            let drawn = Tensor::empty_strided(weights.shape().clone(), strides, w.dtype(), Device::CPU)?;
            fill(&Distribution::Exponential { lambda: 1.0 }, g, &drawn)?;
            let q = super::copy::dense(&drawn, w.dtype())?;
            drop(drawn);
            let _keys = room::lists(1, random::keys_of(rows, cols, samples));
            random::largest_quotients::<T>(to, from, super::slice::<T>(&q), cols, samples);
        }
    }, else {
        return Err(w.dtype().no_kernel("multinomial"))
    });
    if out.is_contiguous() {
        Ok(())
    } else {
        super::copy::copy(out, &dense)
    }
}

/// Values drawn element by element, in order, from the elements of `a` and `b` at the same places.
fn drawn_from(
    g: &SharedGenerator,
    out: &Tensor,
    [a, b]: [&Tensor; 2],
    draw: impl Fn(&mut Generator, f64, f64) -> f64,
) -> Result<()> {
    let wide = |t: &Tensor| super::copy::dense(&t.expand_to(out.shape()), DType::F64);
    let (a, b) = (wide(a)?, wide(b)?);
    let mut g = g.host()?;
    super::lines::written::<f64>(out, |to| {
        let from = super::slice::<f64>(&a).iter().zip(super::slice::<f64>(&b));
        for (to, (&a, &b)) in to.iter_mut().zip(from) {
            *to = draw(&mut g, a, b);
        }
        Ok(())
    })
}

/// The smallest normal number of a type.
fn tiny(d: DType) -> f64 {
    if d == DType::F64 {
        f64::MIN_POSITIVE
    } else {
        f64::from(f32::MIN_POSITIVE)
    }
}

fn precision(d: DType) -> random::Precision {
    if d == DType::F64 {
        random::Precision::Double
    } else {
        random::Precision::Single
    }
}

/// A gamma number for each shape parameter.
///
/// # Errors
/// If memory cannot be had.
pub fn standard_gamma(g: &SharedGenerator, out: &Tensor, alpha: &Tensor) -> Result<()> {
    let (least, to) = (tiny(out.dtype()), precision(out.dtype()));
    drawn_from(g, out, [alpha, alpha], |g, alpha, _| {
        let drawn = random::gamma(g, alpha, to);
        if drawn < least { least } else { drawn }
    })
}

/// How many of so many trials succeed, for each number of trials and probability.
///
/// # Errors
/// If memory cannot be had.
pub fn binomial(g: &SharedGenerator, out: &Tensor, count: &Tensor, p: &Tensor) -> Result<()> {
    let to = precision(out.dtype());
    drawn_from(g, out, [count, p], |g, n, p| random::binomial(g, n, p, to))
}

/// Shares that sum up to one along the last dimension, one of each parameter.
///
/// # Errors
/// If memory cannot be had.
pub fn dirichlet(g: &SharedGenerator, out: &Tensor, alpha: &Tensor) -> Result<()> {
    let drawn = Tensor::empty(out.shape(), DType::F64, Device::CPU)?;
    standard_gamma(g, &drawn, alpha)?;
    let row = out.shape().last().map_or(1, |&n| n as usize).max(1);
    let (least, to) = (tiny(out.dtype()), precision(out.dtype()));
    let most = if out.dtype() == DType::F64 {
        1.0 - f64::EPSILON / 2.0
    } else {
        f64::from(1.0 - f32::EPSILON / 2.0)
    };
    super::lines::written::<f64>(out, |shares| {
        let rows = super::slice::<f64>(&drawn).chunks(row);
        for (shares, row) in shares.chunks_mut(row).zip(rows) {
            let sum: f64 = row.iter().sum();
            for (share, v) in shares.iter_mut().zip(row) {
                *share = to.round(v / sum).max(least).min(most);
            }
        }
        Ok(())
    })
}

/// Values of a function of three tensors' elements, in double precision.
///
/// # Errors
/// If memory cannot be had.
pub fn of_samples(out: &Tensor, from: [&Tensor; 3], f: fn([f64; 3]) -> f64) -> Result<()> {
    let wide = |t: &Tensor| super::copy::dense(&t.expand_to(out.shape()), DType::F64);
    let [a, b, c] = [wide(from[0])?, wide(from[1])?, wide(from[2])?];
    let rows = [&a, &b, &c].map(super::slice::<f64>);
    super::lines::written::<f64>(out, |to| {
        for (i, to) in to.iter_mut().enumerate() {
            *to = f([rows[0][i], rows[1][i], rows[2][i]]);
        }
        Ok(())
    })
}
