# `make demo` and `make test` include the whole set-up on a new machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test test-long check lint types imports report format docs fuzz survive native sanitize sanitize-threads dist aarch64 browser servers emulators clean

comma := ,
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Debian packages that some tests need, installed if possible; without them, these tests are skipped with a reason.
define debian
	@if [ "$$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then echo "$(1): not installed; as root, run apt-get install $(1)"; \
	else apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends $(1) \
	> /dev/null || echo "$(1): could not be installed"; fi
endef

demo: $(STAMP)
	$(BIN)/beamwood demo --out runs/demo --overwrite

# A short form of every test.
test: $(STAMP) browser servers
	$(PYTEST) -m "not slow and not real_data"

# The other tests: long trainings, wheels, emulated processors, and real logs if available.
test-long: $(STAMP) browser servers emulators
	-$(MAKE) aarch64
	$(PYTEST) -m "slow or real_data"

# Random calls, commands, damaged folders and logs; tests/fuzz/run.py documents the environment variables.
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py

# Commands killed at 200 random points; tests/survive/run.py documents the environment variables.
survive: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python tests/survive/run.py

check: lint types imports report test

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/python -m mypy

imports: $(STAMP)
	PYTHONPATH=src $(BIN)/lint-imports

# Checks that tables match their lines and that no measured figure is typed by hand.
report: $(STAMP)
	$(BIN)/python -m benchmarks report --check

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Builds the documentation site, build/docs/index.html.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/doctrees docs build/docs

# torch is pinned and installed first: as a dependency of another package it would include gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt $(shell find native -type f 2>/dev/null)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

browser:
	$(if $(shell command -v chromium),,$(call debian,chromium))

servers:
	$(if $(shell command -v redis-server),,$(call debian,redis-server))
	$(if $(wildcard /usr/lib/postgresql/*/bin/postgres),,$(call debian,postgresql))
	$(if $(shell command -v haproxy),,$(call debian,haproxy))

emulators:
	$(if $(shell command -v qemu-aarch64),,$(call debian,qemu-user))
	$(if $(shell command -v aarch64-linux-gnu-g++),,$(call debian,g++-aarch64-linux-gnu))
	$(if $(shell command -v cmake),,$(call debian,cmake))

# The distributions: the sdist, and the wheel built from it.
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build

# An aarch64 Python with beamwood under emulation, for the tests.
aarch64: $(STAMP) emulators
	native/aarch64.sh build/aarch64 $(BIN)/python

clean:
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Builds the native module into src/beamwood. It is used where the installation has none, as pip could not build one.
native: $(STAMP)
	cmake -S native -B build/native -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DBEAMWOOD_OUTPUT=$(CURDIR)/src/beamwood
	cmake --build build/native --parallel 2

# The native core's tests under sanitizers: address and undefined behaviour, or threads. Leak checks are off because Python
# is not built for them. Polars cannot be imported under the thread sanitizer, so its tests cover only kernels.
# The base Python runs them, with the packages of $(VENV) as a folder: $(BIN)/python would import its installed core.
SANITIZED = BEAMWOOD_SANITIZED=1 OMP_NUM_THREADS=1 BEAMWOOD_KERNELS=native ASAN_OPTIONS=detect_leaks=0 \
	UBSAN_OPTIONS=print_stacktrace=1
BASE = $$($(BIN)/python -c 'import sys; print(sys._base_executable)')
PACKAGES = $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
NATIVE_TESTS = tests/kernels tests/sampling/test_in_batch_resampling.py tests/sampling/test_resample.py \
	$(addprefix tests/retrieval/test_,processes.py rare_filters.py tree_history.py effort.py filters_and_exclusions.py)

# sanitized(folder, sanitizers, libraries, tests)
define sanitized
	mkdir -p build/$(1)
	cp -r src/beamwood build/$(1)/ && rm -f build/$(1)/beamwood/_native*
	cmake -S native -B build/$(1)-native -DCMAKE_BUILD_TYPE=Release -DBEAMWOOD_SANITIZE=$(2) -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DBEAMWOOD_OUTPUT=$(CURDIR)/build/$(1)/beamwood
	cmake --build build/$(1)-native --parallel 2
	export PYTHONPATH="$(CURDIR)/build/$(1):$(PACKAGES)" $(SANITIZED) LD_PRELOAD="$(foreach library,$(3),$$(gcc -print-file-name=lib$(library).so))"; \
	$(BASE) -c 'import beamwood._native as core; assert "/build/$(1)/" in core.__file__, core.__file__' && \
	$(BASE) -m pytest -q -p no:cacheprovider -m "not slow and not real_data" $(4)
endef

sanitize: $(STAMP)
	$(call sanitized,sanitized,'address$(comma)undefined',asan ubsan stdc++,$(NATIVE_TESTS))

sanitize-threads: $(STAMP)
	$(call sanitized,sanitized-threads,thread,tsan stdc++,$(addprefix tests/kernels/test_,background.py search.py steering.py workers.py))
