use super::*;
use half::{bf16, f16};

/// FNV-1a of the bytes, to keep recorded results short.
fn digest<T: Copy>(v: &[T], to_bits: impl Fn(T) -> u64) -> u64 {
    v.iter().fold(0xcbf2_9ce4_8422_2325, |h, &x| {
        (h ^ to_bits(x)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn each() -> [Distribution; 10] {
    use Distribution::*;
    [
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        LogNormal {
            mean: 0.0,
            std: 1.0,
        },
        Exponential { lambda: 2.0 },
        Cauchy {
            median: 0.0,
            sigma: 1.0,
        },
        Geometric { p: 0.25 },
        Bernoulli { p: 0.5 },
        Random,
        RandomRange {
            from: -3,
            to: Some(100),
        },
        RandomRange { from: 0, to: None },
    ]
}

fn advance_is_fill<T: RandomElement>() {
    for d in each() {
        for n in [0, 1, 2, 15, 16, 17, 33, 1000, 5000] {
            for contiguous in [true, false] {
                let mut a = Generator::new(n as u64);
                let mut b = a.clone();
                for _ in 0..2 {
                    d.fill(&mut a, &mut vec![T::default(); n], contiguous)
                        .unwrap();
                    d.advance(&mut b, T::DTYPE, n, contiguous).unwrap();
                    assert!(
                        a.get_state() == b.get_state(),
                        "{d:?} {n} {contiguous} {}",
                        T::DTYPE
                    );
                }
            }
        }
    }
}

#[test]
fn advancing_moves_as_filling_does() {
    advance_is_fill::<f32>();
    advance_is_fill::<f64>();
    advance_is_fill::<f16>();
    advance_is_fill::<bf16>();
}

#[test]
fn wrong_parameters_are_errors_and_draw_nothing() {
    let mut g = Generator::default();
    let before = g.get_state();
    let bad = [
        Distribution::Uniform { from: 2.0, to: 1.0 },
        Distribution::Uniform {
            from: 0.0,
            to: f64::NAN,
        },
        Distribution::Normal {
            mean: 0.0,
            std: -1.0,
        },
        Distribution::Exponential { lambda: 0.0 },
        Distribution::Geometric { p: 1.0 },
        Distribution::Bernoulli { p: 2.0 },
        Distribution::RandomRange {
            from: 5,
            to: Some(5),
        },
    ];
    for d in bad {
        assert!(d.fill(&mut g, &mut [0f32; 20], true).is_err(), "{d:?}");
        assert!(d.advance(&mut g, DType::F32, 20, true).is_err(), "{d:?}");
    }
    assert!(
        Distribution::Uniform { from: 0.0, to: 1.0 }
            .check(DType::I64)
            .is_err()
    );
    assert!(g.get_state() == before);
}

/// Digests recorded from PyTorch (`tests/data/random_digests.txt`).
#[test]
#[cfg(target_arch = "x86_64")]
fn recorded_values() {
    if !std::is_x86_feature_detected!("fma") {
        return;
    }
    let lines = include_str!("../../../tests/data/random_digests.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#')) {
        let [dtype, name, n, want] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        let d = recorded(name);
        let n = n.parse().unwrap();
        let found = match dtype {
            "f32" => drawn(d, n, |v: f32| v.to_bits().into()),
            "f64" => drawn(d, n, f64::to_bits),
            "f16" => drawn(d, n, |v: f16| v.to_bits().into()),
            _ => drawn(d, n, |v: bf16| v.to_bits().into()),
        };
        assert_eq!(format!("{found:016x}"), want, "{line}");
    }
}

/// The distributions that were recorded, by name.
fn recorded(name: &str) -> Distribution {
    let named = (each().into_iter()).find(|d| format!("{d:?}").starts_with(name));
    named.unwrap_or_else(|| panic!("{name}"))
}

fn drawn<T: RandomElement>(d: Distribution, n: usize, bits: impl Fn(T) -> u64) -> u64 {
    let mut v = vec![T::default(); n];
    d.fill(&mut Generator::new(n as u64), &mut v, true).unwrap();
    digest(&v, bits)
}
