#!/usr/bin/env bash
# Runs the upstream suites that concern the controllers we have: default gates (ga), then every gate on (all).
# usage: run.sh [BINARY]
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 0 ] || export DRACM_BIN=$1
failed=0
for suite in ga all; do
	echo "== upstream suite $suite"
	"$here/controllers.sh" "$suite" || failed=1
done
exit $failed
