//! Dense memory of one type that kernels read and write as another, a piece at a time.

#![allow(unsafe_code, reason = "hands parts of dense tensors to conversions")]

use super::copy::{Row, converter};
use super::lines::Shared;
use crate::{Element, Result, Tensor};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements that are converted at a time.
pub const PIECE: usize = 4096;

/// Memory for a piece.
pub struct Piece<T>([MaybeUninit<T>; PIECE]);

impl<T: Element> Piece<T> {
    /// Nothing yet.
    #[inline]
    pub fn new() -> Self {
        Self([MaybeUninit::uninit(); PIECE])
    }
}

/// The memory of a dense tensor, with the conversion of its elements if they are of another type.
struct Lay<T> {
    memory: Shared<u8>,
    /// Bytes of an element.
    size: usize,
    len: usize,
    row: Option<Row>,
    element: PhantomData<T>,
}

impl<T: Element> Lay<T> {
    fn of(t: &Tensor, row: Result<Row>) -> Result<Self> {
        assert!(
            t.is_contiguous() && !t.is_lazy(),
            "elements lie one after the other"
        );
        let (size, len) = (t.dtype().size(), t.numel() as usize);
        let row = if t.dtype() == T::DTYPE {
            None
        } else {
            Some(row?)
        };
        let (memory, element) = (Shared::at(t.data_ptr()), PhantomData);
        Ok(Self {
            memory,
            size,
            len,
            row,
            element,
        })
    }

    /// Where elements begin that lie within.
    fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len);
        self.memory.get().wrapping_add(range.start * self.size)
    }
}

/// Elements of a dense tensor, read as `T`.
pub struct Reader<T>(Lay<T>);

impl<T: Element> Reader<T> {
    /// Of a tensor that lives longer.
    ///
    /// # Errors
    /// If there is no conversion.
    ///
    /// # Panics
    /// If the tensor is not dense.
    pub fn new(t: &Tensor) -> Result<Self> {
        Lay::of(t, converter(t.dtype(), T::DTYPE)).map(Self)
    }

    /// Whether elements are read where they lie, as many as are asked for.
    pub fn is_plain(&self) -> bool {
        self.0.row.is_none()
    }

    /// Some elements, no more than a piece if they are converted.
    pub fn get<'a>(&'a self, range: Range<usize>, piece: &'a mut Piece<T>) -> &'a [T] {
        let (at, n) = (self.0.at(&range), range.len());
        let Some(row) = self.0.row else {
            // SAFETY: within the tensor, whose elements these are.
            return unsafe { std::slice::from_raw_parts(at.cast::<T>(), n) };
        };
        let to = piece.0[..n].as_mut_ptr();
        // SAFETY: both sides hold n elements of the types that the conversion is between, which are there after it.
        unsafe {
            row(
                to.cast(),
                size_of::<T>() as isize,
                at,
                self.0.size as isize,
                n,
            );
            std::slice::from_raw_parts(to.cast::<T>(), n)
        }
    }
}

/// Elements of a dense tensor, written as `T`.
pub struct Writer<T>(Lay<T>);

impl<T: Element> Writer<T> {
    /// Of a tensor that lives longer.
    ///
    /// # Errors
    /// If there is no conversion.
    ///
    /// # Panics
    /// If the tensor is not dense.
    pub fn new(t: &Tensor) -> Result<Self> {
        Lay::of(t, converter(T::DTYPE, t.dtype())).map(Self)
    }

    /// Whether elements are written where they lie, as many as are asked for.
    pub fn is_plain(&self) -> bool {
        self.0.row.is_none()
    }

    /// Has some elements written, no more than a piece if they are converted.
    ///
    /// # Safety
    /// No other task has any of them.
    pub unsafe fn fill(&self, range: Range<usize>, piece: &mut Piece<T>, f: impl FnOnce(&mut [T])) {
        let (at, n) = (self.0.at(&range), range.len());
        let Some(row) = self.0.row else {
            // SAFETY: within the tensor, whose elements these are; the rest is the caller's promise.
            return f(unsafe { std::slice::from_raw_parts_mut(at.cast::<T>(), n) });
        };
        let room = &mut piece.0[..n];
        room.fill(MaybeUninit::new(T::default()));
        // SAFETY: both sides hold n elements of the types that the conversion is between, which are filled in.
        unsafe {
            let from = std::slice::from_raw_parts_mut(room.as_mut_ptr().cast::<T>(), n);
            f(from);
            row(
                at,
                self.0.size as isize,
                from.as_ptr().cast(),
                size_of::<T>() as isize,
                n,
            );
        }
    }
}
