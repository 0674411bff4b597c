//! Tensors as dense lines along the dimensions of interest, for kernels that need each line in one piece.

use crate::{DType, Dims, Element, Result, Tensor};
use smallvec::SmallVec;

/// The dimensions of `ndim` with `dims` last.
#[must_use]
pub fn order(ndim: usize, dims: &[usize]) -> SmallVec<[usize; 8]> {
    (0..ndim)
        .filter(|d| !dims.contains(d))
        .chain(dims.iter().copied().filter(|&d| d < ndim))
        .collect()
}

/// The order that undoes another.
#[must_use]
pub fn undone(order: &[usize]) -> SmallVec<[usize; 8]> {
    let mut back = SmallVec::from_elem(0, order.len());
    order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
    back
}

/// Whether `dims` are the last ones of `ndim` in their order.
fn are_last(ndim: usize, dims: &[usize]) -> bool {
    dims.len() <= ndim && (ndim - dims.len()..).zip(dims).all(|(at, &d)| at == d)
}

/// The tensor as a dense `[lines, length]` matrix of `dtype`, whose lines run over `dims`.
///
/// # Errors
/// If memory cannot be had.
pub fn read(t: &Tensor, dims: &[usize], dtype: DType) -> Result<Tensor> {
    if are_last(t.ndim(), dims) && t.dtype() == dtype && t.is_contiguous() && !t.is_lazy() {
        let (lead, last) = t.shape().split_at(t.ndim() - dims.len());
        let (lines, length) = (lead.iter().product(), last.iter().product::<i64>());
        let strides = Dims::from([length.max(1), 1]);
        return Ok(t.view_with(Dims::from([lines, length]), strides, t.offset()));
    }
    let moved = super::copy::dense(&t.permuted(&order(t.ndim(), dims)), dtype)?;
    let length: i64 = dims
        .iter()
        .filter(|&&d| d < t.ndim())
        .map(|&d| t.shape()[d])
        .product();
    let lines: i64 = moved.shape()[..t.ndim() - dims.iter().filter(|&&d| d < t.ndim()).count()]
        .iter()
        .product();
    let shape = Dims::from([lines, length]);
    let strides = Dims::from([length.max(1), 1]);
    Ok(moved.view_with(shape, strides, moved.offset()))
}

/// Whether lines along a dimension are single elements.
#[must_use]
pub fn are_single(t: &Tensor, dim: usize) -> bool {
    t.shape().get(dim).is_none_or(|&n| n == 1)
}

/// What is chosen from lines of one element, and where it is.
///
/// # Errors
/// If memory cannot be had.
pub fn of_one(values: &Tensor, indices: &Tensor, input: &Tensor) -> Result<()> {
    super::copy::copy(values, input)?;
    super::fill(indices, crate::Scalar::Int(0))
}

/// Dense memory to write the lines of `out` along `dim` to: `out` itself where it is laid out so.
///
/// # Errors
/// If memory cannot be had.
pub fn target(out: &Tensor, dim: usize, dtype: DType) -> Result<Tensor> {
    if dim + 1 == out.ndim() {
        return results(out, dtype);
    }
    let moved = out.permuted(&order(out.ndim(), &[dim]));
    if moved.is_contiguous() && out.dtype() == dtype && !out.is_lazy() {
        return Ok(moved);
    }
    Tensor::empty(moved.shape(), dtype, crate::Device::CPU)
}

/// Brings what was written to [`target`] to its place.
///
/// # Errors
/// If there is no conversion between the dtypes.
pub fn finish(out: &Tensor, dim: usize, written: &Tensor) -> Result<()> {
    if written.shares_storage(out) {
        return Ok(());
    }
    super::copy::copy(&out.permuted(&order(out.ndim(), &[dim])), written)
}

/// Dense memory for results, one a line: `out` itself where it is dense.
///
/// # Errors
/// If memory cannot be had.
pub fn results(out: &Tensor, dtype: DType) -> Result<Tensor> {
    if out.is_contiguous() && out.dtype() == dtype && !out.is_lazy() {
        return Ok(out.clone());
    }
    Tensor::empty(out.shape(), dtype, crate::Device::CPU)
}

/// Brings what was written to [`results`] to its place.
///
/// # Errors
/// If there is no conversion between the dtypes.
pub fn put(out: &Tensor, written: &Tensor) -> Result<()> {
    if written.shares_storage(out) {
        Ok(())
    } else {
        super::copy::copy(out, written)
    }
}

/// Has `f` write the results row-major, in the memory of `out` where it lies so.
///
/// # Errors
/// Those of `f`, or if memory cannot be had.
pub fn written<T: Element>(out: &Tensor, f: impl FnOnce(&mut [T]) -> Result<()>) -> Result<()> {
    let to = results(out, T::DTYPE)?;
    f(super::slice_mut::<T>(&to))?;
    put(out, &to)
}

/// A dense complex tensor as real numbers, two in a dimension more.
#[must_use]
pub fn reals(t: &Tensor) -> Tensor {
    let dtype = match t.dtype() {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        _ => return t.clone(),
    };
    let shape = t.shape().concat(&[2]);
    let strides = crate::dims::contiguous_strides(&shape);
    t.reinterpret(dtype, shape, strides, 2 * t.offset())
}

/// A pointer that parallel tasks may share.
#[derive(Clone, Copy)]
pub struct Shared<T>(*mut T, usize);
#[allow(unsafe_code, reason = "tasks write disjoint parts")]
// SAFETY: users hand disjoint parts to different tasks.
unsafe impl<T> Sync for Shared<T> {}
#[allow(unsafe_code, reason = "tasks write disjoint parts")]
// SAFETY: as above.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a slice between tasks that write disjoint parts of it.
    #[inline]
    #[must_use]
    pub fn new(s: &mut [T]) -> Self {
        Self(s.as_mut_ptr(), s.len())
    }

    /// Shares memory of any length between tasks that write disjoint parts of it, or only read.
    #[inline]
    #[must_use]
    pub fn at(p: *mut T) -> Self {
        Self(p, usize::MAX)
    }

    /// Where it begins.
    #[inline]
    #[must_use]
    pub fn get(self) -> *mut T {
        self.0
    }

    /// A part of the slice.
    ///
    /// # Panics
    /// If it does not lie within.
    ///
    /// # Safety
    /// No other task has any of it, and memory given by [`Shared::at`] holds it.
    #[allow(
        unsafe_code,
        clippy::mut_from_ref,
        reason = "tasks write disjoint parts"
    )]
    #[inline]
    #[must_use]
    pub unsafe fn part<'a>(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.1));
        // SAFETY: within the slice; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}

/// Calls `f(line, its elements, its part of `to`)` for all lines, on all threads if there is much to do.
pub fn for_each<A: Sync, B: Send>(
    from: &[A],
    n: usize,
    to: &mut [B],
    m: usize,
    f: impl Fn(usize, &[A], &mut [B]) + Sync,
) {
    let lines = to.len().checked_div(m).unwrap_or(0);
    let shared = Shared::new(to);
    super::pool::parallel_for(
        lines,
        (super::iter::GRAIN / (n + m).max(1)).max(1),
        |range| {
            for i in range {
                // SAFETY: every line has its own part.
                #[allow(unsafe_code, reason = "lines write disjoint parts")]
                let part = unsafe { shared.part(i * m, m) };
                f(i, &from[i * n..(i + 1) * n], part);
            }
        },
    );
}

/// Code for each size of an element, of which only the bits move: `by_size!(bytes, E => ...)`.
macro_rules! by_size {
    ($size:expr, $E:ident => $e:expr) => {
        match $size {
            1 => { type $E = u8; $e }
            2 => { type $E = u16; $e }
            4 => { type $E = u32; $e }
            8 => { type $E = u64; $e }
            _ => { type $E = [u64; 2]; $e }
        }
    };
}
pub(in crate::cpu) use by_size;
