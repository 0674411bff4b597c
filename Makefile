# Each target is one command on a fresh machine: they build what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# The compiler's memory in huge pages: it goes from pointer to pointer, and on some machines single pages are found slowly.
export MALLOC_CONF ?= thp:always

.PHONY: setup build demo test lint bench bless gpu sanitize miri nightly

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "maturin>=1.9,<2" numpy pytest pytest-xdist ruff mypy
	touch $(STAMP)

setup: $(STAMP)

build: setup
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --profile fast

demo: build
	$(BIN)/python examples/demo.py

test: build
	cargo test --quiet --features cli --tests
	cargo run --quiet --features cli --example native
	$(BIN)/python -m pytest -n auto

lint: build
	cargo fmt --check
	cargo clippy --quiet --all-targets --features cli -- -D warnings
	cargo clippy --quiet --features cli,python,cuda -- -D warnings
	$(BIN)/ruff check python tests benches examples
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest torchlike._functions --ignore-missing-stub --allowlist tests/stubtest_allowlist.txt
	$(BIN)/python tests/generate.py --check

bench: setup
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release
	cargo bench --bench gemm
	$(BIN)/python benches/overhead.py --gradients
	for b in overhead modules meta_vs_cpu footprint kernels parts backward checkpoints chain cuda; do $(BIN)/python benches/$$b.py || exit 1; done

bless: build
	cargo fmt
	$(BIN)/python tests/generate.py

# The GPU's tests on an emulated GPU, with all rows and large shapes, and threads in order and in any; needs g++.
gpu: build
	EMULATED_GPUS=2 $(BIN)/python tests/emulated_gpu.py $(BIN)/python -m pytest -m cuda tests
	EMULATED_ORDER=random $(BIN)/python tests/emulated_gpu.py $(BIN)/python -m pytest -m cuda tests

# Every row, dtype, layout and form under glibc's checking allocator.
sanitize: build
	$(BIN)/python tests/every_call.py

# The core's unit tests under an interpreter that knows undefined behaviour; needs `rustup +nightly component add miri rust-src`.
miri:
	cargo +nightly miri test --no-default-features --lib -- dims:: scalar:: storage:: cpu::iter:: cpu::rows:: cpu::map:: cpu::memory::

# What takes hours: sanitizing, the emulated GPU, vector functions at every number, fuzzing every reader, killing saves, and Miri where a toolchain has it.
nightly: sanitize gpu
	cargo test --profile fast --features cli --test core accuracy -- --ignored --nocapture
	fuzz/run.sh all 1800
	$(BIN)/python tests/kill_during_save.py --times 200
	if cargo +nightly miri --version; then $(MAKE) miri; fi
