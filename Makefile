# Thin over dev.py, which says what each step does. Arguments: make test ARGS="tests/core -k fence"
PYTHON ?= python3
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: demo test test-all lint types bench model clean help

demo: ## a crash, and what indoubt does about it
	@$(PYTHON) dev.py demo $(ARGS)

test: ## lint, types and tests
	@$(PYTHON) dev.py test $(ARGS)

test-all: ## lint and types, then the tests on every Python found
	@$(PYTHON) dev.py test-all $(ARGS)

lint: ## ruff and the import contracts
	@$(PYTHON) dev.py lint $(ARGS)

types: ## pyright, strict
	@$(PYTHON) dev.py types $(ARGS)

bench: ## the benchmarks
	@$(PYTHON) dev.py bench $(ARGS)

model: ## every order of the protocol's steps, large bounds
	@$(PYTHON) dev.py model $(ARGS)

clean: ## remove environments, caches and build products
	@$(PYTHON) dev.py clean

help: ## this list
	@sed -n 's/^\([a-z-]*\): ## /\1\t/p' Makefile | expand -t 12
