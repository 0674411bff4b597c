//! What Winograd's convolution F(2 x 2, 3 x 3) makes of its input and of its products: sums and differences of 16 vectors, in
//! registers.

#![allow(unsafe_code, reason = "lines are read and written by pointer")]

use super::policy::{self, Policy, Real, Task};
use super::turn::LANES as TURNED;
use crate::cpu::simd::{Level, level};

/// Tiles that are made at a time: up to so many elements are read and written behind the last one of a line.
pub const LANES: usize = 8;
/// Coefficients of a tile.
pub const COEFFICIENTS: usize = 16;

/// Tiles of lines of the input, or of the result's gradient, which become coefficients.
#[derive(Clone, Copy, Debug)]
pub struct Tiles<'a, T> {
    /// Where the table counts from.
    pub from: *const T,
    /// The places of the first tile's elements, 4 x 4 of the input or 2 x 2 of a gradient; those of the next tile follow each.
    pub at: &'a [usize],
    /// How far on each line begins.
    pub lines: &'a [usize],
    /// Tiles of a line.
    pub n: usize,
    /// The first coefficient of the first tile; those of a line follow those of the one before.
    pub to: *mut T,
    /// From one coefficient to the next.
    pub each: usize,
}

/// Coefficients of a line of tiles, which become results.
#[derive(Clone, Copy, Debug)]
pub struct Results<T> {
    /// The first coefficient of the first tile.
    pub from: *const T,
    /// From one coefficient to the next.
    pub each: usize,
    /// How many tiles.
    pub n: usize,
    /// Added to every result.
    pub bias: T,
    /// Each tile's first result; the other three are in lines of their own.
    pub to: *mut T,
    /// From one of these lines to the next.
    pub line: usize,
}

/// Weights of a group, which become tiles of matrices as products with windows read them.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'a, T> {
    /// The group's weights, `[output][input][tap]`.
    pub from: *const T,
    /// Outputs and inputs.
    pub size: [usize; 2],
    /// Which tap lies at each place of the 3 x 3 window.
    pub places: &'a [usize; 9],
    /// The tile, one of [`row_tiles`](super::row_tiles): its first output, and how many it has.
    pub tile: (usize, usize),
    /// The matrix of the first coefficient.
    pub to: *mut T,
    /// From one matrix to the next.
    pub each: usize,
}

/// Gradients of the coefficients of weights, which become those of the weights.
#[derive(Clone, Copy, Debug)]
pub struct Sums<'a, T> {
    /// The first coefficient of the first weight.
    pub from: *const T,
    /// From one coefficient to the next.
    pub each: usize,
    /// How many weights.
    pub n: usize,
    /// Which tap lies at each place of the 3 x 3 window.
    pub places: &'a [usize; 9],
    /// The weights, `[weight][tap]`.
    pub to: *mut T,
}

/// Runs a task in vectors of [`LANES`] elements at most: lines are short.
macro_rules! in_lanes {
    ($task:ident $(<$side:literal>)? ($args:expr)) => {
        // SAFETY: the caller's; the instructions of a level are there where `level` says so.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if level() >= Level::Avx2 {
                return policy::F32Avx2::with($task::<policy::F32Avx2 $(, $side)?>($args));
            }
            policy::F32Portable::with($task::<policy::F32Portable $(, $side)?>($args));
        }
    };
}

/// Makes coefficients of tiles.
///
/// # Safety
/// Elements and coefficients are there, and lanes behind the last ones.
pub unsafe fn of_tiles(tiles: Tiles<f32>) {
    if tiles.at.len() == COEFFICIENTS {
        in_lanes!(Forth<4>(tiles));
    } else {
        in_lanes!(Forth<2>(tiles));
    }
}

/// Makes coefficients of weights.
///
/// # Safety
/// The weights and the matrices are there.
pub unsafe fn of_weights(weights: Weights<f32>) {
    in_lanes!(Weigh(weights));
}

/// Makes gradients of weights of those of their coefficients.
///
/// # Safety
/// Coefficients are there, and lanes behind the last ones; so are the weights.
pub unsafe fn to_weights(sums: Sums<f32>) {
    in_lanes!(Gather(sums));
}

/// Makes results of coefficients.
///
/// # Safety
/// Coefficients and results are there, and lanes behind the last ones.
pub unsafe fn to_results(results: Results<f32>) {
    in_lanes!(Back(results));
}

struct Weigh<'a, P: Policy>(Weights<'a, P::T>);
struct Forth<'a, P: Policy, const SIDE: usize>(Tiles<'a, P::T>);
struct Back<P: Policy>(Results<P::T>);
struct Gather<'a, P: Policy>(Sums<'a, P::T>);

#[inline(always)]
unsafe fn plus<P: Policy>(a: P::V, b: P::V) -> P::V {
    // SAFETY: the caller's, as below. A product with one is exact.
    unsafe { P::muladd(b, P::splat(P::Acc::ONE), a) }
}
#[inline(always)]
unsafe fn minus<P: Policy<Acc = f32>>(a: P::V, b: P::V) -> P::V {
    // SAFETY: as above.
    unsafe { P::muladd(b, P::splat(-1.0), a) }
}

/// What four elements become along one dimension.
#[inline(always)]
unsafe fn four<P: Policy<Acc = f32>>([a, b, c, d]: [P::V; 4]) -> [P::V; 4] {
    // SAFETY: as above.
    unsafe {
        [
            minus::<P>(a, c),
            plus::<P>(b, c),
            minus::<P>(c, b),
            minus::<P>(b, d),
        ]
    }
}

/// What the elements of a tile become along one dimension.
#[inline(always)]
unsafe fn forth<P: Policy<Acc = f32>>(line: &[P::V]) -> [P::V; 4] {
    // SAFETY: as above.
    unsafe {
        match *line {
            [a, b, c, d] => four::<P>([a, b, c, d]),
            [a, b] => apart::<P>(a, b),
            _ => [P::zero(); 4],
        }
    }
}

/// What three weights become.
#[inline(always)]
unsafe fn spread<P: Policy<Acc = f32>>([a, b, c]: [P::V; 3]) -> [P::V; 4] {
    // SAFETY: as above.
    unsafe {
        let (both, half) = (plus::<P>(a, c), P::splat(0.5));
        let sum = P::muladd(plus::<P>(both, b), half, P::zero());
        let difference = P::muladd(minus::<P>(both, b), half, P::zero());
        [a, sum, difference, c]
    }
}

/// What the gradients of two results become.
#[inline(always)]
unsafe fn apart<P: Policy<Acc = f32>>(a: P::V, b: P::V) -> [P::V; 4] {
    // SAFETY: as above.
    unsafe {
        [
            a,
            plus::<P>(a, b),
            minus::<P>(a, b),
            minus::<P>(P::zero(), b),
        ]
    }
}

/// What the gradients of four coefficients become.
#[inline(always)]
unsafe fn three<P: Policy<Acc = f32>>([a, b, c, d]: [P::V; 4]) -> [P::V; 3] {
    // SAFETY: as above.
    unsafe {
        let half = P::splat(0.5);
        let sum = P::muladd(plus::<P>(b, c), half, P::zero());
        let difference = P::muladd(minus::<P>(b, c), half, P::zero());
        [plus::<P>(a, sum), difference, plus::<P>(sum, d)]
    }
}

/// What four products become.
#[inline(always)]
unsafe fn two<P: Policy<Acc = f32>>([a, b, c, d]: [P::V; 4]) -> [P::V; 2] {
    // SAFETY: as above.
    unsafe {
        [
            plus::<P>(plus::<P>(a, b), c),
            minus::<P>(minus::<P>(b, c), d),
        ]
    }
}

impl<P: Policy<T = f32, Acc = f32>> Task for Weigh<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.0;
        let ([_, inputs], (r0, h)) = (p.size, p.tile);
        for c in 0..inputs {
            for i0 in (0..h).step_by(P::W) {
                // SAFETY: the caller's. Lanes behind the last output are later inputs', as long as there are any.
                unsafe {
                    let taps = taps::<P>(&p, c, (r0 + i0, h - i0));
                    let mut columns = [[P::zero(); 4]; 3];
                    for j in 0..3 {
                        let place = |i: usize| p.places[3 * i + j];
                        columns[j] = spread::<P>([taps[place(0)], taps[place(1)], taps[place(2)]]);
                    }
                    let to = p.to.add(r0 * inputs + c * h + i0);
                    let whole = (inputs - c) * h >= i0 + P::W;
                    for i in 0..4 {
                        let row = spread::<P>([columns[0][i], columns[1][i], columns[2][i]]);
                        for j in 0..4 {
                            let at = to.add((4 * i + j) * p.each);
                            if whole {
                                P::store(at, row[j]);
                            } else {
                                P::store_part(at, row[j], (h - i0).min(P::W));
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The nine weights between an input and the outputs from one on, of which there are so many; a vector holds the outputs.
#[inline(always)]
unsafe fn taps<P: Policy<T = f32, Acc = f32>>(
    p: &Weights<f32>,
    input: usize,
    (first, count): (usize, usize),
) -> [P::V; 9] {
    // SAFETY: the caller's; lanes without an output are the last one's.
    unsafe {
        let mut taps = [P::zero(); 9];
        let mut ninth = [0.0; 16];
        let mut from = [p.from; 16];
        for i in 0..P::W {
            from[i] = p
                .from
                .add(((first + i.min(count - 1)) * p.size[1] + input) * 9);
            ninth[i] = *from[i].add(8);
        }
        taps[8] = P::load(ninth.as_ptr());
        for t in (0..8).step_by(P::W) {
            let mut rows = [P::zero(); TURNED];
            for i in 0..P::W {
                rows[i] = P::load(from[i].add(t));
            }
            P::turn(&mut rows);
            taps[t..t + P::W].copy_from_slice(&rows[..P::W]);
        }
        taps
    }
}

impl<P: Policy<T = f32, Acc = f32>, const SIDE: usize> Task for Forth<'_, P, SIDE> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.0;
        let mut to = p.to;
        for &line in p.lines {
            // SAFETY: the caller's. Lanes behind a line are written again with the next one.
            unsafe {
                for t in (0..p.n.next_multiple_of(LANES)).step_by(P::W) {
                    let from = p.from.add(line + t);
                    let mut columns = [[P::zero(); 4]; SIDE];
                    let mut part = [P::zero(); SIDE];
                    for j in 0..SIDE {
                        for i in 0..SIDE {
                            part[i] = P::load(from.add(p.at[SIDE * i + j]));
                        }
                        columns[j] = forth::<P>(&part);
                    }
                    for i in 0..4 {
                        for j in 0..SIDE {
                            part[j] = columns[j][i];
                        }
                        let row = forth::<P>(&part);
                        for j in 0..4 {
                            P::store(to.add((4 * i + j) * p.each + t), row[j]);
                        }
                    }
                }
                to = to.add(p.n);
            }
        }
    }
}

impl<P: Policy<T = f32, Acc = f32>> Task for Back<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.0;
        for t in (0..p.n.next_multiple_of(LANES)).step_by(P::W) {
            // SAFETY: the caller's.
            unsafe {
                let bias = P::splat(p.bias);
                let mut columns = [[P::zero(); 2]; 4];
                for j in 0..4 {
                    let mut column = [P::zero(); 4];
                    for i in 0..4 {
                        column[i] = P::load(p.from.add((4 * i + j) * p.each + t));
                    }
                    columns[j] = two::<P>(column);
                }
                for i in 0..2 {
                    let row =
                        two::<P>([columns[0][i], columns[1][i], columns[2][i], columns[3][i]]);
                    for j in 0..2 {
                        let at = p.to.add((2 * i + j) * p.line + t);
                        P::store(at, plus::<P>(row[j], bias));
                    }
                }
            }
        }
    }
}

impl<P: Policy<T = f32, Acc = f32>> Task for Gather<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = self.0;
        for k in (0..p.n).step_by(P::W) {
            // SAFETY: the caller's.
            unsafe {
                let mut columns = [[P::zero(); 3]; 4];
                for j in 0..4 {
                    let mut column = [P::zero(); 4];
                    for i in 0..4 {
                        column[i] = P::load(p.from.add((4 * i + j) * p.each + k));
                    }
                    columns[j] = three::<P>(column);
                }
                let mut taps = [[0.0; TURNED]; 9];
                for i in 0..3 {
                    let row =
                        three::<P>([columns[0][i], columns[1][i], columns[2][i], columns[3][i]]);
                    for j in 0..3 {
                        P::store(taps[p.places[3 * i + j]].as_mut_ptr(), row[j]);
                    }
                }
                for i in 0..P::W.min(p.n - k) {
                    for t in 0..9 {
                        *p.to.add((k + i) * 9 + t) = taps[t][i];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tile of any machine's height holds `G g G'` of its outputs, and nothing else is written.
    #[test]
    fn tiles_of_weights() {
        const G: [[f32; 3]; 4] = [
            [1.0, 0.0, 0.0],
            [0.5, 0.5, 0.5],
            [0.5, -0.5, 0.5],
            [0.0, 0.0, 1.0],
        ];
        let places = [4, 0, 8, 1, 7, 2, 6, 3, 5];
        for height in 1..=12 {
            let (outputs, inputs) = (height + 3, 5);
            let n = outputs * inputs;
            let from: Vec<f32> = (0..n * 9).map(|i| (i * 31 % 17) as f32 - 8.0).collect();
            let mut to = vec![0.125; COEFFICIENTS * n];
            let weights = Weights {
                from: from.as_ptr(),
                size: [outputs, inputs],
                places: &places,
                tile: (2, height),
                to: to.as_mut_ptr(),
                each: n,
            };
            // SAFETY: buffers of these sizes.
            unsafe { of_weights(weights) };
            for (e, matrix) in to.chunks_exact(n).enumerate() {
                for (k, &got) in matrix.iter().enumerate() {
                    let at = k.wrapping_sub(2 * inputs);
                    let (c, o) = (at / height, 2 + at % height);
                    let mut want = 0.125;
                    if c < inputs {
                        let g = |i: usize, j: usize| from[(o * inputs + c) * 9 + places[3 * i + j]];
                        let row = |i: usize| (0..3).map(|j| g(i, j) * G[e % 4][j]).sum::<f32>();
                        want = (0..3).map(|i| G[e / 4][i] * row(i)).sum();
                    }
                    assert_eq!(got, want, "height {height}, coefficient {e}, element {k}");
                }
            }
        }
    }
}
