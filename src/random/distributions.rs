//! Distributions as values: one check, one fill, and one skip that moves the generator just as the fill would.

use super::generator::Generator;
use super::kernels::{
    RandomElement, advance_normal_serial, fill_cauchy, fill_log_normal, fill_normal_serial,
    fill_serial,
};
use crate::{DType, Result, bail, ensure};

/// A distribution with its parameters, independent of element type.
///
/// Complex tensors are filled through their real view of twice the length (for normals with `std * sqrt(1/2)`).
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(
    missing_docs,
    reason = "the fields are the parameters that each variant's text names"
)]
pub enum Distribution {
    /// Uniform on [from, to): `rand`, `uniform_`.
    Uniform { from: f64, to: f64 },
    /// Normal: `randn`, `normal_`.
    Normal { mean: f64, std: f64 },
    /// The exponential of a normal.
    LogNormal { mean: f64, std: f64 },
    /// Exponential with rate `lambda`.
    Exponential { lambda: f64 },
    /// Cauchy.
    Cauchy { median: f64, sigma: f64 },
    /// Number of trials up to the first success.
    Geometric { p: f64 },
    /// 1 with probability p, else 0.
    Bernoulli { p: f64 },
    /// `random_()`: the whole non-negative range that the type holds exactly.
    Random,
    /// Integers from `from` up to but not including `to`, or up to the type's largest: `random_(from, to)`, `randint`.
    RandomRange { from: i64, to: Option<i64> },
}

/// How integers are drawn: a modulus and an offset, or all 64 bits.
#[derive(Clone, Copy)]
enum Ints {
    Range { range: u64, base: i64, wide: bool },
    Full,
}

/// Digits of the significand for floats; `None` for other types.
fn float_digits(dtype: DType) -> Option<u32> {
    match dtype {
        DType::F64 => Some(53),
        DType::F32 => Some(24),
        DType::F16 => Some(11),
        DType::BF16 => Some(8),
        _ => None,
    }
}

/// Smallest and largest integer of the type, clamped to 64 signed bits.
fn int_bounds(dtype: DType) -> (i64, i64) {
    use DType::*;
    match dtype {
        Bool => (0, 1),
        U8 => (0, 255),
        I8 => (-128, 127),
        I16 => (-32768, 32767),
        U16 => (0, 65535),
        I32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        U32 => (0, i64::from(u32::MAX)),
        U64 => (0, i64::MAX),
        F16 => (-65504, 65504),
        _ => (i64::MIN, i64::MAX),
    }
}

/// The C++ type name in range messages.
fn cpp_name(dtype: DType) -> &'static str {
    use DType::*;
    match dtype {
        Bool => "bool",
        U8 => "unsigned char",
        I8 => "signed char",
        I16 => "short int",
        U16 => "short unsigned int",
        I32 => "int",
        U32 => "unsigned int",
        I64 => "long int",
        U64 => "long unsigned int",
        F16 => "c10::Half",
        BF16 => "c10::BFloat16",
        F32 => "float",
        F64 => "double",
        _ => dtype.name(),
    }
}

fn round_to(v: i64, dtype: DType) -> i64 {
    let rounded = match dtype {
        DType::F64 => v as f64,
        DType::F32 => f64::from(v as f32),
        DType::F16 => half::f16::from_f32(v as f32).to_f64(),
        DType::BF16 => half::bf16::from_f32(v as f32).to_f64(),
        _ => return v,
    };
    // What does not fit becomes the smallest integer, as the conversion instruction of x86 does it.
    if rounded < 9.223_372_036_854_775_8e18 {
        rounded as i64
    } else {
        i64::MIN
    }
}

/// Where the float type cannot hold `v` exactly, PyTorch moves the bound to a neighbour inside the interval.
fn move_bound(v: i64, up: bool, dtype: DType) -> i64 {
    let Some(digits) = float_digits(dtype) else {
        return v;
    };
    let step = if up { 1 } else { -1 };
    let near = round_to(v.saturating_add(step), dtype);
    let outside = if up { near < v } else { near >= v };
    if !outside {
        return v;
    }
    let log2 = v.saturating_add(step).unsigned_abs().max(1).ilog2();
    let ulp = 1i64
        .checked_shl((log2 + 1).saturating_sub(digits))
        .unwrap_or(0);
    if up {
        near.saturating_add(ulp)
    } else {
        near.saturating_sub(ulp)
    }
}

impl Distribution {
    /// Checks the parameters for an element type, with PyTorch's texts.
    pub fn check(&self, dtype: DType) -> Result<()> {
        let float = float_digits(dtype).is_some();
        let needs_float = |kernel: &str| -> Result<()> {
            dtype.check_kernel(float, kernel)?;
            Ok(())
        };
        match *self {
            Self::Uniform { from, to } => {
                needs_float("check_uniform_bounds")?;
                let max = match dtype {
                    DType::F16 => 65504.0,
                    DType::BF16 => f64::from(f32::from(half::bf16::MAX)),
                    DType::F32 => f64::from(f32::MAX),
                    _ => f64::MAX,
                };
                let outside = |v: f64| !(-max..=max).contains(&v);
                ensure!(
                    !outside(from),
                    Runtime,
                    "from is out of bounds for {}",
                    cpp_name(dtype)
                );
                ensure!(
                    !outside(to),
                    Runtime,
                    "to is out of bounds for {}",
                    cpp_name(dtype)
                );
                ensure!(
                    from <= to,
                    Runtime,
                    "uniform_ expects to return a [from, to) range, but found from={from} > to={to}"
                );
                ensure!(
                    to - from <= max,
                    Runtime,
                    "uniform_ expects to-from <= std::numeric_limits<{}>::max(), but found to={to} and from={from} which \
                     result in to-from to exceed the limit",
                    dtype.scalar_type()
                );
            }
            Self::Normal { std, .. } => {
                ensure!(
                    std >= 0.0,
                    Runtime,
                    "normal expects std >= 0.0, but found std {std}"
                );
                needs_float("normal_kernel_cpu")?;
            }
            Self::LogNormal { std, .. } => {
                ensure!(
                    std > 0.0,
                    Runtime,
                    "log_normal_ expects std > 0.0, but found std={std}"
                );
                needs_float("log_normal_cpu")?;
            }
            Self::Exponential { lambda } => {
                ensure!(
                    dtype.is_float(),
                    Runtime,
                    "Exponential distribution is a continuous probability distribution. dtype must be a floating point but \
                     you specified {}",
                    dtype.scalar_type()
                );
                ensure!(
                    lambda > 0.0,
                    Runtime,
                    "exponential_ expects lambda > 0.0, but found lambda={lambda}"
                );
                needs_float("exponential_cpu")?;
            }
            Self::Cauchy { sigma, .. } => {
                ensure!(
                    sigma > 0.0,
                    Runtime,
                    "cauchy_ expects sigma > 0.0, but found sigma={sigma}"
                );
                ensure!(
                    dtype.is_float(),
                    Runtime,
                    "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you \
                     specified {}",
                    cpp_name(dtype)
                );
                needs_float("cauchy_cpu")?;
            }
            Self::Geometric { p } => {
                ensure!(
                    0.0 < p && p < 1.0,
                    Runtime,
                    "geometric_ expects p to be in (0, 1), but got p={p}"
                );
                dtype.check_kernel(
                    float
                        || matches!(
                            dtype,
                            DType::U8 | DType::I8 | DType::I16 | DType::I32 | DType::I64
                        ),
                    "geometric_cpu",
                )?;
            }
            Self::Bernoulli { p } => {
                ensure!(
                    (0.0..=1.0).contains(&p),
                    Runtime,
                    "bernoulli_ expects p to be in [0, 1], but got p={p}"
                );
            }
            Self::Random => {}
            Self::RandomRange { .. } => {
                self.ints(dtype)?;
            }
        }
        Ok(())
    }

    fn ints(&self, dtype: DType) -> Result<Ints> {
        let plain = |range: u64, wide| {
            Ok(Ints::Range {
                range,
                base: 0,
                wide,
            })
        };
        let (from, to) = match *self {
            Self::RandomRange { from, to } => (from, to),
            _ => {
                return match dtype {
                    DType::I64 => plain(1 << 63, true),
                    DType::F64 => plain((1 << 53) + 1, true),
                    DType::Bool => plain(2, false),
                    _ => match float_digits(dtype) {
                        Some(digits) => plain((1 << digits) + 1, false),
                        None => plain(int_bounds(dtype).1 as u64 + 1, false),
                    },
                };
            }
        };
        let name = cpp_name(dtype);
        let (low, high) = int_bounds(dtype);
        let float = float_digits(dtype);
        let check = |v: i64, what: &str| -> Result<()> {
            ensure!(
                (low..=high).contains(&v),
                Runtime,
                "{what} is out of bounds for {name}"
            );
            Ok(())
        };
        let (from, range) = match to {
            Some(to) => {
                ensure!(
                    from < to,
                    Runtime,
                    "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
                );
                let (from, to) = (move_bound(from, true, dtype), move_bound(to, false, dtype));
                ensure!(
                    from < to,
                    Runtime,
                    "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={from} >= to={to}"
                );
                check(from, "from")?;
                check(to - 1, "to - 1")?;
                (from, to.wrapping_sub(from) as u64)
            }
            None if from == i64::MIN => match dtype {
                DType::I64 | DType::F64 | DType::F32 | DType::BF16 => return Ok(Ints::Full),
                DType::F16 | DType::Bool => {
                    return Err(dtype.no_kernel("random_full_64_bits_range_kernel_cpu"));
                }
                _ => bail!(
                    Runtime,
                    "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16"
                ),
            },
            None => {
                let to_inc = float.map_or(high, |digits| 1 << digits);
                let from = move_bound(from, true, dtype);
                if float.is_some() {
                    ensure!(
                        from < to_inc,
                        Runtime,
                        "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but \
                         got from={from} > to_inc={to_inc}"
                    );
                }
                check(from, "from")?;
                (from, (to_inc.wrapping_sub(from) as u64).wrapping_add(1))
            }
        };
        Ok(Ints::Range {
            range,
            base: from,
            wide: range >= 1 << 28,
        })
    }

    /// Fills `out`, which holds a tensor's elements in memory order. `contiguous` is whether the tensor was
    /// (channels-last is not): normals use the block algorithm only then.
    ///
    /// # Errors
    /// Those of [`Distribution::check`]; the generator has not moved then.
    pub fn fill<T: RandomElement>(
        &self,
        g: &mut Generator,
        out: &mut [T],
        contiguous: bool,
    ) -> Result<()> {
        self.check(T::DTYPE)?;
        match *self {
            Self::Uniform { from, to } => T::fill_uniform(g, out, from, to),
            Self::Normal { mean, std } if contiguous && out.len() >= 16 => {
                T::fill_normal_block(g, out, mean, std)
            }
            Self::Normal { mean, std } => fill_normal_serial(g, out, mean, std),
            Self::LogNormal { mean, std } => fill_log_normal(g, out, mean, std),
            Self::Exponential { lambda } => {
                fill_serial(g, out, |g| -1.0 / lambda * (-g.d53()).ln_1p())
            }
            Self::Cauchy { median, sigma } => fill_cauchy(g, out, median, sigma),
            Self::Geometric { p } => {
                let scale = (-p).ln_1p();
                fill_serial(g, out, |g| (g.d53().ln() / scale).ceil());
            }
            Self::Bernoulli { p } => {
                let (zero, one) = (T::from_i64(0), T::from_i64(1));
                for o in out {
                    *o = if g.d53() < p { one } else { zero };
                }
            }
            Self::Random | Self::RandomRange { .. } => match self.ints(T::DTYPE)? {
                Ints::Full => out
                    .iter_mut()
                    .for_each(|o| *o = T::from_i64(g.u64() as i64)),
                Ints::Range {
                    range,
                    base,
                    wide: true,
                } => {
                    out.iter_mut().for_each(|o| {
                        *o = T::from_i64((g.u64() % range).wrapping_add(base as u64) as i64)
                    });
                }
                Ints::Range {
                    range,
                    base,
                    wide: false,
                } => fill_narrow(g, out, range, base),
            },
        }
        Ok(())
    }

    /// Moves the generator exactly as filling `n` elements of `dtype` would, without making the values.
    ///
    /// # Errors
    /// Those of [`Distribution::check`]; the generator has not moved then.
    pub fn advance(
        &self,
        g: &mut Generator,
        dtype: DType,
        n: usize,
        contiguous: bool,
    ) -> Result<()> {
        self.check(dtype)?;
        let n = n as u64;
        let tail = if n % 16 == 0 { 0 } else { 16 };
        match *self {
            Self::Normal { .. } if contiguous && n >= 16 => match dtype {
                DType::F64 => g.skip(2 * (n + tail)),
                DType::F32 => g.skip(n + tail),
                _ => g.skip(n / 16 * 16 + tail),
            },
            Self::Normal { .. } | Self::LogNormal { .. } => advance_normal_serial(g, n),
            Self::Uniform { .. } if dtype != DType::F64 => g.skip(n),
            Self::Random | Self::RandomRange { .. } => match self.ints(dtype)? {
                Ints::Range { wide: false, .. } => g.skip(n),
                _ => g.skip(2 * n),
            },
            _ => g.skip(2 * n),
        }
        Ok(())
    }
}

/// One word a value, `word % range + base`; `range` is below 2^32 here.
fn fill_narrow<T: RandomElement>(g: &mut Generator, out: &mut [T], range: u64, base: i64) {
    let mut rest = out;
    while !rest.is_empty() {
        let words = g.mt.take(rest.len());
        let (now, later) = rest.split_at_mut(words.len());
        for (o, &w) in now.iter_mut().zip(words) {
            *o = T::from_i64((u64::from(w) % range).wrapping_add(base as u64) as i64);
        }
        rest = later;
    }
}

#[cfg(test)]
mod tests;
