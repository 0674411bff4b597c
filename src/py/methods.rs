//! Methods of Tensor that are no operators, so that those who watch can answer for them too.
//!
//! pyo3 makes their C functions; the descriptors on the class are ours, look first whether anybody watches, and pass the
//! call on.

#![allow(
    unsafe_code,
    reason = "C functions that pyo3 made are called with the arguments that the interpreter passed"
)]

use super::call::guard;
use super::groups::FastCall;
use super::object::PyTensor;
use super::watch::{self, Shown, Style};
use crate::{DType, Device, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;
use std::ffi::CString;
use std::sync::OnceLock;

/// What a method gives that is called without arguments.
type Bare = for<'py> fn(&Bound<'py, PyTensor>) -> PyResult<Bound<'py, PyAny>>;

/// Methods whose arguments are seldom given: reading none takes longer than the answer.
const BARE: &[(&str, Bare)] = &[("size", PyTensor::shape), ("stride", PyTensor::strides)];

struct Method {
    name: String,
    bare: Option<Bare>,
    function: ffi::PyCFunction,
    flags: i32,
    /// The descriptor that pyo3 made.
    original: Py<PyAny>,
    /// The descriptor on the class: what handlers receive.
    public: OnceLock<Py<PyAny>>,
}

static METHODS: OnceLock<Vec<Method>> = OnceLock::new();

/// Special methods that go through here as well; the others are type slots.
const SPECIAL: &[&str] = &[
    "__deepcopy__",
    "__reduce_ex__",
    "__array__",
    "__format__",
    "__dlpack__",
    "__dlpack_device__",
];

/// Not methods to the user, or never shown to anybody.
const SILENT: &[&str] = &["as_subclass", "_has_parts"];

/// A C function of its own for each method, and no more than that.
unsafe extern "C" fn entry<const N: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: isize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the interpreter called it.
    unsafe { enter(N, slf, args, nargs, kwnames) }
}

#[inline(never)]
unsafe fn enter(
    n: usize,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: isize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    let Some(method) = METHODS.get().and_then(|m| m.get(n)) else {
        return guard(|| Err(PyRuntimeError::new_err("torchlike is not initialised")));
    };
    // SAFETY: called by the interpreter with the lock held and arguments that live for the whole call.
    unsafe {
        let py = Python::assume_attached();
        let receiver = Bound::ref_from_ptr(py, &slf);
        let keywords = if kwnames.is_null() {
            0
        } else {
            ffi::PyTuple_Size(kwnames)
        };
        let arguments = std::slice::from_raw_parts(
            if args.is_null() {
                std::ptr::NonNull::dangling().as_ptr()
            } else {
                args.cast_mut()
            },
            (nargs + keywords) as usize,
        );
        let objects = arguments.iter().map(|p| Bound::ref_from_ptr(py, p));
        if watch::watched(std::iter::once(receiver).chain(objects)) {
            return guard(|| watched(method, receiver, arguments, nargs as usize, kwnames));
        }
        if let (Some(bare), true) = (method.bare, arguments.is_empty()) {
            return guard(|| bare(receiver.cast_unchecked()).map(Bound::into_ptr));
        }
        match method.flags & !ffi::METH_CLASS {
            ffi::METH_NOARGS if nargs == 0 && keywords == 0 => {
                (method.function)(slf, std::ptr::null_mut())
            }
            ffi::METH_O if nargs == 1 && keywords == 0 => (method.function)(slf, *args),
            flags if flags == ffi::METH_FASTCALL | ffi::METH_KEYWORDS => {
                let function: FastCall = std::mem::transmute(method.function);
                function(slf, args, nargs, kwnames)
            }
            _ => guard(|| {
                let (args, kwargs) = gathered(receiver, arguments, nargs as usize, kwnames)?;
                let original = method.original.bind(py);
                original.call(args, Some(&kwargs)).map(Bound::into_ptr)
            }),
        }
    }
}

/// The arguments as a tuple, the receiver first, and a dictionary.
fn gathered<'py>(
    receiver: &Bound<'py, PyAny>,
    arguments: &[*mut ffi::PyObject],
    nargs: usize,
    kwnames: *mut ffi::PyObject,
) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let py = receiver.py();
    // SAFETY: the arguments of a call live as long as it lasts.
    let object = |p: &*mut ffi::PyObject| unsafe { Bound::from_borrowed_ptr(py, *p) };
    let mut positional: SmallVec<[Bound<'py, PyAny>; 6]> = SmallVec::new();
    positional.push(receiver.clone());
    positional.extend(arguments[..nargs].iter().map(object));
    let kwargs = PyDict::new(py);
    for (i, p) in arguments[nargs..].iter().enumerate() {
        // SAFETY: the names are a tuple with one entry a keyword.
        let name = unsafe {
            Bound::from_borrowed_ptr_or_err(py, ffi::PyTuple_GetItem(kwnames, i as isize))?
        };
        kwargs.set_item(name, object(p))?;
    }
    Ok((PyTuple::new(py, positional)?, kwargs))
}

#[cold]
fn watched<'py>(
    method: &Method,
    receiver: &Bound<'py, PyAny>,
    arguments: &[*mut ffi::PyObject],
    nargs: usize,
    kwnames: *mut ffi::PyObject,
) -> PyResult<*mut ffi::PyObject> {
    let py = receiver.py();
    let (args, kwargs) = gathered(receiver, arguments, nargs, kwnames)?;
    let original = method.original.bind(py);
    let objects: Vec<_> = args.iter().chain(kwargs.values()).collect();
    let style = match method.flags & !ffi::METH_CLASS {
        ffi::METH_NOARGS => Style::Bare,
        _ => Style::Parsed,
    };
    let asked = watch::asked(&objects, style);
    if let Some(class) = watch::kept_class(&asked) {
        let result = original.call(&args, Some(&kwargs))?;
        return watch::keep(result, &class).map(Bound::into_ptr);
    }
    let function = match method.public.get() {
        Some(f) if !asked.is_empty() || watch::state() & watch::MODES != 0 => f.bind(py),
        _ => return original.call(args, Some(&kwargs)).map(Bound::into_ptr),
    };
    let name = format!("Tensor.{}", method.name);
    let form = py
        .import(intern!(py, "torchlike._function"))?
        .call_method1(intern!(py, "_form"), (&name, &args, &kwargs))?;
    let name = format!("torch.{name}");
    let shown = if let Ok((function, relevant, args, kwargs)) = form.extract::<(
        Bound<'py, PyAny>,
        Vec<Bound<'py, PyAny>>,
        Bound<'py, PyTuple>,
        Bound<'py, PyDict>,
    )>() {
        let asked = watch::asked(&relevant, Style::Python);
        let shown = Shown {
            function: &function,
            name: &name,
            style: Style::Python,
            args: &args,
            kwargs: Some(&kwargs),
        };
        shown.ask(&asked)
    } else {
        let kwargs = (!kwargs.is_empty()).then_some(&kwargs);
        Shown {
            function,
            name: &name,
            style,
            args: &args,
            kwargs,
        }
        .ask(&asked)
    };
    shown.map(Bound::into_ptr)
}

macro_rules! entries {
    (@8 $b:expr) => { [entry::<{$b}>, entry::<{$b+1}>, entry::<{$b+2}>, entry::<{$b+3}>, entry::<{$b+4}>, entry::<{$b+5}>, entry::<{$b+6}>, entry::<{$b+7}>] };
    ($($b:expr),+) => { [$(entries!(@8 $b)),+] };
}

static ENTRIES: [[FastCall; 8]; 12] = entries!(0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88);

/// Puts our descriptors in the place of pyo3's. To be called before the operators come onto the class.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<PyTensor>();
    let sample = Bound::new(
        py,
        PyTensor::new(Tensor::empty(&[], DType::F32, Device::META)?),
    )?;
    let mut found = Vec::new();
    for (name, descriptor) in class
        .getattr("__dict__")?
        .call_method0("copy")?
        .cast_into::<PyDict>()?
    {
        let name: String = name.extract()?;
        let special = name.starts_with("__") && !SPECIAL.contains(&name.as_str());
        if special
            || SILENT.contains(&name.as_str())
            || descriptor.get_type().name()? != "method_descriptor"
        {
            continue;
        }
        let bound = sample.getattr(name.as_str())?;
        // SAFETY: binding a method descriptor makes a built-in function, whose definition is static.
        let (function, flags) = unsafe {
            (
                ffi::PyCFunction_GetFunction(bound.as_ptr()),
                ffi::PyCFunction_GetFlags(bound.as_ptr()),
            )
        };
        let Some(function) = function else { continue };
        let document: Option<String> = descriptor.getattr("__doc__")?.extract()?;
        found.push((
            document,
            Method {
                bare: BARE.iter().find(|(n, _)| *n == name).map(|(_, f)| *f),
                name,
                function,
                flags,
                original: descriptor.unbind(),
                public: OnceLock::new(),
            },
        ));
    }
    if found.len() > ENTRIES.as_flattened().len() {
        return Err(PyRuntimeError::new_err(
            "too many methods for the entries of the binding",
        ));
    }
    let mut documents = Vec::new();
    let methods = found
        .into_iter()
        .map(|(document, method)| {
            documents.push(document);
            method
        })
        .collect();
    let methods = METHODS.get_or_init(|| methods);
    for ((method, document), entry) in methods.iter().zip(documents).zip(ENTRIES.as_flattened()) {
        let definition = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(method.name.clone())
                .unwrap_or_default()
                .into_raw(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFastWithKeywords: *entry,
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: CString::new(document.unwrap_or_default())
                .unwrap_or_default()
                .into_raw(),
        }));
        // SAFETY: the definition is leaked, so it outlives the descriptor.
        let descriptor = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyDescr_NewMethod(class.as_ptr().cast(), definition),
            )?
        };
        class.setattr(method.name.as_str(), &descriptor)?;
        let _ = method.public.set(descriptor.unbind());
    }
    Ok(())
}
