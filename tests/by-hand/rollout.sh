#!/usr/bin/env bash
# Plays a rollout over 50 nodes with faults against a real control plane, and the removal afterwards: prints the story as the cluster
# tells it, and fails if it is not as it should be. Then counts the requests of 1,000 installers that wait, and of their rollout.
# Run it by hand: tests/run.sh does not, because Kubernetes is not in Debian. It takes about ten minutes and needs no root.
#
# etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl are real. The nodes are hollow: crates/agent/examples/hollow_nodes.rs
# stands in for their kubelets and for what `criscope install` does on a machine. Besides: curl, jq, openssl, and
#     cargo build -p criscope-agent --bins --example hollow_nodes
#
# usage: tests/by-hand/rollout.sh [story|helm|load|all]
# environment:
#   ETCD, KUBE_APISERVER, KUBE_CONTROLLER_MANAGER, KUBE_SCHEDULER, KUBECTL  the programs (default: in PATH)
#   HELM      helm (default: in PATH); for the mode helm
#   PROGRAMS  the directory of criscope's programs (default: target/debug)
#   INSTALLERS, SECONDS_OF_LOAD  how many installers wait, and how long their requests are counted (default: 1000, 300)
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PROGRAMS=${PROGRAMS:-$REPO/target/debug}
PORT=$((20000 + RANDOM % 20000))
SERVER=https://127.0.0.1:$PORT
NODES=50
BEGIN=$(date +%s)

. "$REPO/tests/by-hand/cluster.sh"

status() { criscope status "$@"; }
on_timeout() { status --all; }

# --- the story ---------------------------------------------------------------------------------------------------------

state_of() { kubectl get lease -n criscope-node "$1" -o jsonpath='{.metadata.annotations.criscope\.dev/state}' 2> /dev/null; }
is_in() { [ "$(state_of "$1")" = "$2" ]; }
count_in() { kubectl get leases -n criscope-node -o json | jq "[.items[] | select(.metadata.annotations[\"criscope.dev/state\"] == \"$1\")] | length"; }
has_in() { [ "$(count_in "$2")" -ge "$1" ]; }
events_on() { kubectl get events -n default -o json | jq -r "[.items[] | select(.involvedObject.name == \"$1\" and (.reason | startswith(\"Criscope\")))] | sort_by(.eventTime) | [.[].reason] | join(\" \")"; }
expect() { [ "$2" = "$3" ] || die "$1: expected '$3', found '$2'"; say "$1: $2"; }
installed() { find "$DIR/nodes" -name installed | wc -l; }

# metrics NODE: what the agent of a node reports
metrics() {
    local port=$((PORT + 100 + RANDOM % 1000))
    KUBECONFIG="$DIR/admin.kubeconfig" "$PROGRAMS/criscope-agent" serve --node "$1" --daemon "unix://$DIR/nodes/$1/criscope.sock" \
        --listen "127.0.0.1:$port" --events=false > "$DIR/agent.log" 2>&1 &
    local pid=$!
    curl -sk --retry 20 --retry-delay 1 --retry-connrefused -H 'Authorization: Bearer admin-token' "https://127.0.0.1:$port/metrics" | grep ' 1$'
    kill "$pid"
    wait "$pid" 2> /dev/null || true
}

story() {
    mkdir "$DIR/nodes"
    for ((n = 0; n < NODES; n++)); do
        local ring=1
        [ "$n" -lt 3 ] && ring=0
        make_node "$(printf 'node-%02d' "$n")" ", \"ring\": \"$ring\""
    done | kubectl create -f - > /dev/null
    KUBECONFIG="$DIR/admin.kubeconfig" background hollow "$PROGRAMS/examples/hollow_nodes" "$DIR/nodes"
    until_true 60 'ready nodes' test -e "$DIR/nodes/node-49"
    kubectl kustomize "$REPO/deploy/kubernetes/base" | sed -E 's/^( *)- --max-parallel=1$/\1- --max-parallel=10%\n\1- --canary=ring=0/; s/--soak=30s/--soak=2s/' |
        kubectl apply --server-side -f - > /dev/null
    say "installers start on $NODES nodes, 10% at a time, node-00 to node-02 first"
    until_true 120 'first nodes' has_in 3 'done'
    expect 'the first three are the canaries' "$(state_of node-00) $(state_of node-01) $(state_of node-02)" 'done done done'
    DEAD=$(waiting_node 10)
    touch "$DIR/nodes/$DEAD/hang"
    until_true 120 "turn of $DEAD" is_in "$DEAD" working
    touch "$DIR/nodes/$DEAD/dead"
    rm "$DIR/nodes/$DEAD/hang"
    say "$DEAD dies during its turn"
    # Not before: the rollout stops at the first node that fails.
    BROKEN=$(waiting_node 10)
    echo 'kubelet.service is not active' > "$DIR/nodes/$BROKEN/broken"
    say "criscope does not become healthy on $BROKEN"
    until_true 300 'stop' is_in "$BROKEN" failed
    status
    expect 'metric of the node that failed' "$(metrics "$BROKEN")" 'criscope_install_state{state="failed"} 1'
    expect "events of $BROKEN" "$(events_on "$BROKEN")" 'CriscopeInstalling CriscopeInstallFailed'
    until_true 120 'lost node' is_in "$DEAD" lost
    status
    expect "events of $DEAD" "$(events_on "$DEAD")" 'CriscopeInstalling CriscopeInstallLost'
    sleep 10
    expect 'nodes with a turn while it is stopped' "$(( $(count_in turn) + $(count_in working) + $(count_in soaking) ))" 0
    say 'one node is added, one that waits is removed'
    make_node node-50 ', "ring": "1"' | kubectl create -f - > /dev/null
    local removed
    removed=$(waiting_node -1)
    touch "$DIR/nodes/$removed/dead"
    kubectl delete node "$removed" > /dev/null
    until_true 60 'record of the new node' is_in node-50 waiting
    until_true 120 "end of the record of $removed" no_lease "$removed"
    expect "criscope on $removed, which never had a turn" "$(find "$DIR/nodes/$removed" -name installed)" ''
    # Its machine is gone.
    rm -r "$DIR/nodes/$removed"
    say "$BROKEN is mended and tried again"
    rm "$DIR/nodes/$BROKEN/broken"
    criscope rollout retry "$BROKEN"
    until_true 400 'end of the rollout' has_in $((NODES - 1)) 'done'
    status
    expect "events of $BROKEN" "$(events_on "$BROKEN")" 'CriscopeInstalling CriscopeInstallFailed CriscopeInstalling CriscopeInstalled'
    expect 'most nodes with a turn at the same time, of at most 10%' "$(most_at_once)" 5
    expect 'metric of a node that is done' "$(metrics_file node-05)" 'done'
    say "$DEAD comes back"
    rm "$DIR/nodes/$DEAD/dead"
    until_true 120 "$DEAD" is_in "$DEAD" 'done'
    expect 'nodes with criscope' "$(installed)" "$NODES"

    say 'helm uninstall: the hook runs while node-07 is off'
    touch "$DIR/nodes/node-07/dead"
    until_true 60 'unreachable node' unreachable node-07
    if uninstall_cluster --patience=30s; then die 'the hook succeeded'; fi
    expect 'nodes with criscope' "$(installed)" 1
    say 'node-07 is back; the hook runs again'
    rm "$DIR/nodes/node-07/dead"
    uninstall_cluster --patience=3m || die 'the hook failed'
    expect 'nodes with criscope' "$(installed)" 0
    expect 'events of node-07' "$(events_on node-07)" 'CriscopeInstalling CriscopeInstalled CriscopeUninstalling CriscopeUninstalled'
    kubectl delete -k "$REPO/deploy/kubernetes/base" --wait=false > /dev/null
    until_true 180 'end of the namespaces' nothing_left
    expect 'objects of criscope in the cluster' "$(left)" ''
    expect 'files of installers on the nodes' "$(find "$DIR/nodes" -type f | wc -l)" 0
}

# waiting_node N: the waiting node that gets its turn after so many others; -1 is the last. Not the one that gives the turns, which waits
# for all others.
waiting_node() {
    local holder
    holder=$(kubectl get lease -n criscope-node criscope-install -o jsonpath='{.spec.holderIdentity}')
    kubectl get leases -n criscope-node -o json | jq -er --arg holder "$holder" "[.items[] | select(.metadata.annotations[\"criscope.dev/state\"] == \"waiting\"
        and .metadata.name != \$holder)] | sort_by(.metadata.annotations[\"criscope.dev/since\"], .metadata.name)[$1].metadata.name" ||
        die "fewer nodes wait than expected"
}
no_lease() { ! kubectl get lease -n criscope-node "$1"; }
unreachable() { [ "$(kubectl get node "$1" -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}')" = Unknown ]; }
metrics_file() { cat "$DIR/nodes/$1/install.state"; }
# From the logs of the installers, which tell each state in order. The log of the node that died does not tell that it lost its turn.
most_at_once() {
    grep -o '^[^ ]* .*state of this node.*' "$DIR/hollow.log" | sed 's/\x1b\[[0-9;]*m//g' | grep -v "$DEAD" | awk '
        { state = ""; node = ""; for (i = 1; i <= NF; i++) { if ($i ~ /^state=/) state = $i; if ($i ~ /^node=/) node = $i } }
        state ~ /working|soaking/ { at[node] = 1 }
        state !~ /working|soaking/ { delete at[node] }
        { count = 0; for (n in at) count++; if (count > most) most = count }
        END { print most }'
}
# What the hook of the chart runs, with the rights of its service account.
uninstall_cluster() {
    local token
    token=$(kubectl create token -n criscope-node criscope-uninstaller)
    kubeconfig uninstaller "$token"
    KUBECONFIG="$DIR/uninstaller.kubeconfig" "$PROGRAMS/criscope-agent" uninstall-cluster --namespace criscope-node "$@"
}
left() { kubectl get clusterroles,clusterrolebindings,namespaces -o name | grep criscope | tr '\n' ' ' || true; }
nothing_left() { [ -z "$(left)" ]; }

# --- helm --------------------------------------------------------------------------------------------------------------

helm() { KUBECONFIG="$DIR/admin.kubeconfig" "$HELM" --namespace criscope "$@"; }

# helm_story: the chart is installed on ten nodes and uninstalled, first while one of them is off
helm_story() {
    HELM=${HELM:-$(program helm)} NODES=10
    mkdir "$DIR/nodes"
    for ((n = 0; n < NODES; n++)); do make_node "$(printf 'node-%02d' "$n")" ''; done | kubectl create -f - > /dev/null
    KUBECONFIG="$DIR/admin.kubeconfig" background hollow "$PROGRAMS/examples/hollow_nodes" "$DIR/nodes"
    until_true 60 'ready nodes' test -e "$DIR/nodes/node-09"
    helm install criscope "$REPO/deploy/kubernetes/chart" --create-namespace --set install.maxParallel=50% --set install.soak=1s \
        --set uninstall.patience=30s > /dev/null
    until_true 120 'end of the rollout' has_in "$NODES" 'done'
    expect 'nodes with criscope' "$(installed)" "$NODES"
    touch "$DIR/nodes/node-07/dead"
    until_true 60 'unreachable node' unreachable node-07
    say 'helm uninstall while node-07 is off'
    if helm uninstall criscope > "$DIR/helm.out" 2>&1; then die 'helm uninstall succeeded'; fi
    cat "$DIR/helm.out"
    grep '^hook' "$DIR/hollow.log"
    expect 'nodes with criscope' "$(installed)" 1
    expect 'the installer is still there' "$(kubectl get daemonset -n criscope-node -o name)" daemonset.apps/criscope-installer
    say 'node-07 is back; helm uninstall again'
    rm "$DIR/nodes/node-07/dead"
    helm uninstall criscope
    expect 'nodes with criscope' "$(installed)" 0
    # Helm keeps the namespace that it has made.
    kubectl delete namespace criscope --wait=false > /dev/null
    until_true 180 'end of the namespaces' nothing_left
    expect 'releases' "$(helm list --all --short)" ''
    expect 'files of installers on the nodes' "$(find "$DIR/nodes" -type f | wc -l)" 0
}

# --- the load ----------------------------------------------------------------------------------------------------------

# requests: the number of requests of the API server so far, without those of Kubernetes' own parts
requests() { kubectl get --raw /metrics | awk '/^apiserver_request_total/ && /resource="(leases|nodes|events)"/ && /system_client=""/ { n += $NF } END { print n }'; }

load() {
    local count=${INSTALLERS:-1000}
    # It would find that these nodes have no kubelets, and a node that is not reachable gets no turn.
    kill -KILL "$CONTROLLERS"
    mkdir -p "$DIR/bare"
    kubectl create namespace criscope-node > /dev/null
    kubectl apply --server-side -f "$REPO/deploy/kubernetes/base/install/rbac.yaml" > /dev/null
    for ((n = 0; n < count; n++)); do make_node "bare-$n" ''; done | kubectl create -f - > /dev/null
    kubectl create -f - > /dev/null <<< '{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "criscope-install",
        "namespace": "criscope-node", "labels": {"criscope.dev/rollout": "coordinator"}, "annotations": {"criscope.dev/paused": "to count"}}}'
    KUBECONFIG="$DIR/admin.kubeconfig" background bare "$PROGRAMS/examples/hollow_nodes" "$DIR/bare" bare "$count"
    until_true 300 'waiting installers' has_in "$count" waiting
    sleep 30
    local before after seconds=${SECONDS_OF_LOAD:-300}
    before=$(requests)
    sleep "$seconds"
    after=$(requests)
    say "$count installers wait: $(awk "BEGIN { printf \"%.1f\", ($after - $before) / $seconds }") requests a second"
    say "memory of all installers: $(awk '/VmRSS/ { print $2 / 1024 " MiB" }' "/proc/${PIDS[-1]}/status")"
    kubectl annotate lease -n criscope-node criscope-install criscope.dev/paused- > /dev/null
    local begin
    begin=$(date +%s)
    until_true 900 'end of the rollout' has_in "$count" 'done'
    seconds=$(($(date +%s) - begin)) before=$after after=$(requests)
    say "$count nodes are done in $seconds s, 10% at a time: $(awk "BEGIN { printf \"%.1f a second, %.1f for each node\", ($after - $before) / $seconds, ($after - $before) / $count }") requests"
}

main() {
    ETCD=${ETCD:-$(program etcd)} KUBE_APISERVER=${KUBE_APISERVER:-$(program kube-apiserver)} KUBECTL=${KUBECTL:-$(program kubectl)}
    KUBE_CONTROLLER_MANAGER=${KUBE_CONTROLLER_MANAGER:-$(program kube-controller-manager)}
    KUBE_SCHEDULER=${KUBE_SCHEDULER:-$(program kube-scheduler)}
    DIR=$(mktemp -d)
    trap clean_up EXIT
    start_cluster
    case ${1:-all} in
        story) story ;;
        helm) helm_story ;;
        load) load ;;
        all) story; load ;;
        *) die "usage: rollout.sh [story|helm|load|all]" ;;
    esac
    say 'done'
}

main "$@"
