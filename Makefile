# make demo   five real lock nodes under chaos, a checked verdict, a report (no root, no Docker)
# make test   the tests that CI runs
# See README.md for the rest.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all lint bench lock clean

demo: .venv/runtime
	$(BIN)/fencepost run workloads/scenarios/demo.yaml

test: .venv/development
	$(BIN)/python -m pytest -m "not slow"

test-all: .venv/development
	$(BIN)/python -m pytest

lint: .venv/development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/development
	$(BIN)/python -m bench

# Compiles the lock files anew from pyproject.toml's lower bounds.
lock: .venv/development
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --group build --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements.lock
	$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --group build --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements-dev.lock

clean:
	rm -rf .venv build store *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Debian keeps the venv module in a package of its own; as root it is installed, else named.
.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Fencepost needs Python 3.11 or newer; 'make PYTHON=/path/to/python3.11 ...' names another one" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq python3-venv; } || \
	  { echo "This Python cannot make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# The locks are installed as they are, and the project itself without a second resolution.
.venv/runtime: .venv/bin/python requirements.lock pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.venv/development: .venv/runtime requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
