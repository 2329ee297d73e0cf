# Two commands do everything on a machine that has Python (>= 3.11) and make: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test check format docs clean

demo: $(READY)
	$(BIN)/oddnode paper --smoke --out demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Warnings are errors: a broken link or a docstring that does not parse stops the build.
docs: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-build-isolation -c constraints.txt -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

# The stamp is written last, so that a half-made environment is made anew and never used.
$(READY): pyproject.toml constraints.txt
	@rm -f $(READY)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-build-isolation -c constraints.txt -e '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
