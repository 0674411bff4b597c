//! What calls make besides tensors and containers: devices, layouts, sizes, numbers and bytes.

use super::{Resolver, few};
use crate::io::names::Known;
use crate::io::tree::{Object, Value};
use crate::{Device, ErrorKind, Result, bail, ensure, err};

/// The layouts of tensors, as PyTorch names them.
const LAYOUTS: &[&str] = &[
    "strided",
    "sparse_coo",
    "sparse_csr",
    "sparse_csc",
    "sparse_bsr",
    "sparse_bsc",
    "_mkldnn",
    "jagged",
];

impl Resolver<'_> {
    /// An object from the arguments of the function that makes it.
    pub(super) fn rebuild_plain(&mut self, known: Known, args: &[Value]) -> Result<Object> {
        match (known, args) {
            (Known::Size, &[sizes]) => self.size(sizes),
            (Known::Size, []) => Ok(Object::Size(self.tree.pool_span(&[]))),
            (Known::Device, &[kind]) => self.device(kind, Value::None),
            (Known::Device, &[kind, index]) => self.device(kind, index),
            (Known::GetLayout, &[name]) => self.layout(name),
            (Known::Complex, &[re @ Value::Float(_), im @ Value::Float(_)]) => {
                Ok(Object::Complex(self.tree.pool_span(&[re, im])))
            }
            (Known::Encode, &[text, codec]) => self.encoded(text, codec),
            (Known::Bytes, []) => Ok(Object::Bytes(self.tree.blob_span(&[]))),
            (Known::ByteArray, []) => Ok(Object::ByteArray(self.tree.blob_span(&[]))),
            (Known::ByteArray, &[bytes]) => match self.tree.object(bytes) {
                Some(&Object::Bytes(span) | &Object::ByteArray(span)) => {
                    Ok(Object::ByteArray(span))
                }
                _ => Err(few(known, args)),
            },
            (Known::ByteArray, &[text, codec]) => self.byte_array(text, codec),
            _ => Err(few(known, args)),
        }
    }

    fn size(&self, sizes: Value) -> Result<Object> {
        let ok = self.sizes(sizes).is_ok();
        match self.tree.object(sizes) {
            Some(&Object::Tuple(span) | &Object::Size(span)) if ok => Ok(Object::Size(span)),
            _ => Err(few(Known::Size, &[sizes])),
        }
    }

    fn device(&mut self, kind: Value, index: Value) -> Result<Object> {
        let wrong = || few(Known::Device, &[kind, index]);
        let text = self.tree.str(kind).ok_or_else(wrong)?;
        let text = match index {
            Value::Int(index) => format!("{text}:{index}"),
            Value::None => text.to_owned(),
            _ => return Err(wrong()),
        };
        match Device::parse(&text) {
            // A device of a kind we cannot compute on is still a name in a file.
            Err(e) if e.kind() != ErrorKind::NotImplemented => {
                bail!(Checkpoint, "{}", e.message())
            }
            _ => Ok(Object::Device(self.tree.text_span(&text))),
        }
    }

    fn layout(&self, name: Value) -> Result<Object> {
        let text = self.tree.str(name).and_then(|n| n.strip_prefix("torch."));
        match self.tree.object(name) {
            Some(&Object::Str(span)) if text.is_some_and(|t| LAYOUTS.contains(&t)) => {
                Ok(Object::Layout(span))
            }
            _ => bail!(Checkpoint, "an unknown tensor layout"),
        }
    }

    /// Bytes that were written as text, as protocol 2 has none.
    fn encoded(&mut self, text: Value, codec: Value) -> Result<Object> {
        ensure!(
            self.tree.str(codec) == Some("latin1"),
            Checkpoint,
            "a codec other than latin1"
        );
        let bytes = self.latin1(text)?;
        Ok(Object::Bytes(self.tree.blob_span(&bytes)))
    }

    /// As [`Resolver::encoded`], where Python spells the codec with a hyphen.
    fn byte_array(&mut self, text: Value, codec: Value) -> Result<Object> {
        ensure!(
            matches!(self.tree.str(codec), Some("latin-1" | "latin1")),
            Checkpoint,
            "a codec other than latin-1"
        );
        let bytes = self.latin1(text)?;
        Ok(Object::ByteArray(self.tree.blob_span(&bytes)))
    }

    fn latin1(&mut self, text: Value) -> Result<Vec<u8>> {
        let chars = self.tree.str(text);
        let chars = chars.ok_or_else(|| few(Known::Encode, &[text]))?.chars();
        let bytes: Option<Vec<u8>> = chars.map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let bytes = bytes.ok_or_else(|| {
            err!(
                Checkpoint,
                "bytes written as text have a character above 255"
            )
        })?;
        self.spend(bytes.len())?;
        Ok(bytes)
    }
}
