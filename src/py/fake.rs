//! Fake modes and tensors, and tensors that stand for others without their elements.

use super::class::{by_hand, is_tensor_class};
use super::dispatch::show;
use super::error::carried;
use super::object::{PyTensor, is_plain_tensor, parameter, tensor_ref, wrap};
use super::types::PyDevice;
use crate::fake::{self, FakeMode, Twins};
use crate::layers::fake::{Front, known, set_front};
use crate::mixed::Map;
use crate::ops::Call;
use crate::source::{Provider, Source};
use crate::{Device, Error, Result, Storage, Tensor, dims, err};
use pyo3::exceptions::{PyAssertionError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType, PyWeakrefReference};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The core's side of a `FakeTensorMode`.
#[pyclass(frozen, name = "_FakeMode", module = "torchlike._C")]
pub struct PyFakeMode(Arc<FakeMode>);

#[pymethods]
impl PyFakeMode {
    /// A mode; the object in front of it is told apart by its own reference.
    #[new]
    fn new(allow_real: bool) -> Self {
        Self(FakeMode::new(allow_real))
    }

    /// Notes the object that Python knows the mode by, without keeping it alive.
    fn stand_for(&self, front: &Bound<'_, PyAny>) -> PyResult<()> {
        let weak = PyWeakrefReference::new(front)?.unbind();
        self.0.with_front(|f| *f = Some(Box::new(weak)));
        Ok(())
    }

    #[getter]
    fn get_allow_real(&self) -> bool {
        self.0.allows_real()
    }

    #[setter]
    fn set_allow_real(&self, on: bool) {
        self.0.set_allows_real(on);
    }

    /// Makes results of this thread fake.
    fn enter(&self) {
        fake::enter(self.0.clone());
    }

    /// Ends what [`enter`](Self::enter) began.
    #[staticmethod]
    fn leave() {
        fake::leave();
    }

    /// A meta tensor as one of this mode, which claims to be on a device.
    fn claim<'py>(
        &self,
        elem: &Bound<'py, PyAny>,
        device: &PyDevice,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = tensor_ref(elem).ok_or_else(|| PyTypeError::new_err("expected a Tensor"))?;
        if !t.is_meta() {
            return Err(PyAssertionError::new_err("elem.device.type must be 'meta'"));
        }
        let storage = Storage::fake(t.storage().nbytes(), device.known()?, &self.0);
        wrap(elem.py(), t.on_twin(storage))
    }

    /// A plain leaf as it is on another device, on memory of its own; a parameter if it is one. `None` for all else.
    pub fn placed<'py>(
        &self,
        o: &Bound<'py, PyAny>,
        device: &PyDevice,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let is_tensor = is_tensor_class(o.get_type_ptr());
        if !is_tensor && !o.get_type().is(parameter(o.py())?) {
            return Ok(None);
        }
        let device = device.known()?.canonical();
        let plain = |t: &&Tensor| {
            t.device() != device
                && !t.has_parts()
                && !t.is_lazy()
                && t.is_leaf()
                && t.grad().is_none()
        };
        let Some(t) = tensor_ref(o).filter(plain) else {
            return Ok(None);
        };
        let strides = dims::preserved_strides(t.shape(), t.strides());
        let nbytes = dims::storage_bytes(t.shape(), &strides, 0, t.dtype().size())?;
        let storage = Storage::fake(nbytes, device, &self.0);
        let mut made = Tensor::checked(storage, t.shape().clone(), strides, 0, t.dtype())?;
        if t.requires_grad() {
            made = super::gradient::require_grad(made)?;
        }
        let made = wrap(o.py(), made)?;
        if !is_tensor {
            made.setattr(intern!(o.py(), "_is_param"), true)?;
        }
        Ok(Some(made))
    }
}

/// The object that Python knows a mode by; made again if nobody kept it.
fn front_of<'py>(py: Python<'py>, mode: &Arc<FakeMode>) -> PyResult<Bound<'py, PyAny>> {
    let known = mode.with_front(|f| {
        let weak = f.as_ref()?.downcast_ref::<Py<PyWeakrefReference>>()?;
        weak.bind(py).call0().ok().filter(|o| !o.is_none())
    });
    match known {
        Some(front) => Ok(front),
        None => py
            .import("torchlike._subclasses.fake_tensor")?
            .call_method1("_front_of", (PyFakeMode(mode.clone()),)),
    }
}

/// The mode of a fake tensor, if it is one.
#[pyfunction]
fn _fake_mode_of<'py>(t: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mode = tensor_ref(t).and_then(|t| t.storage().fake_mode());
    mode.map(|m| front_of(t.py(), &m)).transpose()
}

/// Whether a tensor is fake.
#[pyfunction]
fn _is_fake(t: &Bound<'_, PyAny>) -> bool {
    tensor_ref(t).is_some_and(|t| t.storage().is_fake())
}

/// The mode that was entered last on this thread, if one is on.
#[pyfunction]
fn _fake_mode_here(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    fake::current().map(|m| front_of(py, &m)).transpose()
}

/// Switches the mode that was entered last off for a while, or on again; gives whether it was off.
#[pyfunction]
fn _pause_fake_mode(pause: bool) -> bool {
    fake::pause(pause)
}

/// The elements of a fake tensor, where they are known all the same.
#[pyfunction]
fn _fake_constant<'py>(t: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let found = tensor_ref(t).filter(|t| t.storage().constant().is_some());
    found.map(|found| wrap(t.py(), known(found)?)).transpose()
}

/// The class of fake tensors, of one that is written in Python.
#[pyfunction]
fn _fake_class<'py>(cls: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    by_hand(cls)
}

/// A tensor that Python's values made, as one of the thread's fake mode if one is on.
pub fn made_here(t: &Tensor, device: Device) -> Result<Option<Tensor>> {
    let Some(mode) = fake::current() else {
        return Ok(None);
    };
    // Who makes a graph sees the values themselves.
    let seen = super::dispatch::on().then(|| crate::f::lift_fresh(t));
    let t = match seen.transpose()? {
        Some(shown) if shown.storage().is_fake() => shown,
        _ => mode.lift(t),
    };
    crate::layers::program::made(&t);
    if device.canonical() == t.device() {
        return Ok(Some(t));
    }
    crate::ops::helpers::to_copy(&t, t.dtype(), device).map(Some)
}

/// That a value was asked for which a fake tensor has not.
pub fn no_value() -> PyErr {
    Python::attach(|py| Words::made(py, "no_value", ()).unwrap_or_else(|e| e))
}

/// A tensor whose value is asked for while a fake mode is on that is none of its own.
///
/// # Errors
/// That it is real, or has no values here.
pub fn check_value(slf: &Bound<'_, PyTensor>) -> PyResult<()> {
    if let Some(mode) = fake::current()
        && !slf.get().get().storage().is_fake()
    {
        return Err(match mode.allows_real() {
            true => no_value(),
            false => Words::made(slf.py(), "real_value", (slf,))?,
        });
    }
    Ok(())
}

/// What a twin becomes real from: the original's bytes, as they are then.
struct Original(Storage);

impl Provider for Original {
    fn describe(&self) -> String {
        format!("the {} bytes of the original", self.0.nbytes())
    }

    fn nbytes(&self) -> u64 {
        self.0.nbytes() as u64
    }

    fn fetch(&self, device: Device) -> Result<Storage> {
        let host = self.0.on(Device::CPU)?;
        if host.is_hollow() {
            return Err(err!(
                Runtime,
                "the original of this tensor has no data itself"
            ));
        }
        host.with_bytes(Storage::from_bytes)?.on(device)
    }
}

/// An object as the tensor that it is.
fn held<'a, 'py>(o: &'a Bound<'py, PyAny>) -> PyResult<&'a Bound<'py, PyTensor>> {
    o.cast::<PyTensor>()
        .map_err(|_| PyTypeError::new_err("expected a Tensor"))
}

/// Makes tensors that stand for others without their elements: meta tensors, or those of a fake mode.
#[pyclass(frozen, subclass, name = "_Twins", module = "torchlike._C")]
struct PyTwins {
    /// How many tensors were asked about.
    asked: AtomicU64,
    mode: Option<Arc<FakeMode>>,
    storages: Mutex<Twins>,
    /// The twin of an object, by its number.
    objects: Mutex<Map<u64, Py<PyWeakrefReference>>>,
}

impl PyTwins {
    /// The living twin of an object.
    fn known<'py>(&self, o: &Bound<'py, PyTensor>) -> Option<Bound<'py, PyAny>> {
        let number = o.get().known_number()?;
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let twin = objects.get(&u64::from(number))?.bind(o.py());
        twin.call0().ok().filter(|t| !t.is_none())
    }

    fn note(&self, o: &Bound<'_, PyTensor>, twin: &Bound<'_, PyAny>) -> PyResult<()> {
        let Some(number) = o.get().number() else {
            return Ok(());
        };
        let twin = PyWeakrefReference::new(twin)?.unbind();
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        if objects.len() >= 64 && objects.len().is_power_of_two() {
            let dead =
                |w: &Py<PyWeakrefReference>| w.bind(o.py()).call0().is_ok_and(|o| o.is_none());
            gone.extend(objects.extract_if(|_, twin| dead(twin)));
        }
        let old = objects.insert(u64::from(number), twin);
        drop(objects);
        drop((old, gone));
        Ok(())
    }

    /// The storage that stands for another.
    fn storage(&self, real: &Storage) -> Storage {
        if let Some(mode) = &self.mode {
            return mode.storage_for(real, real.device());
        }
        let mut storages = self.storages.lock().unwrap_or_else(PoisonError::into_inner);
        storages.of(real, || {
            let made = Storage::meta(real.nbytes());
            if !real.is_hollow() {
                made.set_source(Some(Source::File(Arc::new(Original(real.clone())))));
            } else if let Some(source) = real.source() {
                made.set_source(Some(source));
            }
            made
        })
    }
}

#[pymethods]
impl PyTwins {
    #[new]
    #[pyo3(signature = (mode=None, **_options))]
    fn new(mode: Option<&PyFakeMode>, _options: Option<&Bound<'_, PyDict>>) -> Self {
        Self {
            asked: Default::default(),
            mode: mode.map(|m| m.0.clone()),
            storages: Mutex::default(),
            objects: Mutex::default(),
        }
    }

    /// The twin of a tensor; what is none, as it is. Twins of tensors that are more than strided ones, or of classes
    /// that convert themselves, are made by the object's `_convert`; options are for its `_check`.
    #[pyo3(signature = (t, shape_env=None, **options))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        t: &Bound<'py, PyAny>,
        shape_env: Option<&Bound<'py, PyAny>>,
        options: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if shape_env.is_some() || options.is_some() {
            slf.call_method1(intern!(py, "_check"), (shape_env, options))?;
        }
        let Some(held) = t.cast::<PyTensor>().ok() else {
            return Ok(t.clone());
        };
        slf.get().asked.fetch_add(1, Relaxed);
        if is_plain_tensor(t.get_type_ptr()) {
            if let Some(twin) = slf.get().known(held) {
                return Ok(twin);
            }
            if let Some(twin) = slf.get().made(held)? {
                return Ok(twin);
            }
        }
        slf.call_method1(intern!(py, "_convert"), (t,))
    }

    /// How many tensors were asked for.
    #[getter]
    fn hit(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// The twin of a strided tensor: the same layout, dtype and flags, a parameter if it is one, with what it is a view of
    /// and its gradient. `None` for a result of a node, and for what is more than a strided tensor.
    fn of<'py>(&self, o: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let held = held(o)?;
        match self.known(held) {
            Some(twin) => Ok(Some(twin)),
            None => self.made(held),
        }
    }

    /// Notes the twin of an object that was made otherwise.
    fn remember(&self, o: &Bound<'_, PyAny>, twin: &Bound<'_, PyAny>) -> PyResult<()> {
        self.note(held(o)?, twin)
    }

    fn __len__(&self) -> usize {
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        objects.len()
    }
}

impl PyTwins {
    /// A twin of an object that has none.
    fn made<'py>(&self, o: &Bound<'py, PyTensor>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = o.py();
        let t = o.get().get();
        if t.has_parts() || t.requires_grad() && !t.is_leaf() {
            return Ok(None);
        }
        let mut twin = t.on_twin(self.storage(t.storage()));
        if t.requires_grad() {
            twin = super::gradient::require_grad(twin)?;
        }
        let made = wrap(py, twin)?;
        if !is_tensor_class(o.get_type_ptr()) && o.is_instance(parameter(py)?)? {
            made.setattr("_is_param", true)?;
        }
        self.note(o, &made)?;
        self.relate(o, &made)?;
        Ok(Some(made))
    }

    /// Gives a twin the twins of what the original is a view of, and of its gradient.
    fn relate(&self, o: &Bound<'_, PyTensor>, made: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Some(base) = o.get().base()
            && let Some(base) = self.of(base.bind(o.py()))?
            && let (Ok(base), Ok(made)) = (base.cast_into(), made.cast::<PyTensor>())
        {
            made.get().set_base(Some(base.unbind()));
        }
        if o.get().get().grad().is_some()
            && let Some(grad) = self.of(&o.getattr("grad")?)?
        {
            made.setattr("grad", grad)?;
        }
        Ok(())
    }
}

/// The words of `torchlike._subclasses`.
struct Words;

impl Words {
    /// The exception that a function of Python's makes.
    fn made<'py>(
        py: Python<'py>,
        name: &str,
        args: impl pyo3::call::PyCallArgs<'py>,
    ) -> PyResult<PyErr> {
        let words = py.import("torchlike._subclasses._refusals")?;
        Ok(PyErr::from_value(words.getattr(name)?.call1(args)?))
    }

    fn of<'py>(py: Python<'py>, name: &str, args: impl pyo3::call::PyCallArgs<'py>) -> Error {
        carried(Self::made(py, name, args).unwrap_or_else(|e| e))
    }

    fn of_call(name: &str, c: &Call) -> Error {
        Python::attach(|py| match show(py, c) {
            Ok(shown) => Self::of(py, name, shown),
            Err(e) => carried(e),
        })
    }
}

impl Front for Words {
    fn real(&self, c: &Call) -> Error {
        Self::of_call("real", c)
    }

    fn shape(&self, c: &Call) -> Error {
        Self::of_call("shape", c)
    }

    fn value(&self, c: &Call) -> Error {
        Self::of_call("value", c)
    }

    fn devices(&self, c: &Call, _: Error) -> Error {
        Self::of_call("devices", c)
    }

    fn modes(&self, one: &Arc<FakeMode>, other: &Arc<FakeMode>) -> Error {
        Python::attach(|py| match (front_of(py, one), front_of(py, other)) {
            (Ok(one), Ok(other)) => Self::of(py, "modes", (one, other)),
            (Err(e), _) | (_, Err(e)) => carried(e),
        })
    }
}

/// Registers the classes and functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    add!(_fake_mode_of _is_fake _fake_mode_here _pause_fake_mode _fake_constant _fake_class);
    set_front(&Words);
    m.add_class::<PyFakeMode>()?;
    m.add_class::<PyTwins>()
}
