#!/usr/bin/env bash
# Shows with a real API server what the holders of the Role criscope-user reach, and what they do not: rules, and requests through the API
# server's proxy to agents, other pods, nodes and Services. An administrator sends each request too, which shows that its target is there.
# Run it by hand, as root: tests/run.sh does not, because kube-apiserver and kubectl are not in Debian.
#
# kube-apiserver and kubectl are files of a release of Kubernetes (https://kubernetes.io/releases/download/), etcd 3.5 or newer is a file of
# https://github.com/etcd-io/etcd/releases. Besides these: cargo build --workspace --bins, and curl, jq, iproute2, openssl, python3.
#
# The node is a network namespace. In it are etcd, the API server, the daemon, a port on all addresses (10255, like a kubelet's read-only
# port) and a port on loopback. The agent is criscope-agent in a network namespace of its own, where a program of another port stands for
# the rest of a pod. There are no kubelet and no controllers: pods are made from the manifests' DaemonSets, and their addresses are set.
#
# usage: tests/by-hand/criscope-user.sh
# environment:
#   ETCD, KUBE_APISERVER, KUBECTL  the three programs (default: in PATH)
#   PROGRAMS                       the directory of criscope's programs (default: target/debug)
set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
NODE=10.250.38.1 POD=10.250.38.2
SERVER=https://127.0.0.1:6443
CORE=/api/v1
AGENTS=$CORE/namespaces/criscope
INSTALLERS=$CORE/namespaces/criscope-node

die() { printf 'criscope-user.sh: %s\n' "$1" >&2; exit 1; }
program() { type -P "$1" || die "there is no program $1"; }

# --- the cluster -------------------------------------------------------------------------------------------------------

# background NAME COMMAND...: a process that ends with the PID namespace
background() { "${@:2}" > "$DIR/$1.log" 2>&1 < /dev/null & }

# until_true WHAT COMMAND...
until_true() {
    local what=$1 i
    shift
    for ((i = 0; i < 600; i++)); do
        ! "$@" > /dev/null 2>&1 || return 0
        sleep 0.2
    done
    tail -n 5 "$DIR"/*.log >&2
    die "no $what"
}

in_pod() { nsenter --net="/proc/$POD_PID/ns/net" -- "$@"; }

pod_has_a_network() { [ "$(readlink "/proc/$POD_PID/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

make_networks() {
    ip link set lo up
    unshare --net sleep infinity &
    POD_PID=$!
    until_true 'network namespace' pod_has_a_network
    ip link add pod type veth peer name eth0 netns "$POD_PID"
    ip addr add "$NODE/24" dev pod
    ip link set pod up
    in_pod ip addr add "$POD/24" dev eth0
    in_pod ip link set eth0 up
    in_pod ip link set lo up
}

# Answers with a text, and on /redirect with the address of the node's port.
write_server() {
    cat > "$DIR/server.py" <<PYTHON
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302 if self.path.endswith("/redirect") else 200)
        self.send_header("Location", "http://$NODE:10255/")
        self.end_headers()
        self.wfile.write(sys.argv[3].encode())
http.server.ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
PYTHON
}

make_certificates() {
    (cd "$DIR" && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt &&
        openssl req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout server.key -out server.csr &&
        openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt \
            -extfile <(printf 'subjectAltName=IP:127.0.0.1,IP:%s' "$NODE") &&
        openssl genrsa -out accounts.key 2048) 2> /dev/null
}

# kubeconfig NAME TOKEN [SERVER]: leaves $DIR/NAME.kubeconfig
kubeconfig() {
    jq -n --arg server "${3:-$SERVER}" --arg token "$2" --arg ca "$(base64 -w 0 "$DIR/ca.crt")" '{
        apiVersion: "v1", kind: "Config", "current-context": "x", contexts: [{name: "x", context: {cluster: "x", user: "x"}}],
        clusters: [{name: "x", cluster: {server: $server, "certificate-authority-data": $ca}}],
        users: [{name: "x", user: {token: $token}}]}' > "$DIR/$1.kubeconfig"
}
kubectl() { "$KUBECTL" --kubeconfig "$DIR/admin.kubeconfig" "$@"; }

start_cluster() {
    make_certificates
    printf '%s\n' 'admin-token,admin,1,system:masters' 'alice-token,alice,2,criscope-users' 'nobody-token,nobody,3' > "$DIR/tokens"
    kubeconfig admin admin-token
    kubeconfig alice alice-token
    kubeconfig nobody nobody-token
    background etcd "$ETCD" --data-dir "$DIR/etcd" --listen-peer-urls http://127.0.0.1:2380
    background kube-apiserver "$KUBE_APISERVER" --etcd-servers=http://127.0.0.1:2379 --authorization-mode=RBAC \
        --token-auth-file="$DIR/tokens" --tls-cert-file="$DIR/server.crt" --tls-private-key-file="$DIR/server.key" \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$DIR/accounts.key" \
        --service-account-signing-key-file="$DIR/accounts.key" --service-cluster-ip-range=10.96.0.0/16 --advertise-address="$NODE" \
        --allow-privileged=true
    until_true 'API server' kubectl get --raw /readyz
    kubectl apply --server-side -k "$REPO/deploy/kubernetes/base" > /dev/null
    kubectl create serviceaccount default -n kube-system > /dev/null
    kubectl create serviceaccount other -n kube-system > /dev/null
}

# pod NAMESPACE NAME ADDRESS: reads the specification from the standard input
pod() {
    jq --arg namespace "$1" --arg name "$2" '{apiVersion: "v1", kind: "Pod",
        metadata: {name: $name, namespace: $namespace, labels: .metadata.labels}, spec: (.spec + {nodeName: "node-1"})}' |
        kubectl create -f - > /dev/null
    kubectl patch pod -n "$1" "$2" --subresource=status --type=merge > /dev/null \
        -p "{\"status\": {\"phase\": \"Running\", \"podIP\": \"$3\", \"podIPs\": [{\"ip\": \"$3\"}]}}"
}
template() { kubectl get daemonset -n "$1" "$2" -o json | jq .spec.template; }

make_objects() {
    local host='{"spec": {"hostNetwork": true, "containers": [{"name": "exporter", "image": "exporter"}]}}'
    template criscope criscope | pod criscope agent "$POD"
    template criscope-node criscope-installer | pod criscope-node installer "$NODE"
    pod kube-system exporter "$NODE" <<< "$host"
    kubectl create -f - > /dev/null <<OBJECTS
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "criscope"}, "spec": {"ports": [{"name": "http", "port": 8080}]}},
  {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "web", "namespace": "criscope"},
   "subsets": [{"addresses": [{"ip": "$POD", "targetRef": {"kind": "Pod", "namespace": "criscope", "name": "agent"}}], "ports": [{"name": "http", "port": 8080}]}]},
  {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "password", "namespace": "criscope"}}]}
OBJECTS
    kubectl patch node node-1 --subresource=status --type=merge > /dev/null -p "{\"status\": {\"addresses\": [{\"type\": \"InternalIP\",
        \"address\": \"$NODE\"}], \"daemonEndpoints\": {\"kubeletEndpoint\": {\"Port\": 10250}}}}"
    # By a group, as for people, and by a service account.
    kubectl create rolebinding users -n criscope --role criscope-user --group criscope-users --serviceaccount kube-system:default > /dev/null
}

start_criscope() {
    cat > "$DIR/criscope.toml" <<CRISCOPE
[server]
listen = "unix://$DIR/criscope.sock"
[admin]
listen = "off"
agent_socket = "unix://$DIR/agent/criscope.sock"
[backends.none]
kind = "upstream"
endpoint = "unix://$DIR/none.sock"
CRISCOPE
    background criscope "$PROGRAMS/criscope" serve --config "$DIR/criscope.toml"
    until_true 'socket for agents' test -S "$DIR/agent/criscope.sock"
    cp "$PROGRAMS/criscope-agent" "$DIR"
    kubeconfig agent "$(kubectl create token -n criscope criscope-agent)" "https://$NODE:6443"
    chmod 0644 "$DIR/agent.kubeconfig"
    background agent nsenter --net="/proc/$POD_PID/ns/net" -- setpriv --reuid 65532 --regid 65532 --clear-groups \
        env KUBECONFIG="$DIR/agent.kubeconfig" "$DIR/criscope-agent" serve --node node-1 --daemon "unix://$DIR/agent/criscope.sock"
    background pod-port in_pod python3 "$DIR/server.py" 0.0.0.0 8080 'a port of the pod'
    background node-port python3 "$DIR/server.py" 0.0.0.0 10255 'a port of the node'
    background node-loopback python3 "$DIR/server.py" 127.0.0.1 10248 'a port of the node'
    until_true 'port of the node' curl -sf "http://$NODE:10255"
    until_true 'port of the pod' curl -sf "http://$POD:8080"
    until_true agent curl -skf "https://$POD:9479/livez"
}

# --- what is checked ---------------------------------------------------------------------------------------------------

FAILED=0
# verdict NAME EXPECTED FOUND
verdict() {
    if [ "$2" = "$3" ]; then printf 'ok      %-64s %s\n' "$1" "${3:-nothing}"
    else printf 'FAILED  %-64s %s, expected %s\n' "$1" "${3:-nothing}" "${2:-nothing}"; FAILED=1; fi
}

# reply TOKEN METHOD PATH: the status, and what the text says of where it comes from
reply() {
    local status
    status=$(curl -s --path-as-is --max-time 20 --cacert "$DIR/ca.crt" -H "Authorization: Bearer $1" -X "$2" "$SERVER$3" \
        -H 'Content-Type: application/json' ${4:+--data "$4"} -o "$DIR/body" -w '%{http_code}')
    printf '%s%s' "$status" "$(grep -aoE -m 1 'a port of the (pod|node)|connection refused|address not allowed|^ok' "$DIR/body" | sed 's/^/ /')"
}

# request NAME PATH EXPECTED EXPECTED_OF_ADMINISTRATOR [METHOD [BODY]]: as a user of the group, as the service account, and, unless
# nothing is expected, as an administrator
request() {
    local name=$1 path=$2 method=${5:-GET} body=${6:-} user account
    user=$(reply alice-token "$method" "$path" "$body")
    account=$(reply "$ACCOUNT" "$method" "$path" "$body")
    [ "$user" = "$account" ] || user="$user, the account $account"
    if [ -z "$4" ]; then verdict "$name" "$3" "$user"
    else verdict "$name" "$3; administrator $4" "$user; administrator $(reply admin-token "$method" "$path" "$body")"; fi
}

# rules SUBJECT NAMESPACE BASE: what a subject may do there and BASE may not: resources or URLs, names, verbs
rules() { comm -13 <(list_rules "$3" "$2") <(list_rules "$1" "$2") | paste -sd ';'; }
list_rules() {
    "$KUBECTL" --kubeconfig "$DIR/$1.kubeconfig" auth can-i --list --no-headers -n "$2" | tr -s ' ' | sed 's/^ //; s/ \[\]//g' | sort
}

check_rules() {
    local namespace expected account
    for namespace in criscope criscope-node kube-system default; do
        expected=''
        if [ "$namespace" = criscope ]; then
            expected='pods [list];pods/proxy [get];serviceaccounts/token [criscope-reader] [create]'
        fi
        verdict "rules of the user in $namespace" "$expected" "$(rules alice "$namespace" nobody)"
    done
    for account in criscope/criscope-agent criscope/criscope-reader criscope-node/criscope-installer kube-system/other; do
        kubeconfig "${account#*/}" "$(kubectl create token -n "${account%/*}" "${account#*/}")"
    done
    for namespace in criscope criscope-node kube-system; do
        verdict "rules of criscope-agent in $namespace" "$(printf '%s;' 'events.events.k8s.io [create patch]' \
            'subjectaccessreviews.authorization.k8s.io [create]')tokenreviews.authentication.k8s.io [create]" \
            "$(rules criscope-agent "$namespace" other)"
        verdict "rules of criscope-reader in $namespace" '[/criscope/stories] [get]' "$(rules criscope-reader "$namespace" other)"
        expected=''
        [ "$namespace" != criscope-node ] || expected='leases.coordination.k8s.io [criscope-install] [get update]'
        verdict "rules of criscope-installer in $namespace" "$expected" "$(rules criscope-installer "$namespace" other)"
    done
}

check_agent() {
    request 'list of agents' "$AGENTS/pods" 200 200
    request 'agent, /livez' "$AGENTS/pods/https:agent:9479/proxy/livez" '200 ok' '200 ok'
    request 'agent, stories without a token for agents' "$AGENTS/pods/https:agent:9479/proxy/criscope/debug/pods?format=json" 401 401
    request 'agent, metrics' "$AGENTS/pods/https:agent:9479/proxy/metrics" 401 401
    request 'token of criscope-reader' "$AGENTS/serviceaccounts/criscope-reader/token" 201 201 POST \
        '{"spec": {"audiences": ["criscope-agent"]}}'
    local reader found
    reader=$(jq -r .status.token "$DIR/body")
    verdict 'criscope-reader at the API server' 401 "$(reply "$reader" GET "$CORE/nodes")"
    found=$(KUBECONFIG=$DIR/alice.kubeconfig "$PROGRAMS/kubectl-criscope" pods -A 2>&1 > /dev/null) || found="failed: $found"
    verdict 'kubectl criscope pods -A' '' "$found"
    request 'watch of agents' "$AGENTS/pods?watch=1&timeoutSeconds=1" 403 200
}

# The pod's own network limits these: an administrator gets no further.
check_network() {
    local refused='503 connection refused'
    request 'another port of the agent'\''s pod' "$AGENTS/pods/http:agent:8080/proxy/" '200 a port of the pod' '200 a port of the pod'
    request 'a port of the node by the agent'\''s pod' "$AGENTS/pods/http:agent:10255/proxy/" "$refused" "$refused"
    request 'a port of the node'\''s loopback by the agent'\''s pod' "$AGENTS/pods/http:agent:10248/proxy/" "$refused" "$refused"
    request 'a redirect of the pod to the node' "$AGENTS/pods/http:agent:8080/proxy/redirect" '302 a port of the pod' '302 a port of the pod'
    request 'an address in place of a pod'\''s name' "$AGENTS/pods/http:$NODE:10255/proxy/" 404 404
    request 'a path out of the proxy' "$AGENTS/pods/http:agent:8080/proxy/../../../../../nodes/http:node-1:10255/proxy/" '200 a port of the pod' '200 a port of the pod'
}

check_refusals() {
    local path
    request 'a port of the node by the installer' "$INSTALLERS/pods/http:installer:10255/proxy/" 403 '200 a port of the node'
    request 'a port of the node by a pod of kube-system' "$CORE/namespaces/kube-system/pods/http:exporter:10255/proxy/" 403 '200 a port of the node'
    request 'a port of the node by nodes/proxy' "$CORE/nodes/http:node-1:10255/proxy/" 403 '200 a port of the node'
    request 'the kubelet by nodes/proxy' "$CORE/nodes/node-1/proxy/" 403 '503 connection refused'
    request 'a Service in front of the agent' "$AGENTS/services/http:web:8080/proxy/" 403 '200 a port of the pod'
    for path in "$AGENTS/pods/agent" "$AGENTS/secrets/password" "$AGENTS/configmaps" "$INSTALLERS/pods" "$INSTALLERS/secrets" \
        "$CORE/pods" "$CORE/secrets" "$CORE/nodes" "$CORE/namespaces/kube-system/pods" "/apis/apps/v1/namespaces/criscope/daemonsets" \
        "/apis/coordination.k8s.io/v1/namespaces/criscope-node/leases/criscope-install"; do
        request "GET $path" "$path" 403 200
    done
    for path in log 'exec?command=id' attach 'portforward?ports=10255'; do
        request "GET pods/agent/$path" "$AGENTS/pods/agent/$path" 403 ''
        request "POST pods/agent/$path" "$AGENTS/pods/agent/$path" 403 '' POST
    done
    for path in POST PUT PATCH DELETE OPTIONS; do
        request "$path of pods/proxy" "$AGENTS/pods/https:agent:9479/proxy/livez" 403 '' "$path"
    done
    # Another address, or another pod, would lead elsewhere.
    request 'another address of the pod' "$AGENTS/pods/agent/status" 403 '' PATCH "{\"status\": {\"podIP\": \"$NODE\"}}"
    request 'another container in the pod' "$AGENTS/pods/agent/ephemeralcontainers" 403 '' PATCH '{}'
    for path in pods services endpoints secrets serviceaccounts; do request "POST $path" "$AGENTS/$path" 403 '' POST '{}'; done
    for path in criscope/serviceaccounts/criscope-agent criscope-node/serviceaccounts/criscope-installer kube-system/serviceaccounts/default; do
        request "token of $path" "$CORE/namespaces/$path/token" 403 '' POST '{"spec": {}}'
    done
}

# What was possible when the agent had the node's network, and is with any such pod in its namespace.
check_contrast() {
    template criscope criscope | jq '.spec.hostNetwork = true' | pod criscope old "$NODE"
    template criscope criscope | pod criscope loopback 127.0.0.1
    request 'contrast: a port of the node by an agent with its network' "$AGENTS/pods/http:old:10255/proxy/" '200 a port of the node' ''
    request 'a pod whose address is loopback' "$AGENTS/pods/http:loopback:10248/proxy/" '400 address not allowed' '400 address not allowed'
}

main() {
    if [ -n "${CRISCOPE_USER_DIR:-}" ]; then
        DIR=$CRISCOPE_USER_DIR
        make_networks
        write_server
        start_cluster
        make_objects
        start_criscope
        ACCOUNT=$(kubectl create token -n kube-system default)
        printf 'API server %s, requests by a user of a group, a service account, and an administrator\n' \
        "$(kubectl get --raw /version | jq -r .gitVersion)"
        check_rules
        check_agent
        check_network
        check_refusals
        check_contrast
        return "$FAILED"
    fi
    [ "$EUID" = 0 ] || die "this needs root"
    ETCD=$(program "${ETCD:-etcd}") KUBE_APISERVER=$(program "${KUBE_APISERVER:-kube-apiserver}") KUBECTL=$(program "${KUBECTL:-kubectl}")
    PROGRAMS=${PROGRAMS:-$REPO/target/debug}
    for name in criscope criscope-agent kubectl-criscope; do program "$PROGRAMS/$name" > /dev/null; done
    DIR=$(mktemp -d /tmp/criscope-user.XXXXXX)
    trap 'rm -rf "$DIR"' EXIT
    chmod 0755 "$DIR"
    # In these namespaces every process, mount and interface ends with the run.
    ETCD=$ETCD KUBE_APISERVER=$KUBE_APISERVER KUBECTL=$KUBECTL PROGRAMS=$PROGRAMS CRISCOPE_USER_DIR=$DIR \
        unshare --net --mount --pid --fork --kill-child --mount-proc "$BASH" "$0"
}

main
