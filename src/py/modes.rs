//! The stack of function modes of a thread, and what Python asks about overrides.
//!
//! Device contexts lie on the same stack, as they are modes to the user; they are asked only below a mode written in Python,
//! and otherwise no more than the default device of the thread.

use super::types::PyDevice;
use super::watch::{self, MODES, NO_OBJECTS, OFF, Shown, Style};
use crate::mode;
use pyo3::exceptions::{PyIndexError, PyRuntimeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::RefCell;

enum Entry {
    Mode(Py<PyAny>),
    Device {
        context: Py<PyDevice>,
        before: Option<crate::Device>,
    },
}

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

fn push(entry: Entry) {
    if matches!(entry, Entry::Mode(_)) {
        watch::switch(MODES, true);
    }
    STACK.with_borrow_mut(|s| s.push(entry));
}

/// Takes the last entry that fits.
fn pop(fits: impl Fn(&Entry) -> bool) -> Option<Entry> {
    STACK.with_borrow_mut(|s| {
        let entry = s.iter().rposition(fits).map(|at| s.remove(at));
        watch::switch(MODES, s.iter().any(|e| matches!(e, Entry::Mode(_))));
        entry
    })
}

/// Enters a device context.
///
/// # Errors
/// Those of a mode that sees it, as PyTorch makes the device again here.
pub fn enter_device(context: &Bound<'_, PyDevice>) -> PyResult<()> {
    if watch::state() & (OFF | MODES) == MODES {
        context.get_type().call1((context,))?;
    }
    let context = context.clone().unbind();
    let before = mode::set_default_device(Some(context.get().known()?));
    push(Entry::Device { context, before });
    Ok(())
}

/// Leaves the last device context.
pub fn leave_device() {
    if let Some(Entry::Device { before, .. }) = pop(|e| matches!(e, Entry::Device { .. })) {
        mode::set_default_device(before);
    }
}

/// An entry that is taken off while it is asked, and put back however that ends.
struct Lifted(Option<Entry>);

impl Lifted {
    fn innermost() -> Option<Self> {
        let entry = pop(|_| true)?;
        if let Entry::Device { before, .. } = &entry {
            mode::set_default_device(*before);
        }
        Some(Self(Some(entry)))
    }
}

impl Drop for Lifted {
    fn drop(&mut self) {
        let Some(entry) = self.0.take() else { return };
        if let Entry::Device { context, .. } = &entry {
            mode::set_default_device(context.get().known().ok());
        }
        push(entry);
    }
}

/// Functions that a device context gives a device to.
const FACTORIES: &[&str] = &[
    "empty",
    "empty_permuted",
    "empty_strided",
    "empty_quantized",
    "ones",
    "arange",
    "bartlett_window",
    "blackman_window",
    "eye",
    "fft.fftfreq",
    "fft.rfftfreq",
    "full",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "linspace",
    "logspace",
    "nested.nested_tensor",
    "rand",
    "randn",
    "randint",
    "randperm",
    "range",
    "sparse_coo_tensor",
    "sparse_compressed_tensor",
    "sparse_csr_tensor",
    "sparse_csc_tensor",
    "sparse_bsr_tensor",
    "sparse_bsc_tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "asarray",
    "tensor",
    "as_tensor",
    "scalar_tensor",
];

/// Shows a call to the innermost entry; it is off the stack meanwhile.
pub fn ask_innermost<'py>(
    shown: &Shown<'_, 'py>,
    types: &Bound<'py, PyTuple>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let py = types.py();
    let Some(lifted) = Lifted::innermost() else {
        return Err(empty_stack());
    };
    match &lifted.0 {
        Some(Entry::Mode(m)) => {
            let m = m.bind(py).clone();
            let handler = m.getattr(intern!(py, "__torch_function__"))?;
            let of_class = handler
                .getattr_opt(intern!(py, "__self__"))?
                .is_some_and(|s| s.is(m.get_type()));
            if of_class {
                return Err(PyRuntimeError::new_err(
                    "Defining your mode's `__torch_function__` as a classmethod is not supported, please make it a plain method",
                ));
            }
            Ok((shown.call(&handler, types, shown.kwargs)?, m))
        }
        Some(Entry::Device { context, .. }) => {
            let context = context.bind(py).clone().into_any();
            let kwargs = match shown.kwargs {
                Some(k) => k.copy()?,
                None => PyDict::new(py),
            };
            let given = kwargs.get_item("device")?.is_some_and(|d| !d.is_none());
            if FACTORIES.contains(&shown.name.trim_start_matches("torch.")) && !given {
                kwargs.set_item("device", &context)?;
            }
            Ok((shown.function.call(shown.args, Some(&kwargs))?, context))
        }
        None => Err(empty_stack()),
    }
}

/// Shows a call of a function that is no operator, if a mode is on or an argument overrides it.
pub fn shown<'py>(
    function: &Bound<'py, PyAny>,
    name: &str,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let objects: Vec<_> = args.iter().collect();
    if !watch::watched(&objects) {
        return Ok(None);
    }
    let asked = watch::asked(&objects, Style::Parsed);
    if asked.is_empty() && watch::state() & MODES == 0 {
        return Ok(None);
    }
    let shown = Shown {
        function,
        name,
        style: Style::Parsed,
        args,
        kwargs,
    };
    shown.ask(&asked).map(Some)
}

fn empty_stack() -> PyErr {
    PyRuntimeError::new_err("trying to pop from empty mode stack")
}

#[pyfunction]
fn _push_on_torch_function_stack(mode: Py<PyAny>) {
    push(Entry::Mode(mode));
}

#[pyfunction]
fn _pop_torch_function_stack() -> PyResult<Py<PyAny>> {
    match pop(|e| matches!(e, Entry::Mode(_))) {
        Some(Entry::Mode(m)) => Ok(m),
        _ => Err(empty_stack()),
    }
}

#[pyfunction]
fn _len_torch_function_stack() -> usize {
    STACK.with_borrow(Vec::len)
}

#[pyfunction]
fn _get_function_stack_at(py: Python<'_>, level: usize) -> PyResult<Py<PyAny>> {
    STACK.with_borrow(|s| match s.get(level) {
        Some(Entry::Mode(m)) => Ok(m.clone_ref(py)),
        Some(Entry::Device { context, .. }) => Ok(context.clone_ref(py).into_any()),
        None => Err(PyIndexError::new_err("no mode at this level of the stack")),
    })
}

#[pyfunction]
fn _is_torch_function_mode_enabled() -> bool {
    watch::state() & (OFF | MODES) == MODES
}

#[pyfunction]
fn _is_torch_function_enabled() -> bool {
    watch::state() & (OFF | NO_OBJECTS) == 0
}

#[pyfunction]
fn _is_torch_function_all_disabled() -> bool {
    watch::state() & OFF != 0
}

/// The one argument of a function that takes exactly one.
fn only<'py>(args: &Bound<'py, PyTuple>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    if args.len() != 1 {
        return Err(PyTypeError::new_err(format!(
            "torch._C.{name}() takes exactly one argument ({} given)",
            args.len()
        )));
    }
    args.get_item(0)
}

fn asks(o: &Bound<'_, PyAny>) -> bool {
    let state = watch::state();
    state & OFF == 0
        && (state & MODES != 0 || state & NO_OBJECTS == 0 && watch::handler(o).is_some())
}

/// True if an item of the sequence takes calls over, or a mode does.
#[pyfunction]
#[pyo3(signature = (*args))]
fn _has_torch_function(args: &Bound<'_, PyTuple>) -> PyResult<bool> {
    let sequence = only(args, "_has_torch_function")?;
    let items = sequence
        .try_iter()
        .map_err(|_| PyTypeError::new_err("expected a sequence"))?;
    for item in items {
        if asks(&item?) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[pyfunction]
#[pyo3(signature = (*args))]
fn _has_torch_function_unary(args: &Bound<'_, PyTuple>) -> PyResult<bool> {
    Ok(asks(&only(args, "_has_torch_function_unary")?))
}

#[pyfunction]
#[pyo3(signature = (*args))]
fn _has_torch_function_variadic(args: &Bound<'_, PyTuple>) -> bool {
    args.iter().any(|o| asks(&o))
}

/// True if a call with these arguments has to be shown to somebody; lists and tuples are looked into.
#[pyfunction]
fn _watched(args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) -> bool {
    let state = watch::state();
    if state & OFF != 0 {
        return false;
    }
    state & MODES != 0
        || state & NO_OBJECTS == 0
            && (args.iter().any(|o| !watch::quiet(&o))
                || kwargs.iter().any(|(_, v)| !watch::quiet(&v)))
}

/// Shows a call of a function that is written in Python, or (`parsed`) of one that PyTorch's parser sees first.
#[pyfunction]
#[pyo3(signature = (function, name, relevant, args, kwargs, parsed=false))]
fn _handle<'py>(
    function: &Bound<'py, PyAny>,
    name: &str,
    relevant: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    parsed: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let style = if parsed { Style::Parsed } else { Style::Python };
    let relevant: Vec<_> = relevant.try_iter()?.collect::<PyResult<_>>()?;
    let asked = watch::asked(&relevant, style);
    let shown = Shown {
        function,
        name,
        style,
        args,
        kwargs: Some(kwargs),
    };
    shown.ask(&asked)
}

/// The arguments that would be asked, in order.
#[pyfunction]
fn _overloaded_args<'py>(relevant: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let relevant: Vec<_> = relevant.try_iter()?.collect::<PyResult<_>>()?;
    Ok(watch::asked(&relevant, Style::Python).into_vec())
}

/// As a class's `__torch_function__`: calls on its objects are ordinary ones.
#[pyfunction]
#[pyo3(signature = (func, types, args=None, kwargs=None))]
fn _disabled_torch_function_impl<'py>(
    func: &Bound<'py, PyAny>,
    types: &Bound<'py, PyAny>,
    args: Option<&Bound<'py, PyTuple>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = types;
    let _off = watch::Restore::after(NO_OBJECTS);
    match args {
        Some(args) => func.call(args, kwargs),
        None => func.call((), kwargs),
    }
}

macro_rules! switch_class {
    ($class:ident, $name:literal, $bit:expr, $doc:literal) => {
        #[doc = $doc]
        #[pyclass(name = $name, module = "torchlike._C")]
        struct $class {
            before: Vec<u32>,
        }

        #[pymethods]
        impl $class {
            #[new]
            fn new() -> Self {
                Self { before: Vec::new() }
            }
            fn __enter__(&mut self) {
                self.before.push(watch::switch($bit, true));
            }
            #[pyo3(signature = (*_exc))]
            fn __exit__(&mut self, _exc: &Bound<'_, PyTuple>) {
                if let Some(before) = self.before.pop() {
                    watch::switch($bit, before & $bit != 0);
                }
            }
        }
    };
}
switch_class!(
    DisableSubclass,
    "DisableTorchFunctionSubclass",
    NO_OBJECTS,
    "Inside, objects do not take calls over; modes do."
);
switch_class!(
    DisableAll,
    "DisableTorchFunction",
    OFF,
    "Inside, neither objects nor modes take calls over."
);

/// Sets whether uninitialised tensors are filled with no number, or the largest one.
#[pyfunction]
fn _set_fills_blanks(on: bool) {
    crate::mode::set_fills_blanks(on);
}

/// Registers the functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_set_fills_blanks _push_on_torch_function_stack _pop_torch_function_stack _len_torch_function_stack _get_function_stack_at
        _is_torch_function_mode_enabled _is_torch_function_enabled _is_torch_function_all_disabled _has_torch_function
        _has_torch_function_unary _has_torch_function_variadic _watched _handle _overloaded_args _disabled_torch_function_impl);
    let py = m.py();
    watch::add_quiet::<super::types::PyDType>(py);
    watch::add_quiet::<PyDevice>(py);
    watch::add_quiet::<super::types::PyLayout>(py);
    watch::add_quiet::<super::types::PyFormat>(py);
    watch::add_quiet::<super::convert::PyGenerator>(py);
    m.add_class::<DisableSubclass>()?;
    m.add_class::<DisableAll>()?;
    let disabled = m.getattr("_disabled_torch_function_impl")?;
    watch::set_disabled(&disabled);
    Ok(())
}
