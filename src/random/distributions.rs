//! Distributions as values: one check, one fill, and one skip that moves the generator just as the fill would.

use super::generator::Generator;
use super::kernels::{
    BLOCK, RandomElement, advance_normal_serial, fill_by, fill_cauchy, fill_log_normal,
    fill_normal_serial,
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

impl Ints {
    /// The next integers.
    fn draw(self, g: &mut Generator, room: &mut [i64]) {
        match self {
            Self::Full => room.fill_with(|| g.u64() as i64),
            Self::Range {
                range,
                base,
                wide: true,
            } => room.fill_with(|| (g.u64() % range).wrapping_add(base as u64) as i64),
            Self::Range { range, base, .. } => draw_narrow(g, room, range, base),
        }
    }
}

/// One word a value, `word % range + base`; `range` is below 2^32 here.
fn draw_narrow(g: &mut Generator, room: &mut [i64], range: u64, base: i64) {
    let mut rest = room;
    while !rest.is_empty() {
        let words = g.mt.take(rest.len());
        let (now, later) = rest.split_at_mut(words.len());
        for (o, &w) in now.iter_mut().zip(words) {
            *o = (u64::from(w) % range).wrapping_add(base as u64) as i64;
        }
        rest = later;
    }
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

fn check_uniform(from: f64, to: f64, dtype: DType) -> Result<()> {
    let max = match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => f64::from(f32::from(half::bf16::MAX)),
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    for (v, what) in [(from, "from"), (to, "to")] {
        ensure!(
            (-max..=max).contains(&v),
            Runtime,
            "{what} is out of bounds for {}",
            dtype.cpp_name()
        );
    }
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
    Ok(())
}

fn check_continuous(name: &str, dtype: DType, shown: &str) -> Result<()> {
    ensure!(
        dtype.is_float(),
        Runtime,
        "{name} distribution is a continuous probability distribution. dtype must be a floating point but you specified \
         {shown}"
    );
    Ok(())
}

fn is_common_int(dtype: DType) -> bool {
    use DType::{I8, I16, I32, I64, U8};
    matches!(dtype, U8 | I8 | I16 | I32 | I64)
}

/// Types that are drawn by kernels with a list of their own: neither unsigned integers beyond bytes, nor small floats.
fn is_drawn(dtype: DType) -> bool {
    dtype == DType::Bool || is_common_int(dtype) || float_digits(dtype).is_some()
}

/// What `random_` without bounds draws.
fn plain_ints(dtype: DType) -> Ints {
    let range = match (dtype, float_digits(dtype)) {
        (DType::I64, _) => 1 << 63,
        (DType::F64, _) => (1 << 53) + 1,
        (DType::Bool, _) => 2,
        (_, Some(digits)) => (1 << digits) + 1,
        (_, None) => int_bounds(dtype).1 as u64 + 1,
    };
    Ints::Range {
        range,
        base: 0,
        wide: matches!(dtype, DType::I64 | DType::F64),
    }
}

fn check_bound(v: i64, what: &str, dtype: DType) -> Result<()> {
    let (low, high) = int_bounds(dtype);
    ensure!(
        (low..=high).contains(&v),
        Runtime,
        "{what} is out of bounds for {}",
        dtype.cpp_name()
    );
    Ok(())
}

fn ints_of(base: i64, range: u64) -> Ints {
    Ints::Range {
        range,
        base,
        wide: range >= 1 << 28,
    }
}

fn ints_between(from: i64, to: i64, dtype: DType) -> Result<Ints> {
    ensure!(
        from < to,
        Runtime,
        "random_ expects 'from' to be less than 'to', but got from={from} >= to={to}"
    );
    check_bounded(dtype, "random_update_from_to")?;
    let (from, to) = (move_bound(from, true, dtype), move_bound(to, false, dtype));
    ensure!(
        from < to,
        Runtime,
        "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={from} >= to={to}"
    );
    check_bound(from, "from", dtype)?;
    check_bound(to - 1, "to - 1", dtype)?;
    Ok(ints_of(from, to.wrapping_sub(from) as u64))
}

/// Checks that integers between bounds are drawn in a type.
fn check_bounded(dtype: DType, kernel: &str) -> Result<()> {
    dtype.check_kernel(!dtype.is_float() || float_digits(dtype).is_some(), kernel)
}

/// All integers of 64 bits, where the type takes them.
fn every_int(dtype: DType) -> Result<Ints> {
    match dtype {
        DType::I64 | DType::F64 | DType::F32 | DType::BF16 => Ok(Ints::Full),
        DType::I32 | DType::I16 | DType::I8 | DType::U8 => bail!(
            Runtime,
            "random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16"
        ),
        _ => Err(dtype.no_kernel("random_full_64_bits_range_kernel_cpu")),
    }
}

/// From a bound to the largest integer of the type.
fn ints_from(from: i64, dtype: DType) -> Result<Ints> {
    check_bounded(dtype, "random_from_to_range_calc")?;
    let digits = float_digits(dtype);
    let to_inc = digits.map_or(int_bounds(dtype).1, |digits| 1 << digits);
    let from = move_bound(from, true, dtype);
    ensure!(
        digits.is_none() || from < to_inc,
        Runtime,
        "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but \
         got from={from} > to_inc={to_inc}"
    );
    check_bound(from, "from", dtype)?;
    let range = (to_inc.wrapping_sub(from) as u64).wrapping_add(1);
    Ok(ints_of(from, range))
}

impl Distribution {
    /// Says where integers are asked for that a floating-point type of `dtype`'s digits does not all hold.
    pub fn warn(&self, dtype: DType) {
        let (Self::RandomRange { from, to }, Some(digits)) = (*self, float_digits(dtype)) else {
            return;
        };
        let end = match to {
            Some(to) => move_bound(to, false, dtype) - 1,
            None => 1 << digits,
        };
        for (name, bound) in [("from", move_bound(from, true, dtype)), ("to - 1", end)] {
            if bound.unsigned_abs() > 1 << digits {
                crate::warning::say(&format!(
                    "{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {} can support discrete \
                     uniform distribution only within this range. This warning will become an error in version 1.7 release, \
                     please fix the code in advance",
                    dtype.cpp_name()
                ));
            }
        }
    }

    /// Checks the parameters for an element type, with PyTorch's texts.
    ///
    /// # Errors
    /// If a parameter is outside of what the distribution, or the type, allows.
    pub fn check(&self, dtype: DType) -> Result<()> {
        let float = float_digits(dtype).is_some();
        match *self {
            Self::Uniform { from, to } => {
                dtype.check_kernel(float, "check_uniform_bounds")?;
                check_uniform(from, to, dtype)
            }
            Self::Normal { std, .. } => {
                ensure!(
                    std >= 0.0,
                    Runtime,
                    "normal expects std >= 0.0, but found std {std}"
                );
                dtype.check_kernel(float, "normal_kernel_cpu")
            }
            Self::LogNormal { std, .. } => {
                ensure!(
                    std > 0.0,
                    Runtime,
                    "log_normal_ expects std > 0.0, but found std={std}"
                );
                dtype.check_kernel(float, "log_normal_cpu")
            }
            Self::Exponential { lambda } => {
                check_continuous("Exponential", dtype, dtype.scalar_type())?;
                ensure!(
                    lambda > 0.0,
                    Runtime,
                    "exponential_ expects lambda > 0.0, but found lambda={lambda}"
                );
                dtype.check_kernel(float, "exponential_cpu")
            }
            Self::Cauchy { sigma, .. } => {
                ensure!(
                    sigma > 0.0,
                    Runtime,
                    "cauchy_ expects sigma > 0.0, but found sigma={sigma}"
                );
                check_continuous("Cauchy", dtype, dtype.cpp_name())?;
                dtype.check_kernel(float, "cauchy_cpu")
            }
            Self::Geometric { p } => {
                ensure!(
                    0.0 < p && p < 1.0,
                    Runtime,
                    "geometric_ expects p to be in (0, 1), but got p={p}"
                );
                dtype.check_kernel(float || is_common_int(dtype), "geometric_cpu")
            }
            Self::Bernoulli { p } => {
                ensure!(
                    (0.0..=1.0).contains(&p),
                    Runtime,
                    "bernoulli_ expects p to be in [0, 1], but got p={p}"
                );
                dtype.check_kernel(is_drawn(dtype), "bernoulli_scalar_cpu_")
            }
            Self::Random => dtype.check_kernel(is_drawn(dtype), "random_kernel_cpu"),
            Self::RandomRange { .. } => self.ints(dtype).map(|_| ()),
        }
    }

    /// Which integers are drawn.
    fn ints(&self, dtype: DType) -> Result<Ints> {
        match *self {
            Self::RandomRange { from, to: Some(to) } => ints_between(from, to, dtype),
            Self::RandomRange {
                from: i64::MIN,
                to: None,
            } => every_int(dtype),
            Self::RandomRange { from, to: None } => ints_from(from, dtype),
            _ => Ok(plain_ints(dtype)),
        }
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
        match (*self, T::OWN) {
            (Self::Uniform { from, to }, Some(own)) => (own.uniform)(g, out, from, to),
            (Self::Normal { mean, std }, Some(own)) if contiguous && out.len() >= 16 => {
                (own.normal)(g, out, mean, std);
            }
            (Self::Random | Self::RandomRange { .. }, _) => {
                let ints = self.ints(T::DTYPE)?;
                let draw = &mut |room: &mut [i64]| ints.draw(g, room);
                fill_by(out, &mut [0; BLOCK], draw, T::from_i64);
            }
            _ => {
                let draw = &mut |room: &mut [f64]| self.draw(g, room);
                fill_by(out, &mut [0.0; BLOCK], draw, T::from_f64);
            }
        }
        Ok(())
    }

    /// The next numbers; none where integers are drawn.
    fn draw(&self, g: &mut Generator, room: &mut [f64]) {
        match *self {
            Self::Uniform { from, to } => room.fill_with(|| g.d53() * (to - from) + from),
            Self::Normal { mean, std } => fill_normal_serial(g, room, mean, std),
            Self::LogNormal { mean, std } => fill_log_normal(g, room, mean, std),
            Self::Exponential { lambda } => {
                room.fill_with(|| -1.0 / lambda * (-g.d53()).ln_1p());
            }
            Self::Cauchy { median, sigma } => fill_cauchy(g, room, median, sigma),
            Self::Geometric { p } => {
                let scale = (-p).ln_1p();
                room.fill_with(|| (g.d53().ln() / scale).ceil());
            }
            Self::Bernoulli { p } => room.fill_with(|| f64::from(u8::from(g.d53() < p))),
            Self::Random | Self::RandomRange { .. } => {}
        }
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

#[cfg(test)]
mod tests;
