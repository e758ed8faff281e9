#!/usr/bin/env bash
# Builds the CEL oracle from the published Go modules and runs it.
# usage: cel.sh WORK_DIR [-bench] < requests.jsonl > answers.jsonl     protocol: the comment on top of cel/oracle.go
#        cel.sh WORK_DIR expected CORPUS.jsonl > expected.jsonl        each corpus line merged with its answer
#        cel.sh WORK_DIR check                                         cel/expected.jsonl still is what corpus.py + oracle give
#        cel.sh compare COMMAND...                                     COMMAND's answers against cel/expected.jsonl; needs no Go
# WORK_DIR/bin/cel-oracle is the program itself, for differential tests. WORK_DIR must stay out of version control.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ "$1" = compare ]; then
	shift
	"$@" <"$here/cel/expected.jsonl" | python3 "$here/cel/compare.py" "$here/cel/expected.jsonl" "$here/cel/known.tsv"
	exit
fi
work=$(mkdir -p "$1/bin" "$1/cel" && cd "$1" && pwd)
shift
version=${DRA_GO_VERSION:-0.37.2}
export GOTOOLCHAIN=${GOTOOLCHAIN:-go1.27.3} GOFLAGS="-buildvcs=false -mod=mod" CGO_ENABLED=0
oracle=$work/bin/cel-oracle
if [ ! -f "$oracle" ] || [ "$here/cel/oracle.go" -nt "$oracle" ]; then (
	cd "$work/cel"
	rm -f go.mod go.sum
	cp "$here/cel/oracle.go" .
	go mod init celoracle
	go mod edit -require "k8s.io/dynamic-resource-allocation@v$version"
	go build -o "$oracle" .
) >&2; fi
answers() { python3 "$here/cel/corpus.py" --merge "$1" <("$oracle" <"$1"); }
case ${1:-} in
expected) answers "$2" ;;
check)
	python3 "$here/cel/corpus.py" >"$work/cel/corpus.jsonl"
	answers "$work/cel/corpus.jsonl" | diff - "$here/cel/expected.jsonl" && echo "expected.jsonl is up to date"
	;;
*) exec "$oracle" "$@" ;;
esac
