# make demo and make test do all their own set-up: a virtual environment in .venv, with the versions
# of constraints.txt. A stamp in .venv remembers what is installed, so the second call is quick.

PYTHON ?= python3
BIN := .venv/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Small matrices and several processes: one thread each is fastest, and leaves the other core free.
export OPENBLAS_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1

.PHONY: help demo label-demo test test-all check format docs clean
.DEFAULT_GOAL := help

help:  ## list these targets
	@grep -E '^[a-z-]+:.*  ##' Makefile | sed -E 's/:.*  ## /\t/' | sort | expand -t 12

demo: .venv/demo.stamp  ## set up, compare strategies on handwritten digits, write demo/report.html
	$(BIN)/labelwise demo --out demo/report.html
	@echo "Next: open demo/report.html in a browser, then read README.md; make test runs all checks."

label-demo: .venv/web.stamp  ## set up, open the labelling page on the digits, with a simulated second annotator
	$(BIN)/python tools/label_demo.py

test: check .venv/browser.stamp  ## set up, check and run the tests, without the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadgroup -q -m "not slow"
	@echo "Everything passed. Next: make demo shows the product; docs/adding_a_strategy.md to extend it."

test-all: check .venv/browser.stamp  ## the same with the slow tests and new random cases
	HYPOTHESIS_PROFILE=exploring LABEL_STUDIO_INSTALL=1 $(BIN)/python -m pytest -n 2 --dist loadgroup -q
	@echo "Everything passed, the slow tests too."

check: .venv/test.stamp  ## lint, format, types, import layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: .venv/test.stamp  ## format the code and apply the automatic fixes of ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: .venv/test.stamp  ## update the generated parts of pages and build the site in docs/_build
	$(BIN)/python docs/update.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "Next: open docs/_build/index.html in a browser."

clean:  ## remove the environment, caches and the demo's page
	rm -rf .venv demo build dist docs/_build docs/generated .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache src/labelwise.egg-info

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "labelwise needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv

# setuptools comes first and from constraints.txt, so that the build takes no other version.
.venv/build.stamp: constraints.txt | .venv/bin/python
	$(INSTALL) setuptools
	@touch $@

.venv/web.stamp: pyproject.toml constraints.txt .venv/build.stamp
	@echo "Installing what the labelling page needs into .venv (about a minute the first time)"
	$(INSTALL) --no-build-isolation --editable ".[web]"
	@touch $@

.venv/demo.stamp: pyproject.toml constraints.txt .venv/build.stamp
	@echo "Installing what the demo needs into .venv (about a minute the first time)"
	$(INSTALL) --no-build-isolation --editable ".[demo,web]"
	@touch $@ .venv/web.stamp

.venv/test.stamp: pyproject.toml constraints.txt .venv/build.stamp
	@echo "Installing what the tests need into .venv (two to three minutes the first time)"
	$(INSTALL) --no-build-isolation --editable ".[demo,torch,skorch,huggingface,parquet,web,postgres,ray,docs,dev]"
	@touch $@ .venv/demo.stamp .venv/web.stamp

# The tests of the labelling page run in Chromium. Where it cannot be installed they say that they
# did not run.
.venv/browser.stamp: | .venv/bin/python
	@command -v chromium >/dev/null || { \
		echo "Installing chromium for the tests of the labelling page"; \
		{ apt-get update -qq && apt-get install -qq --yes chromium >/dev/null; } 2>/dev/null || \
		echo "chromium cannot be installed here; the tests of the labelling page will be skipped"; }
	@touch $@
