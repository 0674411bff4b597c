//! Writing checkpoints: PyTorch's zip format and the one before it, safetensors, npz; in one file or in shards. Always
//! as a stream, and to a path whole or not at all.

pub mod atomic;
pub mod flat;
pub mod npz;
pub mod safetensors;
pub mod sharded;
pub mod torch_legacy;
pub mod torch_zip;
mod zip;

use crate::Result;
pub use torch_zip::{from_archive, save, to_vec, write};

/// Takes the next bytes.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Hands bytes to the sink, in little-endian order and in as many pieces as it likes: those of the storage of this
/// number for a [`Tree`](super::Tree), those of the item of this number for a [`Flat`](flat::Flat). It is called
/// once for each that has bytes, in the order of the file.
pub type Provider<'a> = dyn FnMut(u32, &mut Sink<'_>) -> Result<()> + 'a;

/// The largest piece that is handed on at once: small enough to stay in the cache between checksum and copy.
const PIECE: usize = 1 << 20;

/// Hands bytes on in pieces.
fn pieces(bytes: &[u8], sink: &mut Sink<'_>) -> Result<()> {
    bytes.chunks(PIECE).try_for_each(sink)
}
