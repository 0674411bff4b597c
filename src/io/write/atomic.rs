//! A file that appears at its path whole or not at all: written beside it, flushed to disk, then renamed.

use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file being written. Dropped before it is published, it leaves nothing behind.
pub struct AtomicFile {
    out: BufWriter<File>,
    place: Place,
}

/// A file whose bytes are on the disk under a temporary name.
pub struct Flushed(Place);

struct Place {
    /// What the caller named, for messages.
    path: PathBuf,
    /// The file that is replaced: links are followed.
    target: PathBuf,
    /// None once it was renamed, and for what cannot be renamed over.
    temporary: Option<PathBuf>,
}

impl Place {
    fn named(&self, e: &std::io::Error) -> Error {
        named(&self.path, e)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Whatever led here has its own error; this one says no more.
            let _ = fs::remove_file(temporary);
        }
    }
}

fn named(path: &Path, e: &std::io::Error) -> Error {
    let kind = Error::from(std::io::Error::from(e.kind())).kind();
    let advice = if e.kind() == ErrorKind::StorageFull {
        "; what was there before is unchanged"
    } else {
        ""
    };
    Error::new(
        kind,
        format!("cannot save '{}': {e}{advice}", path.display()),
    )
}

impl AtomicFile {
    /// Begins a file that is to appear at `path`. A device or pipe is written to directly.
    ///
    /// # Errors
    /// If the folder cannot be written to, or the path is a folder.
    pub fn create(path: &Path) -> Result<Self> {
        let error = |e: std::io::Error| named(path, &e);
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let old = fs::metadata(&target).ok();
        let (file, temporary) = match &old {
            Some(old) if old.is_dir() => {
                return Err(error(ErrorKind::IsADirectory.into()));
            }
            Some(old) if !old.is_file() => {
                let file = OpenOptions::new().write(true).open(&target);
                (file.map_err(error)?, None)
            }
            _ => {
                let (file, temporary) = beside(&target).map_err(error)?;
                (file, Some(temporary))
            }
        };
        let place = Place {
            path: path.to_owned(),
            target,
            temporary,
        };
        if let (Some(old), Some(_)) = (&old, &place.temporary) {
            file.set_permissions(old.permissions())
                .map_err(|e| place.named(&e))?;
        }
        Ok(Self {
            out: BufWriter::with_capacity(1 << 20, file),
            place,
        })
    }

    /// Brings all bytes to the disk; the file at the path is still the old one.
    ///
    /// # Errors
    /// If the disk refuses, being full for instance.
    pub fn flush(self) -> Result<Flushed> {
        let Self { out, place } = self;
        let file = out.into_inner().map_err(|e| place.named(e.error()))?;
        if place.temporary.is_some() {
            file.sync_all().map_err(|e| place.named(&e))?;
        }
        Ok(Flushed(place))
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        self.out.write(buf).map_err(|e| explained(&self.place, &e))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush().map_err(|e| explained(&self.place, &e))
    }
}

/// A full disk shows far from anyone who knows the name.
fn explained(place: &Place, e: &std::io::Error) -> std::io::Error {
    std::io::Error::new(e.kind(), place.named(e).message().to_owned())
}

impl Flushed {
    /// Puts the file in its place.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn publish(mut self) -> Result<()> {
        let Some(temporary) = &self.0.temporary else {
            return Ok(());
        };
        fs::rename(temporary, &self.0.target).map_err(|e| self.0.named(&e))?;
        self.0.temporary = None;
        // The rename itself is durable once the folder is; some file systems cannot do this, which is no failure.
        if let Some(folder) = self.0.target.parent().and_then(|p| File::open(p).ok()) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// A new file in the folder of `target`, under a name that nobody else uses.
fn beside(target: &Path) -> std::io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".torchlike-{}-{count}.tmp", std::process::id());
        let path = target.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            // Another machine may have a process of this number on the same disk.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (file, path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("torchlike-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn old_until_published() {
        let folder = folder("atomic");
        let path = folder.join("a");
        fs::write(&path, b"old").unwrap();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        let flushed = file.flush().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        flushed.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"newer").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert!(AtomicFile::create(&folder).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = folder("links");
        let (path, link) = (folder.join("a"), folder.join("link"));
        fs::write(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a", &link).unwrap();
        let mut file = AtomicFile::create(&link).unwrap();
        file.write_all(b"new").unwrap();
        file.flush().unwrap().publish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        // A device is written to and stays one.
        let mut null = AtomicFile::create(Path::new("/dev/null")).unwrap();
        null.write_all(b"x").unwrap();
        null.flush().unwrap().publish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(&folder).unwrap();
    }
}
