//! The names of the binding, derived from the op table: a group for each public name and form, and a C function for each group.

#![allow(unsafe_code, reason = "this is the boundary to CPython's C interface")]

use super::arguments::Incoming;
use super::call::guard;
use super::class::tensor_class;
use super::messages::{kind_name, splits_numbers};
use super::object::PyTensor;
use crate::ops::args::{Arg, Values};
use crate::ops::op::{F, I, J, M, O, Op};
use crate::ops::schema::{Kind, MEAN};
use crate::ops::table;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::CString;
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
    pub(super) function: OnceLock<Py<PyAny>>,
}

impl Group {
    /// What messages call it: PyTorch's functions of some modules have these in front of their own name.
    pub(super) fn called(&self) -> Cow<'_, str> {
        let path = self.full_name.strip_prefix("torchlike.");
        match path.and_then(|p| p.split_once('.')) {
            Some((module @ ("linalg" | "fft" | "special"), name)) => {
                Cow::Owned(format!("{module}_{name}"))
            }
            _ => Cow::Borrowed(&self.name),
        }
    }

    /// True for a method without arguments.
    pub(super) fn takes_nothing(&self) -> bool {
        self.method
            && matches!(self.overloads.as_slice(), [only] if only.op.schema.params.len() == 1)
    }

    /// The group of one row alone.
    pub(super) fn of_row(py: Python<'_>, op: &'static Op, in_place: bool) -> Self {
        Self {
            name: op.public_name().to_owned(),
            full_name: format!("torchlike.{}", op.path()),
            method: false,
            in_place,
            overloads: vec![Overload::new(py, op, false, !in_place, "self")],
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
    /// The list parameter whose items may be given one by one.
    pub(super) varargs: Option<usize>,
    /// The reduction that schemas call the mean, and functions of Python none: PyTorch reads their defaults as numbers.
    mean: Option<usize>,
}

pub(super) static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();
pub(super) static OUT: OnceLock<Py<PyString>> = OnceLock::new();

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
pub(super) const MAX_GROUPS: usize = 2560;
pub(super) static ENTRIES: [[[FastCall; 16]; 16]; 10] = [
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

/// A public name in one form: the module's path (empty for methods), the name, whether it is a method, and in place.
type Key = (String, String, bool, bool);

/// The operators of each name and form, in table order.
fn gather() -> BTreeMap<Key, Vec<&'static Op>> {
    let mut gathered: BTreeMap<Key, Vec<&'static Op>> = BTreeMap::new();
    let aliases = crate::ops::ALIASES.iter().flat_map(|(alias, name)| {
        let rows = table().iter().filter(move |op| op.path() == *name);
        rows.map(move |op| (*alias, op))
    });
    for (path, op) in table().iter().map(|op| (op.path(), op)).chain(aliases) {
        let (module, name) = path.rsplit_once('.').unwrap_or(("", path));
        let in_place = format!("{name}_");
        // Other names below the module are those of functions alone.
        let methods = path == op.path() || module.is_empty();
        for (form, wanted, module, name, method, changes) in [
            (F, true, module, name, false, false),
            (M, methods, "", name, true, false),
            (I, methods, "", &*in_place, true, true),
            (J, methods, module, &*in_place, false, true),
        ] {
            if wanted && op.has(form) {
                let key = (module.into(), name.into(), method, changes);
                gathered.entry(key).or_default().push(op);
            }
        }
    }
    gathered
}

impl Overload {
    /// `first` is the keyword of the parameter that schemas call `self`.
    fn new(py: Python<'_>, op: &'static Op, method: bool, takes_out: bool, first: &str) -> Self {
        let schema = &op.schema;
        let keyword = |name: &'static str| match name {
            "self" => PyString::intern(py, first).unbind(),
            name => PyString::intern(py, name).unbind(),
        };
        Self {
            op,
            names: schema.params.iter().map(|p| keyword(p.name)).collect(),
            out: op.has(O) && takes_out,
            requires_grad: schema.position("requires_grad"),
            varargs: (schema.params.iter().take(schema.positional)).position(|p| match p.kind {
                // Sizes are given one by one only where they are all that is given by position, as in PyTorch.
                Kind::VarInts => schema.positional == 1 + usize::from(method),
                Kind::VarTensors => true,
                _ => false,
            }),
            mean: (schema.params.iter()).position(|p| p.default_text == MEAN),
        }
    }

    /// Adds the defaults of functions of Python; bits of the places of those without a default.
    #[inline]
    pub(super) fn fill_gaps(&self, values: &mut Values<'_>) -> u64 {
        let filled = values.len();
        let gaps = self.op.schema.fill_gaps(values);
        if let Some(at) = self.mean.filter(|&at| at >= filled) {
            values[at] = Arg::Int(0);
        }
        gaps
    }

    /// The default of one parameter.
    pub(super) fn default(&self, at: usize) -> Option<Arg<'static>> {
        match self.mean == Some(at) {
            true => Some(Arg::Int(0)),
            false => self.op.schema.params[at].default.clone(),
        }
    }
}

/// What callers of a function call the parameter that schemas call `self`: only numbers have that name.
fn first_keyword(name: &str, op: &Op) -> &'static str {
    let at = op.schema.position("self");
    match at.map(|at| op.schema.params[at].kind) {
        Some(Kind::Operand) if splits_numbers(name) => "self",
        Some(Kind::Tensor | Kind::Operand | Kind::Tensors | Kind::VarTensors) => "input",
        _ => "self",
    }
}

/// Makes all groups and puts them into the modules and onto the tensor class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    let gathered = gather();
    if gathered.len() > MAX_GROUPS {
        return Err(PyRuntimeError::new_err(format!(
            "{} op names do not fit the {MAX_GROUPS} entries of the binding",
            gathered.len()
        )));
    }
    let groups = gathered
        .iter()
        .map(|((module, name, method, in_place), ops)| {
            let overloads = ops.iter();
            Group {
                name: name.clone(),
                full_name: match (method, module.as_str()) {
                    (true, _) => format!("Tensor.{name}"),
                    (false, "") => format!("torchlike.{name}"),
                    (false, m) => format!("torchlike.{m}.{name}"),
                },
                method: *method,
                in_place: *in_place,
                overloads: overloads
                    .map(|op| {
                        let first = if *method {
                            "self"
                        } else {
                            first_keyword(name, op)
                        };
                        Overload::new(py, op, *method, !in_place && !method, first)
                    })
                    .collect(),
                function: OnceLock::new(),
            }
        });
    let groups = GROUPS.get_or_init(|| groups.collect());
    let _ = OUT.set(PyString::intern(py, "out").unbind());
    let mut modules: BTreeMap<&str, Bound<'_, PyModule>> = BTreeMap::new();
    let root = root_class(py)?;
    m.add("_VariableFunctionsClass", &root)?;
    for (i, ((module, name, method, _), ops)) in gathered.iter().enumerate() {
        let definition = definition(i, module, name, document(module, name, ops, *method))?;
        let function = if *method {
            add_method(py, name, definition)?
        } else {
            if !modules.contains_key(module.as_str()) {
                modules.insert(module, PyModule::new(py, &public_path(module))?);
            }
            let owner = module.is_empty().then_some(&root);
            add_function(&modules[module.as_str()], owner, name, definition)?
        };
        let _ = groups[i].function.set(function.unbind());
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

/// The class that owns the functions of the root, under PyTorch's name: theirs are static methods, and their `repr` says so.
fn root_class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let body = pyo3::types::PyDict::new(py);
    body.set_item("__module__", "torchlike._C")?;
    py.get_type::<pyo3::types::PyType>()
        .call1(("_VariableFunctionsClass", (), body))
}

fn public_path(module: &str) -> String {
    if module.is_empty() {
        "torchlike".to_owned()
    } else {
        format!("torchlike.{module}")
    }
}

/// The definition of group `i`'s C function, which lives as long as the process.
fn definition(
    i: usize,
    module: &str,
    name: &str,
    doc: String,
) -> PyResult<&'static mut ffi::PyMethodDef> {
    // What a function calls itself: `linalg_inv`, as PyTorch's functions of these modules do.
    let own_name = match module {
        "linalg" | "fft" | "special" => format!("{module}_{name}"),
        _ => name.to_owned(),
    };
    Ok(Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: CString::new(own_name)?.into_raw(),
        ml_meth: ffi::PyMethodDefPointer {
            PyCFunctionFastWithKeywords: ENTRIES[i / 256][i / 16 % 16][i % 16],
        },
        ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
        ml_doc: CString::new(doc)?.into_raw(),
    })))
}

fn add_method<'py>(
    py: Python<'py>,
    name: &str,
    definition: &'static mut ffi::PyMethodDef,
) -> PyResult<Bound<'py, PyAny>> {
    let (class, slots) = (py.get_type::<PyTensor>(), tensor_class(py)?);
    // SAFETY: the definition lives forever, so it outlives the descriptor.
    let descriptor = unsafe {
        let made = ffi::PyDescr_NewMethod(class.as_ptr().cast(), definition);
        Bound::from_owned_ptr_or_err(py, made)?
    };
    // Operators of Python are type slots, which are faster than methods of these names.
    if !(name.starts_with("__") && slots.getattr("__dict__")?.contains(name)?) {
        class.setattr(name, &descriptor)?;
    }
    Ok(descriptor)
}

/// A function of a module; one of the root is a static method of `owner` too, as which `repr` and `pickle` know it.
fn add_function<'py>(
    module: &Bound<'py, PyModule>,
    owner: Option<&Bound<'py, PyAny>>,
    name: &str,
    definition: &'static mut ffi::PyMethodDef,
) -> PyResult<Bound<'py, PyAny>> {
    let home = module.name()?;
    let of = owner.map_or(std::ptr::null_mut(), |class| {
        definition.ml_flags |= ffi::METH_STATIC;
        class.as_ptr()
    });
    // SAFETY: as above; the function keeps its owner alive.
    let function = unsafe {
        let made = ffi::PyCFunction_NewEx(definition, of, home.as_ptr());
        Bound::from_owned_ptr_or_err(module.py(), made)?
    };
    module.setattr(name, &function)?;
    if let Some(class) = owner {
        class.setattr(name, &function)?;
    }
    Ok(function)
}

/// Docstring: a signature line an overload, then the sentence. What is a function of Python in PyTorch has one for `inspect` before
/// it, which `__doc__` does not show.
fn document(module: &str, name: &str, ops: &[&'static Op], method: bool) -> String {
    let doc = ops.first().map_or("", |op| op.def.doc);
    let lines: Vec<String> = ops
        .iter()
        .map(|op| format!("{name}({})", signature(op, method)))
        .collect();
    let told = match ops {
        [op] if module == "nn.functional" => format!("{name}({})\n--\n\n", plain_signature(op)),
        _ => String::new(),
    };
    format!("{told}{}\n\n{doc}", lines.join("\n"))
}

/// The arguments as `inspect` reads them.
fn plain_signature(op: &Op) -> String {
    let mut parts = Vec::new();
    for (i, p) in op.schema.params.iter().enumerate() {
        if p.kwonly && !op.schema.params[..i].iter().any(|q| q.kwonly) {
            parts.push("*".to_owned());
        }
        let name = if p.name == "self" { "input" } else { p.name };
        parts.push(match p.default_text {
            "" => name.to_owned(),
            MEAN => format!("{name}=0"),
            text => format!("{name}={text}"),
        });
    }
    parts.join(", ")
}

/// The arguments as PyTorch's messages list them.
fn signature(op: &Op, method: bool) -> String {
    let mut parts = Vec::new();
    let mut star = false;
    for p in op.schema.params.iter().skip(usize::from(method)) {
        if p.kwonly && !star {
            star = true;
            parts.push("*".to_owned());
        }
        let name = if p.name == "self" { "input" } else { p.name };
        let default = match p.default_text {
            "" => String::new(),
            text => format!(" = {text}"),
        };
        parts.push(format!("{} {name}{default}", kind_name(p.kind)));
    }
    if op.has(O) {
        if !star {
            parts.push("*".into());
        }
        parts.push("Tensor out = None".into());
    }
    parts.join(", ")
}
