//! Equations with triangular matrices, by halves: what is left of a triangle of few rows is a loop, all else products.
//!
//! Loops run over right sides, which are to lie side by side: of `X T = B` they do.

use super::number::{Factor, Number, add_product, set_adjoint};
use super::view::{View, ViewMut};
use crate::cpu::pool;
use crate::cpu::simd::simd_fn;
use num_traits::{Float, Zero};
use std::sync::{Mutex, PoisonError};

/// Rows of a triangle that is solved by a loop.
const SMALL: usize = 32;
/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Which triangle stands in an equation.
#[derive(Clone, Copy, Debug)]
pub struct Triangle {
    /// The upper triangle of the matrix is read, else the lower one.
    pub upper: bool,
    /// Its adjoint stands in the equation.
    pub adjoint: bool,
    /// Its diagonal is all ones, whatever the matrix has there.
    pub unit: bool,
}

impl Triangle {
    /// A lower triangle with ones on the diagonal.
    pub const UNIT_LOWER: Self = Self {
        upper: false,
        adjoint: false,
        unit: true,
    };
    /// An upper triangle.
    pub const UPPER: Self = Self {
        upper: true,
        adjoint: false,
        unit: false,
    };

    /// The adjoint of what stands in the equation.
    #[must_use]
    pub const fn turned(self) -> Self {
        Self {
            adjoint: !self.adjoint,
            ..self
        }
    }

    /// What stands in the equation is an upper triangle.
    fn effective_upper(self) -> bool {
        self.upper != self.adjoint
    }

    /// The block of the matrix that stands beside the two triangles on the diagonal, cut at row `h`.
    fn beside<T: Number>(self, t: View<'_, T>, h: usize) -> Factor<'_, T> {
        let rest = t.rows() - h;
        let block = if self.upper {
            t.block(0, h, h, rest)
        } else {
            t.block(h, 0, rest, h)
        };
        if self.adjoint {
            Factor::Adjoint(block)
        } else {
            Factor::Plain(block)
        }
    }
}

/// Right sides from which on the equation is solved for the adjoint of X.
pub const MANY: usize = 8;
/// Bytes of a panel of right sides, which stays in the second cache while the triangle goes by.
const PANEL: usize = 384 << 10;
/// Bytes of right sides that the first cache holds.
const FIRST: usize = 24 << 10;
/// Right sides of a panel, at least: each has the triangle read once more.
const LEAST: usize = 96;

/// Panels of the right sides in the columns of `b` (or in its rows), each with memory for as many right sides as rows: `f` is
/// given the first one's number, the panel, and that memory.
fn in_panels<T: Number>(
    b: ViewMut<T>,
    columns: bool,
    f: impl Fn(usize, ViewMut<T>, ViewMut<T>) + Sync,
) {
    let (n, count) = if columns {
        (b.rows(), b.columns())
    } else {
        (b.columns(), b.rows())
    };
    if n == 0 || count == 0 {
        return;
    }
    let most = most_in_panel::<T>(n).min(count);
    let mut panels = Vec::with_capacity(count.div_ceil(most));
    let mut rest = b;
    for _ in 0..count.div_ceil(most) {
        let (panel, others) = if columns {
            rest.split_columns(most)
        } else {
            rest.split_rows(most)
        };
        panels.push(Mutex::new(panel));
        rest = others;
    }
    let step = apart::<T>(most);
    pool::parallel_for(panels.len(), 1, |range| {
        let mut room = vec![T::zero(); step * n + LINE];
        let start = room.as_ptr().align_offset(LINE).min(LINE);
        for i in range {
            let mut panel = panels[i].lock().unwrap_or_else(PoisonError::into_inner);
            let wide = most.min(count - i * most);
            let x = ViewMut::spaced(&mut room[start..], (wide, n), step);
            f(i * most, panel.again(), x);
        }
    });
}

/// Right sides of a panel, for so many unknowns.
fn most_in_panel<T>(n: usize) -> usize {
    (PANEL / (n * size_of::<T>()) / LINE * LINE).max(LEAST)
}

/// From one row to the next of so many right sides: whole lines of the cache, but no large power of two, as such rows push each
/// other out.
fn apart<T>(count: usize) -> usize {
    let step = count.next_multiple_of(LINE / size_of::<T>());
    step + if in_each_others_way::<T>(step) {
        LINE / size_of::<T>()
    } else {
        0
    }
}

/// Whether rows so far apart share few places of the first cache.
fn in_each_others_way<T>(step: usize) -> bool {
    (step * size_of::<T>()).is_multiple_of(2048)
}

/// Hands panels of the adjoint of `b` over, with the number of the first of their rows, and takes them back.
pub fn of_adjoint<T: Number>(b: ViewMut<T>, f: impl Fn(usize, ViewMut<T>) + Sync) {
    in_panels(b, true, |first, b, mut x| {
        set_adjoint(b.view(), x.again());
        f(first, x.again());
        set_adjoint(x.view(), b);
    });
}

/// Solves `T X = B` in place of `b`.
pub fn solve_left<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    assert!(t.columns() == n && b.rows() == n);
    if b.columns() == 0 || n == 0 {
        return;
    }
    if b.columns() >= MANY {
        return of_adjoint(b, |_, x| solve_right(t, kind.turned(), x));
    }
    if n <= SMALL {
        return small_left(t, kind, b);
    }
    let h = half(n);
    let (top, bottom) = (t.block(0, 0, h, h), t.block(h, h, n - h, n - h));
    let (mut first, mut second) = b.split_rows(h);
    if kind.effective_upper() {
        solve_left(bottom, kind, second.again());
        add_product(
            -1,
            kind.beside(t, h),
            Factor::Plain(second.view()),
            first.again(),
        );
        solve_left(top, kind, first);
    } else {
        solve_left(top, kind, first.again());
        add_product(
            -1,
            kind.beside(t, h),
            Factor::Plain(first.view()),
            second.again(),
        );
        solve_left(bottom, kind, second);
    }
}

/// Solves `X T = B` in place of `b`.
pub fn solve_right<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    assert!(t.columns() == n && b.columns() == n);
    if b.rows() == 0 || n == 0 {
        return;
    }
    if n <= SMALL || b.rows() <= most_in_panel::<T>(n) && !in_each_others_way::<T>(b.step()) {
        return right_by_halves(t, kind, b);
    }
    in_panels(b, false, |_, mut b, mut x| {
        x.copy(b.view());
        right_by_halves(t, kind, x.again());
        b.copy(x.view());
    });
}

/// [`solve_right`] of one panel.
fn right_by_halves<T: Number>(t: View<T>, kind: Triangle, b: ViewMut<T>) {
    let n = t.rows();
    if n <= SMALL {
        return small_right(t, kind, b);
    }
    let h = half(n);
    let (top, bottom) = (t.block(0, 0, h, h), t.block(h, h, n - h, n - h));
    let (mut first, mut second) = b.split_columns(h);
    if kind.effective_upper() {
        right_by_halves(top, kind, first.again());
        add_product(
            -1,
            Factor::Plain(first.view()),
            kind.beside(t, h),
            second.again(),
        );
        right_by_halves(bottom, kind, second);
    } else {
        right_by_halves(bottom, kind, second.again());
        add_product(
            -1,
            Factor::Plain(second.view()),
            kind.beside(t, h),
            first.again(),
        );
        right_by_halves(top, kind, first);
    }
}

/// Half of a size, in whole blocks where there are several.
pub(super) fn half(n: usize) -> usize {
    if n >= 32 {
        (n / 2).next_multiple_of(16)
    } else {
        n.div_ceil(2)
    }
}

/// The triangle as it stands in the equation, column after column, or row after row.
fn copied<T: Number>(t: View<T>, kind: Triangle, by_rows: bool) -> Vec<T> {
    let n = t.rows();
    let mut e = vec![T::zero(); n * n];
    for j in 0..n {
        let (from, to) = if kind.upper { (0, j + 1) } else { (j, n) };
        for (i, &v) in (from..to).zip(&t.column(j)[from..to]) {
            let v = if kind.adjoint { v.conj() } else { v };
            let at = if kind.adjoint == by_rows {
                i + j * n
            } else {
                j + i * n
            };
            e[at] = v;
        }
    }
    e
}

/// Of a few columns, one after the other.
fn small_left<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let n = t.rows();
    let e = copied(t, kind, false);
    for j in 0..b.columns() {
        let column = &mut b.column(j)[..n];
        if kind.effective_upper() {
            back::<T>(&e, kind.unit, column);
        } else {
            forth::<T>(&e, kind.unit, column);
        }
    }
}

/// For each row x of `b` this is an equation with the transposed triangle.
fn small_right<T: Number>(t: View<T>, kind: Triangle, mut b: ViewMut<T>) {
    let e = copied(t, kind, true);
    let upper = !kind.effective_upper();
    if !T::COMPLEX {
        let most = (FIRST / (t.rows() * size_of::<T>())).max(LINE);
        for first in (0..b.rows()).step_by(most) {
            let wide = most.min(b.rows() - first);
            by_columns(&e, upper, kind.unit, b.block(first, 0, wide, t.rows()));
        }
        return;
    }
    let mut room = vec![[Abreast([T::Size::zero(); ABREAST]); 2]; t.rows()];
    for first in (0..b.rows()).step_by(ABREAST) {
        let wide = ABREAST.min(b.rows() - first);
        for (k, [Abreast(re), Abreast(im)]) in room.iter_mut().enumerate() {
            for ((v, re), im) in b.column(k)[first..][..wide].iter().zip(re).zip(im) {
                (*re, *im) = (v.re(), v.im());
            }
        }
        abreast::<T>(&e, upper, kind.unit, &mut room);
        for (k, [Abreast(re), Abreast(im)]) in room.iter().enumerate() {
            for ((v, &re), &im) in b.column(k)[first..][..wide].iter_mut().zip(re).zip(im) {
                *v = T::parts(re, im);
            }
        }
    }
}

/// The reciprocal of what stands on the diagonal, if that is not out of range.
#[inline(always)]
fn reciprocal<T: Number>(by: T) -> Option<T> {
    let inverse = T::one().over(by);
    let finite = Float::is_finite(inverse.re()) && Float::is_finite(inverse.im());
    finite.then_some(inverse)
}

/// The columns from which column `k` is taken away, once it is solved for.
#[inline(always)]
fn others(n: usize, k: usize, upper: bool) -> std::ops::Range<usize> {
    if upper { 0..k } else { k + 1..n }
}

/// `y -= c x` of real numbers.
#[inline(always)]
fn take<T: Number>(y: &mut [T], c: T, x: &[T]) {
    let (y, x) = (T::flat_mut(y), T::flat(x));
    for (y, &x) in y.iter_mut().zip(x) {
        *y = Float::mul_add(-c.re(), x, *y);
    }
}

simd_fn! { wide
    /// Real numbers where they lie, all right sides at once.
    fn by_columns<T: Number>(e: &[T], upper: bool, unit: bool, x: ViewMut<T>) {
        let mut x = x;
        let n = x.columns();
        for step in 0..n {
            let k = if upper { n - 1 - step } else { step };
            let column = &e[k * n..(k + 1) * n];
            if !unit {
                let (solved, by) = (x.column(k), column[k]);
                match reciprocal(by) {
                    Some(by) => solved.iter_mut().for_each(|v| *v *= by),
                    None => solved.iter_mut().for_each(|v| *v /= by),
                }
            }
            for i in others(n, k, upper) {
                let (y, x) = x.two_columns(i, k);
                take(y, column[i], x);
            }
        }
    }
}

/// Right sides of complex numbers that are solved at once.
const ABREAST: usize = 32;

/// One part of one unknown of that many right sides, in whole lines of the cache.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Abreast<R>([R; ABREAST]);

simd_fn! { wide
    /// Complex right sides side by side, parts apart: an unknown of all of them for each row of the triangle.
    fn abreast<T: Number>(e: &[T], upper: bool, unit: bool, x: &mut [[Abreast<T::Size>; 2]]) {
        let n = x.len();
        // Of a number it knew, the compiler would make vectors of elements that lie apart.
        let lanes = std::hint::black_box(ABREAST);
        for step in 0..n {
            let k = if upper { n - 1 - step } else { step };
            let column = &e[k * n..(k + 1) * n];
            if !unit {
                let [Abreast(re), Abreast(im)] = &mut x[k];
                let inverse = reciprocal(column[k]);
                for (re, im) in re.iter_mut().zip(im) {
                    let v = match inverse {
                        Some(v) => (*re * v.re() - *im * v.im(), *re * v.im() + *im * v.re()),
                        None => {
                            let v = T::parts(*re, *im).over(column[k]);
                            (v.re(), v.im())
                        }
                    };
                    (*re, *im) = v;
                }
            }
            let [Abreast(a), Abreast(b)] = x[k];
            let (a, b) = (&a[..lanes], &b[..lanes]);
            for i in others(n, k, upper) {
                let [Abreast(re), Abreast(im)] = &mut x[i];
                let (re, im) = (&mut re[..lanes], &mut im[..lanes]);
                let (c, s) = (-column[i].re(), column[i].im());
                for l in 0..lanes {
                    re[l] = Float::mul_add(c, a[l], Float::mul_add(s, b[l], re[l]));
                    im[l] = Float::mul_add(c, b[l], Float::mul_add(-s, a[l], im[l]));
                }
            }
        }
    }
}

simd_fn! { stream
    /// One column with an upper triangle.
    fn back<T: Number>(e: &[T], unit: bool, x: &mut [T]) {
        let n = x.len();
        for k in (0..n).rev() {
            let column = &e[k * n..k * n + k + 1];
            let (rest, last) = x[..=k].split_at_mut(k);
            if !unit {
                last[0] = last[0].over(column[k]);
            }
            let by = last[0];
            for (x, &c) in rest.iter_mut().zip(column) {
                *x -= by * c;
            }
        }
    }
}

simd_fn! { stream
    /// One column with a lower triangle.
    fn forth<T: Number>(e: &[T], unit: bool, x: &mut [T]) {
        let n = x.len();
        for k in 0..n {
            let column = &e[k * n + k..(k + 1) * n];
            let (first, rest) = x[k..].split_at_mut(1);
            if !unit {
                first[0] = first[0].over(column[0]);
            }
            let by = first[0];
            for (x, &c) in rest.iter_mut().zip(&column[1..]) {
                *x -= by * c;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::{Real, set_product};
    use super::super::samples::{Sample, near, sample};
    use super::super::view::Matrix;
    use super::*;

    fn check<T: Sample>(n: usize, columns: usize) {
        for bits in 0..8 {
            let kind = Triangle {
                upper: bits & 1 != 0,
                adjoint: bits & 2 != 0,
                unit: bits & 4 != 0,
            };
            let mut t: Matrix<T> = sample(n, n, 1);
            (0..n).for_each(|i| t[(i, i)] += T::real(T::Size::near(n as f64)));
            let inside = |i: usize, j: usize| if kind.upper { i <= j } else { i >= j };
            let plain = Matrix::from_fn(n, n, |i, j| match (i == j, inside(i, j)) {
                (true, _) if kind.unit => T::one(),
                (_, true) => t[(i, j)],
                _ => T::zero(),
            });
            // Far off the diagonal elements are small, so that the unit triangle is not ill-conditioned either.
            let small = T::real(T::Size::near(1.0 / n as f64));
            let t = Matrix::from_fn(
                n,
                n,
                |i, j| if i == j { t[(i, j)] } else { t[(i, j)] * small },
            );
            let plain = Matrix::from_fn(n, n, |i, j| {
                if i == j {
                    plain[(i, j)]
                } else {
                    plain[(i, j)] * small
                }
            });
            let factor = if kind.adjoint {
                Factor::Adjoint(plain.view())
            } else {
                Factor::Plain(plain.view())
            };
            let x: Matrix<T> = sample(n, columns, 2);
            let mut b = x.clone();
            set_product(factor, Factor::Plain(x.view()), b.view_mut());
            solve_left(t.view(), kind, b.view_mut());
            near(&b, &x, n as f64);
            let x: Matrix<T> = sample(columns, n, 3);
            let mut b = x.clone();
            set_product(Factor::Plain(x.view()), factor, b.view_mut());
            solve_right(t.view(), kind, b.view_mut());
            near(&b, &x, n as f64);
        }
    }

    #[test]
    fn solutions_solve() {
        for (n, columns) in [(1, 1), (5, 3), (33, 7), (17, 8), (70, 40), (129, 2)] {
            check::<f32>(n, columns);
            check::<f64>(n, columns);
            check::<num_complex::Complex<f32>>(n, columns);
            check::<num_complex::Complex<f64>>(n, columns);
        }
    }
}
