//! PyTorch's zip format: `data.pkl` beside one record for each storage.

use super::check::check;
use super::mmap::Bytes;
use super::rebuild::{StorageRequest, resolve};
use super::tree::{Data, StorageRef, Tree};
use super::zip::{Method, Zip};
use super::{Contents, Format, pickle};
use crate::{Result, bail, ensure, err};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether files that do not say their order of bytes are taken for big-endian ones.
static ASSUMES_BIG_ENDIAN: AtomicBool = AtomicBool::new(false);

/// Says whether files that do not say their order of bytes are taken for big-endian ones from now on.
pub fn assume_big_endian(on: bool) {
    ASSUMES_BIG_ENDIAN.store(on, Relaxed);
}

/// A compressed pickle may always be this large, ...
const PICKLE_FLOOR: u64 = 16 << 20;
/// ... and else this many times its compressed size: many more than real ones reach.
const PICKLE_RATIO: u64 = 100;

/// Reads a checkpoint that PyTorch wrote as a zip archive.
pub(super) fn open(bytes: &Bytes) -> Result<Contents> {
    let zip = Zip::open(bytes.clone())?;
    ensure!(
        !zip.entries().is_empty(),
        Checkpoint,
        "a zip archive without a single record"
    );
    if super::npy::is_npz(&zip) {
        return super::npy::open_npz(bytes, &zip);
    }
    let root = root_of(&zip);
    let pickle = root
        .as_ref()
        .and_then(|root| zip.find(format!("{root}/data.pkl").as_bytes()));
    let (Some(root), Some(pickle)) = (root, pickle) else {
        bail!(Checkpoint, "{}", what_else(&zip))
    };
    let big_endian = match zip.find(format!("{root}/byteorder").as_bytes()) {
        None => ASSUMES_BIG_ENDIAN.load(Relaxed),
        Some(i) => match &*zip.read(i, 64)? {
            b"little" => false,
            b"big" => true,
            _ => bail!(
                Checkpoint,
                "record '{root}/byteorder' is neither 'little' nor 'big'"
            ),
        },
    };
    // TorchScript keeps code beside the pickle.
    let code = (0..zip.entries().len()).any(|i| {
        let name = zip.name(i);
        name.strip_prefix(&root)
            .is_some_and(|n| n.starts_with("/code/"))
    });
    if code
        && zip
            .find(format!("{root}/constants.pkl").as_bytes())
            .is_some()
    {
        return super::torchscript::open(bytes, &zip, &root, big_endian);
    }
    let data = read_pickle(&zip, pickle)?;
    let (mut tree, _) = pickle::read_tensors(&data)?;
    let mut finder = Finder::new(&zip, format!("{root}/data/"));
    finder.resolve(&mut tree)?;
    check(&tree)?;
    Ok(Contents {
        format: Format::TorchZip,
        tree,
        big_endian,
        metadata: Vec::new(),
    })
}

/// The folder that every record lies in, which the first one names.
pub(super) fn root_of(zip: &Zip) -> Option<String> {
    zip.name(0).split_once('/').map(|(root, _)| root.to_owned())
}

/// The bytes of a record that is a pickle, their checksum verified.
pub(super) fn read_pickle(zip: &Zip, number: usize) -> Result<Bytes> {
    let entry = &zip.entries()[number];
    let limit = match entry.method {
        Method::Stored => u64::MAX,
        Method::Deflated => PICKLE_FLOOR.max(entry.compressed.saturating_mul(PICKLE_RATIO)),
    };
    let data = zip.read(number, limit)?;
    ensure!(
        crc32fast::hash(&data) == entry.crc,
        Checkpoint,
        "record '{}' at offset {} is damaged: its checksum differs",
        zip.name(number),
        entry.data
    );
    Ok(data)
}

/// Finds the records of storages.
pub(super) struct Finder<'a> {
    zip: &'a Zip,
    name: Vec<u8>,
    /// The storage made of each entry.
    made: Vec<u32>,
    location: Option<Arc<str>>,
}

impl<'a> Finder<'a> {
    /// For records whose names begin with `folder`.
    pub(super) fn new(zip: &'a Zip, folder: String) -> Self {
        Self {
            zip,
            name: folder.into_bytes(),
            made: vec![u32::MAX; zip.entries().len()],
            location: None,
        }
    }

    fn resolve(&mut self, tree: &mut Tree) -> Result<()> {
        resolve(tree, &mut |request, storages| self.find(request, storages))
    }

    pub(super) fn find(
        &mut self,
        request: &StorageRequest<'_>,
        storages: &mut Vec<StorageRef>,
    ) -> Result<u32> {
        let folder = self.name.len();
        self.name.extend_from_slice(request.key.as_bytes());
        let found = self.zip.find(&self.name);
        self.name.truncate(folder);
        let key = request.key;
        let i = found
            .ok_or_else(|| err!(Checkpoint, "the record of storage '{:.64}' is missing", key))?;
        let entry = &self.zip.entries()[i];
        ensure!(
            entry.size == request.nbytes,
            Checkpoint,
            "storage '{key}' has {} bytes, and its record at offset {} has {}",
            request.nbytes,
            entry.data,
            entry.size
        );
        if let Some(made) = storages.get_mut(self.made[i] as usize) {
            ensure!(
                made.dtype.is_none() || request.dtype.is_none() || made.dtype == request.dtype,
                Checkpoint,
                "storage '{key}' is said to have two types"
            );
            made.dtype = made.dtype.or(request.dtype);
            return Ok(self.made[i]);
        }
        let data = match entry.method {
            Method::Stored => Data::Stored { offset: entry.data },
            Method::Deflated => Data::Deflated {
                offset: entry.data,
                compressed: entry.compressed,
            },
        };
        let location = match &self.location {
            Some(same) if **same == *request.location => Arc::clone(same),
            _ => Arc::clone(self.location.insert(Arc::from(request.location))),
        };
        self.made[i] = storages.len() as u32;
        let (key, dtype, nbytes) = (key.into(), request.dtype, request.nbytes);
        storages.push(StorageRef {
            key,
            dtype,
            location,
            nbytes,
            data,
            crc: Some(entry.crc),
        });
        Ok(self.made[i])
    }
}

/// What a zip archive without `data.pkl` seems to be.
fn what_else(zip: &Zip) -> String {
    let names = || (0..zip.entries().len()).map(|i| zip.name(i));
    let inner = names().find(|n| {
        [".pt", ".pth", ".bin", ".ckpt", ".safetensors"]
            .iter()
            .any(|e| n.ends_with(e))
    });
    match inner {
        Some(name) => {
            format!("a zip archive that holds the checkpoint '{name:.64}': extract it first")
        }
        None => "a zip archive without data.pkl: not a checkpoint of PyTorch".into(),
    }
}
