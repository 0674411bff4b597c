//! Typed access to tensor memory: single elements, slices, filling.

#![allow(unsafe_code, reason = "typed access to tensor memory")]

use super::{copy, iter, lines, narrow, past, pool};
use crate::cpu::simd::simd_fn;
use crate::{DType, Element, Result, Scalar, Tensor, bail, with_dtype};
use num_complex::Complex64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True if the elements are on the host: a fake tensor only claims that.
fn is_here(t: &Tensor) -> bool {
    t.device().is_cpu() && (!t.storage().is_hollow() || t.numel() == 0)
}

/// Writes a number as an element of `dtype` at the start of `to` (at least 16 bytes).
pub fn write_scalar(to: &mut [u64; 2], dtype: DType, value: Scalar) {
    with_dtype!(dtype, [bool int uint half float complex] => T, {
        // SAFETY: the largest element has 16 bytes, the size of `to`, whose alignment is 8 and T's at most 8.
        unsafe { to.as_mut_ptr().cast::<T>().write(T::from_scalar(value)) }
    }, else { narrow::store(dtype, to.as_mut_ptr().cast(), value.to_c64()) })
}

/// Sets every element.
///
/// # Errors
/// If the dtype cannot be computed with.
pub fn fill(t: &Tensor, value: Scalar) -> Result<()> {
    if t.numel() == 0 {
        return Ok(());
    }
    let value = if t.is_neg() { negate(value) } else { value };
    let value = match value {
        Scalar::Complex(c) if t.is_conj() => Scalar::Complex(c.conj()),
        v => v,
    };
    let zero = !value.to_bool() && !matches!(value, Scalar::Float(f) if f.is_sign_negative());
    if zero && t.is_contiguous() {
        // All-zero bits are zero in every dtype.
        let to = bytes_mut(t);
        if to.len() <= ALONE {
            to.fill(0);
        } else {
            repeat(to, 0u8);
        }
        return Ok(());
    }
    if !narrow::known(t.dtype()) {
        return Err(t.dtype().no_kernel("fill_cpu"));
    }
    fill_bits(t, value);
    Ok(())
}

/// Sets every element: only bits move, so that there is code for each size and not for each type.
fn fill_bits(t: &Tensor, value: Scalar) {
    let mut bits = [0u64; 2];
    write_scalar(&mut bits, t.dtype(), value);
    let [low, high] = bits;
    match t.dtype().size() {
        1 => fill_all(t, first::<1>(low)[0]),
        2 => fill_all(t, u16::from_ne_bytes(first(low))),
        4 => fill_all(t, u32::from_ne_bytes(first(low))),
        8 => fill_all(t, low),
        _ => fill_all(t, Complex64::new(f64::from_bits(low), f64::from_bits(high))),
    }
}

/// The bytes of an element at the start of a word.
fn first<const N: usize>(word: u64) -> [u8; N] {
    let bytes = word.to_ne_bytes();
    std::array::from_fn(|i| bytes[i])
}

fn fill_all<T: Element>(t: &Tensor, v: T) {
    if t.is_contiguous() {
        repeat(slice_mut::<T>(t), v);
    } else {
        for_each_mut::<T>(t, move |x| *x = v);
    }
}

/// Bytes up to which one thread fills as quickly as several.
const ALONE: usize = 128 << 10;

/// Sets all elements of a slice, block by block; results larger than the caches go past them.
fn repeat<T: Element>(to: &mut [T], v: T) {
    const BLOCK: usize = 4096;
    let each = BLOCK / size_of::<T>();
    let stream = past::suits(size_of_val(to)) && past::fits(to.as_ptr().cast(), BLOCK);
    simd_fn! { stream fn set<E: Copy>(to: &mut [E], v: E) { to.fill(v); } }
    let n = to.len();
    let shared = lines::Shared::new(to);
    pool::parallel_for(n.div_ceil(each), ALONE / BLOCK, |range| {
        let (start, end) = (range.start * each, n.min(range.end * each));
        // SAFETY: every task has its own blocks.
        let part = unsafe { shared.part(start, end - start) };
        if !stream {
            return set(part, v);
        }
        let (first, rest) = part.split_at_mut(each.min(part.len()));
        first.fill(v);
        for block in rest.chunks_mut(each) {
            // SAFETY: `first` is as long as a block or longer, and ends before this one.
            unsafe {
                if block.len() == each {
                    past::store(block.as_mut_ptr().cast(), first.as_ptr().cast(), BLOCK);
                } else {
                    std::ptr::copy_nonoverlapping(first.as_ptr(), block.as_mut_ptr(), block.len());
                }
            }
        }
        past::finish();
    });
}

fn negate(s: Scalar) -> Scalar {
    match s {
        Scalar::Int(i) => Scalar::Int(i.wrapping_neg()),
        Scalar::Float(f) => Scalar::Float(-f),
        Scalar::Complex(c) => Scalar::Complex(-c),
        other => other,
    }
}

/// Calls `f` on every element, in memory order, on all threads for large tensors. `T` must be the tensor's type.
pub fn for_each_mut<T: Element>(t: &Tensor, f: impl Fn(&mut T) + Sync) {
    assert_eq!(t.dtype().size(), size_of::<T>());
    let row = |p: &[*mut u8; 1], s: &[isize; 1], n: usize| {
        if s[0] == size_of::<T>() as isize {
            // SAFETY: the walk stays within the tensor, and its runs do not overlap.
            let run = unsafe { std::slice::from_raw_parts_mut(p[0].cast::<T>(), n) };
            return run.iter_mut().for_each(&f);
        }
        for i in 0..n as isize {
            // SAFETY: the walk stays within the tensor.
            f(unsafe { &mut *p[0].offset(s[0] * i).cast::<T>() });
        }
    };
    each_row(t, &row);
}

/// Whether `is` says so of an element of a tensor of any layout.
pub fn any_element<T: Element>(t: &Tensor, is: impl Fn(T) -> bool + Sync) -> bool {
    assert_eq!(t.dtype(), T::DTYPE);
    let found = AtomicBool::new(false);
    let row = |p: &[*mut u8; 1], s: &[isize; 1], n: usize| {
        for i in 0..n as isize {
            // SAFETY: the walk stays within the tensor.
            if is(unsafe { T::load(p[0].offset(s[0] * i).cast()) }) {
                return found.store(true, Relaxed);
            }
        }
    };
    each_row(t, &row);
    found.into_inner()
}

/// A walk over rows, whatever is done to them.
fn each_row(t: &Tensor, row: &(dyn Fn(&[*mut u8; 1], &[isize; 1], usize) + Sync)) {
    let item = t.dtype().size();
    iter::Walk::<1>::new(t.shape(), [t.data_ptr()], [t.strides()], [item]).run(iter::GRAIN, row);
}

/// Writes values into a fresh row-major tensor of the same type and size.
pub fn write_slice<T: Element>(t: &Tensor, values: &[T]) {
    assert!(
        t.dtype() == T::DTYPE
            && t.is_contiguous()
            && t.numel() == values.len() as i64
            && is_here(t)
    );
    // SAFETY: the assertion above.
    unsafe { std::ptr::copy(values.as_ptr(), t.data_ptr().cast(), values.len()) };
}

/// The elements of a row-major CPU tensor of type `T`.
#[must_use]
pub fn read_slice<T: Element>(t: &Tensor) -> Vec<T> {
    let all = slice::<T>(t).as_ptr_range();
    // SAFETY: elements of the slice.
    (0..t.numel() as usize)
        .map(|i| unsafe { T::load(all.start.add(i)) })
        .collect()
}

/// The bytes of a row-major bool tensor on the host, all but 0 of which are true.
#[must_use]
pub fn truths(t: &Tensor) -> &[u8] {
    assert!(t.dtype() == DType::Bool && t.is_contiguous() && is_here(t));
    if t.numel() == 0 {
        return &[];
    }
    // SAFETY: the assertion above; the tensor keeps its storage alive.
    unsafe { std::slice::from_raw_parts(t.data_ptr(), t.numel() as usize) }
}

/// The tensor with truth values that are bytes of 0 and 1: itself, unless somebody wrote others there.
///
/// # Errors
/// If memory cannot be had.
pub fn normal(t: &Tensor) -> Result<Tensor> {
    if t.dtype() != DType::Bool {
        return Ok(t.clone());
    }
    let dense = copy::dense(t, DType::Bool)?;
    if truths(&dense).iter().all(|&b| b <= 1) {
        return Ok(t.clone());
    }
    let out = Tensor::empty(t.shape(), DType::Bool, crate::Device::CPU)?;
    let to = slice_mut::<u8>(&out);
    to.iter_mut()
        .zip(truths(&dense))
        .for_each(|(to, &b)| *to = u8::from(b != 0));
    Ok(out)
}

/// The elements of a row-major CPU tensor of type `T`, in place.
#[must_use]
pub fn slice<T: Element>(t: &Tensor) -> &[T] {
    assert!(t.dtype() == T::DTYPE && t.is_contiguous() && is_here(t));
    if t.numel() == 0 {
        return &[];
    }
    // SAFETY: the assertion above; the tensor keeps its storage alive.
    unsafe { std::slice::from_raw_parts(t.data_ptr().cast(), t.numel() as usize) }
}

/// The elements of a row-major CPU tensor of type `T`, to be written. Only for results that a kernel was given.
#[must_use]
#[allow(
    clippy::mut_from_ref,
    reason = "kernels own their results for the length of the call"
)]
pub fn slice_mut<T: Element>(t: &Tensor) -> &mut [T] {
    assert!(t.dtype().size() == size_of::<T>() && t.is_contiguous() && is_here(t));
    if t.numel() == 0 {
        return &mut [];
    }
    // SAFETY: the assertion above; the kernel that owns the result is its only writer.
    unsafe { std::slice::from_raw_parts_mut(t.data_ptr().cast(), t.numel() as usize) }
}

/// The bytes of a dense tensor on the host.
#[must_use]
pub fn bytes(t: &Tensor) -> &[u8] {
    assert!(t.is_contiguous() && is_here(t));
    if t.numel() == 0 {
        return &[];
    }
    let n = t.numel() as usize * t.dtype().size();
    // SAFETY: a contiguous tensor has exactly these bytes, and keeps its storage alive.
    unsafe { std::slice::from_raw_parts(t.data_ptr(), n) }
}

/// The bytes of a dense tensor on the host, to be written. Only for results that a kernel was given.
#[must_use]
#[allow(
    clippy::mut_from_ref,
    reason = "kernels own their results for the length of the call"
)]
pub fn bytes_mut(t: &Tensor) -> &mut [u8] {
    assert!(t.is_contiguous() && is_here(t));
    if t.numel() == 0 {
        return &mut [];
    }
    let n = t.numel() as usize * t.dtype().size();
    // SAFETY: as above; the kernel that owns the result is its only writer.
    unsafe { std::slice::from_raw_parts_mut(t.data_ptr(), n) }
}

/// One element of a CPU tensor as a number.
///
/// # Errors
/// If the dtype cannot be computed with.
pub fn read_scalar(t: &Tensor, position: i64) -> Result<Scalar> {
    if t.storage().is_hollow() {
        bail!(NotImplemented, "Cannot copy out of meta tensor; no data!");
    }
    let p = t
        .data_ptr()
        .wrapping_offset((position * t.dtype().size() as i64) as isize);
    with_dtype!(t.dtype(), [bool int uint half float complex] => T, {
        // SAFETY: callers give positions within the tensor's layout.
        return Ok(unsafe { T::load(p.cast()) }.to_scalar());
    }, else {
        let one = t.reinterpret(t.dtype(), crate::Dims::EMPTY, crate::Dims::EMPTY, t.offset() + position);
        let wide = copy::converted(&one, if t.dtype().is_complex() { DType::C128 } else { DType::F64 })?;
        return read_scalar(&wide, 0);
    })
}

/// True if an integer of a host tensor is zero; tensors of other devices are not read.
#[must_use]
pub(crate) fn any_zero(t: &Tensor) -> bool {
    fn row<T: Copy + Default + PartialEq>(p: *const u8, step: isize, n: usize) -> bool {
        let at = |i: usize| p.wrapping_offset(i as isize * step).cast::<T>();
        // Without an early exit the loop vectorises.
        (0..n).fold(false, |found, i| {
            // SAFETY: the walk gives n elements `step` bytes apart.
            let x = unsafe { *at(i) };
            found | (x == T::default())
        })
    }
    if !is_here(t) {
        return false;
    }
    let size = t.dtype().size();
    let row = match size {
        1 => row::<u8>,
        2 => row::<u16>,
        4 => row::<u32>,
        _ => row::<u64>,
    };
    let mut found = false;
    iter::Walk::<1>::new(t.shape(), [t.data_ptr()], [t.strides()], [size])
        .run_serial(|p, s, n| found = found || row(p[0], s[0], n));
    found
}
