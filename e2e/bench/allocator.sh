#!/usr/bin/env bash
# Measures the allocator against the Go allocator and at scale, and writes the section "Allocator" of docs/BENCHMARKS.md.
# usage: allocator.sh [ARGUMENTS OF allocator.py]     e.g. allocator.sh --rounds 1
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cache=${DRACM_CACHE:-$HOME/.cache/dra-controller-manager}
work=${DRA_ALLOCATOR_WORK:-$cache/allocator}
cd "$root"
if [ ! -x "$work/bin/loopback" ]; then
	e2e/conformance/allocator.sh "$work" loopback >"$work.log" 2>&1 || { tail -n 30 "$work.log" && exit 1; }
fi
rm -rf "$work/scenarios"
e2e/conformance/allocator/scenarios.py "$work/scenarios" >/dev/null
cargo build --locked --release -p dra-conformance
section=$(mktemp)
trap 'rm -f "$section"' EXIT
status=0
{
	cat <<-'TEXT'
		## Allocator

		`e2e/bench/allocator.sh` writes this section. The Go allocator is that of k8s.io/dynamic-resource-allocation 0.37.2
		(experimental) on the 28 inputs of `e2e/conformance/allocator/scenarios.py`; how it is timed stands in `GO-BASELINE.md`
		there. One operation answers one question about one node. Of all rounds the fastest batch counts. *Live*: the
		inventory is kept, and an operation is a snapshot and an allocation, as in a controller. *Cold*: each operation takes
		up the slices from decoded objects first (`Inventory::apply_slices_for`). As on the Go side, what is allocated already
		and compiled expressions outlive an operation, and JSON is decoded before. CPU time includes Go's garbage collection
		on the second core.

	TEXT
	e2e/bench/allocator.py "$work/scenarios" "$work/bin/loopback" target/release/dra-conformance "$@" || status=$?
	e2e/conformance/allocator/scenarios.py "$work/more" -s pathological_matching_attribute \
		-p pathological_matching_attribute.devices=31 >/dev/null
	printf '\n32 of 31 devices with a matching attribute, cold (2^31 steps for Go, which was not asked):\n\n```text\n'
	target/release/dra-conformance bench "$work/more/pathological_matching_attribute.json"
	printf '```\n\n`cargo bench -p dra-allocator` (divan; it also prints allocations, which are left out here):\n\n```text\n'
	cargo bench --locked -p dra-allocator --bench inventory 2>/dev/null | grep -E '^(inventory|├─|╰─)'
	printf '```\n'
} >"$section"
page=docs/BENCHMARKS.md
{ sed '/^## Allocator$/,$d' "$page" && cat "$section"; } >"$page.new" && mv "$page.new" "$page"
exit "$status"
