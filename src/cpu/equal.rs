//! Whether two tensors hold the same elements.

use super::simd::simd_fn;
use super::slice;
use crate::{DType, Tensor, with_dtype};

/// Elements that are compared before the outcome is looked at.
const PART: usize = 1024;

simd_fn! { stream
    fn differ<T: PartialEq>(x: &[T], y: &[T]) -> bool {
        let mut found = false;
        for (x, y) in x.iter().zip(y) {
            found |= x != y;
        }
        found
    }
}

fn alike<T: PartialEq>(x: &[T], y: &[T]) -> bool {
    let parts = x.chunks(PART).zip(y.chunks(PART));
    !parts.into_iter().any(|(x, y)| differ(x, y))
}

/// Whether all elements of two tensors of one shape are the same, up to the first part that differs. None: they do not lie
/// alike, or their types have to be brought together first.
#[must_use]
pub fn equal(x: &Tensor, y: &Tensor) -> Option<bool> {
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy() && t.dtype() == x.dtype();
    if !dense(x) || !dense(y) {
        return None;
    }
    if x.dtype() == DType::Bool {
        // Any byte but 0 is true.
        let mut all = super::memory::bytes(x).iter().zip(super::memory::bytes(y));
        return Some(all.all(|(x, y)| (*x != 0) == (*y != 0)));
    }
    with_dtype!(x.dtype(), [int uint half float complex] => E, {
        return Some(alike(slice::<E>(x), slice::<E>(y)));
    }, else {});
    None
}

#[cfg(test)]
mod tests {
    use super::equal;
    use crate::{DType, Tensor};

    #[test]
    fn one_element_makes_the_difference() {
        for n in [1i64, 100, 5000] {
            for place in [0, n / 2, n - 1] {
                let mut v: Vec<f64> = (0..n).map(|i| (i % 7) as f64).collect();
                let x = Tensor::from_slice(&v, &[n]).unwrap();
                v[place as usize] = 9.0;
                let y = Tensor::from_slice(&v, &[n]).unwrap();
                for d in [DType::F64, DType::F16, DType::I32, DType::U8, DType::C64] {
                    let (x, y) = (
                        super::super::copy::converted(&x, d).unwrap(),
                        super::super::copy::converted(&y, d).unwrap(),
                    );
                    assert_eq!(equal(&x, &x), Some(true));
                    assert_eq!(equal(&x, &y), Some(false), "{d} {place}");
                }
            }
        }
        let nan = Tensor::from_slice(&[f32::NAN], &[1]).unwrap();
        assert_eq!(equal(&nan, &nan), Some(false));
        let zeros = [0.0f32, -0.0].map(|v| Tensor::from_slice(&[v], &[1]).unwrap());
        assert_eq!(equal(&zeros[0], &zeros[1]), Some(true));
    }
}
