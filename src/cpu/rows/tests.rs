//! Every loop agrees with a plain one, wherever its operands are and whatever their types.

#![allow(unsafe_code, reason = "hands checked pointers to pointwise loops")]

use super::*;
use crate::cpu::map::{self, Op};
use crate::{Device, Element, Scalar};

struct Minus;
impl<A: Element + std::ops::Sub<Output = A>> Op<A> for Minus {
    type Out = A;
    const OPERANDS: usize = 2;
    #[inline(always)]
    fn f([a, b, _]: [A; 3], _: &Ctx) -> A {
        a - b
    }
}

/// Every loop on `n` elements with all operands in one buffer (start, step), compared with a plain loop.
fn check(n: usize, out: usize, a: (usize, usize), b: (usize, usize), stream: bool) {
    let before: Vec<f32> = (0..8192).map(|i| ((i * 37) % 101) as f32).collect();
    let kernels = [
        map::heavy::<Minus>,
        map::light::<Minus>,
        map::float::<Minus>,
    ];
    for kernel in kernels.map(|k| k(DType::F32).expect("a loop")) {
        let side = Side::new(DType::F32, DType::F32, DType::F32).expect("the same type");
        let rows = Rows {
            kernel,
            ctx: &Ctx::default(),
            sides: [side, side, side],
            items: [4; 3],
            stream,
            meeting: Meeting::Mixed,
        };
        let mut x = before.clone();
        let p = x.as_mut_ptr();
        let ptrs = [out, a.0, b.0].map(|at| p.wrapping_add(at).cast::<u8>());
        let steps = [4, 4 * a.1 as isize, 4 * b.1 as isize];
        // SAFETY: the buffer has n elements from each place on.
        unsafe { rows.run(rows.lay(&steps, n), &ptrs, &steps, n) };
        for i in 0..n {
            let want = before[a.0 + i * a.1] - before[b.0 + i * b.1];
            assert_eq!(x[out + i], want, "{n} {out} {a:?} {b:?} {i}");
        }
        assert_eq!(x[out + n..], before[out + n..]);
    }
}

#[test]
fn loops_agree_wherever_the_operands_are() {
    for n in [1, 63, 64, 200, 1000, 2047] {
        for stream in [false, true] {
            for (a, b) in [
                ((0, 1), (2048, 1)),
                ((0, 1), (7, 0)),
                ((5, 0), (0, 1)),
                ((0, 2), (1, 2)),
            ] {
                check(n, 4096, a, b, stream);
            }
            for (a, b) in [
                ((0, 1), (4096, 1)),
                ((4096, 1), (0, 1)),
                ((0, 1), (6000, 0)),
                ((0, 1), (0, 1)),
            ] {
                check(n, 0, a, b, stream);
            }
        }
    }
}

#[test]
fn operands_and_results_of_other_types_are_converted() {
    let kernel = map::light::<Minus>(DType::F16).expect("the loop of f32");
    let n = 1001;
    let a = Tensor::empty(&[n], DType::F16, Device::CPU).expect("memory");
    crate::cpu::fill(&a, Scalar::Float(2.5)).expect("a number");
    for d in [
        DType::F16,
        DType::F32,
        DType::F64,
        DType::C32,
        DType::C128,
        DType::I8,
    ] {
        let out = Tensor::empty(&[n], d, Device::CPU).expect("memory");
        let operands = [Operand::Tensor(&a), Operand::Number(Scalar::Int(1))];
        run(kernel, &Ctx::default(), DType::F16, &operands, &out).expect("conversions");
        let last = read_scalar(&out, n - 1).expect("a number").to_f64();
        assert_eq!(last, if d == DType::I8 { 1.0 } else { 1.5 }, "{d}");
    }
}

#[test]
fn bf16_is_rounded_once_wherever_it_lies() {
    let kernel = map::common::<Minus>(DType::BF16).expect("a loop");
    let values =
        |seed: i64| -> Vec<f32> { (0..600).map(|i| ((i * seed) % 1013) as f32 / 7.0).collect() };
    let (a, b) = (values(37), values(59));
    let of = |v: &[f32]| {
        let wide = Tensor::from_slice(v, &[600]).expect("a tensor");
        copy::converted(&wide, DType::BF16).expect("a conversion")
    };
    let (x, y) = (of(&a), of(&b));
    let round = |v: f32| half::bf16::from_f32(v).to_f32();
    let want: Vec<f32> = a
        .iter()
        .zip(&b)
        .map(|(&a, &b)| round(round(a) - round(b)))
        .collect();
    let read = |t: &Tensor| {
        let wide = copy::converted(t, DType::F32).expect("a conversion");
        crate::cpu::slice::<f32>(&wide).to_vec()
    };
    let ctx = Ctx::default();
    let out = of(&a);
    run(kernel, &ctx, DType::BF16, &[(&x).into(), (&y).into()], &out).expect("a run");
    assert_eq!(read(&out), want);
    let over = of(&a);
    run(
        kernel,
        &ctx,
        DType::BF16,
        &[(&over).into(), (&y).into()],
        &over,
    )
    .expect("a run");
    assert_eq!(read(&over), want);
    let every_other = |t: &Tensor| t.view_with([300].into(), [2].into(), 0);
    let sides = [every_other(&x), every_other(&y)];
    let to = every_other(&out);
    run(
        kernel,
        &ctx,
        DType::BF16,
        &[(&sides[0]).into(), (&sides[1]).into()],
        &to,
    )
    .expect("a run");
    assert_eq!(read(&out), want);
}

#[test]
fn short_calls_agree_wherever_the_operands_are() {
    let values: Vec<f32> = (0..4000).map(|i| ((i * 37) % 101) as f32).collect();
    let memory = || Tensor::from_slice(&values, &[4000]).expect("a tensor");
    let kernels = [
        map::heavy::<Minus>,
        map::light::<Minus>,
        map::float::<Minus>,
    ];
    // Lengths of two dimensions, the strides of the operands and where they begin; the result begins at 0.
    for (rows, columns) in [(1, 1), (4, 4), (5, 7), (16, 16), (2, 128), (1, 300)] {
        for a in [
            ([columns, 1], 0),
            ([columns, 1], 1000),
            ([1, rows], 1000),
            ([0, 1], 7),
        ] {
            for b in [
                ([columns, 1], 2000),
                ([columns, 1], 3),
                ([1, 0], 2000),
                ([0, 0], 1),
            ] {
                for kernel in kernels.map(|k| k(DType::F32).expect("a loop")) {
                    let view = |t: &Tensor, (strides, at): ([i64; 2], i64)| {
                        t.view_with([rows, columns].into(), strides.into(), at)
                    };
                    let t = memory();
                    let out = view(&t, ([columns, 1], 0));
                    let (x, y) = (view(&t, a), view(&t, b));
                    let operands = [&x, &y].map(Operand::Tensor);
                    run(kernel, &Ctx::default(), DType::F32, &operands, &out).expect("a run");
                    let element = |(strides, at): ([i64; 2], i64), i: i64| {
                        let place = at + i / columns * strides[0] + i % columns * strides[1];
                        values[place as usize]
                    };
                    let n = rows * columns;
                    let want: Vec<f32> = (0..n).map(|i| element(a, i) - element(b, i)).collect();
                    let got = crate::cpu::slice::<f32>(&t);
                    assert_eq!(got[..n as usize], want, "{rows} {columns} {a:?} {b:?}");
                    assert_eq!(got[n as usize..], values[n as usize..]);
                }
            }
        }
    }
}

/// The difference of two tensors broadcast to a shape, in a result of its own, in every second place, or over the first.
fn of_short_rows(shape: &[i64], steps: [&[i64]; 2], d: crate::DType) {
    let count = |steps: &[i64]| {
        let ends = shape.iter().zip(steps).map(|(n, s)| (n - 1) * s);
        ends.sum::<i64>() + 1
    };
    let values: Vec<f32> = (0..1 << 15).map(|i| ((i * 37) % 101) as f32).collect();
    let all = Tensor::from_slice(&values, &[1 << 15]).unwrap();
    let all = copy::converted(&all, d).unwrap();
    let view = |t: &Tensor, steps: &[i64], offset: i64| {
        assert!(count(steps) + offset <= t.numel());
        t.view_with(Dims::new(shape), Dims::new(steps), offset)
    };
    let (a, b) = (view(&all, steps[0], 0), view(&all, steps[1], 7));
    let kernel = map::light::<Minus>(crate::DType::F32).expect("a loop");
    let dense = crate::dims::contiguous_strides(shape);
    let last = shape.len() - 1;
    let wider = Dims::new(shape).with(last, 2 * shape[last] + 1);
    let apart = crate::dims::contiguous_strides(&wider).with(last, 2);
    let want: Vec<f32> = [&a, &b]
        .map(|t| super::super::read_slice::<f32>(&copy::dense(t, crate::DType::F32).unwrap()))
        .into_iter()
        .reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a - b).collect())
        .unwrap();
    let over = copy::converted(&copy::dense(&a, d).unwrap(), d).unwrap();
    for (steps, over) in [(&dense, None), (&apart, None), (&dense, Some(over))] {
        let room = Tensor::empty(&[1 << 17], d, Device::CPU).unwrap();
        let out = over.clone().unwrap_or_else(|| view(&room, steps, 0));
        let first = over.as_ref().unwrap_or(&a);
        let operands = [Operand::Tensor(first), Operand::Tensor(&b)];
        run(kernel, &Ctx::default(), d, &operands, &out).unwrap();
        let got = copy::dense(&out, crate::DType::F32).unwrap();
        assert_eq!(
            super::super::read_slice::<f32>(&got),
            want,
            "{shape:?} {steps:?} {d}"
        );
    }
}

#[test]
fn short_rows_are_computed_together() {
    for d in [crate::DType::F32, crate::DType::F64, crate::DType::I32] {
        for n in [1i64, 3, 8, 32, 33, 63, 64, 65, 255, 257, 511, 513] {
            let long = (1030 / n + 3).min(2000 / n).max(3);
            of_short_rows(&[long, n], [&[n, 1], &[0, 1]], d);
            of_short_rows(&[long, n], [&[1, 0], &[0, 1]], d);
            of_short_rows(&[long, n], [&[n, 1], &[1, 0]], d);
            of_short_rows(&[3, 5, 7, n], [&[0, 1, 0, 5], &[2, 0, 3, 0]], d);
            of_short_rows(&[2, 40, n], [&[41, 1, 0], &[0, n, 1]], d);
        }
    }
}
