# Everything that needs only Python, make and the package index. `make` alone lists the targets.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt
INPUTS := pyproject.toml constraints.txt
LOWEST := .venv-lowest
NETLISTS := .venv-netlists
EXTRAS := cpsat,fast,hdf5,plots,frames,usb,i2c,ftdi,mcp2221,cluster,epics,page,qcodes,bluesky,pymeasure

# Small matrices: a BLAS that starts threads on a busy machine is slower by an order of magnitude.
export OPENBLAS_NUM_THREADS := 1
# The processes that tests start import from byte code, not from source each time.
unexport PYTHONDONTWRITEBYTECODE

# A test that stands still for a quarter of an hour waits for ever: its stacks are printed and its worker ends.
BOUNDED := -o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true --max-worker-restart 0

.PHONY: help demo docs test checks suite test-long test-lowest test-netlists chaos campaign clean
.DELETE_ON_ERROR:

help:
	@echo "make demo       run the main job on the emulated bench: calibrate, connect, break, recover"
	@echo "make docs       the book, as web pages in site/; needs no network once its tools are installed"
	@echo "make test       lint, types, import contracts and the test suite"
	@echo "make test-long  more seeds, fuzz and chaos"
	@echo "make test-lowest  a part of the suite at the oldest versions that pyproject.toml allows"
	@echo "make test-netlists  the tests with netlists that an installed gdsfactory writes"
	@echo "make chaos      an hour of faults at random instants, by hand; TRIES=1000 SEED=1"
	@echo "make campaign   hours of seeds, fuzz and chaos, by hand; results in benchmarks/results"
	@echo "make clean      remove what the targets above made"

demo: $(VENV)/.installed
	$(BIN)/lumion demo

# Warnings are errors: a broken link, a page without a place. With --quiet mkdocs does not count warnings.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html; with its search: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

# Both beside each other: the checks keep one core busy for half a minute.
test: $(VENV)/.installed-test
	$(MAKE) --no-print-directory --jobs 2 checks suite

checks: $(VENV)/.installed-test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

# Three workers on two cores: tests wait for links, watchdogs, processes, but each worker costs CPU time to collect.
suite: $(VENV)/.tests-rewritten
	$(BIN)/pytest -m "not long and not campaign" -n 3 --dist loadscope $(BOUNDED)

# In the order of tests/conftest.py, which begins with the longest modules.
test-long: $(VENV)/.installed-test
	$(BIN)/pytest -m "(long or hypothesis) and not campaign" --hypothesis-profile long -n 3 --dist loadscope \
	  --no-loadscope-reorder $(BOUNDED)

# The tests that meet what the package is built on: arrays, sparse graphs, solvers, models, files, the command line, the page.
# Old releases warn about newer ones beside them, so that warnings are no errors here.
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -m "not long and not campaign" -W default --disable-warnings -n 2 $(BOUNDED) \
	  tests/storage tests/files tests/mesh/record tests/mesh/routing tests/mesh/waves/test_solver_engines.py \
	  tests/bench/file/test_loader*.py tests/acquisition tests/schedules/test_demand.py tests/schedules/test_prepared_file.py \
	  tests/cli/test_cli_main.py tests/cli/common/test_cli_output.py tests/cli/test_cli_scan.py tests/cli/test_cli_plan.py \
	  tests/links/test_visa.py tests/serving/test_page_server.py tests/serving/test_pva.py tests/calibration/run/test_cluster.py tests/integrations

# Netlists as an installed gdsfactory writes them.
test-netlists: $(NETLISTS)/.installed
	$(NETLISTS)/bin/python -m pytest -W default --disable-warnings $(BOUNDED) \
	  tests/interop/test_interop_gdsfactory.py

# Prints each broken promise with the command that repeats it; `--write` writes the table of docs/chaos.md.
TRIES ?= 1000
SEED ?= 1
chaos: $(VENV)/.installed-test
	$(BIN)/python benchmarks/chaos.py --tries $(TRIES) --seed $(SEED)

campaign: $(VENV)/.installed-test
	$(BIN)/pytest -m "campaign or hypothesis" --hypothesis-profile campaign -n 2 --dist loadscope $(BOUNDED)

# In a fresh checkout pytest rewrites every test module. One process does it first, for all workers, while mypy keeps the
# other core busy; what it cannot collect the workers will tell.
$(VENV)/.tests-rewritten: $(VENV)/.installed-test
	-@$(BIN)/pytest --collect-only -qq > /dev/null
	@touch $@

# Stamps: nothing is installed again unless the inputs change. Installs are editable, so source edits need none.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

# With the compiled solver and plots; where these cannot be had, without: the demo then says what it left out.
$(VENV)/.installed: $(VENV)/.created $(INPUTS)
	$(PIP) -e '.[fast,plots]' || $(PIP) -e .
	@touch $@

$(VENV)/.installed-test: $(VENV)/.created $(INPUTS)
	$(PIP) -e '.[test,interop]'
	@touch $@ $(VENV)/.installed

# A venv of its own, without byte code: most of what is installed is never imported.
$(LOWEST)/.installed: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --disable-pip-version-check --quiet --no-compile -c constraints-lowest.txt \
	  -e '.[$(EXTRAS)]' pytest pytest-xdist hypothesis httpx jsonschema
	@touch $@

$(NETLISTS)/.installed: pyproject.toml
	$(PYTHON) -m venv --clear $(NETLISTS)
	$(NETLISTS)/bin/python -m pip install --disable-pip-version-check --quiet --no-compile \
	  -e '.[netlists]' "gdsfactory==9.45.0" pytest pytest-xdist hypothesis
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.created $(INPUTS)
	$(PIP) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(NETLISTS) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
