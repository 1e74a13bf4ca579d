# Two commands for a newcomer: `make demo` and `make test`. Both set everything up by themselves.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-long check format reproduce bench lock clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 14

setup: $(READY)  ## the virtual environment with the locked dependencies, and a Java if the machine has none
$(READY): requirements/lock.txt requirements/java.txt pyproject.toml tools/setup.py
	@$(PYTHON) tools/setup.py $(VENV)

demo: $(READY)   ## a stream of sales joined with millions of products on Spark, into a warehouse, checked
	@$(RUN)/semistream demo

test: $(READY)   ## every test but the long campaigns (about half an hour on two cores)
	@$(RUN)/python -m pytest -n 2 --dist loadgroup -m "not long"

test-long: $(READY)  ## the long campaigns
	@$(RUN)/python -m pytest -m long

check: $(READY)  ## format, lint, strict types, direction of imports
	@$(RUN)/ruff format --check --diff .
	@$(RUN)/ruff check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports

format: $(READY) ## put the code into the house format
	@$(RUN)/ruff format .
	@$(RUN)/ruff check --fix .

reproduce: $(READY)  ## the papers' claims, rerun and judged (20 minutes)
	@$(RUN)/semistream reproduce

bench: $(READY)  ## the figures that fit into an hour, each against its baseline
	@for b in zipf scan random_reads build kernels uniform joins join_memory enrich; do $(RUN)/python benchmarks/$$b.py || exit 1; done
	@for s in sizes memory; do $(RUN)/python benchmarks/enrich.py $$s || exit 1; done

lock:            ## resolve the dependencies anew (needs uv)
	@tools/lock

clean:           ## remove what make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache artifacts demo
