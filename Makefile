# `make demo` and `make test` work on a machine with nothing but Python 3.11 and a package
# registry: they build the virtual environment when it is missing or out of date.
#
#   PYTHON=python3.12      interpreter the environment is made with
#   VENV=some/folder       where it is (an existing environment is used as it is)
#   DETECTRON2=upstream    install detectron2's main branch by git, instead of the patched 0.5

PYTHON ?= python3
VENV ?= .venv
DETECTRON2 ?= registry

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.sl-installed-$(DETECTRON2)
# Only an environment that this Makefile made carries OWNED, and only that may be deleted.
OWNED := $(VENV)/.sl-owned
UNFINISHED := $(VENV)/.sl-unfinished
SOURCES := sl_core sl_detectron sl_retrieval sl_bench tools benchmarks tests setup.py

.PHONY: help venv check format test demo benchmark clean

help:
	@echo "make demo       a classifier and a detector on 40 % wrong labels; pictures in output/demo"
	@echo "make test       check, then all tests"
	@echo "make check      formatting, lint, types"
	@echo "make format     apply formatting and safe lint fixes"
	@echo "make benchmark  speed of core and retrieval, cost of the detection wrapper (output/benchmarks)"
	@echo "make venv       only build the environment (PYTHON=, VENV=, DETECTRON2=upstream)"
	@echo "make clean      remove the environment and caches"

venv: $(INSTALLED)

$(INSTALLED): setup.py constraints.txt tools/install_detectron2.py
	@if [ -e $(OWNED) ] && [ -e $(UNFINISHED) ]; then \
	    echo "An earlier install into $(VENV) was interrupted; starting again."; rm -rf $(VENV); fi
	@if [ ! -e $(BIN)/python ]; then \
	    mkdir -p $(VENV) && touch $(OWNED) $(UNFINISHED) && $(PYTHON) -m venv $(VENV); fi
	@touch $(UNFINISHED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    "setuptools<81" wheel
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation -e ".[detection,retrieval,dev]"
	$(BIN)/python tools/install_detectron2.py --source $(DETECTRON2) --constraints constraints.txt
	@rm -f $(UNFINISHED) && touch $@

check: venv
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: venv
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

test: check
	$(BIN)/python -m pytest -n 2

demo: venv
	$(BIN)/python tools/demo_classification.py --output output/demo/classification
	$(BIN)/python tools/demo_detection.py --output output/demo/detection

benchmark: venv
	$(BIN)/python benchmarks/core.py --output output/benchmarks/core.json
	$(BIN)/python benchmarks/detection.py --output output/benchmarks/detection.json
	$(BIN)/python benchmarks/retrieval.py --output output/benchmarks/retrieval.json

clean:
	@if [ -e $(OWNED) ]; then rm -rf $(VENV); fi
	rm -rf build .mypy_cache .pytest_cache .ruff_cache .hypothesis ./*.egg-info
