//! What a file is that is no checkpoint we read, and what to do about it.

/// Describes the content of a file for an error message.
pub(super) fn describe(b: &[u8]) -> String {
    let starts = |magic: &[u8]| b.starts_with(magic);
    let known = if starts(b"version https://git-lfs") {
        "a git-lfs pointer and not the file itself: run `git lfs pull` in its repository, or download the file"
    } else if starts(b"\x1f\x8b") {
        "compressed with gzip: run `gunzip` on it first"
    } else if starts(b"\x28\xb5\x2f\xfd") {
        "compressed with zstd: run `unzstd` on it first"
    } else if starts(b"\xfd7zXZ") {
        "compressed with xz: run `unxz` on it first"
    } else if starts(b"BZh") {
        "compressed with bzip2: run `bunzip2` on it first"
    } else if starts(b"\x89HDF") {
        "an HDF5 file, which is not a PyTorch checkpoint: convert it with the library that wrote it"
    } else if starts(b"\x89PNG") || starts(b"\xff\xd8\xff") || starts(b"GIF8") {
        "an image and not a checkpoint"
    } else if starts(b"\x80") && b.get(1).is_some_and(|v| (2..=5).contains(v)) {
        "a bare pickle and not a checkpoint that `torch.save` wrote"
    } else if b.iter().all(|&x| x == 0) {
        "nothing but zeros: the download or disk lost its content; fetch it again"
    } else {
        return describe_text(b);
    };
    format!("the file is {known}")
}

fn describe_text(b: &[u8]) -> String {
    let head = &b[..b.len().min(512)];
    let text = String::from_utf8_lossy(head);
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    let lower = trimmed.to_ascii_lowercase();
    let readable = head
        .iter()
        .filter(|&&c| c >= 0x20 || matches!(c, b'\n' | b'\r' | b'\t'))
        .count();
    let kind = if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        "a web page (html) and not a checkpoint: the link may need a login, or `/resolve/` in place of `/blob/`"
    } else if lower.starts_with("<?xml") || lower.starts_with('<') {
        "XML text and not a checkpoint: perhaps the error message of a failed download"
    } else if trimmed.starts_with('{') || trimmed.starts_with('[') {
        "JSON text and not a checkpoint: the weights are in other files, and an index of them is opened by its path or folder"
    } else if readable == head.len() && std::str::from_utf8(&b[..b.len().min(64)]).is_ok() {
        "text and not a checkpoint: perhaps the error message of a failed download"
    } else {
        let magic: String = head.iter().take(8).map(|x| format!("{x:02x}")).collect();
        return format!(
            "unrecognised content (it begins with {magic}): not a checkpoint, or a truncated or damaged one"
        );
    };
    format!("the file is {kind}")
}
