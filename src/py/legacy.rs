//! The old constructors: `Tensor(2, 3)`, `FloatTensor([1, 2])`, `t.new(other)`.

use super::data::{from_value, is_sequence};
use super::messages;
use super::object::{tensor_ref, wrap};
use super::storage::storage_of;
use super::tensor::sizes_of;
use super::types::{PyDType, device_of, type_name};
use crate::{DType, Device, Tensor};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyInt, PyRange, PySequence, PyString, PyTuple};

/// The forms of arguments, as PyTorch's messages list them.
const FORMS: [&str; 5] = [
    "*, torch.device device = None",
    "torch.Storage storage",
    "Tensor other",
    "tuple of ints size, *, torch.device device = None",
    "object data, *, torch.device device = None",
];

/// What a constructor makes.
pub struct Kind {
    /// The type of its elements.
    pub dtype: DType,
    /// Where they are.
    pub device: Device,
    /// Whether a tensor of another type or device is taken as it is: by `Tensor` itself, not by `FloatTensor`.
    pub any: bool,
}

/// Arguments of one call, the device apart.
struct Given<'a, 'py> {
    args: &'a Bound<'py, PyTuple>,
    kwargs: Option<&'a Bound<'py, PyDict>>,
    device: Option<Device>,
    /// The only argument, and its name if it was given by one.
    only: Option<(Bound<'py, PyAny>, Option<String>)>,
}

impl<'a, 'py> Given<'a, 'py> {
    fn read(
        args: &'a Bound<'py, PyTuple>,
        kwargs: Option<&'a Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        let mut given = Self {
            args,
            kwargs,
            device: None,
            only: None,
        };
        if args.len() == 1 {
            given.only = Some((args.get_item(0)?, None));
        }
        for (key, value) in kwargs.into_iter().flat_map(|d| d.iter()) {
            let key: String = key.extract()?;
            match key.as_str() {
                "device" if value.is_none() => {}
                "device" => given.device = Some(device_of(&value)?),
                "size" | "data" | "other" | "storage"
                    if args.is_empty() && given.only.is_none() =>
                {
                    given.only = Some((value, Some(key)));
                }
                _ => return Err(given.refused()),
            }
        }
        Ok(given)
    }

    /// The error for arguments of no form.
    fn refused(&self) -> PyErr {
        let positional: Vec<_> = self.args.iter().collect();
        let keywords: Vec<_> = self.kwargs.map(|d| d.iter().collect()).unwrap_or_default();
        let lines = messages::written(&FORMS);
        let text = messages::invalid_combination("new", &lines, &positional, &keywords);
        PyTypeError::new_err(text)
    }
}

/// A tensor by an old constructor.
///
/// # Errors
/// `TypeError` for arguments of no form and tensors of another type; `RuntimeError` for another kind of device.
pub fn construct<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
    kind: &Kind,
) -> PyResult<Tensor> {
    let given = Given::read(args, kwargs)?;
    if let Some(d) = given.device
        && d.kind != kind.device.kind
    {
        let (own, asked) = (kind.device.kind.name(), d.kind.name());
        return Err(PyRuntimeError::new_err(format!(
            "legacy constructor expects device type: {own} but device type: {asked} was passed"
        )));
    }
    let device = given.device.unwrap_or(kind.device);
    let empty = |shape: &[i64]| {
        let made = crate::f::Empty::new(shape).dtype(kind.dtype);
        Ok(made.device(device).call()?)
    };
    let Some((value, name)) = &given.only else {
        return match args.is_empty() {
            true => empty(&[0]),
            false => empty(&sizes_of(args).map_err(|_| given.refused())?),
        };
    };
    let asked = |n: &str| name.as_ref().is_none_or(|name| name == n);
    if let Ok(storage) = storage_of(value)
        && asked("storage")
    {
        return of_storage(&storage, value, kind);
    }
    if let Some(t) = tensor_ref(value)
        && asked("other")
    {
        return match given.device {
            Some(_) => Err(PyRuntimeError::new_err(
                "Legacy tensor constructor of the form torch.Tensor(tensor, device=device) is not supported.  \
                 Use torch.tensor(...) or torch.as_tensor(...) instead.",
            )),
            None => of_tensor(t, kind),
        };
    }
    let is_size = value.get_type().name().is_ok_and(|n| n == "Size");
    let is_number = value.is_instance_of::<PyInt>() && !value.is_instance_of::<PyBool>();
    if (name.is_none() && !is_size && !is_number) || name.as_deref() == Some("data") {
        return of_data(value, kind.dtype, device);
    }
    if !asked("size") {
        return Err(given.refused());
    }
    let sizes = match is_number {
        true => std::iter::once(value.extract::<i64>()?).collect(),
        false => super::convert::ints(value).map_err(|_| given.refused())?,
    };
    empty(&sizes)
}

/// All whole elements of a storage.
fn of_storage(storage: &crate::Storage, value: &Bound<'_, PyAny>, kind: &Kind) -> PyResult<Tensor> {
    super::storage::check_typed(value, kind.dtype)?;
    let count = i64::try_from(storage.nbytes() / kind.dtype.size()).unwrap_or(i64::MAX);
    Ok(Tensor::checked(
        storage.clone(),
        [count].as_slice().into(),
        [1].as_slice().into(),
        0,
        kind.dtype,
    )?)
}

/// Another tensor's elements, by an alias.
fn of_tensor(t: &Tensor, kind: &Kind) -> PyResult<Tensor> {
    let options = |dtype: DType, device: Device| {
        format!(
            "TensorOptions(dtype={}, device={device}, layout=Strided, requires_grad=false (default), \
             pinned_memory=false (default), memory_format=(nullopt))",
            dtype.cpp_name()
        )
    };
    if kind.any || (t.dtype() == kind.dtype && t.device().kind == kind.device.kind) {
        return Ok(crate::f::alias(t)?);
    }
    crate::layers::parts::check_plain(t, "new")?;
    Err(PyTypeError::new_err(format!(
        "expected {} (got {})",
        options(kind.dtype, kind.device),
        options(t.dtype(), t.device())
    )))
}

/// The numbers in a sequence.
fn of_data(value: &Bound<'_, PyAny>, dtype: DType, device: Device) -> PyResult<Tensor> {
    if value.is_instance_of::<PyString>() {
        let text = format!("new(): invalid data type '{}'", type_name(value));
        return Err(PyTypeError::new_err(text));
    }
    let sequence = is_sequence(value)
        || super::numpy::is_array(value)
        || value.is_instance_of::<PyRange>()
        || value.cast::<PySequence>().is_ok();
    if !sequence {
        let text = format!("new(): data must be a sequence (got {})", type_name(value));
        return Err(PyTypeError::new_err(text));
    }
    from_value(value, Some(dtype), device)
}

/// `Tensor.new` and the typed constructors (`FloatTensor`).
#[pyfunction]
pub fn _legacy<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    dtype: &PyDType,
    device: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let kind = Kind {
        dtype: dtype.0,
        device: device_of(device)?,
        any: false,
    };
    wrap(args.py(), construct(args, Some(kwargs), &kind)?)
}
