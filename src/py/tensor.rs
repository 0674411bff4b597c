//! The methods of tensors that are no op.

use super::convert::{self, PyGenerator, tensor_arg};
use super::element;
use super::object::{PyTensor, base_or_self, is_plain_tensor, tensor_ref, viewing};
use super::results::{scalar, to_python};
use super::types::{self, PyDType};
use super::watch::{self, Style};
use crate::ops::core::typed::changed;
use crate::ops::{Arg, f};
use crate::{DType, Device, Dims, Scalar, op};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};

impl PyTensor {
    /// Where the data of a meta tensor would come from, as text; None for real tensors and those without a source.
    pub(super) fn source(&self) -> Option<String> {
        if self.get().is_meta() {
            self.get().storage().source().map(|s| s.to_string())
        } else {
            None
        }
    }
}

/// The only element, for Python's own conversions to numbers.
fn single(t: &Bound<'_, PyTensor>) -> PyResult<Scalar> {
    if t.get().get().numel() != 1 {
        return Err(PyValueError::new_err(
            "only one element tensors can be converted to Python scalars",
        ));
    }
    element::of(t)
}

/// The same for conversions that leave a history of gradients behind.
fn single_without_history(t: &Bound<'_, PyTensor>) -> PyResult<Scalar> {
    if t.get().get().requires_grad() {
        crate::warn_once!(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\nConsider using tensor.detach() first."
        );
    }
    super::error::heard(single(t))
}

#[pymethods]
impl PyTensor {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs))]
    fn py_new<'py>(
        cls: &Bound<'py, PyType>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Self> {
        if cls.is(cls.py().get_type::<Self>()) {
            return Err(PyRuntimeError::new_err(
                "Cannot directly construct TensorBase; subclass it and then construct that",
            ));
        }
        let kind = super::legacy::Kind {
            dtype: crate::mode::default_dtype(),
            device: Device::CPU,
            any: true,
        };
        Ok(Self::new(super::legacy::construct(args, kwargs, &kind)?))
    }
    #[staticmethod]
    #[pyo3(signature = (cls, data, require_grad=false))]
    fn _make_subclass<'py>(
        cls: &Bound<'py, PyType>,
        data: &Bound<'py, PyAny>,
        require_grad: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = f::detach(tensor_arg(data, "_make_subclass", "data")?)?;
        let t = if require_grad {
            super::gradient::require_grad(t)?
        } else {
            t
        };
        super::dispatch::dispatching(cls, t)
    }
    /// The same tensor as an instance of a subclass.
    #[pyo3(signature = (cls=None))]
    fn as_subclass<'py>(
        slf: &Bound<'py, Self>,
        cls: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(cls) = cls else {
            return Err(PyTypeError::new_err(super::python_names::missing(
                "as_subclass",
                &["cls".to_owned()],
            )));
        };
        let Ok(cls) = cls.cast::<PyType>() else {
            return Err(PyTypeError::new_err(format!(
                "cls must be a type (got {})",
                types::type_name(cls)
            )));
        };
        let made = super::dispatch::dispatching(cls, crate::ops::f::alias(slf.get().get())?)?;
        if let Ok(holder) = made.cast::<Self>() {
            holder.get().set_base(Some(base_or_self(slf)));
        }
        Ok(made)
    }
    /// Calls a function as if no argument overrode it; tensors in the result become instances of the class.
    #[classmethod]
    #[pyo3(signature = (func, types, args=None, kwargs=None))]
    fn __torch_function__<'py>(
        cls: &Bound<'py, PyType>,
        func: &Bound<'py, PyAny>,
        types: &Bound<'py, PyAny>,
        args: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let args = match args {
            Some(args) => PyTuple::new(cls.py(), super::data::items(args)?)?,
            None => PyTuple::empty(cls.py()),
        };
        watch::default_handler(cls, func, types, &args, kwargs)
    }

    fn item<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        scalar(slf.py(), element::of(slf)?)
    }
    fn tolist<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        check_own_data(slf, || {
            let class = types::type_name(slf.as_any());
            format!(".tolist() is not supported for tensor subclasses, got {class}")
        })?;
        super::data::to_list(slf.py(), slf.get().get())
    }
    fn __bool__(slf: &Bound<'_, Self>) -> PyResult<bool> {
        if let Some(answer) = watch::answer("__bool__", Style::Parsed, &[slf.as_any()])? {
            return answer.extract();
        }
        let t = slf.get().get();
        super::batch::check_choice(t)?;
        match t.numel() {
            1 => Ok(element::of(slf)?.to_bool()),
            0 => Err(PyRuntimeError::new_err(
                "Boolean value of Tensor with no values is ambiguous",
            )),
            _ => Err(PyRuntimeError::new_err(
                "Boolean value of Tensor with more than one value is ambiguous",
            )),
        }
    }
    fn __int__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(answer) = watch::answer("__int__", Style::Parsed, &[slf.as_any()])? {
            return Ok(answer);
        }
        match single(slf)? {
            Scalar::Float(f) => pyo3::types::PyFloat::new(slf.py(), f).call_method0("__trunc__"),
            Scalar::Complex(c) if c.im != 0.0 => Err(PyRuntimeError::new_err(
                "value cannot be converted to type int64_t without overflow",
            )),
            s @ Scalar::UInt(_) => scalar(slf.py(), s),
            s => scalar(slf.py(), Scalar::Int(s.to_i64())),
        }
    }
    fn __float__(slf: &Bound<'_, Self>) -> PyResult<f64> {
        if let Some(answer) = watch::answer("__float__", Style::Parsed, &[slf.as_any()])? {
            return answer.extract();
        }
        match single_without_history(slf)? {
            Scalar::Complex(c) if c.im != 0.0 => Err(PyRuntimeError::new_err(
                "value cannot be converted to type double without overflow",
            )),
            s => Ok(s.to_f64()),
        }
    }
    fn __complex__(slf: &Bound<'_, Self>) -> PyResult<num_complex::Complex64> {
        if let Some(answer) = watch::answer("__complex__", Style::Parsed, &[slf.as_any()])? {
            return answer.extract();
        }
        Ok(single_without_history(slf)?.to_c64())
    }
    fn __index__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(answer) = watch::answer("__index__", Style::Parsed, &[slf.as_any()])? {
            return Ok(answer);
        }
        let t = slf.get().get();
        if !t.dtype().is_integral(true) || t.numel() != 1 {
            return Err(PyTypeError::new_err(
                "only integer tensors of a single element can be converted to an index",
            ));
        }
        scalar(slf.py(), Scalar::Int(element::of(slf)?.to_i64()))
    }
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        if let Some(answer) = watch::answer("__len__", Style::Python, &[slf.as_any()])? {
            return answer.extract();
        }
        match slf.get().get().shape().first() {
            Some(n) => Ok(*n as usize),
            None => Err(PyTypeError::new_err("len() of a 0-d tensor")),
        }
    }
    fn __contains__<'py>(slf: &Bound<'py, Self>, element: &Bound<'py, PyAny>) -> PyResult<bool> {
        let receiver = [slf.as_any(), element];
        if let Some(answer) = watch::answer("__contains__", Style::Python, &receiver)? {
            return answer.is_truthy();
        }
        let element = match convert::convert(crate::ops::schema::Kind::Operand, false, element) {
            Ok(a) => a,
            Err(_) => {
                return Err(PyRuntimeError::new_err(format!(
                    "Tensor.__contains__ only supports Tensor or scalar, but you passed in a {}.",
                    element.get_type().str()?
                )));
            }
        };
        let equal =
            crate::ops::dispatch::run(op!("eq")?, &[Arg::Tensor(slf.get().get()), element])?
                .one()?;
        Ok(f::any(&equal)?.item()?.to_bool())
    }
    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if watch::watched([slf.as_any()]) {
            slf.call_method0("dim")?;
            return slf.call_method1("unbind", (0,))?.call_method0("__iter__");
        }
        if slf.get().get().ndim() == 0 {
            return Err(PyTypeError::new_err("iteration over a 0-d tensor"));
        }
        let parts = to_python(
            slf.py(),
            crate::ops::Ret::List(f::unbind(slf.get().get())?),
            op!("unbind")?,
        )?;
        viewing(parts, std::slice::from_ref(slf.as_any())).call_method0("__iter__")
    }
    fn __rdiv__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        super::operators::divided_by(slf.as_any(), other)
    }
    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        if let Some(answer) = watch::answer("__repr__", Style::Python, &[slf.as_any()])? {
            return answer.extract();
        }
        slf.py()
            .import("torchlike._tensor_str")?
            .call_method1("_str", (slf,))?
            .extract()
    }
    fn __format__<'py>(
        slf: &Bound<'py, Self>,
        spec: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let t = slf.get().get();
        if t.ndim() == 0 && !t.is_meta() && is_plain_tensor(slf.get_type_ptr()) {
            return scalar(slf.py(), t.item()?)?.call_method1("__format__", (spec,));
        }
        if spec.len()? == 0 {
            return Ok(slf.as_any().str()?.into_any());
        }
        Err(PyTypeError::new_err(format!(
            "unsupported format string passed to {}.__format__",
            types::type_name(slf)
        )))
    }
    fn __deepcopy__<'py>(
        slf: &Bound<'py, Self>,
        memo: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike._tensor")?
            .call_method1("_deepcopy", (slf, memo))
    }
    fn __reduce_ex__<'py>(
        slf: &Bound<'py, Self>,
        protocol: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike._tensor")?
            .call_method1("_reduce", (slf, protocol))
    }
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        check_own_data(slf, || NO_NUMPY.to_owned())?;
        super::batch::check_shown(slf.get().get())?;
        let py = slf.py();
        let array = super::numpy::to_numpy(slf, false)?;
        if dtype.is_none() && copy != Some(true) {
            return Ok(array);
        }
        let kw = PyDict::new(py);
        kw.set_item("copy", copy)?;
        // NumPy copies what it is given no more than it asked here.
        py.import("numpy")?
            .call_method("array", (array, dtype), Some(&kw))
    }
    #[classattr]
    fn __array_priority__() -> i64 {
        1000
    }
    #[pyo3(signature = (*, force=None))]
    fn numpy<'py>(
        slf: &Bound<'py, Self>,
        force: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let force = match force {
            Some(o) => super::given::truth(o, "numpy", "force")?,
            None => false,
        };
        check_own_data(slf, || NO_NUMPY.to_owned())?;
        super::batch::check_shown(slf.get().get())?;
        super::numpy::to_numpy(slf, force)
    }
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(i64, i64)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // There is one stream on each device, which all work is ordered by.
        if let Some(stream) = stream.filter(|s| !s.is_none()) {
            let Ok(stream) = stream.extract::<i64>() else {
                return Err(PyTypeError::new_err("stream must be ``int`` or ``none``"));
            };
            if slf.get().get().device().is_cpu() && stream != -1 {
                return Err(pyo3::exceptions::PyAssertionError::new_err(
                    "stream should be None on cpu.",
                ));
            }
        }
        super::dlpack::to_dlpack(slf, max_version, dl_device, copy)
    }
    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        super::dlpack::device_of(self.get())
    }
    fn untyped_storage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        super::storage::object(py, self.get().storage())
    }
    fn storage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike.storage")?
            .call_method1("_storage", (slf,))
    }
    fn _typed_storage<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("torchlike.storage")?
            .call_method1("typed_of", (slf,))
    }
    #[pyo3(signature = (source=None, storage_offset=None, size=None, stride=None))]
    fn set_<'py>(
        slf: Bound<'py, Self>,
        source: Option<&Bound<'py, PyAny>>,
        storage_offset: Option<i64>,
        size: Option<&Bound<'py, PyAny>>,
        stride: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, Self>> {
        let list = |o: Option<&Bound<'py, PyAny>>| {
            o.map(|o| {
                convert::ints(o).map_err(|_| {
                    PyTypeError::new_err("set_(): sizes and strides must be tuples of ints")
                })
            })
            .transpose()
        };
        let (shape, strides) = (list(size)?, list(stride)?);
        let t = slf.get().get().clone();
        let source = source.filter(|o| !o.is_none());
        if let Some(wrong) = source.filter(|o| !super::storage::is_source(o)) {
            return Err(no_source(wrong));
        }
        let made = match source.map(|o| (o, tensor_ref(o).cloned())) {
            None => changed(&f::Set::new(&t).args()?)?,
            Some((_, Some(source))) => match &shape {
                None => changed(&f::SetTensor::new(&t, &source).args()?)?,
                Some(shape) => {
                    let offset = storage_offset.unwrap_or(0);
                    let call = f::SetTensorLayout::new(&t, &source, offset, shape);
                    changed(&call.stride(strides.as_deref()).args()?)?
                }
            },
            Some((o, None)) => {
                super::storage::check_typed(o, t.dtype())?;
                let bytes = super::storage::PyStorage(super::storage::storage_of(o)?).bytes();
                match &shape {
                    None => changed(&f::SetStorage::new(&t, &bytes).args()?)?,
                    Some(shape) => {
                        let offset = storage_offset.unwrap_or(0);
                        let call = f::SetStorageLayout::new(&t, offset, shape, &bytes);
                        changed(&call.stride(strides.as_deref()).args()?)?
                    }
                }
            }
        };
        slf.get().change(made);
        Ok(slf)
    }
    #[pyo3(signature = (dtype=None, non_blocking=false))]
    fn r#type<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        non_blocking: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = non_blocking;
        let t = slf.get().get();
        let Some(d) = dtype else {
            let prefix = match t.device().kind {
                crate::DeviceKind::Cpu => "torch",
                crate::DeviceKind::Meta => "torch.meta",
                crate::DeviceKind::Cuda => "torch.cuda",
            };
            return Ok(PyString::new(
                slf.py(),
                &format!("{prefix}.{}Tensor", t.dtype().scalar_type()),
            )
            .into_any());
        };
        if let Ok(d) = d.cast::<PyDType>() {
            return slf.call_method1("to", (d,));
        }
        let name = match d.extract::<String>() {
            Ok(s) => s,
            Err(_) => d.getattr("__name__")?.extract()?,
        };
        let scalar = name
            .rsplit('.')
            .next()
            .unwrap_or("")
            .trim_end_matches("Tensor");
        if scalar.is_empty() {
            let default = crate::mode::default_dtype();
            return slf.call_method1("to", (types::dtype(slf.py(), default)?,));
        }
        match DType::ALL.iter().find(|d| d.scalar_type() == scalar) {
            Some(found) => slf.call_method1("to", (types::dtype(slf.py(), *found)?,)),
            None => Err(PyValueError::new_err(format!("invalid type: '{name}'"))),
        }
    }
    fn __cuda_array_interface__(&self) -> PyResult<()> {
        Err(pyo3::exceptions::PyAttributeError::new_err(
            "Can't get __cuda_array_interface__ on non-CUDA tensor type.",
        ))
    }
}

/// The error of `set_` for what has no memory to show.
#[cold]
fn no_source(given: &Bound<'_, PyAny>) -> PyErr {
    use super::messages::{invalid_combination, written};
    let lines = written(&[
        "",
        "torch.Storage source",
        "torch.Storage source, int storage_offset, tuple of ints size, tuple of ints stride = None",
        "Tensor source",
        "Tensor source, int storage_offset, tuple of ints size, tuple of ints stride = None",
    ]);
    let text = invalid_combination("set_", &lines, std::slice::from_ref(given), &[]);
    PyTypeError::new_err(text)
}

const NO_NUMPY: &str = ".numpy() is not supported for tensor subclasses.";

/// Refuses a tensor whose class handles its calls, as such have no data of their own.
fn check_own_data(slf: &Bound<'_, PyTensor>, text: impl FnOnce() -> String) -> PyResult<()> {
    if slf.get().get().is_python() {
        return Err(PyRuntimeError::new_err(text()));
    }
    super::batch::check_memory(slf.get().get())
}

/// Sizes given as separate integers or as one list.
pub fn sizes_of(args: &Bound<'_, PyTuple>) -> PyResult<Dims> {
    let wrong = || PyTypeError::new_err("sizes must be a tuple of ints or ints");
    if args.len() == 1
        && let Ok(list) = convert::ints(&args.get_item(0)?)
    {
        return Ok(list);
    }
    convert::ints(args.as_any()).map_err(|failure| failure.raised().unwrap_or_else(wrong))
}

/// Registers the classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<PyTensor>()?;
    super::parameter::register(m)?;
    super::lists::register(m)?;
    m.add_class::<PyGenerator>()?;
    super::class::register(m)?;
    super::methods::register(py)?;
    super::attributes::register(py)
}
