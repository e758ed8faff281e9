#!/usr/bin/env bash
# Fuzzes one target from the recorded expressions, quantities and requests on.
# usage: run.sh allocate|cel|quantity SECONDS [libFuzzer options]
# Needs a nightly toolchain and cargo-fuzz. There is no unsafe code here, so that no sanitizer is needed; libFuzzer's
# limits end an input that takes more than 20 s or 1 GiB. What it finds is in fuzz/artifacts/TARGET.
set -euo pipefail
cd "$(dirname "$0")"
target=$1 seconds=$2
shift 2
mkdir -p "corpus/$target"
python3 - "$target" <<-'PY'
	import json, struct, sys
	target = sys.argv[1]
	if target == "cel":
	    seeds = [json.loads(line)["expression"] for line in open("../e2e/conformance/cel/expected.jsonl")]
	elif target == "quantity":
	    lines = [json.loads(line) for line in open("../e2e/conformance/quantity/expected.jsonl")]
	    seeds = [line["a"] + "\n" + line["b"] for line in lines]
	else:
	    seeds = ["".join(map(chr, struct.pack("<I", seed) + edits)) for seed in range(300) for edits in (b"", b"\x40\x00\x02\x00")]
	for number, seed in enumerate(seeds):
	    encoding = "latin-1" if target == "allocate" else "utf-8"
	    if len(seed) <= 2000:
	        open(f"corpus/{target}/seed-{number}", "wb").write(seed.encode(encoding, "surrogatepass"))
PY
options=(-max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -malloc_limit_mb=512 -max_len=2000 -print_final_stats=1)
[ "$target" = cel ] && options+=(-dict=cel.dict)
exec cargo +nightly fuzz run --fuzz-dir . --sanitizer none "$target" -- "${options[@]}" "$@"
