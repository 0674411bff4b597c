//! What matrices are made of: real and complex numbers in two precisions.

#![allow(unsafe_code, reason = "complex numbers are read as pairs of real ones")]

use super::view::{View, ViewMut};
use crate::Element;
use crate::cpu::gemm::{GemmElement, Mat, MatMut, complex, gemm};
use crate::cpu::lanes;
use crate::cpu::transpose;
use crate::cpu::vectors::Vectors;
use num_complex::{Complex, ComplexFloat};
use num_traits::{Float, NumAssign, Zero};

/// Real numbers.
pub trait Real:
    Number<Size = Self> + Float + NumAssign + complex::Part + std::iter::Sum + Vectors + lanes::Real
{
    /// From a double, rounded.
    fn near(v: f64) -> Self;
    /// As a double.
    fn double(self) -> f64;
}

/// A factor of a product: a matrix as it is, or its adjoint.
#[derive(Clone, Copy)]
pub enum Factor<'a, T> {
    /// As it is.
    Plain(View<'a, T>),
    /// Transposed and conjugated.
    Adjoint(View<'a, T>),
}

/// Real and complex numbers.
pub trait Number:
    ComplexFloat<Real = <Self as Number>::Size> + NumAssign + GemmElement<Scale = Self> + Element
{
    /// Absolute values, and the parts of complex numbers.
    type Size: Real;
    /// True for complex numbers.
    const COMPLEX: bool;

    /// From a real number.
    fn real(v: Self::Size) -> Self;
    /// From both parts; a real number has no second.
    fn parts(re: Self::Size, im: Self::Size) -> Self;
    /// As a complex number.
    fn wide(self) -> Complex<Self::Size>;
    /// The numbers as real ones, parts side by side.
    fn flat(all: &[Self]) -> &[Self::Size];
    /// The same for writing.
    fn flat_mut(all: &mut [Self]) -> &mut [Self::Size];
    /// `c = alpha a b + beta c`.
    fn product(alpha: Self, a: Factor<Self>, b: Factor<Self>, beta: Self, c: ViewMut<Self>);

    /// Times a real number.
    #[inline(always)]
    fn times(self, by: Self::Size) -> Self {
        Self::parts(self.re() * by, self.im() * by)
    }
    /// Divided by a number of any size: the squares of its parts may vanish or overflow.
    #[inline(always)]
    fn over(self, by: Self) -> Self {
        if !Self::COMPLEX {
            return self / by;
        }
        let size = Float::max(Float::abs(by.re()), Float::abs(by.im()));
        let (re, im) = (by.re() / size, by.im() / size);
        let square = re * re + im * im;
        let (a, b) = (self.re() / size, self.im() / size);
        Self::parts((a * re + b * im) / square, (b * re - a * im) / square)
    }
    /// The square of the absolute value.
    #[inline(always)]
    fn square(self) -> Self::Size {
        self.re() * self.re() + self.im() * self.im()
    }
    /// The sum of the absolute values of both parts, by which LAPACK compares complex numbers.
    #[inline(always)]
    fn sum(self) -> Self::Size {
        Float::abs(self.re()) + Float::abs(self.im())
    }
}

/// The length of `(a, b)`: of numbers whose squares are in range without what else it takes.
#[inline(always)]
#[must_use]
pub fn hypotenuse<R: Float>(a: R, b: R) -> R {
    let square = a * a + b * b;
    if square > R::min_positive_value() / R::epsilon() && square < R::infinity() {
        return square.sqrt();
    }
    a.hypot(b)
}

impl<'a, T: Number> Factor<'a, T> {
    /// Rows and columns.
    fn size(&self) -> (usize, usize) {
        match self {
            Self::Plain(v) => (v.rows(), v.columns()),
            Self::Adjoint(v) => (v.columns(), v.rows()),
        }
    }
    /// Where it lies, and whether it is conjugated.
    fn parts(&self) -> (Mat<T>, bool) {
        match self {
            Self::Plain(v) => (Mat::new(v.ptr(), 1, v.step() as isize), false),
            Self::Adjoint(v) => (Mat::new(v.ptr(), v.step() as isize, 1), true),
        }
    }
}

fn sizes<T: Number>(a: &Factor<T>, b: &Factor<T>, c: &ViewMut<T>) -> (usize, usize, usize) {
    let ((m, k), (l, n)) = (a.size(), b.size());
    assert!(
        k == l && (m, n) == (c.rows(), c.columns()),
        "sizes of a product"
    );
    (m, n, k)
}

macro_rules! numbers {
    ($($t:ty)+) => { $(
        impl Real for $t {
            fn near(v: f64) -> Self {
                v as $t
            }
            fn double(self) -> f64 {
                f64::from(self)
            }
        }
        impl Number for $t {
            type Size = $t;
            const COMPLEX: bool = false;
            #[inline(always)]
            fn real(v: $t) -> Self {
                v
            }
            #[inline(always)]
            fn parts(re: $t, _: $t) -> Self {
                re
            }
            #[inline(always)]
            fn wide(self) -> Complex<$t> {
                Complex::new(self, 0.0)
            }
            fn flat(all: &[Self]) -> &[$t] {
                all
            }
            fn flat_mut(all: &mut [Self]) -> &mut [$t] {
                all
            }
            fn product(alpha: Self, a: Factor<Self>, b: Factor<Self>, beta: Self, mut c: ViewMut<Self>) {
                let (m, n, k) = sizes(&a, &b, &c);
                let to = MatMut::new(c.ptr(), 1, c.step() as isize);
                // SAFETY: views lie in valid memory, and nothing else sees what `c` borrows.
                unsafe { gemm(m, n, k, alpha, a.parts().0, b.parts().0, beta, to, None) }
            }
        }
        impl Number for Complex<$t> {
            type Size = $t;
            const COMPLEX: bool = true;
            #[inline(always)]
            fn real(v: $t) -> Self {
                Complex::new(v, 0.0)
            }
            #[inline(always)]
            fn parts(re: $t, im: $t) -> Self {
                Complex::new(re, im)
            }
            #[inline(always)]
            fn wide(self) -> Self {
                self
            }
            fn flat(all: &[Self]) -> &[$t] {
                // SAFETY: a complex number is two real ones.
                unsafe { std::slice::from_raw_parts(all.as_ptr().cast(), 2 * all.len()) }
            }
            fn flat_mut(all: &mut [Self]) -> &mut [$t] {
                // SAFETY: as above.
                unsafe { std::slice::from_raw_parts_mut(all.as_mut_ptr().cast(), 2 * all.len()) }
            }
            fn product(alpha: Self, a: Factor<Self>, b: Factor<Self>, beta: Self, mut c: ViewMut<Self>) {
                let (m, n, k) = sizes(&a, &b, &c);
                let to = MatMut::new(c.ptr(), 1, c.step() as isize);
                // SAFETY: views lie in valid memory, and nothing else sees what `c` borrows.
                unsafe { complex::product((m, n, k), alpha, a.parts(), b.parts(), beta, to) }
            }
        }
    )+ };
}
numbers! { f32 f64 }

/// `c += sign * a b`.
pub fn add_product<T: Number>(sign: i8, a: Factor<T>, b: Factor<T>, c: ViewMut<T>) {
    if a.size().1 == 0 {
        return;
    }
    let one = T::one();
    T::product(if sign < 0 { -one } else { one }, a, b, one, c);
}

/// `a b`, written over what `c` held.
pub fn set_product<T: Number>(a: Factor<T>, b: Factor<T>, c: ViewMut<T>) {
    T::product(T::one(), a, b, T::zero(), c);
}

/// Writes the adjoint of `a` over what `c` held.
pub fn set_adjoint<T: Number>(a: View<T>, mut c: ViewMut<T>) {
    let sizes = [a.columns(), a.rows()];
    assert!(sizes == [c.rows(), c.columns()]);
    let to = (c.ptr().cast(), c.step());
    // SAFETY: views lie in valid memory, and nothing else sees what `c` borrows.
    unsafe { transpose::plane(size_of::<T>(), to, (a.ptr().cast(), a.step()), sizes) };
    if T::COMPLEX {
        (0..c.columns()).for_each(|j| c.column(j).iter_mut().for_each(|v| *v = v.conj()));
    }
}

/// True if every number is finite.
#[must_use]
pub fn finite<T: Number>(all: &[T]) -> bool {
    T::flat(all).iter().all(|v| Float::is_finite(*v))
}

/// The largest absolute value of a part; NaN counts as nothing.
#[must_use]
pub fn largest<T: Number>(all: &[T]) -> T::Size {
    let most = |m, &v: &T::Size| Float::max(m, Float::abs(v));
    T::flat(all).iter().fold(T::Size::zero(), most)
}
