//! One error type for the whole crate: what kind of mistake it was, and a message for people.
//!
//! The kind decides the Python exception; the message is PyTorch's text where PyTorch has a good one.

use std::fmt;

/// What kind of mistake an [`Error`] reports; each maps to one Python exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A wrong call for these shapes, dtypes or devices (`RuntimeError`).
    Runtime,
    /// Tensors on different devices (`RuntimeError`).
    Devices,
    /// Values that a fake tensor has not (`DataDependentOutputException`).
    Data,
    /// A result whose shape depends on values that are not there (`NotImplementedError`).
    Shape,
    /// An argument of the wrong type (`TypeError`).
    Type,
    /// An argument of the right type with a senseless value (`ValueError`).
    Value,
    /// A dimension or position out of range (`IndexError`).
    Index,
    /// A missing name (`KeyError`).
    Key,
    /// Something this build or dtype does not do (`NotImplementedError`).
    NotImplemented,
    /// A name that does not exist (`AttributeError`).
    Attribute,
    /// A file or stream that could not be read or written (`OSError`).
    Io,
    /// A missing file (`FileNotFoundError`).
    NotFound,
    /// A file that ends too early (`EOFError`).
    Eof,
    /// A checkpoint whose content is damaged or hostile (`CheckpointError`).
    Checkpoint,
    /// A pickle that asks for something we do not do (`UnpicklingError`).
    Unpickling,
    /// A buffer that cannot be exported (`BufferError`).
    Buffer,
    /// Memory could not be had (`MemoryError`).
    Memory,
    /// Memory of a GPU could not be had (`OutOfMemoryError`).
    DeviceMemory,
    /// Division of integers by zero (`ZeroDivisionError`).
    ZeroDivision,
    /// A number that does not fit (`OverflowError`).
    Overflow,
    /// A failed assertion about the build, as PyTorch reports a missing CUDA (`AssertionError`).
    Assertion,
    /// A matrix that cannot be factorised or inverted (`LinAlgError`).
    LinAlg,
    /// An exception already set by the Python interpreter, to be passed on as it is.
    Python,
}

/// An error of one pointer's size, so that `Result<Tensor>` stays cheap to return.
#[derive(Clone)]
pub struct Error(Box<(ErrorKind, String)>);

/// The result type used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Makes an error of `kind` with `message`.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new((kind, message.into())))
    }

    /// Makes an error of a text that is put together here, so that places that report one are short.
    #[cold]
    #[inline(never)]
    #[must_use]
    pub fn formatted(kind: ErrorKind, text: fmt::Arguments<'_>) -> Self {
        Self::new(kind, text.to_string())
    }

    /// The kind of mistake.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.0
    }

    /// The text for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.1
    }

    /// The same error with `note` after its text.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Self {
        self.0.1.push_str(note);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind(), self.message())
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        let kind = match e.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::UnexpectedEof => ErrorKind::Eof,
            std::io::ErrorKind::OutOfMemory => ErrorKind::Memory,
            _ => ErrorKind::Io,
        };
        Self::new(kind, e.to_string())
    }
}

/// Makes an [`Error`]: `err!(Value, "lr must be positive, got {lr}")`.
#[macro_export]
macro_rules! err {
    ($kind:ident, $($fmt:tt)+) => {
        $crate::Error::formatted($crate::ErrorKind::$kind, format_args!($($fmt)+))
    };
}

/// Returns early with an error: `bail!(Runtime, "...")`.
#[macro_export]
macro_rules! bail {
    ($kind:ident, $($fmt:tt)+) => {
        return Err($crate::err!($kind, $($fmt)+))
    };
}

/// Returns early with an error unless the condition holds: `ensure!(n > 0, Value, "...")`.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $kind:ident, $($fmt:tt)+) => {
        if !$cond {
            return Err($crate::err!($kind, $($fmt)+));
        }
    };
}
