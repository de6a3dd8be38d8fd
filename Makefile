# Everything a person or CI runs here. `make setup` once; every other target does it when it is needed.

SEEDS ?= 2000
KILLS ?= 1000
# Six a core: in most files with an emulator a worker waits more than it computes.
WORKERS ?= 12
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
# The first Python on this machine that is 3.11 or newer and works (a shim may be there and fail).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# A uv that is here already.
UV := $(firstword $(wildcard $(BIN)/uv) $(shell command -v uv))
# Tests and measurements do not use the state of the user who runs them; the demo leaves its sweep where
# the next command looks.
unit emulators test-all campaign bench simulate soak mutants live-modal live-daytona live-kubernetes test-frameworks quick-tests quick-lives: export FLEETCTL_HOME ?= $(CURDIR)/.fleetctl
# Else each of the thousands of Pythons that tests start would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo check test test-all campaign needs lint quick-lint quick-tests quick-lives unit emulators docs reference image bench simulate soak live-modal \
	live-daytona live-kubernetes sdk-bounds oracle test-frameworks mutants lock clean

help:
	@echo "make setup     a .venv with everything, from pinned and hashed requirements"
	@echo "make demo      a real sweep on this machine, to its best trial"
	@echo "make check     under a minute: linters, types, imports, the tests nearest to what changed, 20 lives"
	@echo "make test      all that, and every other test"
	@echo "make test-all  everything there is, in hours; docs/reference/track-record.md has the last run"
	@echo "make campaign  tests that take days, piece by piece: kills, power cuts, odd manifests"
	@echo "make needs     installs the programs that tests need, by apt-get"
	@echo "make emulators  the emulators' own suite; make test runs it when they have changed"
	@echo "make docs      the documentation as pages below site/"
	@echo "make reference writes docs/reference, specs/schemas and deploy from the code"
	@echo "make bench     the measured table of docs/reference/figures.md"
	@echo "make simulate  SEEDS=$(SEEDS) simulated lives of the engine, with crashes and faults"
	@echo "make mutants   faults of the product, each against the test that must fail; minutes"
	@echo "make soak      KILLS=$(KILLS) times kill -9 of a real controller, then of a training and of operators"
	@echo "make sdk-bounds  the tests of each extra with the oldest and the newest packages that it allows"
	@echo "make test-frameworks  real Hugging Face, Lightning, Orbax, Ray, dspy; needs a registry, minutes"
	@echo "make image     wheels for deploy/Containerfile, and the command that builds it"
	@echo "make oracle    records again what W&B's own search library draws; needs a registry, and minutes"
	@echo "make live-modal  the suite of all providers at the real Modal; needs a token, costs cents"
	@echo "make live-daytona  the same at the real Daytona; needs a key, costs cents"
	@echo "make live-kubernetes  the same in a namespace of its own of the current context's cluster"

setup: .venv/ready

# By path (compat): else a directory called fleetctl beside a script would be imported instead.
# By uv in a third of pip's time; by pip where only that knows the way to a registry.
.venv/ready: requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: fleetctl needs Python 3.11 or newer on PATH" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	awk '/^[a-z]/ { on = /^uv==/ } on' requirements/dev.txt > .venv/uv.txt
	$(PIP) --require-hashes -r .venv/uv.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --compile-bytecode --require-hashes \
		-r requirements/dev.txt || $(PIP) --require-hashes -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	$(BIN)/python -m compileall -q fleetctl
	@touch $@

# What a user has and no more: the core, uv for the demo's image, the command. By pip without a copy
# of its own, which would take most of the time, where the Python that makes it has one.
.demo/ready: requirements/core.txt requirements/dev.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: fleetctl needs Python 3.11 or newer on PATH" >&2; exit 1; }
	$(PYTHON) -m venv --clear --without-pip .demo
	awk '/^[a-z]/ { on = /^uv==/ } on' requirements/dev.txt > .demo/uv.txt
	awk '/^[a-z]/ { on = /^setuptools==/ } on' requirements/dev.txt | \
		cat requirements/core.txt .demo/uv.txt - > .demo/pins.txt
	@if test -n "$(UV)"; then \
		$(UV) pip install -q --python .demo/bin/python --require-hashes -r .demo/pins.txt; \
	else \
		pip="$(PYTHON) -m pip --python .demo/bin/python"; \
		$(PYTHON) -c 'import pip' 2> /dev/null || \
			{ pip=".demo/bin/python -m pip"; .demo/bin/python -m ensurepip > /dev/null; }; \
		pip="$$pip install -q --disable-pip-version-check --no-compile --no-deps --require-hashes"; \
		$$pip -r .demo/uv.txt && \
		{ .demo/bin/uv pip install -q --python .demo/bin/python --require-hashes -r .demo/pins.txt || \
			$$pip -r .demo/pins.txt; }; \
	fi
	.demo/bin/uv pip install -q --python .demo/bin/python --offline --no-deps --no-build-isolation \
		--config-settings editable_mode=compat -e .
	@touch $@

demo: .demo/ready
	.demo/bin/fleetctl apply -f specs/examples/sweep.yaml --wait
	@.demo/bin/fleetctl get sweeps
	@.demo/bin/fleetctl status
	@echo "Look at it: .demo/bin/fleetctl results sweep/digits --best --top 3"
	@echo "\`.demo/bin/fleetctl down\` ends the controller."

lint: quick-lint
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q -d .site

# What one runs while one works, in three quarters of a minute on two cores: the tests nearest to what
# git shows as changed (tests/nearest.py). SINCE=COMMIT: changed since that one.
check: setup
	@$(MAKE) --no-print-directory -j3 quick-lint quick-tests quick-lives

quick-lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -p no:cacheprovider tests/style

quick-tests: setup
	@files="$$($(BIN)/python -m tests.nearest)" && $(BIN)/python -m tests.workers 3 \
		--dist loadgroup --hypothesis-profile check $$files

quick-lives: setup
	$(BIN)/python -m tests.simulation 20

# Offline: the theme brings its scripts, and no font is fetched.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q

reference: setup
	$(BIN)/python -m fleetctl.manifest.schemas
	$(BIN)/python -m fleetctl.operator.crds.write deploy
	$(BIN)/python -m tests.docs.reference

unit: setup
	$(BIN)/python -m tests.workers $(WORKERS) --dist loadgroup --timeout 1200 --timeout-method thread \
		--ignore tests/style

# Of `make test` a part when they or pinned packages changed; it writes tests/emulators/suite.passed.
emulators: setup
	$(BIN)/python -m tests.workers 8 --dist loadgroup --timeout 1200 --timeout-method thread \
		tests/emulators/suite

# The linters take half a minute of one core, beside the tests; each must be well.
test: setup
	@$(MAKE) --no-print-directory -j2 lint unit

# Hours; what has passed at this commit is not run again, unless AGAIN=1. PARTS="lives mutants": some.
test-all: setup
	$(BIN)/python -m tests.record $(if $(AGAIN),--again) $(PARTS)

# Hours, in pieces: kills, changed manifests, power cuts, attacks, lives. It goes on where it stopped;
# MINUTES=30: so long. PROCESSES=2: pieces at once. PARTS="cuts kills": some.
campaign: setup
	$(BIN)/python -m tests.record --campaign $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(PROCESSES),--processes $(PROCESSES)) $(PARTS)

# Programs that tests need and this machine lacks, by apt-get.
needs: setup
	$(BIN)/python -m tests.needs

# The image is built of these without a network.
image: setup
	rm -rf dist
	$(BIN)/python -m pip wheel -q --disable-pip-version-check -w dist '.[kubernetes,server]'
	@$(BIN)/python -c 'import sys; print("podman build -f deploy/Containerfile -t fleetctl:0.1.0 \
	--build-arg BASE=python:%d.%d-slim ." % sys.version_info[:2])'

bench: setup
	$(BIN)/python -m tests.bench

simulate: setup
	$(BIN)/python -m tests.simulation $(SEEDS)

soak: setup
	$(BIN)/python -m tests.soak $(KILLS)

# Each in a copy of the tree, by the test that it names; see tests/mutants/README.md.
mutants: setup
	$(BIN)/python -m tests.mutants

# EXTRA=modal: of that one alone. Needs a registry, and minutes.
sdk-bounds: setup
	$(BIN)/python -m tests.bounds $(EXTRA)

live-modal: setup
	$(BIN)/python -m tests.live modal

live-daytona: setup
	$(BIN)/python -m tests.live daytona

live-kubernetes: setup
	$(BIN)/python -m tests.live kubernetes

# The golden values of tests/golden/sweeps, by W&B's own library in an environment of its own.
oracle: .oracle/ready
	OPENBLAS_NUM_THREADS=1 .oracle/bin/python tests/golden/sweeps/oracle.py tests/golden/sweeps
	git diff --stat -- tests/golden/sweeps

.oracle/ready:
	$(PYTHON) -m venv .oracle
	.oracle/bin/python -m pip install -q --disable-pip-version-check 'sweeps==0.3.0' 'numpy<2'
	@touch $@

# The lock files name versions and hashes and no registry.
lock:
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate pyproject.toml requirements/test.in -o requirements/dev.txt
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--no-annotate pyproject.toml -o requirements/core.txt

clean:
	rm -rf .venv .demo .oracle .bounds dist site .site .fleetctl .mypy_cache .ruff_cache .style_cache.json .hypothesis *.egg-info

# Real Hugging Face, Lightning and Orbax on CPU, in environments of their own. Needs a registry, 6 GB
# and minutes.
test-frameworks: setup .frameworks/ready .frameworks/ray .frameworks/dspy .frameworks/fleet-rlm
	$(BIN)/python -m pytest tests/frameworks/suite.py
	FLEETCTL_TEST_VALUES=$(CURDIR)/.frameworks/torch/bin/python \
		$(BIN)/python -m pytest tests/frameworks/real_values.py
	FLEETCTL_TEST_RAY=$(CURDIR)/.frameworks/ray/bin $(BIN)/python -m pytest tests/frameworks/real_ray.py
	FLEETCTL_TEST_DSPY=$(CURDIR)/.frameworks/dspy/bin/python \
		FLEETCTL_TEST_FLEET_RLM=$(CURDIR)/.frameworks/fleet-rlm/bin/python \
		$(BIN)/python -m pytest tests/frameworks/real_dspy.py tests/frameworks/real_litellm.py

.frameworks/ray:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install -q --disable-pip-version-check ray

.frameworks/dspy:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install -q --disable-pip-version-check \
		--config-settings editable_mode=compat -e '.[dspy,modal,daytona]' || { rm -rf $@; exit 1; }

# It pins a Daytona SDK, which is one of ours.
.frameworks/fleet-rlm:
	$(PYTHON) -m venv $@
	$@/bin/python -m pip install -q --disable-pip-version-check fleet-rlm==0.8.1 \
		--config-settings editable_mode=compat -e '.[modal,daytona]' || { rm -rf $@; exit 1; }

.frameworks/ready: tests/frameworks/requirements-torch.txt tests/frameworks/requirements-orbax.txt
	for name in torch orbax; do \
		$(PYTHON) -m venv .frameworks/$$name && .frameworks/$$name/bin/python -m pip install -q \
			--disable-pip-version-check -r tests/frameworks/requirements-$$name.txt || exit 1; \
	done
	@touch $@
