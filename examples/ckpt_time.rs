//! How long it takes to open a checkpoint: `ckpt_time FILE [TIMES]`.

use std::time::Instant;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_default();
    let times: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut best = f64::MAX;
    for _ in 0..times {
        let start = Instant::now();
        match torchlike::io::Archive::open(&path) {
            Ok(archive) => {
                best = best.min(start.elapsed().as_secs_f64());
                std::hint::black_box(&archive);
            }
            Err(e) => println!("{e}"),
        }
    }
    println!("open: {:.3} ms at best of {times}", best * 1e3);
}
