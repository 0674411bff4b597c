//! Strides: which a layout has, which it keeps under another shape, and how shapes meet.

use super::{Dims, MemoryFormat, overflow};
use crate::{Result, bail};

/// Row-major strides.
#[inline]
#[must_use]
pub fn contiguous_strides(shape: &[i64]) -> Dims {
    let mut strides = Dims::filled(shape.len(), 1);
    let mut step = 1i64;
    for (stride, &size) in strides.iter_mut().zip(shape).rev() {
        *stride = step;
        step = step.saturating_mul(size.max(1));
    }
    strides
}

/// Strides that are dense when dimensions are laid out from `order[0]` (outermost) to the last (innermost).
#[must_use]
pub fn strides_in_order(shape: &[i64], order: &[usize]) -> Dims {
    steps_in_order(shape, order, 1)
}

/// The same where a dimension without elements counts as one of `least`.
fn steps_in_order(shape: &[i64], order: &[usize], least: i64) -> Dims {
    let mut strides = Dims::filled(shape.len(), 1);
    let mut step = 1i64;
    for &d in order.iter().rev() {
        strides[d] = step;
        step = step.saturating_mul(shape[d].max(least));
    }
    strides
}

/// Strides of a new tensor in a fixed memory format.
///
/// # Errors
/// If a channels-last format meets another number of dimensions than 4 (5 for 3d).
pub fn format_strides(shape: &[i64], format: MemoryFormat) -> Result<Dims> {
    match format {
        MemoryFormat::ChannelsLast => {
            if shape.len() != 4 {
                bail!(
                    Runtime,
                    "required rank 4 tensor to use channels_last format"
                );
            }
            Ok(steps_in_order(shape, &[0, 2, 3, 1], 0))
        }
        MemoryFormat::ChannelsLast3d => {
            if shape.len() != 5 {
                bail!(
                    Runtime,
                    "required rank 5 tensor to use channels_last_3d format"
                );
            }
            Ok(steps_in_order(shape, &[0, 2, 3, 4, 1], 0))
        }
        _ => Ok(contiguous_strides(shape)),
    }
}

/// True if the strides are the row-major ones, also those of dimensions of size 1.
#[inline]
#[must_use]
pub fn is_row_major(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1i64;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if stride != step {
            return false;
        }
        step = step.saturating_mul(size.max(1));
    }
    true
}

/// True if the layout is row-major without gaps (dimensions of size 1 do not matter).
#[inline]
#[must_use]
pub fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1i64;
    for (&size, &stride) in shape.iter().zip(strides).rev() {
        if size != 1 {
            if stride != step {
                return shape.contains(&0);
            }
            step = step.wrapping_mul(size);
        }
    }
    true
}

/// True if the layout is dense in the given channels-last order.
#[must_use]
pub fn is_channels_last(shape: &[i64], strides: &[i64], format: MemoryFormat) -> bool {
    let order: &[usize] = match (format, shape.len()) {
        (MemoryFormat::ChannelsLast, 4) => &[1, 3, 2, 0],
        (MemoryFormat::ChannelsLast3d, 5) => &[1, 4, 3, 2, 0],
        _ => return false,
    };
    let mut step = 1;
    for &d in order {
        if shape[d] != 1 {
            if strides[d] != step {
                return false;
            }
            step *= shape[d];
        }
    }
    true
}

/// True if strides order the dimensions as channels-last does, even where the layout is not dense:
/// PyTorch's test for the memory format that convolution results take.
#[must_use]
pub fn strides_like_channels_last(shape: &[i64], strides: &[i64]) -> bool {
    let order: &[usize] = match shape.len() {
        4 => &[1, 3, 2, 0],
        5 => &[1, 4, 3, 2, 0],
        _ => return false,
    };
    if strides[1] == 0 {
        return false;
    }
    let mut min = 0;
    for &d in order {
        if shape[d] == 0 || strides[d] < min {
            return false;
        }
        if d == 0 && min == strides[1] {
            return false;
        }
        min = strides[d];
        if shape[d] > 1 {
            min *= shape[d];
        }
    }
    true
}

/// Sorts a short list by a key; equal ones stay in their order. Dimensions are few, and a sort for long lists is much code.
pub fn settle<T, K: PartialOrd>(list: &mut [T], key: impl Fn(&T) -> K) {
    for end in 1..list.len() {
        let mut at = end;
        while at > 0 && key(&list[at - 1]) > key(&list[at]) {
            list.swap(at - 1, at);
            at -= 1;
        }
    }
}

/// True if the elements fill a block of memory exactly once, in whatever order.
#[must_use]
pub fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    if shape.len() == 1 {
        return shape[0] < 2 || strides[0] == 1;
    }
    let mut order: smallvec::SmallVec<[usize; 8]> = (0..shape.len()).collect();
    settle(&mut order, |&d| {
        if shape[d] < 2 {
            (1, 0)
        } else {
            (0, strides[d])
        }
    });
    let mut step = 1i64;
    for &d in &order {
        if shape[d] < 2 {
            return true;
        }
        if strides[d] != step {
            return false;
        }
        step = step.wrapping_mul(shape[d]);
    }
    true
}

/// The order of dimensions, outermost first, in which a new tensor like these operands is laid out:
/// a stable sort by stride in which broadcast (stride 0) dimensions leave the order open. This is the
/// rule that PyTorch's TensorIterator applies to pointwise results.
#[must_use]
pub fn layout_order(shape: &[i64], operands: &[&[i64]]) -> smallvec::SmallVec<[usize; 8]> {
    let n = shape.len();
    // Innermost first, as the comparison below is stated.
    let mut perm: smallvec::SmallVec<[usize; 8]> = (0..n).rev().collect();
    let compare = |d0: usize, d1: usize| -> i32 {
        for strides in operands {
            let (s0, s1) = (strides[d0], strides[d1]);
            if s0 == 0 || s1 == 0 {
                continue;
            }
            if s0 < s1 {
                return -1;
            }
            if s0 > s1 {
                return 1;
            }
            if shape[d0] > shape[d1] {
                return 1;
            }
        }
        0
    };
    for i in 1..n {
        let mut dim1 = i;
        for dim0 in (0..i).rev() {
            let c = compare(perm[dim0], perm[dim1]);
            if c > 0 {
                perm.swap(dim0, dim1);
                dim1 = dim0;
            } else if c < 0 {
                break;
            }
        }
    }
    perm.reverse();
    perm
}

/// Strides of a fresh result of PyTorch's `TensorIterator` over operands: dense in their order, with steps of zero beyond
/// dimensions without elements, unless that order is the dimensions' own.
#[must_use]
pub fn iterated_strides(shape: &[i64], operands: &[&[i64]]) -> Dims {
    let order = layout_order(shape, operands);
    if order.is_sorted() {
        return contiguous_strides(shape);
    }
    steps_in_order(shape, &order, 0)
}

/// Strides of `empty_like(x)`: those of `x` if it is dense, else dense ones in the same order.
#[must_use]
pub fn preserved_strides(shape: &[i64], strides: &[i64]) -> Dims {
    if is_contiguous(shape, strides) || is_dense(shape, strides) {
        Dims::new(strides)
    } else {
        strides_in_order(shape, &layout_order(shape, &[strides]))
    }
}

/// The shape two operands broadcast to.
///
/// # Errors
/// PyTorch's "The size of tensor a (3) must match ..." if they do not fit.
#[inline]
pub fn broadcast(a: &[i64], b: &[i64]) -> Result<Dims> {
    if a == b {
        return Ok(Dims::new(a));
    }
    let n = a.len().max(b.len());
    let mut out = Dims::filled(n, 1);
    // From the last dimension on, so that an error names the last that does not fit.
    for i in (0..n).rev() {
        let da = if i + a.len() >= n {
            a[i + a.len() - n]
        } else {
            1
        };
        let db = if i + b.len() >= n {
            b[i + b.len() - n]
        } else {
            1
        };
        out[i] = if da == db || db == 1 {
            da
        } else if da == 1 {
            db
        } else {
            bail!(
                Runtime,
                "The size of tensor a ({da}) must match the size of tensor b ({db}) at non-singleton dimension {i}"
            )
        };
    }
    Ok(out)
}

/// Strides that let a tensor be read with a larger, broadcast shape (0 along repeated dimensions).
///
/// # Panics
/// If the shape does not broadcast to `to`: the strides would lead outside of the tensor.
#[inline]
#[must_use]
pub fn broadcast_strides(shape: &[i64], strides: &[i64], to: &[i64]) -> Dims {
    assert!(to.len() >= shape.len(), "broadcast to fewer dimensions");
    let lead = to.len() - shape.len();
    let mut out = Dims::filled(to.len(), 0);
    for i in 0..shape.len() {
        let (from, to) = (shape[i], to[lead + i]);
        assert!(from == to || from == 1, "{from} does not broadcast to {to}");
        out[lead + i] = if from == to { strides[i] } else { 0 };
    }
    out
}

/// Replaces a single -1 in `shape` by what makes it hold `numel` elements.
///
/// # Errors
/// PyTorch's texts for several -1, negative sizes, a count that does not fit, or an ambiguous -1.
pub fn infer_size(shape: &[i64], numel: i64) -> Result<Dims> {
    let mut product: i64 = 1;
    let mut hole = None;
    for (i, &d) in shape.iter().enumerate() {
        if d == -1 {
            if hole.is_some() {
                bail!(Runtime, "only one dimension can be inferred");
            }
            hole = Some(i);
        } else if d < 0 {
            bail!(
                Runtime,
                "invalid shape dimension {d} at index {i} of shape {}",
                Dims::new(shape)
            );
        } else {
            product = product.checked_mul(d).ok_or_else(|| overflow(shape))?;
        }
    }
    let mut out = Dims::new(shape);
    match hole {
        None if product == numel => Ok(out),
        Some(i) if product > 0 && numel % product == 0 => {
            out[i] = numel / product;
            Ok(out)
        }
        Some(_) if product == 0 && numel == 0 => bail!(
            Runtime,
            "cannot reshape tensor of 0 elements into shape {} because the unspecified dimension size -1 can be any value and is ambiguous",
            Dims::new(shape)
        ),
        _ => bail!(
            Runtime,
            "shape '{}' is invalid for input of size {numel}",
            Dims::new(shape)
        ),
    }
}

/// Strides that show the same memory with another shape, or `None` if no strides do.
#[must_use]
pub fn view_strides(shape: &[i64], strides: &[i64], to: &[i64]) -> Option<Dims> {
    let total: i64 = shape.iter().product();
    if total == 0 {
        return Some(if shape == to {
            Dims::new(strides)
        } else {
            contiguous_strides(to)
        });
    }
    if shape.is_empty() {
        return Some(Dims::filled(to.len(), 1));
    }
    let mut out = Dims::filled(to.len(), 0);
    let mut view_d = to.len() as isize - 1;
    let mut chunk_base = *strides.last()?;
    let mut tensor_numel: i64 = 1;
    let mut view_numel: i64 = 1;
    for d in (0..shape.len()).rev() {
        tensor_numel *= shape[d];
        // A chunk ends where memory stops being one run of equal steps.
        if d == 0 || (shape[d - 1] != 1 && strides[d - 1] != tensor_numel * chunk_base) {
            while view_d >= 0 && (view_numel < tensor_numel || to[view_d as usize] == 1) {
                out[view_d as usize] = view_numel * chunk_base;
                view_numel *= to[view_d as usize];
                view_d -= 1;
            }
            if view_numel != tensor_numel {
                return None;
            }
            if d > 0 {
                chunk_base = strides[d - 1];
                tensor_numel = 1;
                view_numel = 1;
            }
        }
    }
    (view_d == -1).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_of_transposed_matrix_needs_a_copy() {
        assert!(view_strides(&[3, 2], &[1, 3], &[6]).is_none());
        assert_eq!(*view_strides(&[2, 3], &[3, 1], &[3, 2]).unwrap(), [2, 1]);
        assert_eq!(
            *view_strides(&[4, 3], &[1, 4], &[2, 2, 3]).unwrap(),
            [2, 1, 4]
        );
    }

    #[test]
    fn channels_last_operands_give_channels_last_results() {
        let order = layout_order(&[2, 3, 4, 5], &[&[60, 1, 15, 3]]);
        assert_eq!(*order, [0, 2, 3, 1]);
    }
}
