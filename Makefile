# Every target sets up what it needs: nothing has to be installed by hand but Python (3.10 or later) and make.
#
#   make study                        train, probe, report
#   make test ARGS="-k depth -x"      anything in ARGS is passed on (to pytest here)
#   make setup PYTHON=python3.12      another interpreter

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs

# An environment cannot be moved: if this folder was, make the environment again.
ifneq ($(shell cat '$(READY)' 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

# One thread for each test worker, and no network while tests run.
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 WANDB_MODE=disabled
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup study test fuzz lint types format bench docs constraints clean distclean

help: ## show this list
	@echo "make TARGET [ARGS=...]; the targets are:"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make the virtual environment in .venv (the other targets do so by themselves)

study: $(READY) ## train, probe and report: the main job
	$(BIN)/tl-dyck study $(ARGS)

test: $(READY) ## run the tests
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

fuzz: $(READY) ## kill sweeps at random moments; hold the exact certifier to enumeration on tens of thousands of cases
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python tests/fuzz_sweep.py
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python tests/fuzz_certify.py --jobs $(JOBS) $(ARGS)

lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## check types
	$(BIN)/mypy

format: $(READY) ## repair style and formatting where that is safe
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## run the benchmarks
	@set -e; for script in tests/benchmarks/bench_*.py; do \
		echo "== $$script"; $(OFFLINE) $(BIN)/python "$$script" $(ARGS); done

docs: $(READY) $(DOCS) ## build the documentation in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet $(ARGS)

.PHONY: readme-figures
readme-figures: $(READY) ## write the tables of README.md from docs/results (ARGS="--record study results/study" first records)
	$(BIN)/python docs/figures.py $(ARGS)

# torch itself says which CUDA packages it needs, so those are not pinned here.
constraints: $(READY) ## resolve constraints.txt again, keeping pins that still fit (needs the network)
	$(BIN)/python -m pip install --quiet uv
	cp constraints.txt '$(VENV)/resolved.txt'
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra docs --universal --python-version 3.10 --no-annotate \
		--no-header --quiet $(ARGS) --output-file '$(VENV)/resolved.txt'
	@{ grep '^#' constraints.txt; grep -vE '^(#|cuda-|nvidia-|triton=)' '$(VENV)/resolved.txt'; } \
		> '$(VENV)/constraints.txt' && mv '$(VENV)/constraints.txt' constraints.txt

clean: ## remove caches and build products; keeps .venv and results
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find tl_dyck hooks tests demos -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environment as well
	rm -rf '$(VENV)'

$(READY): pyproject.toml constraints.txt
	@command -v '$(PYTHON)' >/dev/null || { echo "$(PYTHON) not found: install Python 3.10 or later," \
		"or name one with PYTHON=..." >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "tl_dyck needs Python 3.10 or" \
		"later, and $(PYTHON) is $$('$(PYTHON)' -V 2>&1): name another with PYTHON=..." >&2; exit 1; }
	@'$(PYTHON)' -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments:" \
		"install its venv module (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@if [ -f '$(READY)' ] && [ "$$(cat '$(READY)')" != '$(CURDIR)' ]; then \
		echo "this folder was moved: making $(VENV) again"; rm -rf '$(VENV)'; fi
	'$(PYTHON)' -m venv '$(VENV)'
	$(BIN)/python -m pip install -c constraints.txt -e '.[dev]'
	@echo '$(CURDIR)' > $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $@
