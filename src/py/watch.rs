//! Who may take a call over: objects with a `__torch_function__` of their own, and function modes.
//!
//! [`noticed`] is the one test of every entry. A type that is known to be plain costs a comparison of pointers; what
//! follows a positive answer is cold and may be slow.

#![allow(
    unsafe_code,
    reason = "types are compared by address, and items of containers read without copies"
)]

use super::class::{is_tensor_class, tensor_class};
use super::noted::Noted;
use super::object::{PyTensor, instance, is_plain_tensor, is_tensor};
pub use super::shown::Shown;
use crate::mode;
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function mode is active on this thread.
pub const MODES: u32 = 1 << 20;
/// Objects are not asked on this thread.
pub const NO_OBJECTS: u32 = 1 << 21;
/// Neither objects nor modes are asked.
pub const OFF: u32 = 1 << 22;

/// What is switched on this thread: a sum of [`MODES`], [`NO_OBJECTS`], [`OFF`].
#[inline]
pub fn state() -> u32 {
    mode::word() & mode::FRONT
}

/// Switches `bit` and returns the state before.
pub fn switch(bit: u32, on: bool) -> u32 {
    mode::set_front(bit, on)
}

/// The state, put back when this is dropped.
pub struct Restore(u32);

impl Restore {
    /// Switches `bit` on until the guard is dropped.
    pub fn after(bit: u32) -> Self {
        Self(switch(bit, true))
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        // Modes were pushed and popped in pairs meanwhile.
        switch(NO_OBJECTS, self.0 & NO_OBJECTS != 0);
        switch(OFF, self.0 & OFF != 0);
    }
}

/// Types that are known to have no `__torch_function__` and live forever, in pairs of places.
static QUIET: [[AtomicPtr<ffi::PyTypeObject>; 2]; 128] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; 2] }; 128];

#[inline]
fn places(class: *mut ffi::PyTypeObject) -> &'static [AtomicPtr<ffi::PyTypeObject>; 2] {
    let mixed = (class as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &QUIET[(mixed >> 57) as usize]
}

#[inline]
fn is_known(class: *mut ffi::PyTypeObject) -> bool {
    let [first, second] = places(class);
    first.load(Relaxed) == class || second.load(Relaxed) == class
}

/// Notes a type that never has a `__torch_function__`; it has to live forever.
fn know(class: *mut ffi::PyTypeObject) {
    let [first, second] = places(class);
    let place = if first.load(Relaxed).is_null() {
        first
    } else {
        second
    };
    place.store(class, Relaxed);
}

/// As `know`, for classes of the binding.
pub fn add_quiet<T: pyo3::PyTypeInfo>(py: Python<'_>) {
    know(py.get_type::<T>().as_ptr().cast());
}

/// True if the object cannot take a call over, as far as its type says; items of lists and tuples are looked at.
#[inline]
pub fn quiet(o: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive, so its type is.
    let class = unsafe { ffi::Py_TYPE(o.as_ptr()) };
    is_plain_tensor(class) || is_known(class) || look_closer(o, class)
}

fn look_closer(o: &Bound<'_, PyAny>, class: *mut ffi::PyTypeObject) -> bool {
    if let Ok(t) = o.cast::<PyTuple>() {
        return t.iter_borrowed().all(|item| quiet_item(&item));
    }
    if let Ok(l) = o.cast::<PyList>() {
        return l.iter().all(|item| quiet_item(&item));
    }
    quiet_object(o, class)
}

/// As [`quiet`], but containers inside containers are not looked into.
fn quiet_item(o: &Bound<'_, PyAny>) -> bool {
    // SAFETY: as in `quiet`.
    let class = unsafe { ffi::Py_TYPE(o.as_ptr()) };
    is_plain_tensor(class)
        || is_known(class)
        || o.is_instance_of::<PyTuple>()
        || o.is_instance_of::<PyList>()
        || quiet_object(o, class)
}

fn quiet_object(o: &Bound<'_, PyAny>, class: *mut ffi::PyTypeObject) -> bool {
    const HEAP: std::os::raw::c_ulong = 1 << 9;
    if handler(o).is_some() {
        return false;
    }
    // SAFETY: the type is alive.
    if unsafe { ffi::PyType_GetFlags(class) } & HEAP == 0 {
        know(class);
    }
    true
}

/// The object's `__torch_function__`, if it has one that is not switched off.
pub fn handler<'py>(o: &Bound<'py, PyAny>) -> Option<Bound<'py, PyAny>> {
    if is_plain_tensor(o.get_type_ptr()) {
        return None;
    }
    let name = intern!(o.py(), "__torch_function__");
    // The type first: most have none, and asking an instance may run its `__getattr__`.
    let of_class = o.get_type().getattr_opt(name).ok().flatten()?;
    if is_disabled(&of_class) {
        return None;
    }
    if is_default(&of_class) {
        return Some(of_class);
    }
    let found = o.getattr(name).ok()?;
    (!is_disabled(&found)).then_some(found)
}

static DISABLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The function that says "not overridden" where it stands as a `__torch_function__`.
pub fn set_disabled(function: &Bound<'_, PyAny>) {
    let _ = DISABLED.set(function.py(), function.clone().unbind());
}

fn is_disabled(found: &Bound<'_, PyAny>) -> bool {
    DISABLED.get(found.py()).is_some_and(|d| d.is(found))
}

/// True if somebody in Python may want to know of a call with these objects: the one test of a plain call. What follows is
/// [`watched`] and, with a dispatch mode, that the objects are [noted](super::noted::Noted).
#[inline]
pub fn noticed<'a, 'py: 'a>(objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> bool {
    mode::word() & (mode::FRONT | mode::DISPATCH) != 0 || loud(objects)
}

/// True if this call has to be shown to a mode or to one of its arguments.
pub fn watched<'a, 'py: 'a>(objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> bool {
    let state = state();
    if state & (OFF | MODES) != 0 {
        return state & OFF == 0;
    }
    state & NO_OBJECTS == 0 && loud(objects)
}

/// True if one of the objects may take a call over.
#[inline]
pub fn loud<'a, 'py: 'a>(objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>) -> bool {
    objects.into_iter().any(|o| !quiet(o))
}

/// True if the object, or an item of it, would be asked.
pub fn overrides(o: &Bound<'_, PyAny>) -> bool {
    state() & (OFF | NO_OBJECTS) == 0 && !quiet(o)
}

/// Arguments that are asked, in the order in which they are asked: from left to right, subclasses before their bases.
pub type Asked<'py> = SmallVec<[Bound<'py, PyAny>; 2]>;

/// Whether a plain tensor counts, as it does for functions that PyTorch writes in Python.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Parsed by the C++ parser: only what overrides is asked.
    Parsed,
    /// Written in Python: plain tensors are asked too (and decline), keywords are always passed.
    Python,
    /// A method or an attribute without arguments, which nothing parses: its tensor is asked, whatever it is.
    Bare,
}

/// The arguments to ask.
pub fn asked<'a, 'py: 'a>(
    objects: impl IntoIterator<Item = &'a Bound<'py, PyAny>>,
    style: Style,
) -> Asked<'py> {
    let mut found = Asked::new();
    if state() & (OFF | NO_OBJECTS) != 0 {
        return found;
    }
    let mut add = |o: &Bound<'py, PyAny>| {
        let class = o.get_type();
        if found.iter().any(|f| f.get_type().is(&class)) {
            return;
        }
        let plain = match style {
            Style::Parsed => false,
            Style::Python => is_exact_tensor(o),
            Style::Bare => is_tensor(o),
        };
        if !plain && handler(o).is_none() {
            return;
        }
        let at = found
            .iter()
            .position(|f| is_subtype(&class, &f.get_type()))
            .unwrap_or(found.len());
        found.insert(at, o.clone());
    };
    for o in objects {
        if let Ok(t) = o.cast::<PyTuple>() {
            t.iter().for_each(|item| add(&item));
        } else if let Ok(l) = o.cast::<PyList>() {
            // A copy: asking runs Python, which may change the list.
            let items: Vec<_> = l.iter().collect();
            items.iter().for_each(&mut add);
        } else {
            add(o);
        }
    }
    found
}

fn is_exact_tensor(o: &Bound<'_, PyAny>) -> bool {
    is_tensor_class(o.get_type_ptr())
}

fn is_subtype(a: &Bound<'_, PyType>, b: &Bound<'_, PyType>) -> bool {
    // SAFETY: both are types.
    unsafe { ffi::PyType_IsSubtype(a.as_ptr().cast(), b.as_ptr().cast()) != 0 }
}

/// The class that results take if nobody overrides: the first that is a subclass of all, or none if one overrides.
pub fn kept_class<'py>(asked: &Asked<'py>) -> Option<Bound<'py, PyType>> {
    if state() & MODES != 0 || !asked.iter().all(|o| has_default_handler(o)) {
        return None;
    }
    let classes: SmallVec<[Bound<'py, PyType>; 2]> = asked.iter().map(Bound::get_type).collect();
    classes
        .iter()
        .find(|c| classes.iter().all(|other| is_subtype(c, other)))
        .cloned()
}

/// True if the object's class takes `__torch_function__` from `Tensor`.
fn has_default_handler(o: &Bound<'_, PyAny>) -> bool {
    let name = intern!(o.py(), "__torch_function__");
    o.is_instance_of::<PyTensor>()
        && o.get_type()
            .getattr(name)
            .is_ok_and(|found| is_default(&found))
}

/// True for `Tensor.__torch_function__`, of whatever class it is asked for.
fn is_default(handler: &Bound<'_, PyAny>) -> bool {
    static DEFAULT: AtomicPtr<std::ffi::c_void> = AtomicPtr::new(std::ptr::null_mut());
    let function = |found: &Bound<'_, PyAny>| {
        // SAFETY: the check says that it is a built-in function.
        unsafe {
            (ffi::PyCFunction_Check(found.as_ptr()) != 0)
                .then(|| ffi::PyCFunction_GetFunction(found.as_ptr()))?
                .map(|f| f as *mut std::ffi::c_void)
        }
    };
    let Some(found) = function(handler) else {
        return false;
    };
    let mut default = DEFAULT.load(Relaxed);
    if default.is_null() {
        let py = handler.py();
        let of_tensor = py
            .get_type::<PyTensor>()
            .getattr(intern!(py, "__torch_function__"));
        default = of_tensor
            .ok()
            .and_then(|f| function(&f))
            .unwrap_or_default();
        DEFAULT.store(default, Relaxed);
    }
    found == default
}

/// Tensors in a result become instances of `class`, also inside lists and tuples.
pub fn keep<'py>(
    result: Bound<'py, PyAny>,
    class: &Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(t) = result.cast::<PyTensor>() {
        if is_tensor_class(class.as_type_ptr()) || is_subtype(&result.get_type(), class) {
            return Ok(result);
        }
        return instance(class, t.get().get().clone());
    }
    if result.is_instance_of::<PyTuple>() || result.is_instance_of::<PyList>() {
        let items = super::data::items(&result)?;
        if !items.iter().any(is_tensor) {
            return Ok(result);
        }
        let items = items
            .into_iter()
            .map(|item| keep(item, class))
            .collect::<PyResult<Vec<_>>>()?;
        let kind = result.get_type();
        return kind.call1((PyTuple::new(result.py(), items)?,));
    }
    Ok(result)
}

/// How a call of a few objects goes on.
pub enum Course<'py> {
    /// As if nobody watched.
    On,
    /// As if nobody watched, but tensors in the result become this class.
    Keep(Bound<'py, PyType>),
    /// Somebody answered.
    Done(Bound<'py, PyAny>),
}

/// Asks about a call whose public function is an attribute of `Tensor` (`add`, `shape.__get__`).
#[cold]
pub fn course<'py>(
    py: Python<'py>,
    path: &str,
    style: Style,
    args: &[&Bound<'py, PyAny>],
) -> PyResult<Course<'py>> {
    let style = match (style, args) {
        (Style::Parsed, [_]) => Style::Bare,
        _ => style,
    };
    let found = asked(args.iter().copied(), style);
    if let Some(class) = kept_class(&found) {
        return Ok(Course::Keep(class));
    }
    if found.is_empty() && state() & (OFF | MODES) != MODES {
        return Ok(Course::On);
    }
    let mut function = tensor_class(py)?.into_any();
    for part in path.split('.') {
        function = function.getattr(part)?;
    }
    let args = PyTuple::new(py, args)?;
    let name = format!("torch.Tensor.{path}");
    let shown = Shown {
        function: &function,
        name: &name,
        style,
        args: &args,
        kwargs: None,
    };
    shown.ask(&found).map(Course::Done)
}

/// Computes a call of a few objects, unless somebody who watches answers.
#[inline]
pub fn unless_answered<'py>(
    path: &str,
    style: Style,
    args: &[&Bound<'py, PyAny>],
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    if noticed(args.iter().copied()) {
        return ask_first(path, style, args, compute);
    }
    compute()
}

#[cold]
fn ask_first<'py>(
    path: &str,
    style: Style,
    args: &[&Bound<'py, PyAny>],
    compute: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (course, _noted) = asked_first(path, style, args)?;
    match course {
        Course::On => compute(),
        Course::Keep(class) => keep(compute()?, &class),
        Course::Done(result) => Ok(result),
    }
}

/// What [`ask_first`] asks, with the objects noted as long as the call goes on.
fn asked_first<'py>(
    path: &str,
    style: Style,
    args: &[&Bound<'py, PyAny>],
) -> PyResult<(Course<'py>, Option<Noted>)> {
    let course = match watched(args.iter().copied()) {
        true => course(args[0].py(), path, style, args)?,
        false => Course::On,
    };
    Ok((course, Noted::of(args.iter().copied())))
}

/// The answer to a call whose result is no tensor, if somebody gives one.
#[inline]
pub fn answer<'py>(
    path: &str,
    style: Style,
    args: &[&Bound<'py, PyAny>],
) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !watched(args.iter().copied()) {
        return Ok(None);
    }
    match course(args[0].py(), path, style, args)? {
        Course::Done(result) => Ok(Some(result)),
        Course::On | Course::Keep(_) => Ok(None),
    }
}

/// `Tensor.__torch_function__`: calls the function without asking objects, and gives results the class.
pub fn default_handler<'py>(
    cls: &Bound<'py, PyType>,
    function: &Bound<'py, PyAny>,
    types: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = cls.py();
    for t in types.try_iter()? {
        let t = t?;
        let t = t
            .cast::<PyType>()
            .map_err(|_| PyTypeError::new_err("issubclass() arg 2 must be a class"))?;
        if !cls.is_subclass(t)? {
            return Ok(py.NotImplemented().into_bound(py));
        }
    }
    let result = {
        let _off = Restore::after(NO_OBJECTS);
        function.call(args, kwargs)?
    };
    if is_unwrapped(function)? {
        return Ok(result);
    }
    keep(result, cls)
}

/// Attributes whose values keep their own class.
pub const UNWRAPPED: [&str; 3] = ["grad", "_grad", "_base"];

fn is_unwrapped(function: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = function.py();
    let Some(owner) = function.getattr_opt(intern!(py, "__self__"))? else {
        return Ok(false);
    };
    let name = |o: &Bound<'_, PyAny>| -> Option<String> {
        o.getattr_opt(intern!(py, "__name__")).ok()??.extract().ok()
    };
    Ok(name(function).as_deref() == Some("__get__")
        && name(&owner).is_some_and(|n| UNWRAPPED.contains(&n.as_str())))
}
