# Everything needs only Python >= 3.11, make and git. The package index is pip's own business (PIP_INDEX_URL and so on).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo quick test check format bench clean

# An interrupted demo is continued; a finished one is made again.
demo: $(READY)
	@if [ -e runs/demo/.overwriting/run.json ] || { [ -e runs/demo/run.json ] && [ ! -e runs/demo/config.json ]; }; \
		then mode=--resume; else mode=--force; fi; \
		$(BIN)/palpate demo $$mode || { code=$$?; [ $$code -ne 130 ] || echo "make demo continues it"; exit $$code; }

# The fast tests, for use while working.
quick: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not gpu and not slow"

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/palpate bench

# The exact torch goes in first and by itself: a loose requirement would fetch gigabytes of GPU libraries.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "palpate needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@# PushT's physics comes without wheels for some machines, and there needs a C compiler.
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[pusht]" 2>/dev/null \
		|| echo "PushT could not be installed here; its tests will be skipped"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .hypothesis .mypy_cache .ruff_cache
