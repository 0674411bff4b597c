//! The graph as Python sees it: nodes, their hooks, and the walk back.

use super::class;
use super::object::{tensor_ref, wrap};
use super::results;
use crate::layers::autograd::value::Val;
use crate::layers::autograd::{engine, recorded};
use crate::ops::Arg;
use crate::tensor::link::{Kind, lock};
use crate::tensor::{Grads, Leaf, Link, Meta, Place, WeakPlace, When, fully};
use crate::{Scalar, Tensor};
use pyo3::exceptions::{PyAttributeError, PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyList, PyTuple, PyType, PyWeakrefMethods, PyWeakrefReference};
use std::any::Any;
use std::sync::OnceLock;

/// `torchlike.autograd.graph.Node`: a place in the graph. Instances are of classes named as the place is.
#[pyclass(
    name = "Node",
    module = "torchlike.autograd.graph",
    subclass,
    weakref,
    dict,
    frozen
)]
pub struct PyNode {
    /// The place that the object keeps alive. The garbage collector may look for it before it is written, in memory that is
    /// zero, which is None.
    held: Option<Place>,
    /// The place that keeps the object alive: that of a function of the user's, once it was called.
    owner: OnceLock<WeakPlace>,
}

/// What a place keeps of its object.
struct Face {
    object: Py<PyAny>,
    metadata: Option<Py<PyDict>>,
}

fn face_of<R>(link: &Link, f: impl FnOnce(&mut Option<Face>) -> R) -> R {
    // Taken out while it is used, as that may run Python.
    let rare = link.make_rare();
    let taken = lock(&rare.face).take();
    let mut face = taken.and_then(|b| b.downcast::<Face>().ok()).map(|b| *b);
    let result = f(&mut face);
    if let Some(face) = face {
        *lock(&rare.face) = Some(Box::new(face));
    }
    result
}

/// The name of a place.
fn name_of(link: &Link) -> String {
    match link.node() {
        None => "AccumulateGrad".to_owned(),
        Some(node) => node.body().name().into_owned(),
    }
}

/// The class of nodes of a name, made when it is first asked for.
fn class_of<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static CLASSES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let classes = CLASSES
        .get_or_init(py, || PyDict::new(py).unbind())
        .bind(py);
    if let Some(class) = classes.get_item(name)? {
        return Ok(class);
    }
    let dict = PyDict::new(py);
    dict.set_item("__slots__", PyTuple::empty(py))?;
    dict.set_item("__module__", "builtins")?;
    let bases = PyTuple::new(py, [py.get_type::<PyNode>()])?;
    let class = py.get_type::<PyType>().call1((name, bases, dict))?;
    classes.set_item(name, &class)?;
    Ok(class)
}

/// The object of a place: the same one as long as it lives.
pub fn object<'py>(py: Python<'py>, link: &Place) -> PyResult<Bound<'py, PyAny>> {
    if let Some(owner) = link
        .node()
        .and_then(|n| super::function::owner(py, n.body()))
    {
        return Ok(owner);
    }
    let known = face_of(link, |face| {
        let weak = face.as_ref()?.object.bind(py).clone();
        weak.cast_into::<PyWeakrefReference>().ok()?.upgrade()
    });
    if let Some(object) = known {
        return Ok(object);
    }
    let seed = PyNode {
        held: Some(link.clone()),
        owner: OnceLock::new(),
    };
    let made = class_of(py, &name_of(link))?.call1((Bound::new(py, seed)?,))?;
    let weak = PyWeakrefReference::new(&made)?.into_any().unbind();
    face_of(link, |face| {
        let metadata = face.take().and_then(|f| f.metadata);
        *face = Some(Face {
            object: weak,
            metadata,
        });
    });
    Ok(made)
}

impl PyNode {
    pub(super) fn link(&self) -> PyResult<Place> {
        let known = self.held.clone();
        known
            .or_else(|| self.owner.get().and_then(WeakPlace::upgrade))
            .ok_or_else(|| PyRuntimeError::new_err("the graph of this node is gone"))
    }

    /// Of a function of the user's, once it has a place.
    pub(super) fn place(&self, link: &Place) {
        if self.held.is_none() {
            let _ = self.owner.set(Place::weak(link));
        }
    }
}

#[pymethods]
impl PyNode {
    #[new]
    #[pyo3(signature = (seed=None))]
    fn new(seed: Option<&Bound<'_, PyNode>>) -> PyResult<Self> {
        Ok(Self {
            held: seed.map(|seed| seed.get().link()).transpose()?,
            owner: OnceLock::new(),
        })
    }

    /// The name: `MulBackward0`.
    fn name(slf: &Bound<'_, Self>) -> PyResult<String> {
        match &slf.get().held {
            Some(link) => Ok(fully(&name_of(link)).into_owned()),
            None => Ok(slf.get_type().name()?.to_string()),
        }
    }

    /// Always true: nodes are made where gradients are wanted.
    #[getter]
    fn requires_grad(&self) -> bool {
        true
    }

    /// Where gradients go from here: `(node, which of its results)`, one an input.
    #[getter]
    fn next_functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let link = self.link()?;
        let edges = link.node().map_or(&[][..], |n| n.edges());
        let each = edges.iter().map(|e| match e {
            Some(e) => Ok((Some(object(py, &e.to)?), e.nr)),
            None => Ok((None, 0)),
        });
        PyTuple::new(py, each.collect::<PyResult<Vec<_>>>()?)
    }

    /// What the node makes of gradients of its results: one gradient, or several.
    ///
    /// Raises: TypeError for another number of gradients.
    #[pyo3(signature = (*grads))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        grads: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let link = self.link()?;
        let wanted = link.node().map_or(1, |n| n.outs().len());
        if grads.len() != wanted {
            return Err(PyTypeError::new_err(format!(
                "expected {wanted} arguments, got {} instead",
                grads.len()
            )));
        }
        let mut given: Grads = grads
            .iter()
            .map(|g| match tensor_ref(&g) {
                Some(t) => Ok(Some(t.clone())),
                None if g.is_none() => Ok(None),
                None => Err(PyTypeError::new_err(format!(
                    "expected Variable or None (got {})",
                    super::types::type_name(&g)
                ))),
            })
            .collect::<PyResult<_>>()?;
        let mut made = py.detach(|| engine::call(&link, &mut given))?;
        if made.len() == 1 {
            return optional(py, made.swap_remove(0));
        }
        let items = made.into_iter().map(|g| optional(py, g));
        Ok(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }

    /// A dictionary for whoever wants to note something.
    #[getter]
    fn metadata<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        let py = slf.py();
        let link = slf.get().link()?;
        let found = face_of(&link, |f| {
            Some(f.as_ref()?.metadata.as_ref()?.clone_ref(py))
        });
        if let Some(found) = found {
            return Ok(found.into_bound(py));
        }
        let made = PyDict::new(py);
        face_of(&link, |face| match face {
            Some(face) => face.metadata = Some(made.clone().unbind()),
            None => {
                *face = Some(Face {
                    object: py.None(),
                    metadata: Some(made.clone().unbind()),
                });
            }
        });
        Ok(made)
    }

    /// The tensor whose gradient gathers here.
    #[getter]
    fn variable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let link = self.link()?;
        match &link.kind {
            Kind::Leaf(leaf) => variable_of(py, &link, leaf),
            _ => Err(PyAttributeError::new_err(format!(
                "'{}' object has no attribute 'variable'",
                name_of(&link)
            ))),
        }
    }

    /// Its number: nodes made later have larger ones.
    fn _sequence_nr(&self) -> PyResult<u64> {
        Ok(self.link()?.node().map_or(u64::MAX, |n| n.seq()))
    }

    #[getter]
    fn _input_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let link = self.link()?;
        let of_leaf: Vec<Meta>;
        let metas = match link.node() {
            Some(n) => n.outs(),
            None => {
                of_leaf = link
                    .as_leaf()
                    .iter()
                    .map(|l| Meta::of(&l.variable()))
                    .collect();
                &of_leaf
            }
        };
        let class = py.import("types")?.getattr("SimpleNamespace")?;
        let list = PyList::empty(py);
        for m in metas {
            let kwargs = PyDict::new(py);
            kwargs.set_item("shape", super::sizes::size(py, &m.shape)?)?;
            kwargs.set_item("dtype", super::types::dtype(py, m.dtype)?)?;
            kwargs.set_item("device", super::types::device(py, m.device)?)?;
            list.append(class.call((), Some(&kwargs))?)?;
        }
        Ok(list)
    }

    /// The table of the hooks of a moment: before it runs, or after.
    fn _hooks<'py>(&self, py: Python<'py>, before: bool) -> PyResult<Bound<'py, PyAny>> {
        let when = if before { When::Before } else { When::After };
        super::grad_hooks::table(py, &self.link()?, when)
    }

    fn __getattr__<'py>(slf: &Bound<'py, Self>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let missing = || {
            PyAttributeError::new_err(format!(
                "'{}' object has no attribute '{name}'",
                slf.get_type()
                    .name()
                    .map_or_else(|_| String::new(), |n| n.to_string())
            ))
        };
        let raw = name.strip_prefix("_raw_saved_");
        let Some(wanted) = raw.or_else(|| name.strip_prefix("_saved_")) else {
            return Err(missing());
        };
        let link = slf.get().link()?;
        let recorded = link.node().and_then(recorded::of).ok_or_else(missing)?;
        if raw.is_some() {
            let kind = recorded.raw(wanted).ok_or_else(missing)?;
            return super::saved::of_node(slf.py(), &link, wanted, kind);
        }
        let value = recorded.saved(&link, wanted)?.ok_or_else(missing)?;
        match value {
            Val::Number(Scalar::Int(i)) if recorded.is_int(wanted) => {
                Ok((i as u64).into_pyobject(slf.py())?.into_any())
            }
            Val::Ints(d) if recorded.is_int(wanted) => {
                let items = d.iter().map(|i| *i as u64);
                Ok(PyTuple::new(slf.py(), items.collect::<Vec<_>>())?.into_any())
            }
            value => of_val(slf.py(), value),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.held {
            // What others hold as well is not this object's to show.
            Some(link) if Place::holders(link) == 1 => self::visit(link, &visit),
            _ => Ok(()),
        }
    }

    fn __clear__(&self) {
        if let Some(link) = &self.held
            && let Some(rare) = link.rare()
        {
            rare.forget_hooks();
        }
    }

    fn __dir__(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let py = slf.py();
        let mut names: Vec<String> = py
            .get_type::<pyo3::PyAny>()
            .call_method1("__dir__", (slf,))?
            .extract()?;
        if let Ok(link) = slf.get().link()
            && let Some(recorded) = link.node().and_then(recorded::of)
        {
            for name in recorded.names() {
                if recorded.raw(&name).is_some() {
                    names.push(format!("_raw_saved_{name}"));
                }
                names.push(format!("_saved_{name}"));
            }
        }
        Ok(names)
    }
}

/// The tensor whose gradient gathers at a leaf: the object that it is, if that lives.
pub(super) fn variable_of<'py>(
    py: Python<'py>,
    link: &Place,
    leaf: &Leaf,
) -> PyResult<Bound<'py, PyAny>> {
    match class::leaf_object(py, leaf) {
        Some(object) => Ok(object),
        None => wrap(py, leaf.variable().tracked(link.clone(), 0)),
    }
}

/// The object of a tensor: that which a leaf is, if it lives, or a new one.
pub(super) fn object_of(py: Python<'_>, t: Tensor) -> PyResult<Bound<'_, PyAny>> {
    let leaf = t.link().and_then(|l| l.as_leaf());
    // What a hook keeps in a leaf's place has its history, but is another tensor.
    let leaf = leaf.filter(|leaf| leaf.with_variable(|v| v.lies_as(&t)));
    match leaf.and_then(|leaf| class::leaf_object(py, leaf)) {
        Some(object) => Ok(object),
        None => wrap(py, t),
    }
}

/// A value of a formula as a Python object.
pub(super) fn of_val(py: Python<'_>, v: Val) -> PyResult<Bound<'_, PyAny>> {
    Ok(match v {
        Val::None | Val::Undefined(_) => py.None().into_bound(py),
        Val::Tensor(t) => object_of(py, t)?,
        Val::Tensors(list) => {
            let items = list.into_iter().map(|t| optional(py, t));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Val::Number(s) => results::scalar(py, s)?,
        Val::Ints(d) => PyTuple::new(py, d.iter())?.into_any(),
        Val::Lists(lists) => {
            let items = lists.iter().map(|d| PyTuple::new(py, d.iter()));
            PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        Val::Bools(b) => PyTuple::new(py, b)?.into_any(),
        Val::Word(w) => w.into_pyobject(py)?.into_any(),
        Val::Plain(Arg::DType(d)) => super::types::dtype(py, d)?.into_bound(py).into_any(),
        Val::Plain(Arg::Device(d)) => super::types::device(py, d)?.into_bound(py).into_any(),
        Val::Plain(_) => py.None().into_bound(py),
    })
}

pub(super) fn optional(py: Python<'_>, t: Option<Tensor>) -> PyResult<Bound<'_, PyAny>> {
    match t {
        Some(t) => wrap(py, t),
        None => Ok(py.None().into_bound(py)),
    }
}

/// Shows the garbage collector what a place holds that nobody else does.
pub(super) fn visit(link: &Link, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
    if let Some(node) = link.node() {
        let body: &dyn Any = node.body();
        if let Some(custom) = body.downcast_ref::<super::function::Custom>() {
            visit.call(&custom.ctx)?;
        }
    }
    super::grad_hooks::visit(link, visit)
}

/// Adds the class to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyNode>()
}
