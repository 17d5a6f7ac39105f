# Everything runs from the virtual environment in .venv, which `bootstrap` makes and keeps current.
PYTHON := .venv/bin/python
PACKAGES := hydra topology drivers apps mininet_scenarios

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

# More at a time than there are processors: tests wait for devices, for packets, for time to pass.
# Those with Open vSwitch each have a network and an Open vSwitch of their own, where the machine
# allows that. Those that look at what the machine can do come last.
AT_A_TIME := 5
NETWORKS := 4
QUIET := 2
# In the order of tests/conftest.py: xdist's own begins with the files that have most tests.
BY_FILE := --dist loadfile --no-loadscope-reorder
ON_SWITCHES := tests/integration tests/conformance
# These compute, and never wait: they run, as types are checked, by what all others leave of the
# processors. What they print comes when those are over.
COMPUTING := $(wildcard $(addprefix tests/unit/,demo experiments forwarding offline reconfiguration \
	reservations sharing topology traces config/test_patterns.py controller/test_requested_beside.py \
	controller/test_stages_beside.py docs/test_references.py drivers/test_*codec*.py \
	drivers/test_json_stream.py openflow/test_rule_bytes.py))
PRINTED := build/computed.log
# What took longest is listed at the end of each stage.
SLOWEST := --durations 25 --durations-min 2
test: style  ## formatting, lint, types and all tests, on real Open vSwitch and Mininet (root)
	@mkdir -p $(dir $(PRINTED))
	@set -f; own() { echo "$(BY_FILE) --tx $$1*popen//python=tests/own_network.sh"; }; \
	tests/own_network.sh -c "" || { echo "no networks of their own here: one at a time"; own() { :; }; }; \
	set -x; chrt --idle 0 $(PYTHON) -m mypy --strict & types=$$!; \
	chrt --idle 0 $(PYTHON) -m pytest -m "not ovs and not quiet" -n 2 $(BY_FILE) $(SLOWEST) $(COMPUTING) \
		>$(PRINTED) 2>&1 & computed=$$!; \
	$(PYTHON) -m pytest -m "not ovs and not quiet" -n $(AT_A_TIME) $(BY_FILE) $(SLOWEST) \
		$(COMPUTING:%=--ignore=%) && \
	$(PYTHON) -m pytest -m "ovs and not quiet" $(ON_SWITCHES) $(SLOWEST) $$(own $(NETWORKS)); tests=$$?; \
	wait $$types; types=$$?; wait $$computed; computed=$$?; cat $(PRINTED); \
	[ "$$tests $$types $$computed" = "0 0 0" ] && \
	$(PYTHON) -m pytest -m quiet $(SLOWEST) $$(own $(QUIET))

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
