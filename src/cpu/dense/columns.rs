//! Loops over several columns at once: their multiples added to a vector, their products with one, or both in one pass.
//!
//! Written out in vectors: the compiler keeps sums of several columns in pieces of vectors, and adds the lanes of each one
//! after the other, which takes longer than the columns of a small matrix do.

#![allow(unsafe_code, reason = "vector instructions over checked slices")]

use super::number::{Number, Real};
use crate::cpu::vectors::{Lanes, Task, at, put, run};
use std::marker::PhantomData;

/// Columns of a pass: enough for the additions of one sum not to wait for each other.
pub const ABREAST: usize = 4;

/// What a pass does with columns `x`.
trait Work {
    /// `y += by x`.
    const ADD: bool;
    /// The sums of `conj(x) z`.
    const DOT: bool;
}
struct Add;
struct Dot;
struct Both;
impl Work for Add {
    const ADD: bool = true;
    const DOT: bool = false;
}
impl Work for Dot {
    const ADD: bool = false;
    const DOT: bool = true;
}
impl Work for Both {
    const ADD: bool = true;
    const DOT: bool = true;
}

/// Where the numbers of a pass lie: real ones, or the parts of complex ones side by side. Neither `y` nor `z` is read by work
/// without it.
struct Pass<R, W, const C: usize, const PAIRS: bool> {
    work: PhantomData<W>,
    y: *mut R,
    by: [(R, R); C],
    x: [*const R; C],
    z: *const R,
    /// Numbers of each.
    n: usize,
}

/// What a pass carries from vector to vector: factors, and sums of products with `z` and with `z` whose parts are exchanged.
struct Carried<V, const C: usize> {
    by: [(V, V); C],
    sums: [(V, V); C],
}

impl<R: Real, W: Work, const C: usize, const PAIRS: bool> Task<R> for Pass<R, W, C, PAIRS> {
    type Out = [(R, R); C];
    #[inline(always)]
    unsafe fn run<V: Lanes<R>>(self) -> Self::Out {
        // SAFETY: as the caller promises.
        unsafe {
            let zero = V::splat(R::zero());
            let mut carried = Carried {
                by: spread(&self.by),
                sums: [(zero, zero); C],
            };
            let mut i = 0;
            while i + V::WIDE <= self.n {
                self.step(&mut carried, i, None);
                i += V::WIDE;
            }
            if i < self.n {
                self.step(&mut carried, i, Some(self.n - i));
            }
            let mut out = [(R::zero(), R::zero()); C];
            for c in 0..C {
                let (even, odd) = carried.sums[c].0.sums();
                let (first, second) = carried.sums[c].1.sums();
                out[c] = (even + odd, first - second);
            }
            out
        }
    }
}

/// Both parts of factors as vectors. (A closure would be a function without their instructions.)
#[inline(always)]
unsafe fn spread<R: Real, V: Lanes<R>, const C: usize>(parts: &[(R, R); C]) -> [(V, V); C] {
    // SAFETY: as the callers promise.
    unsafe {
        let zero = V::splat(R::zero());
        let mut all = [(zero, zero); C];
        for c in 0..C {
            all[c] = (V::splat(parts[c].0), V::splat(parts[c].1));
        }
        all
    }
}

type Places<R, const C: usize> = (*mut R, [(R, R); C], [*const R; C], *const R);

impl<R: Real, W: Work, const C: usize, const PAIRS: bool> Pass<R, W, C, PAIRS> {
    fn new((y, by, x, z): Places<R, C>, n: usize) -> Self {
        let work = PhantomData;
        Self {
            work,
            y,
            by,
            x,
            z,
            n,
        }
    }

    /// A vector of each, or the first numbers of one.
    ///
    /// # Safety
    /// So many numbers lie from `i` on in all that the work takes, and the code is compiled for what `V` needs.
    #[inline(always)]
    unsafe fn step<V: Lanes<R>>(&self, carried: &mut Carried<V, C>, i: usize, part: Option<usize>) {
        // SAFETY: as the caller promises.
        unsafe {
            let zero = V::splat(R::zero());
            let z = if W::DOT { at(self.z, i, part) } else { zero };
            let turned = if W::DOT && PAIRS { z.swapped() } else { zero };
            let mut u = if W::ADD { at(self.y, i, part) } else { zero };
            let mut v = zero;
            for c in 0..C {
                let x: V = at(self.x[c], i, part);
                let ((re, im), (same, cross)) = (carried.by[c], &mut carried.sums[c]);
                if W::ADD {
                    u = u.plus(re, x);
                }
                if W::ADD && PAIRS {
                    v = v.plus(im, x);
                }
                if W::DOT {
                    *same = same.plus(x, z);
                }
                if W::DOT && PAIRS {
                    *cross = cross.plus(x, turned);
                }
            }
            if W::ADD {
                let u = if PAIRS { u.turned(v.swapped()) } else { u };
                put(u, self.y, i, part);
            }
        }
    }
}

/// A pass over real or complex numbers; `y` and `z` are empty where the work has no use for them.
fn over<T: Number, W: Work, const C: usize>(
    y: &mut [T],
    by: [T; C],
    x: [&[T]; C],
    z: &[T],
) -> [T; C] {
    let n = if W::ADD { y.len() } else { z.len() };
    assert!((!W::DOT || z.len() == n) && x.iter().all(|x| x.len() == n));
    let about = (
        T::flat_mut(y).as_mut_ptr(),
        by.map(|v| (v.re(), v.im())),
        x.map(|x| T::flat(x).as_ptr()),
        T::flat(z).as_ptr(),
    );
    // SAFETY: so many numbers are in each slice, and `y` is borrowed alone.
    let sums = unsafe {
        if T::COMPLEX {
            run(Pass::<_, W, C, true>::new(about, 2 * n))
        } else {
            run(Pass::<_, W, C, false>::new(about, n))
        }
    };
    sums.map(|(re, im)| T::parts(re, im))
}

/// `y += by[0] x[0] + by[1] x[1] ...`.
pub fn add<T: Number, const C: usize>(y: &mut [T], by: [T; C], x: [&[T]; C]) {
    over::<T, Add, C>(y, by, x, &[]);
}

/// The sums of `conj(x) z` for each column.
#[must_use]
pub fn dot<T: Number, const C: usize>(x: [&[T]; C], z: &[T]) -> [T; C] {
    over::<T, Dot, C>(&mut [], [T::zero(); C], x, z)
}

/// Both: `y += by[0] x[0] + by[1] x[1] ...`, and the sums of `conj(x) z` for each column.
pub fn add_and_dot<T: Number, const C: usize>(
    y: &mut [T],
    by: [T; C],
    x: [&[T]; C],
    z: &[T],
) -> [T; C] {
    over::<T, Both, C>(y, by, x, z)
}

/// Columns that a reflection changes.
struct Turn<R, const C: usize, const PAIRS: bool> {
    x: [*mut R; C],
    /// What they are multiplied by where they are added up.
    of: [(R, R); C],
    /// What the sum is multiplied by where it is added to them.
    by: [(R, R); C],
    n: usize,
}

impl<R: Real, const C: usize, const PAIRS: bool> Task<R> for Turn<R, C, PAIRS> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Lanes<R>>(self) {
        // SAFETY: as the caller promises.
        unsafe {
            let (of, by) = (spread(&self.of), spread(&self.by));
            let zero = V::splat(R::zero());
            let mut i = 0;
            while i < self.n {
                let left = self.n - i;
                let part = (left < V::WIDE).then_some(left);
                let (mut x, mut u, mut v) = ([zero; C], zero, zero);
                for c in 0..C {
                    x[c] = at(self.x[c], i, part);
                    u = u.plus(of[c].0, x[c]);
                    if PAIRS {
                        v = v.plus(of[c].1, x[c]);
                    }
                }
                let sum = if PAIRS { u.turned(v.swapped()) } else { u };
                for c in 0..C {
                    let mut to = x[c].plus(by[c].0, sum);
                    if PAIRS {
                        to = to.turned(zero.plus(by[c].1, sum).swapped());
                    }
                    put(to, self.x[c], i, part);
                }
                i += V::WIDE;
            }
        }
    }
}

/// `x -= scale (x[0] v[0] + x[1] v[1] ...) v'`: rows of neighbouring columns, reflected.
pub fn reflect<T: Number, const C: usize>(x: [&mut [T]; C], v: [T; C], scale: T::Size) {
    let n = x[0].len();
    assert!(x.iter().all(|x| x.len() == n));
    let x = x.map(|x| T::flat_mut(x).as_mut_ptr());
    let of = v.map(|v| (v.re(), v.im()));
    let by = v.map(|v| (-v.re() * scale, v.im() * scale));
    // SAFETY: so many numbers are in each slice, which are borrowed alone.
    unsafe {
        if T::COMPLEX {
            run(Turn::<_, C, true> {
                x,
                of,
                by,
                n: 2 * n,
            });
        } else {
            run(Turn::<_, C, false> { x, of, by, n });
        }
    }
}

/// Two columns that turn in their plane.
struct Rotation<R, const PAIRS: bool> {
    x: *mut R,
    y: *mut R,
    cos: R,
    sin: (R, R),
    n: usize,
}

impl<R: Real, const PAIRS: bool> Task<R> for Rotation<R, PAIRS> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Lanes<R>>(self) {
        // SAFETY: as the caller promises.
        unsafe {
            let zero = V::splat(R::zero());
            let (cos, sin, back) = (
                V::splat(self.cos),
                V::splat(self.sin.0),
                V::splat(-self.sin.0),
            );
            let cross = V::splat(self.sin.1);
            let mut i = 0;
            while i < self.n {
                let left = self.n - i;
                let part = (left < V::WIDE).then_some(left);
                let (x, y): (V, V) = (at(self.x, i, part), at(self.y, i, part));
                let mut first = zero.plus(cos, x).plus(sin, y);
                let mut second = zero.plus(cos, y).plus(back, x);
                if PAIRS {
                    first = first.turned(zero.plus(cross, y).swapped());
                    second = second.turned(zero.plus(cross, x).swapped());
                }
                put(first, self.x, i, part);
                put(second, self.y, i, part);
                i += V::WIDE;
            }
        }
    }
}

/// Turns two columns: `x, y = cos x + sin y, cos y - conj(sin) x`.
pub fn rotate<T: Number>(x: &mut [T], y: &mut [T], cos: T::Size, sin: T) {
    let n = x.len();
    assert!(y.len() == n);
    let (x, y) = (T::flat_mut(x).as_mut_ptr(), T::flat_mut(y).as_mut_ptr());
    let sin = (sin.re(), sin.im());
    // SAFETY: so many numbers are in both slices, which are borrowed alone.
    unsafe {
        if T::COMPLEX {
            run(Rotation::<_, true> {
                x,
                y,
                cos,
                sin,
                n: 2 * n,
            });
        } else {
            run(Rotation::<_, false> { x, y, cos, sin, n });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Sample, sample};
    use super::*;
    use num_complex::Complex;

    fn near<T: Sample>(a: &[T], b: &[T]) {
        let limit = 100.0 * <T::Size as num_traits::Float>::epsilon().double();
        assert!(a.len() == b.len());
        for (&a, &b) in a.iter().zip(b) {
            assert!((a - b).abs().double() < limit, "{a:?} {b:?}");
        }
    }

    fn check<T: Sample>() {
        for n in 0..20 {
            let m = sample::<T>(n, 5, 3);
            let columns: Vec<&[T]> = (0..5).map(|j| m.view().column(j)).collect();
            let (x, z) = ([columns[0], columns[1], columns[2]], columns[3]);
            let factors = sample::<T>(3, 1, 4).data;
            let by = [factors[0], factors[1], factors[2]];
            let sums = x.map(|x| (0..n).fold(T::zero(), |s, i| s + x[i].conj() * z[i]));
            let mixed = |i: usize| x[0][i] * by[0] + x[1][i] * by[1] + x[2][i] * by[2];
            let added: Vec<T> = (0..n).map(|i| columns[4][i] + mixed(i)).collect();

            near(&dot(x, z), &sums);
            let mut y = columns[4].to_vec();
            add(&mut y, by, x);
            near(&y, &added);
            let mut y = columns[4].to_vec();
            near(&add_and_dot(&mut y, by, x, z), &sums);
            near(&y, &added);
            plain(columns[4], by, x, z, (&sums, &added));

            let scale = T::Size::near(0.3);
            let mut turned = x.map(<[T]>::to_vec);
            let [p, q, r] = &mut turned;
            reflect([p, q, r], by, scale);
            for (k, turned) in turned.iter().enumerate() {
                let back = by[k].conj().times(scale);
                let all: Vec<T> = (0..n).map(|i| x[k][i] - mixed(i) * back).collect();
                near(turned, &all);
            }

            let (mut p, mut q) = (x[0].to_vec(), x[1].to_vec());
            rotate(&mut p, &mut q, scale, by[0]);
            let first = |i: usize| x[0][i].times(scale) + by[0] * x[1][i];
            let second = |i: usize| x[1][i].times(scale) - by[0].conj() * x[0][i];
            near(&p, &(0..n).map(first).collect::<Vec<T>>());
            near(&q, &(0..n).map(second).collect::<Vec<T>>());
        }
    }

    /// The lanes of machines without AVX2.
    fn plain<T: Sample>(y: &[T], by: [T; 3], x: [&[T]; 3], z: &[T], wanted: (&[T], &[T])) {
        let (mut y, n) = (y.to_vec(), T::flat(z).len());
        let about = (
            T::flat_mut(&mut y).as_mut_ptr(),
            by.map(|v| (v.re(), v.im())),
            x.map(|x| T::flat(x).as_ptr()),
            T::flat(z).as_ptr(),
        );
        // SAFETY: so many numbers are in each slice, and `y` is borrowed alone.
        let sums = unsafe {
            if T::COMPLEX {
                Pass::<_, Both, 3, true>::new(about, n).run::<[T::Size; 4]>()
            } else {
                Pass::<_, Both, 3, false>::new(about, n).run::<[T::Size; 4]>()
            }
        };
        near(&sums.map(|(re, im)| T::parts(re, im)), wanted.0);
        near(&y, wanted.1);
    }

    #[test]
    fn passes_do_what_they_say_of_every_length() {
        check::<f32>();
        check::<f64>();
        check::<Complex<f32>>();
        check::<Complex<f64>>();
    }
}
