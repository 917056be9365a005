#!/usr/bin/env bash
# Measure the campaigns own-predictddl-cpu-*.yaml on core 1 of this machine, several trials at a time where they leave
# room: the shares of all workers add up to 0.88 of the core. Needs root; nothing else may run on core 1 meanwhile.
#
#   own-predictddl-cpu.sh FOLDER      # stores, one per lane; running it again goes on where it stopped
#
# Afterwards: precision-time papers campaign export STORE --out FILE for each, and put the rows together.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
mkdir -p "$folder"
export HOST_CORES=1 OMP_NUM_THREADS=1

measure() { # campaign, workers, lanes of that many nodes each
    local campaign=$1 workers=$2 lanes=$3 first rank
    for lane in $(seq 0 $((lanes - 1))); do
        first=$((lane * workers + 1))
        for rank in $(seq 0 $((workers - 1))); do
            # shellcheck disable=SC2046 # the environment of the campaign is words
            "$here/nodes.sh" on $((first + rank)) GLOO_SOCKET_IFNAME=eth0 \
                $(sed -n '/^environment:/,/^[a-z]/s/^  \([A-Z_]*\): /\1=/p' "$here/$campaign.yaml") \
                python "$here/torch_workers.py" "$here/$campaign.yaml" --workers "$workers" --rank "$rank" \
                --lane "$lane/$lanes" --store "$folder/$campaign-w$workers-$lane.sqlite" \
                --master "10.77.0.$((10 + first)):29500" --node "pt$((first + rank))" &
        done
    done
    wait
}

"$here/nodes.sh" links 8 1gbit
trap '"$here/nodes.sh" down' EXIT
for workers in 1 2 4; do
    measure own-predictddl-cpu-avx512 "$workers" $((4 / workers))
    measure own-predictddl-cpu-avx "$workers" $((8 / workers))
done
