//! What is made of a matrix product in the same way on every device: products with vectors, sums of products, linear.

use super::room::Room;
use crate::{DType, Dims, Result, Scalar, Tensor, dims};

/// `c = alpha a b + beta c + bias` of a device; see [`matrix::product`](super::matrix::product).
pub type Product = fn(&Tensor, &Tensor, &Tensor, Scalar, Scalar, Option<&Tensor>) -> Result<()>;

/// What a device can do with matrices.
pub struct Backend {
    /// The matrix product.
    pub product: Product,
    /// The inner product of two vectors.
    pub dot: fn(&Tensor, &Tensor, &Tensor) -> Result<()>,
    /// Copies the second tensor (broadcast, converted) into the first.
    pub copy: fn(&Tensor, &Tensor) -> Result<()>,
    /// Sets every element.
    pub fill: fn(&Tensor, Scalar) -> Result<()>,
    /// A row-major copy; the tensor itself if it is that already.
    pub dense: fn(&Tensor, DType) -> Result<Tensor>,
    /// A copy in another dtype.
    pub converted: fn(&Tensor, DType) -> Result<Tensor>,
}

/// The factors of `beta self + alpha product`.
#[derive(Clone, Copy)]
pub struct Factors {
    /// Of what is added to.
    pub beta: Scalar,
    /// Of the product.
    pub alpha: Scalar,
}

impl Factors {
    /// Both 1.
    pub const ONE: Self = Self {
        beta: Scalar::Int(1),
        alpha: Scalar::Int(1),
    };
}

/// The sizes of a linear layer's product: `rows` by `inner`, times `inner` by `columns`.
pub struct LinearSizes {
    /// Rows of the input.
    pub rows: i64,
    /// Length of a row of the input.
    pub inner: i64,
    /// Features of the result.
    pub columns: i64,
}

/// True for the number 1 of any type.
#[must_use]
pub fn is_one(s: Scalar) -> bool {
    s.to_c64() == num_complex::Complex64::new(1.0, 0.0)
}

/// A vector as a matrix with one column.
fn column(v: &Tensor) -> Tensor {
    v.view_with(
        [v.shape()[0], 1].into(),
        [v.strides()[0], 1].into(),
        v.offset(),
    )
}

/// The inner product of two vectors by a matrix product.
///
/// # Errors
/// If the dtype has no products.
pub fn dot_as_product(product: Product, out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    let n = a.numel();
    let cell = out.view_with([1, 1].into(), [1, 1].into(), out.offset());
    let row = a.view_with([1, n].into(), [n.max(1), a.strides()[0]].into(), a.offset());
    let column = b.view_with([n, 1].into(), [b.strides()[0], 1].into(), b.offset());
    product(&cell, &row, &column, Scalar::Int(1), Scalar::Int(0), None)
}

impl Backend {
    /// The product of two matrices, or of two batches of them.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn mm(&self, out: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
        (self.product)(out, x, y, Scalar::Int(1), Scalar::Int(0), None)
    }

    /// The product of a matrix and a vector.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn mv(&self, out: &Tensor, m: &Tensor, v: &Tensor) -> Result<()> {
        self.mm(&column(out), m, &column(v))
    }

    /// The inner product, the first vector conjugated.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn vdot(&self, out: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
        if x.dtype().is_complex() {
            let x = (self.dense)(&x.clone().with_conj(true), x.dtype())?;
            (self.dot)(out, &x, y)
        } else {
            (self.dot)(out, x, y)
        }
    }

    /// `out = beta t + alpha x y`, `t` broadcast; a zero `beta` does not read `t`.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn add_product(
        &self,
        out: &Tensor,
        t: &Tensor,
        x: &Tensor,
        y: &Tensor,
        by: Factors,
    ) -> Result<()> {
        let zero = Scalar::Int(0);
        if !by.beta.to_bool() || out.numel() == 0 {
            return (self.product)(out, x, y, by.alpha, zero, None);
        }
        let is_row = t.ndim() == 1 && out.ndim() == 2 && t.shape()[0] == out.shape()[1];
        if is_row && t.is_contiguous() && is_one(by.beta) {
            return (self.product)(out, x, y, by.alpha, zero, Some(t));
        }
        (self.copy)(out, t)?;
        (self.product)(out, x, y, by.alpha, by.beta, None)
    }

    /// `out = beta t + alpha m v`.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn add_mv(
        &self,
        out: &Tensor,
        t: &Tensor,
        m: &Tensor,
        v: &Tensor,
        by: Factors,
    ) -> Result<()> {
        let t = t.expand_to(out.shape());
        self.add_product(&column(out), &column(&t), m, &column(v), by)
    }

    /// `out = beta t + alpha` times the sum of the products of two batches; 16-bit sums stay in single precision.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn add_batches(
        &self,
        out: &Tensor,
        t: &Tensor,
        x: &Tensor,
        y: &Tensor,
        by: Factors,
    ) -> Result<()> {
        if x.shape()[0] == 0 {
            return self.add_nothing(out, t, by);
        }
        if out.dtype().is_reduced_float() {
            let sum = Tensor::empty(out.shape(), DType::F32, out.device())?;
            let wide = |t: &Tensor| (self.converted)(t, DType::F32);
            self.sum_batches(&sum, &wide(t)?, &wide(x)?, &wide(y)?, by)?;
            return (self.copy)(out, &sum);
        }
        self.sum_batches(out, t, x, y, by)
    }

    /// What [`add_batches`](Self::add_batches) takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn batches_room(room: &mut Room, out: &Tensor, operands: [&Tensor; 3]) -> Result<()> {
        if !out.dtype().is_reduced_float() || operands[1].shape()[0] == 0 {
            return Ok(());
        }
        room.empty(out.shape(), DType::F32)?;
        let mut operands = operands.iter();
        operands.try_for_each(|t| room.converted(t, DType::F32).map(drop))
    }

    fn sum_batches(
        &self,
        sum: &Tensor,
        t: &Tensor,
        x: &Tensor,
        y: &Tensor,
        by: Factors,
    ) -> Result<()> {
        self.add_product(sum, t, &x.selected(0, 0), &y.selected(0, 0), by)?;
        for i in 1..x.shape()[0] {
            let (x, y) = (x.selected(0, i), y.selected(0, i));
            (self.product)(sum, &x, &y, by.alpha, Scalar::Int(1), None)?;
        }
        Ok(())
    }

    /// `out = beta t`.
    fn add_nothing(&self, out: &Tensor, t: &Tensor, by: Factors) -> Result<()> {
        if !by.beta.to_bool() {
            return (self.fill)(out, Scalar::Int(0));
        }
        let empty = |rows, columns| Tensor::empty(&[rows, columns], out.dtype(), out.device());
        let (x, y) = (empty(out.shape()[0], 0)?, empty(0, out.shape()[1])?);
        self.add_product(out, t, &x, &y, by)
    }

    /// `out = x w.T + bias`, `w` one row a feature, or a vector.
    ///
    /// # Errors
    /// If the dtype has no products.
    pub fn linear(
        &self,
        out: &Tensor,
        x: &Tensor,
        w: &Tensor,
        bias: Option<&Tensor>,
        sizes: &LinearSizes,
    ) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let w = if w.ndim() == 2 {
            w.swapped(0, 1)
        } else {
            column(w)
        };
        let dense = if out.is_contiguous() {
            out.clone()
        } else {
            Tensor::empty(out.shape(), out.dtype(), out.device())?
        };
        let (rows, columns) = (sizes.rows, sizes.columns);
        let matrix = dense.view_with([rows, columns].into(), [columns, 1].into(), dense.offset());
        let x = self.as_rows(x, [rows, sizes.inner].into())?;
        match bias {
            Some(b) => self.add_product(&matrix, b, &x, &w, Factors::ONE)?,
            None => self.mm(&matrix, &x, &w)?,
        }
        if out.is_contiguous() {
            Ok(())
        } else {
            (self.copy)(out, &dense)
        }
    }

    /// What [`linear`](Self::linear) takes besides its result.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn linear_room(
        room: &mut Room,
        out: &Tensor,
        x: &Tensor,
        sizes: &LinearSizes,
    ) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        room.dense(out, out.dtype())?;
        let rows: Dims = [sizes.rows, sizes.inner].into();
        if x.ndim() != 2 && dims::view_strides(x.shape(), x.strides(), &rows).is_none() {
            room.dense(x, x.dtype())?;
        }
        Ok(())
    }

    /// A tensor as a matrix of rows: a view where possible.
    fn as_rows(&self, t: &Tensor, to: Dims) -> Result<Tensor> {
        if t.ndim() == 2 {
            return Ok(t.clone());
        }
        match dims::view_strides(t.shape(), t.strides(), &to) {
            Some(strides) => Ok(t.view_with(to, strides, t.offset())),
            None => {
                let strides = dims::contiguous_strides(&to);
                let t = (self.dense)(t, t.dtype())?;
                Ok(t.view_with(to, strides, t.offset()))
            }
        }
    }
}
