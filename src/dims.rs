//! Sizes and strides: short integer lists kept inline, and the layout arithmetic on them.
//!
//! All products are checked: a shape whose byte count does not fit in `i64` is an error, never a wrap.

mod strides;

pub use strides::{
    broadcast, broadcast_strides, contiguous_strides, format_strides, infer_size, is_channels_last,
    is_contiguous, is_dense, is_row_major, iterated_strides, layout_order, preserved_strides,
    settle, strides_in_order, strides_like_channels_last, view_strides,
};

use crate::{Result, bail, err};
use std::fmt;
use std::ops::{Deref, DerefMut};

/// How many entries are kept inline: five, so that a [`Tensor`](crate::Tensor) is below 128 bytes, which compilers
/// still move without calling `memcpy`.
const INLINE: usize = 5;

/// The most dimensions of a tensor that reductions and other ops with lists of dimensions take, as in PyTorch.
pub const MAX_NDIM: usize = 64;

/// A list of signed 64-bit integers, inline up to five entries.
#[derive(Clone)]
pub struct Dims(Repr);

#[derive(Clone)]
enum Repr {
    Inline(u8, [i64; INLINE]),
    Heap(Box<[i64]>),
}

impl Dims {
    /// The empty list: the shape of a 0-dimensional tensor.
    pub const EMPTY: Self = Self(Repr::Inline(0, [0; INLINE]));

    /// Copies a slice.
    #[inline]
    #[must_use]
    pub fn new(values: &[i64]) -> Self {
        if values.len() <= INLINE {
            let mut buf = [0; INLINE];
            buf[..values.len()].copy_from_slice(values);
            Self(Repr::Inline(values.len() as u8, buf))
        } else {
            Self(Repr::Heap(values.into()))
        }
    }

    /// Those that are not kept inline: the first ones, one more, and the rest.
    #[cold]
    fn long(first: [i64; INLINE], next: i64, rest: &mut dyn Iterator<Item = i64>) -> Self {
        let all = first.into_iter().chain([next]).chain(rest);
        Self(Repr::Heap(all.collect()))
    }

    /// `n` copies of `value`.
    #[inline]
    #[must_use]
    pub fn filled(n: usize, value: i64) -> Self {
        if n <= INLINE {
            let mut buf = [0; INLINE];
            buf[..n].fill(value);
            Self(Repr::Inline(n as u8, buf))
        } else {
            Self(Repr::Heap(vec![value; n].into()))
        }
    }

    /// With `value` put in at `at`.
    #[must_use]
    pub fn inserted(&self, at: usize, value: i64) -> Self {
        if let Repr::Inline(n, buf) = &self.0
            && at <= usize::from(*n)
            && usize::from(*n) < INLINE
        {
            let mut longer = *buf;
            (at + 1..INLINE).for_each(|i| longer[i] = buf[i - 1]);
            longer[at] = value;
            return Self(Repr::Inline(n + 1, longer));
        }
        let (before, after) = self.split_at(at);
        let rest = after.iter().copied();
        before.iter().copied().chain([value]).chain(rest).collect()
    }

    /// Without entry `at`.
    #[must_use]
    pub fn removed(&self, at: usize) -> Self {
        if let Repr::Inline(n, buf) = &self.0
            && at < usize::from(*n)
        {
            let mut shorter = *buf;
            (at + 1..INLINE).for_each(|i| shorter[i - 1] = buf[i]);
            shorter[INLINE - 1] = 0;
            return Self(Repr::Inline(n - 1, shorter));
        }
        self.iter()
            .enumerate()
            .filter(|&(i, _)| i != at)
            .map(|(_, &v)| v)
            .collect()
    }

    /// With entry `at` replaced.
    #[must_use]
    pub fn with(&self, at: usize, value: i64) -> Self {
        let mut d = self.clone();
        d[at] = value;
        d
    }

    /// The entries in the order of `perm`.
    #[must_use]
    pub fn permuted(&self, perm: &[usize]) -> Self {
        perm.iter().map(|&i| self[i]).collect()
    }

    /// This list followed by another.
    #[must_use]
    pub fn concat(&self, other: &[i64]) -> Self {
        self.iter().chain(other).copied().collect()
    }
}

impl Deref for Dims {
    type Target = [i64];
    #[inline]
    fn deref(&self) -> &[i64] {
        match &self.0 {
            Repr::Inline(n, buf) => &buf[..*n as usize],
            Repr::Heap(b) => b,
        }
    }
}

impl DerefMut for Dims {
    #[inline]
    fn deref_mut(&mut self) -> &mut [i64] {
        match &mut self.0 {
            Repr::Inline(n, buf) => &mut buf[..*n as usize],
            Repr::Heap(b) => b,
        }
    }
}

impl Default for Dims {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Dims {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // What is not used holds zeros, so that a comparison of known length will do; this one needs no call.
            (Repr::Inline(n, a), Repr::Inline(m, b)) => {
                n == m && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
            }
            _ => **self == **other,
        }
    }
}

impl Eq for Dims {}

impl FromIterator<i64> for Dims {
    fn from_iter<I: IntoIterator<Item = i64>>(iter: I) -> Self {
        let mut buf = [0; INLINE];
        let mut iter = iter.into_iter();
        let mut n = 0;
        while let Some(v) = iter.next() {
            if n == INLINE {
                return Self::long(buf, v, &mut iter);
            }
            buf[n] = v;
            n += 1;
        }
        Self(Repr::Inline(n as u8, buf))
    }
}

impl From<&[i64]> for Dims {
    fn from(v: &[i64]) -> Self {
        Self::new(v)
    }
}

impl<const N: usize> From<[i64; N]> for Dims {
    fn from(v: [i64; N]) -> Self {
        Self::new(&v)
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Dims {
    /// `[2, 3]`, as PyTorch's messages show shapes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// How a new tensor's elements are ordered in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryFormat {
    /// Row-major.
    Contiguous,
    /// As the input lies, if it is dense.
    Preserve,
    /// N, H, W, C order of a 4-dimensional tensor.
    ChannelsLast,
    /// N, D, H, W, C order of a 5-dimensional tensor.
    ChannelsLast3d,
}

impl MemoryFormat {
    /// The name after `torch.`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous_format",
            Self::Preserve => "preserve_format",
            Self::ChannelsLast => "channels_last",
            Self::ChannelsLast3d => "channels_last_3d",
        }
    }
}

/// The number of elements of a shape.
///
/// # Errors
/// If the product does not fit in `i64`.
#[inline]
pub fn numel(shape: &[i64]) -> Result<i64> {
    let mut n: i64 = 1;
    for &d in shape {
        n = match n.checked_mul(d) {
            Some(n) => n,
            None => return none(shape),
        };
    }
    Ok(n)
}

/// No elements, where a zero follows on what does not fit: as PyTorch counts, without a sign and in order.
#[cold]
#[inline(never)]
fn none(shape: &[i64]) -> Result<i64> {
    let product = shape
        .iter()
        .try_fold(1u64, |n, &d| n.checked_mul(d.try_into().ok()?));
    match product {
        Some(0) => Ok(0),
        _ => Err(overflow(shape)),
    }
}

#[cold]
#[inline(never)]
fn overflow(shape: &[i64]) -> crate::Error {
    err!(
        Runtime,
        "Storage size calculation overflowed with sizes={}",
        Dims::new(shape)
    )
}

/// Bytes that a storage needs to hold this layout.
///
/// # Errors
/// If the count does not fit in `i64`, or the number of elements does not.
#[inline]
pub fn storage_bytes(
    shape: &[i64],
    strides: &[i64],
    offset: i64,
    itemsize: usize,
) -> Result<usize> {
    let mut last = Some(offset);
    let mut count = Some(1i64);
    for (&d, &s) in shape.iter().zip(strides) {
        count = count.and_then(|n| n.checked_mul(d));
        last = last.and_then(|n| n.checked_add((d - 1).checked_mul(s)?));
    }
    // Elements that share memory are counted too: whoever walks over them counts them.
    if count.unwrap_or(0) == 0 {
        return uncounted(shape, strides, last.is_none());
    }
    last.and_then(|n| n.checked_add(1)?.checked_mul(itemsize as i64))
        .map(|n| n as usize)
        .ok_or_else(|| too_far(shape, strides))
}

/// The bytes of a layout whose elements are none, or more than a number holds.
#[cold]
#[inline(never)]
fn uncounted(shape: &[i64], strides: &[i64], far: bool) -> Result<usize> {
    match numel(shape) {
        Ok(_) => Ok(0),
        Err(e) if far || contiguous_strides(shape)[..] == *strides => Err(e),
        Err(_) => bail!(Runtime, "numel: integer multiplication overflow"),
    }
}

#[cold]
#[inline(never)]
fn too_far(shape: &[i64], strides: &[i64]) -> crate::Error {
    match numel(shape) {
        Ok(_) if contiguous_strides(shape)[..] != *strides => err!(
            Runtime,
            "Storage size calculation overflowed with sizes={} and strides={}",
            Dims::new(shape),
            Dims::new(strides)
        ),
        _ => overflow(shape),
    }
}

/// Refuses shapes without elements whose strides no number holds.
///
/// # Errors
/// PyTorch's text.
#[inline]
pub fn check_strides(shape: &[i64]) -> Result<()> {
    if shape.contains(&0) {
        let step = shape
            .iter()
            .skip(1)
            .try_fold(1i64, |n, &d| n.checked_mul(d.max(1)));
        crate::ensure!(step.is_some(), Runtime, "Stride calculation overflowed");
    }
    Ok(())
}

/// The shape after reducing `dims`.
#[must_use]
pub fn reduced_shape(shape: &[i64], dims: &[usize], keepdim: bool) -> Dims {
    (0..shape.len())
        .filter_map(|d| match (dims.contains(&d), keepdim) {
            (false, _) => Some(shape[d]),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect()
}

/// Wraps a possibly negative dimension number into `0..ndim`; 0-dimensional tensors take 0 and -1.
///
/// # Errors
/// PyTorch's "Dimension out of range" (an `IndexError`).
#[inline]
pub fn wrap_dim(dim: i64, ndim: usize) -> Result<usize> {
    let n = ndim.max(1) as i64;
    if dim >= -n && dim < n {
        Ok((if dim < 0 { dim + n } else { dim }) as usize)
    } else {
        bail!(
            Index,
            "Dimension out of range (expected to be in range of [{}, {}], but got {dim})",
            -n,
            n - 1
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_spill() {
        let d: Dims = (0..20).collect();
        assert_eq!(d.len(), 20);
        assert_eq!(d.removed(0)[0], 1);
    }

    #[test]
    fn overflow_is_an_error() {
        assert!(numel(&[1 << 62, 4]).is_err());
        assert!(numel(&[1 << 62, 4, 0]).is_err());
        assert_eq!(numel(&[1 << 62, 0, 4]).unwrap(), 0);
        assert!(storage_bytes(&[1 << 62], &[1], 0, 4).is_err());
    }
}
