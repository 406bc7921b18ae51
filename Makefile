# Build, test and release targets. `make` alone lists them. `make test` is what CI runs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
TOLL := target/release/toll
# What a first build of all would keep for the next one is larger than what it builds.
ifeq ($(wildcard target/debug/incremental),)
export CARGO_INCREMENTAL := 0
endif
# Captures need root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: help
help: ## say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

.PHONY: setup
setup: ## install what this host lacks (Debian, Ubuntu); see scripts/setup --check
	@scripts/setup

.PHONY: build
build: ## build target/release/toll
	cargo build --release --bin toll

.PHONY: demo
demo: ## what does watching cost? eight minutes: counted in virtual machines, then measured; report at the end
	@scripts/setup --demo
	@$(MAKE) --no-print-directory build
	$(AS_ROOT) $(TOLL) run tcpdump-impact --profile quick --exact --time 450s

.PHONY: test
test: setup check ## checks, the fast tests and the documentation, as CI does on every change
	@scripts/test fast

.PHONY: test-system
test-system: setup build viewer/node_modules/.package-lock.json ## the other tests: captures, kills, timing, instructions, MySQL, browser; two hours
	@scripts/test system

.PHONY: test-viewer
test-viewer: viewer/node_modules/.package-lock.json
	cd viewer && npm run --if-present --silent test

.PHONY: check
check: viewer/node_modules/.package-lock.json prose ## formatting, lints, prose and sizes
	@scripts/sizes
	cargo fmt --all --check
	cargo fmt --manifest-path fleet/Cargo.toml --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cd viewer && npm run --silent check

.PHONY: prose
prose: scripts/prose/node_modules/.package-lock.json ## words and sentences of README, documents and changelog
	@scripts/prose/check

.PHONY: book
book: ## the documentation as a site in target/book, its links checked
	@scripts/book

.PHONY: reference
reference: ## write the generated pages of docs: commands, exit codes, metrics, scenarios, stored runs
	TOLL_RENEW=1 cargo test --quiet -p toll --test pure pages::

.PHONY: fleet
fleet: ## build toll-fleet, which ranks the queries of many hosts: fleet/target/release/toll-fleet
	@scripts/setup --demo
	cargo build --release --manifest-path fleet/Cargo.toml

.PHONY: packages
packages: ## build .deb, .rpm and archives of portable programs, in target/packages
	@scripts/setup --packages
	@scripts/packages

.PHONY: kernels
kernels: build ## try captures on Linux 5.10 to the newest, x86_64 and aarch64, in virtual machines; writes a table of docs
	@scripts/setup --kernels
	@scripts/kernels

.PHONY: bench
bench: build ## measure toll itself; results go to bench/runs/
	@for bench in bench/*.sh; do echo "== $$bench"; "$$bench"; done

.PHONY: fuzz
fuzz: ## try every parser with invented input, 30 CPU minutes each; goes on where it was stopped
	@scripts/fuzz

.PHONY: viewer
viewer: viewer/node_modules/.package-lock.json ## build the report's page into the Rust sources
	TOLL_RENEW=1 cargo test --quiet -p toll-record -p toll-report --lib the_page_knows
	cd viewer && npm run --silent build

# npm writes this file last, so it dates the whole installation.
viewer/node_modules/.package-lock.json: viewer/package-lock.json
	cd viewer && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

scripts/prose/node_modules/.package-lock.json: scripts/prose/package-lock.json
	cd scripts/prose && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@
