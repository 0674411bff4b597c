//! A file that appears at its path whole or not at all: written beside it, flushed to disk, then renamed.
//!
//! Where the system can, it has no name until then, so that a process that is killed leaves nothing behind.

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

/// A file whose bytes are on the disk, but not at their path.
pub struct Flushed {
    place: Place,
    /// What has no name is there only as long as it is open.
    unnamed: Option<File>,
}

/// Where the bytes are before they are published.
enum Draft {
    /// In a file without a name.
    Unnamed,
    /// In a file beside the target.
    Named(PathBuf),
    /// In the target itself, which is a device or a pipe, or was published.
    Target,
}

struct Place {
    /// What the caller named, for messages.
    path: PathBuf,
    /// The file that is replaced: links are followed.
    target: PathBuf,
    draft: Draft,
}

impl Place {
    fn named(&self, e: &std::io::Error) -> Error {
        named(&self.path, e)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Draft::Named(temporary) = &self.draft {
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
        let (file, draft) = match &old {
            Some(old) if old.is_dir() => {
                return Err(error(ErrorKind::IsADirectory.into()));
            }
            Some(old) if !old.is_file() => {
                let file = OpenOptions::new().write(true).open(&target);
                (file.map_err(error)?, Draft::Target)
            }
            _ => match unnamed(&target) {
                Some(file) => (file, Draft::Unnamed),
                None => {
                    let (file, name) = beside(&target).map_err(error)?;
                    (file, Draft::Named(name))
                }
            },
        };
        let place = Place {
            path: path.to_owned(),
            target,
            draft,
        };
        if let Some(old) = old.filter(|_| !matches!(place.draft, Draft::Target)) {
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
        if !matches!(place.draft, Draft::Target) {
            file.sync_all().map_err(|e| place.named(&e))?;
        }
        let unnamed = matches!(place.draft, Draft::Unnamed).then_some(file);
        Ok(Flushed { place, unnamed })
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
    /// Closes the file, which has a temporary name from then on: a process can have only so many open.
    ///
    /// # Errors
    /// If it cannot be given a name.
    pub fn close(&mut self) -> Result<()> {
        if let Some(file) = self.unnamed.take() {
            let place = &mut self.place;
            let name = name_it(file, &place.target).map_err(|e| place.named(&e))?;
            place.draft = Draft::Named(name);
        }
        Ok(())
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn publish(mut self) -> Result<()> {
        self.close()?;
        let place = &mut self.place;
        let Draft::Named(name) = &place.draft else {
            return Ok(());
        };
        fs::rename(name, &place.target).map_err(|e| place.named(&e))?;
        place.draft = Draft::Target;
        // The rename itself is durable once the folder is; some file systems cannot do this, which is no failure.
        if let Some(folder) = place.target.parent().and_then(|p| File::open(p).ok()) {
            let _ = folder.sync_all();
        }
        Ok(())
    }
}

/// A new file in the folder of `target`, under a name that nobody else uses.
fn beside(target: &Path) -> std::io::Result<(File, PathBuf)> {
    free_name(target, |path| {
        OpenOptions::new().write(true).create_new(true).open(path)
    })
}

/// What `make` makes under a name beside `target` that nobody else uses, and that name.
fn free_name<T>(
    target: &Path,
    make: impl Fn(&Path) -> std::io::Result<T>,
) -> std::io::Result<(T, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".torchlike-{}-{count}.tmp", std::process::id());
        let path = target.with_file_name(name);
        match make(&path) {
            // Another machine may have a process of this number on the same disk.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            other => return other.map(|made| (made, path)),
        }
    }
}

/// A new file without a name on the disk of `target`, if the system and the disk have such files.
#[cfg(target_os = "linux")]
fn unnamed(target: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let folder = match target.parent()? {
        here if here.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    // The way back to a name leads through there.
    if !Path::new(DESCRIPTORS).is_dir() {
        return None;
    }
    let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    options.open(folder).ok()
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path) -> Option<File> {
    None
}

#[cfg(target_os = "linux")]
const DESCRIPTORS: &str = "/proc/self/fd";

/// Gives a file without a name one beside `target`.
#[cfg(target_os = "linux")]
fn name_it(mut file: File, target: &Path) -> std::io::Result<PathBuf> {
    use rustix::fs::{AtFlags, CWD, linkat};
    use std::io::Seek;
    use std::os::fd::AsRawFd;
    let here = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    let linked = free_name(target, |path| {
        Ok(linkat(CWD, &here, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    });
    if let Ok(((), path)) = linked {
        return Ok(path);
    }
    // A disk that has such files but gives them no name: the bytes are there, and are copied.
    let (mut copy, path) = beside(target)?;
    let copied = file
        .rewind()
        .and_then(|()| std::io::copy(&mut file, &mut copy))
        .and_then(|_| copy.set_permissions(file.metadata()?.permissions()))
        .and_then(|()| copy.sync_all());
    match copied {
        Ok(()) => Ok(path),
        Err(e) => {
            let _ = fs::remove_file(&path);
            Err(e)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn name_it(_: File, _: &Path) -> std::io::Result<PathBuf> {
    Err(ErrorKind::Unsupported.into())
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
        if super::unnamed(&path).is_some() {
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 1); // there is nothing to leave behind
        }
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

    #[cfg(target_os = "linux")]
    #[test]
    fn bytes_that_cannot_be_named_are_copied() {
        let folder = folder("copied");
        let path = folder.join("a");
        let options = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .clone();
        let mut file = options.open(&path).unwrap();
        file.write_all(b"bytes").unwrap();
        fs::remove_file(&path).unwrap(); // no link leads to a file that was removed
        let name = name_it(file, &path).unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"bytes");
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
