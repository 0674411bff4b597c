//! Which input elements an output element of a resampling is made of, and their weights.

use super::resize::Taps;
use smallvec::{SmallVec, smallvec};

/// How values between elements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The element before.
    Nearest,
    /// The nearest element.
    NearestExact,
    /// On the line between two elements.
    Linear,
    /// On a cubic curve through four elements.
    Cubic,
}

/// The resampling of one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Elements of the input.
    pub size: i64,
    /// Elements of the output.
    pub out: i64,
    /// Output elements for each input element, as the caller put it; 0: from the sizes.
    pub scale: f64,
    /// The first and last elements are those of the input.
    pub align: bool,
    /// Places are computed in single precision.
    pub single: bool,
}

#[cfg(test)]
impl Axis {
    /// From one size to another, in single precision.
    pub(super) fn plain(size: i64, out: i64) -> Self {
        Self {
            size,
            out,
            scale: 0.0,
            align: false,
            single: true,
        }
    }
}

/// Input steps for each output step, in the precision PyTorch computes it in.
fn step(axis: Axis) -> f64 {
    let Axis {
        size,
        out,
        scale,
        align,
        single,
    } = axis;
    let round = |v: f64| if single { f64::from(v as f32) } else { v };
    if align {
        return if out > 1 {
            round((size - 1) as f64 / (out - 1) as f64)
        } else {
            0.0
        };
    }
    round(if scale > 0.0 {
        1.0 / scale
    } else {
        size as f64 / out as f64
    })
}

/// The input element of each output element.
#[must_use]
pub fn nearest(axis: Axis, exact: bool) -> Vec<usize> {
    let Axis {
        size, out, single, ..
    } = axis;
    let s = step(Axis {
        align: false,
        ..axis
    });
    (0..out)
        .map(|i| {
            let at = match (exact, single) {
                (false, true) => (i as f32 * s as f32).floor() as i64,
                (false, false) => (i as f64 * s).floor() as i64,
                (true, true) => ((i as f32 + 0.5) * s as f32).floor() as i64,
                (true, false) => ((i as f64 + 0.5) * s).floor() as i64,
            };
            at.clamp(0, size - 1) as usize
        })
        .collect()
}

/// The parameter of the cubic kernel through four elements.
pub const CUBIC: f64 = -0.75;

/// The cubic kernel with parameter `a` at distance `t`.
#[must_use]
#[inline(always)]
pub fn cubic(t: f64, a: f64) -> f64 {
    let t = t.abs();
    if t <= 1.0 {
        ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    } else if t >= 2.0 {
        0.0
    } else {
        ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
    }
}

/// The slope of [`cubic`] at `t`.
#[must_use]
#[inline(always)]
pub fn cubic_slope(t: f64, a: f64) -> f64 {
    let (sign, t) = (t.signum(), t.abs());
    if t <= 1.0 {
        sign * (3.0 * (a + 2.0) * t - 2.0 * (a + 3.0)) * t
    } else if t >= 2.0 {
        0.0
    } else {
        sign * ((3.0 * a * t - 10.0 * a) * t + 8.0 * a)
    }
}

/// The two or four input elements around each output element.
pub fn narrow(axis: Axis, mode: Mode) -> impl Iterator<Item = Taps> {
    let Axis {
        size,
        out,
        align,
        single,
        ..
    } = axis;
    let is_cubic = mode == Mode::Cubic;
    let s = step(axis);
    (0..out).map(move |i| {
        let mut at = if align {
            if single {
                f64::from(i as f32 * s as f32)
            } else {
                i as f64 * s
            }
        } else if single {
            f64::from((i as f32 + 0.5).mul_add(s as f32, -0.5))
        } else {
            (i as f64 + 0.5).mul_add(s, -0.5)
        };
        if !is_cubic && size == out {
            at = i as f64;
        }
        if !is_cubic && at < 0.0 {
            at = 0.0;
        }
        let first = (at.floor() as i64).min(size - 1);
        let t = (at - first as f64).clamp(0.0, 1.0);
        let clamp = |p: i64| p.clamp(0, size - 1) as usize;
        let parts = if is_cubic {
            (-1..3)
                .map(|k| (clamp(first + k), cubic(t - k as f64, CUBIC)))
                .collect()
        } else if t == 0.0 {
            smallvec![(clamp(first), 1.0)]
        } else {
            smallvec![(clamp(first), 1.0 - t), (clamp(first + 1), t)]
        };
        Taps { parts }
    })
}

/// Taps of a filter that is as wide as the step, so that no input is skipped.
pub fn wide(axis: Axis, mode: Mode) -> impl Iterator<Item = Taps> {
    let Axis { size, out, .. } = axis;
    let s = step(axis);
    let reach = if mode == Mode::Cubic { 2.0 } else { 1.0 };
    let support = if s >= 1.0 { reach * s } else { reach };
    let inverse = if s >= 1.0 { 1.0 / s } else { 1.0 };
    let weight = move |t: f64| match mode {
        Mode::Cubic => cubic(t, -0.5),
        _ => (1.0 - t.abs()).max(0.0),
    };
    (0..out).map(move |i| {
        let center = s * (i as f64 + 0.5);
        let from = ((center - support + 0.5) as i64).max(0);
        let to = ((center + support + 0.5) as i64).min(size);
        let mut parts: SmallVec<[(usize, f64); 2]> = (from..to)
            .map(|j| (j as usize, weight((j as f64 - center + 0.5) * inverse)))
            .collect();
        let total: f64 = parts.iter().map(|p| p.1).sum();
        if total != 0.0 {
            parts.iter_mut().for_each(|p| p.1 /= total);
        }
        Taps { parts }
    })
}

/// Weights rounded to as many binary places as 16 bits hold for the largest: bytes are resampled so.
#[must_use]
pub fn fixed_point(mut taps: Vec<Taps>) -> Vec<Taps> {
    // What lies beyond an end has the weight of the element there.
    for t in &mut taps {
        t.parts.dedup_by(|b, a| {
            let same = a.0 == b.0;
            if same {
                a.1 += b.1;
            }
            same
        });
    }
    let most = taps
        .iter()
        .flat_map(|t| &t.parts)
        .fold(0.0f64, |a, p| a.max(p.1));
    let mut places = 0;
    while places < 22 && (0.5 + most * f64::from(1u32 << (places + 1))) < 32768.0 {
        places += 1;
    }
    let unit = f64::from(1u32 << places);
    taps.iter_mut()
        .flat_map(|t| &mut t.parts)
        .for_each(|p| p.1 = (p.1 * unit).round() / unit);
    taps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one() {
        for mode in [Mode::Linear, Mode::Cubic] {
            for (size, out) in [(4, 7), (9, 3), (5, 5)] {
                let axis = Axis::plain(size, out);
                for t in narrow(axis, mode).chain(wide(axis, mode)) {
                    assert!((t.parts.iter().map(|p| p.1).sum::<f64>() - 1.0).abs() < 1e-6);
                }
            }
        }
    }
}
