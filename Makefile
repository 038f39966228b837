# `make` alone lists the targets. Every target does its own set-up (tools/setup.sh).

SHELL := /bin/bash
export PATH := $(CURDIR)/build:$(PATH)
export PYTHONPATH := $(CURDIR)/python
VENV := build/venv/bin/python

.DEFAULT_GOAL := help
.PHONY: help run test check cases fuzz bench bench-peers bench-gpu dist gen build setup clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: build ## train a digit classifier on 4 ranks over ringlane, and over gloo beside it
	@build/ringlane run -n 4 -- $(VENV) examples/digits.py

test: build ## run all tests, Go and Python
	@tools/test.sh

check: build ## format, vet, lint, generated files
	@tools/check.sh

cases: build ## doctor and topo on captures of real machines, where ../shared/cases is at hand
	@if [ -x ../shared/cases/score.py ]; then ../shared/cases/score.py build/ringlane; \
	else echo "cases: skipped: ../shared/cases is not here"; fi

fuzz: ## run every fuzz target for FUZZTIME each (10m)
	@tools/fuzz.sh

bench: build ## time AllReduce on 2 and 4 ranks, size by size
	@build/ringlane bench allreduce -n 2,4

bench-peers: build ## the same beside three MPIs and gloo, with ratios and a plot (some 10 minutes)
	@tools/setup-peers.sh
	@$(VENV) bench/peers.py

bench-gpu: build ## collectives on GPUs beside NCCL and torch's symmetric memory, and faults (ARGS=--help)
	@$(VENV) bench/gpu.py $(ARGS)

dist: setup ## a folder that runs without Go and network: dist/ringlane-VERSION-linux-ARCH
	@tools/dist.sh

gen: setup ## write the generated files again
	go generate ./...
	tools/setup-ptx.sh
	$(VENV) tools/ptx.py
	go run ./cmd/ringlane topo --format svg --from testdata/machines/4gpu-2switch-redirect -o docs/topo.svg

build: setup ## build/ringlane and build/libringlane.so
	@CGO_ENABLED=0 go build -o build/ringlane ./cmd/ringlane
	@CGO_ENABLED=1 go build -buildmode=c-shared -o build/libringlane.so ./capi

setup: ## install what is missing; make the virtual environment (in ~/.cache/ringlane)
	@tools/setup.sh

clean: ## remove what was built here (the cached virtual environment stays)
	rm -rf build dist python/ringlane.egg-info python/ringlane/_lib .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
