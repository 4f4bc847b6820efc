# Every target sets up what it needs: on a fresh machine with Python and pip only, `make test` is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
.DEFAULT_GOAL := help
.PHONY: help setup demo test corpus lint docs bench clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP) ## create .venv and install Stoker by the pinned versions

# torch comes first and alone: a pinned version lets pip take a CPU build wherever it is offered one.
$(STAMP): pyproject.toml constraints.txt
	@echo "installing into $(VENV): some minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: setup ## diagnose a typical training script, feed it, show before and after
	$(BIN)/stoker demo --out build/demo

lint: setup ## ruff and mypy --strict, package and tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint ## everything that must pass before a change lands
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m 'not timed'
	$(BIN)/python -m pytest -m 'timed and not corpus'

corpus: setup ## the doctor on scripts whose true cause is known; needs a machine that does nothing else
	$(BIN)/python -m pytest -m corpus

docs: setup ## the documentation as a site in build/docs; a broken link or reference fails
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	$(BIN)/python -m sphinx -W --keep-going --quiet docs build/docs
	@echo build/docs/index.html

# For a machine that does nothing else. Peers that need an environment of their own are
# installed first, into build/peers; one that cannot be is reported as missing.
bench: setup ## rerun all benchmarks (long; peers go to build/peers); results land in benchmarks/results
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/loading.py --install
	$(BIN)/python benchmarks/augmenting.py --install
	$(BIN)/stoker bench all

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
