# `make demo` and `make test` do all the set-up themselves on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test check lint types imports test-fast format docs native sanitize clean

demo: $(STAMP)
	$(BIN)/beamwood demo --out runs/demo --overwrite

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: $(STAMP) lint types imports test-fast

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/python -m mypy

imports: $(STAMP)
	PYTHONPATH=src $(BIN)/lint-imports

test-fast: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not real_data"

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The site is build/docs/index.html.
docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -b html -d build/doctrees docs build/docs

$(STAMP): pyproject.toml constraints.txt $(shell find native -type f 2>/dev/null)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs]"
	touch $@

clean:
	rm -rf build .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

# A development build: the module goes into src/beamwood, for use with PYTHONPATH=src.
native: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt nanobind
	cmake -S native -B build/native -DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DBEAMWOOD_OUTPUT=$(CURDIR)/src/beamwood
	cmake --build build/native --parallel 2

# The kernel tests under AddressSanitizer and UndefinedBehaviorSanitizer. Python itself is not built for the leak check.
sanitize: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt nanobind
	mkdir -p build/sanitized
	cp -r src/beamwood build/sanitized/
	cmake -S native -B build/sanitize -DCMAKE_BUILD_TYPE=Release -DBEAMWOOD_SANITIZE=ON -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DBEAMWOOD_OUTPUT=$(CURDIR)/build/sanitized/beamwood
	cmake --build build/sanitize --parallel 2
	PYTHONPATH=build/sanitized OMP_NUM_THREADS=1 BEAMWOOD_KERNELS=native ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so) $$(gcc -print-file-name=libstdc++.so)" \
	$(BIN)/python -m pytest -q -p no:cacheprovider -m "not slow" tests/kernels tests/sampling/test_in_batch_resampling.py tests/sampling/test_resample.py
