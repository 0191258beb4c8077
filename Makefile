# Two commands do everything on a machine with Python 3.11: `make run` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run test check slow browser figures docs bench paper action matching scale kill crash faults fuzz serving format clean help

help:           ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

STORY = fgn/finetune,gcn/replay,fgn/replay,fgn/analytic,fgn/regular
run: $(READY)   ## set up, learn Cora class by class in five ways, print a table, draw a picture
	$(BIN)/evergraph compare --runs $(STORY) --memory 100 --epochs 10 --figure out/curves.png --out out/curves.json

test: check     ## set up, lint, type-check and run the tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder # slow files come early

check: $(READY) ## lint and type-check only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(READY)  ## the tests that take minutes or need real data
	$(BIN)/pytest -m slow

browser: $(READY) ## the tests of the live page; they need chromium (apt-get install chromium)
	$(BIN)/pytest -m browser -rs tests/serve/test_browser.py

figures: $(READY) ## screenshots of the live page, to docs/figures
	EVERGRAPH_FIGURES=docs/figures $(BIN)/pytest -m browser -k screenshots tests/serve/test_browser.py

docs: $(READY)  ## the site, with warnings as errors, to out/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(READY) ## the benchmarks; ratios are written to results/
	$(BIN)/python -m benchmarks.speed --out results/bench_speed.json
	$(BIN)/python -m benchmarks.growth --stream 1000000 --out results/bench_growth.json
	$(BIN)/python -m benchmarks.imports --out results/bench_imports.json
	$(BIN)/python -m benchmarks.memory --out results/bench_memory.json
	$(BIN)/python -m benchmarks.safety --batches 90 --out results/bench_safety.json
	$(BIN)/python -m benchmarks.closed_form --out results/bench_closed_form.json
	$(BIN)/python -m benchmarks.peers --out results/bench_peers.json
	$(BIN)/python -m benchmarks.live --out results/bench_live.json
	$(BIN)/python -m benchmarks.loading --out results/bench_loading.json
	$(BIN)/python -m benchmarks.serve --out results/bench_serve.json
	$(BIN)/python -m benchmarks.cluster --part speed --nodes 200000 --out results/bench_cluster.json
	$(BIN)/python -m benchmarks.cluster --part speed --nodes 40000 --citations 1 --landmarks 2048 --out results/bench_cluster_embedding.json
	for n in 30000 100000 300000 1000000; do $(BIN)/python -m benchmarks.scale --nodes $$n; done
	for s in 1 3 4; do $(BIN)/python -m benchmarks.scale --nodes 100000 --shards $$s; done
	$(BIN)/python -m benchmarks.partitions --out results/bench_partitions.json

paper: $(READY) ## the paper's node classification tables, beside the published values
	$(BIN)/python -m experiments.overall --figures docs/figures
	$(BIN)/python -m experiments.overall --way default
	$(BIN)/python -m experiments.overall --way paper
	$(BIN)/python -m experiments.small_tables
	$(BIN)/python -m experiments.memory --figures docs/figures

action: $(READY) ## the tables of action recognition; needs DSADS in $EVERGRAPH_DATA
	$(BIN)/python -m experiments.action --tables regular,lifelong,subjects,class,ablation \
		--search results/searches.json --runs out/action_runs.jsonl --out results/action.json
	$(BIN)/python -m benchmarks.action --out results/bench_action.json
	$(BIN)/python -m benchmarks.action_stream --out results/bench_action_stream.json

matching: $(READY) ## the experiments of feature matching; numbers are written to results/
	$(BIN)/python -m experiments.matching --out results/matching.json
	$(BIN)/python -m experiments.matching_table7 --out results/matching_table7.json --picture docs/figures/matching_tolerance.png
	$(BIN)/python -m experiments.matching_shipped --out results/matching_shipped.json
	$(BIN)/python -m experiments.matching_limits --out results/matching_limits.json
	$(BIN)/python -m experiments.matching_stream --out results/matching_stream.json
	$(BIN)/python -m benchmarks.matching --out results/bench_matching.json

scale: $(READY) ## shards on Ray: equal digests, kills, ranks of a network, ten million items; to results/
	$(BIN)/python -m benchmarks.cluster --data cora --shards 1,2,3,4 --out results/bench_cluster_cora.json
	$(BIN)/python -m benchmarks.cluster --nodes 200000 --shards 1,2,3,4 --out results/cluster_generated.json
	$(BIN)/python -m tests.cluster.kill_cluster 10 results/kill_cluster.json
	$(BIN)/python -m experiments.ranks --out results/ranks.json
	$(BIN)/python -m experiments.engines --out results/engines.json
	$(BIN)/python -m benchmarks.scale --nodes 10000000 --citations 1

KILLS ?= 10
kill: $(READY)  ## kill runs, lessons and learn at random moments, repeat them, compare; KILLS=60 for more
	$(BIN)/python tests/cli/kill_and_resume.py $(KILLS)
	$(BIN)/python tests/cli/kill_learn.py $(KILLS)
	$(BIN)/python tests/cli/kill_learn.py $(KILLS) both
	$(BIN)/python tests/serve/kill_serve.py $(KILLS)

crash: $(READY) ## kill train, learn, forget, refit at every write, fill the disk there; counts to results/
	$(BIN)/python tests/cli/kill_learn.py 50 results/kill_learn.json

faults: $(READY) ## raise at every call inside observe, save and load; counts to results/
	$(BIN)/python -m tests.faults.count results/faults.json

fuzz: $(READY)  ## thousands of random batches, tables, checkpoints, images; counts to results/
	$(BIN)/python -m tests.fuzz.run results/fuzz.json

serving: $(READY) ## kill, starve, attack and soak a service; counts to results/
	$(BIN)/python tests/serve/kill_serve.py 100 results/kill_serve.json
	$(BIN)/python tests/serve/hostile.py 10000 results/hostile.json
	$(BIN)/python tests/serve/soak.py 1000000 results/soak.json
	$(BIN)/python tests/cli/kill_redis.py 10 100000 results/redis.json

format: $(READY) ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:          ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

# torch goes in first and pinned: what comes after finds it installed and leaves it alone. The last
# line compiles the numba loops, which stay compiled, so that the first run does not wait for them.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/evergraph run --dataset generated --seeds 1 --out $(VENV)/first --json > /dev/null
	touch $@
