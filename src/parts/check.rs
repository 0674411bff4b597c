//! Proofs that the parts of a sparse tensor fit one another, with PyTorch's texts where they do not.

use super::Compressed;
use crate::{DType, Device, Result, Tensor, ensure, err};

fn is_index(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::I64 | DType::I32)
}

/// The values of an index tensor whose data is here.
fn values_of(t: &Tensor) -> Result<Option<Vec<i64>>> {
    if t.storage().is_hollow() {
        return Ok(None);
    }
    t.to_device(Device::CPU)?
        .to_dtype(DType::I64)?
        .to_vec::<i64>()
        .map(Some)
}

pub(super) fn coo(indices: &Tensor, values: &Tensor, shape: &[i64]) -> Result<()> {
    let bad = |what: &str| {
        err!(
            Checkpoint,
            "a sparse COO tensor of shape {shape:?} with indices {} and values {}: {what}",
            indices.shape(),
            values.shape()
        )
    };
    ensure!(
        indices.dtype() == DType::I64 && indices.ndim() == 2 && values.ndim() >= 1,
        Checkpoint,
        "{}",
        bad("indices must be a matrix of int64")
    );
    let (sparse, entries) = (indices.shape()[0], indices.shape()[1]);
    let dense = usize::try_from(sparse)
        .ok()
        .and_then(|n| shape.get(n..))
        .ok_or_else(|| bad("more sparse dimensions than dimensions"))?;
    ensure!(
        values.shape()[0] == entries && values.shape()[1..] == *dense,
        Checkpoint,
        "{}",
        bad("they do not fit each other")
    );
    ensure!(
        indices.device() == values.device(),
        Checkpoint,
        "{}",
        bad("they are on different devices")
    );
    let Some(at) = values_of(indices)? else {
        return Ok(());
    };
    for (row, &size) in at
        .chunks_exact(usize::try_from(entries).unwrap_or(0).max(1))
        .zip(shape)
    {
        if let Some(i) = row.iter().find(|&&i| i < 0 || i >= size) {
            return Err(bad(&format!(
                "index {i} lies outside a dimension of {size}"
            )));
        }
    }
    Ok(())
}

pub(super) fn compressed(kind: Compressed, parts: [&Tensor; 3], shape: &[i64]) -> Result<()> {
    let [compressed, plain, values] = parts;
    let bad = |what: &str| {
        err!(
            Checkpoint,
            "a compressed sparse tensor of shape {shape:?} with indices {} and {} and values {}: {what}",
            compressed.shape(),
            plain.shape(),
            values.shape()
        )
    };
    let words = Words::of(kind);
    check_indices(&words, compressed, plain)?;
    let batch = compressed
        .ndim()
        .checked_sub(1)
        .filter(|&b| plain.ndim() == b + 1 && shape.len() >= b + 2 && values.ndim() > b)
        .ok_or_else(|| bad("too few dimensions"))?;
    let block = if kind.blocks() { 2 } else { 0 };
    let dense = shape.len() - batch - 2;
    ensure!(
        values.ndim() == batch + 1 + block + dense,
        Checkpoint,
        "{}",
        bad("the values have the wrong number of dimensions")
    );
    let entries = plain.shape()[batch];
    let (mut rows, mut columns) = (shape[batch], shape[batch + 1]);
    if kind.blocks() {
        let (r, c) = (values.shape()[batch + 1], values.shape()[batch + 2]);
        ensure!(
            r > 0 && c > 0 && rows % r == 0 && columns % c == 0,
            Checkpoint,
            "{}",
            bad("blocks do not divide the shape")
        );
        (rows, columns) = (rows / r, columns / c);
    }
    if !kind.rows() {
        (rows, columns) = (columns, rows);
    }
    ensure!(
        values.shape()[batch] == entries,
        Checkpoint,
        "{}.shape[-1] must be equal to nnz (={}) as defined by values.shape[{batch}], but got {entries}",
        words.plain,
        values.shape()[batch]
    );
    ensure!(
        rows.checked_add(1) == Some(compressed.shape()[batch]),
        Checkpoint,
        "{}.shape[-1] must be equal to the number of {} + 1 (={}), but got {}",
        words.compressed,
        if kind.rows() { "rows" } else { "columns" },
        rows.saturating_add(1),
        compressed.shape()[batch]
    );
    let fits = compressed.shape()[..batch] == shape[..batch]
        && plain.shape()[..batch] == shape[..batch]
        && values.shape()[..batch] == shape[..batch]
        && values.shape()[batch + 1 + block..] == shape[batch + 2..];
    ensure!(fits, Checkpoint, "{}", bad("they do not fit each other"));
    ensure!(
        compressed.device() == values.device() && plain.device() == values.device(),
        Checkpoint,
        "{}",
        bad("they are on different devices")
    );
    let (Some(starts), Some(at)) = (values_of(compressed)?, values_of(plain)?) else {
        return Ok(());
    };
    let step = usize::try_from(entries).unwrap_or(0);
    for (b, starts) in starts
        .chunks_exact(compressed.shape()[batch] as usize)
        .enumerate()
    {
        let at = at.get(b * step..(b + 1) * step).unwrap_or(&[]);
        if let Some(rule) = broken_rule(kind, starts, at, (entries, columns)) {
            return Err(err!(Checkpoint, "`{rule}` is not satisfied."));
        }
    }
    Ok(())
}

/// Checks that both tensors of indices are of one type for indices.
fn check_indices(words: &Words, compressed: &Tensor, plain: &Tensor) -> Result<()> {
    ensure!(
        is_index(compressed),
        Checkpoint,
        "{} and {} dtype must be Int or Long, but got {}",
        words.compressed,
        words.plain,
        compressed.dtype().scalar_type()
    );
    ensure!(
        compressed.dtype() == plain.dtype(),
        Checkpoint,
        "{} and {} must have the same dtype, bot got {} and {}, respectively",
        words.compressed,
        words.plain,
        compressed.dtype().scalar_type(),
        plain.dtype().scalar_type()
    );
    Ok(())
}

/// What PyTorch calls the indices of a layout, and what they run over.
struct Words {
    compressed: &'static str,
    plain: &'static str,
    line: &'static str,
    other: &'static str,
}

impl Words {
    fn of(kind: Compressed) -> Self {
        let [compressed, plain, line, other] = match kind.rows() {
            true => ["crow_indices", "col_indices", "row", "col"],
            false => ["ccol_indices", "row_indices", "col", "row"],
        };
        Self {
            compressed,
            plain,
            line,
            other,
        }
    }
}

/// The rule, in PyTorch's words, that the indices of a matrix break: where its rows begin, and the column of each entry
/// (or the other way round).
fn broken_rule(
    kind: Compressed,
    starts: &[i64],
    at: &[i64],
    (entries, columns): (i64, i64),
) -> Option<String> {
    let Words {
        compressed,
        plain,
        line,
        other,
    } = Words::of(kind);
    if starts.first() != Some(&0) {
        return Some(format!("{compressed}[..., 0] == 0"));
    }
    if starts.last() != Some(&entries) {
        return Some(format!("{compressed}[..., -1] == nnz"));
    }
    if !starts
        .windows(2)
        .all(|w| w[0] <= w[1] && w[1] - w[0] <= columns)
    {
        return Some(format!(
            "0 <= {compressed}[..., 1:] - {compressed}[..., :-1] <= n{other}s"
        ));
    }
    if !at.iter().all(|i| (0..columns).contains(i)) {
        return Some(format!("0 <= {plain} < n{other}s"));
    }
    let sorted = starts.windows(2).all(|w| {
        let line = at.get(w[0] as usize..w[1] as usize).unwrap_or(&[]);
        line.windows(2).all(|p| p[0] < p[1])
    });
    (!sorted).then(|| {
        format!(
            "{plain}[..., {compressed}[..., i - 1]:{compressed}[..., i]] for all i = 1, ..., n{line}s are sorted and distinct \
             along the last dimension values"
        )
    })
}
