//! A call of the binding: the overload that fits is found and passed through the door. Panics stop at [`guard`].

#![allow(unsafe_code, reason = "this is the boundary to CPython's C interface")]

use super::arguments::{Fail, Incoming, Misfit};
use super::convert::number;
use super::groups::{Group, Overload};
use super::held::Held;
use super::noted::Noted;
use super::object::{PyTensor, is_tensor, tensor_ref, viewing};
use super::out;
use super::results::{named_tuple, to_python};
use super::watch::{self, Shown, Style};
use crate::ops::args::{Arg, Args};
use crate::ops::op::{Op, Q, Ret};
use crate::ops::schema::Returns;
use crate::ops::{Call, dispatch};
use crate::parts::located;
use crate::{Dims, Tensor};
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Elements above which a call lets other Python threads run.
const RELEASE: i64 = 1 << 15;
/// Elements that are computed in the time in which a tensor is held for a call without the lock.
const HOLDING: i64 = 1 << 8;

/// Runs `f`, turning a panic into an exception.
#[inline(always)]
pub(super) fn guard(f: impl FnOnce() -> PyResult<*mut ffi::PyObject>) -> *mut ffi::PyObject {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(object)) => match super::error::warned() {
            None => object,
            Some(e) => {
                // SAFETY: the call's own result, which nobody else has.
                unsafe { ffi::Py_XDECREF(object) };
                raised(e)
            }
        },
        Ok(Err(e)) => {
            super::error::warned();
            raised(e)
        }
        Err(cause) => raised(panicked(cause.as_ref())),
    }
}

/// Sets the exception of the call that ends.
#[cold]
fn raised(e: PyErr) -> *mut ffi::PyObject {
    // SAFETY: entries are only called by the interpreter, which holds the lock.
    e.restore(unsafe { Python::assume_attached() });
    std::ptr::null_mut()
}

#[cold]
fn panicked(cause: &(dyn std::any::Any + Send)) -> PyErr {
    let text = cause
        .downcast_ref::<&str>()
        .map(ToString::to_string)
        .or_else(|| cause.downcast_ref::<String>().cloned());
    PyRuntimeError::new_err(format!(
        "internal error in torchlike: {}",
        text.unwrap_or_default()
    ))
}

impl<'py> Incoming<'py> {
    pub(super) fn run(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        // One loop after the other: a chain of iterators is slower than what it looks for.
        if watch::noticed(&self.positional) || watch::loud(self.keywords.iter().map(|(_, v)| v)) {
            return self.noticed(group);
        }
        self.unwatched(group)
    }

    #[cold]
    fn noticed(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        if watch::watched(self.objects()) {
            return self.watched(group);
        }
        self.noted(group)
    }

    /// Runs the call with its objects noted for a dispatch mode.
    fn noted(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        let _noted = Noted::of(self.objects());
        self.unwatched(group)
    }

    fn unwatched(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        let mut misfits: SmallVec<[Misfit; 2]> = SmallVec::new();
        for overload in &group.overloads {
            let held = Held::default();
            let mut args = Args::empty(overload.op);
            let parsed = self.parse(group, overload, &held, &mut args.values);
            let fitting = parsed.and_then(|out| {
                out.map_or(Ok(()), |o| out::fits(overload, o))?;
                Ok(out)
            });
            match fitting {
                Ok(out) => return self.call(group, overload, &mut args, out),
                Err(Fail::Error(e)) => return Err(e),
                Err(Fail::Misfit(m)) => misfits.push(m),
            }
        }
        self.old_form(group, &misfits)
    }

    /// Runs a call that fits no overload as what it was long ago, or with the truth of what is only tested.
    #[cold]
    fn old_form(&self, group: &Group, misfits: &[Misfit<'_, 'py>]) -> PyResult<Bound<'py, PyAny>> {
        if let Some(tested) = self.tested(group, misfits) {
            return tested.unwatched(group);
        }
        let Some(modern) = self.modern(group) else {
            return Err(self.refusal(group, misfits));
        };
        self.warn_of_old_form(group)?;
        modern.unwatched(group)
    }

    /// Lets a mode or an argument answer; tensors of a class that does not override only keep it.
    fn watched(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        let asked = self.asked(group);
        if let Some(class) = watch::kept_class(&asked) {
            return watch::keep(self.noted(group)?, &class);
        }
        if asked.is_empty() && watch::state() & watch::MODES == 0 {
            return self.noted(group);
        }
        let py = self.py;
        let Some(function) = group.function.get() else {
            return self.noted(group);
        };
        let function = function.bind(py);
        let args = PyTuple::new(py, &self.positional)?;
        let kwargs = PyDict::new(py);
        for (k, v) in &self.keywords {
            kwargs.set_item(k, v)?;
        }
        let name = group.full_name.trim_start_matches("torchlike.");
        let form = py
            .import(intern!(py, "torchlike._function"))?
            .call_method1(intern!(py, "_form"), (name, &args, &kwargs))?;
        if let Ok((function, relevant, args, kwargs)) = form.extract::<(
            Bound<'py, PyAny>,
            Vec<Bound<'py, PyAny>>,
            Bound<'py, PyTuple>,
            Bound<'py, PyDict>,
        )>() {
            let asked = watch::asked(&relevant, Style::Python);
            let shown = Shown {
                function: &function,
                name: &format!("torch.{name}"),
                style: Style::Python,
                args: &args,
                kwargs: Some(&kwargs),
            };
            return shown.ask(&asked);
        }
        self.check(group)?;
        let shown = Shown {
            function,
            name: &format!("torch.{}", name.replace("nn.functional.", "nn.")),
            style: Style::Parsed,
            args: &args,
            kwargs: (!kwargs.is_empty()).then_some(&kwargs),
        };
        shown.ask(&asked)
    }

    /// Refuses a call that would fit no overload whatever the objects that take it over are.
    fn check(&self, group: &Group) -> PyResult<()> {
        if self.modern(group).is_some() {
            return Ok(());
        }
        let mut misfits: SmallVec<[Misfit; 2]> = SmallVec::new();
        for overload in &group.overloads {
            let held = Held::lenient();
            let mut args = Args::empty(overload.op);
            match self.parse(group, overload, &held, &mut args.values) {
                Ok(_) => return Ok(()),
                Err(Fail::Error(e)) => return Err(e),
                Err(Fail::Misfit(m)) => misfits.push(m),
            }
        }
        Err(self.refusal(group, &misfits))
    }

    fn call(
        &self,
        group: &Group,
        overload: &Overload,
        args: &mut Args<'_>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        if group.in_place {
            let target = &self.positional[0];
            if let Ret::Become(made) = released(py, args, |a| dispatch::call(Call::in_place(a)?))? {
                PyTensor::of(target)?.become_(*made);
            }
            return Ok(target.clone());
        }
        if let Some(out) = out {
            return self.call_out(overload, args, out);
        }
        let mut result = released(py, args, |a| dispatch::call(Call::new(a)))?;
        if let Ret::Same(i) = result {
            return Ok(self.given(group, overload, i));
        }
        if let Ret::Become(made) = result {
            let target = self.given(group, overload, 0);
            PyTensor::of(&target)?.become_(*made);
            return Ok(target);
        }
        if let Some(i) = overload.requires_grad
            && args.bool(i)
            && let Ret::One(t) = result
        {
            result = Ret::One(super::gradient::require_grad(t)?);
        }
        let made = to_python(py, result, overload.op)?;
        Ok(viewing(made, &self.positional))
    }

    /// The object that was given for a parameter: a tensor, or the only one of a list.
    fn given(&self, group: &Group, overload: &Overload, i: usize) -> Bound<'py, PyAny> {
        let object = self
            .positional
            .get(i)
            .or_else(|| self.keyword(group, overload, i))
            .map_or_else(|| self.py.None().into_bound(self.py), Clone::clone);
        if is_tensor(&object) {
            return object;
        }
        match super::data::items(&object).as_deref() {
            Ok([only]) => only.clone(),
            _ => object,
        }
    }

    fn call_out(
        &self,
        overload: &Overload,
        args: &mut Args<'_>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let objects: Vec<Bound<'py, PyAny>> = match tensor_ref(out) {
            Some(_) => vec![out.clone()],
            None => out.try_iter()?.collect::<PyResult<_>>()?,
        };
        let mut tensors = objects
            .iter()
            .map(|o| super::convert::tensor_arg(o, overload.op.public_name(), "out").cloned())
            .collect::<PyResult<Vec<_>>>()?;
        let shapes: Vec<Dims> = tensors.iter().map(|t| t.shape().clone()).collect();
        let is_factory = overload.op.schema.position("layout").is_some();
        let parts = tensors.iter().any(Tensor::has_parts);
        let quiet = is_factory || parts || overload.op.has(Q);
        if let (true, [only]) = (is_factory, tensors.as_slice()) {
            factory_out(overload.op, args, only)?;
        }
        dispatch::call(Call::out(args, &mut tensors))?;
        let wants = is_factory && overload.requires_grad.is_some_and(|i| args.bool(i));
        for ((o, t), before) in objects.iter().zip(tensors).zip(shapes) {
            // A factory only fills what it is given, of whatever shape that was.
            if is_factory
                && *t.shape() != before
                && ["arange", "fftfreq", "rfftfreq"].contains(&overload.op.public_name())
            {
                warn_of_count(&before, t.numel());
            }
            if !quiet && *t.shape() != before && before.iter().product::<i64>() != 0 {
                resize_warning(self.py, &before, t.shape())?;
            }
            PyTensor::of(o)?.set(match wants {
                true => super::gradient::require_grad(t)?,
                false => t,
            });
        }
        match &overload.op.schema.returns {
            Returns::Tuple(names) if objects.len() > 1 => {
                named_tuple(self.py, overload.op, names, objects, true)
            }
            _ => Ok(out.clone()),
        }
    }
}

/// A factory with `out=` takes dtype and device from there; others that are asked for have to be the same.
fn factory_out(op: &Op, args: &mut Args<'_>, out: &Tensor) -> PyResult<()> {
    if let Some(i) = op.schema.position("dtype") {
        match args.dtype(i) {
            None => args.values[i] = Arg::DType(out.dtype()),
            Some(d) if d == out.dtype() => {}
            Some(d) => {
                let (d, of_out) = (d.scalar_type(), out.dtype().scalar_type());
                return Err(PyRuntimeError::new_err(format!(
                    "dtype {d} does not match dtype of out parameter ({of_out})"
                )));
            }
        }
    }
    if let Some(i) = op.schema.position("device") {
        match args.device(i) {
            // A recorded result is on meta only until it is replayed.
            None if out.storage().is_sourced() => {}
            None => args.values[i] = Arg::Device(located(out)),
            Some(d) if d.kind == located(out).kind => {}
            Some(d) => {
                let (d, of_out) = (d.kind.name(), located(out).kind.name());
                return Err(PyRuntimeError::new_err(format!(
                    "device type {d} does not match device type of out parameter ({of_out})"
                )));
            }
        }
    }
    Ok(())
}

#[cold]
fn warn_of_count(before: &Dims, count: i64) {
    let held: i64 = before.iter().product();
    if held != 0 && held != count {
        crate::warning::say(&format!(
            "The number of elements in the out tensor of shape {before} is {held} which does not match the computed number of \
             elements {count}. Note that this may occur as a result of rounding error. The out tensor will be resized to a tensor \
             of shape ({count},)."
        ));
    }
}

#[cold]
fn resize_warning(py: Python<'_>, before: &Dims, after: &Dims) -> PyResult<()> {
    let text = format!(
        "An output with one or more elements was resized since it had shape {before}, which does not match the required output shape {after}. \
         This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they have zero elements. You can \
         explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
    );
    py.import("warnings")?.call_method1("warn", (text,))?;
    Ok(())
}

/// Runs a call, letting other threads run meanwhile if there is much to do.
#[inline]
fn released<R: Send>(
    py: Python<'_>,
    args: &Args<'_>,
    f: impl FnOnce(&Args) -> crate::Result<R> + Send,
) -> crate::Result<R> {
    let mut work = 0i64;
    let mut watched = super::dispatch::on();
    args.for_each_tensor(|_, t| {
        work = work.saturating_add(if t.is_meta() { 0 } else { t.numel() - HOLDING });
        watched |= t.is_python();
    });
    if args.values.first().is_some_and(
        |v| matches!(v, Arg::Ints(d) if d.iter().fold(1i64, |n, d| n.saturating_mul(*d)) > RELEASE),
    ) {
        work = RELEASE + 1;
    }
    if work > RELEASE {
        let owned = args.to_owned();
        return py.detach(|| f(&owned.borrow()));
    }
    if watched {
        // Who is shown the call may change what the objects of its arguments hold.
        return f(&args.to_owned().borrow());
    }
    f(args)
}

#[inline]
fn borrowed<'a>(o: &'a Bound<'_, PyAny>) -> Arg<'a> {
    match tensor_ref(o) {
        Some(t) => Arg::Tensor(t),
        None => Arg::None,
    }
}

/// Calls an overload set by operator slots: `self` and one other operand.
pub fn binary<'py>(
    op: &'static Op,
    slf: &Bound<'py, PyAny>,
    other: &Bound<'py, PyAny>,
    reflected: bool,
    in_place: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let py = slf.py();
    let (first, second) = if reflected {
        (other, slf)
    } else {
        (slf, other)
    };
    // Numbers are read before tensors are borrowed: reading one may run Python.
    let mut args = match (is_tensor(first), is_tensor(second)) {
        (true, true) => Args::of_two(op, borrowed(first), borrowed(second)),
        (true, false) => match number(second) {
            Some(n) => Args::of_two(op, borrowed(first), Arg::Scalar(n)),
            None => return no_operand(second),
        },
        (false, true) => match number(first) {
            Some(n) => Args::of_two(op, Arg::Scalar(n), borrowed(second)),
            None => return no_operand(first),
        },
        (false, false) => return Ok(py.NotImplemented().into_bound(py)),
    };
    args.fill()?;
    if in_place {
        if let Ret::Become(made) = released(py, &args, |a| dispatch::call(Call::in_place(a)?))? {
            PyTensor::of(slf)?.become_(*made);
        }
        return Ok(slf.clone());
    }
    let result = released(py, &args, |a| dispatch::call(Call::new(a)))?;
    to_python(py, result, op)
}

/// What an operator says of an object that is neither a tensor nor a number: its class may know more.
#[cold]
fn no_operand<'py>(o: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match super::convert::no_number(o).raised() {
        Some(error) => Err(error),
        None => Ok(o.py().NotImplemented().into_bound(o.py())),
    }
}
