//! Transforms of several lines side by side, a line in each place of the vectors: no number meets one of another line, and none
//! has to be moved within a vector. Decimation in frequency in place (Van Loan, Computational Frameworks for the Fast Fourier
//! Transform, 1992, section 1.9): results lie in an order of their own, which costs nothing, as whoever reads them reads vectors.

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
    /// Where each result lies, and behind them the place of one more.
    places: Vec<usize>,
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

    /// How many numbers a line has.
    fn len(&self) -> usize {
        self.places.len() - 1
    }

    /// Where each result of a transform lies in its block, and behind them the place of one more.
    pub fn places(&self) -> &[usize] {
        &self.places
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
        let place = |mut k: usize| {
            let digits = passes.iter().map(|pass| {
                let digit = k % pass.radix;
                k /= pass.radix;
                digit * pass.count
            });
            digits.sum::<usize>()
        };
        let places = (0..n).map(place).chain([n]).collect();
        Self {
            passes,
            places,
            halves,
        }
    }
}

/// Real and imaginary parts of some lines.
pub(super) struct Block<V> {
    room: Vec<V>,
    /// Vectors from the real parts to the imaginary ones.
    apart: usize,
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
            room: vec![zero; 2 * apart],
            apart,
        }
    }

    /// The real parts and the imaginary ones.
    #[inline(always)]
    pub fn numbers(&mut self) -> (&mut [V], &mut [V]) {
        self.room.split_at_mut(self.apart)
    }

    /// Transforms the lines, unscaled. The results lie at the [places](Side::places) of the plan.
    #[inline(always)]
    pub fn transform(&mut self, how: &Side<V::T>, forward: bool)
    where
        V::T: FftNum,
    {
        let (mut re, mut im) = self.numbers();
        if !forward {
            // With real and imaginary parts swapped it goes backwards.
            std::mem::swap(&mut re, &mut im);
        }
        let n = how.len();
        let (re, im) = (&mut re[..n], &mut im[..n]);
        for pass in &how.passes {
            match pass.radix {
                2 => butterflies::<V, 2, Two>(re, im, pass),
                3 => butterflies::<V, 3, Three>(re, im, pass),
                4 => butterflies::<V, 4, Four>(re, im, pass),
                5 => butterflies::<V, 5, Five>(re, im, pass),
                8 => butterflies::<V, 8, Eight>(re, im, pass),
                _ => butterflies::<V, 7, Seven>(re, im, pass),
            }
        }
    }

    /// From the transform of the even elements and, as imaginary parts, the odd ones: the first half of that
    /// of all, twice as large, in the same order. Two elements at a time, of which each is made from both.
    #[inline(always)]
    pub fn join_halves(&mut self, how: &Side<V::T>)
    where
        V::T: FftNum,
    {
        let n = how.len();
        let (re, im) = self.numbers();
        for k in 0..=n / 2 {
            // Element `n` is the first one again.
            let (i, j, to) = (how.places[k], how.places[(n - k) % n], how.places[n - k]);
            let (a, b, c, d) = (re[i], im[i], re[j], im[j]);
            let (even_re, even_im) = (a.plus(c), b.minus(d));
            let (odd_re, odd_im) = (b.plus(d), c.minus(a));
            let w = how.halves[k];
            let (c, s) = (a.splat(w.re), a.splat(w.im));
            let (x, y) = (
                odd_re.times(c).minus_product(odd_im, s),
                odd_im.times(c).plus_product(odd_re, s),
            );
            (re[to], im[to]) = (even_re.minus(x), y.minus(even_im));
            (re[i], im[i]) = (even_re.plus(x), y.plus(even_im));
        }
    }

    /// The reverse, twice as large: what a transform backwards turns into the even elements and the odd ones. Before
    /// transforms elements lie in their order.
    #[inline(always)]
    pub fn split_halves(&mut self, how: &Side<V::T>)
    where
        V::T: FftNum,
    {
        let n = how.len();
        let (re, im) = self.numbers();
        for k in 0..=n / 2 {
            let (a, b, c, d) = (re[k], im[k], re[n - k], im[n - k]);
            let (even_re, even_im) = (a.plus(c), b.minus(d));
            let (x, y) = (a.minus(c), b.plus(d));
            let w = how.halves[k];
            let (cos, sin) = (a.splat(w.re), a.splat(w.im));
            // The root is that of a transform forwards: its conjugate is meant.
            let odd_re = x.times(cos).plus_product(y, sin);
            let odd_im = y.times(cos).minus_product(x, sin);
            (re[n - k], im[n - k]) = (even_re.plus(odd_im), odd_re.minus(even_im));
            (re[k], im[k]) = (even_re.minus(odd_im), even_im.plus(odd_re));
        }
    }
}

/// All butterflies of a pass.
#[inline(always)]
fn butterflies<V: Vector<T: FftNum>, const R: usize, B: Butterfly<R>>(
    re: &mut [V],
    im: &mut [V],
    pass: &Pass<V::T>,
) {
    let (n, step) = (re.len().min(im.len()), pass.count);
    for p in 0..step {
        let twiddles = &pass.twiddles[p * (R - 1)..][..R - 1];
        for from in (p..n).step_by(R * step) {
            // SAFETY: places below `n`, a multiple of `R step`, as `p` is below `step`, and `j` and `k` below `R`.
            unsafe {
                let mut a = [*re.get_unchecked(from); R];
                let mut b = [*im.get_unchecked(from); R];
                for j in 1..R {
                    a[j] = *re.get_unchecked(from + j * step);
                    b[j] = *im.get_unchecked(from + j * step);
                }
                let (a, b) = B::run(a, b, &pass.roots);
                *re.get_unchecked_mut(from) = a[0];
                *im.get_unchecked_mut(from) = b[0];
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
                    *re.get_unchecked_mut(from + k * step) = x;
                    *im.get_unchecked_mut(from + k * step) = y;
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
