//! Reads each file and writes it again in PyTorch's zip format: `ckpt_resave FOLDER FILE...`.

use std::path::Path;
use torchlike::Result;
use torchlike::io::{Archive, write};

fn resave(folder: &Path, number: usize, path: &str) -> Result<()> {
    let archive = Archive::open(path)?;
    let mut provider = write::from_archive(&archive, archive.tree());
    write::save(
        folder.join(format!("{number}.pt")),
        archive.tree(),
        &mut provider,
    )
}

fn main() {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| ".".into());
    for (number, path) in args.enumerate() {
        match resave(Path::new(&folder), number, &path) {
            Ok(()) => println!("ok {path}"),
            Err(e) => println!("error {path} {e:?}"),
        }
    }
}
