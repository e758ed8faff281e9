#!/usr/bin/env python3
"""Prints the allocator's section of docs/BENCHMARKS.md: ours against the Go allocator, then the figures of scale.

usage: allocator.py SCENARIOS GO OURS [--time 300ms] [--rounds 3]     SCENARIOS as written by scenarios.py

The programs take turns on each file, so that a noisy neighbour hits all of them; of the rounds the fastest counts. Exit
status 1 if an outcome differs, an ordinary scenario is less than 10 times faster live, or one is slower cold.
"""

import argparse
import platform
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance" / "allocator"))
from bench import human, measure  # noqa: E402

# Go's search of these takes seconds, or ends at its limit of ten.
PATHOLOGICAL = {"pathological_count_n_plus_1", "pathological_matching_attribute", "pathological_single_requests"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", type=Path)
    parser.add_argument("go")
    parser.add_argument("ours")
    parser.add_argument("--time", default="300ms")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    load = open("/proc/loadavg").read().split()[0]
    print(f"{date.today()}, {cpu}, load average {load} at the start, {args.rounds} rounds of {args.time}.\n")
    print("| scenario | outcome (devices) | Go | live | ratio | CPU ratio | cold | ratio | CPU ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    good = True
    for file in sorted(args.scenarios.glob("*.json")):
        pathological = file.stem in PATHOLOGICAL
        programs = [args.go, args.ours, f"{args.ours} cold"]
        taken = {program: [] for program in programs}
        for round_ in range(args.rounds):
            for program in programs:
                if not (pathological and program == args.go and round_):
                    taken[program].append(measure(program, args.time, file))
        time = [min(m["min_ns_per_op"] for m in taken[program]) for program in programs]
        # A CPU tick is a hundredth of a second: the median is steadier than the least.
        cpu = [statistics.median(m["cpu_ns_per_op"] for m in taken[program]) for program in programs]
        answers = {(m["outcome"], m["results"]) for of_program in taken.values() for m in of_program if not m["timed_out"]}
        good = good and len(answers) == 1
        cells = [file.stem, " ≠ ".join(f"{outcome} ({devices})" for outcome, devices in sorted(answers)), human(time[0])]
        cells[-1] += " (gave up)" * any(m["timed_out"] for m in taken[args.go])
        for ours in 1, 2:
            cells += [human(time[ours]), f"{time[0] / time[ours]:.1f}", f"{cpu[0] / cpu[ours]:.1f}" if cpu[ours] else "?"]
        good = good and time[0] >= 10 * time[1] and time[0] >= time[2]
        print("|", " | ".join(cells), "|", flush=True)
    print("\n### Scale\n\n`dra-conformance scale`, wall clock:\n\n```text")
    subprocess.run([args.ours, "scale"], check=True)
    print("```")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
