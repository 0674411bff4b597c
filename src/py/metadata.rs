//! What a tensor says about itself: sizes, dtype, device, kinds, and the views that are attributes.

use super::convert::tensor_arg;
use super::object::{PyTensor, viewing, wrap};
use super::sizes;
use super::types::{self, PyDType, device, dtype};
use crate::MemoryFormat;
use crate::layers::autograd::views;
use crate::ops::f;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;

/// A dimension, by place or by keyword.
fn dim_of(o: &Bound<'_, PyAny>, function: &str) -> PyResult<i64> {
    o.extract().map_err(|_| {
        let found = types::type_name(o);
        PyTypeError::new_err(format!(
            "{function}(): argument 'dim' (position 1) must be int, not {found}"
        ))
    })
}

impl PyTensor {
    pub(super) fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        sizes::shape(slf.py(), slf.get().get().shape())
    }
    /// All strides.
    pub(super) fn strides<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if t.storage().is_opaque() && !t.dtype().is_quantized() {
            return match super::parts::compressed_kind(t) {
                Some(kind) => Err(PyRuntimeError::new_err(format!(
                    "Sparse {kind} tensors do not have strides"
                ))),
                None => sizes::strides(slf.py(), &crate::Dims::filled(t.ndim(), 0)),
            };
        }
        sizes::strides(slf.py(), t.strides())
    }
    pub(super) fn get_dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype(py, self.get().dtype())
    }
    pub(super) fn get_device_object(&self, py: Python<'_>) -> PyResult<Py<types::PyDevice>> {
        device(py, super::parts::located(self.get()))
    }
    pub(super) fn ndim(&self) -> usize {
        self.get().ndim()
    }
    pub(super) fn itemsize(&self) -> usize {
        self.get().dtype().size()
    }
    pub(super) fn nbytes(&self) -> i64 {
        self.get().numel() * self.get().dtype().size() as i64
    }
    pub(super) fn is_meta(&self) -> bool {
        super::parts::located(self.get()).is_meta()
    }
    pub(super) fn is_cpu(&self) -> bool {
        super::parts::located(self.get()).is_cpu()
    }
    pub(super) fn is_cuda(&self) -> bool {
        super::parts::located(self.get()).kind == crate::DeviceKind::Cuda
    }
    pub(super) fn is_quantized(&self) -> bool {
        self.get().dtype().is_quantized()
    }
    pub(super) fn is_mkldnn(&self) -> bool {
        false
    }
    pub(super) fn is_mps(&self) -> bool {
        false
    }
    pub(super) fn is_xpu(&self) -> bool {
        false
    }
    pub(super) fn _version(&self) -> PyResult<u32> {
        if self.get().is_inference() {
            return Err(PyRuntimeError::new_err(
                "Inference tensors do not track version counter.",
            ));
        }
        Ok(self.get().storage().version())
    }
    /// A view of this tensor.
    fn seen<'py>(slf: &Bound<'py, Self>, view: crate::Tensor) -> PyResult<Bound<'py, PyAny>> {
        let made = wrap(slf.py(), view)?;
        Ok(viewing(made, std::slice::from_ref(slf.as_any())))
    }
    /// The tensor that this one is a view of.
    pub(super) fn base_object<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let t = slf.get().get();
        if !t.is_view() && !t.is_python() {
            return Ok(py.None().into_bound(py));
        }
        if let Some(base) = slf.get().base() {
            return Ok(base.bind(py).clone().into_any());
        }
        match views::base_of(t)? {
            Some(base) => wrap(py, base),
            None => Ok(py.None().into_bound(py)),
        }
    }
    pub(super) fn t_all<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen(slf, f::numpy_T(slf.get().get())?)
    }
    pub(super) fn h<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen(slf, f::matrix_H(slf.get().get())?)
    }
    pub(super) fn m_t<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen(slf, f::mT(slf.get().get())?)
    }
    pub(super) fn m_h<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen(slf, f::mH(slf.get().get())?)
    }
    pub(super) fn real<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().get().dtype().is_complex() {
            return Self::seen(slf, f::real(slf.get().get())?);
        }
        Ok(slf.clone().into_any())
    }
    pub(super) fn imag<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::seen(slf, f::imag(slf.get().get())?)
    }
}

/// Warns of a device where pinned memory has none.
fn warn_of_device(py: Python<'_>, device: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<()> {
    if device.is_some() {
        let text = format!(
            "The argument 'device' of Tensor.{name}() is deprecated. Please do not pass this argument."
        );
        let kind = py.get_type::<pyo3::exceptions::PyDeprecationWarning>();
        py.import("warnings")?.call_method1("warn", (text, kind))?;
    }
    Ok(())
}

#[pymethods]
impl PyTensor {
    #[pyo3(signature = (dim=None))]
    fn size<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(dim) = dim else {
            return Self::shape(slf);
        };
        let size = slf.get().get().size(dim_of(dim, "size")?)?;
        Ok(size.into_pyobject(slf.py())?.into_any())
    }
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(
        slf: &Bound<'py, Self>,
        dim: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let all = Self::strides(slf)?;
        let Some(dim) = dim else { return Ok(all) };
        let dim = dim_of(dim, "stride")?;
        let t = slf.get().get();
        t.size(dim)?;
        all.get_item(crate::dims::wrap_dim(dim, t.ndim())?)
    }
    fn dim(&self) -> usize {
        self.get().ndim()
    }
    fn ndimension(&self) -> usize {
        self.get().ndim()
    }
    fn nelement(&self) -> i64 {
        self.get().numel()
    }
    fn storage_offset(&self) -> i64 {
        self.get().offset()
    }
    fn element_size(&self) -> usize {
        self.get().dtype().size()
    }
    fn data_ptr(&self) -> usize {
        match self.get().numel() {
            0 => 0,
            _ => self.get().data_ptr() as usize,
        }
    }
    fn get_device(&self) -> i8 {
        super::parts::located(self.get()).index
    }
    fn is_floating_point(&self) -> bool {
        self.get().dtype().is_float()
    }
    fn is_complex(&self) -> bool {
        self.get().dtype().is_complex()
    }
    fn is_signed(&self) -> bool {
        self.get().dtype().is_signed()
    }
    fn is_conj(&self) -> bool {
        self.get().is_conj()
    }
    fn is_neg(&self) -> bool {
        self.get().is_neg()
    }
    fn is_inference(&self) -> bool {
        self.get().is_inference()
    }
    #[pyo3(signature = (device=None))]
    fn is_pinned(&self, py: Python<'_>, device: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        if let Some(named) = device.filter(|d| d.is_instance_of::<pyo3::types::PyString>()) {
            types::device_of(named)?;
        }
        warn_of_device(py, device, "is_pinned")?;
        Ok(false)
    }
    fn is_shared(&self) -> bool {
        super::storage::is_shared(self.get().storage())
    }
    #[pyo3(signature = (device=None))]
    fn pin_memory<'py>(
        slf: Bound<'py, Self>,
        device: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        warn_of_device(slf.py(), device, "pin_memory")?;
        let t = slf.get().get();
        if t.is_meta() {
            return Err(PyRuntimeError::new_err(format!(
                "cannot pin 'Meta{}Type' only dense CPU tensors can be pinned",
                t.dtype().scalar_type()
            )));
        }
        Err(PyRuntimeError::new_err(
            "Cannot access accelerator device when none is available.",
        ))
    }
    fn share_memory_(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        super::storage::share(slf.get().get().storage())?;
        Ok(slf)
    }
    #[pyo3(signature = (*, memory_format=None))]
    fn is_contiguous(&self, memory_format: Option<&types::PyFormat>) -> PyResult<bool> {
        let format = memory_format.map_or(MemoryFormat::Contiguous, types::PyFormat::format);
        Ok(self.get().is_contiguous_in(format))
    }
    fn _is_view(&self) -> PyResult<bool> {
        let t = self.get();
        Ok(t.is_view() || t.is_python() && views::base_of(t)?.is_some())
    }
    fn is_same_size(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.get().shape() == tensor_arg(other, "is_same_size", "other")?.shape())
    }
    fn is_set_to(&self, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (a, b) = (self.get(), tensor_arg(other, "is_set_to", "tensor")?);
        Ok(a.shares_storage(b)
            && a.offset() == b.offset()
            && a.shape() == b.shape()
            && a.strides() == b.strides())
    }
}
