//! Products of bytes in 32 bits. Four of them along k are a word; words meet on tile registers where there are any, by the
//! instruction for four bytes (AVX-512 VNNI), or in plain code.

#![allow(unsafe_code, reason = "matrices are read and written by pointer")]

use super::kernel::{BUFFERS, room};
use super::tiled::{Kind, Rows, SIDE, Tiled, WORDS};
use super::{Mat, MatMut, Shared};
use crate::cpu::simd::simd_fn;
use crate::cpu::{pool, transpose};

/// Bytes of a word.
const EACH: usize = 4;
/// Columns of B that are packed at a time.
const COLUMNS: usize = 256;
/// Rows of A that are computed at a time.
const ROWS: usize = 2 * SIDE;
/// Steps of a part of the sums, where there are more than twice as many.
const PART: usize = 8;
/// Rows of A up to which columns of B are better read than packed.
const FEW: usize = 64;
/// Multiply-adds that are worth a thread.
const SHARE: usize = 1 << 20;

/// `C = A B` of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// Columns of A and rows of B.
    pub k: usize,
    /// Which operands have a sign.
    pub kind: Kind,
    /// A.
    pub a: Mat<u8>,
    /// B.
    pub b: Mat<u8>,
    /// C.
    pub c: MatMut<i32>,
}

impl Product {
    /// The product, on all threads; it wraps.
    ///
    /// # Safety
    /// Pointers and strides describe matrices, and C overlaps none.
    pub unsafe fn run(self) {
        if self.k == 0 {
            for (i, j) in (0..self.m).flat_map(|i| (0..self.n).map(move |j| (i, j))) {
                // SAFETY: the element is there.
                unsafe { *self.c.at(i, j).ptr = 0 };
            }
            return;
        }
        // Columns that lie in one piece are rows of the transposed product, which few others meet: they are read in place.
        let in_place = self.b.rs == 1 && self.b.cs > 0 && self.b.cs % EACH as isize == 0;
        if in_place && self.k.is_multiple_of(EACH * WORDS) && self.n > 2 * FEW && self.m <= FEW {
            // SAFETY: the caller's.
            return unsafe { self.turned().run() };
        }
        let cuts = self.n.div_ceil(COLUMNS);
        let threads = pool::num_threads();
        let tiles = self.m.div_ceil(ROWS);
        let parts = match cuts {
            0 => return,
            cuts if cuts >= 2 * threads => 1,
            cuts => (2 * threads).div_ceil(cuts).min(tiles.div_ceil(2)).max(1),
        };
        let each = Shared(|task: usize| {
            let (part, cut) = (task % parts, task / parts);
            let columns = COLUMNS.min(self.n - cut * COLUMNS);
            let rows = |i: usize| self.m.min(tiles * i / parts * ROWS);
            // SAFETY: the caller's; parts of C are disjoint.
            unsafe { self.part(rows(part)..rows(part + 1), cut * COLUMNS, columns) };
        });
        let each = &each;
        let work = self.m.div_ceil(parts) * self.n.min(COLUMNS) * self.k;
        pool::parallel_for(cuts * parts, (SHARE / work.max(1)).max(1), |range| {
            range.for_each(|task| each.call(task));
        });
    }

    /// The transposed product.
    fn turned(self) -> Self {
        let kind = match self.kind {
            Kind::Unsigned => Kind::Signed,
            Kind::Signed => Kind::Unsigned,
            other => other,
        };
        Self {
            m: self.n,
            n: self.m,
            k: self.k,
            kind,
            a: self.b.t(),
            b: self.a.t(),
            c: self.c.t(),
        }
    }

    /// Some rows, and at most [`COLUMNS`] columns from `j0` on.
    unsafe fn part(&self, rows: std::ops::Range<usize>, j0: usize, columns: usize) {
        let steps = self.k.div_ceil(EACH * WORDS);
        // Sixteen rows do not share sets of the first cache.
        let pitch = columns.next_multiple_of(2 * SIDE) | SIDE;
        let mut buffers = BUFFERS.take();
        let b: *mut u32 = room(&mut buffers.0, steps * WORDS * pitch);
        let tiles = steps * WORDS * ROWS;
        let a: *mut u32 = room(&mut buffers.1, tiles + ROWS * pitch);
        let places: Vec<usize> = (0..steps).map(|i| i * WORDS * pitch).collect();
        let whole = self.a.cs == 1 && self.k.is_multiple_of(EACH * WORDS);
        let in_place = whole && self.a.rs > 0 && self.a.rs % EACH as isize == 0;
        // SAFETY: the caller's; the buffers have room for what is packed, and for the sums of 32 rows.
        unsafe {
            let b = std::slice::from_raw_parts_mut(b, steps * WORDS * pitch);
            pack_columns(self.b.at(0, j0), self.k, columns, b, pitch);
            let sums = a.add(tiles);
            for r0 in rows.clone().step_by(ROWS) {
                let len = ROWS.min(rows.end - r0);
                let from = self.a.at(r0, 0);
                let left = if in_place && len == ROWS {
                    Rows::apart(from.ptr.cast(), self.a.rs as usize / EACH)
                } else {
                    pack_rows(
                        from,
                        len,
                        self.k,
                        std::slice::from_raw_parts_mut(a.cast(), tiles * EACH),
                    );
                    Rows::packed(a, steps)
                };
                let product = Tiled {
                    kind: self.kind,
                    m: len,
                    n: columns,
                    a: left,
                    b: b.as_ptr(),
                    places: &places,
                    lane: pitch,
                    part: if steps > 2 * PART { PART } else { steps },
                    c: sums,
                    pitch,
                    add: false,
                };
                product.run();
                if self.c.rs == 1 && self.c.cs > 0 {
                    let to = (self.c.at(r0, j0).ptr.cast(), self.c.cs as usize);
                    let from = (sums.cast_const().cast(), pitch);
                    transpose::plane(EACH, to, from, [len, columns]);
                    continue;
                }
                for i in 0..len {
                    let (from, to) = (sums.add(i * pitch).cast::<i32>(), self.c.at(r0 + i, j0));
                    if self.c.cs == 1 {
                        std::ptr::copy_nonoverlapping(from, to.ptr, columns);
                    } else {
                        (0..columns).for_each(|j| *to.at(0, j).ptr = *from.add(j));
                    }
                }
            }
        }
        BUFFERS.set(buffers);
    }
}

/// At most 32 rows as tiles; what fills the last step up is zero.
unsafe fn pack_rows(a: Mat<u8>, rows: usize, k: usize, to: &mut [u8]) {
    const LINE: usize = EACH * WORDS;
    let line = |row: usize, step: usize| (2 * step + row / SIDE) * SIDE * LINE + row % SIDE * LINE;
    for row in 0..rows {
        for (step, p0) in (0..k).step_by(LINE).enumerate() {
            let len = LINE.min(k - p0);
            let to = &mut to[line(row, step)..][..LINE];
            // SAFETY: the elements are there.
            unsafe {
                let from = a.at(row, p0);
                if a.cs == 1 {
                    std::ptr::copy_nonoverlapping(from.ptr, to.as_mut_ptr(), len);
                } else {
                    (0..len).for_each(|p| to[p] = *from.at(0, p).ptr);
                }
            }
            to[len..].fill(0);
        }
    }
}

simd_fn! { wide
    /// The elements of four rows side by side.
    fn four_rows(rows: &[&[u8]; EACH], to: &mut [u32]) {
        let [a, b, c, d] = rows;
        for ((((to, &a), &b), &c), &d) in to.iter_mut().zip(*a).zip(*b).zip(*c).zip(*d) {
            *to = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16 | u32::from(d) << 24;
        }
    }
}

/// Columns of B as rows of words, `pitch` apart; what fills the last step up is zero.
unsafe fn pack_columns(b: Mat<u8>, k: usize, columns: usize, to: &mut [u32], pitch: usize) {
    let whole = k / EACH;
    let mut packed = 0;
    // SAFETY: the elements are there; words of neighbours are aligned, and written to rows of their own.
    unsafe {
        if b.rs == 1 {
            let target = (to.as_mut_ptr().cast(), pitch);
            let aligned = b.ptr.cast::<u32>().is_aligned();
            if aligned && b.cs > 0 && b.cs % EACH as isize == 0 {
                let from = (b.ptr.cast(), b.cs as usize / EACH);
                transpose::plane(EACH, target, from, [columns, whole]);
            } else {
                let mut words = vec![0u32; whole * columns];
                for (j, words) in words.chunks_exact_mut(whole.max(1)).enumerate() {
                    let to = words.as_mut_ptr().cast();
                    std::ptr::copy_nonoverlapping(b.at(0, j).ptr, to, EACH * whole);
                }
                let from = (words.as_ptr().cast(), whole);
                transpose::plane(EACH, target, from, [columns, whole]);
            }
            packed = whole;
        } else if b.cs == 1 {
            for (word, to) in to.chunks_exact_mut(pitch).take(whole).enumerate() {
                let row = |i| std::slice::from_raw_parts(b.at(EACH * word + i, 0).ptr, columns);
                four_rows(&[row(0), row(1), row(2), row(3)], to);
            }
            packed = whole;
        }
        for (word, to) in to.chunks_exact_mut(pitch).enumerate().skip(packed) {
            for (j, to) in to[..columns].iter_mut().enumerate() {
                let byte = |i: usize| match EACH * word + i {
                    p if p < k => *b.at(p, j).ptr,
                    _ => 0,
                };
                *to = u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)]);
            }
        }
    }
}

/// Rows of signed bytes that meet others at a time.
pub const TOGETHER: usize = 4;

/// Products of some rows of signed bytes with others, and the sums of the former, where the machine has the instruction and all
/// rows are as long.
#[must_use]
pub fn dots<const N: usize>(
    w: [&[i8]; TOGETHER],
    x: [&[u8]; N],
) -> Option<([[i32; N]; TOGETHER], [i32; TOGETHER])> {
    #[cfg(target_arch = "x86_64")]
    if has_vectors() && {
        let n = w[0].len();
        w.iter().all(|w| w.len() == n) && x.iter().all(|x| x.len() == n)
    } {
        let n = w[0].len();
        // SAFETY: the instructions are there, and all rows have as many elements.
        return Some(unsafe { vnni::dots(n, w.map(<[i8]>::as_ptr), x.map(<[u8]>::as_ptr)) });
    }
    let _ = (w, x);
    None
}

/// Whether this machine multiplies and adds four bytes of a word by one instruction.
#[must_use]
pub fn has_vectors() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("avx512vnni")
        && std::is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// A product of bytes without tile registers.
///
/// # Safety
/// As [`Tiled::run`], but for the registers.
pub(super) unsafe fn run(p: &Tiled) {
    #[cfg(target_arch = "x86_64")]
    if has_vectors() {
        // SAFETY: the caller's; the instructions are there.
        return unsafe { vnni::run(p) };
    }
    plain(p);
}

/// Row `row` of A at the first word of a step.
fn row_at(p: &Tiled, row: usize, step: usize) -> *const u32 {
    let a = &p.a;
    let tile = row / (2 * SIDE) * a.both + row / SIDE % 2 * a.second;
    a.at.wrapping_add(tile + a.steps.start(step) + row % SIDE * a.row)
}

simd_fn! { wide
    /// Sixteen sums at a time. The caller's promises are those of [`run`].
    fn plain(p: &Tiled) {
        let (plain_a, plain_b) = (p.kind == Kind::Unsigned, p.kind == Kind::Signed);
        for row in 0..p.m {
            for c0 in (0..p.n).step_by(SIDE) {
                let mut sums = [0i32; SIDE];
                for (step, &place) in p.places.iter().enumerate() {
                    for word in 0..WORDS {
                        // SAFETY: the words are there.
                        let (a, b) = unsafe {
                            let b = p.b.add(place + word * p.lane + c0).cast::<[u32; SIDE]>();
                            (row_at(p, row, step).add(word).read_unaligned(), b.read_unaligned())
                        };
                        for i in 0..EACH {
                            let byte = (a >> (8 * i)) as u8;
                            let by = if plain_a { i32::from(byte) } else { i32::from(byte as i8) };
                            for (sum, b) in sums.iter_mut().zip(b) {
                                let byte = (b >> (8 * i)) as u8;
                                let b = if plain_b { i32::from(byte) } else { i32::from(byte as i8) };
                                *sum = sum.wrapping_add(by * b);
                            }
                        }
                    }
                }
                // SAFETY: C has whole tiles.
                unsafe {
                    let to = p.c.add(row * p.pitch + c0).cast::<[i32; SIDE]>();
                    if p.add {
                        let before = to.read_unaligned();
                        sums.iter_mut().zip(before).for_each(|(s, b)| *s = s.wrapping_add(b));
                    }
                    to.write_unaligned(sums);
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::{Kind, TOGETHER, Tiled, WORDS, row_at};
    use std::arch::x86_64::*;

    /// Words of a vector.
    const LANES: usize = 16;
    /// Rows of sums that are made at a time.
    const HIGH: usize = 8;
    /// What turns bytes with a sign into such without: 128 more.
    const TURN: i32 = i32::from_le_bytes([0x80; 4]);

    /// # Safety
    /// All rows have as many elements; the instructions are there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn dots<const N: usize>(
        n: usize,
        w: [*const i8; TOGETHER],
        x: [*const u8; N],
    ) -> ([[i32; N]; TOGETHER], [i32; TOGETHER]) {
        let mut sums = [[_mm512_setzero_si512(); N]; TOGETHER];
        let mut all = [_mm512_setzero_si512(); TOGETHER];
        for i in (0..n).step_by(64) {
            let part = u64::MAX >> (64 - (n - i).min(64));
            // SAFETY: the elements of the part are there.
            unsafe {
                let x: [_; N] =
                    std::array::from_fn(|r| _mm512_maskz_loadu_epi8(part, x[r].add(i).cast()));
                for j in 0..TOGETHER {
                    let w = _mm512_maskz_loadu_epi8(part, w[j].add(i));
                    all[j] = _mm512_dpbusd_epi32(all[j], _mm512_set1_epi8(1), w);
                    for r in 0..N {
                        sums[j][r] = _mm512_dpbusd_epi32(sums[j][r], x[r], w);
                    }
                }
            }
        }
        let mut made = ([[0; N]; TOGETHER], [0; TOGETHER]);
        for j in 0..TOGETHER {
            for r in 0..N {
                made.0[j][r] = _mm512_reduce_add_epi32(sums[j][r]);
            }
            made.1[j] = _mm512_reduce_add_epi32(all[j]);
        }
        made
    }

    /// # Safety
    /// As [`super::run`]; the instructions are there.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub(super) unsafe fn run(p: &Tiled) {
        // The instruction multiplies bytes without a sign by such with one.
        let turn = if p.kind == Kind::Bytes { TURN } else { 0 };
        let signed = p.kind == Kind::Signed;
        for r0 in (0..p.m).step_by(HIGH) {
            for c0 in (0..p.n).step_by(2 * LANES) {
                let mut sums = [[_mm512_setzero_si512(); 2]; HIGH];
                let mut more = [_mm512_setzero_si512(); 2];
                for (step, &place) in p.places.iter().enumerate() {
                    let rows: [*const u32; HIGH] = std::array::from_fn(|i| row_at(p, r0 + i, step));
                    for word in 0..WORDS {
                        // SAFETY: the words are there; rows behind the last belong to its tile.
                        unsafe {
                            let b = p.b.add(place + word * p.lane + c0);
                            let b = [0, 1].map(|v| _mm512_loadu_si512(b.add(v * LANES).cast()));
                            for (sums, row) in sums.iter_mut().zip(rows) {
                                let a = row.add(word).read_unaligned() as i32 ^ turn;
                                let a = _mm512_set1_epi32(a);
                                for v in 0..2 {
                                    let (a, b) = if signed { (b[v], a) } else { (a, b[v]) };
                                    sums[v] = _mm512_dpbusd_epi32(sums[v], a, b);
                                }
                            }
                            if turn != 0 {
                                for v in 0..2 {
                                    let all = _mm512_set1_epi32(TURN);
                                    more[v] = _mm512_dpbusd_epi32(more[v], all, b[v]);
                                }
                            }
                        }
                    }
                }
                for (i, sums) in sums.iter().enumerate() {
                    for v in 0..2 {
                        // SAFETY: C has whole tiles.
                        unsafe {
                            let to = p.c.add((r0 + i) * p.pitch + c0 + v * LANES);
                            let mut sum = _mm512_sub_epi32(sums[v], more[v]);
                            if p.add {
                                sum = _mm512_add_epi32(sum, _mm512_loadu_si512(to.cast()));
                            }
                            _mm512_storeu_si512(to.cast(), sum);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words from bytes that are known by their place.
    fn words(n: usize, from: usize) -> Vec<u32> {
        let byte = |i: usize| ((i + from) * 7919 % 251) as u8;
        (0..n)
            .map(|i| {
                u32::from_le_bytes([
                    byte(4 * i),
                    byte(4 * i + 1),
                    byte(4 * i + 2),
                    byte(4 * i + 3),
                ])
            })
            .collect()
    }

    #[test]
    fn every_way_of_this_machine_gives_the_same_sums() {
        for (m, n, steps) in [(1usize, 1usize, 1), (16, 32, 2), (17, 70, 3), (40, 33, 20)] {
            let pitch = n.next_multiple_of(32) + 16;
            let (a, b) = (
                words(steps * WORDS * 64, 3),
                words(steps * WORDS * pitch, 8),
            );
            let places: Vec<usize> = (0..steps).map(|i| i * WORDS * pitch).collect();
            for kind in [Kind::Bytes, Kind::Unsigned, Kind::Signed] {
                let mut made: Vec<Vec<u32>> = Vec::new();
                let ways: [unsafe fn(&Tiled); 3] = [
                    |p| plain(p),
                    // SAFETY: the buffers below have whole tiles.
                    |p| unsafe { run(p) },
                    // SAFETY: as above.
                    |p| unsafe { p.run() },
                ];
                for way in ways {
                    let mut c = vec![5u32; m.next_multiple_of(16) * pitch];
                    let product = Tiled {
                        kind,
                        m,
                        n,
                        a: Rows::packed(a.as_ptr(), steps),
                        b: b.as_ptr(),
                        places: &places,
                        lane: pitch,
                        part: 8,
                        c: c.as_mut_ptr(),
                        pitch,
                        add: true,
                    };
                    // SAFETY: the buffers have whole tiles.
                    unsafe { way(&product) };
                    made.push((0..m).flat_map(|i| c[i * pitch..][..n].to_vec()).collect());
                }
                assert!(
                    made.iter().all(|m| *m == made[0]),
                    "{m} {n} {steps} {kind:?}"
                );
            }
        }
    }
}
