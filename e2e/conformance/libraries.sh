#!/usr/bin/env bash
# Compares our allocator and our CEL with Kubernetes': the upstream allocator table (284 cases), the recorded CEL verdicts and
# 1,000 generated requests; with DRACM_LONG 20,000 of them from a seed of the day on, fresh quantities, and the recorded CEL
# verdicts are made again. Ends with one line.
# usage: libraries.sh DRA_CONFORMANCE
# env: DRACM_CACHE, where the Go programs are built, once: some minutes
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(realpath "$1")
work=${DRACM_CACHE:-$HOME/.cache/dra-controller-manager}/conformance
mkdir -p "$work"

echo "== upstream allocator table"
"$here/allocator.sh" "$work/allocator" "$program" allocate >"$work/allocator.log" 2>&1 || {
	grep -B 20 -- '--- FAIL' "$work/allocator.log" || tail -n 20 "$work/allocator.log"
	exit 1
}
cases=$(grep -c -- '--- PASS: .*/' "$work/allocator.log")
missing=$(sed -n 's/^ *--- PASS: [^/]*\/\([^ ]*\) .*/\1/p' "$work/allocator.log" | sort | comm -13 - <(sort "$here/allocator/table.txt"))
if [ -n "$missing" ]; then
	echo "cases of the specification's table that did not run:" $missing
	exit 1
fi
echo "$cases cases passed, among them all $(wc -l <"$here/allocator/table.txt") of the specification's table"

echo "== recorded CEL verdicts"
"$here/cel.sh" compare "$program" cel

echo "== generated requests"
first=0 count=1000
if [ -n "${DRACM_LONG:-}" ]; then
	first=$(date -u +%Y%m%d)00000 count=20000
fi
"$program" differential "$work/allocator/bin/loopback" "$first" "$count" -shrink

if [ -n "${DRACM_LONG:-}" ]; then
	echo "== fresh quantities and CEL verdicts"
	"$here/quantity.sh" "$work/quantity" "$(date -u +%Y%m%d)" 100000
	"$here/cel.sh" "$work/cel" check
fi
echo "libraries: $cases cases of the table, $count generated requests, no unexplained difference"
