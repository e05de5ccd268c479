# `make demo` and `make test` do everything on a fresh machine: each makes its own .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev

.PHONY: demo test test-long fuzz lint types layers coverage clean check-python check-libatomic
.DEFAULT_GOAL := help

help:
	@echo "make demo       replicate a queue on this machine and compare the copy"
	@echo "make test       everything that a change has to pass"
	@echo "make test-long  the same with the long runs"
	@echo "make fuzz       look for inputs that break it, FUZZ_SECONDS=600"
	@echo "make lint | types | layers"

demo: $(STAMP)
	$(BIN)/cqrepl demo

# coverage is taken where it is cheap and says most; properties and what starts processes run without
APART := tests/property tests/stateful tests/fuzz tests/faults tests/interop

test: $(DEV_STAMP) lint types layers
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not long" $(APART:%=--ignore=%)
	$(BIN)/coverage combine --quiet
	$(BIN)/python -P tests/coverage_floor.py
	$(BIN)/pytest -m "not long" $(APART)

test-long: $(DEV_STAMP)
	CQREPL_STATEFUL_EXAMPLES=10000 $(BIN)/pytest --timeout 3600

# new inputs for everything that bytes from outside can reach; findings are kept in build/fuzz
FUZZ_SECONDS ?= 600
fuzz: $(DEV_STAMP)
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS)

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/mypy

layers: $(DEV_STAMP)
	$(BIN)/lint-imports

check-python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "cqrepl needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "Python's venv is missing: install the package python3-venv"; exit 1; }

# writing to a queue needs compare-and-set on mapped memory
check-libatomic:
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libatomic.so.1")' 2>/dev/null || \
	  { echo "libatomic is missing: install the package libatomic1 (Debian, Ubuntu) or libatomic"; \
	    echo "(Fedora, Alpine); it also comes with gcc"; exit 1; }

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml | check-python check-libatomic $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(DEV_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info tools/java/*/target
