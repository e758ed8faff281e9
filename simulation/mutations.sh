#!/usr/bin/env bash
# Puts known defects back, one at a time, and looks whether the simulation notices each of them.
#
#   simulation/mutations.sh [NUMBER...]
#
# simulation/mutations/NN-name.patch holds one defect each; 00 is the switch between them. All of them are applied to a
# copy of the sources, which is built once; DEFECT=NN chooses the defect at run time. Each has SEEDS seeds (2,000) to be
# noticed. The result of each is printed, and those of all are in target/mutations/results.tsv. Ends with 1 if a defect
# was not noticed, or if the copy fails without any.
set -euo pipefail

# In a function, so that the script may be edited while it runs.
main() {
    cd "$(dirname "$0")/.."
    root=$PWD
    work=$root/target/mutations
    seeds=${SEEDS:-2000}

    rm -rf "$work/src"
    mkdir -p "$work/src"
    git ls-files -z | grep -zv '^simulation/mutations/' | xargs -0 cp --parents -t "$work/src"
    for patch in simulation/mutations/*.patch; do
        patch --quiet --directory "$work/src" --strip 1 --fuzz 2 --no-backup-if-mismatch < "$patch" \
            || { echo "$patch does not apply any more" >&2; exit 1; }
    done
    (cd "$work/src" && cargo build --locked --profile ci -p dra-simulation --target-dir "$work")
    simulation=$work/ci/simulation

    without=$("$simulation" --count 100) || { echo "fails without any defect: $without" >&2; exit 1; }

    results=$work/results.tsv
    : > "$results"
    survived=0
    for patch in simulation/mutations/*.patch; do
        name=$(basename "$patch" .patch)
        number=$((10#${name%%-*}))
        if [ "$number" = 0 ] || { [ $# -gt 0 ] && [[ " $* " != *" $number "* ]]; }; then
            continue
        fi
        if said=$(DEFECT=$number "$simulation" --count "$seeds" --first); then
            survived=$((survived + 1))
            printf '%s\t-\tNOT NOTICED within %s seeds\n' "$name" "$seeds" | tee -a "$results"
        else
            line=$(grep -m 1 '^seed ' <<< "$said" || echo "seed ?: ${said:0:200}")
            seed=${line%%:*}
            printf '%s\t%s\t%s\n' "$name" "${seed#seed }" "${line#*: }" | cut -c 1-400 | tee -a "$results"
        fi
    done
    echo "$(wc -l < "$results") defects, $survived not noticed"
    [ "$survived" = 0 ]
}

main "$@"
