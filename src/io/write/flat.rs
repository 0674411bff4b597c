//! Named tensors and nothing else, for the formats that hold just that; and the elements of a tensor in order.

use super::{PIECE, Sink, pieces};
use crate::io::extent;
use crate::io::tree::TensorRef;
use crate::{DType, Result, ensure, err};
use std::collections::HashSet;

/// A tensor to be written: row-major, without holes.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Sizes.
    pub shape: Vec<i64>,
    /// The earlier item that it is the same tensor as, if any.
    pub tied: Option<u32>,
}

impl Item {
    /// Bytes of all elements.
    ///
    /// # Errors
    /// If the shape is impossible.
    pub fn nbytes(&self) -> Result<u64> {
        let count = self.shape.iter().try_fold(1u64, |n, &s| {
            u64::try_from(s).ok().and_then(|s| n.checked_mul(s))
        });
        count
            .and_then(|n| n.checked_mul(self.dtype.size() as u64))
            .ok_or_else(|| {
                err!(
                    Value,
                    "tensor '{}' has the impossible shape {:?}",
                    self.name,
                    self.shape
                )
            })
    }
}

/// Named tensors, in order, with metadata.
#[derive(Clone, Debug, Default)]
pub struct Flat {
    /// The tensors.
    pub items: Vec<Item>,
    /// Words about them, for the formats that have a place for it.
    pub metadata: Vec<(String, String)>,
}

impl Flat {
    /// Proves that no name occurs twice, that ties point to earlier tensors alike, and that sizes are possible.
    ///
    /// # Errors
    /// Of kind `Value`, naming the tensor.
    pub fn check(&self) -> Result<()> {
        let mut names = HashSet::with_capacity(self.items.len());
        for (i, item) in self.items.iter().enumerate() {
            ensure!(
                names.insert(item.name.as_str()),
                Value,
                "two tensors are named '{}'",
                item.name
            );
            item.nbytes()?;
            let Some(tied) = item.tied else { continue };
            let alike = self.items.get(tied as usize).is_some_and(|t| {
                (tied as usize) < i
                    && t.tied.is_none()
                    && t.dtype == item.dtype
                    && t.shape == item.shape
            });
            ensure!(
                alike,
                Value,
                "tensor '{}' is tied to something else than itself",
                item.name
            );
        }
        Ok(())
    }

    /// The items of these numbers.
    pub(super) fn members<'a>(
        &'a self,
        members: &'a [u32],
    ) -> impl Iterator<Item = (u32, &'a Item)> + 'a {
        members
            .iter()
            .filter_map(|&i| Some((i, self.items.get(i as usize)?)))
    }

    /// The numbers of all items.
    pub(super) fn all(&self) -> Vec<u32> {
        (0..self.items.len() as u32).collect()
    }
}

/// Hands on the elements of a tensor in row-major order, conjugation and negation done; `bytes` are those of its
/// storage, little-endian. Never needs more memory of its own than a small buffer.
///
/// # Errors
/// If the tensor does not lie within the bytes.
pub fn elements(bytes: &[u8], tensor: &TensorRef, sink: &mut Sink<'_>) -> Result<()> {
    let (shape, stride, size) = (tensor.shape(), tensor.stride(), tensor.dtype.size());
    let end = extent(shape, stride, tensor.offset, tensor.dtype)?;
    ensure!(
        end <= bytes.len() as u64,
        Checkpoint,
        "a tensor that needs {end} bytes of a storage of {}",
        bytes.len()
    );
    if tensor.numel() == 0 {
        return Ok(());
    }
    // What `extent` has accepted fits into memory sizes.
    let start = tensor.offset as usize * size;
    let sign = Sign::of(tensor);
    let run = contiguous_run(shape, stride);
    if run.dims == 0 && sign.is_plain() {
        return pieces(
            bytes.get(start..start + run.len * size).unwrap_or(&[]),
            sink,
        );
    }
    let mut buffer = Vec::with_capacity(PIECE + 16);
    let mut flush = |buffer: &mut Vec<u8>| {
        sign.apply(buffer);
        let done = sink(buffer);
        buffer.clear();
        done
    };
    // The innermost dimension that is left is a loop; those outside it count like an odometer.
    let (outer, last) = match run.dims {
        0 => (0, (1, 0)),
        n => (
            n - 1,
            (shape[n - 1] as usize, stride[n - 1] as usize * size),
        ),
    };
    let mut counters = vec![0i64; outer];
    let mut at = start;
    loop {
        for i in 0..last.0 {
            let from = at + i * last.1;
            let mut left = bytes.get(from..from + run.len * size).unwrap_or(&[]);
            while !left.is_empty() {
                let room = (PIECE - buffer.len()).min(left.len());
                copy(&mut buffer, &left[..room]);
                left = &left[room..];
                if buffer.len() == PIECE {
                    flush(&mut buffer)?;
                }
            }
        }
        let mut dim = outer;
        loop {
            let Some(d) = dim.checked_sub(1) else {
                return if buffer.is_empty() {
                    Ok(())
                } else {
                    flush(&mut buffer)
                };
            };
            dim = d;
            counters[d] += 1;
            if counters[d] < shape[d] {
                at += stride[d] as usize * size;
                break;
            }
            at -= stride[d] as usize * size * (shape[d] - 1) as usize;
            counters[d] = 0;
        }
    }
}

/// Appends a few bytes; the common sizes of an element without a call.
#[inline]
fn copy(buffer: &mut Vec<u8>, bytes: &[u8]) {
    if let Ok(b) = <[u8; 4]>::try_from(bytes) {
        buffer.extend_from_slice(&b);
    } else if let Ok(b) = <[u8; 2]>::try_from(bytes) {
        buffer.extend_from_slice(&b);
    } else if let Ok(b) = <[u8; 8]>::try_from(bytes) {
        buffer.extend_from_slice(&b);
    } else {
        buffer.extend_from_slice(bytes);
    }
}

/// Dimensions outside the innermost stretch of elements that lie side by side, and that stretch's length.
struct Run {
    dims: usize,
    len: usize,
}

fn contiguous_run(shape: &[i64], stride: &[i64]) -> Run {
    let (mut dims, mut len) = (shape.len(), 1i64);
    while dims > 0 && (shape[dims - 1] == 1 || stride[dims - 1] == len) {
        len *= shape[dims - 1];
        dims -= 1;
    }
    Run {
        dims,
        len: len as usize,
    }
}

/// What is to be done to the signs of elements.
struct Sign {
    conj: bool,
    neg: bool,
    /// Bytes of one real number.
    part: usize,
    float: bool,
}

impl Sign {
    fn of(tensor: &TensorRef) -> Self {
        let dtype = tensor.dtype;
        Self {
            conj: tensor.conj && dtype.is_complex(),
            neg: tensor.neg,
            part: dtype.to_real().size(),
            float: dtype.is_float() || dtype.is_complex(),
        }
    }

    fn is_plain(&self) -> bool {
        !self.conj && !self.neg
    }

    fn apply(&self, bytes: &mut [u8]) {
        if self.is_plain() {
            return;
        }
        for (i, part) in bytes.chunks_exact_mut(self.part).enumerate() {
            let flip = self.neg ^ (self.conj && i % 2 == 1);
            if flip && self.float {
                part[self.part - 1] ^= 0x80;
            } else if flip {
                let mut carry = true;
                for b in part {
                    (*b, carry) = (!*b).overflowing_add(u8::from(carry));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(t: &TensorRef, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        elements(bytes, t, &mut |b| {
            out.extend_from_slice(b);
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn elements_come_in_order() {
        let bytes: Vec<u8> = (0..24).collect();
        let t = |shape: &[i64], stride: &[i64], offset| {
            TensorRef::new(0, DType::U8, shape, stride, offset)
        };
        assert_eq!(
            gather(&t(&[2, 3], &[3, 1], 1), &bytes).unwrap(),
            [1, 2, 3, 4, 5, 6]
        );
        assert_eq!(
            gather(&t(&[3, 2], &[1, 3], 0), &bytes).unwrap(),
            [0, 3, 1, 4, 2, 5]
        );
        assert_eq!(
            gather(&t(&[2, 2], &[0, 0], 7), &bytes).unwrap(),
            [7, 7, 7, 7]
        );
        assert_eq!(gather(&t(&[], &[], 23), &bytes).unwrap(), [23]);
        assert_eq!(
            gather(&t(&[2, 2, 2], &[12, 1, 4], 0), &bytes).unwrap(),
            [0, 4, 1, 5, 12, 16, 13, 17]
        );
        assert_eq!(gather(&t(&[5, 0], &[1, 1], 24), &bytes).unwrap(), [0u8; 0]);
        assert!(gather(&t(&[25], &[1], 0), &bytes).is_err());
    }

    #[test]
    fn large_and_scattered() {
        let n = 3 * PIECE + 5;
        let bytes: Vec<u8> = (0..2 * n).map(|i| (i % 251) as u8).collect();
        let t = TensorRef::new(0, DType::U8, &[n as i64], &[2], 0);
        let want: Vec<u8> = bytes.iter().copied().step_by(2).collect();
        assert_eq!(gather(&t, &bytes).unwrap(), want);
    }

    #[test]
    fn signs_are_resolved() {
        let numbers = [1.0f32, 2.0, -3.0, 4.0];
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut t = TensorRef::new(0, DType::C64, &[2], &[1], 0);
        t.conj = true;
        let want = [1.0f32, -2.0, -3.0, -4.0];
        let want: Vec<u8> = want.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(gather(&t, &bytes).unwrap(), want);
        let mut t = TensorRef::new(0, DType::I16, &[2], &[1], 0);
        t.neg = true;
        assert_eq!(gather(&t, &[1, 0, 0, 0]).unwrap(), [255, 255, 0, 0]);
    }
}
