#!/usr/bin/env python3
"""Compares answers to the CEL corpus with those of Kubernetes, by the rules that corpus.py states.

usage: compare.py EXPECTED.jsonl KNOWN.tsv < answers.jsonl
KNOWN names the differences that are accepted, each with its reason. Prints equal verdicts and costs for each section; fails on
any other difference, and on a known one that is none any more.
"""
import json
import sys
from collections import defaultdict

SHARED_TEXTS = [
    "no such key: ", "no such overload", "integer overflow", "division by zero", "modulus by zero", "index out of bounds",
    "actual cost limit exceeded",
]


def difference(expected, answer):
    if "result" in expected.get("unstable", []):
        return None
    if "compileError" in expected:
        # A rejection may come at evaluation.
        rejected = "compileError" in answer or "runtimeError" in answer
        return None if rejected else "compile error " + expected["compileError"]
    if "runtimeError" in expected:
        error = expected["runtimeError"]
        same = all(text in answer.get("runtimeError", "") for text in SHARED_TEXTS if text in error)
        return None if "runtimeError" in answer and same else "runtime error " + error
    return None if answer.get("result") == expected["result"] else f"result {expected['result']}"


def main():
    read = lambda lines: [json.loads(line) for line in lines if line.strip()]
    known = dict(line.rstrip("\n").split("\t", 1) for line in open(sys.argv[2]))
    expected, answers = read(open(sys.argv[1])), read(sys.stdin)
    if [line["id"] for line in expected] != [line.get("id") for line in answers]:
        sys.exit(f"{len(answers)} answers for {len(expected)} expressions, or in another order")
    tallies = defaultdict(lambda: [0, 0, 0, 0])
    wrong = []
    for line, answer in zip(expected, answers):
        found = difference(line, answer)
        for name in (line["id"].split("/")[0], "all"):
            tally = tallies[name]
            tally[0] += found is None
            tally[1] += 1
            if "result" in line and "actualCost" in line:
                tally[2] += answer.get("actualCost") == line["actualCost"]
                tally[3] += 1
        if (found is not None) != (line["id"] in known):
            wrong.append(f"{line['id']} {line['expression']}\n  expected {found or 'a difference, as known'}\n  found {json.dumps(answer)}")
    total = tallies.pop("all")
    for name, tally in [*sorted(tallies.items()), ("all", total)]:
        print("{:10} verdicts {:4}/{:4}  costs {:4}/{:4}".format(name, *tally))
    sys.exit("\n".join(wrong) or None)


main()
