//! Errors of the core as Python exceptions.

use crate::{Error, ErrorKind};
use pyo3::create_exception;
use pyo3::exceptions::*;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

create_exception!(
    torchlike,
    CheckpointError,
    PyRuntimeError,
    "A checkpoint that is damaged, hostile or of an unknown kind."
);
create_exception!(
    torchlike._C,
    _LinAlgError,
    PyRuntimeError,
    "A matrix that cannot be factorised or inverted."
);

create_exception!(
    torchlike,
    OutOfMemoryError,
    PyRuntimeError,
    "Memory of a GPU that could not be had."
);

static UNPICKLING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Python's `pickle.UnpicklingError`, looked up once.
fn unpickling(py: Python<'_>, message: String) -> PyErr {
    let class = UNPICKLING.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("pickle")?.getattr("UnpicklingError")?.unbind())
    });
    match class.and_then(|c| c.bind(py).call1((message,))) {
        Ok(value) => PyErr::from_value(value),
        Err(e) => e,
    }
}

thread_local! {
    /// An exception on its way through the core.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// A warning that a filter made an error of: it is raised where the call ends.
    static WARNED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether a thread may have such a warning.
static ARE_ERRORS: AtomicBool = AtomicBool::new(false);

/// Warns the user of something that the core noticed.
fn told(text: &str) {
    Python::attach(|py| {
        let kind = py.get_type::<PyUserWarning>();
        let told = py
            .import("warnings")
            .and_then(|w| w.call_method1("warn", (text, kind)));
        if let Err(e) = told {
            ARE_ERRORS.store(true, Ordering::Relaxed);
            WARNED.with_borrow_mut(|w| *w = Some(e));
        }
    });
}

/// The warning of the call that ends, if a filter made an error of it.
#[inline]
pub fn warned() -> Option<PyErr> {
    if ARE_ERRORS.load(Ordering::Relaxed) {
        return WARNED.with_borrow_mut(Option::take);
    }
    None
}

/// A result, if no warning of the call became an error: for calls that do not end in `guard`.
pub fn heard<T>(made: PyResult<T>) -> PyResult<T> {
    match warned() {
        Some(e) => made.and(Err(e)),
        None => made,
    }
}

/// A Python exception as an error of the core; the binding finds the exception again.
pub fn carried(e: PyErr) -> Error {
    let text = e.to_string();
    RAISED.with_borrow_mut(|r| *r = Some(e));
    Error::new(ErrorKind::Runtime, text)
}

/// The exception that a handler raised, if that is what the error stands for.
fn raised(error: &Error) -> Option<PyErr> {
    let waiting =
        RAISED.with_borrow(|r| r.as_ref().is_some_and(|e| e.to_string() == error.message()));
    waiting
        .then(|| RAISED.with_borrow_mut(Option::take))
        .flatten()
}

impl From<Error> for PyErr {
    #[cold]
    fn from(e: Error) -> Self {
        // What a handler of dispatch raised went through the core as text.
        if let Some(raised) = raised(&e) {
            return raised;
        }
        let text = e.message().to_owned();
        match e.kind() {
            ErrorKind::Runtime | ErrorKind::Devices => PyRuntimeError::new_err(text),
            ErrorKind::Data => super::fake::no_value(),
            ErrorKind::Type => PyTypeError::new_err(text),
            ErrorKind::Value => PyValueError::new_err(text),
            ErrorKind::Index => PyIndexError::new_err(text),
            ErrorKind::Key => PyKeyError::new_err(text),
            ErrorKind::NotImplemented | ErrorKind::Shape => PyNotImplementedError::new_err(text),
            ErrorKind::Attribute => PyAttributeError::new_err(text),
            ErrorKind::Io => PyOSError::new_err(text),
            ErrorKind::NotFound => PyFileNotFoundError::new_err(text),
            ErrorKind::Eof => PyEOFError::new_err(text),
            ErrorKind::Checkpoint => CheckpointError::new_err(text),
            ErrorKind::Unpickling => Python::attach(|py| unpickling(py, text)),
            ErrorKind::Buffer => PyBufferError::new_err(text),
            ErrorKind::DeviceMemory => OutOfMemoryError::new_err(text),
            ErrorKind::Memory => PyMemoryError::new_err(text),
            ErrorKind::ZeroDivision => PyZeroDivisionError::new_err(text),
            ErrorKind::Overflow => PyOverflowError::new_err(text),
            ErrorKind::Assertion => PyAssertionError::new_err(text),
            ErrorKind::LinAlg => _LinAlgError::new_err(text),
            ErrorKind::Python => Python::attach(|py| {
                PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err(text))
            }),
        }
    }
}

/// Sets whether warnings that are given once are given every time.
#[pyfunction]
fn _set_warn_always(always: bool) {
    crate::warning::set_always(always);
}

/// Whether they are.
#[pyfunction]
fn _is_warn_always() -> bool {
    crate::warning::is_always()
}

/// Registers the exception classes and the listener to warnings.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("CheckpointError", m.py().get_type::<CheckpointError>())?;
    m.add("_LinAlgError", m.py().get_type::<_LinAlgError>())?;
    m.add("OutOfMemoryError", m.py().get_type::<OutOfMemoryError>())?;
    crate::warning::listen(told);
    m.add_function(wrap_pyfunction!(_set_warn_always, m)?)?;
    m.add_function(wrap_pyfunction!(_is_warn_always, m)?)
}
