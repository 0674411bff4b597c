#![allow(unsafe_code, reason = "matrices are walked by pointer")]

use super::*;

/// Small whole numbers, so that every order of summation gives the same result in every type.
fn value(i: usize) -> i64 {
    ((i * 7919 + 13) % 5) as i64 - 2
}

fn place(s: (isize, isize), i: usize, j: usize) -> usize {
    (i as isize * s.0 + j as isize * s.1) as usize
}

/// An element of a matrix of so many columns: rows that follow each other differ.
fn element(cols: usize, i: usize, j: usize, first: usize) -> i64 {
    value(i * (cols + usize::from(cols % 5 == 0)) + j + first)
}

/// Memory of a matrix whose elements are the same wherever they lie, with other numbers between and behind them.
fn laid(len: usize, (rows, cols): (usize, usize), s: (isize, isize), first: usize) -> Vec<i64> {
    let mut v: Vec<i64> = (0..len).map(|i| value(i + first + 1)).collect();
    for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
        v[place(s, i, j)] = element(cols, i, j, first);
    }
    v
}

/// The product of such matrices, row by row.
fn product(m: usize, n: usize, k: usize) -> Vec<i64> {
    let b = laid(k * n, (k, n), (n as isize, 1), 3);
    let mut c = vec![0; m * n];
    for (i, p) in (0..m).flat_map(|i| (0..k).map(move |p| (i, p))) {
        let a = element(k, i, p, 0);
        for (c, b) in c[i * n..][..n].iter_mut().zip(&b[p * n..]) {
            *c += a * b;
        }
    }
    c
}

fn check<T: GemmElement + PartialEq + std::fmt::Debug>(
    make: impl Fn(i64) -> T,
    scale: impl Fn(i64) -> T::Scale,
) {
    let sizes = [
        (1, 1, 1),
        (1, 40, 33),
        (40, 1, 33),
        (2, 3, 0),
        (0, 5, 3),
        (5, 0, 3),
        (13, 35, 7),
        (12, 32, 16),
        (64, 64, 64),
        (37, 70, 65),
        (250, 33, 9),
        (3, 200, 129),
        (25, 31, 400),
        (1, 300, 70),
        (1, 3, 70),
        (1, 7, 33),
        (5, 1, 90),
        (241, 96, 30),
        (20, 146, 520),
        (17, 150, 520),
        (10, 132, 1023),
        (40, 33, 1100),
    ];
    let factors = [(1, 0, false), (2, 1, true), (1, -1, false)];
    for (turn, (m, n, k)) in sizes.into_iter().enumerate() {
        let sums = product(m, n, k);
        // Layouts: (A transposed, B transposed, C transposed, spread).
        for layout in 0..16usize {
            let spread = 1 + (layout >> 3);
            let strides = |rows: usize, cols: usize, t: bool| -> (isize, isize) {
                let (r, c) = if t {
                    (spread, rows * spread + 1)
                } else {
                    (cols * spread + 1, spread)
                };
                (r as isize, c as isize)
            };
            let len = |rows: usize, cols: usize| (rows + 2) * (cols + 2) * spread;
            let (at, bt, ct) = (
                strides(m, k, layout & 1 != 0),
                strides(k, n, layout & 2 != 0),
                strides(m, n, layout & 4 != 0),
            );
            let av = laid(len(m, k), (m, k), at, 0);
            let bv = laid(len(k, n), (k, n), bt, 3);
            let cv = laid(len(m, n), (m, n), ct, 5);
            let bias: Vec<T> = (0..n).map(|i| make(value(i))).collect();
            let (a, b): (Vec<T>, Vec<T>) = (
                av.iter().map(|&v| make(v)).collect(),
                bv.iter().map(|&v| make(v)).collect(),
            );
            // Each size and each layout meets all factors.
            let (alpha, beta, with_bias) = factors[(turn + layout) % factors.len()];
            let mut c: Vec<T> = cv.iter().map(|&v| make(v)).collect();
            // SAFETY: the buffers are longer than the matrices.
            unsafe {
                gemm(
                    m,
                    n,
                    k,
                    scale(alpha),
                    Mat::new(a.as_ptr(), at.0, at.1),
                    Mat::new(b.as_ptr(), bt.0, bt.1),
                    scale(beta),
                    MatMut::new(c.as_mut_ptr(), ct.0, ct.1),
                    with_bias.then_some(bias.as_ptr()),
                );
            }
            let mut want: Vec<i64> = cv.clone();
            for i in 0..m {
                for j in 0..n {
                    let w = &mut want[place(ct, i, j)];
                    *w = alpha * sums[i * n + j] + beta * *w + if with_bias { value(j) } else { 0 };
                }
            }
            for (i, (&c, &w)) in c.iter().zip(&want).enumerate() {
                assert_eq!(
                    c,
                    make(w),
                    "{m}x{n}x{k} layout {layout} alpha {alpha} beta {beta} at {i}"
                );
            }
        }
    }
}

#[test]
fn floats() {
    check(|v| v as f32, |v| v as f32);
    check(|v| v as f64, |v| v as f64);
}

#[test]
fn halves_round_once() {
    check(|v| f16::from_f32(v as f32), |v| v as f32);
    check(|v| bf16::from_f32(v as f32), |v| v as f32);
}

#[test]
fn pairs_are_read_where_they_are() {
    for (m, n, k, rs) in [
        (1, 48, 64, 64),
        (37, 70, 64, 64),
        (64, 129, 6, 10),
        (70, 300, 130, 131),
        (9, 1100, 32, 32),
        (130, 150, 16, 16),
        (129, 161, 21, 24),
    ] {
        let a: Vec<bf16> = (0..m * rs)
            .map(|i| bf16::from_f32(value(i) as f32))
            .collect();
        let b: Vec<bf16> = (0..k * n)
            .map(|i| bf16::from_f32(value(i + 3) as f32))
            .collect();
        let mut c = vec![bf16::NAN; m * n];
        // SAFETY: the buffers are as long as the matrices.
        unsafe {
            gemm(
                m,
                n,
                k,
                1.0,
                Mat::new(a.as_ptr(), rs as isize, 1),
                Mat::new(b.as_ptr(), n as isize, 1),
                0.0,
                MatMut::new(c.as_mut_ptr(), n as isize, 1),
                None,
            );
        }
        for i in 0..m * n {
            let products = (0..k).map(|p| value(i / n * rs + p) * value(p * n + i % n + 3));
            let want = products.sum::<i64>() as f32;
            assert_eq!(c[i], bf16::from_f32(want), "{m}x{n}x{k} {rs} at {i}");
        }
    }
}

#[test]
fn numbers_that_are_none_have_one_form() {
    let (a, b) = (vec![bf16::ZERO; 4 * 32], vec![bf16::INFINITY; 32 * 70]);
    let mut c = vec![bf16::ZERO; 4 * 70];
    // SAFETY: the buffers are as long as the matrices.
    unsafe {
        gemm(
            4,
            70,
            32,
            1.0,
            Mat::new(a.as_ptr(), 32, 1),
            Mat::new(b.as_ptr(), 70, 1),
            0.0,
            MatMut::new(c.as_mut_ptr(), 70, 1),
            None,
        );
    }
    // Within tiles and at their ends.
    assert!(c.iter().all(|v| v.to_bits() == bf16::NAN.to_bits()));
}

#[test]
fn integers_and_complex() {
    check(|v| v as i8, |v| v as i8);
    check(|v| v, |v| v);
    check(
        |v| Complex::new(v as f32, 0.0),
        |v| Complex::new(v as f32, 0.0),
    );
}

#[test]
fn beta_zero_does_not_read_c() {
    let (a, b) = ([1f32; 64 * 64], [1f32; 64 * 64]);
    let mut c = [f32::NAN; 64 * 64];
    // SAFETY: 64 by 64 each.
    unsafe {
        gemm(
            64,
            64,
            64,
            1.0,
            Mat::new(a.as_ptr(), 64, 1),
            Mat::new(b.as_ptr(), 64, 1),
            0.0,
            MatMut::new(c.as_mut_ptr(), 64, 1),
            None,
        );
    }
    assert!(c.iter().all(|&v| v == 64.0));
}

#[test]
fn every_policy_of_this_machine() {
    fn one<P: Policy<T = f32, Acc = f32>>() {
        let (m, n, k) = (37, 45, 50);
        let a: Vec<f32> = (0..m * k).map(|i| value(i) as f32).collect();
        let b: Vec<f32> = (0..k * n).map(|i| value(i + 1) as f32).collect();
        let mut c = vec![0f32; m * n];
        let p = Product::<P> {
            m,
            n,
            k,
            alpha: 1.0,
            a: Mat::new(a.as_ptr(), k as isize, 1),
            b: Mat::new(b.as_ptr(), n as isize, 1),
            beta: 0.0,
            c: MatMut::new(c.as_mut_ptr(), n as isize, 1),
            bias: None,
        };
        // SAFETY: valid matrices; callers check the instructions.
        unsafe { run(p) };
        for i in 0..m {
            for j in 0..n {
                assert_eq!(
                    c[i * n + j],
                    (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f32>()
                );
            }
        }
    }
    one::<policy::F32Portable>();
    #[cfg(target_arch = "x86_64")]
    {
        if level() >= Level::Avx2 {
            one::<policy::F32Avx2>();
        }
        if level() >= Level::Avx512 {
            one::<policy::F32Avx512>();
        }
    }
}

#[test]
fn batches() {
    let (a, b) = (vec![2f32; 100 * 16], vec![3f32; 100 * 16]);
    let mut c = vec![0f32; 100 * 16];
    // SAFETY: a hundred 4 by 4 matrices each.
    unsafe {
        gemm_batch(
            100,
            4,
            4,
            4,
            1.0,
            (Mat::new(a.as_ptr(), 4, 1), 16),
            (Mat::new(b.as_ptr(), 1, 4), 16),
            0.0,
            (MatMut::new(c.as_mut_ptr(), 4, 1), 16),
        );
    }
    assert!(c.iter().all(|&v| v == 24.0));
}

#[test]
fn integers_are_multiplied_whole_whatever_their_size() {
    const N: usize = 12;
    let edges = [i64::from(i32::MIN), i64::from(i32::MAX), -1, 3, 0];
    for beyond in [7, 1 << 31, -(1 << 31) - 1, i64::MAX] {
        let mut a: Vec<i64> = (0..N * N).map(|i| edges[i * 7 % edges.len()]).collect();
        let b: Vec<i64> = (0..N * N).map(|i| edges[i * 3 % edges.len()]).collect();
        a[100] = beyond;
        for (a, b) in [(&a, &b), (&b, &a)] {
            let mut c = vec![5i64; N * N];
            // SAFETY: matrices of so many numbers.
            unsafe {
                gemm(
                    N,
                    N,
                    N,
                    3,
                    Mat::new(a.as_ptr(), N as isize, 1),
                    Mat::new(b.as_ptr(), 1, N as isize),
                    1 << 33,
                    MatMut::new(c.as_mut_ptr(), N as isize, 1),
                    None,
                );
            }
            for (i, j) in (0..N).flat_map(|i| (0..N).map(move |j| (i, j))) {
                let products = (0..N).map(|p| a[i * N + p].wrapping_mul(b[j * N + p]));
                let sum = products.fold(0i64, i64::wrapping_add);
                let want = sum.wrapping_mul(3).wrapping_add(5 << 33);
                assert_eq!(c[i * N + j], want, "{beyond} {i} {j}");
            }
        }
    }
}
