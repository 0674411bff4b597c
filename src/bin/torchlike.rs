//! The `torchlike` program.

use std::io::{BufWriter, stderr, stdout};

fn main() {
    let mut out = BufWriter::new(stdout().lock());
    let code = torchlike::cli::main(std::env::args_os().skip(1), &mut out, &mut stderr());
    std::process::exit(code);
}
