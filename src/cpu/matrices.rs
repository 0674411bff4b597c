//! Batches of matrices as dense algebra wants them: column after column, one matrix after the other.

#![allow(unsafe_code, reason = "the matrices of a batch are handed to tasks")]

use super::dense::number::Number;
use super::dense::view::{View, ViewMut};
use super::lines::Shared;
use super::{copy, pool, slice, slice_mut};
use crate::{DType, Device, Dims, Element, Result, Tensor, ensure};
use std::marker::PhantomData;

/// Operations on a batch that are worth another thread.
const PARALLEL_FROM: usize = 20_000;

/// The matrices of a batch.
pub struct Stack<T> {
    memory: Tensor,
    /// Rows of a matrix.
    pub rows: usize,
    /// Columns of a matrix.
    pub columns: usize,
    /// How many there are.
    pub count: usize,
    kind: PhantomData<T>,
}

impl<T: Element> Stack<T> {
    fn over(memory: Tensor) -> Self {
        let n = memory.ndim();
        let size = |d: usize| memory.shape()[d] as usize;
        Self {
            rows: size(n - 1),
            columns: size(n - 2),
            count: (0..n - 2).map(size).product(),
            memory,
            kind: PhantomData,
        }
    }

    /// Matrices without values yet.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn empty(count: usize, rows: usize, columns: usize) -> Result<Self> {
        let shape = [count as i64, columns as i64, rows as i64];
        Ok(Self::over(Tensor::empty(&shape, T::DTYPE, Device::CPU)?))
    }

    /// A copy of a tensor's matrices, repeated to `batch`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn copied(t: &Tensor, batch: &[i64]) -> Result<Self> {
        let n = t.ndim();
        Self::turned(&t.swapped(n - 2, n - 1), batch)
    }

    /// A copy of the adjoints of a tensor's matrices, repeated to `batch`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn adjoints(t: &Tensor, batch: &[i64]) -> Result<Self> {
        if t.dtype().is_complex() {
            return Self::turned(&t.clone().with_conj(!t.is_conj()), batch);
        }
        Self::turned(t, batch)
    }

    /// A copy of a tensor's vectors as matrices of one column, repeated to `batch`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn vectors(t: &Tensor, batch: &[i64]) -> Result<Self> {
        Self::copied(&as_columns(t), batch)
    }

    /// A copy of the transposes.
    fn turned(t: &Tensor, batch: &[i64]) -> Result<Self> {
        let n = t.ndim();
        let shape = Dims::new(batch).concat(&t.shape()[n - 2..]);
        let memory = Tensor::empty(&shape, T::DTYPE, Device::CPU)?;
        copy::copy(&memory, &t.expand_to(&shape))?;
        Ok(Self::over(memory))
    }

    /// Room for the matrices of `out`: its own memory, if they lie there so and no operand does.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn room(out: &Tensor, operands: &[&Tensor]) -> Result<Self> {
        let n = out.ndim();
        let turned = out.swapped(n - 2, n - 1);
        let free = !operands.iter().any(|t| t.shares_storage(out));
        let plain = !out.is_lazy() && out.dtype() == T::DTYPE;
        if free && plain && turned.is_contiguous() {
            return Ok(Self::over(turned));
        }
        Ok(Self::over(Tensor::empty(
            turned.shape(),
            T::DTYPE,
            Device::CPU,
        )?))
    }

    /// Room for the matrices of `out`, which no operand shares.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn empty_for(out: &Tensor) -> Result<Self> {
        Self::room(out, &[])
    }

    /// Copies a tensor's matrices here.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn load(&mut self, t: &Tensor) -> Result<()> {
        let n = self.memory.ndim();
        copy::copy(&self.memory.swapped(n - 2, n - 1), t)
    }

    /// Brings the matrices to `out`, if they are not there yet.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn store(&self, out: &Tensor) -> Result<()> {
        if self.memory.shares_storage(out) {
            return Ok(());
        }
        let n = out.ndim();
        let turned = out.swapped(n - 2, n - 1);
        let shape = turned.shape().clone();
        let strides = crate::dims::contiguous_strides(&shape);
        let memory = self.memory.view_with(shape, strides, self.memory.offset());
        copy::copy(&turned, &memory)
    }

    /// Brings the adjoints of the matrices to `out`.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn store_adjoints(&self, out: &Tensor) -> Result<()> {
        let shape = out.shape().clone();
        let strides = crate::dims::contiguous_strides(&shape);
        let memory = self.memory.view_with(shape, strides, self.memory.offset());
        copy::copy(out, &memory.with_conj(T::DTYPE.is_complex()))
    }

    /// The elements of all matrices.
    #[must_use]
    pub fn elements(&self) -> &[T] {
        slice::<T>(&self.memory)
    }

    /// The elements of all matrices, for writing.
    #[must_use]
    pub fn elements_mut(&mut self) -> &mut [T] {
        slice_mut::<T>(&self.memory)
    }
}

impl<T: Number> Stack<T> {
    /// A matrix.
    #[must_use]
    pub fn view(&self, i: usize) -> View<'_, T> {
        let size = self.rows * self.columns;
        View::new(
            &self.elements()[i * size..(i + 1) * size],
            self.rows,
            self.columns,
        )
    }

    /// For [`each`].
    #[must_use]
    pub fn parts(&mut self) -> Matrices<'_, T> {
        Matrices {
            rows: self.rows,
            columns: self.columns,
            all: Shared::new(self.elements_mut()),
            life: PhantomData,
        }
    }

    /// The first matrix that holds a number that is not finite.
    #[must_use]
    pub fn unbounded(&self) -> Option<usize> {
        let finite = |i: &usize| super::dense::number::finite(self.flat(*i));
        (0..self.count).find(|i| !finite(i))
    }

    /// The elements of a matrix.
    #[must_use]
    pub fn flat(&self, i: usize) -> &[T] {
        let size = self.rows * self.columns;
        &self.elements()[i * size..(i + 1) * size]
    }
}

/// The matrices of a stack, for tasks.
pub struct Matrices<'a, T> {
    rows: usize,
    columns: usize,
    all: Shared<T>,
    life: PhantomData<&'a mut [T]>,
}

/// Equal parts of a slice, for tasks.
pub struct Pieces<'a, T> {
    size: usize,
    all: Shared<T>,
    life: PhantomData<&'a mut [T]>,
}

impl<'a, T> Pieces<'a, T> {
    /// Pieces of so many elements.
    #[must_use]
    pub fn new(all: &'a mut [T], size: usize) -> Self {
        Self {
            size,
            all: Shared::new(all),
            life: PhantomData,
        }
    }
}

/// What has a part for every matrix of a batch.
pub trait Parts: Sync {
    /// The part of one.
    type Part;

    /// The part of matrix `i`.
    ///
    /// # Safety
    /// Nothing else has it.
    unsafe fn part(&self, i: usize) -> Self::Part;
}

impl<'a, T: Number> Parts for Matrices<'a, T> {
    type Part = ViewMut<'a, T>;
    unsafe fn part(&self, i: usize) -> ViewMut<'a, T> {
        let size = self.rows * self.columns;
        // SAFETY: the caller's.
        let all = unsafe { self.all.part(i * size, size) };
        ViewMut::new(all, self.rows, self.columns)
    }
}

impl<'a, T: Send + Sync> Parts for Pieces<'a, T> {
    type Part = &'a mut [T];
    unsafe fn part(&self, i: usize) -> &'a mut [T] {
        // SAFETY: the caller's.
        unsafe { self.all.part(i * self.size, self.size) }
    }
}

macro_rules! parts {
    ($($name:ident)+) => {
        impl<$($name: Parts),+> Parts for ($($name,)+) {
            type Part = ($($name::Part,)+);
            #[allow(non_snake_case)]
            unsafe fn part(&self, i: usize) -> Self::Part {
                let ($($name,)+) = self;
                // SAFETY: the caller's.
                unsafe { ($($name.part(i),)+) }
            }
        }
    };
}
parts! { A B }
parts! { A B C }
parts! { A B C D }

/// Calls `f(i, its parts)` for every matrix of a batch, on all threads if `work` operations for each are worth it. A single
/// matrix has the threads to itself.
pub fn each<P: Parts>(count: usize, work: usize, parts: &P, f: impl Fn(usize, P::Part) + Sync) {
    // SAFETY: every index comes up once.
    let one = |i: usize| f(i, unsafe { parts.part(i) });
    if count == 1 {
        return one(0);
    }
    let grain = PARALLEL_FROM.div_ceil(work.max(1));
    pool::parallel_for(count, grain, |range| range.for_each(one));
}

/// A tensor of vectors as matrices of one column.
#[must_use]
pub fn as_columns(t: &Tensor) -> Tensor {
    let (shape, strides) = (t.shape().concat(&[1]), t.strides().concat(&[1]));
    t.view_with(shape, strides, t.offset())
}

/// A tensor's matrices transposed.
#[must_use]
pub fn transposed(t: &Tensor) -> Tensor {
    let n = t.ndim();
    t.swapped(n - 2, n - 1)
}

/// For every matrix of `batch`, which of the matrices of `from` it is made of by broadcasting.
#[must_use]
pub fn origins(from: &[i64], batch: &[i64]) -> Vec<usize> {
    let count = batch.iter().product::<i64>() as usize;
    let missing = batch.len() - from.len();
    let origin = |mut i: usize| {
        let (mut at, mut step) = (0, 1);
        for d in (0..batch.len()).rev() {
            let place = i % batch[d] as usize;
            i /= batch[d] as usize;
            if d >= missing {
                let size = from[d - missing] as usize;
                at += if size == 1 { 0 } else { place * step };
                step *= size;
            }
        }
        at
    };
    (0..count).map(origin).collect()
}

/// One number for each matrix of a batch.
///
/// # Errors
/// If memory cannot be had.
pub fn read_numbers(t: &Tensor, batch: &[i64]) -> Result<Vec<f64>> {
    let t = copy::dense(&t.expand_to(batch), DType::F64)?;
    Ok(slice::<f64>(&t).to_vec())
}

/// Whole numbers, a row for each matrix of a batch.
///
/// # Errors
/// If memory cannot be had.
pub fn read_rows(t: &Tensor, batch: &[i64]) -> Result<Vec<i64>> {
    let last = t.shape()[t.ndim() - 1];
    let t = copy::dense(&t.expand_to(&Dims::new(batch).concat(&[last])), DType::I64)?;
    Ok(slice::<i64>(&t).to_vec())
}

/// Writes all elements of a tensor in order.
///
/// # Errors
/// If there is no conversion.
pub fn write_numbers<T: Element>(out: &Tensor, data: &[T]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    super::lines::written::<T>(out, |to| {
        let (made, wanted) = (data.len(), to.len());
        ensure!(
            made == wanted,
            Runtime,
            "internal error in torchlike: {made} numbers for a result of {wanted}"
        );
        to.copy_from_slice(data);
        Ok(())
    })
}

/// Writes a batch of square matrices that are given column after column.
///
/// # Errors
/// If there is no conversion.
pub fn write_columns<T: Element>(out: &Tensor, data: &[T]) -> Result<()> {
    let last = out.ndim() - 1;
    copy::copy(
        out,
        &Tensor::from_slice(data, out.shape())?.swapped(last - 1, last),
    )
}
