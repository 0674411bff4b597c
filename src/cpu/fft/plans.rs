//! The plans of transforms, which are kept: making one takes longer than many transforms.

use super::side::Side;
use super::vector::{self, Vectors};
use crate::Element;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftNum, FftPlanner};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// At most this many plans of a kind are kept.
const PLANS: usize = 64;

type Kept<K, P> = LazyLock<Mutex<HashMap<K, Arc<P>>>>;

/// A plan that is kept, or a new one.
fn kept<K: std::hash::Hash + Eq, P: ?Sized>(
    plans: &Kept<K, P>,
    key: K,
    make: impl FnOnce() -> Arc<P>,
) -> Arc<P> {
    let lock = || plans.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(plan) = lock().get(&key) {
        return plan.clone();
    }
    let plan = make();
    let mut all = lock();
    if all.len() >= PLANS {
        all.clear();
    }
    all.insert(key, plan.clone());
    plan
}

/// A real type that transforms have.
pub trait Real: Element + FftNum + Vectors {
    /// The plan for complex lines of a length.
    fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>>;
    /// The plan from real lines of a length.
    fn forward(n: usize) -> Arc<dyn RealToComplex<Self>>;
    /// The plan to real lines of a length.
    fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>>;
    /// The plan for several complex lines of a length, if the machine and the length are for it.
    fn side_by_side(n: usize) -> Option<Arc<Side<Self>>>;
    /// Of a factor.
    fn of(x: f64) -> Self;
}

macro_rules! real {
    ($t:ty) => {
        impl Real for $t {
            fn complex(n: usize, forward: bool) -> Arc<dyn Fft<Self>> {
                static PLANS: Kept<(usize, bool), dyn Fft<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, (n, forward), || match forward {
                    true => FftPlanner::new().plan_fft_forward(n),
                    false => FftPlanner::new().plan_fft_inverse(n),
                })
            }
            fn forward(n: usize) -> Arc<dyn RealToComplex<Self>> {
                static PLANS: Kept<usize, dyn RealToComplex<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, n, || RealFftPlanner::new().plan_fft_forward(n))
            }
            fn inverse(n: usize) -> Arc<dyn ComplexToReal<Self>> {
                static PLANS: Kept<usize, dyn ComplexToReal<$t>> = LazyLock::new(Mutex::default);
                kept(&PLANS, n, || RealFftPlanner::new().plan_fft_inverse(n))
            }
            fn side_by_side(n: usize) -> Option<Arc<Side<Self>>> {
                static PLANS: Kept<usize, Side<$t>> = LazyLock::new(Mutex::default);
                let fits = vector::available() && Side::<$t>::fits(n);
                fits.then(|| kept(&PLANS, n, || Arc::new(Side::of(n))))
            }
            fn of(x: f64) -> Self {
                x as $t
            }
        }
    };
}
real!(f32);
real!(f64);
