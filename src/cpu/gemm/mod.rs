//! Matrix products: `C = alpha A B + beta C + bias`, any strides, on all threads of the pool.
//!
//! Floats run on the micro-kernels of [`policy`], complex numbers as products of real ones, integers on tiles that the
//! compiler makes vectors of. 16-bit floats are summed in f32 and rounded once. Integer arithmetic wraps.

#![allow(unsafe_code, reason = "matrices are passed to the kernels by pointer")]

#[cfg(target_arch = "x86_64")]
mod amx;
pub mod bytes;
pub mod coefficients;
pub mod complex;
mod finish;
mod kernel;
mod pack;
mod policy;
mod portable;
mod simple;
mod small;
mod tall;
#[cfg(test)]
mod tests;
mod tile;
pub mod tiled;
mod turn;
mod vector;
mod windows;

use super::pool;
use super::simd::{Level, level};
use half::{bf16, f16};
use kernel::Product;
use num_complex::Complex;
use policy::Policy;
use std::ops::Range;
pub use windows::{Dots, SLACK, WindowElement, Windows, row_tiles};

/// A matrix to read: where element (0, 0) is, and the strides of rows and columns in elements.
#[derive(Debug)]
pub struct Mat<T> {
    /// Element (0, 0).
    pub ptr: *const T,
    /// From one row to the next.
    pub rs: isize,
    /// From one column to the next.
    pub cs: isize,
}

/// A matrix to write.
#[derive(Debug)]
pub struct MatMut<T> {
    /// Element (0, 0).
    pub ptr: *mut T,
    /// From one row to the next.
    pub rs: isize,
    /// From one column to the next.
    pub cs: isize,
}

macro_rules! mat {
    ($name:ident $ptr:ty) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
        impl<T> $name<T> {
            /// A matrix from its parts.
            #[must_use]
            pub const fn new(ptr: $ptr, rs: isize, cs: isize) -> Self {
                Self { ptr, rs, cs }
            }
            /// The same matrix with rows and columns exchanged.
            #[must_use]
            pub const fn t(self) -> Self {
                Self {
                    ptr: self.ptr,
                    rs: self.cs,
                    cs: self.rs,
                }
            }
            /// The part that starts at row `i`, column `j`.
            ///
            /// # Safety
            /// The element exists (or is just behind the last).
            #[inline(always)]
            #[must_use]
            pub unsafe fn at(self, i: usize, j: usize) -> Self {
                // SAFETY: the caller's.
                let ptr = unsafe { self.ptr.offset(i as isize * self.rs + j as isize * self.cs) };
                Self { ptr, ..self }
            }
        }
    };
}
mat! { Mat *const T }
mat! { MatMut *mut T }

/// Products below this many multiply-adds stay on one thread.
const PARALLEL_FROM: usize = 200_000;
/// Elements of B in a share of a vector product.
const VECTOR_SHARE: usize = 64 << 10;

/// Rows of A up to which reading B in place is worth more than tiles.
const FEW: usize = 8;
/// Bytes of B from which that is so, where columns of B are contiguous.
const FEW_FROM: usize = 256 << 10;
/// And where rows are, which tiles read in place as well while a cache holds them.
const MANY_FROM: usize = 8 << 20;

/// The element types of products.
pub trait GemmElement: Copy + Send + Sync + 'static {
    /// The type of `alpha` and `beta`, and of the sums: f32 for 16-bit floats, else the element type.
    type Scale: Copy + Send + Sync;
    /// See [`gemm`].
    ///
    /// # Safety
    /// As [`gemm`].
    #[allow(clippy::too_many_arguments)]
    unsafe fn gemm(
        m: usize,
        n: usize,
        k: usize,
        alpha: Self::Scale,
        a: Mat<Self>,
        b: Mat<Self>,
        beta: Self::Scale,
        c: MatMut<Self>,
        bias: Option<*const Self>,
    ) where
        Self: Sized;

    /// What computes neighbouring products of a batch, where these are so small that there is code of its own for them;
    /// as unsafe as [`gemm_batch`].
    const SMALL: Option<unsafe fn(Batch<Self>)> = None;
}

/// Multiply-adds of a small product.
const SMALL: usize = 2048;

/// Products of one shape; matrix i of each operand starts `i` times its step further on than the first.
#[derive(Clone, Copy)]
pub struct Batch<T: GemmElement> {
    count: usize,
    /// Rows and columns of a result, and the length of its sums.
    size: [usize; 3],
    alpha: T::Scale,
    a: Mat<T>,
    b: Mat<T>,
    beta: T::Scale,
    c: MatMut<T>,
    steps: [isize; 3],
}

impl<T: GemmElement> Batch<T> {
    /// Some of the products.
    ///
    /// # Safety
    /// There are so many.
    unsafe fn part(mut self, r: Range<usize>) -> Self {
        let [a, b, c] = self.steps.map(|step| step * r.start as isize);
        // SAFETY: the caller's.
        unsafe {
            self.a.ptr = self.a.ptr.offset(a);
            self.b.ptr = self.b.ptr.offset(b);
            self.c.ptr = self.c.ptr.offset(c);
        }
        self.count = r.len();
        self
    }
}

/// `C = alpha A B + beta C`, plus `bias` (n contiguous elements) on every row: A is m by k, B k by n, C m by n.
///
/// `beta == 0` does not read C; `k == 0` gives `beta C + bias`. Strides may be zero (A, B), negative or anything else.
///
/// # Safety
/// The three matrices and the bias lie in valid memory, distinct elements of C at distinct places; C overlaps no input.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gemm<T: GemmElement>(
    m: usize,
    n: usize,
    k: usize,
    alpha: T::Scale,
    a: Mat<T>,
    b: Mat<T>,
    beta: T::Scale,
    c: MatMut<T>,
    bias: Option<*const T>,
) {
    // SAFETY: the caller's.
    unsafe { T::gemm(m, n, k, alpha, a, b, beta, c, bias) }
}

/// `batch` products of one shape; matrix i of each operand starts `i` times its batch stride further on.
///
/// Many small products are shared out whole; few large ones are each split.
///
/// # Safety
/// As [`gemm`], for every i.
#[allow(clippy::too_many_arguments)]
pub unsafe fn gemm_batch<T: GemmElement>(
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    alpha: T::Scale,
    (a, sa): (Mat<T>, isize),
    (b, sb): (Mat<T>, isize),
    beta: T::Scale,
    (c, sc): (MatMut<T>, isize),
) {
    let all = Batch {
        count: batch,
        size: [m, n, k],
        alpha,
        a,
        b,
        beta,
        c,
        steps: [sa, sb, sc],
    };
    let work = m.saturating_mul(n).saturating_mul(k.max(1));
    let small = T::SMALL.filter(|_| work <= SMALL && k > 0);
    let each = Shared(move |r: Range<usize>| {
        // SAFETY: the caller's.
        unsafe {
            if let Some(small) = small {
                return small(all.part(r));
            }
            for i in r {
                let p = all.part(i..i + 1);
                T::gemm(m, n, k, alpha, p.a, p.b, beta, p.c, None);
            }
        }
    });
    let each = &each;
    if batch < pool::num_threads() * 2 && work > PARALLEL_FROM {
        each.call(0..batch);
    } else {
        let grain = (PARALLEL_FROM / 4).div_ceil(work.max(1)).max(1);
        pool::parallel_for(batch, grain, |r| each.call(r));
    }
}

/// A closure over raw pointers that several threads call for different parts.
struct Shared<F>(F);
// SAFETY: made only of closures that touch disjoint parts of C for different arguments.
unsafe impl<F> Sync for Shared<F> {}
impl<F> Shared<F> {
    fn call<A>(&self, arg: A)
    where
        F: Fn(A),
    {
        (self.0)(arg);
    }
}

/// Splits a product over the pool.
unsafe fn run<P: Policy>(mut p: Product<P>) {
    if p.m == 0 || p.n == 0 {
        return;
    }
    // Vectors run along rows of C: where C is column-major, or a single column, compute the transpose.
    let narrow = p.n <= FEW && p.m > 8 * p.n && few::<P>(p.n, p.m, p.k, p.a.t());
    if (p.n == 1 && p.m > 1) || narrow || (p.c.cs != 1 && p.c.rs == 1 && p.m > 1) {
        p = Product {
            m: p.n,
            n: p.m,
            a: p.b.t(),
            b: p.a.t(),
            c: p.c.t(),
            bias: p.bias.map(|(b, rs, cs)| (b, cs, rs)),
            ..p
        };
    }
    let work = p.m.saturating_mul(p.n).saturating_mul(p.k.max(1));
    if P::ONCE && (p.m == 1 || few::<P>(p.m, p.n, p.k, p.b)) {
        let row = Shared(move |r: Range<usize>| {
            // SAFETY: the caller's; the columns of different shares are different.
            unsafe {
                P::with(vector::Few::<P> {
                    p,
                    j0: r.start,
                    j1: r.end,
                })
            }
        });
        let row = &row;
        let grain = (VECTOR_SHARE / p.k.max(1)).next_multiple_of(64).max(64);
        return pool::parallel_for(p.n, grain, |r| row.call(r));
    }
    let threads = if work < PARALLEL_FROM {
        1
    } else {
        pool::num_threads().min(work / (PARALLEL_FROM / 2))
    };
    // Of the whole product, so that its parts are summed in one order whatever they are.
    let on_tiles = P::fits(&p);
    let serial = if on_tiles {
        P::on_tiles
    } else {
        Product::run_serial
    };
    if threads <= 1 {
        // SAFETY: the caller's.
        return unsafe { serial(&p) };
    }
    let (gm, gn) = grid(p.m, p.n, threads);
    let unit = if on_tiles { (32, 32) } else { (2, P::W) };
    let rows = p.m.div_ceil(gm).next_multiple_of(unit.0);
    let cols = p.n.div_ceil(gn).next_multiple_of(unit.1);
    let (gm, gn) = (p.m.div_ceil(rows), p.n.div_ceil(cols));
    let part = Shared(move |t: usize| {
        let (i, j) = (t / gn * rows, t % gn * cols);
        // SAFETY: the caller's; parts of C are disjoint.
        unsafe {
            let part = Product {
                m: rows.min(p.m - i),
                n: cols.min(p.n - j),
                a: p.a.at(i, 0),
                b: p.b.at(0, j),
                c: p.c.at(i, j),
                bias: p
                    .bias
                    .map(|(b, rs, cs)| (b.offset(i as isize * rs + j as isize * cs), rs, cs)),
                ..p
            };
            serial(&part);
        }
    });
    let part = &part;
    pool::parallel_items(gm * gn, |t| part.call(t));
}

/// Whether a product of `m` rows is limited by reading a large B, which then is not worth packing.
fn few<P: Policy>(m: usize, n: usize, k: usize, b: Mat<P::T>) -> bool {
    let bytes = n.saturating_mul(k).saturating_mul(size_of::<P::T>());
    let from = match (b.rs, b.cs) {
        (1, _) => FEW_FROM,
        (_, 1) => MANY_FROM,
        _ => usize::MAX,
    };
    m <= FEW && bytes >= from
}

/// Cuts the longer side again and again, by the factors of `threads`.
fn grid(m: usize, n: usize, mut threads: usize) -> (usize, usize) {
    let (mut gm, mut gn) = (1, 1);
    let mut factor = 2;
    while threads > 1 {
        if factor * factor > threads {
            factor = threads;
        }
        if threads % factor != 0 {
            factor += 1;
            continue;
        }
        threads /= factor;
        if n / gn >= m / gm {
            gn *= factor
        } else {
            gm *= factor
        }
    }
    (gm, gn)
}

macro_rules! float_gemm {
    ($t:ty, $scale:ty, $portable:ident, $avx2:ident, $avx512:ident $(, $special:ident if $when:expr)?) => {
        impl GemmElement for $t {
            type Scale = $scale;
            unsafe fn gemm(
                m: usize, n: usize, k: usize, alpha: $scale, a: Mat<$t>, b: Mat<$t>, beta: $scale, c: MatMut<$t>, bias: Option<*const $t>,
            ) {
                let bias = bias.map(|b| (b, 0, 1));
                let plain = alpha == 1.0 && beta == 0.0 && c.cs == 1 && c.rs == n as isize;
                if plain && tall::fits::<policy::$portable>(m, n, k) {
                    // SAFETY: as below. Wider vectors would be mostly empty.
                    unsafe {
                        #[cfg(target_arch = "x86_64")]
                        if level() != Level::Baseline {
                            return tall::run(Product::<policy::$avx2> { m, n, k, alpha, a, b, beta, c, bias });
                        }
                        return tall::run(Product::<policy::$portable> { m, n, k, alpha, a, b, beta, c, bias });
                    }
                }
                // SAFETY: the caller's; the instructions of a level are there where `level` says so.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    match level() {
                        $(Level::Avx512 if $when => return run(Product::<policy::$special> { m, n, k, alpha, a, b, beta, c, bias }),)?
                        Level::Avx512 => return run(Product::<policy::$avx512> { m, n, k, alpha, a, b, beta, c, bias }),
                        Level::Avx2 => return run(Product::<policy::$avx2> { m, n, k, alpha, a, b, beta, c, bias }),
                        Level::Baseline => {}
                    }
                    run(Product::<policy::$portable> { m, n, k, alpha, a, b, beta, c, bias });
                }
            }
            const SMALL: Option<unsafe fn(Batch<$t>)> = Some(|all| {
                // SAFETY: the caller's; the instructions of a level are there where `level` says so. Wider vectors would be
                // mostly empty.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    if level() != Level::Baseline {
                        return policy::$avx2::with(small::Small::<policy::$avx2>::new(all));
                    }
                    policy::$portable::with(small::Small::<policy::$portable>::new(all));
                }
            });
        }
    };
}
float_gemm! { f32, f32, F32Portable, F32Avx2, F32Avx512 }
float_gemm! { f64, f64, F64Portable, F64Avx2, F64Avx512 }
float_gemm! { f16, f32, F16Portable, F16Avx2, F16Avx512 }
float_gemm! { bf16, f32, Bf16Portable, Bf16Avx2, Bf16Avx512, Bf16Dot if std::is_x86_feature_detected!("avx512bf16") }

// Arithmetic that wraps is the same with a sign and without.
macro_rules! simple_gemm {
    ($run:ident: $($t:ty as $u:ty)+) => { $(
        impl GemmElement for $t {
            type Scale = $t;
            unsafe fn gemm(
                m: usize, n: usize, k: usize, alpha: $t, a: Mat<$t>, b: Mat<$t>, beta: $t, c: MatMut<$t>, bias: Option<*const $t>,
            ) {
                let (a, b) = (Mat::new(a.ptr.cast(), a.rs, a.cs), Mat::new(b.ptr.cast(), b.rs, b.cs));
                let c = MatMut::new(c.ptr.cast(), c.rs, c.cs);
                let (alpha, beta, bias) = (alpha as $u, beta as $u, bias.map(|b| b.cast()));
                // SAFETY: the caller's.
                unsafe { simple::Simple::<$u> { m, n, k, alpha, a, b, beta, c, bias }.$run() }
            }
        }
    )+ };
}
simple_gemm! { run: u8 as u8 i8 as u8 u16 as u16 i16 as u16 u32 as u32 i32 as u32 }
simple_gemm! { run_by_size: u64 as u64 i64 as u64 }

macro_rules! complex_gemm {
    ($($t:ty)+) => { $(
        impl GemmElement for Complex<$t> {
            type Scale = Self;
            unsafe fn gemm(
                m: usize, n: usize, k: usize, alpha: Self, a: Mat<Self>, b: Mat<Self>, beta: Self, c: MatMut<Self>, bias: Option<*const Self>,
            ) {
                // SAFETY: the caller's.
                unsafe { complex::run((m, n, k), alpha, a, b, beta, c, bias) }
            }
        }
    )+ };
}
complex_gemm! { f32 f64 }
