# Each target is one command on a fresh machine: they build what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup build demo test lint bench bless

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade "maturin>=1.9,<2" numpy pytest ruff mypy
	touch $(STAMP)

setup: $(STAMP)

build: setup
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --profile fast

demo: setup
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release
	$(BIN)/python examples/demo.py

test: build
	cargo test --quiet --no-default-features --features cli
	cargo run --quiet --example native
	$(BIN)/python -m pytest

lint: build
	cargo fmt --check
	cargo clippy --quiet --all-targets --features cli -- -D warnings
	cargo clippy --quiet --features cli,python,cuda -- -D warnings
	$(BIN)/ruff check python tests benches examples
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest torchlike._ops --ignore-missing-stub --allowlist tests/stubtest_allowlist.txt
	$(BIN)/python tests/generate.py --check

bench: setup
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --quiet --release
	cargo bench --bench gemm
	for b in overhead modules meta_vs_cpu footprint kernels checkpoints; do $(BIN)/python benches/$$b.py || exit 1; done

bless: build
	cargo fmt
	$(BIN)/python tests/generate.py
