//! Parts of matrices that lie column after column, for factorisations that work on blocks.

#![allow(
    unsafe_code,
    reason = "blocks of one matrix interleave in memory, which slices cannot say"
)]

use std::marker::PhantomData;

/// A block to read: columns are contiguous, and `step` elements apart.
pub struct View<'a, T> {
    ptr: *const T,
    rows: usize,
    columns: usize,
    step: usize,
    life: PhantomData<&'a [T]>,
}

/// A block to write.
pub struct ViewMut<'a, T> {
    ptr: *mut T,
    rows: usize,
    columns: usize,
    step: usize,
    life: PhantomData<&'a mut [T]>,
}

// SAFETY: as shared and exclusive slices are.
unsafe impl<T: Sync> Send for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for View<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for ViewMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for ViewMut<'_, T> {}

impl<T> Clone for View<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<'_, T> {}

/// A block's place, and elements between its columns; panics if it does not lie in `rows` by `columns`.
fn start(
    (rows, columns, step): (usize, usize, usize),
    (i, j): (usize, usize),
    (r, c): (usize, usize),
) -> usize {
    assert!(
        i + r <= rows && j + c <= columns,
        "a block within its matrix"
    );
    // Blocks without elements have no place of their own.
    if r == 0 || c == 0 { 0 } else { i + j * step }
}

impl<'a, T: Copy> View<'a, T> {
    /// A whole matrix.
    ///
    /// # Panics
    /// If the slice has other elements than `rows * columns`.
    #[must_use]
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns);
        Self {
            ptr: data.as_ptr(),
            rows,
            columns,
            step: rows,
            life: PhantomData,
        }
    }
    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }
    /// Elements from one column to the next.
    #[must_use]
    pub fn step(&self) -> usize {
        self.step
    }
    /// The first element.
    #[must_use]
    pub fn ptr(&self) -> *const T {
        self.ptr
    }
    /// The block of `r` rows and `c` columns at row `i`, column `j`.
    #[must_use]
    pub fn block(&self, i: usize, j: usize, r: usize, c: usize) -> Self {
        let at = start((self.rows, self.columns, self.step), (i, j), (r, c));
        // SAFETY: the block lies within.
        let ptr = unsafe { self.ptr.add(at) };
        Self {
            ptr,
            rows: r,
            columns: c,
            ..*self
        }
    }
    /// A column.
    #[must_use]
    pub fn column(&self, j: usize) -> &'a [T] {
        let b = self.block(0, j, self.rows, 1);
        // SAFETY: the column lies within, and columns are contiguous.
        unsafe { std::slice::from_raw_parts(b.ptr, b.rows) }
    }
    /// An element.
    #[must_use]
    pub fn get(&self, i: usize, j: usize) -> T {
        assert!(i < self.rows && j < self.columns);
        // SAFETY: within.
        unsafe { *self.ptr.add(i + j * self.step) }
    }
}

impl<'a, T: Copy> ViewMut<'a, T> {
    /// A whole matrix.
    ///
    /// # Panics
    /// If the slice has other elements than `rows * columns`.
    #[must_use]
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        assert_eq!(data.len(), rows * columns);
        Self {
            ptr: data.as_mut_ptr(),
            rows,
            columns,
            step: rows,
            life: PhantomData,
        }
    }
    /// A matrix in the first of some elements, with `step` of them from one column to the next.
    ///
    /// # Panics
    /// If there are not so many elements, or columns would meet.
    #[must_use]
    pub fn spaced(data: &'a mut [T], (rows, columns): (usize, usize), step: usize) -> Self {
        assert!(rows <= step && columns * step <= data.len());
        Self {
            ptr: data.as_mut_ptr(),
            rows,
            columns,
            step,
            life: PhantomData,
        }
    }
    /// Rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }
    /// Elements from one column to the next.
    #[must_use]
    pub fn step(&self) -> usize {
        self.step
    }
    /// The first element.
    #[must_use]
    pub fn ptr(&mut self) -> *mut T {
        self.ptr
    }
    /// The same matrix for reading.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        View {
            ptr: self.ptr,
            rows: self.rows,
            columns: self.columns,
            step: self.step,
            life: PhantomData,
        }
    }
    /// The same matrix for a while.
    #[must_use]
    pub fn again(&mut self) -> ViewMut<'_, T> {
        self.block(0, 0, self.rows, self.columns)
    }
    /// The block of `r` rows and `c` columns at row `i`, column `j`.
    #[must_use]
    pub fn block(&mut self, i: usize, j: usize, r: usize, c: usize) -> ViewMut<'_, T> {
        let at = start((self.rows, self.columns, self.step), (i, j), (r, c));
        // SAFETY: the block lies within, and `self` is held as long as it lives.
        let ptr = unsafe { self.ptr.add(at) };
        ViewMut {
            ptr,
            rows: r,
            columns: c,
            step: self.step,
            life: PhantomData,
        }
    }
    /// The columns before `j`, and the others.
    #[must_use]
    pub fn split_columns(self, j: usize) -> (Self, Self) {
        let [[a, b], _] = self.split(usize::MAX, j);
        (a, b)
    }
    /// The rows before `i`, and the others.
    #[must_use]
    pub fn split_rows(self, i: usize) -> (Self, Self) {
        let [[a, _], [c, _]] = self.split(i, usize::MAX);
        (a, c)
    }
    /// Four blocks, cut at row `i` and column `j`; no row or no column below and right of those that there are.
    #[must_use]
    pub fn split(self, i: usize, j: usize) -> [[Self; 2]; 2] {
        let (i, j) = (i.min(self.rows), j.min(self.columns));
        let part = |at: (usize, usize), size: (usize, usize)| Self {
            // SAFETY: the block lies within; the four share no element.
            ptr: unsafe {
                self.ptr
                    .add(start((self.rows, self.columns, self.step), at, size))
            },
            rows: size.0,
            columns: size.1,
            step: self.step,
            life: PhantomData,
        };
        let (down, right) = (self.rows - i, self.columns - j);
        [
            [part((0, 0), (i, j)), part((0, j), (i, right))],
            [part((i, 0), (down, j)), part((i, j), (down, right))],
        ]
    }
    /// A column.
    #[must_use]
    pub fn column(&mut self, j: usize) -> &mut [T] {
        let b = self.block(0, j, self.rows, 1);
        // SAFETY: the column lies within, columns are contiguous, and `self` is held.
        unsafe { std::slice::from_raw_parts_mut(b.ptr, b.rows) }
    }
    /// Two different columns.
    #[must_use]
    pub fn two_columns(&mut self, j: usize, k: usize) -> (&mut [T], &mut [T]) {
        assert!(j != k, "two columns are not one");
        let (a, b) = (
            self.block(0, j, self.rows, 1).ptr,
            self.block(0, k, self.rows, 1).ptr,
        );
        // SAFETY: both lie within and share no element.
        unsafe {
            (
                std::slice::from_raw_parts_mut(a, self.rows),
                std::slice::from_raw_parts_mut(b, self.rows),
            )
        }
    }
    /// An element.
    #[must_use]
    pub fn get(&self, i: usize, j: usize) -> T {
        self.view().get(i, j)
    }
    /// Writes an element.
    pub fn set(&mut self, i: usize, j: usize, v: T) {
        assert!(i < self.rows && j < self.columns);
        // SAFETY: within.
        unsafe { *self.ptr.add(i + j * self.step) = v }
    }
    /// Writes every element.
    pub fn fill(&mut self, v: T) {
        (0..self.columns).for_each(|j| self.column(j).fill(v));
    }
    /// Makes it the identity, or as many of its first rows and columns.
    pub fn set_identity(&mut self)
    where
        T: num_traits::Zero + num_traits::One,
    {
        self.fill(T::zero());
        (0..self.columns.min(self.rows)).for_each(|i| self.set(i, i, T::one()));
    }
    /// Copies a matrix of the same size.
    pub fn copy(&mut self, from: View<T>) {
        assert!(self.rows == from.rows && self.columns == from.columns);
        (0..self.columns).for_each(|j| self.column(j).copy_from_slice(from.column(j)));
    }
}

/// A matrix of its own, column after column.
#[derive(Clone, Debug)]
pub struct Matrix<T> {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Elements, column by column.
    pub data: Vec<T>,
}

impl<T: Copy> Matrix<T> {
    /// All elements the same.
    #[must_use]
    pub fn filled(rows: usize, columns: usize, v: T) -> Self {
        Self {
            rows,
            columns,
            data: vec![v; rows * columns],
        }
    }
    /// From a function of row and column.
    #[must_use]
    pub fn from_fn(rows: usize, columns: usize, f: impl Fn(usize, usize) -> T) -> Self {
        let place = |j: usize| (0..rows).map(move |i| (i, j));
        let data = (0..columns).flat_map(place).map(|(i, j)| f(i, j)).collect();
        Self {
            rows,
            columns,
            data,
        }
    }
    /// For reading.
    #[must_use]
    pub fn view(&self) -> View<'_, T> {
        View::new(&self.data, self.rows, self.columns)
    }
    /// For writing.
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::new(&mut self.data, self.rows, self.columns)
    }
}

impl<T> std::ops::Index<(usize, usize)> for Matrix<T> {
    type Output = T;
    fn index(&self, (i, j): (usize, usize)) -> &T {
        &self.data[i + j * self.rows]
    }
}
impl<T> std::ops::IndexMut<(usize, usize)> for Matrix<T> {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut T {
        &mut self.data[i + j * self.rows]
    }
}
