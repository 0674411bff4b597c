//! Dispatch modes and `__torch_dispatch__`: the hook that shows the leaves of calls to Python.
//!
//! The core passes tensors on by value. Which Python object a tensor is, is known of those whose class handles its calls
//! (they are registered), and of the arguments of the call that Python made (they are noted while it lasts).

use super::again::{Answering, Asked};
use super::convert::PyGenerator;
use super::error::carried;
use super::noted::{self, is_same};
use super::object::{PyTensor, adopt, instance, is_tensor, wrap};
use super::results::scalar;
use super::taken::taken;
use super::types::{self, device, dtype};
use super::wrappers;
use crate::layers::{Next, autocast, modes};
use crate::ops::args::{Arg, Args};
use crate::ops::op::{Body, Grad, Ret};
use crate::ops::schema::NONE;
use crate::ops::{Call, Form};
use crate::{Dims, Result, Scalar, Storage, Tensor, captured, mode};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyDict, PyList, PyString, PyTuple, PyType};

/// True if a dispatch mode is on.
pub fn on() -> bool {
    mode::layers() & mode::DISPATCH != 0
}

/// The Python object of a tensor: the one it came from if that is known, else a new one.
pub fn object<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    if let Some(known) = noted::known(py, t) {
        // What a handler made has got a history since, if a composite goes on with it.
        let known = known.into_bound(py);
        adopt(&known, t);
        if noted::with_tangents(&known, t) {
            return Ok(known);
        }
    }
    if t.is_python()
        && let Some(known) = wrappers::registered(py, t)?
    {
        return Ok(known);
    }
    wrap(py, t.clone().with_python(false))
}

/// The object of a result whose class handles its calls.
#[cold]
pub fn result<'py>(py: Python<'py>, t: &Tensor) -> PyResult<Bound<'py, PyAny>> {
    let found = object(py, t)?;
    adopt(&found, t);
    // Others of the same call are still to be asked for; their objects go with the next one.
    noted::forget(|noted| !is_same(noted, t));
    Ok(found)
}

static DISABLED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The `__torch_dispatch__` of a class, if it has one of its own.
pub fn handler<'py>(class: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = class.py();
    let found = class.getattr_opt(intern!(py, "__torch_dispatch__"))?;
    Ok(found.filter(|f| !DISABLED.get(py).is_some_and(|d| d.is(f))))
}

/// An instance of a subclass, which handles its calls if the class says so.
pub fn dispatching<'py>(cls: &Bound<'py, PyType>, t: Tensor) -> PyResult<Bound<'py, PyAny>> {
    let handles = handler(cls)?.is_some();
    let storage = t.storage().clone();
    let made = instance(cls, t.with_python(handles))?;
    if handles {
        wrappers::register(&made, &storage, None)?;
    }
    Ok(made)
}

/// Notes that an instance which `__new__` made is one of a class that handles its calls, if it is.
///
/// # Errors
/// If the class cannot be asked.
pub fn constructed(o: &Bound<'_, PyAny>) -> PyResult<()> {
    if handler(&o.get_type())?.is_none() {
        return Ok(());
    }
    if let Ok(holder) = o.cast::<PyTensor>() {
        let t = holder.get().get().clone();
        let storage = t.storage().clone();
        holder.get().set(t.with_python(true));
        wrappers::register(o, &storage, None)?;
    }
    Ok(())
}

/// Shows a leaf to Python, which answers or passes it on; calls of tensors on meshes no more than once of a kind.
fn hook(c: Call, next: Next) -> Result<Ret> {
    let Some(asked) = Asked::of(&c, mode::within()) else {
        return ask(c, next, true, |_, _| {});
    };
    match autocast::without(|| asked.known()) {
        Some(Ok(Some(ret))) => Ok(ret),
        Some(Ok(None)) => passed(c, next),
        Some(Err(e)) => Err(e),
        None => {
            let noting = asked.start();
            let closed = !asked.is_open();
            ask(c, next, closed, |ret, passed| {
                asked.remember(noting, ret, passed);
            })
        }
    }
}

/// Passes a call on that Python does not answer.
fn passed(c: Call, next: Next) -> Result<Ret> {
    let def = &c.args.op.def;
    let _within = matches!(def.body, Body::Compose(_)).then(|| mode::Within::of(Some(def.name)));
    next.call(c)
}

/// What a kernel can be made of. PyTorch may have none of its own: tensors that handle their calls see the parts then.
fn parts(c: &Call) -> Option<fn(&Args) -> Result<Ret>> {
    match (c.args.op.def.grad, &c.form) {
        (Grad::Through(f), Form::New) => Some(f),
        _ => None,
    }
}

/// Asks Python; `heard` is told what it answers, or that it passed the call on. `closed`: what runs meanwhile is a part of this call,
/// and what a call that is passed on gives is told too.
fn ask(c: Call, next: Next, closed: bool, heard: impl FnOnce(Option<&Ret>, bool)) -> Result<Ret> {
    let (parts, mut parted) = (parts(&c), false);
    let answered = Python::attach(|py| -> PyResult<Option<Ret>> {
        noted::prune(py);
        let shown = show(py, &c)?;
        let _within = mode::Within::of(None);
        let _answering = closed.then(Answering::now);
        let leaves = leaves(py)?;
        let named = parts.map(|_| [("parted", true)].into_py_dict(py));
        let named = named.transpose()?;
        let seen = captured::aside(|| autocast::without(|| leaves.call(&shown, named.as_ref())))?;
        if seen.is(py.NotImplemented().bind(py)) {
            return Ok(None);
        }
        if seen.is(py.Ellipsis().bind(py)) {
            parted = true;
            return Ok(None);
        }
        let first = shown.get_item(2)?.get_item(0);
        taken(&seen, &c, first.as_ref().unwrap_or(&seen)).map(Some)
    });
    let Some(ret) = answered.map_err(carried)? else {
        Python::attach(noted::prune);
        if let (Some(f), true) = (parts, parted) {
            let _within = mode::Within::of(Some(c.args.op.def.name));
            return f(c.args);
        }
        if !closed || !matches!(c.form, Form::New) {
            heard(None, true);
            return passed(c, next);
        }
        let ret = passed(c, next)?;
        heard(Some(&ret), true);
        return Ok(ret);
    };
    heard(Some(&ret), false);
    Python::attach(noted::prune);
    match (ret, c.form) {
        (Ret::Tuple(results), Form::Out(outs)) => {
            outs.iter_mut().zip(results).for_each(|(out, r)| *out = r);
            Ok(Ret::Tuple(Vec::new()))
        }
        (ret, _) => Ok(ret),
    }
}

/// A tensor that was just made of Python's values: shown, as PyTorch does with those that have data, and fake in a fake mode.
pub fn fresh(t: Tensor) -> Result<Tensor> {
    if t.is_meta() || t.storage().is_fake() {
        return Ok(t);
    }
    if let Some(made) = super::fake::made_here(&t, t.device())? {
        return Ok(made);
    }
    if on() {
        return crate::f::lift_fresh(&t);
    }
    Ok(t)
}

/// A number as a tensor that is assigned to elements, where a dispatch mode is to see it as PyTorch's.
pub fn assigned(n: Scalar, to: &Tensor) -> Result<Tensor> {
    let (n, dtype) = crate::ops::core::fits::assigned_to(n, to)?;
    if let Some(mode) = to.storage().fake_mode() {
        let made = mode.lift(&Tensor::scalar(n, dtype)?);
        return made.to_device(to.device());
    }
    if to.is_meta() {
        return crate::f::ScalarTensor::new(n)
            .dtype(dtype)
            .device(to.device())
            .call();
    }
    crate::f::lift_fresh(&Tensor::scalar(n, dtype)?.to_device(to.device())?)
}

/// What [`fresh`] gave, cut off from what came before: in inference mode nobody but a dispatch mode would see to that.
pub fn cut_off(t: Tensor) -> Result<Tensor> {
    if on() && !t.is_meta() && mode::inference() {
        let args = Args::new(crate::op!("detach#inplace")?, [Arg::Tensor(&t)])?;
        crate::ops::dispatch::call(Call::in_place(&args)?)?;
    }
    Ok(t)
}

fn leaves(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static SEEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let seen = SEEN.get_or_try_init(py, || {
        Ok::<_, PyErr>(
            py.import("torchlike._ops.leaves")?
                .getattr("seen")?
                .unbind(),
        )
    })?;
    Ok(seen.bind(py))
}

/// `(row, form, values, outs, is a leaf here, the composite that makes the call)`, what Python sees of a call.
pub fn show<'py>(py: Python<'py>, c: &Call) -> PyResult<Bound<'py, PyTuple>> {
    let values = c
        .args
        .values
        .iter()
        .map(|a| argument(py, a))
        .collect::<PyResult<Vec<_>>>()?;
    let (form, outs) = match &c.form {
        Form::New => ("", Vec::new()),
        Form::InPlace(_) | Form::Within(_) => ("_", Vec::new()),
        Form::Out(outs) => (
            "out",
            outs.iter()
                .map(|t| object(py, t))
                .collect::<PyResult<Vec<_>>>()?,
        ),
    };
    let composite = matches!(c.args.op.def.body, Body::Compose(_) | Body::Forward(_));
    (
        c.args.op.def.name,
        form,
        PyTuple::new(py, values)?,
        PyList::new(py, outs)?,
        !composite,
        mode::within(),
    )
        .into_pyobject(py)
}

fn list<'py, T>(
    py: Python<'py>,
    items: impl IntoIterator<Item = T>,
    f: impl Fn(T) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let items = items.into_iter().map(f).collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, items)?.into_any())
}

fn argument<'py>(py: Python<'py>, a: &Arg<'_>) -> PyResult<Bound<'py, PyAny>> {
    let none = || py.None().into_bound(py);
    Ok(match a {
        Arg::None => none(),
        Arg::Tensor(t) => object(py, t)?,
        Arg::Tensors(l) => list(py, l, |t| object(py, t))?,
        Arg::OptTensors(l) => list(py, l, |t| t.map_or_else(|| Ok(none()), |t| object(py, t)))?,
        Arg::Scalar(s) => scalar(py, *s)?,
        Arg::Int(i) => i.into_pyobject(py)?.into_any(),
        Arg::Float(f) => f.into_pyobject(py)?.into_any(),
        Arg::Bool(b) => b.into_pyobject(py)?.to_owned().into_any(),
        Arg::Ints(d) => list(py, d.iter(), |i| {
            Ok(if *i == NONE {
                none()
            } else {
                i.into_pyobject(py)?.into_any()
            })
        })?,
        Arg::Floats(l) => list(py, l, |f| Ok(f.into_pyobject(py)?.into_any()))?,
        Arg::Scalars(l) => list(py, l, |s| scalar(py, *s))?,
        Arg::Bools(l) => list(py, l, |b| Ok(b.into_pyobject(py)?.to_owned().into_any()))?,
        Arg::Str(s) => PyString::new(py, s).into_any(),
        Arg::DType(d) => dtype(py, *d)?.into_bound(py).into_any(),
        Arg::Device(d) => device(py, *d)?.into_bound(py).into_any(),
        Arg::Layout(l) => types::layout(py, l.name())?.into_bound(py).into_any(),
        Arg::Format(f) => types::format(py, *f)?,
        Arg::Generator(g) => Bound::new(py, PyGenerator(g.clone()))?.into_any(),
    })
}

#[pyfunction]
#[pyo3(signature = (on, passing=false))]
fn _set_dispatch(on: bool, passing: bool) -> bool {
    modes::switch(on, passing)
}

/// The `__torch_dispatch__` of the tensors among the arguments, for those whose class has one: `(object, handler)`.
#[pyfunction]
fn _dispatch_handlers<'py>(
    args: &Bound<'py, PyTuple>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let py = args.py();
    let mut found: Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)> = Vec::new();
    for o in args {
        let class = o.get_type();
        if !is_tensor(&o) || found.iter().any(|(f, _)| f.get_type().is(&class)) {
            continue;
        }
        if handler(&class)?.is_some() {
            // Of the object, so that a plain method gets it as `self`.
            let h = o.getattr(intern!(py, "__torch_dispatch__"))?;
            let mut at = found.len();
            for (i, (f, _)) in found.iter().enumerate().rev() {
                if class.is_subclass(&f.get_type())? {
                    at = i;
                }
            }
            found.insert(at, (o, h));
        }
    }
    Ok(found)
}

/// A value with plain tensors in place of those whose class handles its calls; `pairs` gets each with the one it stands for.
fn without_handlers<'py>(
    o: &Bound<'py, PyAny>,
    pairs: &mut Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = o.py();
    if let Ok(holder) = o.cast::<PyTensor>() {
        if handler(&o.get_type())?.is_none() {
            return Ok(o.clone());
        }
        let plain = wrap(py, holder.get().get().bare().with_python(false))?;
        pairs.push((plain.clone(), o.clone()));
        return Ok(plain);
    }
    let mut items = || -> PyResult<Vec<_>> {
        let items = o.try_iter()?;
        items.map(|i| without_handlers(&i?, pairs)).collect()
    };
    if o.is_exact_instance_of::<PyTuple>() {
        return Ok(PyTuple::new(py, items()?)?.into_any());
    }
    if o.is_exact_instance_of::<PyList>() {
        return Ok(PyList::new(py, items()?)?.into_any());
    }
    Ok(o.clone())
}

/// Lets an object lie as the plain tensor that stood for it does now: a view in place, or other memory, was asked of it.
fn relaid(plain: &Bound<'_, PyAny>, object: &Bound<'_, PyAny>) -> PyResult<()> {
    if let (Ok(plain), Ok(holder)) = (plain.cast::<PyTensor>(), object.cast::<PyTensor>()) {
        let (now, was) = (plain.get().get().clone(), holder.get().get().clone());
        if !now.shares_storage(&was) {
            wrappers::register(object, now.storage(), None)?;
        }
        if !now.lies_as(&was) {
            holder.get().set(now.in_place_of(&was));
        }
    }
    Ok(())
}

/// As a class's `__torch_dispatch__`: calls on its objects are ordinary ones.
#[pyfunction]
#[pyo3(signature = (func, types, args=None, kwargs=None))]
fn _disabled_torch_dispatch_impl<'py>(
    func: &Bound<'py, PyAny>,
    types: &Bound<'py, PyAny>,
    args: Option<&Bound<'py, PyAny>>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _ = types;
    let py = func.py();
    let mut pairs = Vec::new();
    let mut plain = Vec::new();
    if let Some(args) = args {
        for arg in args.try_iter()? {
            plain.push(without_handlers(&arg?, &mut pairs)?);
        }
    }
    let named = PyDict::new(py);
    for (name, value) in kwargs.into_iter().flat_map(|k| k.iter()) {
        named.set_item(name, without_handlers(&value, &mut pairs)?)?;
    }
    let made = func.call(PyTuple::new(py, plain)?, Some(&named))?;
    pairs
        .iter()
        .try_for_each(|(plain, object)| relaid(plain, object))?;
    let same = pairs.into_iter().find(|(plain, _)| plain.is(&made));
    Ok(same.map_or(made, |(_, object)| object))
}

/// An instance of a class with `__torch_dispatch__` that has sizes and a dtype, and no data.
#[pyfunction]
#[pyo3(signature = (cls, size, strides=None, storage_offset=0, dtype=None, device=None, requires_grad=false))]
fn _wrapper<'py>(
    cls: &Bound<'py, PyType>,
    size: Vec<i64>,
    strides: Option<Vec<i64>>,
    storage_offset: i64,
    dtype: Option<&types::PyDType>,
    device: Option<&types::PyDevice>,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let dtype = dtype.map_or_else(mode::default_dtype, |d| d.0);
    let claim = device.map_or_else(|| Ok(mode::default_device()), types::PyDevice::known)?;
    let shape = Dims::new(&size);
    let strides = strides.map_or_else(
        || crate::dims::contiguous_strides(&shape),
        |s| Dims::new(&s),
    );
    let lies = (shape, strides, storage_offset);
    wrapping(cls, lies, dtype, claim, requires_grad)
}

/// A new tensor of a class that handles its calls: shape, strides and offset, a type and a claimed device.
fn wrapping<'py>(
    cls: &Bound<'py, PyType>,
    (shape, strides, offset): (Dims, Dims, i64),
    dtype: crate::DType,
    claim: crate::Device,
    requires_grad: bool,
) -> PyResult<Bound<'py, PyAny>> {
    if handler(cls)?.is_none() {
        return Err(PyTypeError::new_err(format!(
            "{} must define __torch_dispatch__",
            cls.name()?
        )));
    }
    let nbytes = crate::dims::storage_bytes(&shape, &strides, offset, dtype.size())?;
    let storage = Storage::hollow(nbytes, claim);
    let t = Tensor::checked(storage, shape, strides, offset, dtype)?;
    let t = if requires_grad {
        super::gradient::require_grad(t)?
    } else {
        t
    };
    dispatching(cls, t)
}

/// What tells a tensor from others that lie alike.
#[pyfunction]
fn _nr_alike(t: &Bound<'_, PyTensor>) -> u32 {
    t.get().get().nr_alike()
}

/// Numbers a tensor among those that lie alike.
#[pyfunction]
fn _number_alike(t: &Bound<'_, PyTensor>, nr: u32) {
    let numbered = t.get().get().clone().numbered_alike(nr);
    t.get().set(numbered);
}

/// Whether the binding itself has a weak reference to an object.
#[pyfunction]
fn _is_registered(t: &Bound<'_, PyTensor>) -> PyResult<bool> {
    wrappers::is_registered(t.as_any(), t.get().get().storage())
}

/// Registers the functions and sets the hook.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_set_dispatch _dispatch_handlers _disabled_torch_dispatch_impl _wrapper _is_registered _nr_alike _number_alike);
    let disabled = m.getattr("_disabled_torch_dispatch_impl")?;
    let _ = DISABLED.set(m.py(), disabled.clone().unbind());
    modes::set_hook(hook);
    modes::set_settled(noted::settled);
    modes::set_readers(super::element::shown, super::element::reading);
    m.py()
        .get_type::<PyTensor>()
        .setattr("__torch_dispatch__", disabled)
}
