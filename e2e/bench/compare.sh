#!/usr/bin/env bash
# Measures this manager against kube-controller-manager and writes the sections of docs/BENCHMARKS.md about controllers.
# usage: compare.sh [BINARY] [ARGUMENTS OF compare]     e.g. compare.sh target/release/dra-controller-manager --rounds 1
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
if [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; then
	DRACM_BIN=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
	export DRACM_BIN
	shift
fi
cd "$root"
cargo run --locked --profile "${PROFILE:-ci}" -p dra-e2e --bin compare -- --output docs/BENCHMARKS.md "$@"
