# Everything a person or CI runs here. `make setup` once; every other target does it when it is needed.

SEEDS ?= 2000
DAYTONA_SDKS ?= 0.226.0 0.226.1
DAYTONA_TESTS ?= tests/unit/providers/test_daytona_private.py tests/contracts/test_provider_daytona.py \
	tests/servers/test_daytona_odd_answers.py tests/servers/test_daytona_assets.py
KILLS ?= 1000
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
# The first Python on this machine that is 3.11 or newer and works (a shim may be there and fail).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
export FLEETCTL_HOME ?= $(CURDIR)/.fleetctl
# Else each of the thousands of Pythons that tests start would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test lint unit bench simulate soak live-modal live-daytona sdk-daytona schemas lock clean

help:
	@echo "make setup     a .venv with everything, from pinned and hashed requirements"
	@echo "make demo      a real sweep on this machine, to its best trial"
	@echo "make test      linters, types, layers and all tests"
	@echo "make bench     the measured table of the README"
	@echo "make simulate  SEEDS=$(SEEDS) simulated lives of the engine, with crashes and faults"
	@echo "make soak      KILLS=$(KILLS) times kill -9 of a real controller"
	@echo "make live-modal  the suite of all providers at the real Modal; needs a token, costs cents"
	@echo "make sdk-daytona  the provider's tests with the oldest and the newest allowed SDK"
	@echo "make live-daytona  the same at the real Daytona; needs a key, costs cents"

setup: .venv/ready

# By uv in a third of pip's time; by pip where only that knows the way to a registry.
.venv/ready: requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: fleetctl needs Python 3.11 or newer on PATH" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	awk '/^[a-z]/ { on = /^uv==/ } on' requirements/dev.txt > .venv/uv.txt
	$(PIP) --require-hashes -r .venv/uv.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes \
		-r requirements/dev.txt || $(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q fleetctl specs controllers
	@touch $@

demo: setup
	$(BIN)/fleetctl apply -f specs/examples/sweep.yaml --wait
	@$(BIN)/fleetctl get sweeps
	@echo "The state is in $(FLEETCTL_HOME); \`$(BIN)/fleetctl down\` ends the controller."

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Collected once before: workers that begin at once would each compile every test.
unit: setup
	$(BIN)/pytest --collect-only -qq > /dev/null || true
	$(BIN)/pytest -n 6 --dist loadgroup

# The linters take half a minute of one core, beside the tests; each must be well.
test: setup
	@$(MAKE) --no-print-directory -j2 lint unit

bench: setup
	$(BIN)/python -m tests.bench

simulate: setup
	$(BIN)/python -m tests.simulation $(SEEDS)

soak: setup
	$(BIN)/python -m tests.soak $(KILLS)

live-modal: setup
	$(BIN)/python -m tests.live modal

live-daytona: setup
	$(BIN)/python -m tests.live daytona

# The oldest and the newest allowed version of Daytona's SDK, each before the one of .venv on the
# path: the provider's suite, and a tour of the server tests. Minutes; CI moves the upper bound of
# pyproject.toml when the newest passes.
sdk-daytona: setup
	for version in $(DAYTONA_SDKS); do \
		$(BIN)/uv pip install -q --python $(BIN)/python --target .sdk/daytona-$$version \
			"daytona==$$version" || exit 1; \
		PYTHONPATH=.sdk/daytona-$$version $(BIN)/python -c "import importlib.metadata as m; \
assert m.version('daytona') == '$$version', m.version('daytona')" || exit 1; \
		PYTHONPATH=.sdk/daytona-$$version $(BIN)/pytest $(DAYTONA_TESTS) -n 2 || exit 1; \
	done

schemas: setup
	$(BIN)/python -m fleetctl.manifest.schemas

# The lock files name versions and hashes and no registry.
lock:
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate pyproject.toml requirements/test.in -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate pyproject.toml -o requirements/core.txt

clean:
	rm -rf .venv .sdk .fleetctl .mypy_cache .ruff_cache .hypothesis *.egg-info
