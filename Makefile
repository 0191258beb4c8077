# Two commands do everything on a machine with Python 3.11: `make run` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test check slow bench action matching kill format clean help

help:           ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

run: $(READY)   ## set up, then run the main job
	$(BIN)/evergraph run

test: check     ## set up, lint, type-check and run the tests
	$(BIN)/pytest

check: $(READY) ## lint and type-check only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(READY)  ## the tests that take minutes or need real data
	$(BIN)/pytest -m slow

bench: $(READY) ## the benchmarks; ratios land in results/
	$(BIN)/evergraph bench speed --out results/bench_speed.json
	$(BIN)/evergraph bench growth --stream 1000000 --out results/bench_growth.json

action: $(READY) ## the tables of action recognition; needs DSADS in $EVERGRAPH_DATA
	$(BIN)/evergraph paper action --tables regular,lifelong,subjects,class,ablation \
		--search results/action_search.json --runs results/action_runs.jsonl --out results/action.json --pictures docs
	$(BIN)/evergraph bench action --out results/action_bench.json
	$(BIN)/evergraph bench action-stream --out results/action_stream.json

matching: $(READY) ## the experiments of feature matching; numbers land in results/
	$(BIN)/python -m experiments.matching --out results/matching.json
	$(BIN)/python -m experiments.matching_table7 --seeds 3 --steps 40 --out results/matching_table7.json --picture docs/matching_tolerance.png
	$(BIN)/python -m experiments.matching_stream --out results/matching_stream.json
	$(BIN)/python -m benchmarks.matching --out results/bench_matching.json

kill: $(READY)  ## kill a run twenty times at random moments, resume it, compare
	$(BIN)/python tests/kill_and_resume.py 20

format: $(READY) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:          ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

# torch goes in first and pinned: what comes after finds it installed and leaves it alone. The last
# line compiles the kernels, which stay compiled, so that the first run does not wait for them.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/evergraph run --dataset generated --seeds 1 --out $(VENV)/first --json > /dev/null
	touch $@
