//! What is done with each input, and what must hold of it. Shared with `tests/core/corpus.rs`.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use torchlike::io::write::{self, flat::elements};
use torchlike::io::{Archive, Data, describe, pickle};
pub use zip_of::zip_of;

#[path = "../../tests/support/zip_of.rs"]
mod zip_of;

/// Storages beyond this are not read: time spent on long copies finds nothing.
const MAX_READ: u64 = 1 << 20;
/// Tensors that are read of one archive.
const MAX_TENSORS: usize = 200;
/// Elements of broadcast tensors have no end.
const MAX_ELEMENTS: i64 = 1 << 18;

/// Opens bytes as a checkpoint of whatever format and looks at all of it.
pub fn archive(bytes: &[u8]) {
    if let Ok(archive) = Archive::from_bytes(bytes.to_vec()) {
        look(&archive);
    }
}

/// The inputs in a packed corpus: gzip over a length in four bytes before each.
pub fn unpack(file: &[u8]) -> Vec<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = flate2::read::GzDecoder::new(file).read_to_end(&mut bytes);
    read.expect("a corpus is gzip");
    let (mut inputs, mut rest) = (Vec::new(), &bytes[..]);
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (input, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        inputs.push(input.to_vec());
        rest = after;
    }
    inputs
}

/// Opens a path, for formats of several files.
pub fn path(path: &Path) {
    if let Ok(archive) = Archive::open(path) {
        look(&archive);
    }
}

/// Runs a pickle by itself, and as that of a checkpoint with two storages.
pub fn pickle(bytes: &[u8]) {
    if let Ok((tree, used)) = pickle::read(bytes) {
        assert!(used <= bytes.len(), "more bytes than there are");
        black_box(describe::render(&tree, tree.root, 1000));
    }
    archive(&zip_of(&[
        ("a/data.pkl", bytes),
        ("a/byteorder", b"little"),
        ("a/data/0", &[7; 256]),
        ("a/data/1", &[9; 64]),
        ("a/version", b"3\n"),
    ]));
}

fn look(archive: &Archive) {
    let tensors = archive.tensors();
    let totals = archive.totals();
    assert_eq!(totals.names, tensors.len() as u64);
    for group in archive.ties() {
        assert!(group.len() > 1, "a tie of one name");
    }
    for (_, value) in archive.values().iter().take(1000) {
        black_box(describe::render(archive.tree(), *value, 200));
    }
    archive.tree().disallowed(&|_| false).for_each(drop);
    black_box(archive.tree().unresolved());
    for t in tensors.iter().take(MAX_TENSORS) {
        let readable = !matches!(t.storage.data, Data::Meta | Data::Given);
        if !readable || t.storage.nbytes > MAX_READ {
            continue;
        }
        let Ok(bytes) = archive.read_storage(t.storage) else {
            continue;
        };
        assert_eq!(
            bytes.len() as u64,
            t.storage.nbytes,
            "a storage of another size"
        );
        if t.tensor.numel() > MAX_ELEMENTS {
            continue;
        }
        let mut given = 0;
        let read = elements(&bytes, t.tensor, &mut |piece| {
            given += piece.len();
            Ok(())
        });
        read.expect("a tensor that was proved to lie in its storage");
        assert_eq!(given, t.tensor.numel() as usize * t.tensor.dtype.size());
    }
    let large = |a: &Archive| a.tree().storages.iter().map(|s| s.nbytes).max() > Some(MAX_READ);
    if large(archive) {
        return;
    }
    let _ = archive.verify();
    again(archive);
}

/// What is written again reads the same.
fn again(archive: &Archive) {
    let tree = archive.tree();
    let mut from = write::from_archive(archive, tree);
    let Ok(copy) = write::to_vec(tree, &mut from) else {
        return;
    };
    let copy = Archive::from_bytes(copy).expect("what was written opens");
    let all = |a: &Archive| -> BTreeSet<(String, String)> {
        let tensors = a.tensors();
        let text = |t: &torchlike::io::NamedTensor<'_>| {
            format!(
                "{} {:?} {:?} {} {}",
                t.tensor.dtype,
                t.tensor.shape(),
                t.tensor.stride(),
                t.tensor.requires_grad,
                // The offset of a meta tensor is not written, as PyTorch does not.
                if t.storage.data == Data::Meta {
                    0
                } else {
                    t.tensor.offset
                }
            )
        };
        tensors.iter().map(|t| (t.name.clone(), text(t))).collect()
    };
    assert_eq!(all(archive), all(&copy), "the copy has other tensors");
}
