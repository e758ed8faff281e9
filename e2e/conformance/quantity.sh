#!/usr/bin/env bash
# Compares our quantities with Kubernetes' on fresh generated values.
# usage: quantity.sh WORK_DIR SEED COUNT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd) work=$(mkdir -p "$1/bin" "$1/src" && cd "$1" && pwd)
version=${DRA_GO_VERSION:-0.37.2}
oracle=$work/bin/quantity-oracle
if [ ! -f "$oracle" ] || [ "$here/quantity/oracle.go" -nt "$oracle" ]; then (
	export GOTOOLCHAIN=${GOTOOLCHAIN:-go1.27.3} GOFLAGS="-buildvcs=false -mod=mod" CGO_ENABLED=0
	cd "$work/src"
	rm -f go.mod go.sum
	cp "$here/quantity/oracle.go" .
	go mod init quantityoracle
	go mod edit -require "k8s.io/apimachinery@v$version"
	go build -o "$oracle" .
) >&2; fi
"$oracle" "$2" "$3" >"$work/values.jsonl"
DRA_QUANTITIES=$work/values.jsonl cargo test --locked --profile "${PROFILE:-ci}" -p dra-cel --test quantity
