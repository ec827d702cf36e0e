# Every target does its own set-up (scripts/setup). `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# What scripts/setup had to bring along is found first.
export PATH := $(CURDIR)/.bowline/tools/bin:$(PATH)

# `make run PROFILE=release`: a slower first build, a faster server.
PROFILE ?= dev

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## Install what building and testing need, or print the one command that does.
	@scripts/setup test

.PHONY: run
run: ## Build Bowline and run its demo in the foreground, its data in .bowline/ (Ctrl-C ends it).
	@scripts/setup run
	@cargo run --profile $(PROFILE) -- up --demo --data .bowline/data --kubeconfig .bowline/kubeconfig

# Tests of traffic make networks of their own, which takes root or a namespace in which one is root.
AS_ROOT = $(shell [ "$$(id -u)" = 0 ] || ! unshare -r true 2>/dev/null || echo unshare -r)

.PHONY: test
test: ## Run every test and tell at the end which failed; with KUBEBUILDER_ASSETS=DIR the end-to-end ones run on a real Kubernetes API.
	@scripts/test

# Longer than a change can wait for, so it is not a part of `make test`.
.PHONY: soak
soak: ## Full load for 30 s each while all changes, on the proxy, HAProxy and nginx; 1,000 Services, and 200 claims, while controllers die; a router's table of a million routes; ten minutes of announcements without the API; 1,000 new cases of every property.
	@scripts/setup test
	PROPTEST_CASES=1000 cargo test -p bowline-core -p bowline-speaker --lib
	BOWLINE_LONG=1 $(AS_ROOT) cargo test --test traffic load:: -- --nocapture --test-threads=1
	BOWLINE_LONG=1 $(AS_ROOT) cargo test --test addresses churn:: -- --nocapture
	BOWLINE_LONG=1 $(AS_ROOT) cargo test --test claims killed:: -- --nocapture
	BOWLINE_LONG=1 $(AS_ROOT) cargo test -p bowline-speaker --test routers many:: -- --nocapture
	BOWLINE_LONG=1 $(AS_ROOT) cargo test --test announce while_the_api_is_away -- --nocapture
	BOWLINE_LONG=1 $(AS_ROOT) cargo test --test haproxy --test nginx -- --nocapture --test-threads=1 load:: faults::

# What a build may do without. It has to compile with none of them, and with each alone.
FEATURES = apiserver proxy speaker

.PHONY: lint
lint: ## Check format, clippy (also of a build without features), and the dependencies' licences, sources and bans.
	@scripts/setup lint
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	for feature in '' $(FEATURES); do \
	  cargo clippy --no-default-features --features "$$feature" -- -D warnings; \
	done
	cargo clippy -p bowline-core -p bowline-testing --no-default-features -- -D warnings
	cargo deny --locked check bans licenses sources

.PHONY: deny
deny: ## The dependencies' licences, sources and bans again, and known vulnerabilities (fetches the advisories).
	@scripts/setup lint
	cargo deny --locked check

.PHONY: bench
bench: ## Measure, in an optimized build: API, planner, resolver, the proxy beside others, and what drives HAProxy and nginx.
	@scripts/setup bench
	$(AS_ROOT) cargo bench --workspace --bench '*'

# Sanitizers and coverage are unstable features; RUSTC_BOOTSTRAP spares a second toolchain for them.
.PHONY: fuzz
fuzz: ## Feed nonsense to every parser of foreign bytes, a minute each (TARGET=name for one, TIME=600 for longer).
	@scripts/setup fuzz
	@for target in $${TARGET:-$$(cargo fuzz list)}; do \
	  echo "fuzzing $$target"; \
	  RUSTC_BOOTSTRAP=1 cargo fuzz run "$$target" -- -max_total_time=$${TIME:-60}; \
	done

.PHONY: crds
crds: ## Write the CustomResourceDefinitions to deploy/crds again, after a change of a kind.
	@scripts/setup build
	cargo run --quiet -- crds --dir deploy/crds

.PHONY: manifests
manifests: ## Make the plain manifests of deploy/ again from the chart, after a change of the chart.
	@scripts/setup manifests
	scripts/manifests

.PHONY: record
record: ## Record the conformance transcripts again from the real server in KUBEBUILDER_ASSETS=DIR.
	@: "$${KUBEBUILDER_ASSETS:?names the folder with etcd and kube-apiserver}"
	@scripts/setup test
	BOWLINE_RECORD=1 cargo test --test conformance transcripts

.PHONY: clean
clean: ## Remove what was built. The data in .bowline/ stays.
	cargo clean
	rm -rf fuzz/target
