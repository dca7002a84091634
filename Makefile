# Every command of the project. Each sets up what it needs first; see scripts/setup.sh.
.DEFAULT_GOAL := help
.PHONY: help setup demo lab test check unit local corpus machines containers slurm cloud vendors train ui panel package notebooks docs docs-serve oldest bench lock clean kubernetes pods

BIN := .venv/bin
# Three files of tests at a time, which wait more than they compute; tests/conftest.py says what stays together.
AT_ONCE := -n 3 --no-loadscope-reorder

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

setup: ## the virtual environment .venv; every other command makes it too
	@sh scripts/setup.sh

demo: setup ## run the quickstart notebook on local nodes, and show what it prints
	@$(BIN)/python scripts/demo.py notebooks/quickstart.ipynb

lab: setup ## open the notebooks in JupyterLab
	@$(BIN)/jupyter lab --notebook-dir=notebooks $$([ "$$(id -u)" != 0 ] || echo --allow-root)

test: check ## everything: check, then the tests of every tier, then the notebooks
	$(BIN)/python -m pytest $(AT_ONCE)

check: setup ## lint, format, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@$(MAKE) --no-print-directory --jobs=2 --output-sync types-mypy types-pyright

types-%:
	$(BIN)/$*

unit: setup ## tests of one process
	$(BIN)/python -m pytest tests/unit

local: setup ## tests with real worker processes on this machine
	$(BIN)/python -m pytest tests/local

corpus: setup ## notebooks as people write them, as they are and under %%sky, compared
	$(BIN)/python -m pytest tests/corpus

machines: setup ## tests with real machines over SSH, on this host: as root, with openssh-server, iproute2 and debootstrap
	$(BIN)/python -m pytest tests/machines

containers: setup ## tests with real containers, of engines of their own: as root, with docker.io, podman and iproute2
	$(BIN)/python -m pytest tests/containers

slurm: setup ## tests with real Slurm clusters, on this host: as root, with slurmctld, slurmd, slurm-client, munge and iproute2
	$(BIN)/python -m pytest tests/slurm

kubernetes: ## a Kubernetes cluster for its tests, built from Debian's source package, once: as root
	@sh scripts/kubernetes.sh

pods: setup kubernetes ## tests with pods of that cluster: as root, with docker.io, runc and iproute2
	SKYWARD_KUBERNETES=required $(BIN)/python -m pytest tests/kubernetes

cloud: setup vendors ## providers of clouds, against servers of ours and the vendors' own clients
	$(BIN)/python -m pytest tests/cloud

vendors: ## the vendors' own clients, for the tests of providers
	@sh scripts/vendors.sh

train: ## training frameworks, by real groups of processes, and their notebooks: with cc, nm and readelf, in an environment of its own, .venv-train
	@sh scripts/train.sh
	.venv-train/bin/python -m pytest tests/train notebooks/train

ui: setup ## tests of the side panel in a browser: with chromium
	$(BIN)/python -m pytest tests/ui

panel: setup ## build the side panel, and test its models: with node and npm
	@PYTHONPATH=. $(BIN)/python scripts/panel_build.py

package: setup ## tests of the published package: its contents, and fresh environments with old and new packages; with chromium
	$(BIN)/python -m pytest tests/package

notebooks: setup ## run the notebooks, and compare what they show
	$(BIN)/python -m pytest tests/notebooks notebooks

docs: setup ## build the documentation site into .cache/docs/html; every warning is an error
	$(BIN)/python -m docs.build
	@echo 'Open .cache/docs/html/index.html, or run: make docs-serve'

docs-serve: docs ## build the documentation site, and serve it on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory .cache/docs/html 8000

# Tests with worker processes of what may differ between versions of Python: code, objects, threads, processes, memory.
OF_PYTHON := async_functions await blobs client_process collections deadlines descendants dispatch errors examples forks \
	inputs interrupts keep kernel map output payloads remote_results sent_values shared_memory special_objects stopping \
	streaming streams switch_interval task_isolation values

oldest: ## the unit tier, and what may differ in the local tier, on the oldest supported Python, 3.12, and packages
	@sh scripts/setup.sh --python 3.12 --venv .venv-3.12 --lock requirements-oldest.lock
	.venv-3.12/bin/python -m pytest $(AT_ONCE) $(OF_PYTHON:%=tests/local/test_%.py) tests/unit

bench: ## the benchmarks, beside their floors and peers; ARGS="--quick --only calls" and the like
	@sh scripts/setup.sh --venv .venv-bench --lock benchmarks/requirements.lock
	.venv-bench/bin/python -m benchmarks $(ARGS)

lock: setup ## resolve the lock files again
	@sh scripts/lock.sh

clean: ## remove what setup and the tests made
	rm -rf .venv .venv-3.12 .venv-bench .venv-train .cache .mypy_cache .pytest_cache .ruff_cache dist labextension/node_modules labextension/lib tests/ui/out
