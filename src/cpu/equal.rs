//! Whether two tensors hold the same elements.

use super::memory::truths;
use super::simd::simd_fn;
use super::{copy, slice};
use crate::dims::layout_order;
use crate::{DType, Result, Tensor, with_dtype};

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

/// Elements of tensors that do not lie alike, which are copied before they are compared.
const PIECE: i64 = 4096;

/// Whether all elements of two tensors of one shape are the same, up to the first part that differs. None: their types have
/// to be brought together first.
///
/// # Errors
/// If memory cannot be had.
pub fn equal(x: &Tensor, y: &Tensor) -> Result<Option<bool>> {
    if x.dtype() != y.dtype() {
        return Ok(None);
    }
    if x.dtype() == DType::Bool {
        // Any byte but 0 is true.
        let same = |x: &Tensor, y: &Tensor| {
            let mut all = truths(x).iter().zip(truths(y));
            all.all(|(x, y)| (*x != 0) == (*y != 0))
        };
        return equal_in(x, y, &same).map(Some);
    }
    with_dtype!(x.dtype(), [int uint half float complex] => E, {
        let same = |x: &Tensor, y: &Tensor| alike(slice::<E>(x), slice::<E>(y));
        return equal_in(x, y, &same).map(Some);
    }, else {});
    Ok(None)
}

/// Goes through two tensors in the order in which the first one lies.
fn equal_in(x: &Tensor, y: &Tensor, same: &dyn Fn(&Tensor, &Tensor) -> bool) -> Result<bool> {
    if x.is_contiguous() && y.is_contiguous() {
        return in_pieces(x, y, same);
    }
    let order = layout_order(x.shape(), &[x.strides()]);
    in_pieces(&x.permuted(&order), &y.permuted(&order), same)
}

fn in_pieces(x: &Tensor, y: &Tensor, same: &dyn Fn(&Tensor, &Tensor) -> bool) -> Result<bool> {
    let lies = |t: &Tensor| t.is_contiguous() && !t.is_lazy();
    if x.numel() <= PIECE || (lies(x) && lies(y)) {
        let (x, y) = (copy::dense(x, x.dtype())?, copy::dense(y, y.dtype())?);
        return Ok(same(&x, &y));
    }
    let len = x.shape()[0];
    let each = (PIECE / (x.numel() / len)).max(1);
    for start in (0..len).step_by(each as usize) {
        let part = |t: &Tensor| match each {
            1 => t.selected(0, start),
            _ => t.narrowed(0, start, each.min(len - start)),
        };
        if !in_pieces(&part(x), &part(y), same)? {
            return Ok(false);
        }
    }
    Ok(true)
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
                    assert_eq!(equal(&x, &x).unwrap(), Some(true));
                    assert_eq!(equal(&x, &y).unwrap(), Some(false), "{d} {place}");
                }
            }
        }
        let nan = Tensor::from_slice(&[f32::NAN], &[1]).unwrap();
        assert_eq!(equal(&nan, &nan).unwrap(), Some(false));
        let zeros = [0.0f32, -0.0].map(|v| Tensor::from_slice(&[v], &[1]).unwrap());
        assert_eq!(equal(&zeros[0], &zeros[1]).unwrap(), Some(true));
    }
}
