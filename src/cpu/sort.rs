//! Sorting by keys: elements become unsigned integers that order as they do, NaN last, and carry their positions.

#![allow(unsafe_code, reason = "tasks write disjoint lines")]

use super::{lines, lines_room, ties};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Element, Result, Tensor};
use half::{bf16, f16};

/// An element that can be ordered by an unsigned key.
pub trait Key: Element {
    /// Whether the key fits in 32 bits.
    const SHORT: bool;
    /// The key: equal elements have equal keys, NaN has the largest.
    fn key(self) -> u64;
    /// The key of what equals nothing, itself included; integers have none.
    const ODD: Option<u64> = None;
    /// Whether they are equal.
    #[inline(always)]
    fn is(self, other: Self) -> bool {
        self == other
    }
}
macro_rules! keys {
    ($($t:ty, $short:literal, |$x:ident| $e:expr;)+) => { $(impl Key for $t {
        const SHORT: bool = $short;
        #[inline(always)]
        fn key(self) -> u64 { let $x = self; $e }
    })+ };
    (float $($t:ty, $short:literal, $w:ty, |$x:ident| $wide:expr, $sign:literal;)+) => { $(impl Key for $t {
        const SHORT: bool = $short;
        #[inline(always)]
        fn key(self) -> u64 {
            let $x = self;
            // Adding zero makes -0 into 0.
            let v = $wide + 0.0;
            let bits = v.to_bits();
            let flipped = if bits >> ($sign - 1) != 0 { !bits } else { bits | 1 << ($sign - 1) };
            u64::from(if v.is_nan() { <$w>::MAX } else { flipped })
        }
        const ODD: Option<u64> = Some(<$w>::MAX as u64);
        #[inline(always)]
        fn is(self, other: Self) -> bool {
            let wide = |$x: $t| $wide;
            wide(self) == wide(other)
        }
    })+ };
}
keys! {
    bool, true, |x| u64::from(x); u8, true, |x| u64::from(x); u16, true, |x| u64::from(x); u32, true, |x| u64::from(x); u64, false, |x| x;
    i8, true, |x| u64::from(x as u8 ^ 0x80); i16, true, |x| u64::from(x as u16 ^ 0x8000);
    i32, true, |x| u64::from(x as u32 ^ 0x8000_0000); i64, false, |x| x as u64 ^ 1 << 63;
}
keys! { float
    f16, true, u32, |x| super::folds::widen_f16(x), 32;
    bf16, true, u32, |x| f32::from_bits(u32::from(x.to_bits()) << 16), 32;
    f32, true, u32, |x| x, 32;
    f64, false, u64, |x| x, 64;
}

/// Lines longer than this are sorted by digits.
const RADIX_FROM: usize = 2048;
const DIGIT: usize = 11;

/// Positions of a line's elements in order, equal ones in the order they came.
pub(super) fn order<T: Key>(line: &[T], descending: bool, out: &mut [i64]) {
    let n = line.len();
    if n <= FEWEST {
        return few(line, n, if descending { u64::MAX } else { 0 }, out);
    }
    // Wide keys of a small range are as good as short ones.
    let (lo, hi) = if T::SHORT {
        (0, 0)
    } else {
        line.iter().fold((u64::MAX, 0), |(lo, hi), x| {
            (lo.min(x.key()), hi.max(x.key()))
        })
    };
    if n <= u32::MAX as usize && (T::SHORT || hi.saturating_sub(lo) <= u64::from(u32::MAX)) {
        let flip = if descending { u64::from(u32::MAX) } else { 0 };
        let mut packed: Vec<u64> = line
            .iter()
            .zip(0u64..)
            .map(|(x, i)| ((x.key() - lo) ^ flip) << 32 | i)
            .collect();
        if n >= RADIX_FROM {
            radix(&mut packed);
        } else {
            packed.sort_unstable();
        }
        out.iter_mut()
            .zip(&packed)
            .for_each(|(o, p)| *o = (p & 0xffff_ffff) as i64);
    } else {
        let flip = if descending { u64::MAX } else { 0 };
        let mut pairs: Vec<(u64, u64)> = line
            .iter()
            .zip(0u64..)
            .map(|(x, i)| (x.key() ^ flip, i))
            .collect();
        pairs.sort_unstable();
        out.iter_mut()
            .zip(&pairs)
            .for_each(|(o, p)| *o = p.1 as i64);
    }
}

/// Sorts by the upper 32 bits, least significant digit first; passes in which all digits agree are left out.
fn radix(v: &mut Vec<u64>) {
    const PASSES: usize = 3;
    let mut counts = vec![[0usize; 1 << DIGIT]; PASSES];
    let digit = |x: u64, pass: usize| (x >> (32 + pass * DIGIT)) as usize & ((1 << DIGIT) - 1);
    for &x in v.iter() {
        for (pass, c) in counts.iter_mut().enumerate() {
            c[digit(x, pass)] += 1;
        }
    }
    let mut other = vec![0u64; v.len()];
    for (pass, c) in counts.iter_mut().enumerate() {
        if c.contains(&v.len()) {
            continue;
        }
        let mut at = 0;
        for n in c.iter_mut() {
            (*n, at) = (at, at + *n);
        }
        for &x in v.iter() {
            let slot = &mut c[digit(x, pass)];
            other[*slot] = x;
            *slot += 1;
        }
        std::mem::swap(v, &mut other);
    }
}

/// Elements whose keys are made together.
const TOGETHER: usize = 64;

simd_fn! { wide
    /// The keys of some elements with flipped bits; whether any is below a bound.
    fn keys<T: Key>(line: &[T], flip: u64, bound: u64, to: &mut [u64]) -> bool {
        let mut below = 0;
        for (to, x) in to.iter_mut().zip(line) {
            *to = x.key() ^ flip;
            below |= u64::from(*to < bound);
        }
        below != 0
    }
}

simd_fn! { wide
    /// How many elements have a key.
    fn equal<T: Key>(line: &[T], key: u64) -> usize {
        line.iter().map(|x| usize::from(x.key() == key)).sum()
    }
}

/// Calls `f` with keys and positions of a line, in order, and takes the bound from it: what is not below one may be left out.
fn below_bound<T: Key>(line: &[T], flip: u64, mut f: impl FnMut(u64, usize) -> Option<u64>) {
    let mut room = [0; TOGETHER];
    let mut bound = None;
    for (part, first) in line.chunks(TOGETHER).zip((0..).step_by(TOGETHER)) {
        let keyed = &mut room[..part.len()];
        if !keys(part, flip, bound.unwrap_or(u64::MAX), keyed) && bound.is_some() {
            continue;
        }
        for (key, i) in keyed.iter().zip(first..) {
            if bound.is_none_or(|b| *key < b) {
                bound = f(*key, i);
            }
        }
    }
}

/// The first `k` positions of a line in order.
fn top<T: Key>(line: &[T], k: usize, largest: bool, out: &mut [i64]) {
    let flip = if largest { u64::MAX } else { 0 };
    if k <= FEWEST {
        return few(line, k, flip, out);
    }
    let room = (2 * k).max(256);
    let mut best: Vec<(u64, usize)> = Vec::with_capacity(room.min(line.len()));
    let mut bound = None;
    below_bound(line, flip, |key, i| {
        best.push((key, i));
        if best.len() >= room {
            best.select_nth_unstable(k - 1);
            best.truncate(k);
            bound = Some(best[k - 1].0);
        }
        bound
    });
    best.sort_unstable();
    out.iter_mut().zip(&best).for_each(|(o, p)| *o = p.1 as i64);
}

/// So few positions are kept in order while a line is read.
pub(super) const FEWEST: usize = 16;

/// The same for at most [`FEWEST`] positions of keys with flipped bits.
fn few<T: Key>(line: &[T], k: usize, flip: u64, out: &mut [i64]) {
    let mut room = [(0, 0); FEWEST];
    let Some(best) = room.get_mut(..k).filter(|best| !best.is_empty()) else {
        return;
    };
    let mut held = 0;
    below_bound(line, flip, |key, i| {
        // Behind its equals, which came before it.
        let mut at = held.min(k - 1);
        while at > 0 && best[at - 1].0 > key {
            best[at] = best[at - 1];
            at -= 1;
        }
        best[at] = (key, i as i64);
        held = (held + 1).min(k);
        (held == k).then(|| best[k - 1].0)
    });
    out.iter_mut().zip(&*best).for_each(|(o, p)| *o = p.1);
}

macro_rules! sortable {
    ($d:expr, $T:ident => $body:block) => {
        $crate::with_dtype!($d, [bool int uint half float] => $T, $body, else { $crate::bail!(NotImplemented, "no order of {}", $d) })
    };
}
pub(super) use sortable;

/// Sorts along `dim`.
///
/// # Errors
/// If memory cannot be had.
pub fn sort(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    descending: bool,
) -> Result<()> {
    if repeats(input, dim) {
        super::copy::copy(values, input)?;
        let places = Tensor::empty(&[input.shape()[dim]], DType::I64, Device::CPU)?;
        super::ramp::whole_steps(super::slice_mut::<i64>(&places), 0, 0, 1);
        let strides = (0..input.ndim()).map(|d| i64::from(d == dim)).collect();
        let along = places.view_with(input.shape().clone(), strides, 0);
        return super::copy::copy(indices, &along);
    }
    pick(
        values,
        indices,
        input,
        dim,
        |_| usize::MAX,
        descending,
        None,
    )
}

/// Whether the elements along a dimension are one and the same, so that they are in order as they lie.
pub(super) fn repeats(input: &Tensor, dim: usize) -> bool {
    input.strides().get(dim) == Some(&0) && input.shape()[dim] > 1
}

/// The `k` first along `dim`.
///
/// # Errors
/// If memory cannot be had.
pub fn topk(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    k: usize,
    largest: bool,
    sorted: bool,
) -> Result<()> {
    let best = Some(Best { sorted });
    pick(values, indices, input, dim, move |_| k, largest, best)
}

/// That only the first of a line are wanted, and whether in order.
#[derive(Clone, Copy)]
struct Best {
    sorted: bool,
}

impl Best {
    /// The positions of the first of a line, equals as PyTorch's selection leaves them.
    fn find<T: Key>(self, line: &[T], largest: bool, at: &mut [i64]) {
        let (n, k) = (line.len(), at.len());
        if n <= FEWEST {
            // Looking for equals first costs as much.
            return ties::first(line, largest, self.sorted, at);
        }
        // It takes a heap where few are wanted of many.
        let by_heap = k.saturating_mul(64) <= n;
        if !(by_heap && k <= FEW || ties::are_sure(line) || !self.sorted) {
            if k < n {
                top(line, k, largest, at);
            } else {
                order(line, largest, at);
            }
            if !tied(line, at) {
                return;
            }
        }
        if by_heap {
            let flip = if largest { u64::MAX } else { 0 };
            let mut smallest = ties::Smallest::new(k);
            below_bound(line, flip, |key, i| smallest.take(key, i));
            at.iter_mut()
                .zip(smallest.sorted())
                .for_each(|(at, i)| *at = i as i64);
        } else {
            ties::first(line, largest, self.sorted, at);
        }
    }
}

/// So few are kept in a heap at no cost.
const FEW: usize = 64;

/// Whether elements at positions are equal, or others are equal to the last of them.
fn tied<T: Key>(line: &[T], at: &[i64]) -> bool {
    let key = |i: &i64| line[*i as usize].key();
    at.windows(2).any(|w| key(&w[0]) == key(&w[1]))
        || at.last().is_some_and(|last| equal(line, key(last)) > 1)
}

fn pick(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    k: impl Fn(usize) -> usize,
    flag: bool,
    best: Option<Best>,
) -> Result<()> {
    if values.numel() == 0 {
        return Ok(());
    }
    if lines::are_single(input, dim) {
        return lines::of_one(values, indices, input);
    }
    let from = super::normal(&lines::read(input, &[dim], input.dtype())?)?;
    let n = from.shape()[1] as usize;
    let k = k(n).min(n);
    let (v, at) = (
        lines::target(values, dim, input.dtype())?,
        lines::target(indices, dim, DType::I64)?,
    );
    let _keys = lines_room::keys(input, dim, best.map(|_| k));
    sortable!(input.dtype(), T => {
        let data = super::slice::<T>(&from);
        let v = lines::Shared::new(super::slice_mut::<T>(&v));
        // Few elements compared cost as much as many moved.
        lines::for_each(data, n, super::slice_mut::<i64>(&at), k, |i, line, at| {
            match best {
                Some(best) => best.find(line, flag, at),
                None => order(line, flag, at),
            }
            // SAFETY: every line has its own part.
            let v = unsafe { v.part(i * k, k) };
            v.iter_mut().zip(at.iter()).for_each(|(v, &p)| *v = line[p as usize]);
        });
    });
    lines::finish(values, dim, &v)?;
    lines::finish(indices, dim, &at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_sorting_agree_and_are_stable() {
        let line: Vec<f32> = (0..5000u32)
            .map(|i| {
                if i % 97 == 0 {
                    f32::NAN
                } else {
                    (i.wrapping_mul(2_654_435_761) % 50) as f32 - 25.0
                }
            })
            .collect();
        let mut got = vec![0i64; line.len()];
        for descending in [false, true] {
            order(&line, descending, &mut got);
            let mut want: Vec<i64> = (0..line.len() as i64).collect();
            want.sort_by_key(|&i| {
                if descending {
                    u64::from(u32::MAX) - line[i as usize].key()
                } else {
                    line[i as usize].key()
                }
            });
            assert_eq!(got, want);
        }
    }

    #[test]
    fn the_first_of_a_line_are_those_of_its_order() {
        let line: Vec<i16> = (0..500i16).map(|i| i.wrapping_mul(7919) % 23).collect();
        for n in [1, 2, 17, 500] {
            let (line, mut all) = (&line[..n], vec![0i64; n]);
            for largest in [false, true] {
                order(line, largest, &mut all);
                for k in [0, 1, 2, FEWEST, FEWEST + 1, 40] {
                    let k = k.min(n);
                    let mut got = vec![-1i64; k];
                    top(line, k, largest, &mut got);
                    assert_eq!(got, all[..k], "{n} {k} {largest}");
                }
            }
        }
    }

    #[test]
    fn keys_order_as_elements_do() {
        let v = [
            f64::NEG_INFINITY,
            -1.5,
            -0.0,
            0.0,
            1e-300,
            2.0,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(v.windows(2).all(|w| w[0].key() <= w[1].key()));
        assert_eq!((-0.0f32).key(), 0.0f32.key());
        assert!(i64::MIN.key() < (-1i64).key() && (-1i64).key() < 0i64.key());
    }

    #[test]
    fn the_best_few_of_many() {
        let line: Vec<i32> = (0..10_000).map(|i| (i * 7919) % 10_007).collect();
        let mut at = [0i64; 5];
        top(&line, 5, true, &mut at);
        let mut want = line.clone();
        want.sort_unstable_by(|a, b| b.cmp(a));
        assert_eq!(at.map(|i| line[i as usize]), want[..5]);
    }
}
