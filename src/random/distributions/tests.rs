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

/// Digests recorded from PyTorch 2.13 after `manual_seed(n)`, vectorised build.
#[test]
#[cfg(target_arch = "x86_64")]
fn recorded_values() {
    use Distribution::*;
    trait Bits: RandomElement {
        fn bits(self) -> u64;
    }
    macro_rules! bits { ($($t:ty)+) => { $(impl Bits for $t { fn bits(self) -> u64 { self.to_bits() as u64 } })+ } }
    bits! { f32 f64 f16 bf16 }
    fn case<T: Bits>(d: Distribution, n: usize, want: u64) {
        let mut v = vec![T::default(); n];
        d.fill(&mut Generator::new(n as u64), &mut v, true).unwrap();
        assert_eq!(digest(&v, T::bits), want, "{d:?} {n} {}", T::DTYPE);
    }
    if !std::is_x86_feature_detected!("fma") {
        return;
    }
    case::<f32>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        7,
        0x2239535926cbaba9,
    );
    case::<f32>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        7,
        0xd733f96e586eeb27,
    );
    case::<f32>(Exponential { lambda: 2.0 }, 7, 0x54785353a1b99220);
    case::<f32>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        7,
        0x630ac73d72596aa7,
    );
    case::<f32>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        17,
        0xcced6b997161a41b,
    );
    case::<f32>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        17,
        0x42cb2b6550c03ad7,
    );
    case::<f32>(Exponential { lambda: 2.0 }, 17, 0xf31d25a0c6dfde12);
    case::<f32>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        17,
        0x74de719f9159979f,
    );
    case::<f32>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        1000,
        0x1369bcc19ca483aa,
    );
    case::<f32>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        1000,
        0x04e260fc3dc32980,
    );
    case::<f32>(Exponential { lambda: 2.0 }, 1000, 0xf5d40fbd03394d4f);
    case::<f32>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        1000,
        0x1777d7c81141a745,
    );
    case::<f64>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        7,
        0x3963bf4d32e7a6ae,
    );
    case::<f64>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        7,
        0x1a99200cea5220d5,
    );
    case::<f64>(Exponential { lambda: 2.0 }, 7, 0x18f0225e64d797e5);
    case::<f64>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        7,
        0x74015a14b6876aa7,
    );
    case::<f64>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        17,
        0x0d52fec49d0868da,
    );
    case::<f64>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        17,
        0xb6c6459e0c5732bf,
    );
    case::<f64>(Exponential { lambda: 2.0 }, 17, 0x95a644ccf90916e7);
    case::<f64>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        17,
        0x760a0cffd1f7979f,
    );
    case::<f64>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        1000,
        0xe697afb942bad2e5,
    );
    case::<f64>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        1000,
        0x1b7289b5317c689d,
    );
    case::<f64>(Exponential { lambda: 2.0 }, 1000, 0x65a6321174caf532);
    case::<f64>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        1000,
        0x81d4fb178b17a745,
    );
    case::<f16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        7,
        0x3e914bd1234d8c27,
    );
    case::<f16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        7,
        0x4bd3d42ba8fb37de,
    );
    case::<f16>(Exponential { lambda: 2.0 }, 7, 0x6ddf449be5cf034d);
    case::<f16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        7,
        0xff08ab8aeb3a2657,
    );
    case::<f16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        17,
        0x89a16d4d44786dc9,
    );
    case::<f16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        17,
        0xeeedbd0e72fcc9a1,
    );
    case::<f16>(Exponential { lambda: 2.0 }, 17, 0x8771ab5dbb6dfae4);
    case::<f16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        17,
        0xe787513bfd789f0f,
    );
    case::<f16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        1000,
        0x2d0c461bacffb86e,
    );
    case::<f16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        1000,
        0x4671183898f8dc3f,
    );
    case::<f16>(Exponential { lambda: 2.0 }, 1000, 0x30974afc2eb39d7d);
    case::<f16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        1000,
        0xa00b89c0d9220875,
    );
    case::<bf16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        7,
        0xe6971a41d2198f16,
    );
    case::<bf16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        7,
        0x454cf07e9ad4ff54,
    );
    case::<bf16>(Exponential { lambda: 2.0 }, 7, 0xa389e2a1434dcaa7);
    case::<bf16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        7,
        0xebfc780cb8c338fd,
    );
    case::<bf16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        17,
        0x5edd165e8aa4a278,
    );
    case::<bf16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        17,
        0x58a2a5bc6a744393,
    );
    case::<bf16>(Exponential { lambda: 2.0 }, 17, 0x5d11160fcd72e7cb);
    case::<bf16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        17,
        0xc145785369a6d265,
    );
    case::<bf16>(
        Uniform {
            from: -1.0,
            to: 2.0,
        },
        1000,
        0xce7e83d64973daa7,
    );
    case::<bf16>(
        Normal {
            mean: 0.5,
            std: 2.0,
        },
        1000,
        0xfdce7dff100e9bd1,
    );
    case::<bf16>(Exponential { lambda: 2.0 }, 1000, 0x8dc111ceed2fc4df);
    case::<bf16>(
        RandomRange {
            from: -3,
            to: Some(100),
        },
        1000,
        0x935d0baeb581d727,
    );
}
