//! The binding, derived from the op table: one C function for each public name and form.
//!
//! Python calls arrive by the fast-call convention. [`Group`]s gather the overloads of a name; arguments are
//! converted by schema, keywords found by interned pointers. Panics stop at [`guard`].

#![allow(unsafe_code, reason = "this is the boundary to CPython's C interface")]

use super::arguments::{Fail, Held, Incoming, Misfit, signature};
use super::convert::number;
use super::dispatch::{Noted, on as dispatch_on};
use super::object::{PyTensor, is_tensor, tensor_ref};
use super::results::{named_tuple, to_python};
use super::types::type_name;
use super::watch::{self, Shown, Style};
use crate::ops::args::{Arg, Args};
use crate::ops::op::{Op, Ret};
use crate::ops::schema::Returns;
use crate::ops::{Call, dispatch, table};
use crate::{Dims, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

/// The overloads of one public name in one form.
pub struct Group {
    /// The name in messages: `add`, `add_`.
    pub name: String,
    /// `Tensor.add`, `torchlike.linalg.inv`.
    pub full_name: String,
    pub(super) method: bool,
    pub(super) in_place: bool,
    pub(super) overloads: Vec<Overload>,
    /// The Python object: what handlers of overrides receive.
    function: OnceLock<Py<PyAny>>,
}

impl Group {
    /// The group of one row alone.
    pub(super) fn of_row(py: Python<'_>, op: &'static Op, in_place: bool) -> Self {
        Self {
            name: op.public_name().to_owned(),
            full_name: format!("torchlike.{}", op.path()),
            method: false,
            in_place,
            overloads: vec![Overload::new(py, op, !in_place)],
            function: OnceLock::new(),
        }
    }
}

pub(super) struct Overload {
    pub(super) op: &'static Op,
    /// Interned keyword of each parameter, in schema order.
    pub(super) names: Vec<Py<PyString>>,
    pub(super) out: bool,
    pub(super) requires_grad: Option<usize>,
}

impl Overload {
    fn new(py: Python<'_>, op: &'static Op, out: bool) -> Self {
        let intern = |s: &str| PyString::intern(py, s).unbind();
        Self {
            op,
            names: op.schema.params.iter().map(|p| intern(p.name)).collect(),
            out: out && op.has(crate::ops::op::O),
            requires_grad: op.schema.position("requires_grad"),
        }
    }
}

static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();
pub(super) static OUT: OnceLock<Py<PyString>> = OnceLock::new();

/// Elements above which a call lets other Python threads run.
const RELEASE: i64 = 1 << 15;

/// Runs `f`, turning a panic into an exception.
pub(super) fn guard(f: impl FnOnce() -> PyResult<*mut ffi::PyObject>) -> *mut ffi::PyObject {
    let result = catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| cause.downcast_ref::<String>().cloned());
        Err(PyRuntimeError::new_err(format!(
            "internal error in torchlike: {}",
            text.unwrap_or_default()
        )))
    });
    result.unwrap_or_else(|e| {
        // SAFETY: entries are only called by the interpreter, which holds the lock.
        e.restore(unsafe { Python::assume_attached() });
        std::ptr::null_mut()
    })
}

pub(super) type FastCall = unsafe extern "C" fn(
    *mut ffi::PyObject,
    *const *mut ffi::PyObject,
    isize,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// The C function of group `N`. Every group needs one of its own: a method descriptor passes nothing but `self`.
unsafe extern "C" fn entry<const N: usize>(
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: isize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: as the interpreter promises.
    unsafe { enter(N, slf, args, nargs, kwnames) }
}

/// A call of group `n`: one body for all entries, which would be megabytes otherwise.
#[inline(never)]
unsafe extern "C" fn enter(
    n: usize,
    slf: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    nargs: isize,
    kwnames: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guard(|| {
        // SAFETY: called by the interpreter with the lock held and arguments that live for the whole call.
        let py = unsafe { Python::assume_attached() };
        let Some(group) = GROUPS.get().and_then(|g| g.get(n)) else {
            return Err(PyRuntimeError::new_err("torchlike is not initialised"));
        };
        // SAFETY: as above; `args` holds nargs positional values, then one for each keyword.
        let call = unsafe { Incoming::new(py, group, slf, args, nargs as usize, kwnames) };
        call.run(group).map(|o| o.into_ptr())
    })
}

macro_rules! entries {
    (@16 $b:expr) => { [entry::<{$b}>, entry::<{$b+1}>, entry::<{$b+2}>, entry::<{$b+3}>, entry::<{$b+4}>, entry::<{$b+5}>, entry::<{$b+6}>, entry::<{$b+7}>,
        entry::<{$b+8}>, entry::<{$b+9}>, entry::<{$b+10}>, entry::<{$b+11}>, entry::<{$b+12}>, entry::<{$b+13}>, entry::<{$b+14}>, entry::<{$b+15}>] };
    (@256 $b:expr) => { [entries!(@16 $b), entries!(@16 $b+16), entries!(@16 $b+32), entries!(@16 $b+48), entries!(@16 $b+64), entries!(@16 $b+80),
        entries!(@16 $b+96), entries!(@16 $b+112), entries!(@16 $b+128), entries!(@16 $b+144), entries!(@16 $b+160), entries!(@16 $b+176),
        entries!(@16 $b+192), entries!(@16 $b+208), entries!(@16 $b+224), entries!(@16 $b+240)] };
}

/// More groups than this do not fit; `register` reports it.
const MAX_GROUPS: usize = 2560;
static ENTRIES: [[[FastCall; 16]; 16]; 10] = [
    entries!(@256 0),
    entries!(@256 256),
    entries!(@256 512),
    entries!(@256 768),
    entries!(@256 1024),
    entries!(@256 1280),
    entries!(@256 1536),
    entries!(@256 1792),
    entries!(@256 2048),
    entries!(@256 2304),
];

impl<'py> Incoming<'py> {
    pub(super) fn run(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        if watch::watched(self.objects()) {
            return self.watched(group);
        }
        self.unwatched(group)
    }

    fn unwatched(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        let mut misfits: SmallVec<[Misfit; 2]> = SmallVec::new();
        for overload in &group.overloads {
            let held = Held::default();
            match self.parse(group, overload, &held) {
                Ok((args, out)) => return self.call(group, overload, args, out),
                Err(Fail::Error(e)) => return Err(e),
                Err(Fail::Misfit(m)) => misfits.push(m),
            }
        }
        Err(self.refusal(group, misfits))
    }

    /// Lets a mode or an argument answer; tensors of a class that does not override only keep it.
    #[cold]
    fn watched(&self, group: &Group) -> PyResult<Bound<'py, PyAny>> {
        let asked = watch::asked(self.objects(), Style::Parsed);
        if let Some(class) = watch::kept_class(&asked) {
            return watch::keep(self.unwatched(group)?, &class);
        }
        if asked.is_empty() && watch::state() & watch::MODES == 0 {
            return self.unwatched(group);
        }
        let py = self.py;
        let Some(function) = group.function.get() else {
            return self.unwatched(group);
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
        let mut misfits: SmallVec<[Misfit; 2]> = SmallVec::new();
        for overload in &group.overloads {
            let held = Held::lenient();
            match self.parse(group, overload, &held) {
                Ok(_) => return Ok(()),
                Err(Fail::Error(e)) => return Err(e),
                Err(Fail::Misfit(m)) => misfits.push(m),
            }
        }
        Err(self.refusal(group, misfits))
    }

    fn call(
        &self,
        group: &Group,
        overload: &Overload,
        args: Args<'_>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let _noted = dispatch_on().then(|| Noted::of(self.objects()));
        if group.in_place {
            let target = &self.positional[0];
            if let Ret::Become(made) = released(py, &args, |a| dispatch::call(Call::in_place(a)?))?
            {
                PyTensor::of(target)?.set(made);
            }
            return Ok(target.clone());
        }
        if let Some(out) = out {
            return self.call_out(overload, args, out);
        }
        let mut result = released(py, &args, |a| dispatch::call(Call::new(a)))?;
        if let Ret::Same(i) = result {
            return Ok(self.given(overload, i));
        }
        if let Some(i) = overload.requires_grad
            && args.bool(i)
            && let Ret::One(t) = result
        {
            result = Ret::One(super::gradient::require_grad(t)?);
        }
        to_python(py, result, overload.op)
    }

    /// The object that was given for a parameter.
    fn given(&self, overload: &Overload, i: usize) -> Bound<'py, PyAny> {
        self.positional
            .get(i)
            .or_else(|| self.keyword(&overload.names[i]))
            .or_else(|| self.keywords.first().map(|k| &k.1))
            .map_or_else(|| self.py.None().into_bound(self.py), Clone::clone)
    }

    fn call_out(
        &self,
        overload: &Overload,
        mut args: Args<'_>,
        out: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let objects: Vec<Bound<'py, PyAny>> = match tensor_ref(out) {
            Some(_) => vec![out.clone()],
            None => {
                let mut list = Vec::new();
                super::convert::each(out, |o| {
                    list.push(o.clone());
                    Ok(())
                })
                .map_err(|_| {
                    PyTypeError::new_err(format!(
                        "{}(): argument 'out' must be Tensor, not {}",
                        overload.op.public_name(),
                        type_name(out)
                    ))
                })?;
                list
            }
        };
        let mut tensors = objects
            .iter()
            .map(|o| super::convert::tensor_arg(o, overload.op.public_name(), "out").cloned())
            .collect::<PyResult<Vec<_>>>()?;
        let shapes: Vec<Dims> = tensors.iter().map(|t| t.shape().clone()).collect();
        if let (Some(_), [only]) = (overload.op.schema.position("layout"), tensors.as_slice()) {
            factory_out(overload.op, &mut args, only)?;
        }
        dispatch::call(Call::out(&args, &mut tensors))?;
        for ((o, t), before) in objects.iter().zip(tensors).zip(shapes) {
            if *t.shape() != before && before.iter().product::<i64>() != 0 {
                resize_warning(self.py, &before, t.shape())?;
            }
            PyTensor::of(o)?.set(t);
        }
        match &overload.op.schema.returns {
            Returns::Tuple(names) if objects.len() > 1 => {
                named_tuple(self.py, overload.op, names, objects)
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
            None => args.values[i] = Arg::Device(out.device()),
            Some(d) if d.kind == out.device().kind => {}
            Some(d) => {
                let (d, of_out) = (d.kind.name(), out.device().kind.name());
                return Err(PyRuntimeError::new_err(format!(
                    "device type {d} does not match device type of out parameter ({of_out})"
                )));
            }
        }
    }
    Ok(())
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
) -> PyResult<R> {
    let mut work = 0i64;
    args.for_each_tensor(|_, t| {
        work = work.saturating_add(if t.is_meta() { 0 } else { t.numel() })
    });
    if args.values.first().is_some_and(
        |v| matches!(v, Arg::Ints(d) if d.iter().fold(1i64, |n, d| n.saturating_mul(*d)) > RELEASE),
    ) {
        work = RELEASE + 1;
    }
    if work > RELEASE {
        let owned = args.to_owned();
        return Ok(py.detach(|| f(&owned.borrow()))?);
    }
    Ok(f(args)?)
}

/// Makes all groups and puts them into the modules and onto the tensor class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    use crate::ops::op::{F, I, J, M};
    let py = m.py();
    // (module path, name, method, in place) -> ops in table order
    let mut gathered: BTreeMap<(String, String, bool, bool), Vec<&'static Op>> = BTreeMap::new();
    let mut add = |path: &str, op: &'static Op| {
        let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
        if op.has(F) {
            gathered
                .entry((module.into(), name.into(), false, false))
                .or_default()
                .push(op);
        }
        // Other names below the module are those of functions alone.
        let methods = path == op.path() || module.is_empty();
        if op.has(M) && methods {
            gathered
                .entry((String::new(), name.into(), true, false))
                .or_default()
                .push(op);
        }
        if op.has(I) && methods {
            gathered
                .entry((String::new(), format!("{name}_"), true, true))
                .or_default()
                .push(op);
        }
        if op.has(J) && methods {
            gathered
                .entry((module.into(), format!("{name}_"), false, true))
                .or_default()
                .push(op);
        }
    };
    for op in table() {
        add(op.path(), op);
    }
    for (alias, name) in crate::ops::ALIASES {
        for op in table().iter().filter(|op| op.path() == *name) {
            add(alias, op);
        }
    }
    let mut groups = Vec::new();
    let mut places = Vec::new();
    for ((module, name, method, in_place), ops) in gathered {
        let overloads = ops
            .iter()
            .map(|op| Overload::new(py, op, !in_place && !method))
            .collect();
        let full_name = match (method, module.as_str()) {
            (true, _) => format!("Tensor.{name}"),
            (false, "") => format!("torchlike.{name}"),
            (false, m) => format!("torchlike.{m}.{name}"),
        };
        let doc = document(&name, &ops, method);
        groups.push(Group {
            name: name.clone(),
            full_name,
            method,
            in_place,
            overloads,
            function: OnceLock::new(),
        });
        places.push((module, name, method, doc));
    }
    if groups.len() > MAX_GROUPS {
        return Err(PyRuntimeError::new_err(format!(
            "{} op names do not fit the {MAX_GROUPS} entries of the binding",
            groups.len()
        )));
    }
    let _ = GROUPS.set(groups);
    let _ = OUT.set(PyString::intern(py, "out").unbind());
    let class = py.get_type::<PyTensor>();
    let mut modules: BTreeMap<String, Bound<'_, PyModule>> = BTreeMap::new();
    for (i, (module, name, method, doc)) in places.into_iter().enumerate() {
        let def = Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: CString::new(long_name(&module, &name))
                .unwrap_or_default()
                .into_raw(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFastWithKeywords: ENTRIES[i / 256][i / 16 % 16][i % 16],
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: CString::new(doc).unwrap_or_default().into_raw(),
        }));
        if method {
            // SAFETY: the definition is leaked, so it outlives the descriptor.
            let descriptor = unsafe {
                Bound::from_owned_ptr_or_err(
                    py,
                    ffi::PyDescr_NewMethod(class.as_ptr().cast(), def),
                )?
            };
            // Operators of Python are type slots, which are faster than methods of these names.
            if !(name.starts_with("__") && class.getattr("__dict__")?.contains(&name)?) {
                class.setattr(name, &descriptor)?;
            }
            set_function(i, descriptor);
        } else {
            let holder = match modules.entry(module.clone()) {
                std::collections::btree_map::Entry::Occupied(e) => e.into_mut(),
                std::collections::btree_map::Entry::Vacant(e) => {
                    let public = if module.is_empty() {
                        "torchlike".to_owned()
                    } else {
                        format!("torchlike.{module}")
                    };
                    e.insert(PyModule::new(py, &public)?)
                }
            };
            let home = holder.name()?;
            // SAFETY: as above.
            let function = unsafe {
                Bound::from_owned_ptr_or_err(
                    py,
                    ffi::PyCFunction_NewEx(def, std::ptr::null_mut(), home.as_ptr()),
                )?
            };
            holder.setattr(name, &function)?;
            set_function(i, function);
        }
    }
    for (path, module) in modules {
        let name = if path.is_empty() {
            "_root".to_owned()
        } else {
            format!("_{}", path.replace("nn.functional", "nn").replace('.', "_"))
        };
        m.add(name.as_str(), module)?;
    }
    Ok(())
}

fn set_function(group: usize, function: Bound<'_, PyAny>) {
    if let Some(g) = GROUPS.get().and_then(|g| g.get(group)) {
        let _ = g.function.set(function.unbind());
    }
}

/// What a function calls itself: `linalg_inv`, as PyTorch's functions of these modules do.
fn long_name(module: &str, name: &str) -> String {
    match module {
        "linalg" | "fft" | "special" => format!("{module}_{name}"),
        _ => name.to_owned(),
    }
}

/// Docstring: a signature line for `inspect` where there is one overload, then the sentence.
fn document(name: &str, ops: &[&'static Op], method: bool) -> String {
    let doc = ops.first().map_or("", |op| op.def.doc);
    let lines: Vec<String> = ops
        .iter()
        .map(|op| {
            format!(
                "{name}({})",
                signature(op, method, op.has(crate::ops::op::O))
            )
        })
        .collect();
    format!("{}\n\n{doc}", lines.join("\n"))
}

fn borrowed<'a>(o: &'a Bound<'_, PyAny>) -> Arg<'a> {
    tensor_ref(o).map_or(Arg::None, Arg::Tensor)
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
    let _noted = dispatch_on().then(|| Noted::of([slf, other]));
    // Numbers are read before tensors are borrowed: reading one may run Python.
    let mut args = match (is_tensor(first), is_tensor(second)) {
        (true, true) => Args::of_two(op, borrowed(first), borrowed(second)),
        (true, false) => match number(second) {
            Some(n) => Args::of_two(op, borrowed(first), Arg::Scalar(n)),
            None => return Ok(py.NotImplemented().into_bound(py)),
        },
        (false, true) => match number(first) {
            Some(n) => Args::of_two(op, Arg::Scalar(n), borrowed(second)),
            None => return Ok(py.NotImplemented().into_bound(py)),
        },
        (false, false) => return Ok(py.NotImplemented().into_bound(py)),
    };
    args.fill()?;
    if in_place {
        released(py, &args, |a| dispatch::call(Call::in_place(a)?))?;
        return Ok(slf.clone());
    }
    let result = released(py, &args, |a| dispatch::call(Call::new(a)))?;
    to_python(py, result, op)
}
