//! Shards add up, plans arrive, and choices cost what they should.

use super::*;

fn mesh(sizes: &[i64], at: &[i64]) -> Mesh {
    Mesh::new(sizes.to_vec(), at.to_vec(), 8).unwrap()
}

fn plain(placements: &[Placement]) -> Layout {
    Layout {
        placements: placements.to_vec(),
        ordered: false,
    }
}

use Placement::{Replicate as R, Shard as S};
const SUM: Placement = Placement::Partial {
    reduce: Reduce::Sum,
    kind: 0,
};

#[test]
fn shards_cover_a_dimension_once() {
    for size in 0..40 {
        for parts in 1..9 {
            for placement in [S(0), Placement::Strided { dim: 0, factor: 3 }] {
                let of = |at| shard_size(placement, size, parts, at);
                assert_eq!(
                    (0..parts).map(of).sum::<i64>(),
                    size,
                    "{placement:?} {parts}"
                );
            }
        }
    }
}

#[test]
fn offsets_are_those_of_the_first_element() {
    let lies = |placements: &[Placement]| Layout {
        placements: placements.to_vec(),
        ordered: true,
    };
    let strided = lies(&[Placement::Strided { dim: 0, factor: 4 }, S(0)]);
    let m = mesh(&[2, 4], &[1, 1]);
    assert_eq!(local_shape(&m, &strided, &[12, 6]).unwrap(), [1, 6]);
    assert_eq!(offset_of(&m, &strided, &[12, 6]).unwrap(), [5, 0]);
    let m = mesh(&[2, 4], &[0, 3]);
    assert_eq!(
        local_shape(&m, &lies(&[S(0), S(0)]), &[9, 3]).unwrap(),
        [0, 3]
    );
    assert_eq!(
        offset_of(&m, &lies(&[S(0), S(0)]), &[9, 3]).unwrap(),
        [9, 0]
    );
    assert!(local_shape(&m, &lies(&[S(2), R]), &[9, 3]).is_err());
}

#[test]
fn plans_arrive() {
    let m = mesh(&[2, 2, 2], &[0, 1, 0]);
    let kinds = [R, S(0), S(1), SUM];
    let all: Vec<[Placement; 3]> = kinds
        .iter()
        .flat_map(|a| kinds.iter().flat_map(move |b| kinds.map(|c| [*a, *b, c])))
        .collect();
    for from in &all {
        for to in &all {
            let mut now = from.to_vec();
            for step in plan(&m, &[8, 6], 4, &plain(from), &plain(to)).unwrap() {
                assert_eq!(now[step.dim], step.from);
                now[step.dim] = step.to;
            }
            assert_eq!(now, to);
        }
    }
}

#[test]
fn strided_shards_are_orders() {
    let m = mesh(&[2, 2], &[0, 1]);
    let lies = Layout {
        placements: vec![Placement::Strided { dim: 0, factor: 2 }, S(0)],
        ordered: true,
    };
    let (placements, order) = lies.decoded(&m, 1).unwrap();
    assert_eq!((placements, order), (vec![S(0), S(0)], vec![vec![1, 0]]));
    let steps = plan(&m, &[8], 4, &lies, &plain(&[R, R])).unwrap();
    assert_eq!(steps.iter().map(|s| s.dim).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn what_lies_well_stays() {
    let m = mesh(&[4], &[0]);
    let input = |p: Placement, shape: &[i64]| Input {
        layout: plain(&[p]),
        shape: shape.to_vec(),
        itemsize: 4,
    };
    let row = |p: [Placement; 3]| p.map(Some).to_vec();
    let product = [
        row([R, R, R]),
        row([SUM, S(1), S(0)]),
        row([S(0), S(0), R]),
        row([S(1), R, S(1)]),
    ];
    let one = Wanted {
        results: 1,
        ..Wanted::default()
    };
    let pick = |a, b| {
        let inputs = [input(a, &[8, 12]), input(b, &[12, 16])];
        choose(&m, &inputs, &product, one).unwrap()
    };
    assert_eq!(pick(S(1), S(0)).results, [Some(vec![SUM])]);
    assert_eq!(pick(R, S(1)).results, [Some(vec![S(1)])]);
    assert_eq!(pick(S(0), S(0)).inputs.len(), 2);
    let written = Wanted {
        in_place: true,
        ..one
    };
    let inputs = [input(S(1), &[8, 12]), input(R, &[8, 12])];
    assert!(choose(&m, &inputs, &product[2..3], written).is_err());
}
