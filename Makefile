# `make tune` sets up and runs the main job; `make test` sets up and runs every check, `make thorough`
# with all cases of tests that otherwise run a sample; `make docs` builds the website.
# Both work in a fresh clone. PYTHON chooses the interpreter, SIZE the problem.

PYTHON ?= python3
SIZE ?= 4096
VENV := .venv
comma := ,
BIN := $(VENV)/bin
# Without a GPU everything but timing works, from recordings.
EXTRA := plot,report$(if $(shell command -v nvidia-smi),$(comma)cuda12)
# Some tests wait for processes: one more than there are cores, and nine at most.
WORKERS := $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() or 1, 8) + 1)')
TUNE_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(EXTRA))

.PHONY: tune test thorough docs mutate clean

tune: $(TUNE_STAMP)
	$(BIN)/autogemm tune --gpu auto --size $(SIZE)
	$(BIN)/autogemm export best.cu
	$(BIN)/autogemm db best

test thorough: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy benchmarks
	$(BIN)/clang-format --dry-run --Werror tests/golden/*.cu
	$(BIN)/pytest -n $(WORKERS) --dist loadfile -rs $(if $(filter thorough,$@),--thorough)

# The website, in build/docs; a broken link is an error.
docs: $(VENV)/.installed-docs
	$(BIN)/python docs/site/stage.py build/docs-source
	$(BIN)/python docs/site/reference.py build/docs-source
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site build/docs-source build/docs

# Planted bugs that no test sees; MODULES="tuning dispatch/learning", SAMPLE=60 for so many of them.
mutate: $(VENV)/.installed-dev $(VENV)/.installed-mutate
	$(BIN)/python benchmarks/mutate.py $(MODULES) $(if $(SAMPLE),--sample $(SAMPLE))

# Stamps: what is installed and up to date is left alone.
$(TUNE_STAMP): pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[$(EXTRA)]'
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

$(VENV)/.installed-docs: pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

$(VENV)/.installed-mutate: pyproject.toml | $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[mutate]'
	touch $@

$(VENV):
	$(PYTHON) -m venv $@

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis best.cu best
