# The two commands of the README are `make demo` and `make test`; everything else is for development.
# The demo needs Rust (rust-toolchain.toml) only, the rest Go >= 1.26, make and openssl, too. Binaries of the control plane
# are built once from Go modules into $(CACHE) and found there by every later run.

CACHE ?= $(or $(DRACM_CACHE),$(HOME)/.cache/dra-controller-manager)
export DRACM_CACHE := $(CACHE)
PROFILE ?= ci
BIN := $(CURDIR)/target/$(PROFILE)
export DRACM_BIN ?= $(BIN)/dra-controller-manager

.PHONY: demo demo-real test long simulation mutations build control-plane lint unit e2e conformance fuzz bench bench-allocator deny clean

## What the controllers do, told on an API server in memory.
demo: build
	$(BIN)/dra-controller-manager demo

## The same on a real control plane with our manager as a process.
demo-real: build control-plane
	cargo build --locked --profile $(PROFILE) -p dra-e2e --bin demo
	$(BIN)/demo

## Everything, at CI size.
test: lint unit e2e conformance

## Full counts, benchmarks and what takes hours; results go to docs/.
long: lint
	DRACM_LONG=1 $(MAKE) unit e2e conformance
	$(MAKE) simulation mutations
	$(MAKE) bench

build:
	cargo build --locked --profile $(PROFILE) -p dra-controller-manager

control-plane:
	e2e/control-plane/build.sh

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --profile $(PROFILE) -- -D warnings

unit:
	cargo test --locked --profile $(PROFILE) --workspace --exclude dra-e2e

## 100,000 seeds in all runs together; the number so far stands in docs/TESTING.md.
simulation:
	cargo run --locked --profile $(PROFILE) -p dra-simulation -- --record docs/TESTING.md --count 100000

## Puts known defects back, one at a time: the simulation must notice each.
mutations:
	simulation/mutations.sh

e2e: build control-plane
	cargo test --locked --profile $(PROFILE) -p dra-e2e

## The upstream integration tests against our binary; the upstream allocator table, generated requests and CEL verdicts
## against our libraries.
conformance: build control-plane
	cargo build --locked --profile $(PROFILE) -p dra-conformance
	e2e/conformance/libraries.sh $(BIN)/dra-conformance
	e2e/conformance/run.sh $(DRACM_BIN)

## An hour of fuzzing; needs a nightly toolchain and cargo-fuzz.
fuzz:
	fuzz/run.sh cel 1200
	fuzz/run.sh quantity 1200
	fuzz/run.sh allocate 1200

## Ours against kube-controller-manager and against the Go allocator, each in one run; writes docs/BENCHMARKS.md.
bench: control-plane bench-allocator
	cargo build --locked --release -p dra-controller-manager
	e2e/bench/compare.sh $(CURDIR)/target/release/dra-controller-manager

bench-allocator:
	e2e/bench/allocator.sh

## Needs cargo-deny.
deny:
	cargo deny check bans licenses sources

clean:
	cargo clean
