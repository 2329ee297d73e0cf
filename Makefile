# On a machine that has Python (>= 3.11) and make, `make serve`, `make demo` and `make test` install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is installed beside oddnode: `dev` for work on it; `ci` adds what a few tests need, which `make test` else skips.
EXTRAS ?= dev
READY := $(VENV)/.ready-$(EXTRAS)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: -c constraints.txt
# One process per core, each with one thread (tests/conftest.py): more threads than cores make everything slower.
PARALLEL := -n auto --dist worksteal

.PHONY: demo serve test test-fast test-kernels check check-docstrings check-github format hooks docs walk soak dist lock clean

demo: $(READY)
	$(BIN)/oddnode paper --smoke --out demo
	$(BIN)/python benchmarks/demo.py demo/arrivals

# The live page at http://127.0.0.1:8080, on handwritten digits that arrive one by one.
PORT ?= 8080
serve: $(READY)
	$(BIN)/python benchmarks/serve_demo.py build/serve --port $(PORT)

test: $(READY)
	$(BIN)/python -m pytest $(PARALLEL)

# Without the tests that take more than eight seconds.
test-fast: $(READY)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow"

# The Triton kernels, in Triton's interpreter: no GPU is needed.
test-kernels: $(READY)
	$(PIP_INSTALL) --no-build-isolation -e '.[kernels]'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest tests/ops/test_triton_kernels.py

check: $(READY) check-docstrings check-github
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -r src -c pyproject.toml

# Every parameter of a public function is documented, under the name that it has.
check-docstrings: $(READY)
	$(BIN)/python -W ignore .ci/check_docstrings.py

# Files for GitHub, by the schemas that check-jsonschema brings along; this needs no network.
SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema
check-github: $(READY)
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.dependabot .github/dependabot.yml
	$(SCHEMA) vendor.citation-file-format CITATION.cff

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Ruff before every commit.
hooks: $(READY)
	$(PIP_INSTALL) 'pre-commit>=4.0'
	$(BIN)/pre-commit install

# Warnings are errors: a broken link or a docstring that does not parse stops the build.
docs: $(READY)
	$(PIP_INSTALL) --no-build-isolation -e '.[docs]'
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "build/site/index.html"

# How many files, functions and packages a call passes; `make walk LIST=cli-fit` names them.
walk: $(READY)
	@$(BIN)/python benchmarks/walk.py $(if $(LIST),--list $(LIST))

# Hostile use by chance, which CI does not run: `make soak MINUTES=5 SEED=7`, `make soak ONLY=models,tables`,
# `make soak REPLAY=build/soak/cases/models-7-42.json`. CANARY=1 puts old faults back and checks that each is found.
MINUTES ?= 30
soak: $(READY)
	$(BIN)/python -W ignore -m soak --minutes $(MINUTES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) \
	  $(if $(filter 1,$(CANARY)),--canary) $(if $(REPLAY),--replay $(REPLAY))

# The wheel and the source distribution, as the release job builds them.
dist: $(READY)
	$(BIN)/python -m build --no-isolation --outdir dist

# requirements.lock and requirements-tools.lock: what the release job installs, with checksums. Needs PyPI.
lock: $(READY)
	$(BIN)/python .ci/make_lock.py

# The stamp is written last, so that a half-made environment is made anew and never used. It has the name of the extras,
# so that others are installed when they are chosen.
$(READY): pyproject.toml constraints.txt
	@rm -f $(VENV)/.ready*
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(PIP_INSTALL) hatchling editables
	$(PIP_INSTALL) --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $(READY)

clean:
	rm -rf $(VENV) demo dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
