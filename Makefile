# Each target does its own set-up: a private environment in .venv, the extension built by maturin. A second run does only
# what has changed. Needs Python 3.11 or later, a Rust toolchain and a C compiler.

PYTHON ?= python3
BIN := .venv/bin
OUT ?= figure
FIGURE ?= piggin-2007-tbench
ARGS ?=

RUST := Cargo.toml Cargo.lock $(shell find src python/_core -type f -not -path '*/target/*')
STAMPS := .venv/.stamps

.PHONY: figure reproduce test soak loom oracle bench lint notebook clean

# Draws the published figure again: picture, table and CSV in figure/.
figure: $(STAMPS)/build
	$(BIN)/slablab reproduce $(FIGURE) --out $(OUT) $(ARGS)

# Every published result, whole: one page that opens offline, the pictures, the table and the front figure of the README.
reproduce: $(STAMPS)/build
	$(BIN)/slablab reproduce all --out $(OUT) --html $(OUT)/published.html --readme README.md $(ARGS)
	cp $(OUT)/$(FIGURE).png docs/

# Every check and every test; the last line is "N passed, N failed".
test: $(STAMPS)/build $(STAMPS)/test
	@$(BIN)/python .ci/check.py

# The long tests, whole: what `make test` shortens or leaves out.
soak: loom $(STAMPS)/build $(STAMPS)/test
	cargo test --locked $(ARGS) -- --ignored
	$(BIN)/python -m pytest -m soak $(ARGS)

# Models of what CPUs do at the same time, under every interleaving that the memory model allows. A build of its own.
loom:
	RUSTFLAGS="--cfg loom" cargo test --locked --lib --target-dir target/loom loom $(ARGS)

# Every recording of real kernels, each with every checkpoint.
oracle:
	SLABLAB_ORACLE=full cargo test --locked --lib oracle $(ARGS)

# The benches of the core, and of what a sweep costs beside it.
bench: $(STAMPS)/build
	cargo bench --locked $(ARGS)
	$(BIN)/python benches/overhead.py
	$(BIN)/slablab bench workloads --repeats 3

# Formatting and lints alone.
lint: $(STAMPS)/build $(STAMPS)/test
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest slablab._core

# Opens the tour in JupyterLab.
notebook: $(STAMPS)/build $(STAMPS)/notebook
	$(BIN)/jupyter lab notebooks/00_tour.ipynb $(ARGS)

clean:
	rm -rf .venv target figure

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit("slablab needs Python 3.11 or later") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip 'maturin>=1.9,<2'
	@mkdir -p $(STAMPS) && touch $@

# The package with what it needs to run, its Python files in place: they need no second build.
$(STAMPS)/build: $(STAMPS)/venv pyproject.toml $(RUST)
	VIRTUAL_ENV=$(CURDIR)/.venv $(BIN)/maturin develop --release --locked --quiet --extras plot
	@touch $@

$(STAMPS)/test: $(STAMPS)/build pyproject.toml
	$(BIN)/python .ci/extras.py test
	@touch $@

$(STAMPS)/notebook: $(STAMPS)/build pyproject.toml
	$(BIN)/python .ci/extras.py notebook
	@touch $@
