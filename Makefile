# Everything from a fresh clone: `make demo` and `make test` build their own environment in .venv.
# Needs Python 3.11 or newer (choose one with PYTHON=python3.12).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(BIN)/python tools/install.py
ENVIRONMENT := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
PACKAGE_FILES := pyproject.toml $(wildcard packages/*/pyproject.toml) constraints.txt requirements-dev.txt
EDITABLE := --editable '.[train,capture,plots,ray,client]' --editable 'packages/server[postgres]' \
	--editable 'packages/integrations[all]' --editable 'packages/papers[schedule,reinforcement]'

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types wheel unit nightly docs docs-check site pages bench benchmark peers accuracy accuracy-diff baselines papers predictors large-models limits clean

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] + ". To fix: make PYTHON=python3.11 ...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.created $(PACKAGE_FILES)
	$(PIP) install --constraint constraints.txt --editable .
	@touch $@

# torch first and by itself, so that whatever build it brings is the one the rest is resolved against.
$(VENV)/.dev: $(VENV)/.created $(PACKAGE_FILES)
	$(INSTALL) --constraint constraints.txt torch
	$(INSTALL) --constraint constraints.txt --requirement requirements-dev.txt $(EDITABLE)
	@touch $(VENV)/.core $@

$(VENV)/.benchmark: $(VENV)/.created $(PACKAGE_FILES)
	$(PIP) install --constraint constraints.txt --editable '.[train]' --editable packages/integrations --editable packages/papers
	@touch $(VENV)/.core $@

demo: $(VENV)/.core ## Install the core alone and predict real training jobs at several precisions
	@$(ENVIRONMENT) $(BIN)/python tools/demo.py

test: $(VENV)/.dev ## Install everything the tests use; lint, types, the wheel, tests (documentation included)
	$(ENVIRONMENT) $(BIN)/python tools/unit.py --beside lint types wheel

lint: $(VENV)/.dev ## Style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev ## Strict type check
	$(BIN)/mypy

wheel: $(VENV)/.dev ## Install the wheels, the core alone with the lowest and the newest versions, and ask them; sizes
	$(BIN)/python tools/wheel_check.py

unit: $(VENV)/.dev ## The tests alone, in parts, two at a time (PARTS="server papers": only those)
	$(ENVIRONMENT) $(BIN)/python tools/unit.py $(PARTS)

nightly: $(VENV)/.dev ## Every test, also what `make test` draws samples of or leaves out; the branches that they take
	rm -rf build/branches && mkdir -p build/branches
	PRECISION_TIME_NIGHTLY=1 $(ENVIRONMENT) $(BIN)/python tools/unit.py --branches build/branches

docs: $(VENV)/.dev ## Fill the generated blocks of README.md and docs/, draw the pictures
	$(ENVIRONMENT) $(BIN)/python tools/update_docs.py

docs-check: $(VENV)/.dev ## Fail if a generated block is out of date
	$(ENVIRONMENT) $(BIN)/python tools/update_docs.py --check

pages: $(VENV)/.dev ## Write the generated pages that are old, the cheapest first (ONLY="energy.md": those; MINUTES=60: no dearer one)
	$(ENVIRONMENT) $(BIN)/python tools/pages.py --write $(ONLY) $(if $(MINUTES),--minutes $(MINUTES))

site: $(VENV)/.dev ## Build the documentation as a site in site/; its warnings, such as broken links, fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev ## Measure this machine against the speed targets
	$(ENVIRONMENT) $(BIN)/python benchmarks/run.py

benchmark: $(VENV)/.benchmark ## The open benchmark: every predictor on public runs; docs/reference/benchmark.md
	$(ENVIRONMENT) $(BIN)/python benchmarks/predictors/run.py

peers: $(VENV)/.benchmark ## Fetch the peers that `make benchmark` then asks live, each at its pinned commit
	$(BIN)/python benchmarks/predictors/fetch.py

accuracy: $(VENV)/.dev ## Cross-validate over the corpus and write docs/reference/accuracy.md
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/accuracy.py

accuracy-diff: $(VENV)/.dev ## What a change does to accuracy: the same runs with the code of BASE and of now (BASE=main~1)
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/accuracy_diff.py $(BASE)

baselines: $(VENV)/.dev ## What no error of papers may get worse than: anew, after a change that moves them on purpose
	$(ENVIRONMENT) $(BIN)/precision-time papers report --only T5 --sample 4000 --folds 2 --seeds 3 \
		--write-baseline packages/papers/tests/accuracy/baseline.json
	$(ENVIRONMENT) $(BIN)/precision-time papers report --only T5 --sample 1000 --folds 2 --seeds 3 --quick \
		--write-baseline packages/papers/tests/accuracy/baseline_day.json

papers: $(VENV)/.dev ## The tables of the founding papers beside ours: write docs/papers.md (under 15 minutes)
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/papers.py

predictors: $(VENV)/.dev ## Compare with the predictors of the papers, write docs/reference/predictors.md
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/compare_predictors.py

large-models: $(VENV)/.dev ## Hold out every source of large models, compare with peers, scale to 100,000 devices
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/large_models.py
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/peers.py
	$(ENVIRONMENT) $(BIN)/python packages/papers/studies/scale.py

limits: $(VENV)/.dev ## Send 20,000 inputs, kill writers, fill disks, ask 5,000 jobs in pairs; docs/reference/limits.md
	$(ENVIRONMENT) $(BIN)/python tests/fuzz/limits.py --inputs 20000

clean: ## Remove the environment and caches
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
