# Everything runs from the virtual environment in .venv, which `bootstrap` makes and keeps current.
PYTHON := .venv/bin/python
PACKAGES := hydra topology drivers apps mininet_scenarios hydra_hybrid_network_client

# Tests start processes by the hundred, which else would each compile the sources anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help bootstrap demo test check lint style bench man site image screenshots clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

bootstrap:  ## install what is missing: Debian packages, .venv, the project (root)
	@scripts/bootstrap.sh test

demo:  ## the main job on an emulated fabric: HydRA's Fig. 9 (root, 2½ minutes; FULL=1: all of it)
	@scripts/bootstrap.sh demo
	$(PYTHON) -m mininet_scenarios.demo $(if $(FULL),,--quick)

AT_A_TIME := 5
BY_FILE := --dist loadfile --no-loadscope-reorder
test:  ## lint, types, unit tests and a core of tests on real Open vSwitch (root; FULL=1: all tests)
	@scripts/bootstrap.sh test
	@$(PYTHON) scripts/run_tests.py $(if $(FULL),--full)

check: lint  ## lint and the unit tests of what has changed since main: for while you work
	@tests=$$($(PYTHON) scripts/changed_tests.py) || exit; [ -n "$$tests" ] || exit 0; set -x; \
	$(PYTHON) -m pytest -q -m "not ovs and not quiet" -n $(AT_A_TIME) $(BY_FILE) $$tests || [ $$? = 5 ]

lint: style  ## formatting, lint, the direction of imports, and types
	$(PYTHON) -m mypy --strict

style: bootstrap  ## formatting, lint and the direction of imports
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	.venv/bin/lint-imports

bench: bootstrap  ## planner, rules, statistics and retagging against the clock (root)
	$(PYTHON) -m benchmarks

man: bootstrap  ## manual pages of the hydra command, in build/man
	$(PYTHON) scripts/man_pages.py build/man

site: bootstrap  ## the documentation as a site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

image:  ## the controller as a container image, hydra, by podman (root)
	@scripts/image.sh

screenshots: bootstrap  ## pictures of the dashboard for the documents, in docs/screenshots (root)
	$(PYTHON) -m benchmarks.screenshots

clean:  ## remove whatever a killed run left: processes, bridges, interfaces (root)
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m mininet_scenarios.testbed clean; fi
