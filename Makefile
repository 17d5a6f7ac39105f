# Everything runs from the virtual environment in .venv, which `bootstrap` makes and keeps current.
PYTHON := .venv/bin/python
PACKAGES := hydra topology drivers apps mininet_scenarios

.DEFAULT_GOAL := help
.PHONY: help bootstrap demo test lint bench man site screenshots clean

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

bootstrap:  ## install what is missing: Debian packages, .venv, the project (root)
	@scripts/bootstrap.sh

demo: bootstrap  ## the main job on an emulated fabric: HydRA's Fig. 9 (root, a few minutes)
	$(PYTHON) -m mininet_scenarios.demo

# Those with Open vSwitch: two at a time, each with a network and an Open vSwitch of its own, where
# the machine allows that; then, one by one, those that look at what the machine can do. What fails
# beside others, where seconds are short, has one more try alone, and is told of either way.
BESIDE := not ovs and not alone
NETWORKS := ovs and not alone
ALONE_AGAIN = [ $$? = 1 ] && echo "failed beside others, so once more, alone:" && \
	$(PYTHON) -m pytest --last-failed --last-failed-no-failures none
test: lint  ## lint, then all tests, on real Open vSwitch and Mininet (root)
	$(PYTHON) -m pytest -m "$(BESIDE)" -n 3 --dist loadfile || { $(ALONE_AGAIN) -m "$(BESIDE)"; }
	@set -f; own="--dist loadfile --tx 2*popen//python=tests/own_network.sh"; \
	tests/own_network.sh -c "" || { echo "no networks of their own here: one at a time"; own=; }; \
	set -x; $(PYTHON) -m pytest -m "$(NETWORKS)" $$own || { $(ALONE_AGAIN) -m "$(NETWORKS)"; }
	$(PYTHON) -m pytest -m alone

lint: bootstrap  ## formatting, lint, types and the direction of imports
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy --strict
	.venv/bin/lint-imports

bench: bootstrap  ## planner, rules, statistics and retagging against the clock (root)
	$(PYTHON) -m benchmarks

man: bootstrap  ## manual pages of the hydra command, in build/man
	$(PYTHON) scripts/man_pages.py build/man

site: bootstrap  ## the documentation as a site, in build/site; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

screenshots: bootstrap  ## pictures of the dashboard for the documents, in docs/screenshots (root)
	$(PYTHON) -m benchmarks.screenshots

clean:  ## remove whatever a killed run left: processes, bridges, interfaces (root)
	@if [ -x $(PYTHON) ]; then $(PYTHON) -m mininet_scenarios.testbed clean; fi
