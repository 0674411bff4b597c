//! The Tensor class: getters, operators, indexing and what is no op.

#![allow(
    unsafe_code,
    reason = "the tensor in a Python object is replaced in place, under the interpreter lock"
)]

use super::call::{binary, scalar, to_python};
use super::convert::{self, PyGenerator, tensor_arg};
use super::types::{self, PyDType, device, device_of, dtype, size};
use crate::ops::Arg;
use crate::ops::op::Ret;
use crate::{DType, Device, Dims, MemoryFormat, Result, Scalar, Tensor, mode, op, run};
use pyo3::exceptions::{PyNotImplementedError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PySlice, PyString, PyTuple, PyType};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// `torchlike.Tensor`.
#[pyclass(frozen, name = "Tensor", module = "torchlike", subclass, weakref, dict)]
pub struct PyTensor(UnsafeCell<Tensor>);

// SAFETY: the cell is only read and written with the interpreter lock held; work without the lock uses clones.
unsafe impl Sync for PyTensor {}

/// `torchlike.nn.Parameter`.
#[pyclass(frozen, name = "Parameter", module = "torchlike.nn.parameter", extends = PyTensor, subclass)]
pub struct PyParameter;

impl PyTensor {
    /// Wraps a tensor.
    pub fn new(t: Tensor) -> Self {
        Self(UnsafeCell::new(t))
    }

    /// The tensor.
    #[inline]
    pub fn get(&self) -> &Tensor {
        // SAFETY: see the Sync implementation; `set` is never called while a borrow of the same call is used.
        unsafe { &*self.0.get() }
    }

    /// Replaces the tensor: another layout or storage in the same Python object.
    pub fn set(&self, t: Tensor) {
        // SAFETY: as above.
        unsafe { *self.0.get() = t };
    }

    /// The tensor object in a Python object.
    pub fn of<'a>(o: &'a Bound<'_, PyAny>) -> PyResult<&'a PyTensor> {
        o.cast::<PyTensor>()
            .map(|b| b.get())
            .map_err(|_| PyTypeError::new_err("expected a Tensor"))
    }
}

static TENSOR: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(std::ptr::null_mut());
static PARAMETER: AtomicPtr<ffi::PyTypeObject> = AtomicPtr::new(std::ptr::null_mut());

/// The tensor in a Python object, if it is one. Exact types are found by two pointer comparisons.
#[inline]
pub fn tensor_ref<'a>(o: &'a Bound<'_, PyAny>) -> Option<&'a Tensor> {
    // SAFETY: the object is alive, so its type is.
    let class = unsafe { ffi::Py_TYPE(o.as_ptr()) };
    if class == TENSOR.load(Relaxed) || class == PARAMETER.load(Relaxed) {
        // SAFETY: instances of exactly these types have this layout.
        return Some(unsafe { o.cast_unchecked::<PyTensor>() }.get().get());
    }
    o.cast::<PyTensor>().ok().map(|b| b.get().get())
}

/// A new Python object for a tensor.
#[inline]
pub fn wrap(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    Ok(Bound::new(py, PyTensor::new(t))?.into_any())
}

/// Sets the gradient flag, if the dtype can have gradients.
pub fn require_grad(t: Tensor) -> PyResult<Tensor> {
    if !t.dtype().is_float() && !t.dtype().is_complex() {
        return Err(PyRuntimeError::new_err(
            "Only Tensors of floating point and complex dtype can require gradients",
        ));
    }
    Ok(t.with_requires_grad(true))
}

fn swapped(t: &Tensor, what: &str) -> Result<Ret> {
    if t.ndim() != 2 {
        crate::bail!(
            Runtime,
            "tensor.{what} is only supported on matrices (2-D tensors). Got {}-D tensor.",
            t.ndim()
        );
    }
    Ok(t.swapped(0, 1).into())
}

macro_rules! operators {
    ($($slot:ident $name:literal $reflected:literal;)+) => {
        #[pymethods]
        impl PyTensor {
            $(fn $slot<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                binary(op!($name)?, slf.as_any(), other, $reflected, false)
            })+
        }
    };
}
operators! {
    __add__ "add" false; __radd__ "add" true; __sub__ "sub" false; __rsub__ "sub" true; __mul__ "mul" false; __rmul__ "mul" true;
    __truediv__ "div" false; __rtruediv__ "div" true; __floordiv__ "floor_divide" false; __rfloordiv__ "floor_divide" true;
    __mod__ "remainder" false; __rmod__ "remainder" true; __and__ "bitwise_and" false; __rand__ "bitwise_and" true;
    __or__ "bitwise_or" false; __ror__ "bitwise_or" true; __xor__ "bitwise_xor" false; __rxor__ "bitwise_xor" true;
    __lshift__ "bitwise_left_shift" false; __rlshift__ "bitwise_left_shift" true; __rshift__ "bitwise_right_shift" false;
    __rrshift__ "bitwise_right_shift" true;
}

macro_rules! in_place_operators {
    ($($slot:ident $name:literal;)+) => {
        #[pymethods]
        impl PyTensor {
            $(fn $slot(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
                let result = binary(op!($name)?, slf.as_any(), other, false, true)?;
                if result.is(slf.py().NotImplemented().bind(slf.py())) {
                    return Err(PyTypeError::new_err(format!(
                        "unsupported operand type(s) for {}: 'Tensor' and '{}'", stringify!($slot), types::type_name(other))));
                }
                Ok(())
            })+
        }
    };
}
in_place_operators! {
    __iadd__ "add"; __isub__ "sub"; __imul__ "mul"; __itruediv__ "div"; __ifloordiv__ "floor_divide"; __imod__ "remainder";
    __iand__ "bitwise_and"; __ior__ "bitwise_or"; __ixor__ "bitwise_xor"; __ilshift__ "bitwise_left_shift"; __irshift__ "bitwise_right_shift";
}

#[pymethods]
impl PyTensor {
    #[new]
    #[pyo3(signature = (*args, device=None))]
    fn py_new(args: &Bound<'_, PyTuple>, device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map(device_of).transpose()?.unwrap_or(Device::CPU);
        Ok(Self::new(super::data::legacy_constructor(
            args,
            DType::F32,
            device,
        )?))
    }
    #[pyo3(signature = (*_args, **_kwargs))]
    fn __init__(&self, _args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) {}

    #[staticmethod]
    #[pyo3(signature = (cls, data, require_grad=false))]
    fn _make_subclass<'py>(
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyAny>,
        require_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = tensor_arg(data, "_make_subclass", "data")?.detach();
        let t = if require_grad {
            self::require_grad(t)?
        } else {
            t
        };
        instance(cls, t)
    }
    fn as_subclass<'py>(
        slf: &Bound<'py, Self>,
        cls: &Bound<'py, PyType>,
    ) -> PyResult<Bound<'py, PyAny>> {
        instance(cls, slf.get().get().clone())
    }

    #[getter]
    fn shape<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        size(slf.py(), slf.get().get().shape())
    }
    #[pyo3(signature = (dim=None))]
    fn size<'py>(slf: &Bound<'py, Self>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        match dim {
            None => Self::shape(slf),
            Some(d) => Ok(slf.get().get().size(d)?.into_pyobject(slf.py())?.into_any()),
        }
    }
    #[pyo3(signature = (dim=None))]
    fn stride<'py>(slf: &Bound<'py, Self>, dim: Option<i64>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if t.storage().is_opaque() {
            return Err(PyRuntimeError::new_err(
                "sparse and nested tensors do not have strides",
            ));
        }
        match dim {
            None => Ok(PyTuple::new(slf.py(), t.strides().iter())?.into_any()),
            Some(d) => {
                t.size(d)?;
                Ok(t.strides()[crate::dims::wrap_dim(d, t.ndim())?]
                    .into_pyobject(slf.py())?
                    .into_any())
            }
        }
    }
    #[getter(dtype)]
    fn get_dtype(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype(py, self.get().dtype())
    }
    #[getter(device)]
    fn get_device_object(&self, py: Python<'_>) -> PyResult<Py<types::PyDevice>> {
        device(py, super::parts::located(self.get()))
    }
    #[getter]
    fn ndim(&self) -> usize {
        self.get().ndim()
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
    #[getter]
    fn itemsize(&self) -> usize {
        self.get().dtype().size()
    }
    #[getter]
    fn nbytes(&self) -> i64 {
        self.get().numel() * self.get().dtype().size() as i64
    }
    fn data_ptr(&self) -> usize {
        self.get().data_ptr() as usize
    }
    fn get_device(&self) -> i8 {
        super::parts::located(self.get()).index
    }
    #[getter]
    fn is_meta(&self) -> bool {
        super::parts::located(self.get()).is_meta()
    }
    #[getter]
    fn is_cpu(&self) -> bool {
        super::parts::located(self.get()).is_cpu()
    }
    #[getter]
    fn is_cuda(&self) -> bool {
        super::parts::located(self.get()).kind == crate::DeviceKind::Cuda
    }
    #[getter]
    fn is_quantized(&self) -> bool {
        matches!(
            self.get().dtype(),
            DType::QI8 | DType::QU8 | DType::QI32 | DType::QU4x2 | DType::QU2x4
        )
    }
    #[getter]
    fn is_mkldnn(&self) -> bool {
        false
    }
    #[getter]
    fn is_mps(&self) -> bool {
        false
    }
    #[getter]
    fn is_xpu(&self) -> bool {
        false
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
    fn is_pinned(&self) -> bool {
        false
    }
    fn is_shared(&self) -> bool {
        false
    }
    fn pin_memory(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
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
        if slf.get().get().is_meta() {
            return Err(PyRuntimeError::new_err("_share_fd_: only available on CPU"));
        }
        Err(PyNotImplementedError::new_err(
            "share_memory_(): torchlike does not share tensors between processes",
        ))
    }
    #[pyo3(signature = (*, memory_format=None))]
    fn is_contiguous(&self, memory_format: Option<&types::PyFormat>) -> PyResult<bool> {
        let format = memory_format.map_or(MemoryFormat::Contiguous, types::PyFormat::format);
        if format == MemoryFormat::Preserve {
            return Err(PyRuntimeError::new_err(
                "is_contiguous(): preserve memory format is unsupported",
            ));
        }
        Ok(self.get().is_contiguous_in(format))
    }
    #[getter]
    fn _version(&self) -> u32 {
        self.get().storage().version()
    }
    fn _is_view(&self) -> bool {
        self.get().is_view()
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

    #[getter(T)]
    fn t_all<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        let perm: Vec<usize> = (0..t.ndim()).rev().collect();
        wrap(slf.py(), t.permuted(&perm))
    }
    #[getter(H)]
    fn h<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if t.ndim() == 0 {
            return wrap(slf.py(), crate::ops::view::conj(t));
        }
        wrap(slf.py(), crate::ops::view::conj(&swapped(t, "H")?.one()?))
    }
    #[getter(mT)]
    fn m_t<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        matrix(slf, "mT", false)
    }
    #[getter(mH)]
    fn m_h<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        matrix(slf, "mH", true)
    }
    #[getter]
    fn real<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().get().dtype().is_complex() {
            return to_python(slf.py(), run!("real", slf.get().get())?, op!("real")?);
        }
        Ok(slf.clone().into_any())
    }
    #[getter]
    fn imag<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(slf.py(), run!("imag", slf.get().get())?, op!("imag")?)
    }

    #[getter]
    fn get_requires_grad(&self) -> bool {
        self.get().requires_grad()
    }
    #[setter]
    fn set_requires_grad(&self, on: bool) -> PyResult<()> {
        let t = self.get().clone();
        self.set(if on {
            require_grad(t)?
        } else {
            t.with_requires_grad(false)
        });
        Ok(())
    }
    #[pyo3(signature = (requires_grad=true))]
    fn requires_grad_(slf: Bound<'_, Self>, requires_grad: bool) -> PyResult<Bound<'_, Self>> {
        let d = slf.get().get().dtype();
        if requires_grad && !d.is_float() && !d.is_complex() {
            return Err(PyRuntimeError::new_err(
                "only Tensors of floating point dtype can require gradients",
            ));
        }
        slf.get().set_requires_grad(requires_grad)?;
        Ok(slf)
    }
    #[getter]
    fn is_leaf(&self) -> bool {
        true
    }
    #[getter]
    fn retains_grad(&self) -> bool {
        false
    }
    #[getter]
    fn output_nr(&self) -> i64 {
        0
    }
    #[getter]
    fn grad_fn(&self, py: Python<'_>) -> Py<PyAny> {
        py.None()
    }
    #[getter]
    fn names<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            slf.py(),
            (0..slf.get().get().ndim()).map(|_| slf.py().None()),
        )
    }
    #[getter]
    fn name(&self, py: Python<'_>) -> Py<PyAny> {
        py.None()
    }
    #[getter(grad)]
    fn grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let dict = slf.as_any().getattr("__dict__")?;
        let dict = dict.cast::<PyDict>()?;
        Ok(dict
            .get_item("_grad")?
            .unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }
    #[setter(grad)]
    fn set_grad(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if !value.is_none() {
            let Some(g) = tensor_ref(value) else {
                return Err(PyTypeError::new_err(format!(
                    "assigned grad expected to be a Tensor or None but got grad of type {}",
                    types::type_name(value)
                )));
            };
            check_grad(slf.get().get(), g)?;
        }
        slf.as_any()
            .getattr("__dict__")?
            .cast::<PyDict>()?
            .set_item("_grad", value)
    }
    #[getter(data)]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(slf.py(), slf.get().get().detach())
    }
    #[setter(data)]
    fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let new = tensor_arg(value, "set_data", "data").map_err(|_| {
            PyTypeError::new_err(format!(
                "Variable data has to be a tensor, but got {}",
                types::type_name(value)
            ))
        })?;
        let old = self.get();
        if old.requires_grad() && !new.dtype().is_float() && !new.dtype().is_complex() {
            return Err(PyRuntimeError::new_err(
                "data set to a tensor that requires gradients must be floating point or complex dtype",
            ));
        }
        if old.device().kind != new.device().kind && (old.is_meta() || new.is_meta()) {
            return Err(PyRuntimeError::new_err(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type. ",
            ));
        }
        let keep = old.requires_grad();
        self.set(new.clone().with_requires_grad(keep));
        Ok(())
    }
    fn detach_(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        let t = slf.get().get().clone().with_requires_grad(false);
        slf.get().set(t);
        slf
    }
    #[pyo3(signature = (gradient=None, retain_graph=None, create_graph=false, inputs=None))]
    fn backward(
        &self,
        gradient: Option<&Bound<'_, PyAny>>,
        retain_graph: Option<bool>,
        create_graph: bool,
        inputs: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (gradient, retain_graph, create_graph, inputs);
        if !self.get().requires_grad() {
            return Err(PyRuntimeError::new_err(
                "element 0 of tensors does not require grad and does not have a grad_fn",
            ));
        }
        Err(PyNotImplementedError::new_err(
            "Tensor.backward(): torchlike does not compute gradients yet",
        ))
    }
    fn register_hook(&self, hook: &Bound<'_, PyAny>) -> PyResult<()> {
        let _ = hook;
        if !self.get().requires_grad() {
            return Err(PyRuntimeError::new_err(
                "cannot register a hook on a tensor that doesn't require gradient",
            ));
        }
        Err(PyNotImplementedError::new_err(
            "Tensor.register_hook(): torchlike does not compute gradients yet",
        ))
    }
    fn retain_grad(&self) -> PyResult<()> {
        if !self.get().requires_grad() {
            return Err(PyRuntimeError::new_err(
                "can't retain_grad on Tensor that has requires_grad=False",
            ));
        }
        Ok(())
    }

    fn item<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        scalar(slf.py(), slf.get().get().item()?)
    }
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        super::data::to_list(slf.py(), slf.get().get())
    }
    fn __bool__(&self) -> PyResult<bool> {
        let t = self.get();
        match t.numel() {
            1 => Ok(t.item()?.to_bool()),
            0 => Err(PyRuntimeError::new_err(
                "Boolean value of Tensor with no values is ambiguous",
            )),
            _ => Err(PyRuntimeError::new_err(
                "Boolean value of Tensor with more than one value is ambiguous",
            )),
        }
    }
    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        match slf.get().get().item()? {
            Scalar::Float(f) => pyo3::types::PyFloat::new(slf.py(), f).call_method0("__trunc__"),
            Scalar::Complex(c) if c.im != 0.0 => Err(PyRuntimeError::new_err(
                "value cannot be converted to type int64_t without overflow",
            )),
            s @ Scalar::UInt(_) => scalar(slf.py(), s),
            s => scalar(slf.py(), Scalar::Int(s.to_i64())),
        }
    }
    fn __float__(&self) -> PyResult<f64> {
        match self.get().item()? {
            Scalar::Complex(c) if c.im != 0.0 => Err(PyRuntimeError::new_err(
                "value cannot be converted to type double without overflow",
            )),
            s => Ok(s.to_f64()),
        }
    }
    fn __complex__(&self) -> PyResult<num_complex::Complex64> {
        if self.get().numel() != 1 {
            return Err(PyValueError::new_err(
                "only one element tensors can be converted to Python scalars",
            ));
        }
        Ok(self.get().item()?.to_c64())
    }
    fn __index__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if !t.dtype().is_integral(true) || t.numel() != 1 {
            return Err(PyTypeError::new_err(
                "only integer tensors of a single element can be converted to an index",
            ));
        }
        scalar(slf.py(), Scalar::Int(t.item()?.to_i64()))
    }
    fn __len__(&self) -> PyResult<usize> {
        match self.get().shape().first() {
            Some(n) => Ok(*n as usize),
            None => Err(PyTypeError::new_err("len() of a 0-d tensor")),
        }
    }
    fn __hash__(slf: &Bound<'_, Self>) -> isize {
        (slf.as_ptr() as isize) >> 4
    }
    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        how: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let op = match how {
            CompareOp::Eq => op!("eq")?,
            CompareOp::Ne => op!("ne")?,
            CompareOp::Lt => op!("lt")?,
            CompareOp::Le => op!("le")?,
            CompareOp::Gt => op!("gt")?,
            CompareOp::Ge => op!("ge")?,
        };
        binary(op, slf.as_any(), other, false, false)
    }
    fn __neg__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(slf.py(), run!("neg", slf.get().get())?, op!("neg")?)
    }
    fn __pos__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(
            slf.py(),
            run!("positive", slf.get().get())?,
            op!("positive")?,
        )
    }
    fn __abs__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(slf.py(), run!("abs", slf.get().get())?, op!("abs")?)
    }
    fn __invert__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_python(
            slf.py(),
            run!("bitwise_not", slf.get().get())?,
            op!("bitwise_not")?,
        )
    }
    fn __pow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(op!("pow")?, slf.as_any(), other, false, false)
    }
    fn __rpow__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(op!("pow")?, slf.as_any(), other, true, false)
    }
    fn __ipow__(
        slf: &Bound<'_, Self>,
        other: &Bound<'_, PyAny>,
        _modulo: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        binary(op!("pow")?, slf.as_any(), other, false, true).map(drop)
    }
    fn __matmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        matmul(slf.as_any(), other)
    }
    fn __rmatmul__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        matmul(other, slf.as_any())
    }
    fn __contains__(slf: &Bound<'_, Self>, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let element = match convert::convert(crate::ops::schema::Kind::Operand, false, element) {
            Ok(a) => a,
            Err(_) => {
                return Err(PyRuntimeError::new_err(format!(
                    "Tensor.__contains__ only supports Tensor or scalar, but you passed in a {}.",
                    element.get_type().str()?
                )));
            }
        };
        let equal =
            crate::ops::dispatch::run(op!("eq")?, &[Arg::Tensor(slf.get().get()), element])?
                .one()?;
        Ok(run!("any", &equal)?.one()?.item()?.to_bool())
    }
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if slf.get().get().ndim() == 0 {
            return Err(PyTypeError::new_err("iteration over a 0-d tensor"));
        }
        to_python(slf.py(), run!("unbind", slf.get().get())?, op!("unbind")?)?
            .call_method0("__iter__")
    }
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        super::index::get(slf, index)
    }
    fn __setitem__(
        slf: &Bound<'_, Self>,
        index: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        super::index::set(slf, index, value)
    }
    fn __delitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(PyTypeError::new_err(
            "Tensor does not support deleting items",
        ))
    }
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        slf.py()
            .import("torchlike._tensor_str")?
            .call_method1("_str", (slf,))?
            .extract()
    }
    fn __format__<'py>(
        slf: &Bound<'py, Self>,
        spec: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if t.ndim() == 0 && !t.is_meta() {
            return scalar(slf.py(), t.item()?)?.call_method1("__format__", (spec,));
        }
        if spec.len()? == 0 {
            return Ok(slf.as_any().str()?.into_any());
        }
        Err(PyTypeError::new_err(
            "unsupported format string passed to Tensor.__format__",
        ))
    }
    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike._tensor")?
            .call_method1("_deepcopy", (slf, memo))
    }
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike._tensor")?
            .call_method1("_reduce", (slf, protocol))
    }
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = copy;
        let array = super::numpy::to_numpy(slf, false)?;
        match dtype {
            Some(d) => {
                let kw = PyDict::new(slf.py());
                kw.set_item("copy", false)?;
                array.call_method("astype", (d,), Some(&kw))
            }
            None => Ok(array),
        }
    }
    #[classattr]
    fn __array_priority__() -> i64 {
        1000
    }
    #[pyo3(signature = (*, force=false))]
    fn numpy<'py>(slf: &Bound<'py, Self>, force: bool) -> PyResult<Bound<'py, PyAny>> {
        super::numpy::to_numpy(slf, force)
    }
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyAny>>,
        dl_device: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = (stream, max_version, dl_device, copy);
        super::numpy::to_dlpack(slf)
    }
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        match self.get().device().kind {
            crate::DeviceKind::Cpu => Ok((1, 0)),
            crate::DeviceKind::Cuda => Ok((2, i32::from(self.get().device().index))),
            crate::DeviceKind::Meta => {
                Err(PyValueError::new_err("Unknown device type meta for Dlpack"))
            }
        }
    }
    fn untyped_storage(&self) -> super::storage::PyStorage {
        super::storage::PyStorage(self.get().storage().clone())
    }
    fn storage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike.storage")?
            .call_method1("_typed", (slf,))
    }
    #[pyo3(signature = (*sizes, memory_format=None))]
    fn resize_<'py>(
        slf: Bound<'py, Self>,
        sizes: &Bound<'py, PyTuple>,
        memory_format: Option<&types::PyFormat>,
    ) -> PyResult<Bound<'py, Self>> {
        let shape = sizes_of(sizes)?;
        let format = memory_format.map(types::PyFormat::format);
        let strides = format
            .map(|f| crate::dims::format_strides(&shape, f))
            .transpose()?;
        let mut t = slf.get().get().clone();
        if shape.iter().any(|&d| d < 0) {
            return Err(PyRuntimeError::new_err(
                "numel: integer multiplication overflow",
            ));
        }
        crate::ops::dispatch::resize(&mut t, &shape, strides.as_ref())?;
        slf.get().set(t);
        Ok(slf)
    }
    #[pyo3(signature = (the_template, *, memory_format=None))]
    fn resize_as_<'py>(
        slf: Bound<'py, Self>,
        the_template: &Bound<'py, PyAny>,
        memory_format: Option<&types::PyFormat>,
    ) -> PyResult<Bound<'py, Self>> {
        let template = tensor_arg(the_template, "resize_as_", "the_template")?;
        let strides = match memory_format.map(types::PyFormat::format) {
            None => None,
            Some(MemoryFormat::Preserve) => Some(crate::dims::preserved_strides(
                template.shape(),
                template.strides(),
            )),
            Some(f) => Some(crate::dims::format_strides(template.shape(), f)?),
        };
        let mut t = slf.get().get().clone();
        if t.shape() != template.shape() || strides.is_some() {
            crate::ops::dispatch::resize(&mut t, template.shape(), strides.as_ref())?;
        }
        slf.get().set(t);
        Ok(slf)
    }
    #[pyo3(signature = (source=None, storage_offset=None, size=None, stride=None))]
    fn set_<'py>(
        slf: Bound<'py, Self>,
        source: Option<&Bound<'py, PyAny>>,
        storage_offset: Option<i64>,
        size: Option<&Bound<'py, PyAny>>,
        stride: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let old = slf.get().get();
        let list = |o: Option<&Bound<'py, PyAny>>| {
            o.map(|o| {
                convert::ints(o).map_err(|_| {
                    PyTypeError::new_err("set_(): sizes and strides must be tuples of ints")
                })
            })
            .transpose()
        };
        let (shape, strides) = (list(size)?, list(stride)?);
        let (storage, source_layout) = match source {
            None => (
                crate::Storage::empty(0, old.device())?,
                Some((Dims::new(&[0]), Dims::new(&[1]), 0)),
            ),
            Some(o) => match tensor_ref(o) {
                Some(t) => {
                    if t.dtype() != old.dtype() {
                        return Err(PyRuntimeError::new_err(format!(
                            "Could not set tensor of type {} to a tensor of type {}",
                            t.dtype().scalar_type().to_lowercase(),
                            old.dtype().scalar_type().to_lowercase()
                        )));
                    }
                    (
                        t.storage().clone(),
                        Some((t.shape().clone(), t.strides().clone(), t.offset())),
                    )
                }
                None => (super::storage::storage_of(o)?, None),
            },
        };
        if storage.device() != old.device() {
            return Err(PyRuntimeError::new_err(format!(
                "Attempted to set the storage of a tensor on device \"{}\" to a storage on different device \"{}\".  This is no longer allowed; the devices must match.",
                old.device(),
                storage.device()
            )));
        }
        let whole = (storage.nbytes() / old.dtype().size()) as i64;
        let (shape, strides, offset) = match (shape, source_layout) {
            (Some(shape), _) => {
                let strides = strides.unwrap_or_else(|| crate::dims::contiguous_strides(&shape));
                (shape, strides, storage_offset.unwrap_or(0))
            }
            (None, Some(layout)) => layout,
            (None, None) => (Dims::new(&[whole]), Dims::new(&[1]), 0),
        };
        let need = crate::dims::storage_bytes(&shape, &strides, offset, old.dtype().size())?;
        if need > storage.nbytes() {
            storage.resize(need)?;
        }
        let t = Tensor::checked(storage, shape, strides, offset, old.dtype())?
            .with_requires_grad(old.requires_grad());
        slf.get().set(t);
        Ok(slf)
    }
    #[pyo3(signature = (dtype=None, non_blocking=false))]
    fn r#type<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        non_blocking: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = non_blocking;
        let t = slf.get().get();
        let Some(d) = dtype else {
            let prefix = match t.device().kind {
                crate::DeviceKind::Cpu => "torch",
                crate::DeviceKind::Meta => "torch.meta",
                crate::DeviceKind::Cuda => "torch.cuda",
            };
            return Ok(PyString::new(
                slf.py(),
                &format!("{prefix}.{}Tensor", t.dtype().scalar_type()),
            )
            .into_any());
        };
        if let Ok(d) = d.cast::<PyDType>() {
            return slf.call_method1("to", (d,));
        }
        let name = match d.extract::<String>() {
            Ok(s) => s,
            Err(_) => d.getattr("__name__")?.extract()?,
        };
        let scalar = name
            .rsplit('.')
            .next()
            .unwrap_or("")
            .trim_end_matches("Tensor");
        match DType::ALL.iter().find(|d| d.scalar_type() == scalar) {
            Some(found) => slf.call_method1("to", (types::dtype(slf.py(), *found)?,)),
            None => Err(PyValueError::new_err(format!("invalid type: '{name}'"))),
        }
    }
    fn __cuda_array_interface__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyAttributeError::new_err(
            "Can't get __cuda_array_interface__ on non-CUDA tensor type.",
        ))
    }
    /// Where the data of a meta tensor would come from, as text; None for real tensors and those without a source.
    #[getter]
    fn source(&self) -> Option<String> {
        if self.get().is_meta() {
            self.get().storage().source().map(|s| s.to_string())
        } else {
            None
        }
    }
}

fn check_grad(t: &Tensor, g: &Tensor) -> PyResult<()> {
    if t.device().kind != g.device().kind {
        return Err(PyRuntimeError::new_err(format!(
            "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. Please ensure that the gradient and the tensor are on the same device",
            g.device().kind.name(),
            t.device().kind.name()
        )));
    }
    if t.dtype() != g.dtype() {
        return Err(PyRuntimeError::new_err(format!(
            "attempting to assign a gradient with dtype '{}' to a tensor with grad_dtype '{}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break downstream systems that assume they match.",
            g.dtype().scalar_type(),
            t.dtype().scalar_type()
        )));
    }
    if t.shape() != g.shape() {
        return Err(PyRuntimeError::new_err(format!(
            "assigned grad has data of a different size. Expected size {} but got {}",
            t.shape(),
            g.shape()
        )));
    }
    Ok(())
}

fn matrix<'py>(slf: &Bound<'py, PyTensor>, name: &str, conj: bool) -> PyResult<Bound<'py, PyAny>> {
    wrap(
        slf.py(),
        crate::ops::view::matrix_transpose(slf.get().get(), name, conj)?.one()?,
    )
}

fn matmul<'py>(a: &Bound<'py, PyAny>, b: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let (Some(_), Some(_)) = (tensor_ref(a), tensor_ref(b)) else {
        return Ok(a.py().NotImplemented().into_bound(a.py()));
    };
    binary(op!("matmul")?, a, b, false, false)
}

/// An instance of a Tensor subclass around a tensor, without running its `__init__`.
pub fn instance<'py>(cls: &Bound<'py, PyType>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let py = cls.py();
    if cls.is(py.get_type::<PyTensor>()) {
        return wrap(py, t);
    }
    // The base class's constructor makes an empty tensor of any subclass, which then gets the right one.
    let base = if cls.is_subclass_of::<PyParameter>()? {
        py.get_type::<PyParameter>()
    } else {
        py.get_type::<PyTensor>()
    };
    let made = base.call_method1("__new__", (cls,))?;
    PyTensor::of(&made)?.set(t);
    Ok(made)
}

/// Sizes given as separate integers or as one list.
pub fn sizes_of(args: &Bound<'_, PyTuple>) -> PyResult<Dims> {
    let wrong = || PyTypeError::new_err("sizes must be a tuple of ints or ints");
    if args.len() == 1
        && let Ok(list) = convert::ints(&args.get_item(0)?)
    {
        return Ok(list);
    }
    convert::ints(args.as_any()).map_err(|e| match e {
        convert::Failure::Error(e) => e,
        convert::Failure::Kind => wrong(),
    })
}

#[pymethods]
impl PyParameter {
    #[new]
    #[pyo3(signature = (data=None, requires_grad=true))]
    fn py_new(
        data: Option<&Bound<'_, PyAny>>,
        requires_grad: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let t = match data {
            None => Tensor::empty(&[0], mode::default_dtype(), mode::default_device())?,
            Some(o) => tensor_arg(o, "Parameter", "data")?.detach(),
        };
        let t = if requires_grad { require_grad(t)? } else { t };
        Ok(PyClassInitializer::from(PyTensor::new(t)).add_subclass(Self))
    }
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let text: String = slf
            .py()
            .import("torchlike._tensor_str")?
            .call_method1("_str", (slf,))?
            .extract()?;
        Ok(format!("Parameter containing:\n{text}"))
    }
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike._tensor")?
            .call_method1("_reduce_parameter", (slf, protocol))
    }
}

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (device=None))]
    fn new(device: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let device = device.map(device_of).transpose()?.unwrap_or(Device::CPU);
        match device.kind {
            crate::DeviceKind::Cpu => Ok(Self(crate::random::SharedGenerator::new(
                crate::random::Generator::default(),
            ))),
            crate::DeviceKind::Meta => Err(PyRuntimeError::new_err(
                "META device type not an accelerator.",
            )),
            crate::DeviceKind::Cuda => Err(PyNotImplementedError::new_err(
                "Generator('cuda') is not supported yet",
            )),
        }
    }
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<Py<types::PyDevice>> {
        device(py, Device::CPU)
    }
    fn manual_seed<'py>(
        slf: Bound<'py, Self>,
        seed: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        slf.get().0.lock().manual_seed(seed_of(seed)?);
        Ok(slf)
    }
    fn initial_seed(&self) -> u64 {
        self.0.lock().initial_seed()
    }
    fn seed(&self) -> u64 {
        self.0.lock().seed()
    }
    fn get_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.0.lock().get_state();
        wrap(py, Tensor::from_slice(&state[..], &[state.len() as i64])?)
    }
    fn set_state<'py>(
        slf: Bound<'py, Self>,
        new_state: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, Self>> {
        let Some(t) = tensor_ref(new_state) else {
            return Err(PyTypeError::new_err(format!(
                "expected a torch.ByteTensor, but got {}",
                types::type_name(new_state)
            )));
        };
        if t.dtype() != DType::U8 {
            return Err(PyTypeError::new_err("RNG state must be a torch.ByteTensor"));
        }
        slf.get().0.lock().set_state(&t.to_vec::<u8>()?)?;
        Ok(slf)
    }
    fn clone_state(&self) -> Self {
        Self(crate::random::SharedGenerator::new(self.0.lock().clone()))
    }
    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let rebuild = py
            .import("torchlike._tensor")?
            .getattr("_rebuild_generator")?;
        (rebuild, (slf.get().get_state(py)?,))
            .into_pyobject(py)
            .map(Bound::into_any)
    }
}

/// A seed: any integer that fits 64 bits, signed or unsigned.
pub fn seed_of(o: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(u) = o.extract::<u64>() {
        return Ok(u);
    }
    match o.extract::<i64>() {
        Ok(i) => Ok(i as u64),
        Err(_) if o.is_instance_of::<pyo3::types::PyInt>() => {
            Err(PyValueError::new_err("Overflow when unpacking long long"))
        }
        Err(_) => Err(PyRuntimeError::new_err(format!(
            "manual_seed expected a long, but got {}",
            types::type_name(o)
        ))),
    }
}

/// What `__getitem__` accepts as a single position.
pub fn slice_parts(s: &Bound<'_, PySlice>) -> PyResult<(Option<i64>, Option<i64>, Option<i64>)> {
    let part = |name: &str| -> PyResult<Option<i64>> {
        let v = s.getattr(name)?;
        if v.is_none() {
            return Ok(None);
        }
        match convert::int(&v) {
            Ok(i) => Ok(Some(i)),
            Err(convert::Failure::Error(e)) => Err(e),
            Err(convert::Failure::Kind) => match v.call_method0("__index__") {
                Ok(i) => Ok(Some(i.extract()?)),
                Err(_) => Err(PyTypeError::new_err(
                    "slice indices must be integers or None or have an __index__ method",
                )),
            },
        }
    };
    Ok((part("start")?, part("stop")?, part("step")?))
}

/// Registers the classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<PyTensor>()?;
    m.add_class::<PyParameter>()?;
    m.add_class::<PyGenerator>()?;
    TENSOR.store(py.get_type::<PyTensor>().as_ptr().cast(), Relaxed);
    PARAMETER.store(py.get_type::<PyParameter>().as_ptr().cast(), Relaxed);
    Ok(())
}
