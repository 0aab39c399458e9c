# Every target makes and uses its own environment in .venv: Python 3.11 or newer and make are enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test thorough lint types check abuse bench docs lock package format clean

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), f"anydml needs Python 3.11 or newer, this is {sys.version}"'
	@# What another Python left unfinished would stay that one's.
	$(PYTHON) -m venv $(if $(wildcard $(READY)),,--clear) $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || { \
	  echo "If a package is not there for this Python (the newest has to wait for some), name an older one:" \
	    "make PYTHON=python3.14" >&2; exit 1; }
	@# The model alone: its package would bring PyTorch along.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'silero-vad>=6'
	@touch $(READY)

demo: $(READY)  ## Run an operator, then find speech in a recording with a model of 25 nested Ifs
	$(BIN)/python -m demo

test: $(READY)  ## Run the tests; of cases that are drawn at random, every fifth, and not the longest
	$(BIN)/python -m pytest -n auto --brief

thorough: $(READY)  ## Run all tests, with all their cases: some twenty minutes more, and what they need installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,thorough]'
	$(BIN)/python -m pytest -n auto

lint: $(READY)  ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Check types, strictly
	$(BIN)/mypy

check: lint types test  ## All that must pass: style, types, tests

bench: $(READY)  ## Measure against NumPy, onnxruntime, torch, JAX, numexpr and memmove, as ratios
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python -m bench

abuse: $(READY)  ## Guard pages, hostile files, threads, faults, leaks: one table, under ten minutes
	$(BIN)/python -m tests.robustness abuse

docs: $(READY)  ## Build the documentation as a site that opens from the disk: site/index.html
	$(BIN)/python -m tools.draw_flatten
	$(BIN)/python -m tools.draw_speech
	$(BIN)/python -m tools.site site

lock: $(READY)  ## Pin what continuous integration installs to what is installed here
	{ head -1 requirements-ci.txt; $(BIN)/python -m pip freeze --exclude-editable | grep -v silero; } > requirements-ci.new
	mv requirements-ci.new requirements-ci.txt

package: $(READY)  ## Build the wheel and the source archive into dist/
	$(BIN)/python -m build --outdir dist

format: $(READY)  ## Format the sources
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist site demo/out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
