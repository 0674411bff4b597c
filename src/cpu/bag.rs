//! Sums, means and maxima of rows that index lists choose.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::folds::Widen;
use super::halves::Half;
use super::lanes::Real;
use super::lines::Shared;
use super::math::RealFns as _;
use super::norm::{finish, wide, working};
use super::room::Room;
use super::simd::simd_fn;
use super::{copy, pool, slice, slice_mut};
use crate::{DType, Element, Result, Tensor, bail, ensure};
use half::{bf16, f16};

/// How the rows of a bag are joined.
pub struct Bag<'a> {
    /// The rows.
    pub weight: &'a Tensor,
    /// Row numbers, all bags after each other.
    pub indices: &'a Tensor,
    /// Where each bag starts.
    pub offsets: &'a Tensor,
    /// 0: sum, 1: mean, 2: maximum.
    pub mode: i64,
    /// A factor for each index.
    pub factors: Option<&'a Tensor>,
    /// A row that does not count.
    pub padding: Option<i64>,
}

impl Bag<'_> {
    /// Whether PyTorch asks a library that knows where every bag ends, by the offsets alone.
    fn is_by_offsets(&self) -> bool {
        !self.is_max() && self.padding.is_none() && self.weight.dtype() != DType::F64
    }

    fn is_max(&self) -> bool {
        self.mode == 2
    }
}

/// Elements of rows, and what they are summed in.
trait Row: Element + Widen<Wide: Real> {
    fn narrow(sum: Self::Wide) -> Self;
}
macro_rules! row {
    ($($t:ty, |$v:ident| $narrow:expr;)+) => { $(
        impl Row for $t {
            #[inline(always)]
            fn narrow($v: Self::Wide) -> Self { $narrow }
        }
    )+ };
}
row! {
    f32, |v| v;
    f64, |v| v;
    f16, |v| <f16 as Half>::narrow(v);
    bf16, |v| <bf16 as Half>::narrow(v);
}

/// The same with its numbers at hand.
struct Rows<'a, T: Row> {
    bag: &'a Bag<'a>,
    weight: &'a [T],
    width: usize,
    indices: &'a [i64],
    offsets: &'a [i64],
    factors: Option<&'a [T::Wide]>,
}

simd_fn! { wide
    /// Adds chosen rows, each times its factor if there are some, into `to`; `skip` does not count. Gives how many do.
    fn sum_rows<T: Row>(weight: &[T], width: usize, chosen: &[i64], factors: Option<&[T::Wide]>, skip: Option<i64>, to: &mut [T::Wide]) -> i64 {
        let counted = || chosen.iter().enumerate().filter(|(_, i)| Some(**i) != skip);
        let by = |k: usize| factors.map_or(T::Wide::of(1.0), |f| f[k]);
        let mut whole = 0;
        // Columns whose sums stay in registers: all of a usual row.
        macro_rules! columns {
            ($n:literal) => {
                while whole + $n <= width {
                    let mut sums = [T::Wide::of(0.0); $n];
                    for (k, &i) in counted() {
                        let row = &weight[i as usize * width + whole..][..$n];
                        let by = by(k);
                        for j in 0..$n {
                            sums[j] += row[j].widen() * by;
                        }
                    }
                    to[whole..whole + $n].copy_from_slice(&sums);
                    whole += $n;
                }
            };
        }
        columns!(128);
        columns!(64);
        let rest = &mut to[whole..width];
        rest.fill(T::Wide::of(0.0));
        for (k, &i) in counted() {
            let row = &weight[i as usize * width + whole..][..rest.len()];
            let by = by(k);
            for j in 0..rest.len() {
                rest[j] += row[j].widen() * by;
            }
        }
        counted().count() as i64
    }
}

simd_fn! { wide
    /// Takes what is larger in a row, or all of it if it is the first, and notes the row's number.
    fn take_larger<T: Row>(row: &[T], i: i64, first: bool, most: &mut [T::Wide], rows: &mut [i64]) {
        let n = row.len().min(most.len()).min(rows.len());
        for j in 0..n {
            let v = row[j].widen();
            let take = first | (v > most[j]);
            most[j] = if take { v } else { most[j] };
            rows[j] = if take { i } else { rows[j] };
        }
    }
}

/// Joins the rows of each bag: result, bag of each index, sizes of the bags, chosen rows of maxima.
///
/// # Errors
/// If a row number or offset is out of range.
pub fn bags(outs: &[Tensor], b: &Bag) -> Result<()> {
    let weight = copy::dense(b.weight, b.weight.dtype())?;
    let indices = copy::dense(b.indices, DType::I64)?;
    let offsets = copy::dense(b.offsets, DType::I64)?;
    let (indices, offsets) = (slice::<i64>(&indices), slice::<i64>(&offsets));
    check(b, indices, offsets)?;
    // Elsewhere the last bag goes on to the end, whatever the last offset says.
    let bags = outs[0].shape()[0] as usize;
    let known = if b.is_by_offsets() {
        offsets.len()
    } else {
        bags
    };
    let offsets = &offsets[..known.min(offsets.len())];
    let width = weight.shape()[1] as usize;
    macro_rules! join {
        ($t:ty) => {{
            let factors = wide(b.factors, <$t as Widen>::Wide::DTYPE)?;
            let factors = factors.as_ref().map(slice);
            let weight = slice::<$t>(&weight);
            Rows {
                bag: b,
                weight,
                width,
                indices,
                offsets,
                factors,
            }
            .all(outs)
        }};
    }
    match weight.dtype() {
        DType::F64 => join!(f64),
        DType::F16 => join!(f16),
        DType::BF16 => join!(bf16),
        _ => join!(f32),
    }
}

/// What [`bags`] takes.
///
/// # Errors
/// If a size overflows.
pub fn room(room: &mut Room, outs: &[Tensor], b: &Bag) -> Result<()> {
    let d = b.weight.dtype();
    room.dense(b.weight, d)?;
    room.all_dense([Some(b.indices), Some(b.offsets)], DType::I64)?;
    room.all_dense([b.factors], super::norm::compute_type(d))?;
    room.dense(&outs[0], d)?;
    room.all_dense([Some(&outs[2]), Some(&outs[3])], DType::I64)?;
    room.dense(&outs[1], DType::I64).map(drop)
}

fn check(b: &Bag, indices: &[i64], offsets: &[i64]) -> Result<()> {
    if let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) {
        ensure!(
            first == 0,
            Runtime,
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}\n\
             [ torch.{}Tensor{{}} ]",
            b.offsets.dtype().scalar_type()
        );
        ensure!(
            last <= indices.len() as i64,
            Runtime,
            "offsets[-1] can not be greater than input's length {} but got offsets[-1] of {last}",
            indices.len()
        );
    }
    let rows = b.weight.shape()[0];
    let Some(at) = indices.iter().position(|i| !(0..rows).contains(i)) else {
        return Ok(());
    };
    let wrong = indices[at];
    if b.is_by_offsets() {
        bail!(
            Runtime,
            "Index {at} of input takes value {wrong} which is not in the valid range [0, {rows})"
        );
    }
    bail!(
        Runtime,
        "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {wrong}"
    );
}

impl<T: Row> Rows<'_, T> {
    fn all(&self, outs: &[Tensor]) -> Result<()> {
        let n = outs[0].shape()[0] as usize;
        let result = working(&outs[0], outs[0].dtype())?;
        let to = Shared::new(slice_mut::<T>(&result));
        let sizes = working(&outs[2], DType::I64)?;
        let counts = Shared::new(slice_mut::<i64>(&sizes));
        let chosen = working(&outs[3], DType::I64)?;
        slice_mut::<i64>(&chosen).fill(-1);
        let rows = Shared::new(slice_mut::<i64>(&chosen));
        let each = self.indices.len() / n.max(1) * self.width;
        pool::parallel_for(n, (16384 / each.max(1)).max(1), |bags| {
            let mut sums = vec![T::Wide::of(0.0); self.width];
            for bag in bags {
                // SAFETY: every bag has its own row and its own count.
                let (out, size) =
                    unsafe { (to.part(bag * self.width, self.width), counts.part(bag, 1)) };
                let range = self.range(bag);
                size[0] = if self.bag.is_max() {
                    // SAFETY: as above.
                    let rows = unsafe { rows.part(bag * self.width, self.width) };
                    self.largest(range, &mut sums, rows)
                } else {
                    self.sum(range, &mut sums)
                };
                for (out, &sum) in out.iter_mut().zip(&sums) {
                    *out = T::narrow(sum);
                }
            }
        });
        finish(&outs[0], &result)?;
        if outs[1].numel() > 0 {
            super::lines::written::<i64>(&outs[1], |bag_of| {
                bag_of.fill(0);
                for bag in 0..n {
                    bag_of[self.range(bag)].fill(bag as i64);
                }
                Ok(())
            })?;
        }
        if !self.bag.is_max() {
            copy::copy(&chosen, &sizes)?;
        }
        finish(&outs[2], &sizes)?;
        finish(&outs[3], &chosen)
    }

    /// The indices of a bag.
    fn range(&self, bag: usize) -> std::ops::Range<usize> {
        let len = self.indices.len();
        let place = |k: usize| {
            self.offsets
                .get(k)
                .map_or(len, |&o| (o.max(0) as usize).min(len))
        };
        place(bag)..place(bag + 1).max(place(bag))
    }

    /// The sum or the mean of the rows of a bag; gives how many count.
    fn sum(&self, range: std::ops::Range<usize>, sums: &mut [T::Wide]) -> i64 {
        let factors = self.factors.map(|f| &f[range.clone()]);
        let chosen = &self.indices[range];
        let size = sum_rows(
            self.weight,
            self.width,
            chosen,
            factors,
            self.bag.padding,
            sums,
        );
        if self.bag.mode == 1 && size > 1 {
            let n = T::Wide::of(size as f64);
            sums.iter_mut().for_each(|sum| *sum = *sum / n);
        }
        size
    }

    /// The largest elements of the rows of a bag, and the rows that they are of; gives how many count.
    fn largest(
        &self,
        range: std::ops::Range<usize>,
        most: &mut [T::Wide],
        rows: &mut [i64],
    ) -> i64 {
        let mut size = 0;
        most.fill(T::Wide::of(0.0));
        for k in range {
            let i = self.indices[k];
            if Some(i) == self.bag.padding {
                continue;
            }
            let row = &self.weight[i as usize * self.width..][..self.width];
            take_larger(row, i, size == 0, most, rows);
            size += 1;
        }
        size
    }
}
