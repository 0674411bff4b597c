//! What sparse and quantised tensors show of their parts.

use super::object::{PyTensor, wrap};
use super::types::{self, PyLayout};
use crate::ops::core::helpers;
use crate::parts::{Layout, Parts};
use crate::{Result, Tensor, bail, err};
use pyo3::prelude::*;
use std::sync::Arc;

/// The parts of a tensor, if it has any.
pub fn of(t: &Tensor) -> Option<Arc<Parts>> {
    t.storage().parts()
}

pub use crate::parts::located;

fn layout_name(t: &Tensor) -> &'static str {
    of(t).map_or("strided", |p| p.layout())
}

/// `CSR` of a tensor with compressed rows, and so on.
pub(super) fn compressed_kind(t: &Tensor) -> Option<String> {
    match of(t)?.stored() {
        Layout::Compressed(kind) => Some(format!("{kind:?}").to_ascii_uppercase()),
        _ => None,
    }
}

/// PyTorch's complaint about a method of another layout.
fn wrong_layout(t: &Tensor, what: &str, wanted: &str) -> crate::Error {
    let layout = of(t).map_or(Layout::Strided, |p| p.stored());
    let name = layout.word();
    err!(
        Runtime,
        "{what} expected {wanted} tensor layout but got {name}"
    )
}

fn coo(t: &Tensor, what: &str) -> Result<(Tensor, Tensor, bool)> {
    match of(t).as_deref() {
        Some(Parts::Coo {
            indices,
            values,
            coalesced,
        }) => Ok((indices.clone(), values.clone(), *coalesced)),
        _ => Err(wrong_layout(t, what, "sparse coordinate")),
    }
}

fn coalesced(t: &Tensor, what: &str) -> Result<(Tensor, Tensor)> {
    let (indices, values, known) = coo(t, what)?;
    if !known {
        bail!(
            Runtime,
            "Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
        );
    }
    Ok((indices, values))
}

fn compressed(t: &Tensor, what: &str, rows: bool) -> Result<(Tensor, Tensor)> {
    match of(t).as_deref() {
        Some(Parts::Compressed {
            kind,
            compressed,
            plain,
            ..
        }) if kind.rows() == rows => Ok((compressed.clone(), plain.clone())),
        _ => Err(wrong_layout(
            t,
            what,
            if rows {
                "sparse row compressed"
            } else {
                "sparse column compressed"
            },
        )),
    }
}

fn quantizer(t: &Tensor, what: &str) -> Result<Parts> {
    of(t)
        .and_then(|p| p.quantizer().cloned())
        .ok_or_else(|| err!(Runtime, "{what}(): expected a quantized tensor"))
}

/// The integers of a quantised tensor as ordinary ones, on memory of their own; packed ones stay packed.
fn integers(t: &Tensor) -> Result<Tensor> {
    if located(t).is_meta() {
        bail!(
            NotImplemented,
            "the integers of a quantized tensor on meta are not known"
        );
    }
    if let Some(Parts::Packed { bytes, .. }) = of(t).as_deref() {
        return helpers::clone(bytes, crate::MemoryFormat::Preserve);
    }
    let plain = crate::parts::integers(t)?;
    // The storage carries the quantizer, so that the result needs another one.
    helpers::clone(&plain, crate::MemoryFormat::Preserve)
}

impl PyTensor {
    pub(super) fn layout(&self, py: Python<'_>) -> PyResult<Py<PyLayout>> {
        types::layout(py, layout_name(self.get()))
    }
    pub(super) fn is_sparse(&self) -> bool {
        layout_name(self.get()) == "sparse_coo"
    }
    pub(super) fn is_sparse_csr(&self) -> bool {
        layout_name(self.get()) == "sparse_csr"
    }
}

#[pymethods]
impl PyTensor {
    /// True for sparse and quantised tensors, which are more than a view of a storage.
    fn _has_parts(&self) -> bool {
        self.get().has_parts()
    }
    fn is_coalesced(&self) -> PyResult<bool> {
        Ok(coo(self.get(), "is_coalesced")?.2)
    }
    /// Says whether positions are sorted and distinct.
    fn _coalesced_<'py>(slf: Bound<'py, Self>, coalesced: bool) -> PyResult<Bound<'py, Self>> {
        let t = slf.get().get().clone();
        let (indices, values, _) = coo(&t, "_coalesced_")?;
        crate::ops::core::writable::check_leaf(&t)?;
        t.storage().set_parts(Some(Arc::new(Parts::Coo {
            indices,
            values,
            coalesced,
        })));
        t.bump();
        Ok(slf)
    }
    fn _indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, coo(self.get(), "_indices")?.0)
    }
    fn _values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, coo(self.get(), "_values")?.1)
    }
    fn indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, coalesced(self.get(), "indices")?.0)
    }
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let t = self.get();
        let values = match of(t).as_deref() {
            Some(Parts::Compressed { values, .. }) => values.clone(),
            Some(Parts::Coo { .. }) => coalesced(t, "values")?.1,
            _ => return Err(wrong_layout(t, "values", "sparse").into()),
        };
        if t.requires_grad() {
            return wrap(py, crate::f::_sparse_values(t)?);
        }
        wrap(py, values)
    }
    fn _nnz(&self) -> PyResult<i64> {
        match of(self.get()).as_deref() {
            Some(Parts::Coo { indices, .. }) => Ok(indices.shape()[1]),
            Some(Parts::Compressed { plain, .. }) => Ok(plain.shape().last().copied().unwrap_or(0)),
            _ => Err(wrong_layout(self.get(), "_nnz", "sparse").into()),
        }
    }
    fn sparse_dim(&self) -> i64 {
        match of(self.get()).as_deref() {
            Some(Parts::Coo { indices, .. }) => indices.shape()[0],
            Some(Parts::Compressed { .. }) => 2,
            _ => 0,
        }
    }
    fn dense_dim(&self) -> i64 {
        match of(self.get()).as_deref() {
            Some(Parts::Coo { values, .. }) => values.ndim() as i64 - 1,
            Some(Parts::Compressed { compressed, .. }) => {
                self.get().ndim() as i64 - 1 - compressed.ndim() as i64
            }
            _ => self.get().ndim() as i64,
        }
    }
    fn crow_indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, compressed(self.get(), "crow_indices", true)?.0)
    }
    fn col_indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, compressed(self.get(), "col_indices", true)?.1)
    }
    fn ccol_indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, compressed(self.get(), "ccol_indices", false)?.0)
    }
    fn row_indices<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        wrap(py, compressed(self.get(), "row_indices", false)?.1)
    }
    fn int_repr<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        quantizer(slf.get().get(), "int_repr")?;
        wrap(slf.py(), integers(slf.get().get())?)
    }
    fn qscheme(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let scheme = quantizer(self.get(), "qscheme")?.qscheme().unwrap_or("");
        Ok(py.import("torchlike")?.getattr(scheme)?.unbind())
    }
    fn q_scale(&self) -> PyResult<f64> {
        match quantizer(self.get(), "q_scale")? {
            Parts::PerTensor { scale, .. } => Ok(scale),
            _ => Err(err!(
                Runtime,
                "q_scale(): expected quantizer of per tensor affine"
            )
            .into()),
        }
    }
    fn q_zero_point(&self) -> PyResult<i64> {
        match quantizer(self.get(), "q_zero_point")? {
            Parts::PerTensor { zero_point, .. } => Ok(zero_point),
            _ => Err(err!(
                Runtime,
                "q_zero_point(): expected quantizer of per tensor affine"
            )
            .into()),
        }
    }
    fn q_per_channel_scales<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &quantizer(self.get(), "q_per_channel_scales")? {
            Parts::PerChannel { scales, .. } => wrap(py, scales.clone()),
            _ => Err(err!(Runtime, "expected quantizer of per channel affine").into()),
        }
    }
    fn q_per_channel_zero_points<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &quantizer(self.get(), "q_per_channel_zero_points")? {
            Parts::PerChannel { zero_points, .. } => wrap(py, zero_points.clone()),
            _ => Err(err!(Runtime, "expected quantizer of per channel affine").into()),
        }
    }
    fn q_per_channel_axis(&self) -> PyResult<i64> {
        match quantizer(self.get(), "q_per_channel_axis")? {
            Parts::PerChannel { axis, .. } => Ok(axis),
            _ => Err(err!(Runtime, "expected quantizer of per channel affine").into()),
        }
    }
}

/// The integers of a quantised tensor, one an element.
#[pyfunction]
fn _integers<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>> {
    let (py, t) = (t.py(), t.get().get());
    let parts = of(t);
    let Some(Parts::Packed { bytes, dtype, .. }) = parts.as_deref() else {
        return wrap(py, integers(t)?);
    };
    if bytes.is_meta() {
        return wrap(py, integers(t)?);
    }
    let made = py.detach(|| {
        let packed = bytes.to_device(crate::Device::CPU)?.to_vec::<u8>()?;
        let per_byte = dtype.per_byte().unwrap_or(1);
        let bits = 8 / per_byte;
        let numbers: Vec<u8> = (0..t.numel() as usize)
            .map(|i| packed[i / per_byte] >> (bits * (i % per_byte)) & ((1 << bits) - 1))
            .collect();
        Tensor::from_slice(&numbers, t.shape())
    })?;
    wrap(py, made)
}

/// A sparse COO tensor of parts.
#[pyfunction]
fn _sparse_coo<'py>(
    py: Python<'py>,
    indices: &Bound<'py, PyTensor>,
    values: &Bound<'py, PyTensor>,
    size: Vec<i64>,
    coalesced: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let (indices, values) = (indices.get().get().clone(), values.get().get().clone());
    let dtype = values.dtype();
    let parts = Parts::Coo {
        indices,
        values,
        coalesced,
    };
    wrap(py, parts.into_tensor(&size, dtype)?)
}

/// The tensors that a tensor is made of: itself, or its parts.
#[pyfunction]
fn _parts<'py>(t: &Bound<'py, PyTensor>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let inner = t.get().get();
    let mut all = match of(inner) {
        Some(parts) => parts
            .tensors()
            .into_iter()
            .map(|p| wrap(t.py(), p.clone()))
            .collect::<PyResult<Vec<_>>>()?,
        None => Vec::new(),
    };
    if !inner.storage().is_opaque() {
        all.push(t.clone().into_any());
    }
    Ok(all)
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_sparse_coo, m)?)?;
    m.add_function(wrap_pyfunction!(_integers, m)?)?;
    m.add_function(wrap_pyfunction!(_parts, m)?)
}
