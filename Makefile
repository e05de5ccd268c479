# `make demo` and `make test` do everything on a fresh machine: each makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo test test-all test-long bench bench-docs docs fuzz fuzz-native wheel spark-jar audit lint types layers native coverage \
  clean check-python
.DEFAULT_GOAL := help

help:
	@echo "make demo       replicate a queue on this machine and compare the copy"
	@echo "make test       what a change has to pass first: ten minutes on two cores"
	@echo "make test-all   all else that it has to pass: half an hour"
	@echo "make test-long  the long runs, and examples that no run before had"
	@echo "make fuzz       look for inputs that break it, FUZZ_SECONDS=600; fuzz-native: SECONDS=60"
	@echo "make bench      compare with other ways to replicate, BENCH='--only fresh --rounds 3'"
	@echo "make wheel      source distribution and wheel in dist/, tried in fresh environments"
	@echo "make audit      are the packages and crates that are used known to be unsafe?"
	@echo "make docs       write the state diagrams of docs/protocol.md anew, from the tables"
	@echo "make spark-jar  the scan for Spark, against pyspark's own jars"
	@echo "make lint | types | layers | native"

demo: $(STAMP)
	$(BIN)/cqrepl demo

# what fails is told at the end, with the command that repeats it; no phase waits for another.
# No test is in two of these tiers
test: $(DEV_STAMP)
	@$(BIN)/python -P tests/suite.py test

test-all: $(DEV_STAMP)
	@$(BIN)/python -P tests/suite.py all

test-long: $(DEV_STAMP)
	@$(BIN)/python -P tests/suite.py long

# new inputs for everything that bytes from outside can reach; findings are kept in build/fuzz
FUZZ_SECONDS ?= 600
fuzz: $(DEV_STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)
	$(MAKE) fuzz-native

# the crate's functions on arbitrary buffers and numbers, under the address sanitizer
SECONDS ?= 60
fuzz-native:
	native/fuzz/run $(SECONDS)

# dist/: the source distribution, and the wheel that is made of it; both are tried
wheel: check-python
	tools/packages.sh $(PYTHON)

# the scan in Java for Spark, of Java 17, against the jars of the pyspark that is installed here
SPARK_JARS = $(shell $(BIN)/python -c 'import pathlib, pyspark; print(pathlib.Path(pyspark.__file__).parent / "jars")')
spark-jar: $(STAMP)
	$(BIN)/python native/spark/build.py $(SPARK_JARS) cqrepl/spark/cqrepl-spark.jar

# before a release: known faults of what is installed here, and of the crates that are locked. Asks
# the advisory databases; a tool that is missing is a failure, as nothing was looked at then
audit: $(DEV_STAMP)
	@cargo audit --version >/dev/null 2>&1 || \
	  { echo "cargo-audit is missing: cargo install --locked cargo-audit"; exit 1; }
	cd native && cargo audit --deny warnings
	cd native/fuzz && cargo audit --deny warnings
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.7"
	$(BIN)/python -m pip_audit --local --skip-editable

# takes an hour with all peers, and wants the machine for itself; what is missing is said
BENCH ?=
bench: $(DEV_STAMP)
	$(BIN)/python -m tests.bench.compare $(BENCH)

# the numbers and pictures of docs/performance.md
PICTURES := --rounds 3 --plot docs/plots
bench-docs: $(DEV_STAMP)
	$(BIN)/cqrepl bench append --size 64,256,1KiB,4KiB,16KiB --count 100000 $(PICTURES)
	$(BIN)/cqrepl bench replicate --size 64,256,1KiB,4KiB,16KiB --count 200000 $(PICTURES)
	$(BIN)/cqrepl bench latency --size 64,256,1KiB $(PICTURES)
	$(BIN)/python -m tests.bench.compare --write-docs

# what docs/protocol.md shows of the tables of states, and the README's picture; tests compare both
docs: $(DEV_STAMP)
	$(BIN)/python -m tools.state_diagrams
	$(BIN)/python -m tools.picture

HAS_NATIVE := $(BIN)/python -c 'import cqrepl._native' 2>/dev/null

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/mypy
	! $(HAS_NATIVE) || $(BIN)/python -m mypy.stubtest --mypy-config-file pyproject.toml \
	  cqrepl._native wire._codec

layers: $(DEV_STAMP)
	$(BIN)/lint-imports

# the crate's own checks, where its tools are; they need no kernel that is installed
CRATE := --locked --manifest-path native/Cargo.toml
native: $(DEV_STAMP)
	@if $(HAS_NATIVE) && cargo clippy --version >/dev/null 2>&1; then \
	  set -x; cargo fmt --all --manifest-path native/Cargo.toml --check && \
	  PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy $(CRATE) --all-targets -- -D warnings && \
	  cargo test $(CRATE) --no-default-features --quiet && \
	  if c++ --version >/dev/null 2>&1; then \
	    cargo check --quiet --locked --manifest-path native/fuzz/Cargo.toml; \
	  else echo "a C++ compiler is missing: the fuzz targets are not checked"; fi; \
	else echo "the native kernel is not built here, or clippy is missing: it is not checked"; fi

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cqrepl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv is missing: install the package python3-venv"; exit 1; }

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

KERNEL_FILES := $(wildcard native/Cargo.* native/kernel/Cargo.toml \
  native/kernel/src/*.rs native/kernel/src/*/*.rs native/document/Cargo.toml \
  native/document/src/*.rs native/document/src/*/*.rs)

# what is installed must be able to write: with the native kernel, or with libatomic
$(STAMP): pyproject.toml setup.py $(KERNEL_FILES) | check-python $(VENV)/bin/python
	@echo "installing cqrepl into $(VENV), a minute or two"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@# setuptools tells at each editable installation that it is one; any other warning is shown
	PYTHONWARNINGS="ignore:Editable installation" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@$(BIN)/python -c 'from cqrepl.queue.files import atomics; atomics.require()' 2>/dev/null || \
	  { echo "libatomic is missing: install the package libatomic1 (Debian, Ubuntu) or libatomic"; \
	    echo "(Fedora, Alpine), which also comes with gcc; or cargo, for the native kernel"; exit 1; }
	@$(BIN)/cqrepl --version
	@touch $@

$(DEV_STAMP): $(STAMP) $(wildcard native/spark/*.py native/spark/src/cqrepl/spark/*.java)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@! command -v javac >/dev/null || $(MAKE) --no-print-directory spark-jar
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info tools/java/*/target native/target cqrepl/_native*.so wire/_codec*.so
