//! Shapes and strides over cases nobody thought of.

use proptest::prelude::*;
use torchlike::dims;

fn shapes() -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::vec(0i64..6, 0..6)
}

/// The offset of each element, in row-major order.
fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let mut all = vec![0];
    for (&size, &step) in shape.iter().zip(strides) {
        all = all
            .iter()
            .flat_map(|at| (0..size).map(move |i| at + i * step))
            .collect();
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn row_major_strides_count_the_elements(shape in shapes()) {
        let strides = dims::contiguous_strides(&shape);
        prop_assert!(dims::is_contiguous(&shape, &strides));
        let n: i64 = shape.iter().product();
        prop_assert_eq!(offsets(&shape, &strides), (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn strides_in_any_order_are_dense(shape in shapes(), seed in any::<u64>()) {
        let mut order: Vec<usize> = (0..shape.len()).collect();
        order.sort_by_key(|&d| seed.rotate_left(11 * d as u32) % 97);
        let strides = dims::strides_in_order(&shape, &order);
        prop_assert!(dims::is_dense(&shape, &strides));
        let mut found = offsets(&shape, &strides);
        found.sort_unstable();
        let n: i64 = shape.iter().product();
        prop_assert_eq!(found, (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn broadcasting_commutes_and_repeats_what_has_size_one(a in shapes(), ones in any::<u8>(), drop in 0usize..4) {
        let b: Vec<i64> = a
            .iter()
            .enumerate()
            .skip(drop.min(a.len()))
            .map(|(d, &size)| if ones & (1 << d) != 0 { 1 } else { size })
            .collect();
        let shape = dims::broadcast(&a, &b).expect("these fit");
        prop_assert_eq!(&shape, &dims::broadcast(&b, &a).expect("these fit"));
        let strides = dims::broadcast_strides(&b, &dims::contiguous_strides(&b), &shape);
        let n: i64 = b.iter().product();
        prop_assert!(offsets(&shape, &strides).iter().all(|&at| at < n.max(1)));
    }

    #[test]
    fn a_view_has_the_same_elements_in_the_same_order(shape in shapes(), cut in 0usize..6) {
        let n: i64 = shape.iter().product();
        let split = cut.min(shape.len());
        let to = [shape[..split].iter().product::<i64>(), shape[split..].iter().product()];
        let strides = dims::contiguous_strides(&shape);
        let viewed = dims::view_strides(&shape, &strides, &to).expect("dense tensors have every view");
        prop_assert_eq!(offsets(&to, &viewed), (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn storage_holds_every_element(shape in shapes(), steps in proptest::collection::vec(0i64..20, 6), offset in 0i64..9) {
        let strides = &steps[..shape.len()];
        let bytes = dims::storage_bytes(&shape, strides, offset, 4).expect("small");
        let end = offsets(&shape, strides).iter().map(|at| at + offset + 1).max();
        prop_assert_eq!(bytes as i64, end.map_or(0, |e| e * 4));
    }
}
