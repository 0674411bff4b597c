//! dtype, device, layout and memory_format as Python objects; each value exists once.

use crate::{DType, Device, DeviceKind, MemoryFormat};
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};

/// `torchlike.dtype`.
#[pyclass(frozen, name = "dtype", module = "torchlike", eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyDType(pub DType);

#[pymethods]
impl PyDType {
    fn __repr__(&self) -> String {
        format!("torchlike.{}", self.0)
    }
    fn __reduce__(&self) -> &'static str {
        self.0.name()
    }
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }
    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
    #[getter]
    fn is_floating_point(&self) -> bool {
        self.0.is_float()
    }
    #[getter]
    fn is_complex(&self) -> bool {
        self.0.is_complex()
    }
    #[getter]
    fn is_signed(&self) -> PyResult<bool> {
        if self.0.is_quantized() {
            return Err(PyRuntimeError::new_err(
                "isSignedType not supported for quantized types",
            ));
        }
        Ok(self.0.is_signed())
    }
    /// The C++ name that PyTorch's messages use: `Float`.
    #[getter]
    fn _scalar_type(&self) -> &'static str {
        self.0.scalar_type()
    }
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.size()
    }
    fn to_real(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        dtype(py, self.0.to_real())
    }
    fn to_complex(&self, py: Python<'_>) -> PyResult<Py<PyDType>> {
        if !self.0.is_complex() && (!self.0.is_float() || self.0.size() < 2) {
            return Err(PyRuntimeError::new_err(format!(
                "Unknown Complex ScalarType for {}",
                self.0.scalar_type()
            )));
        }
        dtype(py, self.0.to_complex())
    }
}

static DTYPES: PyOnceLock<Vec<Py<PyDType>>> = PyOnceLock::new();

/// The Python object of a dtype.
pub fn dtype(py: Python<'_>, d: DType) -> PyResult<Py<PyDType>> {
    let all = DTYPES.get_or_try_init(py, || {
        DType::ALL
            .iter()
            .map(|d| Py::new(py, PyDType(*d)))
            .collect::<PyResult<Vec<_>>>()
    })?;
    Ok(all[d as usize].clone_ref(py))
}

/// `torchlike.device`, also a context manager and a decorator.
#[pyclass(frozen, name = "device", module = "torchlike", eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PyDevice {
    at: Device,
    /// A type of device that PyTorch knows and torchlike has not: it can be named and compared.
    elsewhere: Option<&'static str>,
}

impl PyDevice {
    /// The object of a device.
    pub const fn of(at: Device) -> Self {
        Self {
            at,
            elsewhere: None,
        }
    }

    /// The object of what a text names.
    pub fn named(text: &str) -> crate::Result<Self> {
        Ok(match Device::elsewhere(text) {
            Some((name, index)) => Self {
                at: Device {
                    index,
                    ..Device::CPU
                },
                elsewhere: Some(name),
            },
            None => Self::of(Device::parse(text)?),
        })
    }

    /// The device.
    ///
    /// # Errors
    /// If torchlike has none of its type.
    pub fn known(&self) -> crate::Result<Device> {
        self.elsewhere
            .map_or(Ok(self.at), |name| Err(Device::absent(name)))
    }
}

/// Two arguments can only be meant for a type of device and an index.
fn two_for_device(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
    let refused = |text: String| Err(PyTypeError::new_err(text));
    let named = kwargs.map_or(Ok(None), |d| d.get_item("type"))?;
    let placed = args.iter().next();
    let place = if placed.is_some() {
        " (position 1)"
    } else {
        ""
    };
    let Some(kind) = placed.or(named) else {
        let text = super::python_names::missing("device", &["type".to_owned()]);
        return refused(text);
    };
    if !kind.is_instance_of::<PyString>() {
        let found = type_name(&kind);
        return refused(format!(
            "device(): argument 'type'{place} must be str, not {found}"
        ));
    }
    let known = |k: &Bound<'_, PyAny>| {
        let is = |name: &str| k.eq(name).unwrap_or(false);
        is("index") || is("type") && args.is_empty()
    };
    match kwargs.and_then(|d| d.iter().map(|(k, _)| k).find(|k| !known(k))) {
        Some(k) if k.eq("type").unwrap_or(false) => {
            refused("device() got multiple values for argument 'type'".to_owned())
        }
        Some(k) => refused(format!("device() got an unexpected keyword argument '{k}'")),
        None => Ok(()),
    }
}

#[pymethods]
impl PyDevice {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        if super::watch::state() != 0 {
            let class = args.py().get_type::<Self>();
            if let Some(made) = super::modes::shown(&class, "torch.device", args, kwargs)? {
                return Self::read(&made);
            }
        }
        let keyword = |k: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            kwargs.map_or(Ok(None), |d| d.get_item(k))
        };
        let first = match args.len() {
            0 => match keyword("type")? {
                Some(v) => Some(v),
                None => keyword("device")?,
            },
            _ => Some(args.get_item(0)?),
        };
        let index = if args.len() > 1 {
            Some(args.get_item(1)?)
        } else {
            keyword("index")?
        };
        if args.len() + kwargs.map_or(0, |d| d.len()) == 2 {
            two_for_device(args, kwargs)?;
        }
        let readable = first.as_ref().is_some_and(|o| {
            o.is_instance_of::<PyString>()
                || o.is_instance_of::<PyDevice>()
                || (o.extract::<i64>().is_ok() && !o.is_instance_of::<pyo3::types::PyBool>())
        });
        let Some(first) = first.filter(|_| readable && args.len() <= 2) else {
            let positional: Vec<_> = args.iter().collect();
            let keywords: Vec<_> = kwargs.map(|d| d.iter().collect()).unwrap_or_default();
            let lines =
                super::messages::written(&["torch.device device", "str type, int index = -1"]);
            return Err(PyTypeError::new_err(super::messages::invalid_combination(
                "device",
                &lines,
                &positional,
                &keywords,
            )));
        };
        if let Some(i) = index
            .as_ref()
            .filter(|i| !i.is_none() && i.extract::<i64>().is_err())
        {
            let place = if args.len() > 1 { " (position 2)" } else { "" };
            return Err(PyTypeError::new_err(format!(
                "device(): argument 'index'{place} must be int, not {}",
                type_name(i)
            )));
        }
        let mut device = Self::read(&first)?;
        if let Some(index) = index.filter(|i| !i.is_none()) {
            if first
                .cast::<PyString>()
                .is_ok_and(|s| s.to_string_lossy().contains(':'))
            {
                return Err(PyRuntimeError::new_err(format!(
                    "type (string) must not include an index because index was passed explicitly: {}",
                    first.str()?
                )));
            }
            let index: i64 = index.extract()?;
            if index < 0 {
                return Err(PyRuntimeError::new_err("Device index must not be negative"));
            }
            device.at.index = i8::try_from(index)
                .map_err(|_| PyValueError::new_err("device index out of range"))?;
        }
        Ok(device)
    }
    #[getter(r#type)]
    fn kind(&self) -> &'static str {
        self.elsewhere.unwrap_or_else(|| self.at.kind.name())
    }
    #[getter]
    fn index(&self) -> Option<i8> {
        (self.at.index >= 0).then_some(self.at.index)
    }
    fn __repr__(&self) -> String {
        match self.index() {
            Some(i) => format!("device(type='{}', index={i})", self.kind()),
            None => format!("device(type='{}')", self.kind()),
        }
    }
    pub fn __str__(&self) -> String {
        match self.index() {
            Some(i) => format!("{}:{i}", self.kind()),
            None => self.kind().to_owned(),
        }
    }
    fn __reduce__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let args = match self.index() {
            Some(i) => (self.kind(), i).into_pyobject(py)?.into_any(),
            None => (self.kind(),).into_pyobject(py)?.into_any(),
        };
        Ok((py.get_type::<Self>(), args)
            .into_pyobject(py)?
            .into_any()
            .unbind())
    }
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        super::modes::enter_device(&slf)?;
        Ok(slf)
    }
    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, PyTuple>) {
        super::modes::leave_device();
    }
}

impl PyDevice {
    /// Reads a device as `torchlike.device` does: of any type that PyTorch knows.
    fn read(o: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(d) = o.cast::<Self>() {
            return Ok(*d.get());
        }
        match o.cast::<PyString>() {
            Ok(s) => Ok(Self::named(&s.to_cow()?)?),
            Err(_) => device_of(o).map(Self::of),
        }
    }
}

/// Reads a device from a `torchlike.device`, a string, or a CUDA index.
pub fn device_of(o: &Bound<'_, PyAny>) -> PyResult<Device> {
    if let Ok(d) = o.cast::<PyDevice>() {
        return Ok(d.get().known()?);
    }
    if let Ok(s) = o.cast::<PyString>() {
        return Ok(Device::parse(&s.to_cow()?)?);
    }
    if let Ok(i) = o.extract::<i64>()
        && !o.is_instance_of::<pyo3::types::PyBool>()
    {
        return match i8::try_from(i) {
            Ok(i) if i >= 0 => Ok(Device {
                kind: DeviceKind::Cuda,
                index: i,
            }),
            _ => Err(PyRuntimeError::new_err("Device index must not be negative")),
        };
    }
    Err(PyTypeError::new_err(format!(
        "device(): argument 'type' must be str, not {}",
        type_name(o)
    )))
}

/// The Python object of a device.
pub fn device(py: Python<'_>, d: Device) -> PyResult<Py<PyDevice>> {
    static CPU: PyOnceLock<Py<PyDevice>> = PyOnceLock::new();
    static META: PyOnceLock<Py<PyDevice>> = PyOnceLock::new();
    let slot = match (d.kind, d.index) {
        (DeviceKind::Cpu, -1) => &CPU,
        (DeviceKind::Meta, -1) => &META,
        _ => return Py::new(py, PyDevice::of(d)),
    };
    Ok(slot
        .get_or_try_init(py, || Py::new(py, PyDevice::of(d)))?
        .clone_ref(py))
}

/// `torchlike.layout`: strided is the one that is computed with.
#[pyclass(frozen, name = "layout", module = "torchlike", eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyLayout(pub &'static str);

#[pymethods]
impl PyLayout {
    fn __repr__(&self) -> String {
        format!("torchlike.{}", self.0)
    }
    fn __reduce__(&self) -> &'static str {
        self.0
    }
}

const LAYOUTS: &[&str] = &[
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "jagged",
    "_mkldnn",
];

/// `torchlike.memory_format`.
#[pyclass(frozen, name = "memory_format", module = "torchlike", eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub struct PyFormat(u8);

const FORMATS: [MemoryFormat; 4] = [
    MemoryFormat::Contiguous,
    MemoryFormat::Preserve,
    MemoryFormat::ChannelsLast,
    MemoryFormat::ChannelsLast3d,
];

impl PyFormat {
    /// The format it stands for.
    pub fn format(&self) -> MemoryFormat {
        FORMATS[self.0 as usize]
    }
}

#[pymethods]
impl PyFormat {
    fn __repr__(&self) -> String {
        format!("torchlike.{}", self.format().name())
    }
    fn __reduce__(&self) -> &'static str {
        self.format().name()
    }
}

static STRIDED: PyOnceLock<Py<PyLayout>> = PyOnceLock::new();

/// The strided layout's object.
pub fn strided(py: Python<'_>) -> PyResult<Py<PyLayout>> {
    Ok(STRIDED
        .get_or_try_init(py, || Py::new(py, PyLayout("strided")))?
        .clone_ref(py))
}

/// The object of the layout of this name.
pub fn layout(py: Python<'_>, name: &str) -> PyResult<Py<PyLayout>> {
    if name == "strided" {
        return strided(py);
    }
    Ok(py
        .import("torchlike._C")?
        .getattr(name)?
        .cast_into::<PyLayout>()?
        .unbind())
}

/// The object of a memory format.
pub fn format(py: Python<'_>, format: MemoryFormat) -> PyResult<Bound<'_, PyAny>> {
    py.import("torchlike._C")?.getattr(format.name())
}

/// The type's name as messages show it.
pub fn type_name(o: &Bound<'_, PyAny>) -> String {
    let class = o.get_type();
    let name = class
        .name()
        .map_or_else(|_| "object".into(), |n| n.to_string());
    // Those that C defines are called with their module, as PyTorch reads them from the interpreter.
    let flags = class.getattr("__flags__").and_then(|f| f.extract::<u64>());
    let is_static = flags.is_ok_and(|f| f & (1 << 9) == 0);
    let torch = |m: &Bound<'_, PyString>| m == "torchlike" || m == "torch";
    match (class.module(), name.as_str()) {
        (Ok(m), "dtype" | "device" | "layout" | "memory_format" | "Size") if torch(&m) => {
            format!("torch.{name}")
        }
        (Ok(m), _) if m == "torchlike.return_types" || m == "torch.return_types" => {
            format!("torch.return_types.{name}")
        }
        (Ok(m), "Generator") if torch(&m) => "torch._C.Generator".to_owned(),
        (Ok(module), _) if is_static && module != "builtins" => format!("{module}.{name}"),
        _ => name,
    }
}

/// Registers the classes and their values.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add_class::<PyDType>()?;
    m.add_class::<PyDevice>()?;
    m.add_class::<PyLayout>()?;
    m.add_class::<PyFormat>()?;
    let aliases = [
        ("float", DType::F32),
        ("double", DType::F64),
        ("half", DType::F16),
        ("short", DType::I16),
        ("int", DType::I32),
        ("long", DType::I64),
        ("chalf", DType::C32),
        ("cfloat", DType::C64),
        ("cdouble", DType::C128),
    ];
    for d in DType::ALL {
        m.add(d.name(), dtype(py, *d)?)?;
    }
    for (name, d) in aliases {
        m.add(name, dtype(py, d)?)?;
    }
    for name in LAYOUTS {
        m.add(
            *name,
            if *name == "strided" {
                strided(py)?
            } else {
                Py::new(py, PyLayout(name))?
            },
        )?;
    }
    for (i, f) in FORMATS.iter().enumerate() {
        m.add(f.name(), Py::new(py, PyFormat(i as u8))?)?;
    }
    Ok(())
}
