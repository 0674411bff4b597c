//! Comparing the elements of two tensors of one dtype and shape.

use super::write::flat::elements;
use super::{Archive, NamedTensor};
use crate::{DType, Result, ensure};
use half::{bf16, f16};

/// How two tensors differ.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Elements that differ by more than the tolerance.
    pub different: u64,
    /// All elements.
    pub elements: u64,
    /// The largest distance of two elements (of parts, of complex ones), if they are numbers that we read.
    pub largest: Option<f64>,
}

/// Compares the elements of tensor `t` of archive `a` with those of `u` of archive `b`: equal bytes are equal, and so are
/// numbers that differ by at most `tolerance`, and NaNs.
///
/// # Errors
/// If dtypes or shapes differ, or a storage cannot be read.
pub fn compare(
    a: &Archive,
    t: &NamedTensor<'_>,
    b: &Archive,
    u: &NamedTensor<'_>,
    tolerance: f64,
) -> Result<Difference> {
    let dtype = t.tensor.dtype;
    ensure!(
        dtype == u.tensor.dtype && t.tensor.shape() == u.tensor.shape(),
        Value,
        "tensors '{}' and '{}' are not of one dtype and shape",
        t.name,
        u.name
    );
    let left_bytes = a.read_storage(t.storage)?;
    let right_bytes = b.read_storage(u.storage)?;
    let mut left = Vec::new();
    elements(&left_bytes, t.tensor, &mut |piece| {
        left.extend_from_slice(piece);
        Ok(())
    })?;
    left_bytes.release();
    let size = dtype.size();
    let mut done = Difference {
        elements: (left.len() / size) as u64,
        ..Difference::default()
    };
    let mut rest = &left[..];
    elements(&right_bytes, u.tensor, &mut |piece| {
        let ours = rest.get(..piece.len()).unwrap_or(&[]);
        rest = rest.get(piece.len()..).unwrap_or(&[]);
        if ours != piece {
            for (x, y) in ours.chunks_exact(size).zip(piece.chunks_exact(size)) {
                one(dtype, x, y, tolerance, &mut done);
            }
        }
        Ok(())
    })?;
    right_bytes.release();
    Ok(done)
}

fn one(dtype: DType, x: &[u8], y: &[u8], tolerance: f64, done: &mut Difference) {
    if x == y {
        return;
    }
    let part = dtype.to_real();
    let (mut far, mut known) = (false, true);
    for (x, y) in x.chunks_exact(part.size()).zip(y.chunks_exact(part.size())) {
        let (Some(p), Some(q)) = (number(part, x), number(part, y)) else {
            known = false;
            continue;
        };
        if p == q || (p.is_nan() && q.is_nan()) {
            continue;
        }
        let distance = (p - q).abs();
        done.largest = Some(match done.largest {
            Some(largest) if !distance.is_nan() => largest.max(distance),
            _ => distance,
        });
        far |= !(distance <= tolerance);
    }
    // Of numbers that we do not read, and integers beyond what a double tells apart, other bytes are other numbers.
    let integers = part.is_integral(true) && tolerance == 0.0;
    if far || !known || integers {
        done.different += 1;
    }
}

fn number(dtype: DType, b: &[u8]) -> Option<f64> {
    macro_rules! read {
        ($t:ty) => {
            <$t>::from_le_bytes(b.try_into().ok()?)
        };
    }
    Some(match dtype {
        DType::Bool | DType::U8 | DType::QU8 => f64::from(*b.first()?),
        DType::I8 | DType::QI8 => f64::from(read!(i8)),
        DType::I16 => f64::from(read!(i16)),
        DType::U16 => f64::from(read!(u16)),
        DType::I32 | DType::QI32 => f64::from(read!(i32)),
        DType::U32 => f64::from(read!(u32)),
        DType::I64 => read!(i64) as f64,
        DType::U64 => read!(u64) as f64,
        DType::F16 => f16::from_le_bytes(b.try_into().ok()?).to_f64(),
        DType::BF16 => bf16::from_le_bytes(b.try_into().ok()?).to_f64(),
        DType::F32 => f64::from(read!(f32)),
        DType::F64 => read!(f64),
        _ => return None,
    })
}
