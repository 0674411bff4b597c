//! Which elements, or rows, are equal.

use super::extreme::Ranked;
use super::iter::GRAIN;
use super::lines::Shared;
use super::pool;
use super::select::rank;
use super::simd::simd_fn;
use super::sort::{Key, order, sortable};
use super::{room, slice, slice_mut, unordered};
use crate::{DType, Result, Scalar, Tensor};

/// What is asked besides the distinct ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Besides {
    /// Which group each belongs to.
    pub inverse: bool,
    /// How many each group has.
    pub counts: bool,
}

/// Groups of equal elements or rows.
#[derive(Debug)]
pub struct Groups {
    /// What stands for each of them.
    pub first: First,
    /// How many there are.
    pub count: usize,
    /// The group of each element or row, if that was asked.
    pub inverse: Vec<i64>,
    /// How many each has, if that was asked.
    pub counts: Vec<i64>,
}

/// What stands for each group.
#[derive(Debug)]
pub enum First {
    /// The row at a place.
    At(Vec<i64>),
    /// An integer.
    Integers(Vec<i64>),
    /// Each element that differs from the one before it: [`write_changes`].
    Changes,
}

/// Groups equal elements of a dense tensor: all of them in ascending order, or only neighbours.
///
/// # Errors
/// If the dtype has no order.
pub fn of_elements(t: &Tensor, consecutive: bool, ask: Besides) -> Result<Groups> {
    sortable!(t.dtype(), T => {
        let data = slice::<T>(t);
        if consecutive {
            return Ok(neighbours(data, ask));
        }
        if let Some(table) = Table::of(data) {
            return Ok(table.groups(data, ask));
        }
        let mut sorted = vec![0; data.len()];
        order(data, false, &mut sorted);
        let same = |a: i64, b: i64| data[a as usize] == data[b as usize];
        Ok(grouped(data.len(), sorted.into_iter(), same, ask))
    })
}

simd_fn! { stream
    /// How many elements differ from the one before them.
    fn differences<T: Key>(before: &[T], x: &[T]) -> usize {
        // So many that a byte counts them.
        const PART: usize = 128;
        let mut count = 0;
        for (before, x) in before.chunks(PART).zip(x.chunks(PART)) {
            // In counts as wide as the elements, which nothing has to be packed for.
            macro_rules! few {
                ($count:ty) => {{
                    let mut few: $count = 0;
                    for (x, before) in x.iter().zip(before) {
                        few += <$count>::from(!x.is(*before));
                    }
                    few as usize
                }};
            }
            count += match size_of::<T>() {
                8 => few!(u64),
                4 => few!(u32),
                2 => few!(u16),
                _ => few!(u8),
            };
        }
        count
    }
}

fn neighbours<T: Key>(data: &[T], ask: Besides) -> Groups {
    if ask.inverse || ask.counts {
        let same = |a: i64, b: i64| data[a as usize] == data[b as usize];
        return grouped(data.len(), 0..data.len() as i64, same, ask);
    }
    let count = match data {
        [] => 0,
        [_, rest @ ..] => 1 + differences(data, rest),
    };
    Groups {
        first: First::Changes,
        count,
        inverse: Vec::new(),
        counts: Vec::new(),
    }
}

/// Writes the elements that differ from the one before them, as many as there are.
///
/// # Errors
/// If the dtype has no order.
pub fn write_changes(from: &Tensor, to: &Tensor) -> Result<()> {
    sortable!(from.dtype(), T => {
        let (from, to) = (slice::<T>(from), slice_mut::<T>(to));
        let (Some(first), Some(o)) = (from.first(), to.first_mut()) else {
            return Ok(());
        };
        *o = *first;
        let mut at = 1;
        for pair in from.windows(2) {
            // Written whether it differs or not: a branch would be guessed wrong too often.
            let Some(o) = to.get_mut(at) else { break };
            *o = pair[1];
            at += usize::from(!pair[1].is(pair[0]));
        }
    });
    Ok(())
}

/// A place for each integer of a range that is no longer than there are elements.
struct Table<T> {
    least: T,
    size: usize,
}

impl<T: Key> Table<T> {
    /// None: the elements are no integers, or too far apart.
    fn of(data: &[T]) -> Option<Self> {
        const ALWAYS: u64 = 256;
        let mut least = *data.first().filter(|_| T::ODD.is_none())?;
        let (mut lo, mut hi) = (least.key(), least.key());
        for x in data {
            let key = x.key();
            if key < lo {
                (lo, least) = (key, *x);
            }
            hi = hi.max(key);
        }
        let few = (hi - lo) < ALWAYS.max(data.len() as u64);
        few.then(|| Self {
            least,
            size: (hi - lo) as usize + 1,
        })
    }

    fn groups(&self, data: &[T], ask: Besides) -> Groups {
        let (lo, size) = (self.least.key(), self.size);
        let place = |x: &T| (x.key() - lo) as usize;
        let least = match self.least.to_scalar() {
            Scalar::UInt(v) => v as i64,
            v => v.to_i64(),
        };
        let totals = if ask.counts {
            tally(data, place, size)
        } else {
            let mut seen = vec![0; size];
            data.iter().for_each(|x| seen[place(x)] = 1);
            seen
        };
        let there = || (0..size).filter(|&k| totals[k] > 0);
        let integers: Vec<i64> = there().map(|k| least.wrapping_add(k as i64)).collect();
        let mut inverse = Vec::new();
        if ask.inverse {
            let mut ranks = vec![0; size];
            (0..).zip(there()).for_each(|(rank, k)| ranks[k] = rank);
            inverse = data.iter().map(|x| ranks[place(x)]).collect();
        }
        Groups {
            count: integers.len(),
            first: First::Integers(integers),
            inverse,
            counts: there().filter(|_| ask.counts).map(|k| totals[k]).collect(),
        }
    }
}

/// How often elements have each place below `size`. Few places are counted in several tables by turns, as a count that follows
/// itself has to wait.
#[must_use]
pub fn tally<T>(data: &[T], place: impl Fn(&T) -> usize, size: usize) -> Vec<i64> {
    const WAYS: usize = 4;
    const FEW: usize = 4096;
    let mut all = vec![0i64; size];
    let (turns, mut rest) = data.as_chunks::<WAYS>();
    if size <= FEW {
        let mut others = vec![0i64; (WAYS - 1) * size];
        let (one, two) = others.split_at_mut(size);
        let (two, three) = two.split_at_mut(size);
        for [a, b, c, d] in turns {
            all[place(a)] += 1;
            one[place(b)] += 1;
            two[place(c)] += 1;
            three[place(d)] += 1;
        }
        for (k, sum) in all.iter_mut().enumerate() {
            *sum += one[k] + two[k] + three[k];
        }
    } else {
        rest = data;
    }
    for x in rest {
        all[place(x)] += 1;
    }
    all
}

/// Groups equal rows of a dense `[rows, width]` matrix: all of them in ascending order, or only neighbours. Rows are compared
/// element by element, and what is not a number is neither less nor greater.
///
/// # Errors
/// If the dtype has no order.
pub fn of_rows(rows: &Tensor, consecutive: bool, ask: Besides) -> Result<Groups> {
    let (n, width) = (rows.shape()[0] as usize, rows.shape()[1] as usize);
    let (keys, odd) = sortable!(rows.dtype(), T => {
        let keys: Vec<u64> = slice::<T>(rows).iter().map(|x| x.key()).collect();
        (keys, T::ODD)
    });
    let row = |i: i64| &keys[i as usize * width..(i as usize + 1) * width];
    let same = |a: i64, b: i64| {
        let mut pairs = row(a).iter().zip(row(b));
        pairs.all(|(x, y)| x == y && Some(*x) != odd)
    };
    if consecutive {
        return Ok(grouped(n, 0..n as i64, same, ask));
    }
    let strange = keys.iter().any(|&k| Some(k) == odd);
    if width == 1 && !strange {
        return of_elements(rows, false, ask);
    }
    let mut sorted: Vec<i64> = (0..n as i64).collect();
    if strange {
        let less = |a: i64, b: i64| {
            let mut pairs = row(a).iter().zip(row(b));
            let told = pairs.find(|(x, y)| x != y && Some(**x) != odd && Some(**y) != odd);
            told.is_some_and(|(x, y)| x < y)
        };
        unordered::sort(&mut sorted, &less);
    } else {
        sorted.sort_by(|&a, &b| row(a).cmp(row(b)));
    }
    Ok(grouped(n, sorted.into_iter(), same, ask))
}

/// The groups of `n` positions in an order, where `same` says whether neighbours belong together.
fn grouped(
    n: usize,
    positions: impl Iterator<Item = i64>,
    same: impl Fn(i64, i64) -> bool,
    ask: Besides,
) -> Groups {
    let mut inverse = vec![0; if ask.inverse { n } else { 0 }];
    let (mut first, mut counts) = (Vec::new(), Vec::new());
    let mut last = 0;
    for i in positions {
        if first.is_empty() || !same(i, last) {
            first.push(i);
            counts.push(0);
        }
        if let Some(count) = counts.last_mut() {
            *count += 1;
        }
        last = i;
        if ask.inverse {
            inverse[i as usize] = first.len() as i64 - 1;
        }
    }
    Groups {
        count: first.len(),
        first: First::At(first),
        inverse,
        counts,
    }
}

/// Bytes that elements which others are looked for among are listed in, at most.
#[must_use]
pub fn listed(x: &Tensor, among: &Tensor) -> usize {
    let sorted = among.numel() as usize * among.dtype().size();
    match x.dtype() {
        DType::I64 if sorted > 0 => sorted.max(EACH as usize * x.numel() as usize),
        _ => sorted,
    }
}

/// Bytes of a table of truth values for each element that is looked for.
const EACH: u64 = 8;

/// Whether each element of a dense tensor is among others, or is not; integers of 64 bits, or floats of 32 and more.
pub fn membership(to: &Tensor, x: &Tensor, among: &Tensor, invert: bool) {
    let _listed = room::lists(1, listed(x, among));
    match x.dtype() {
        DType::I64 => integers_among(to, x, among, invert),
        DType::F64 => sorted_among::<f64>(to, x, among, invert),
        _ => sorted_among::<f32>(to, x, among, invert),
    }
}

/// By a table of the range of the others, unless it is long.
fn integers_among(to: &Tensor, x: &Tensor, among: &Tensor, invert: bool) {
    let others = slice::<i64>(among);
    let (Some(&lo), Some(&hi)) = (others.iter().min(), others.iter().max()) else {
        return each::<i64>(to, x, |_| invert);
    };
    let place = |v: i64| v.wrapping_sub(lo) as u64;
    if place(hi) >= EACH * x.numel() as u64 {
        return sorted_among::<i64>(to, x, among, invert);
    }
    let mut there = vec![invert; place(hi) as usize + 1];
    for &v in others {
        there[place(v) as usize] = !invert;
    }
    each::<i64>(to, x, |v| {
        there.get(place(v) as usize).copied().unwrap_or(invert)
    });
}

fn sorted_among<T: Ranked>(to: &Tensor, x: &Tensor, among: &Tensor, invert: bool) {
    let mut sorted = slice::<T>(among).to_vec();
    sorted.sort_unstable_by(rank);
    each::<T>(to, x, |v| {
        let at = sorted.partition_point(|other| *other < v);
        sorted.get(at).is_some_and(|other| *other == v) != invert
    });
}

fn each<T: Ranked>(to: &Tensor, x: &Tensor, f: impl Fn(T) -> bool + Sync) {
    const PART: usize = 1024;
    let (x, to) = (slice::<T>(x), Shared::new(slice_mut::<bool>(to)));
    pool::parallel_for(x.len().div_ceil(PART), GRAIN / PART, |parts| {
        let (start, end) = (parts.start * PART, x.len().min(parts.end * PART));
        // SAFETY: every task has its own elements.
        #[allow(unsafe_code, reason = "tasks write disjoint parts")]
        let to = unsafe { to.part(start, end - start) };
        to.iter_mut()
            .zip(&x[start..end])
            .for_each(|(to, &x)| *to = f(x));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;

    fn found<T: Element>(
        data: &[T],
        consecutive: bool,
        ask: Besides,
    ) -> (Vec<T>, Vec<i64>, Vec<i64>) {
        let t = Tensor::from_slice(data, &[data.len() as i64]).unwrap();
        let made = of_elements(&t, consecutive, ask).unwrap();
        let values = match made.first {
            First::At(at) => at.iter().map(|&i| data[i as usize]).collect(),
            First::Integers(list) => {
                let list = list.iter().map(|&v| T::from_scalar(Scalar::Int(v)));
                list.collect()
            }
            First::Changes => {
                let to = Tensor::from_slice(&vec![T::default(); made.count], &[made.count as i64]);
                let to = to.unwrap();
                write_changes(&t, &to).unwrap();
                slice::<T>(&to).to_vec()
            }
        };
        (values, made.inverse, made.counts)
    }

    /// Every way of grouping, with and without what is asked besides.
    fn check<T: Key + PartialOrd + std::fmt::Debug>(data: &[T]) {
        let all = Besides {
            inverse: true,
            counts: true,
        };
        for consecutive in [false, true] {
            let mut want: Vec<T> = data.to_vec();
            if !consecutive {
                want.sort_by_key(|x| x.key());
            }
            let sorted = want.clone();
            want.dedup();
            let (values, inverse, counts) = found(data, consecutive, all);
            assert_eq!(values, want);
            assert_eq!(found(data, consecutive, Besides::default()).0, want);
            assert_eq!(counts.iter().sum::<i64>(), data.len() as i64);
            assert!(
                inverse
                    .iter()
                    .zip(data)
                    .all(|(&i, x)| values[i as usize] == *x)
            );
            let mut at = 0;
            for (v, &n) in values.iter().zip(&counts) {
                assert!(sorted[at..at + n as usize].iter().all(|x| x == v));
                at += n as usize;
            }
        }
    }

    #[test]
    fn groups_are_those_of_sorted_elements() {
        for n in [0usize, 1, 2, 255, 256, 257, 5000] {
            let mixed: Vec<u64> = (0..n as u64)
                .map(|i| i.wrapping_mul(2_654_435_761))
                .collect();
            check(&mixed.iter().map(|x| (x % 7) as u8).collect::<Vec<_>>());
            check(&mixed.iter().map(|x| x % 5 == 0).collect::<Vec<_>>());
            check(
                &mixed
                    .iter()
                    .map(|x| (x % 300) as i16 - 150)
                    .collect::<Vec<_>>(),
            );
            // A range as long as there are elements, and one that is longer by one.
            let longest = n.max(256) as i64;
            for more in [0, 1] {
                let mut ints: Vec<i64> = mixed.iter().map(|x| (x % 97) as i64 - 40).collect();
                if let [first, .., last] = &mut ints[..] {
                    (*first, *last) = (-50, longest - 51 + more);
                }
                check(&ints);
            }
            check(&mixed.iter().map(|x| u64::MAX - x % 9).collect::<Vec<_>>());
            check(&[i64::MIN, i64::MAX, 0, i64::MIN]);
            check(
                &mixed
                    .iter()
                    .map(|x| half::bf16::from_f32((x % 11) as f32 - 5.0))
                    .collect::<Vec<_>>(),
            );
            check(
                &mixed
                    .iter()
                    .map(|x| (x % 11) as f32 - 5.0)
                    .collect::<Vec<_>>(),
            );
        }
    }

    #[test]
    fn no_number_is_equal_to_itself() {
        let data = [f32::NAN, f32::NAN, 1.0, 1.0].map(half::f16::from_f32);
        let (values, ..) = found(&data, true, Besides::default());
        assert_eq!(values.len(), 3);
    }

    #[test]
    fn what_stands_for_equals_is_the_first_of_them() {
        let (values, ..) = found(
            &[1.0f64, -0.0, 0.0, 0.0, -0.0, 2.0],
            true,
            Besides::default(),
        );
        assert_eq!(
            values.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [1.0, -0.0, 2.0].map(f64::to_bits)
        );
        let (values, ..) = found(&[f32::NAN, f32::NAN, 1.0], true, Besides::default());
        assert_eq!(values.len(), 3);
    }
}
