//! Writes the text of every GPU kernel into a folder, one file each: `cuda_sources FOLDER`.

fn main() -> std::io::Result<()> {
    let folder = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "cuda_sources".to_owned());
    std::fs::create_dir_all(&folder)?;
    let all = torchlike::kernel_sources();
    for (name, text) in &all {
        std::fs::write(
            format!("{folder}/{}.cu", name.replace([' ', '#'], "-")),
            text,
        )?;
    }
    println!("{} kernels", all.len());
    Ok(())
}
