//! Transforms of several lines side by side, a line in each place of the vectors: no number meets one of another line, and none
//! has to be moved within a vector. Stockham's algorithm, decimation in frequency (Van Loan, Computational Frameworks for the
//! Fast Fourier Transform, 1992, section 1.7).

#![allow(
    unsafe_code,
    reason = "vectors are made where the machine has them, and read without a look at each place"
)]

use super::vector::Vector;
use num_complex::Complex;
use rustfft::FftNum;
use std::f64::consts::TAU;

/// The longest lines that are transformed side by side: of longer ones a block does not stay in a cache.
const LONGEST: usize = 4096;

/// How lines of a length are transformed.
pub(super) struct Side<T> {
    passes: Vec<Pass<T>>,
    /// `exp(-πi k / n)`: what joins the halves of real lines of `2 n`.
    halves: Vec<Complex<T>>,
}

/// One factor of the length: `count` butterflies of `radix`.
struct Pass<T> {
    radix: usize,
    count: usize,
    /// Powers of the root of a butterfly.
    roots: Vec<Complex<T>>,
    /// Powers 1 to `radix - 1` of the root of each butterfly.
    twiddles: Vec<Complex<T>>,
}

fn root<T: FftNum>(k: usize, n: usize) -> Complex<T> {
    let angle = -TAU * k as f64 / n as f64;
    let of = |x: f64| T::from_f64(x).unwrap_or_else(T::zero);
    Complex::new(of(angle.cos()), of(angle.sin()))
}

/// The factors of `n`, if there are butterflies for all of them: few passes, and none of 2 where two of 4 do.
fn factors(n: usize) -> Option<Vec<usize>> {
    let twos = n.trailing_zeros() as usize;
    let (eights, rest) = match twos % 3 {
        0 => (twos / 3, [1, 1]),
        1 if twos == 1 => (0, [2, 1]),
        1 => (twos / 3 - 1, [4, 4]),
        _ => (twos / 3, [4, 1]),
    };
    let mut found = vec![8; eights];
    found.extend(rest.into_iter().filter(|&radix| radix > 1));
    let mut left = n >> twos;
    for radix in [3, 5, 7] {
        while left % radix == 0 {
            found.push(radix);
            left /= radix;
        }
    }
    (left == 1).then_some(found)
}

impl<T: FftNum> Side<T> {
    /// Whether lines of `n` numbers are transformed so.
    pub fn fits(n: usize) -> bool {
        (2..=LONGEST).contains(&n) && factors(n).is_some()
    }

    /// For lines of `n` numbers that [fit](Self::fits).
    pub fn of(n: usize) -> Self {
        let mut left = n;
        let mut passes = Vec::new();
        for radix in factors(n).unwrap_or_default() {
            let count = left / radix;
            let powers = |p: usize| (1..radix).map(move |k| (p * k) % left);
            passes.push(Pass {
                radix,
                count,
                roots: (0..radix).map(|k| root(k, radix)).collect(),
                twiddles: (0..count).flat_map(powers).map(|k| root(k, left)).collect(),
            });
            left = count;
        }
        let halves = (0..=n).map(|k| root(k, 2 * n)).collect();
        Self { passes, halves }
    }
}

/// Real and imaginary parts of some lines, and room for as many.
pub(super) struct Block<V> {
    room: Vec<V>,
    /// Vectors from one part of the room to the next.
    apart: usize,
    /// The numbers are in the last two of the four parts.
    turned: bool,
}

/// The parts of a room: numbers, and where others are written to.
struct Parts<'a, V> {
    re: &'a mut [V],
    im: &'a mut [V],
    to_re: &'a mut [V],
    to_im: &'a mut [V],
}

impl<V: Vector> Block<V> {
    /// For lines of `n` numbers.
    ///
    /// # Safety
    /// The machine has the instructions of vectors.
    pub unsafe fn new(n: usize) -> Self {
        // The parts do not begin at the same place of a page: caches would take them for each other.
        let apart = n + 12;
        // SAFETY: the caller's promise.
        let zero = unsafe { V::zero() };
        Self {
            room: vec![zero; 4 * apart],
            apart,
            turned: false,
        }
    }

    #[inline(always)]
    fn parts(&mut self) -> Parts<'_, V> {
        let (first, last) = self.room.split_at_mut(2 * self.apart);
        let (now, then) = if self.turned {
            (last, first)
        } else {
            (first, last)
        };
        let (re, im) = now.split_at_mut(self.apart);
        let (to_re, to_im) = then.split_at_mut(self.apart);
        Parts {
            re,
            im,
            to_re,
            to_im,
        }
    }

    /// The real parts and the imaginary ones.
    #[inline(always)]
    pub fn numbers(&mut self) -> (&mut [V], &mut [V]) {
        let parts = self.parts();
        (parts.re, parts.im)
    }

    /// Transforms the lines, unscaled.
    #[inline(always)]
    pub fn transform(&mut self, how: &Side<V::T>, forward: bool)
    where
        V::T: FftNum,
    {
        let mut apart = 1;
        for pass in &how.passes {
            let mut parts = self.parts();
            if !forward {
                // With real and imaginary parts swapped it goes backwards.
                std::mem::swap(&mut parts.re, &mut parts.im);
                std::mem::swap(&mut parts.to_re, &mut parts.to_im);
            }
            match pass.radix {
                2 => parts.pass::<2, Two>(pass, apart),
                3 => parts.pass::<3, Three>(pass, apart),
                4 => parts.pass::<4, Four>(pass, apart),
                5 => parts.pass::<5, Five>(pass, apart),
                8 => parts.pass::<8, Eight>(pass, apart),
                _ => parts.pass::<7, Seven>(pass, apart),
            }
            apart *= pass.radix;
            self.turned = !self.turned;
        }
    }

    /// From the transform of the even elements and, as imaginary parts, the odd ones: the first half of that
    /// of all, twice as large.
    #[inline(always)]
    pub fn join_halves(&mut self, how: &Side<V::T>, n: usize)
    where
        V::T: FftNum,
    {
        let Parts {
            re,
            im,
            to_re,
            to_im,
        } = self.parts();
        for k in 0..=n {
            // Element `n` is the first one again.
            let i = if k == n { 0 } else { k };
            let j = if k == 0 { 0 } else { n - k };
            let (a, b, c, d) = (re[i], im[i], re[j], im[j]);
            let (even_re, even_im) = (a.plus(c), b.minus(d));
            let (odd_re, odd_im) = (b.plus(d), c.minus(a));
            let w = how.halves[k];
            let (c, s) = (a.splat(w.re), a.splat(w.im));
            to_re[k] = even_re.plus_product(odd_re, c).minus_product(odd_im, s);
            to_im[k] = even_im.plus_product(odd_im, c).plus_product(odd_re, s);
        }
        self.turned = !self.turned;
    }

    /// The reverse, twice as large: what a transform backwards of `n` turns into the even elements and the odd ones.
    #[inline(always)]
    pub fn split_halves(&mut self, how: &Side<V::T>, n: usize)
    where
        V::T: FftNum,
    {
        let Parts {
            re,
            im,
            to_re,
            to_im,
        } = self.parts();
        for k in 0..n {
            let (a, b, c, d) = (re[k], im[k], re[n - k], im[n - k]);
            let (even_re, even_im) = (a.plus(c), b.minus(d));
            let (x, y) = (a.minus(c), b.plus(d));
            let w = how.halves[k];
            let (cos, sin) = (a.splat(w.re), a.splat(w.im));
            // The root is that of a transform forwards: its conjugate is meant.
            let odd_re = x.times(cos).plus_product(y, sin);
            let odd_im = y.times(cos).minus_product(x, sin);
            to_re[k] = even_re.minus(odd_im);
            to_im[k] = even_im.plus(odd_re);
        }
        self.turned = !self.turned;
    }
}

impl<V: Vector> Parts<'_, V> {
    /// All butterflies of a pass; `apart` is the product of the factors before.
    #[inline(always)]
    fn pass<const R: usize, B: Butterfly<R>>(self, pass: &Pass<V::T>, apart: usize) {
        let step = pass.count * apart;
        let (re, im) = (&self.re[..R * step], &self.im[..R * step]);
        let (to_re, to_im) = (&mut self.to_re[..R * step], &mut self.to_im[..R * step]);
        for p in 0..pass.count {
            let twiddles = &pass.twiddles[p * (R - 1)..][..R - 1];
            for q in 0..apart {
                // SAFETY: places below `R count apart`, as `p` is below `count`, `q` below `apart`, and `j` and `k` below `R`.
                unsafe {
                    let from = p * apart + q;
                    let mut a = [*re.get_unchecked(from); R];
                    let mut b = [*im.get_unchecked(from); R];
                    for j in 1..R {
                        a[j] = *re.get_unchecked(from + j * step);
                        b[j] = *im.get_unchecked(from + j * step);
                    }
                    let (a, b) = B::run(a, b, &pass.roots);
                    let to = p * apart * R + q;
                    *to_re.get_unchecked_mut(to) = a[0];
                    *to_im.get_unchecked_mut(to) = b[0];
                    for k in 1..R {
                        let (mut x, mut y) = (a[k], b[k]);
                        if p > 0 {
                            let w = twiddles[k - 1];
                            let (c, s) = (x.splat(w.re), x.splat(w.im));
                            (x, y) = (
                                x.times(c).minus_product(y, s),
                                y.times(c).plus_product(x, s),
                            );
                        }
                        *to_re.get_unchecked_mut(to + k * apart) = x;
                        *to_im.get_unchecked_mut(to + k * apart) = y;
                    }
                }
            }
        }
    }
}

/// The transform of `R` numbers, real and imaginary parts apart; `roots` are the powers of its root.
trait Butterfly<const R: usize> {
    fn run<V: Vector>(re: [V; R], im: [V; R], roots: &[Complex<V::T>]) -> ([V; R], [V; R]);
}

struct Two;
impl Butterfly<2> for Two {
    #[inline(always)]
    fn run<V: Vector>(re: [V; 2], im: [V; 2], _: &[Complex<V::T>]) -> ([V; 2], [V; 2]) {
        (
            [re[0].plus(re[1]), re[0].minus(re[1])],
            [im[0].plus(im[1]), im[0].minus(im[1])],
        )
    }
}

struct Four;
impl Butterfly<4> for Four {
    #[inline(always)]
    fn run<V: Vector>(re: [V; 4], im: [V; 4], _: &[Complex<V::T>]) -> ([V; 4], [V; 4]) {
        let (a, c) = (re[0].plus(re[2]), re[0].minus(re[2]));
        let (b, d) = (re[1].plus(re[3]), re[1].minus(re[3]));
        let (e, g) = (im[0].plus(im[2]), im[0].minus(im[2]));
        let (f, h) = (im[1].plus(im[3]), im[1].minus(im[3]));
        // Times -i: (d, h) becomes (h, -d).
        (
            [a.plus(b), c.plus(h), a.minus(b), c.minus(h)],
            [e.plus(f), g.minus(d), e.minus(f), g.plus(d)],
        )
    }
}

struct Eight;
impl Butterfly<8> for Eight {
    #[inline(always)]
    fn run<V: Vector>(re: [V; 8], im: [V; 8], roots: &[Complex<V::T>]) -> ([V; 8], [V; 8]) {
        let even_re = [re[0], re[2], re[4], re[6]];
        let odd_re = [re[1], re[3], re[5], re[7]];
        let even_im = [im[0], im[2], im[4], im[6]];
        let odd_im = [im[1], im[3], im[5], im[7]];
        let (a, b) = Four::run(even_re, even_im, roots);
        let (x, y) = Four::run(odd_re, odd_im, roots);
        // The odd ones times the powers 1, (1 - i) / sqrt 2, -i, -(1 + i) / sqrt 2.
        let half = re[0].splat(roots[1].re);
        let c = [
            x[0],
            x[1].plus(y[1]).times(half),
            y[2],
            y[3].minus(x[3]).times(half),
        ];
        // Of the last two the signs are turned.
        let d = [
            y[0],
            y[1].minus(x[1]).times(half),
            x[2],
            x[3].plus(y[3]).times(half),
        ];
        (
            [
                a[0].plus(c[0]),
                a[1].plus(c[1]),
                a[2].plus(c[2]),
                a[3].plus(c[3]),
                a[0].minus(c[0]),
                a[1].minus(c[1]),
                a[2].minus(c[2]),
                a[3].minus(c[3]),
            ],
            [
                b[0].plus(d[0]),
                b[1].plus(d[1]),
                b[2].minus(d[2]),
                b[3].minus(d[3]),
                b[0].minus(d[0]),
                b[1].minus(d[1]),
                b[2].plus(d[2]),
                b[3].plus(d[3]),
            ],
        )
    }
}

/// The sums over `j` of `sums[j]` and `differences[j]` times the real and the imaginary parts of `roots[j]`; to the first `x` is
/// added.
#[inline(always)]
fn weighed<V: Vector, const H: usize>(
    x: V,
    sums: [V; H],
    differences: [V; H],
    roots: [Complex<V::T>; H],
) -> (V, V) {
    let mut a = x.plus_product(sums[0], x.splat(roots[0].re));
    let mut b = differences[0].times(x.splat(roots[0].im));
    for j in 1..H {
        a = a.plus_product(sums[j], x.splat(roots[j].re));
        b = b.plus_product(differences[j], x.splat(roots[j].im));
    }
    (a, b)
}

/// Butterflies of odd primes, whose roots come in conjugate pairs: `Name R; pairs of places; place and its pair [powers]`.
macro_rules! odd {
    ($name:ident $r:literal; $($j:literal $pair:literal),+; $($k:literal $other:literal [$($power:literal),+]),+) => {
        struct $name;
        impl Butterfly<$r> for $name {
            #[inline(always)]
            fn run<V: Vector>(re: [V; $r], im: [V; $r], roots: &[Complex<V::T>]) -> ([V; $r], [V; $r]) {
                let sums_re = [$(re[$j].plus(re[$pair])),+];
                let sums_im = [$(im[$j].plus(im[$pair])),+];
                let differences_re = [$(re[$j].minus(re[$pair])),+];
                let differences_im = [$(im[$j].minus(im[$pair])),+];
                let (mut out_re, mut out_im) = (re, im);
                $(out_re[0] = out_re[0].plus(sums_re[$j - 1]);)+
                $(out_im[0] = out_im[0].plus(sums_im[$j - 1]);)+
                $(
                    let powers = [$(roots[$power]),+];
                    let (a, c) = weighed(re[0], sums_re, differences_re, powers);
                    let (b, d) = weighed(im[0], sums_im, differences_im, powers);
                    (out_re[$k], out_im[$k]) = (a.minus(d), b.plus(c));
                    (out_re[$other], out_im[$other]) = (a.plus(d), b.minus(c));
                )+
                (out_re, out_im)
            }
        }
    };
}
odd!(Three 3; 1 2; 1 2 [1]);
odd!(Five 5; 1 4, 2 3; 1 4 [1, 2], 2 3 [2, 4]);
odd!(Seven 7; 1 6, 2 5, 3 4; 1 6 [1, 2, 3], 2 5 [2, 4, 6], 3 4 [3, 6, 2]);
