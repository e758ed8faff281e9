#!/usr/bin/env bash
# Runs the upstream suites that concern the controllers we have: default gates (ga), every gate on (all), and pool
# status requests (root).
# Ends with one line: N passed, N failed.
# usage: run.sh [BINARY]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 0 ] || export DRACM_BIN=$1
passed=0 failed=0
for suite in ga all root; do
	echo "== upstream suite $suite"
	output=$("$here/controllers.sh" "$suite") || failed=$((failed + 1))
	echo "$output"
	passed=$((passed + $(grep -c -- '--- PASS' <<<"$output")))
	failed=$((failed + $(grep -c -- '--- FAIL' <<<"$output")))
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
