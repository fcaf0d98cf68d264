# `make tune` sets up and runs the main job; `make test` sets up and runs every check.
# Both work in a fresh clone. PYTHON chooses the interpreter, SIZE the problem.

PYTHON ?= python3
SIZE ?= 4096
VENV := .venv
comma := ,
BIN := $(VENV)/bin
# Without a GPU everything but timing works, from recordings.
EXTRA := plot,report$(if $(shell command -v nvidia-smi),$(comma)cuda12)
TUNE_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRA))

.PHONY: tune test mutate clean

tune: $(TUNE_STAMP)
	$(BIN)/autogemm tune --gpu auto --size $(SIZE)
	$(BIN)/autogemm export best.cu
	$(BIN)/autogemm db best

test: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/clang-format --dry-run --Werror tests/golden/*.cu
	$(BIN)/pytest -n auto --maxprocesses 8 -rs

# Planted bugs that no test sees; MODULES="tuning/task/accuracy dispatch/learning".
mutate: $(VENV)/.installed-dev $(VENV)/.installed-mutate
	$(BIN)/python benchmarks/mutate.py $(MODULES)

# Stamps: what is installed and up to date is left alone.
$(TUNE_STAMP): pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[$(EXTRA)]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/.installed-mutate: pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutate]'
	touch $@

$(VENV):
	$(PYTHON) -m venv $@

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis best.cu best
