#!/bin/sh
# Builds the fuzzer with coverage counters and runs it; see README.md.
set -eu
cd "$(dirname "$0")"
export RUSTFLAGS="-C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3 \
-C llvm-args=-sanitizer-coverage-inline-8bit-counters -C llvm-args=-sanitizer-coverage-trace-compares"
export CARGO_TARGET_DIR="${FUZZ_TARGET_DIR:-target}"
# A target of its own keeps the flags from build scripts, which have no counters to register.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --target "$host"
exec "$CARGO_TARGET_DIR/$host/release/fuzz" "$@"
