#!/usr/bin/env bash
# Ray nodes in network namespaces of this machine, joined by a bridge over links of a given rate. Needs root, Linux,
# iproute2. The head has a namespace of its own and offers no CPUs, so that workers run on the other nodes alone.
#
#   nodes.sh up COUNT CPUS RATE [NAME=VALUE ...]  # nodes, CPUs that each offers to Ray, rate of a link (1gbit)
#   nodes.sh exec precision-time papers campaign run FILE --ray 10.77.0.10:6379
#   nodes.sh links COUNT RATE                     # the same nodes without Ray
#   nodes.sh on NODE COMMAND                      # run something on a node
#   nodes.sh down                                 # end what runs in the namespaces, and remove them
#
# NAME=VALUE is the environment of the workers; older vector instructions, for instance, are
# ONEDNN_MAX_CPU_ISA=AVX ATEN_CPU_CAPABILITY=default MKL_ENABLE_INSTRUCTIONS=AVX. RAY is the command `ray`, HOST_CORES
# where the processes of Ray itself run (a list as taskset reads it); workers go where the campaign says
# (worker_cores).
set -euo pipefail
RAY=${RAY:-ray}
HOST_CORES=${HOST_CORES:-0}
NET=10.77.0
BRIDGE=ptbr
# Nothing outside of the namespaces reaches these nodes: they ask for no token. Workers are started when they are asked
# for: one for every CPU of every node would import for a minute on one core.
QUIET=(RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 RAY_TRAIN_METRICS_ENABLED=0
    RAY_enable_worker_prestart=false RAY_prestart_worker_first_driver=false)
START=("$RAY" start --object-store-memory=100000000 --disable-usage-stats)

# Not `ip netns exec`, which hides the control groups of the machine behind a /sys of its own.
within() { nsenter --net="/run/netns/pt$1" taskset -c "$HOST_CORES" env "${QUIET[@]}" "${@:2}"; }

join() { # node: a namespace with an address on the bridge
    ip netns add "pt$1"
    ip link add "ptv$1" type veth peer name eth0 netns "pt$1"
    ip link set "ptv$1" master $BRIDGE up
    ip -n "pt$1" link set lo up
    ip -n "pt$1" link set eth0 up
    ip -n "pt$1" addr add "$NET.$((10 + $1))/24" dev eth0
}

links() { # count, rate: namespaces 0 (free) to count
    ip link add $BRIDGE type bridge
    ip link set $BRIDGE up
    join 0
    for node in $(seq 1 "$1"); do
        join "$node"
        # Both ways: what the node sends, and what the bridge sends to it.
        tc -n "pt$node" qdisc add dev eth0 root tbf rate "$2" burst 256kb latency 50ms
        tc qdisc add dev "ptv$node" root tbf rate "$2" burst 256kb latency 50ms
    done
}

up() {
    local count=$1 cpus=$2 rate=$3
    shift 3
    links "$count" "$rate"
    within 0 "${START[@]}" --head --port=6379 --node-ip-address=$NET.10 --num-cpus=0 --include-dashboard=false \
        --temp-dir="${TMPDIR:-/tmp}/ray-nodes" > /dev/null
    for node in $(seq 1 "$count"); do
        within "$node" GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1 "$@" "${START[@]}" --address=$NET.10:6379 \
            --node-ip-address="$NET.$((10 + node))" --num-cpus="$cpus" > /dev/null
    done
}

down() {
    for space in $(ip netns list | grep -o '^pt[0-9]*'); do
        ip netns pids "$space" | xargs -r kill -KILL
        ip link del "ptv${space#pt}" || true # with it its end in the namespace, which lives until its processes are gone
        ip netns del "$space"
    done
    ip link del $BRIDGE || true
}

case "${1:-}" in
up) up "${@:2}" ;;
links) links "${@:2}" ;;
exec) within 0 "${@:2}" ;;
on) within "${@:2}" ;;
down) down ;;
*) sed -n '2,15p' "$0" >&2 && exit 2 ;;
esac
