#!/usr/bin/env bash
# What a real kubelet and its pods see while criscope, in front of containerd, is broken in each way: a virtual machine with systemd, whose
# kubelet talks to an API server on this machine. A pod is made every 10 s; the conditions of the node are watched.
# Run it by hand: tests/run.sh does not, because Kubernetes is not in Debian. It takes about half an hour, and more where kvm is missing.
#
# usage: tests/by-hand/path-faults/run.sh [FAULT...]
#   FAULT  none, kill, false, configuration, library, stop or disk (default: all of them)
# environment: as of tests/v2/run.sh, and
#   KEEP                                    a directory for the console, and for what became of pods and node
#   ETCD, KUBE_APISERVER, KUBECTL, KUBELET  the programs (default: in PATH); kubelet must be static
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/v2/install.sh
. "$HERE/../../v2/install.sh"

PATIENCE=7200
PORT=$((20000 + RANDOM % 20000))
# The address of this machine in the network of qemu.
HOST=10.0.2.2
NIC=(-nic "user,model=virtio-net-pci")
PROGRAMS+=(ip unshare)
FILES+=(/usr/lib/cni)
MODULES+=(drivers/net/virtio_net.ko drivers/net/net_failover.ko)
PIDS=()

path_of() { type -P "$1" || die "there is no program $1"; }
background() { "${@:2}" > "$WORK/$1.log" 2>&1 < /dev/null & PIDS+=($!); disown; }
kubectl() { "$KUBECTL" --kubeconfig "$WORK/admin.kubeconfig" "$@"; }

kubeconfig() {
    jq -n --arg server "https://$1:$PORT" --arg ca "$(base64 -w 0 "$WORK/ca.crt")" '{
        apiVersion: "v1", kind: "Config", "current-context": "x", contexts: [{name: "x", context: {cluster: "x", user: "x"}}],
        clusters: [{name: "x", cluster: {server: $server, "certificate-authority-data": $ca}}], users: [{name: "x", user: {token: "admin"}}]}'
}

start_cluster() {
    (cd "$WORK" && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt &&
        openssl req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout server.key -out server.csr &&
        openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt \
            -extfile <(printf 'subjectAltName=IP:127.0.0.1,IP:%s' "$HOST") &&
        openssl genrsa -out accounts.key 2048) 2> /dev/null
    echo 'admin,admin,1,system:masters' > "$WORK/tokens"
    kubeconfig 127.0.0.1 > "$WORK/admin.kubeconfig"
    background etcd "$ETCD" --data-dir "$WORK/etcd" --listen-peer-urls "http://127.0.0.1:$((PORT + 1))" --initial-advertise-peer-urls \
        "http://127.0.0.1:$((PORT + 1))" --initial-cluster "default=http://127.0.0.1:$((PORT + 1))" \
        --listen-client-urls "http://127.0.0.1:$((PORT + 2))" --advertise-client-urls "http://127.0.0.1:$((PORT + 2))" --unsafe-no-fsync
    background kube-apiserver "$KUBE_APISERVER" --etcd-servers="http://127.0.0.1:$((PORT + 2))" --authorization-mode=RBAC \
        --secure-port="$PORT" --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --token-auth-file="$WORK/tokens" \
        --tls-cert-file="$WORK/server.crt" --tls-private-key-file="$WORK/server.key" --service-cluster-ip-range=10.96.0.0/16 \
        --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$WORK/accounts.key" \
        --service-account-signing-key-file="$WORK/accounts.key" --allow-privileged=true --disable-admission-plugins=ServiceAccount
    local n
    for n in $(seq 120); do
        ! kubectl get --raw /readyz > /dev/null 2>&1 || return 0
        sleep 1
    done
    die "no API server: $(tail -n 3 "$WORK/kube-apiserver.log")"
}

# Replaces the kubelet's stand-in, which stays as the program that measures.
real_kubelet() {
    local etc=$ROOT/etc/systemd/system
    mv "$ROOT/usr/bin/kubelet" "$ROOT/usr/bin/cri-probe"
    cp "$KUBELET" "$ROOT/usr/bin/kubelet"
    kubeconfig "$HOST" > "$ROOT/var/lib/kubelet/kubeconfig"
    cat > "$ROOT/var/lib/kubelet/config.yaml" <<'YAML'
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
enforceNodeAllocatable: []
evictionHard: {memory.available: 10Mi}
failSwapOn: false
localStorageCapacityIsolation: false
YAML
    printf 'KUBELET_KUBEADM_ARGS="--kubeconfig=/var/lib/kubelet/kubeconfig --hostname-override=node --register-node --fail-swap-on=false"\n' \
        > "$ROOT/var/lib/kubelet/kubeadm-flags.env"
    rm "$ROOT/var/lib/kubelet/instance-config.yaml" "$etc/multi-user.target.wants/kubelet.service"
    mkdir -p "$ROOT/etc/cni/net.d" "$ROOT/etc/containerd"
    cat > "$ROOT/etc/cni/net.d/10-bridge.conflist" <<'JSON'
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]]}}]}
JSON
    printf 'version = 2\n[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "/usr/lib/cni"\n' > "$ROOT/etc/containerd/config.toml"
}

# Makes a pod every 10 s, waits until it has run, and removes it. Prints what became of it.
make_pods() {
    local n began
    for n in $(seq 100000); do
        began=$(date +%s)
        kubectl create -f - > /dev/null <<JSON || true
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-$n"}, "spec": {"nodeName": "node", "terminationGracePeriodSeconds": 1,
 "automountServiceAccountToken": false, "enableServiceLinks": false,
 "containers": [{"name": "app", "image": "example.com/pause:1", "imagePullPolicy": "Never", "command": ["/bin/busybox", "sleep", "86400"]}]}}
JSON
        if kubectl wait --for=condition=Ready "pod/pod-$n" --timeout=300s > /dev/null 2>&1; then
            echo "$(date +%s) started $(($(date +%s) - began))"
        else
            echo "$(date +%s) failed $(($(date +%s) - began))"
        fi
        kubectl delete pod "pod-$n" --wait=false > /dev/null 2>&1 || true
        sleep 10
    done
}

# The Ready condition of the node, once a second.
watch_node() {
    while sleep 1; do
        echo "$(date +%s) $(kubectl get node node -o 'jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.message}{end}' 2> /dev/null)"
    done
}

# What was seen from outside during each fault, from the console with times.
report() {
    local from name to
    cp "$WORK/faults" "$WORK/begins"
    while IFS=$'\t' read -r from name; do
        to=$(awk -F '\t' -v from="$from" '$1 > from { print $1; exit }' "$WORK/begins")
        printf '%s: %s; node Ready %s\n' "$name" \
            "$(awk -v a="$from" -v b="${to:-9999999999}" '$1 >= a && $1 < b { n[$2]++; if ($3 > m) m = $3 } END { printf "%d pods started, %d not, the slowest took %d s", n["started"], n["failed"], m }' "$WORK/pods")" \
            "$(awk -v a="$from" -v b="${to:-9999999999}" '$1 >= a && $1 < b { n[$2]++ } END { for (s in n) printf "%s for %d s ", s, n[s] }' "$WORK/ready")"
    done < "$WORK/faults"
}

end_all() {
    if [ -n "${KEEP:-}" ]; then cp "$WORK"/{node.sh.console,faults,pods,ready} "$KEEP" || true; fi
    [ "${#PIDS[@]}" = 0 ] || kill -KILL "${PIDS[@]}" 2> /dev/null || true
    cleanup
}

main_path() {
    local name
    for name in etcd kube-apiserver kubectl kubelet; do
        local variable=${name^^}
        variable=${variable//-/_}
        [ -n "${!variable:-}" ] || printf -v "$variable" %s "$(path_of "$name")"
    done
    find_kernel
    mkdir -p "$TARGET/test-tools"
    WORK=$(mktemp -d "$TARGET/test-tools/path.XXXXXX")
    MACHINE=''
    trap end_all EXIT
    trap 'exit 143' TERM INT HUP
    build_programs
    start_cluster
    stage_node
    real_kubelet
    printf '%s\n' "$*" > "$ROOT/faults"
    pause_image
    initramfs
    node_image "$HERE/node.sh"
    rm -rf "$ROOT"
    accelerator
    make_pods > "$WORK/pods" 2> /dev/null & PIDS+=($!)
    disown
    watch_node > "$WORK/ready" 2> /dev/null & PIDS+=($!)
    disown
    touch "$WORK/node.sh.console" "$WORK/faults"
    (tail -n +1 -s 0.5 -f --pid=$$ "$WORK/node.sh.console" | sed -u -n 's/\r*$//; s/^criscope-path: fault: //p' |
        while read -r line; do printf '%s\t%s\n' "$(date +%s)" "$line"; done > "$WORK/faults") & PIDS+=($!)
    # Not waited for with the virtual machine.
    disown
    boot_node node.sh
    report
    grep -q 'criscope-path: passed' "$WORK/node.sh.console" || die "not finished"
}

[ "$#" -gt 0 ] || set -- none kill false configuration library stop disk
main_path "$@"
