//! Gradient flags and attributes.

use super::convert::tensor_arg;
use super::object::{PyTensor, tensor_ref, wrap};
use super::transforms;
use super::types::{self, PyDType};
use crate::layers::autograd::views;
use crate::parts::located;
use crate::tensor::Keeper;
use crate::tensor::Place;
use crate::{DType, Tensor, mode};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

/// A truth value, or the class of what was given in its place.
struct Flag(Result<bool, String>);

impl<'py> FromPyObject<'_, 'py> for Flag {
    type Error = PyErr;

    fn extract(o: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(o.extract().map_err(|_| types::type_name(&o))))
    }
}

/// Sets the gradient flag, if the dtype can have gradients.
pub fn require_grad(t: Tensor) -> PyResult<Tensor> {
    if !t.dtype().is_float() && !t.dtype().is_complex() {
        return Err(PyRuntimeError::new_err(
            "Only Tensors of floating point and complex dtype can require gradients",
        ));
    }
    Ok(t.with_requires_grad(true))
}

#[cold]
fn warn_of_no_leaf(py: Python<'_>) -> PyResult<()> {
    let text = "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be \
        populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, use \
        .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access the leaf \
        Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more information.";
    py.import("warnings")?.call_method1("warn", (text,))?;
    Ok(())
}

fn check_grad(t: &Tensor, g: &Tensor) -> PyResult<()> {
    let (here, there) = (located(t), located(g));
    if here.kind != there.kind {
        return Err(PyRuntimeError::new_err(format!(
            "attempting to assign a gradient with device type '{}' to a tensor with device type '{}'. Please ensure that the gradient and the tensor are on the same device",
            there.kind.name(),
            here.kind.name()
        )));
    }
    let wanted = grad_dtype(t);
    if let Some(wanted) = wanted.filter(|d| *d != g.dtype()) {
        return Err(PyRuntimeError::new_err(format!(
            "attempting to assign a gradient with dtype '{}' to a tensor with grad_dtype '{}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any dtype. Set grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break downstream systems that assume they match.",
            g.dtype().cpp_name(),
            wanted.scalar_type()
        )));
    }
    if t.shape() != g.shape() {
        return Err(PyRuntimeError::new_err(format!(
            "attempting to assign a gradient of size '{}' to a tensor of size '{}'. Please ensure that the gradient and the tensor are the same size",
            g.shape(),
            t.shape()
        )));
    }
    Ok(())
}

/// The type that gradients of a leaf have; none for any.
fn grad_dtype(t: &Tensor) -> Option<DType> {
    let own = t.dtype();
    t.link().map_or(Some(own), |link| link.grad_dtype(own))
}

/// A tensor that belongs to another, kept as the Python object that it is.
pub(super) struct Object(Py<PyAny>);

impl Object {
    fn keep(tensor: &Bound<'_, PyAny>) -> Arc<dyn Keeper> {
        Arc::new(Self(tensor.clone().unbind()))
    }
}

impl Keeper for Object {
    fn tensor(&self) -> Tensor {
        Python::attach(|py| {
            let object = self.0.bind(py).cast::<PyTensor>();
            let object = object.expect("only tensors are kept, and Python cannot change that");
            object.get().get().clone()
        })
    }
}

impl PyTensor {
    /// Whether [`visit_kept`](Self::visit_kept) has nothing to show.
    #[inline]
    pub(super) fn keeps_nothing(&self) -> bool {
        let link = self.get().link();
        self.base().is_none() && link.is_none_or(|l| Place::holders(l) != 1)
    }

    /// Shows the garbage collector the objects that the tensor keeps.
    pub(super) fn visit_kept(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Some(base) = self.base() {
            visit.call(base)?;
        }
        // What others hold as well is not this object's to show.
        let Some(link) = self.get().link().filter(|l| Place::holders(l) == 1) else {
            return Ok(());
        };
        super::graph::visit(link, visit)?;
        let Some(kept) = self.get().grad_keeper() else {
            return Ok(());
        };
        let kept: &dyn Any = &*kept;
        match kept.downcast_ref::<Object>() {
            Some(object) => visit.call(&object.0),
            None => Ok(()),
        }
    }
    /// The tensor, with its history as it is now.
    pub(super) fn settled(&self) -> PyResult<&Tensor> {
        if let Cow::Owned(now) = views::current(self.get())? {
            self.set(now);
        }
        Ok(self.get())
    }
    pub(super) fn get_requires_grad(&self) -> bool {
        views::leads_somewhere(self.get())
    }
    pub(super) fn set_requires_grad(&self, on: bool) -> PyResult<()> {
        let t = self.settled()?.clone();
        if !t.is_leaf() && on {
            return Err(PyRuntimeError::new_err(
                "you can only change requires_grad flags of leaf variables.",
            ));
        }
        if on && !t.dtype().is_float() && !t.dtype().is_complex() {
            return Err(PyRuntimeError::new_err(
                "only Tensors of floating point and complex dtype can require gradients",
            ));
        }
        if on && t.is_inference() && !mode::inference() {
            return Err(PyRuntimeError::new_err(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.",
            ));
        }
        if !t.is_leaf() {
            return Err(PyRuntimeError::new_err(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a \
                 subgraph that doesn't require differentiation use var_no_grad = var.detach().",
            ));
        }
        self.set(if on {
            require_grad(t)?
        } else {
            t.with_requires_grad(false)
        });
        self.get().note_late_leaf(on);
        Ok(())
    }
    pub(super) fn is_leaf(&self) -> bool {
        self.settled().unwrap_or(self.get()).is_leaf()
    }
    pub(super) fn retains_grad(&self) -> bool {
        let t = self.settled().unwrap_or(self.get());
        let rare = t
            .link()
            .filter(|l| l.node().is_some())
            .and_then(|l| l.rare());
        rare.is_some_and(|r| r.retained().contains(&t.output_nr()))
    }
    pub(super) fn output_nr(&self) -> u16 {
        self.settled().unwrap_or(self.get()).output_nr()
    }
    pub(super) fn grad_fn<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.settled()?.link() {
            Some(link) if !self.get().is_leaf() => super::graph::object(py, link),
            _ => Ok(py.None().into_bound(py)),
        }
    }
    pub(super) fn names<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(
            slf.py(),
            (0..slf.get().get().ndim()).map(|_| slf.py().None()),
        )
    }
    pub(super) fn name(&self, py: Python<'_>) -> Py<PyAny> {
        py.None()
    }
    pub(super) fn grad<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let t = slf.get().settled().unwrap_or(slf.get().get());
        let Some(keeper) = t.grad_keeper() else {
            if !t.is_leaf() && !slf.get().retains_grad() {
                warn_of_no_leaf(py)?;
            }
            return Ok(py.None().into_bound(py));
        };
        let any: &dyn Any = &*keeper;
        if let Some(object) = any.downcast_ref::<Object>() {
            return Ok(object.0.bind(py).clone());
        }
        // A gradient without an object gets one, so that it is the same each time.
        let made = wrap(py, keeper.tensor())?;
        let kept = t.clone().with_grad(Some(Object::keep(&made)));
        slf.get().set(kept);
        Ok(made)
    }
    pub(super) fn set_grad(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let t = slf.get().get().clone();
        if value.is_none() {
            slf.get().set(t.with_grad(None));
            return Ok(());
        }
        let Some(g) = tensor_ref(value) else {
            return Err(PyTypeError::new_err(format!(
                "assigned grad expected to be a Tensor or None but got grad of type {}",
                types::type_name(value)
            )));
        };
        if value.is(slf) {
            return Err(PyRuntimeError::new_err(
                "can't assign Variable as its own grad",
            ));
        }
        check_grad(&t, g)?;
        slf.get().set(t.with_grad(Some(Object::keep(value))));
        Ok(())
    }
    pub(super) fn grad_dtype<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().settled()?;
        if !t.is_leaf() {
            return Err(PyRuntimeError::new_err(
                "grad_dtype can only be accessed on leaf tensors.",
            ));
        }
        match grad_dtype(t) {
            Some(d) => types::dtype(slf.py(), d)?.into_bound_py_any(slf.py()),
            None => Ok(slf.py().None().into_bound(slf.py())),
        }
    }
    pub(super) fn set_grad_dtype(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let wanted = match value.cast::<PyDType>() {
            Ok(d) => Some(d.get().0),
            Err(_) if value.is_none() => None,
            Err(_) => {
                return Err(PyRuntimeError::new_err(format!(
                    "grad_dtype must be a torch.dtype or None, but got {}",
                    types::type_name(value)
                )));
            }
        };
        let t = slf.get().settled()?;
        let Some(link) = t.link().filter(|_| t.is_leaf()) else {
            return Err(PyRuntimeError::new_err(match t.is_leaf() {
                false => "grad_dtype can only be set on leaf tensors.",
                true => "grad_dtype can only be set on tensors that require gradients here.",
            }));
        };
        let had = t.grad_keeper().map(|k| k.tensor().dtype());
        if let (Some(wanted), Some(had)) = (wanted, had)
            && wanted != had
        {
            return Err(PyRuntimeError::new_err(format!(
                "Cannot set grad_dtype to '{}' because there is already a gradient with dtype '{}'. Please clear the \
                 gradient (.grad = None) before changing grad_dtype, or ensure the new grad_dtype matches the existing \
                 gradient's dtype.",
                wanted.scalar_type(),
                had.cpp_name()
            )));
        }
        link.set_grad_dtype(wanted);
        Ok(())
    }
    pub(super) fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        wrap(
            slf.py(),
            crate::ops::f::detach(slf.get().get())?.silent(true),
        )
    }
    pub(super) fn set_data(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let new = tensor_arg(value, "set_data", "data").map_err(|_| {
            PyTypeError::new_err(format!(
                "Variable data has to be a tensor, but got {}",
                types::type_name(value)
            ))
        })?;
        let old = self.get();
        if old.requires_grad() && !new.dtype().is_float() && !new.dtype().is_complex() {
            return Err(PyRuntimeError::new_err(
                "data set to a tensor that requires gradients must be floating point or complex dtype",
            ));
        }
        if old.device().kind != new.device().kind && (old.is_meta() || new.is_meta()) {
            return Err(PyRuntimeError::new_err(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type. ",
            ));
        }
        let keep = old.requires_grad();
        let new = new.clone().of_new_family().silent(false);
        self.change(new.with_requires_grad(keep));
        Ok(())
    }
}

#[pymethods]
impl PyTensor {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.visit_kept(&visit)
    }
    fn __clear__(&self) {
        self.set_base(None);
        self.set(self.get().clone().unlinked());
    }
    #[pyo3(signature = (requires_grad=Flag(Ok(true))))]
    fn requires_grad_(slf: Bound<'_, Self>, requires_grad: Flag) -> PyResult<Bound<'_, Self>> {
        let requires_grad = requires_grad.0.map_err(|class| {
            PyTypeError::new_err(format!(
                "requires_grad_(): argument 'requires_grad' (position 1) must be bool, not {class}"
            ))
        })?;
        transforms::refuse(
            "requires_grad_",
            "(or perhaps using torch.autograd.functional.* APIs) ",
        )?;
        let d = slf.get().get().dtype();
        if requires_grad && !d.is_float() && !d.is_complex() {
            return Err(PyRuntimeError::new_err(
                "only Tensors of floating point dtype can require gradients",
            ));
        }
        if slf.get().settled()?.is_leaf() || !requires_grad {
            slf.get().set_requires_grad(requires_grad)?;
        }
        Ok(slf)
    }
    fn retain_grad(&self) -> PyResult<()> {
        if !self.get().requires_grad() {
            return Err(PyRuntimeError::new_err(
                "can't retain_grad on Tensor that has requires_grad=False",
            ));
        }
        transforms::refuse("retain_grad", "")?;
        let t = self.settled()?;
        if let Some(link) = t.link().filter(|_| !t.is_leaf()) {
            link.make_rare().retain(t.output_nr());
        }
        Ok(())
    }
}
