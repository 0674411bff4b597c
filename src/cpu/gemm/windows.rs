//! Products whose rows of B are found through a table, so that they may overlap, as the windows of an image do.

#![allow(unsafe_code, reason = "matrices are read and written by pointer")]

use super::kernel::tiles;
use super::pack::pack;
use super::policy::{self, Policy, Task};
use super::{GemmElement, Mat};
use crate::cpu::simd::{Level, level};

/// Elements behind the last row of B that may be read, and behind each row of C that may be written.
pub const SLACK: usize = 32;

/// `C = A B`, or `C += A B`: row `k` of B begins at `b + rows[k]`, C is row-major with rows `pitch` apart.
#[derive(Clone, Copy, Debug)]
pub struct Windows<'a, T> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// A, as [`WindowElement::pack_tiles`] leaves it.
    pub a: *const T,
    /// Where the table counts from.
    pub b: *const T,
    /// The place of each row of B.
    pub rows: &'a [usize],
    /// The first element of C.
    pub c: *mut T,
    /// From one row of C to the next: at least `n + SLACK`.
    pub pitch: usize,
    /// Whether the product is added to what is there.
    pub add: bool,
}

/// Sums of products of lines: `sums[t] += sum over lines and i < width of g[line * width + i] * x[lines[line] + taps[t] + i]`.
#[derive(Clone, Copy, Debug)]
pub struct Dots<'a, T> {
    /// Lines that follow each other, and [`SLACK`] elements behind them.
    pub g: *const T,
    /// Elements of a line.
    pub width: usize,
    /// Where the tables count from.
    pub x: *const T,
    /// The place of each line's partner.
    pub lines: &'a [usize],
    /// How far on each sum's partner lies.
    pub taps: &'a [usize],
    /// One sum a tap.
    pub sums: *mut T,
}

/// Elements that such products are made of.
pub trait WindowElement: GemmElement + Default + std::ops::Add<Output = Self> {
    /// Packs `m` rows of A for columns `k0..k0 + len` out of `depth`: tiles of `[column][row]`.
    ///
    /// # Safety
    /// The block lies within A; `to` has room for `m * depth` elements.
    unsafe fn pack_tiles(
        a: Mat<Self>,
        m: usize,
        k0: usize,
        len: usize,
        depth: usize,
        to: *mut Self,
    );
    /// The most rows of such a tile on this machine.
    fn tile_height() -> usize;
    /// The product, on this thread.
    ///
    /// # Safety
    /// Rows of B are readable for `n` elements and the slack, rows of C writable for `n` and the slack.
    unsafe fn windows(p: Windows<Self>);
    /// The sums, on this thread.
    ///
    /// # Safety
    /// Lines and their partners are readable, with the slack.
    unsafe fn window_dots(p: Dots<Self>);
}

macro_rules! on_level {
    ($portable:ident $avx2:ident $avx512:ident, P => $task:ident::<policy::P> $args:tt) => {
        // SAFETY: the caller's; the instructions of a level are there where `level` says so.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            match level() {
                Level::Avx512 => return policy::$avx512::with($task::<policy::$avx512> $args),
                Level::Avx2 => return policy::$avx2::with($task::<policy::$avx2> $args),
                Level::Baseline => {}
            }
            policy::$portable::with($task::<policy::$portable> $args);
        }
    };
}
macro_rules! window_element {
    ($t:ty, $portable:ident $avx2:ident $avx512:ident) => {
        impl WindowElement for $t {
            unsafe fn pack_tiles(
                a: Mat<$t>,
                m: usize,
                k0: usize,
                len: usize,
                depth: usize,
                to: *mut $t,
            ) {

                on_level!($portable $avx2 $avx512, P => Tiles::<policy::P> { a, m, k0, len, depth, to });
            }
            fn tile_height() -> usize {
                #[cfg(target_arch = "x86_64")]
                match level() {
                    Level::Avx512 => return policy::$avx512::TALL,
                    Level::Avx2 => return policy::$avx2::TALL,
                    Level::Baseline => {}
                }
                policy::$portable::TALL
            }
            unsafe fn windows(p: Windows<$t>) {
                on_level!($portable $avx2 $avx512, P => Run::<policy::P>(p));
            }
            unsafe fn window_dots(p: Dots<$t>) {
                on_level!($portable $avx2 $avx512, P => Sums::<policy::P>(p));
            }
        }
    };
}
window_element! { f32, F32Portable F32Avx2 F32Avx512 }
window_element! { f64, F64Portable F64Avx2 F64Avx512 }

/// The tiles that so many packed rows make on this machine: the first row of each, and how many it has. Rows from the first
/// of one tile to the last of another make the same tiles by themselves.
pub fn row_tiles<T: WindowElement>(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    tiles(rows, T::tile_height())
}

/// Some columns of A.
struct Tiles<P: Policy> {
    a: Mat<P::T>,
    m: usize,
    k0: usize,
    len: usize,
    depth: usize,
    to: *mut P::T,
}

impl<P: Policy> Task for Tiles<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let (rs, cs) = (self.a.rs, self.a.cs);
        for (r0, h) in tiles(self.m, P::TALL) {
            // SAFETY: the caller's; single and double precision are packed as they are.
            unsafe {
                let to = self.to.add(r0 * self.depth + self.k0 * h).cast();
                pack::<P>(self.a.at(r0, 0).ptr, rs, cs, h, h, self.len, to);
            }
        }
    }
}

struct Run<'a, P: Policy>(Windows<'a, P::T>);

impl<P: Policy> Task for Run<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = &self.0;
        let mut a = p.a.cast::<P::P>();
        for (r0, h) in tiles(p.m, P::TALL) {
            let mut j = 0;
            while j < p.n {
                let left = p.n - j;
                macro_rules! height {
                    ($($h:literal)+) => {
                        match (h, left > P::W) {
                            (1, _) if left > 6 * P::W => {
                                tile::<P, 1, 8>(p, a, r0, j);
                                j += 6 * P::W;
                            }
                            $(($h, true) => tile::<P, $h, 2>(p, a, r0, j),)+
                            $(($h, false) => tile::<P, $h, 1>(p, a, r0, j),)+
                            _ => {}
                        }
                    };
                }
                // SAFETY: the caller's; no tile reaches more than the slack beyond the columns.
                unsafe {
                    if P::TALL > 6 {
                        height!(1 2 3 4 5 6 7 8 9 10 11 12);
                    } else if P::TALL > 4 {
                        height!(1 2 3 4 5 6);
                    } else if P::TALL > 2 {
                        height!(1 2 3 4);
                    } else {
                        height!(1 2);
                    }
                }
                j += 2 * P::W;
            }
            // SAFETY: the next tile of A, or its end.
            a = unsafe { a.add(h * p.rows.len()) };
        }
    }
}

/// `MR` rows of `NV` vectors, sums in registers over the whole depth.
#[inline(always)]
unsafe fn tile<P: Policy, const MR: usize, const NV: usize>(
    p: &Windows<P::T>,
    mut a: *const P::P,
    r0: usize,
    j: usize,
) {
    // SAFETY: the caller's.
    unsafe {
        let mut acc = [[P::zero(); NV]; MR];
        let b = p.b.add(j).cast::<P::P>();
        for &row in p.rows {
            let from = b.add(row);
            let mut v = [P::load_b(from); NV];
            for q in 1..NV {
                v[q] = P::load_b(from.add(q * P::W));
            }
            for i in 0..MR {
                let x = a.add(i);
                for q in 0..NV {
                    acc[i][q] = P::fma(acc[i][q], x, v[q]);
                }
            }
            a = a.add(MR);
        }
        let one = P::splat(<P::Acc as policy::Real>::ONE);
        for i in 0..MR {
            let to = p.c.add((r0 + i) * p.pitch + j).cast::<P::Acc>();
            for q in 0..NV {
                let at = to.add(q * P::W);
                let mut v = acc[i][q];
                if p.add {
                    v = P::muladd(P::load(at), one, v);
                }
                P::store(at, v);
            }
        }
    }
}

struct Sums<'a, P: Policy>(Dots<'a, P::T>);

impl<P: Policy> Task for Sums<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = &self.0;
        let mut t = 0;
        while t < p.taps.len() {
            let left = p.taps.len() - t;
            // SAFETY: the caller's.
            unsafe {
                t += match left {
                    9.. => sums::<P, 9>(p, t),
                    3.. => sums::<P, 3>(p, t),
                    _ => sums::<P, 1>(p, t),
                };
            }
        }
    }
}

/// The sums of `N` taps from `t` on. What lies behind a line is multiplied too, in lanes that are not asked for.
#[inline(always)]
unsafe fn sums<P: Policy, const N: usize>(p: &Dots<P::T>, t: usize) -> usize {
    // SAFETY: the caller's.
    unsafe {
        let (mut whole, mut rest) = ([P::zero(); N], [P::zero(); N]);
        let taps = &p.taps[t..t + N];
        let (full, tail) = (p.width / P::W * P::W, p.width % P::W);
        let mut g = p.g.cast::<P::Acc>();
        for &line in p.lines {
            let x = p.x.add(line).cast::<P::Acc>();
            let mut j = 0;
            while j < full {
                let by = P::load(g.add(j));
                for i in 0..N {
                    whole[i] = P::muladd(P::load(x.add(taps[i] + j)), by, whole[i]);
                }
                j += P::W;
            }
            if tail > 0 {
                let by = P::load(g.add(full));
                for i in 0..N {
                    rest[i] = P::muladd(P::load(x.add(taps[i] + full)), by, rest[i]);
                }
            }
            g = g.add(p.width);
        }
        let mut lanes = [<P::Acc as policy::Real>::ZERO; 16];
        for i in 0..N {
            let to = p.sums.add(t + i).cast::<P::Acc>();
            for (v, n) in [(whole[i], P::W), (rest[i], tail)] {
                P::store(lanes.as_mut_ptr(), v);
                for &lane in &lanes[..n] {
                    *to = *to + lane;
                }
            }
        }
        N
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(i: usize) -> f32 {
        (i * 7919 % 7) as f32 - 3.0
    }

    fn every_size<P: Policy<T = f32, P = f32, Acc = f32>>() {
        for (m, n, k) in [
            (1, 1, 1),
            (1, 300, 9),
            (2, 17, 5),
            (13, 33, 40),
            (25, 70, 3),
        ] {
            let a: Vec<f32> = (0..m * k).map(value).collect();
            let x: Vec<f32> = (0..3 * k + n + SLACK).map(|i| value(i + 1)).collect();
            let rows: Vec<usize> = (0..k).map(|p| p * 5 % (3 * k)).collect();
            let (pitch, mut packed) = (n + SLACK, vec![0.0; m * k]);
            let mut c = vec![1.0; m * pitch];
            // SAFETY: buffers of these sizes; callers check the instructions.
            unsafe {
                let (a, to) = (Mat::new(a.as_ptr(), k as isize, 1), packed.as_mut_ptr());
                P::with(Tiles::<P> {
                    a,
                    m,
                    k0: 0,
                    len: k,
                    depth: k,
                    to,
                });
                P::with(Run::<P>(Windows {
                    m,
                    n,
                    a: packed.as_ptr(),
                    b: x.as_ptr(),
                    rows: &rows,
                    c: c.as_mut_ptr(),
                    pitch,
                    add: true,
                }));
            }
            for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let sum: f32 = (0..k).map(|p| a[i * k + p] * x[rows[p] + j]).sum();
                assert_eq!(c[i * pitch + j], 1.0 + sum, "{m} {n} {k} at {i} {j}");
            }
            let (taps, mut sums) = ([0, 1, 2, 0, 2], [1.0; 5]);
            let lines = [k, 0];
            let g: Vec<f32> = (0..2 * n + SLACK).map(value).collect();
            // SAFETY: as above.
            unsafe {
                P::with(Sums::<P>(Dots {
                    g: g.as_ptr(),
                    width: n,
                    x: x.as_ptr(),
                    lines: &lines,
                    taps: &taps,
                    sums: sums.as_mut_ptr(),
                }));
            }
            for (&t, sum) in taps.iter().zip(sums) {
                let line = |l: usize| (0..n).map(move |i| (l, i));
                let all = line(0).chain(line(1));
                let want: f32 = all.map(|(l, i)| g[l * n + i] * x[lines[l] + t + i]).sum();
                assert_eq!(sum, 1.0 + want);
            }
        }
    }

    #[test]
    fn every_policy_of_this_machine() {
        every_size::<policy::F32Portable>();
        #[cfg(target_arch = "x86_64")]
        {
            if level() >= Level::Avx2 {
                every_size::<policy::F32Avx2>();
            }
            if level() >= Level::Avx512 {
                every_size::<policy::F32Avx512>();
            }
        }
    }
}
