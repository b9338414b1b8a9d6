# Every target installs what it needs first; `make help` lists them. The figures are the seconds a part of `make test` may take.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
INSTALL := scripts/install.sh
# pytest's exit code 5 (no test ran) fails a target like any other.
PYTEST = $(BIN)/pytest --session-timeout=$(1)
QUICK_MUTANTS := raft-vote-not-durable,raft-counting-commits-earlier-terms,group-restart-allowed-by-who-lags
SIMULATIONS := tests/storage/test_crash_points.py tests/raft/test_seeds.py tests/broker/replication/test_seeds.py
SUITES := tests/api tests/interop tests/faults tests/spark $(SIMULATIONS)
UNIT_TESTS = $(call PYTEST,$(1)) --numprocesses=4 --dist=$(2) $(addprefix --ignore=,$(SUITES)) -m 'not client'
TYPED := $(wildcard src operator/raptormq_operator spark/pyspark_raptormq demo bench e2e examples docs/hooks tests)

.PHONY: help install format lint lint-workflows docs test test-unit coverage test-interop test-faults test-simulation test-spark test-spark-connect test-client test-api mutants demo e2e bench image soak lock clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 18

install: .venv/.installed ## .venv with the package, all extras and the tools, from requirements.lock

.venv/.installed: requirements.lock pyproject.toml
	@$(INSTALL) venv

format: install ## rewrite the sources the way lint wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lint: install ## ruff, mypy --strict, import contracts, links of the documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)
	$(BIN)/lint-imports --no-cache
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint-workflows: ## GitHub's workflows, by actionlint
	@$(INSTALL) commands go
	@$(INSTALL) actionlint

docs: install ## the documentation as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open build/site/index.html, or serve it while you write: $(BIN)/mkdocs serve"

test: lint lint-workflows test-unit test-client test-faults test-simulation test-interop test-spark ## everything but e2e

test-unit: install ## unit tests, in four processes, as half of their time is waiting (1800 s)
	@$(INSTALL) promtool
	$(call UNIT_TESTS,1800,worksteal)

coverage: install ## the same, and what they cover, which takes half as long again
	@$(INSTALL) promtool
	$(call UNIT_TESTS,1800,worksteal) --cov --cov-report=html:build/coverage
	@echo "$$($(BIN)/coverage report --format=total) % of lines and branches covered, which ones: build/coverage/index.html"

test-client: install ## our client against a broker in a process of its own, and the commands of the documentation (900 s)
	$(call PYTEST,300) -m client tests/client
	$(call PYTEST,600) --numprocesses=2 --dist=worksteal -m client tests/documentation

test-faults: install ## killed brokers, partitions, full disks, power cuts, hostile peers (2400 s)
	@$(INSTALL) commands cc
	$(call PYTEST,2400) --timeout=300 --numprocesses=2 --dist=worksteal tests/faults

test-simulation: install ## a simulated disk, cut at every operation; 5,000 simulated groups, 500 with real stores; three seeded bugs (1620 s)
	$(call PYTEST,1500) --numprocesses=2 $(SIMULATIONS)
	timeout 120 $(BIN)/python -m tests.mutants --only $(QUICK_MUTANTS)

test-interop: install ## the official clients for Java, Node.js and Go against our broker (2400 s)
	@$(INSTALL) commands javac mvn node npm go
	$(call PYTEST,2400) --numprocesses=2 --dist=loadfile tests/interop

test-spark-connect: install ## the Spark connector through Spark Connect, in an environment of its own (600 s)
	timeout 600 $(BIN)/uv run --isolated --no-project --with-editable . --with 'pyspark[connect]==4.3.0' --with pytest python -m tests.spark.connect_check

test-spark: install ## the Spark connector in two local sessions (1800 s)
	@$(INSTALL) commands java
	$(call PYTEST,1800) --timeout=300 --numprocesses=2 --dist=loadfile tests/spark

test-api: install ## the operator on a real kube-apiserver and etcd, without kubelet (900 s)
	@$(BIN)/python -m tests.api.control_plane
	$(call PYTEST,900) tests/api

mutants: install ## seeded bugs, which the tests have to find; ONLY=a,b for some
	@$(INSTALL) commands cc
	$(BIN)/python -m tests.mutants $(if $(ONLY),--only $(ONLY))

demo: install ## 860,000 lines through the broker, counted by Spark, compared
	@$(INSTALL) commands java
	@$(BIN)/python -m demo

e2e: install ## a cluster by kind, the operator, and Spark on it
	$(BIN)/python -m e2e

bench: install ## Apache RocketMQ and RaptorMQ side by side
	@$(INSTALL) commands javac mvn
	$(BIN)/python -m bench

image: install ## the wheel, the broker image, and the image for Spark drivers and executors
	broker_image/build.sh
	spark/image/build.sh

soak: install ## 20 minutes of full load (30 GB); kills, faults, simulations, and unit tests in random orders, ROUNDS times (default 10)
	@$(INSTALL) commands cc java
	@$(INSTALL) promtool
	$(BIN)/python -m bench replication --only full-load --memory-gib 8 --check
	for round in $$(seq $(or $(ROUNDS),10)); do \
		echo "round $$round"; \
		GROUP_SEEDS=2000 $(call PYTEST,1800) -q tests/faults tests/client $(SIMULATIONS); \
		$(BIN)/python -m tests.faults.fault_rounds --rounds 34 --seed $$RANDOM; \
		for kind in power power-async permissions promotion interleaved; do \
			$(BIN)/python -m tests.faults.fault_rounds --kind $$kind --rounds 10 --seed $$RANDOM; \
		done; \
		$(BIN)/python -m tests.spark.kill_rounds --rounds 50 --seed $$RANDOM; \
		$(call UNIT_TESTS,3600,load) -q; \
		for dist in load worksteal; do $(call UNIT_TESTS,3600,$$dist) -q --shuffle $$RANDOM; done; \
	done

lock: install ## resolve requirements.lock anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-strip-extras --no-annotate --all-extras --custom-compile-command 'make lock' pyproject.toml -o requirements.lock

clean: ## what builds and tests left in the checkout
	rm -rf build dist .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
