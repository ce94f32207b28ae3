# One word for each thing people do here; CMake and the scripts do the work (CONTRIBUTING.md).
# Works from any folder (make -C) and under paths with spaces: every recipe runs in this folder.
.PHONY: help setup build demo test test-pure test-training bench-smoke lint format clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
RELEASE := build/release
PROMPT ?= Explain in three sentences why the sky is blue.
export PROMPT

help:
	@echo "make demo       set up, build and answer one prompt"
	@echo "make test       set up, build and run all tests"
	@echo "make setup      fetch what the build needs into deps/"
	@echo "make build      build/release/bastion"
	@echo "make test-pure  tests of the parts without ggml, under sanitizers"
	@echo "make test-training  the training package on a tiny model (fetches PyTorch, gigabytes)"
	@echo "make bench-smoke  a short benchmark with the embedded models"
	@echo "make lint       include direction, format and static analysis"
	@echo "make format     reformat our sources"
	@echo "make clean      remove build/ (deps/ stays)"
	@echo "Variables: JOBS=n, PROMPT='text' (demo)"

setup:
	@scripts/setup.sh

# Tests are left out where nobody asked for them: GoogleTest is then not needed.
build: setup
	@test -f $(RELEASE)/build.ninja || cmake --preset release -DBASTION_TESTS=OFF
	@cmake --build --preset release --parallel $(JOBS) --target bastion

demo: build
	@$(RELEASE)/bastion generate --method tree --stats text --prompt "$$PROMPT"

test:
	@scripts/setup.sh --tests
	@cmake --preset release -DBASTION_TESTS=ON
	@cmake --build --preset release --parallel $(JOBS)
	@ctest --preset release

# Thread sanitizer cannot place its shadow memory under strong address randomisation; setarch -R turns that off.
test-pure:
	@scripts/setup.sh --tests
	@run=$$(setarch -R true 2>/dev/null && echo "setarch -R"); \
	for preset in asan tsan; do \
	    cmake --preset $$preset -DBASTION_TESTS=ON && \
	    $$run cmake --build --preset $$preset --parallel $(JOBS) && \
	    $$run ctest --preset $$preset || exit 1; \
	done

test-training:
	@scripts/setup.sh --tests --training
	@cmake --preset release -DBASTION_TESTS=ON
	@cmake --build --preset release --parallel $(JOBS) --target bastion
	@deps/venv/bin/python tests/models/make_models.py $(RELEASE)/test-models
	@deps/training/bin/python -m unittest -v training.tests.test_pure training.tests.test_pipeline

bench-smoke: build
	@$(RELEASE)/bastion bench --prompts docs/examples/prompts.jsonl --methods ar,chain,tree,llama.cpp \
	    --max-tokens 64 --out build/bench-smoke.json

lint:
	@scripts/setup.sh --tests
	@cmake --preset release -DBASTION_TESTS=ON >/dev/null
	@JOBS=$(JOBS) scripts/lint.sh

format:
	@scripts/lint.sh fix

clean:
	@rm -rf build
