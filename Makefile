# Thin: every target is a line or two, and works from an empty checkout.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEVICE ?= sim:npu-phone
PHONE ?= npu-phone
FUZZ_SECONDS ?= 60
FRAMES ?= 100000
# Two processes more than there are cores, for many tests wait: for daemons, drivers and limits of time.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# COVERAGE=1 also tells how much of Python and C the tests run.
RUNNER := $(if $(COVERAGE),tests.measure_coverage,pytest)
# Each test process keeps to one core: threads of OpenMP that wait would take it from the others. And each
# program that a test starts finds our modules compiled, also where the environment is not to have such files.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m $(RUNNER) \
  -n $(JOBS) --dist worksteal
# Fixtures compile, for minutes in a new clone: the limit is for the test alone.
PYTEST += --timeout 120 -o timeout_func_only=true --junitxml $(CURDIR)/build/tests.xml

.PHONY: demo phone check test lint format docs generate agents wheel xnnpack judge bench sanitize \
  soak fuzz clean

demo: $(READY)  ## profile, partition, run and report MobileNetV2 on DEVICE, a simulated phone
	PATH="$(abspath $(BIN)):$$PATH" bash examples/demo.sh $(DEVICE)

phone: $(READY)  ## a real adbd with the NNAPI of PHONE, to try the way over ADB by hand
	$(BIN)/python tests/adbd/phone.py $(PHONE)

check: $(READY)  ## the quick tests: no adbd, Android, browser, PostgreSQL or documentation
	$(PYTEST) --quick

test: $(READY)  ## the tests; the slowest are listed at the end
	$(PYTEST)

test-all: $(READY)  ## the tests, and those that repeat others at another size, version or processor
	$(PYTEST) --everything

lint: $(READY)  ## ruff, mypy --strict, names, prose, docstrings, classes, import layers, generated files, clang-format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p nnapi_prof
	$(BIN)/python .ci/names.py
	$(BIN)/python .ci/prose.py
	$(BIN)/python .ci/docstrings.py
	$(BIN)/python .ci/classes.py
	$(BIN)/python benchmarks/figures.py --check
	$(BIN)/lint-imports
	$(BIN)/python .ci/generate_nnapi.py --check
	find device_agent partition -name '*.[ch]' -o -name '*.cpp' | xargs $(BIN)/clang-format --dry-run --Werror

format: $(READY)
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .
	find device_agent partition -name '*.[ch]' -o -name '*.cpp' | xargs $(BIN)/clang-format -i

docs: $(READY)  ## build/docs/index.html; warnings are errors
	$(BIN)/python -m sphinx -W --keep-going -n -q -b html docs build/docs

generate: $(READY)  ## rewrites what is generated from the NNAPI facts
	$(BIN)/python .ci/generate_nnapi.py

agents: $(READY)  ## agent and emulator for this machine; prints where they are
	$(BIN)/python -m nnapi_prof.device.build

wheel: $(READY)  ## a wheel with the agents for every device, into dist/ (minutes, the first time); same bytes for same sources
	NNAPI_PROF_CACHE_DIR=build/cache $(BIN)/python -m nnapi_prof.device.build --shipped
	rm -rf build/lib build/bdist.*; umask 022; \
	  SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} \
	  $(BIN)/python -m pip wheel -q --no-deps -w dist . ; status=$$?; \
	  $(BIN)/python -m nnapi_prof.device.build --clean; exit $$status

xnnpack: $(READY)  ## XNNPACK, for the emulator's device nnapi-fast; prints where it is
	NNAPI_PROF_CACHE_DIR=build/cache $(BIN)/python -m nnapi_prof.device.xnnpack

judge: $(READY)  ## the partitioner against brute forces: 20,000 random graphs, 2,000 in several precisions, 2,000 with processors at once
	NNAPI_PROF_EXAMPLES=$${NNAPI_PROF_EXAMPLES:-20000} $(BIN)/python -m tests.partition.trial
	$(BIN)/python -m tests.partition.precision_trial
	$(BIN)/python -m tests.partition.throughput_trial

bench: $(READY)  ## ratios against a baseline in the same run
	for f in benchmarks/bench_*.py; do $(BIN)/python $$f || exit 1; done

sanitize: $(READY)  ## the C tests and the solver under address and undefined-behaviour sanitizers, those of threads under TSan
	$(BIN)/python -m pytest -q --noconftest tests/partition/test_kernels_sanitized.py
	export NNAPI_PROF_XNNPACK="$$($(MAKE) -s xnnpack)" PATH="$(abspath $(BIN)):$$PATH"; \
	  cd device_agent && for p in host-sanitize host-threads; do \
	  cmake --preset $$p && cmake --build --preset $$p && ctest --preset $$p -j 2 || exit 1; done

soak: $(READY)  ## FRAMES through the runtime library under the thread and address sanitizers, drivers failing
	cd device_agent && export PATH="$(abspath $(BIN)):$$PATH" && for p in host-threads host-sanitize; do \
	  cmake --preset $$p && cmake --build --preset $$p --target test_queue \
	  && ../build/$$p/test_queue $(FRAMES) || exit 1; done

fuzz: $(READY)  ## what reads others' bytes under libFuzzer, FUZZ_SECONDS each (needs clang)
	cd device_agent && export PATH="$(abspath $(BIN)):$$PATH" && cmake --preset host-fuzz \
	  && cmake --build --preset host-fuzz
	mkdir -p $(addprefix build/host-fuzz/corpus/,request model bundle phone api)
	for t in request model bundle api; do build/host-fuzz/make_seeds $$t build/host-fuzz/corpus/$$t || exit 1; done
	cp device_agent/emulator/phones/*.json build/host-fuzz/corpus/phone
	$(BIN)/python -m zipfile -e device_agent/fuzz/api_corpus.zip build/host-fuzz/corpus/api
	for t in request model bundle phone api; do echo "fuzz_$$t" && build/host-fuzz/fuzz_$$t \
	  -max_total_time=$(FUZZ_SECONDS) -max_len=16384 -timeout=20 -verbosity=0 -print_final_stats=1 \
	  -artifact_prefix=build/host-fuzz/ build/host-fuzz/corpus/$$t || exit 1; done

# A machine without python3-venv but with pip gets virtualenv into a folder of its own.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  $(PYTHON) -m pip install -q --target build/virtualenv virtualenv && \
	  PYTHONPATH=build/virtualenv $(PYTHON) -m virtualenv -q $(VENV); }
	$(BIN)/python -m pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev,executorch]'
	touch $@

clean:
	rm -rf build out $(VENV)
