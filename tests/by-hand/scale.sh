#!/usr/bin/env bash
# Measures what 1,000 agents cost: requests and bytes at a real API server while nothing happens, while Prometheus reads them, and while 300 pods
# fail at once; memory of an agent; times of the plugin with 20 nodes that do not answer. It prints figures and checks few of them: what
# they should be is in docs/KUBERNETES.md.
# Run it by hand: tests/run.sh does not, because Kubernetes is not in Debian. It takes about ten minutes, and root or unprivileged user
# namespaces: API servers connect to no loopback address, so everything runs in a network namespace where 10.77.0.0/16 is local.
#
# etcd, kube-apiserver, kubectl, the agents and the plugin are real; crates/agent/examples/hollow_agents.rs stands in for nodes and daemons.
#     cargo build -p criscope-agent --bins --example hollow_agents
#
# usage: tests/by-hand/scale.sh
# environment:
#   ETCD, KUBE_APISERVER, KUBECTL  the programs (default: in PATH)
#   PROGRAMS  the directory of criscope's programs (default: target/debug)
#   AGENTS, SILENT  how many agents there are, and how many of them do not answer (default: 1000, 20)
#   SECONDS_OF_LOAD, SECONDS_OF_SERIES  how long requests are counted (default: 120), and how long pods go on failing (default: 400)
set -euo pipefail

if [ -z "${IN_NAMESPACE:-}" ]; then IN_NAMESPACE=1 exec unshare --user --map-root-user --net "$0" "$@"; fi

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PROGRAMS=${PROGRAMS:-$REPO/target/debug}
PORT=6443
SERVER=https://127.0.0.1:$PORT
BEGIN=$(date +%s)
AGENTS=${AGENTS:-1000} SILENT=${SILENT:-20} SECONDS_OF_LOAD=${SECONDS_OF_LOAD:-120}
. "$REPO/tests/by-hand/cluster.sh"

# totals: requests and bytes so far, by verb and resource, without those of the API server itself and of this script
totals() {
    kubectl get --raw /metrics | awk '
        function label(name) { return match($0, name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) : "" }
        /^apiserver_request_total/ { count[label("verb") " " label("resource")] += $NF }
        # The API server counts bytes of answers to reads, and of the bodies of writes.
        /^apiserver_response_sizes_sum/ { bytes[label("verb") " " label("resource")] += $NF }
        /^apiserver_request_body_size_bytes_sum/ {
            verb = label("verb"); sub("create", "POST", verb); sub("update", "PUT", verb)
            bytes[toupper(verb) " " label("resource")] += $NF
        }
        END { for (key in count) if (key ~ /tokenreviews|subjectaccessreviews|events|leases|nodes|daemonsets/) print key, count[key], bytes[key] + 0 }'
}

# count WHAT SECONDS: the requests in so many seconds
count() {
    totals | sort > "$DIR/before"
    sleep "$2"
    totals | sort > "$DIR/after"
    say "$1, in $2 s (load $(cut -d ' ' -f 1 /proc/loadavg)):"
    awk -v seconds="$2" 'NR == FNR { count[$1 " " $2] = $3; bytes[$1 " " $2] = $4; next }
        { n = $3 - count[$1 " " $2]; b = $4 - bytes[$1 " " $2]; all += n; sum += b
          if (n > 0) printf "    %-30s %6d requests, %9d bytes\n", $1 " " $2, n, b }
        END { printf "    all: %.2f requests a second, %.0f bytes a second\n", all / seconds, sum / seconds }' "$DIR/before" "$DIR/after"
}

# scrape: reads the metrics of all agents that answer once, as Prometheus does
scrape() {
    for ((n = SILENT + 1; n <= AGENTS; n++)); do
        printf 'url = "https://10.77.%d.%d:9479/metrics"\noutput = "/dev/null"\n' $((n / 256)) $((n % 256))
    done > "$DIR/urls"
    curl -sSk --no-progress-meter --parallel --parallel-max 16 -w '%{http_code}\n' -H 'Authorization: Bearer admin-token' -K "$DIR/urls" | sort | uniq -c
}
scrape_every_15_seconds() { while sleep 15; do scrape; done; }

# timed WHAT COMMAND...
timed() {
    local begin end
    begin=$(date +%s%N)
    "${@:2}" > "$DIR/out" 2> "$DIR/err" || true
    end=$(date +%s%N)
    say "$1: $(((end - begin) / 1000000)) ms, $(wc -l < "$DIR/out") lines, $(wc -c < "$DIR/out") bytes, $(grep -c 'did not answer' "$DIR/err" || true) nodes did not answer (load $(cut -d ' ' -f 1 /proc/loadavg))"
    tail -n 1 "$DIR/err" | cut -c 1-200
}

memory() { awk '/^(VmRSS|RssAnon)/ { printf "%s %.1f MiB  ", $1, $2 / 1024 }' "/proc/$1/status"; }

plugin() {
    timed 'pods -A' criscope pods -A
    timed 'fleet' criscope fleet
    timed 'explain of a pod' criscope explain shop/web-500-0
    timed 'explain of a deleted pod, which all nodes are asked for' criscope explain shop/web-501-0
}

main() {
    ETCD=${ETCD:-$(program etcd)} KUBE_APISERVER=${KUBE_APISERVER:-$(program kube-apiserver)} KUBECTL=${KUBECTL:-$(program kubectl)}
    ulimit -n "$(ulimit -Hn)"
    ip link set lo up
    ip route add local 10.77.0.0/16 dev lo
    DIR=$(mktemp -d)
    trap clean_up EXIT
    start_api_server
    kubectl create namespace shop > /dev/null
    # Without kube-controller-manager nothing makes it.
    kubectl create serviceaccount default -n shop > /dev/null
    kubectl kustomize "$REPO/deploy/kubernetes/base" | kubectl apply --server-side -f - > /dev/null
    KUBECONFIG="$DIR/admin.kubeconfig" background agents "$PROGRAMS/examples/hollow_agents" "$DIR" "$AGENTS" "$SILENT"
    local agents=$!
    until_true 300 'agents' test -e "$DIR/started"
    say "$AGENTS agents run; $SILENT of their daemons do not answer"
    kubectl create -f - > /dev/null <<< '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-500-0", "namespace": "shop"},
        "spec": {"nodeName": "scale-500", "automountServiceAccountToken": false, "containers": [{"name": "app", "image": "app"}]}}'
    sleep 20
    count 'nothing happens' "$SECONDS_OF_LOAD"
    say "memory of all $AGENTS agents with their daemons: $(memory "$agents")"
    KUBECONFIG="$DIR/admin.kubeconfig" background agent "$PROGRAMS/criscope-agent" serve --node scale-999 --daemon "unix://$DIR/scale-999/criscope.sock" --listen 127.0.0.1:9479
    local agent=$!
    background scrapes scrape_every_15_seconds
    local scrapes=$!
    count 'Prometheus reads every 15 s' "$SECONDS_OF_LOAD"
    tail -n 3 "$DIR/scrapes.log"
    kill "$scrapes"
    say "memory of one agent: $(memory "$agent")"
    plugin
    touch "$DIR/incident"
    count '300 pods fail on 100 nodes' 60
    plugin
    count '300 pods still fail' "${SECONDS_OF_SERIES:-400}"
    kubectl get events -n shop -o json | jq -r '"    events: \(.items | length), with a series: \([.items[] | select(.series)] | length)"'
    say 'done'
}

main "$@"
