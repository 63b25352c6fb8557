# shellcheck shell=bash
# A control plane for scripts: etcd and kube-apiserver, and with start_cluster kube-controller-manager and kube-scheduler.
# Sourced. The caller sets PORT, SERVER, PROGRAMS, BEGIN and DIR, and the programs ETCD, KUBE_APISERVER, KUBECTL and so on; its exit
# trap is clean_up. With KEEP=1, DIR stays.

die() { printf "%s: %s\n" "$(basename "$0")" "$1" >&2; exit 1; }
program() { type -P "$1" || die "there is no program $1"; }
say() { printf '[%4d s] %s\n' $(($(date +%s) - BEGIN)) "$*"; }

PIDS=()
# background NAME COMMAND...
background() { "${@:2}" > "$DIR/$1.log" 2>&1 < /dev/null & PIDS+=($!); }
clean_up() {
    # Without its etcd, an API server does not end by itself.
    for pid in "${PIDS[@]}"; do kill -KILL "$pid" 2> /dev/null || true; done
    wait 2> /dev/null || true
    if [ -n "${KEEP:-}" ]; then echo "kept: $DIR"; else rm -rf "$DIR"; fi
}

# until_true SECONDS WHAT COMMAND...
until_true() {
    local end=$(($(date +%s) + $1)) what=$2
    shift 2
    until "$@" > /dev/null 2>&1; do
        if [ "$(date +%s)" -ge "$end" ]; then
            if declare -F on_timeout > /dev/null; then on_timeout >&2 || true; fi
            tail -n 3 "$DIR"/*.log >&2
            die "no $what"
        fi
        sleep 1
    done
}

kubeconfig() {
    jq -n --arg server "$SERVER" --arg token "$2" --arg ca "$(base64 -w 0 "$DIR/ca.crt")" '{
        apiVersion: "v1", kind: "Config", "current-context": "x", contexts: [{name: "x", context: {cluster: "x", user: "x"}}],
        clusters: [{name: "x", cluster: {server: $server, "certificate-authority-data": $ca}}],
        users: [{name: "x", user: {token: $token}}]}' > "$DIR/$1.kubeconfig"
}
kubectl() { "$KUBECTL" --kubeconfig "$DIR/admin.kubeconfig" "$@"; }
criscope() { KUBECONFIG="$DIR/admin.kubeconfig" "$PROGRAMS/kubectl-criscope" "$@"; }

start_api_server() {
    (cd "$DIR" && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt &&
        openssl req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout server.key -out server.csr &&
        openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt \
            -extfile <(printf 'subjectAltName=IP:127.0.0.1') &&
        openssl genrsa -out accounts.key 2048) 2> /dev/null
    printf '%s\n' 'admin-token,admin,1,system:masters' > "$DIR/tokens"
    kubeconfig admin admin-token
    background etcd "$ETCD" --data-dir "$DIR/etcd" --listen-peer-urls "http://127.0.0.1:$((PORT + 1))" --initial-advertise-peer-urls \
        "http://127.0.0.1:$((PORT + 1))" --initial-cluster "default=http://127.0.0.1:$((PORT + 1))" \
        --listen-client-urls "http://127.0.0.1:$((PORT + 2))" --advertise-client-urls "http://127.0.0.1:$((PORT + 2))" --unsafe-no-fsync
    background kube-apiserver "$KUBE_APISERVER" --etcd-servers="http://127.0.0.1:$((PORT + 2))" --authorization-mode=RBAC \
        --secure-port="$PORT" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --token-auth-file="$DIR/tokens" \
        --tls-cert-file="$DIR/server.crt" --tls-private-key-file="$DIR/server.key" --service-cluster-ip-range=10.96.0.0/16 \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$DIR/accounts.key" \
        --service-account-signing-key-file="$DIR/accounts.key" --allow-privileged=true
    until_true 120 'API server' kubectl get --raw /readyz
}

start_cluster() {
    start_api_server
    background kube-controller-manager "$KUBE_CONTROLLER_MANAGER" --kubeconfig "$DIR/admin.kubeconfig" --leader-elect=false --secure-port=0 \
        --use-service-account-credentials=false --service-account-private-key-file="$DIR/accounts.key" --root-ca-file="$DIR/ca.crt" \
        --node-monitor-grace-period=20s --node-monitor-period=2s --authentication-kubeconfig="$DIR/admin.kubeconfig" \
        --authorization-kubeconfig="$DIR/admin.kubeconfig"
    # shellcheck disable=SC2034  # rollout.sh stops it
    CONTROLLERS=${PIDS[-1]}
    background kube-scheduler "$KUBE_SCHEDULER" --kubeconfig "$DIR/admin.kubeconfig" --leader-elect=false --secure-port=0 \
        --authentication-kubeconfig="$DIR/admin.kubeconfig" --authorization-kubeconfig="$DIR/admin.kubeconfig"
}

# make_node NAME LABELS
make_node() {
    printf '%s\n' '---' "{\"apiVersion\": \"v1\", \"kind\": \"Node\", \"metadata\": {\"name\": \"$1\", \"labels\": {\"kubernetes.io/os\": \"linux\", \"kubernetes.io/hostname\": \"$1\"$2}}, \"status\": {\"capacity\": {\"pods\": \"110\", \"cpu\": \"4\", \"memory\": \"8Gi\"}, \"allocatable\": {\"pods\": \"110\", \"cpu\": \"4\", \"memory\": \"8Gi\"}}}"
}
