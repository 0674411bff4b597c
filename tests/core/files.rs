//! What tests of writing and of the command line share: folders, items and their bytes.

use std::fs;
use std::path::{Path, PathBuf};
use torchlike::io::Archive;
use torchlike::io::fingerprint::hex;
use torchlike::io::write::flat::{Flat, Item};
use torchlike::io::write::{self, Sink};
use torchlike::{DType, Result};

/// A folder of this test's own, removed at its end.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("torchlike-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// One of the checkpoints that PyTorch wrote.
pub fn good(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/ckpt/good")
        .join(name)
}

pub fn item(name: &str, dtype: DType, shape: &[i64]) -> Item {
    Item {
        name: name.into(),
        dtype,
        shape: shape.to_vec(),
        tied: None,
    }
}

pub fn flat(items: Vec<Item>) -> Flat {
    Flat {
        items,
        metadata: Vec::new(),
    }
}

/// Bytes that tell items and places apart.
pub fn content(n: u32, nbytes: u64) -> Vec<u8> {
    (0..nbytes)
        .map(|i| (i * 31 + u64::from(n) * 17) as u8)
        .collect()
}

/// Gives each item its bytes, in small pieces.
pub fn provider(flat: &Flat) -> impl FnMut(u32, &mut Sink<'_>) -> Result<()> + '_ {
    |n, sink| {
        let bytes = content(n, flat.items[n as usize].nbytes()?);
        bytes.chunks(7).try_for_each(sink)
    }
}

/// The bytes of a tensor of an archive, in row-major order.
pub fn bytes_of(archive: &Archive, name: &str) -> Vec<u8> {
    let tensors = archive.tensors();
    let t = tensors.iter().find(|t| t.name == name).unwrap();
    let bytes = archive.read_storage(t.storage).unwrap();
    let mut out = Vec::new();
    write::flat::elements(&bytes, t.tensor, &mut |b| {
        out.extend_from_slice(b);
        Ok(())
    })
    .unwrap();
    out
}

pub fn fingerprint(path: &Path) -> String {
    hex(&Archive::open(path)
        .unwrap()
        .fingerprint(&|_| ())
        .unwrap()
        .whole)
}
