#!/usr/bin/env bash
# Measures this manager against kube-controller-manager and writes docs/BENCHMARKS.md up to the section on the allocator.
# usage: compare.sh [BINARY] [ARGUMENTS OF compare]     e.g. compare.sh target/release/dra-controller-manager --rounds 1
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
	DRACM_BIN=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
	export DRACM_BIN
	shift
fi
cd "$root"
page=docs/BENCHMARKS.md
cargo run --locked --profile "${PROFILE:-ci}" -p dra-e2e --bin compare -- --output "$page.new" "$@"
{ printf '\n' && sed -n '/^## Allocator$/,$p' "$page"; } >>"$page.new" && mv "$page.new" "$page"
