# Every target sets up what it needs: nothing has to be installed by hand but Python (3.10 or later) and make.
#
#   make study                        train, probe, report
#   make test ARGS="-k depth -x"      anything in ARGS is passed on (to pytest here)
#   make test TL=3.9.0                another TransformerLens, in an environment of its own
#   make setup PYTHON=python3.12      another interpreter
#   make setup INSTALLER=pip          pip alone: slower, but it reads the pip settings of this machine

PYTHON ?= python3
TL ?=
VENV ?= .venv$(if $(TL),-tl-$(TL))
JOBS ?= 2
ARGS ?=
INSTALLER ?= uv

BIN := $(VENV)/bin
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs

# An environment cannot be moved: if this folder was, make the environment again.
ifneq ($(shell cat '$(READY)' 2>/dev/null),$(CURDIR))
.PHONY: $(READY)
endif

# Empty counts as not set: where it is set, each process compiles again what it imports, and pytest rewrites every test.
export PYTHONDONTWRITEBYTECODE :=

# One thread for each test worker, and no network while tests run.
OFFLINE := HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 WANDB_MODE=disabled
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup study test test-types test-slow test-cpus test-oldest test-newest test-packages fuzz mutants lint types format bench docs dist outputs readme-figures constraints clean distclean

help: ## show this list
	@echo "make TARGET [ARGS=...]; the targets are:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s  %s\n", $$1, $$2 }' Makefile

setup: $(READY) ## make the virtual environment in .venv (the other targets do so by themselves)

study: $(READY) ## train, probe and report: the main job
	$(BIN)/tl-dyck study $(ARGS)

PYTEST = $(OFFLINE) $(ONE_THREAD) $(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=25

test: $(READY) ## run the tests, but for those that repeat at full size what these show
	$(PYTEST) -m 'not slow' $(ARGS)

# What is marked "once" asks nothing of TransformerLens: texts, packaging, and what a browser makes of a finished report.
test-types: $(READY) ## the same but for those marked "once", with annotations checked at every call
	TL_DYCK_TEST_TYPES=1 $(PYTEST) -m 'not slow and not once' $(ARGS)

test-slow: $(READY) ## run the tests that repeat at full size what `make test` shows at small size
	$(PYTEST) -m slow $(ARGS)

test-cpus: $(READY) ## run the tests of bitwise promises under several CPU settings
	$(OFFLINE) bash .ci/test-cpus $(BIN)/python $(ARGS)

test-oldest: $(READY) ## run a part of the tests on the oldest Python with the oldest libraries we accept, in .venv-oldest
	$(OFFLINE) $(ONE_THREAD) bash .ci/test-versions oldest $(BIN)/uv $(ARGS)

test-newest: $(READY) ## run a part of the tests on the newest Python at hand, in .venv-newest
	$(OFFLINE) $(ONE_THREAD) bash .ci/test-versions newest $(BIN)/uv $(ARGS)

test-packages: $(READY) ## hold the judge's adapters to the packages they adapt, in .venv-packages
	$(OFFLINE) $(ONE_THREAD) bash .ci/test-versions packages $(BIN)/uv $(ARGS)

fuzz: $(READY) ## kill sweeps at random moments; hold the exact certifier and proofs to enumeration on tens of thousands of cases
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python tools/fuzz_sweep.py
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python tools/fuzz_certify.py --jobs $(JOBS) $(ARGS)
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python tools/fuzz_proofs.py
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python -m tests.certify.proofs.changed

mutants: $(READY) ## break formulas, one at a time, and see tests fail (hours for all; ARGS="--only NAME" for some)
	$(OFFLINE) $(ONE_THREAD) $(BIN)/python -m tests.mutants.run --jobs $(JOBS) $(ARGS)

lint: $(READY) ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## check types
	$(BIN)/mypy

format: $(READY) ## repair style and formatting where that is safe
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## run the benchmarks; what they print is kept in results/bench
	@mkdir -p results/bench; for script in benchmarks/bench_*.py; do name=$$(basename $$script .py); \
		echo "== $$script"; $(OFFLINE) $(BIN)/python "$$script" $(ARGS) > results/bench/$$name.part 2>&1 \
		|| { cat results/bench/$$name.part; exit 1; }; \
		mv results/bench/$$name.part results/bench/$$name.txt; cat results/bench/$$name.txt; done

docs: $(READY) $(DOCS) ## build the documentation in build/site, notebooks executed (once: kept in build/notebooks)
	NO_MKDOCS_2_WARNING=1 EXECUTE_NOTEBOOKS=1 $(OFFLINE) $(ONE_THREAD) $(BIN)/python -m mkdocs build $(ARGS)

dist: $(READY) ## build wheel and source archive in dist, check them, use the wheel in an empty environment (needs the network)
	bash .ci/check-dist $(BIN)/python

outputs: $(READY) ## write into the pages what their blocks of Python print; fails if a page showed something else
	OUTPUTS=write $(OFFLINE) $(ONE_THREAD) $(BIN)/python -m pytest -q -p no:cacheprovider tests/docs/test_outputs.py $(ARGS)

readme-figures: $(READY) ## write the tables of the records in docs/results into the pages
	$(BIN)/python docs/tables.py

# Files with hashes leave out torch and what only its CUDA build needs: which of torch's builds is right depends on the
# machine. Pins of constraints.txt that still fit are kept: remove a line, or say ARGS=--upgrade, for newer ones.
UNHASHED := (torch==|triton==|cuda-|nvidia-)
RESOLVE := $(BIN)/uv pip compile --quiet --no-annotate --no-header --no-emit-index-url
HASHED = { echo '$(1)'; awk '/^[^ ]/ { keep = !/^$(UNHASHED)/ } keep' '$(VENV)/resolved.txt'; } > requirements/$(2).txt

constraints: $(READY) ## resolve constraints.txt and requirements/ again (needs the network)
	cp constraints.txt '$(VENV)/resolved.txt'
	$(RESOLVE) pyproject.toml --extra dev --extra docs --universal --python-version 3.10 $(ARGS) \
		--output-file '$(VENV)/resolved.txt'
	@{ grep '^#' constraints.txt; grep -vE '^(#|cuda-|nvidia-|triton==)' '$(VENV)/resolved.txt'; } \
		> '$(VENV)/constraints.txt' && mv '$(VENV)/constraints.txt' constraints.txt
	$(RESOLVE) pyproject.toml --extra dev -c constraints.txt --universal --python-version 3.10 --generate-hashes \
		> '$(VENV)/resolved.txt'
	@$(call HASHED,# constraints.txt with hashes: `make constraints` writes this file.,dev)
	$(RESOLVE) pyproject.toml --extra docs -c constraints.txt --universal --python-version 3.10 --generate-hashes \
		> '$(VENV)/all.txt'
	@awk 'NR == FNR { seen[$$0]; next } /^[^ ]/ { keep = !($$0 in seen) } keep' requirements/dev.txt '$(VENV)/all.txt' \
		> '$(VENV)/resolved.txt'
	@$(call HASHED,# What building the documentation needs besides dev.txt: `make constraints` writes this file.,docs)
	@{ grep -v '^transformer-lens==' constraints.txt; echo 'transformer-lens<4'; } > '$(VENV)/three.txt' # SAELens needs 3
	$(RESOLVE) pyproject.toml --extra dev --extra judge -c '$(VENV)/three.txt' --universal --python-version 3.10 \
		--generate-hashes > '$(VENV)/resolved.txt'
	@$(call HASHED,# constraints.txt and the extra "judge" with hashes for TransformerLens 3: `make constraints` writes this file.,packages)
	$(RESOLVE) pyproject.toml $(foreach extra,circuitsvis onnx dask notebook dev docs,--extra $(extra)) \
		--resolution lowest-direct --python-version 3.10 \
		--python-platform x86_64-manylinux_2_28 --generate-hashes > '$(VENV)/resolved.txt'
	@$(call HASHED,# The oldest that pyproject.toml accepts: `make constraints` writes this file.,oldest)
	echo uv | $(RESOLVE) - --universal --generate-hashes > '$(VENV)/resolved.txt'
	@$(call HASHED,# Installs the others in seconds: `make constraints` writes this file.,uv)
	@{ grep '^#' requirements/transformer-lens.txt; \
		for pin in $$(grep -oE '^[a-z-]+==[^ ]+' requirements/transformer-lens.txt); do \
			echo "$$pin" | $(RESOLVE) - --no-deps --generate-hashes || exit 1; done; } > '$(VENV)/all.txt'
	@mv '$(VENV)/all.txt' requirements/transformer-lens.txt

clean: ## remove caches and build products; keeps .venv and results
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find tl_dyck hooks tests tools demos -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the virtual environments as well
	rm -rf '$(VENV)' .venv-oldest .venv-newest .venv-packages .venv-tl-*

# From a file with hashes, by uv, or by pip where uv does not get through (both check the hashes).
define INSTALL
	@{ [ '$(INSTALLER)' = uv ] && $(BIN)/uv pip install --python $(BIN)/python --no-deps --require-hashes --compile-bytecode \
		-r $(1); } || { echo "installing with pip, which takes longer" >&2; \
		$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r $(1); }
endef

$(READY): pyproject.toml constraints.txt requirements/dev.txt requirements/uv.txt requirements/transformer-lens.txt
	@[ -z '$(TL)' ] || bash .ci/pick-transformer-lens '$(TL)' >/dev/null
	@command -v '$(PYTHON)' >/dev/null || { echo "$(PYTHON) not found: install Python 3.10 or later," \
		"or name one with PYTHON=..." >&2; exit 1; }
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "tl_dyck needs Python 3.10 or" \
		"later, and $(PYTHON) is $$('$(PYTHON)' -V 2>&1): name another with PYTHON=..." >&2; exit 1; }
	@'$(PYTHON)' -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make virtual environments:" \
		"install its venv module (Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@if [ -f '$(READY)' ] && [ "$$(cat '$(READY)')" != '$(CURDIR)' ]; then \
		echo "this folder was moved: making $(VENV) again"; rm -rf '$(VENV)'; fi
	'$(PYTHON)' -m venv '$(VENV)'
	@[ '$(INSTALLER)' != uv ] || $(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/uv.txt
	$(call INSTALL,requirements/dev.txt)
	$(BIN)/python -m pip install -c constraints.txt torch
	@[ -z '$(TL)' ] || { bash .ci/pick-transformer-lens '$(TL)' >'$(VENV)/transformer-lens.txt' && \
		$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r '$(VENV)/transformer-lens.txt'; }
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@echo '$(CURDIR)' > $@

$(DOCS): $(READY) requirements/docs.txt
	$(call INSTALL,requirements/docs.txt)
	@touch $@
