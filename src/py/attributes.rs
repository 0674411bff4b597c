//! The attributes of Tensor: one table, and one way in that lets those who watch answer first.

#![allow(
    unsafe_code,
    reason = "descriptors of CPython's C interface are made by hand"
)]

use super::call::guard;
use super::object::{PyTensor, is_plain_tensor};
use super::watch::{self, Course, Style};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyAttributeError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CString, c_void};

type Get = for<'py> fn(&Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>>;
/// Without a value the attribute is deleted.
type Set = for<'py> fn(&Bound<'py, PyTensor>, Option<&Bound<'py, PyAny>>) -> PyResult<()>;

struct Attribute {
    name: &'static str,
    get: Get,
    set: Option<Set>,
}

/// Attributes that are values of Rust, written `name => |tensor| value`.
macro_rules! values {
    ($($name:literal => |$t:ident| $value:expr;)+) => {
        &[$(Attribute {
            name: $name,
            get: |slf| {
                let $t = slf.get();
                $value.into_bound_py_any(slf.py())
            },
            set: None,
        }),+]
    };
}

static VALUES: &[Attribute] = values! {
    "ndim" => |t| t.ndim();
    "itemsize" => |t| t.itemsize();
    "nbytes" => |t| t.nbytes();
    "is_meta" => |t| t.is_meta();
    "is_cpu" => |t| t.is_cpu();
    "is_cuda" => |t| t.is_cuda();
    "is_quantized" => |t| t.is_quantized();
    "is_mkldnn" => |t| t.is_mkldnn();
    "is_mps" => |t| t.is_mps();
    "is_xpu" => |t| t.is_xpu();
    "is_sparse" => |t| t.is_sparse();
    "is_sparse_csr" => |t| t.is_sparse_csr();
    "is_nested" => |_t| false;
    "is_leaf" => |t| t.is_leaf();
    "retains_grad" => |t| t.retains_grad();
    "output_nr" => |t| t.output_nr();
    "source" => |t| t.source();
};

/// Writes a tensor or a number into a part of a tensor.
fn fill(part: &Bound<'_, PyAny>, name: &str, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    let Some(value) = value else {
        return Err(PyAttributeError::new_err(format!(
            "can't delete attribute '{name}'"
        )));
    };
    if value.is_instance_of::<PyTensor>() {
        return part.call_method1("copy_", (value,)).map(drop);
    }
    part.set_item(part.py().Ellipsis(), value)
}

/// Gives a tensor its gradient; deleting it takes it away.
fn put_gradient(t: &Bound<'_, PyTensor>, value: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match value {
        Some(v) => PyTensor::set_grad(t, v),
        None => PyTensor::set_grad(t, t.py().None().bind(t.py())),
    }
}

const fn read_only(name: &'static str, get: Get) -> Attribute {
    Attribute {
        name,
        get,
        set: None,
    }
}

const fn writable(name: &'static str, get: Get, set: Set) -> Attribute {
    Attribute {
        name,
        get,
        set: Some(set),
    }
}

static OBJECTS: &[Attribute] = &[
    read_only("shape", PyTensor::shape),
    read_only("dtype", |t| {
        t.get().get_dtype(t.py())?.into_bound_py_any(t.py())
    }),
    read_only("device", |t| {
        t.get().get_device_object(t.py())?.into_bound_py_any(t.py())
    }),
    read_only("layout", |t| {
        t.get().layout(t.py())?.into_bound_py_any(t.py())
    }),
    read_only("T", PyTensor::t_all),
    read_only("H", PyTensor::h),
    read_only("mT", PyTensor::m_t),
    read_only("mH", PyTensor::m_h),
    writable("real", PyTensor::real, |t, value| {
        fill(&PyTensor::real(t)?, "real", value)
    }),
    writable("imag", PyTensor::imag, |t, value| {
        fill(&PyTensor::imag(t)?, "imag", value)
    }),
    read_only("_version", |t| {
        t.get()._version()?.into_bound_py_any(t.py())
    }),
    read_only("_base", PyTensor::base_object),
    read_only("_cdata", |t| {
        (t.as_ptr() as usize).into_bound_py_any(t.py())
    }),
    read_only("_backward_hooks", super::grad_hooks::of_gradient),
    read_only("grad_fn", |t| t.get().grad_fn(t.py())),
    read_only("names", |t| Ok(PyTensor::names(t)?.into_any())),
    read_only("name", |t| t.get().name(t.py()).into_bound_py_any(t.py())),
    writable(
        "requires_grad",
        |t| t.get().get_requires_grad().into_bound_py_any(t.py()),
        |t, value| match value.map(|v| v.extract::<bool>()) {
            Some(Ok(on)) => t.get().set_requires_grad(on),
            _ => Err(PyRuntimeError::new_err("requires_grad must be a bool")),
        },
    ),
    writable("grad", PyTensor::grad, put_gradient),
    writable("_grad", PyTensor::grad, put_gradient),
    writable("grad_dtype", PyTensor::grad_dtype, |t, value| match value {
        Some(v) => PyTensor::set_grad_dtype(t, v),
        None => Err(PyRuntimeError::new_err(
            "grad_dtype must be a torch.dtype or None",
        )),
    }),
    writable("data", PyTensor::data, |t, value| match value {
        Some(v) => {
            let handles = t.get().get().is_python();
            t.get().set_data(v)?;
            match handles {
                true => super::dispatch::constructed(t),
                false => Ok(()),
            }
        }
        None => Err(PyRuntimeError::new_err(
            "Deleting tensor data is not allowed. Delete tensor instead!",
        )),
    }),
];

unsafe extern "C" fn get(slf: *mut ffi::PyObject, closure: *mut c_void) -> *mut ffi::PyObject {
    guard(|| {
        // SAFETY: called by the interpreter through a descriptor of Tensor, whose closure is an entry of the tables.
        let (slf, attribute) = unsafe { (borrowed(&slf), &*closure.cast::<Attribute>()) };
        if watch::state() == 0 && is_plain_tensor(slf.get_type_ptr()) {
            return (attribute.get)(slf).map(Bound::into_ptr);
        }
        watched_get(slf, attribute).map(Bound::into_ptr)
    })
}

#[cold]
fn watched_get<'py>(
    slf: &Bound<'py, PyTensor>,
    attribute: &Attribute,
) -> PyResult<Bound<'py, PyAny>> {
    if !watch::watched([slf.as_any()]) {
        return (attribute.get)(slf);
    }
    let path = format!("{}.__get__", attribute.name);
    match watch::course(slf.py(), &path, Style::Parsed, &[slf.as_any()])? {
        Course::On => (attribute.get)(slf),
        Course::Keep(_) if watch::UNWRAPPED.contains(&attribute.name) => (attribute.get)(slf),
        Course::Keep(class) => watch::keep((attribute.get)(slf)?, &class),
        Course::Done(result) => Ok(result),
    }
}

unsafe extern "C" fn set(
    slf: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
    closure: *mut c_void,
) -> std::ffi::c_int {
    let done = guard(|| {
        // SAFETY: as in `get`; the value is null or alive.
        let (slf, attribute) = unsafe { (borrowed(&slf), &*closure.cast::<Attribute>()) };
        let py = slf.py();
        // SAFETY: as above.
        let value = unsafe { Bound::from_borrowed_ptr_or_opt(py, value) };
        watched_set(slf, value.as_ref(), attribute)?;
        Ok(py.None().into_ptr())
    });
    if done.is_null() {
        return -1;
    }
    // SAFETY: the reference to None made above.
    unsafe { ffi::Py_DecRef(done) };
    0
}

fn watched_set<'py>(
    slf: &Bound<'py, PyTensor>,
    value: Option<&Bound<'py, PyAny>>,
    attribute: &Attribute,
) -> PyResult<()> {
    let Some(set) = attribute.set else {
        return Err(PyAttributeError::new_err(format!(
            "attribute '{}' of 'torch._C.TensorBase' objects is not writable",
            attribute.name
        )));
    };
    if watch::watched([slf.as_any()]) {
        let course = match value {
            Some(v) => {
                let path = format!("{}.__set__", attribute.name);
                watch::course(slf.py(), &path, Style::Parsed, &[slf.as_any(), v])?
            }
            None => {
                let path = format!("{}.__delete__", attribute.name);
                watch::course(slf.py(), &path, Style::Parsed, &[slf.as_any()])?
            }
        };
        if matches!(course, Course::Done(_)) {
            return Ok(());
        }
    }
    set(slf, value)
}

/// The receiver of a descriptor of Tensor.
///
/// # Safety
/// The lock is held, and the object is a tensor that lives as long as the borrow.
unsafe fn borrowed<'py>(slf: &*mut ffi::PyObject) -> &Bound<'py, PyTensor> {
    // SAFETY: by contract; a Bound is a pointer to its object.
    unsafe { Bound::ref_from_ptr(Python::assume_attached(), slf).cast_unchecked::<PyTensor>() }
}

/// Puts the attributes onto the class.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PyTensor>();
    for attribute in VALUES.iter().chain(OBJECTS) {
        let definition = Box::leak(Box::new(ffi::PyGetSetDef {
            name: CString::new(attribute.name).unwrap_or_default().into_raw(),
            get: Some(get),
            set: attribute.set.is_some().then_some(set),
            doc: std::ptr::null(),
            closure: std::ptr::from_ref(attribute).cast_mut().cast(),
        }));
        // SAFETY: the definition is leaked and the tables are static, so both outlive the descriptor.
        let descriptor = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyDescr_NewGetSet(class.as_ptr().cast(), definition),
            )?
        };
        class.setattr(attribute.name, descriptor)?;
    }
    Ok(())
}
