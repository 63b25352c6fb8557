#!/usr/bin/env python3
"""A node of its own for a live kubelet: etcd, an API server, a kubelet, and criscope as a proxy in front of containerd, or as the runtime.

It lives in namespaces (mount, network, PID, cgroup), on an overlay of /etc and /var, so that nothing stays of it. Run it by hand, as root:
kubelet and kube-apiserver are files of a release of Kubernetes, containerd 2 one of its own releases, crictl one of cri-tools. From Debian:
etcd-server, runc, containernetworking-plugins, busybox-static, iproute2, jq, openssl, gcc.

usage: node.py up|down|run MODE DIRECTORY [COMMAND...]
  MODE       proxied | builtin
  DIRECTORY  a new directory for the data of the node, on a file system that overlayfs takes as upper directory
  run        runs a command in the namespaces of the node
environment: the programs, by default those in PATH
  KUBELET, KUBE_APISERVER, ETCD, CONTAINERD (with containerd-shim-runc-v2 beside it), CRISCOPE (with criscope-shim beside it),
  CRICTL, BUSYBOX (static)
"""
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import registry  # noqa: E402

PROGRAMS = ("kubelet", "kube-apiserver", "etcd", "containerd", "criscope", "crictl", "busybox")
SERVER = "https://127.0.0.1:6443"
NODE_ADDRESS = "10.99.0.1"
HIERARCHIES = "/sys/fs/cgroup"
DAEMONS = "/run/daemons"
# Empty. The kubelet removes `*` in its working directory with each container that has no log path, as those of crictl.
NOWHERE = "/run/nowhere"
SOCKET = "unix:///run/criscope/criscope.sock"
CNI_FAULTS = "/run/cni-faults"
# The kubelet would set these for the whole machine. It finds these values in files that are mounted over them.
KERNEL_SETTINGS = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}

KUBELET_CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/criscope/criscope.sock
staticPodPath: /etc/kubernetes/manifests
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
syncFrequency: 10s
"""
# Spans for the proxy. Pulls one at a time there, and at the same time with the built-in runtime.
FURTHER = {"proxied": "tracing: {endpoint: 127.0.0.1:4319, samplingRatePerMillion: 1000000}\nserializeImagePulls: true\n",
           "builtin": "serializeImagePulls: false\n"}

CONTAINERD_CONFIGURATION = """
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "good.live/pause:3.10"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/containerd/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/etc/cni/bin", "CNI_PLUGINS"]
  conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
CRISCOPE_CONFIGURATION = {
    "proxied": """
[backends.containerd]
kind = "upstream"
endpoint = "unix:///run/containerd/containerd.sock"
[receiver]
listen = "127.0.0.1:4319"
""",
    "builtin": """
[runtime]
restrict_oom_score_adj = true
[runtime.cni]
bin_dirs = ["/etc/cni/bin", "CNI_PLUGINS"]
""",
}
NETWORK = {"cniVersion": "1.0.0", "name": "live", "plugins": [
    {"type": "bridge", "bridge": "live0", "isGateway": True, "ipam": {
        "type": "host-local", "ranges": [[{"subnet": "10.98.0.0/24"}]], "dataDir": "/run/cni-ipam"}},
    {"type": "portmap", "capabilities": {"portMappings": True}},
    {"type": "faulty"}]}
# A plugin at the end of the chain. It runs the file that a case has put there for its pod.
FAULTY_PLUGIN = r"""#!/bin/sh
pod=${CNI_ARGS##*K8S_POD_NAME=}; pod=${pod%%;*}
[ ! -e "/run/cni-faults/$pod.$CNI_COMMAND" ] || . "/run/cni-faults/$pod.$CNI_COMMAND"
case $CNI_COMMAND in
    ADD) jq -c '.prevResult | .cniVersion = "1.0.0"' ;;
    VERSION) echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}' ;;
esac
"""


def program(name):
    path = os.environ.get(name.upper().replace("-", "_")) or shutil.which(name)
    if not path:
        sys.exit(f"node.py: there is no program {name}")
    return os.path.abspath(path)


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def cni_plugins():
    for path in ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"):
        if os.path.exists(path + "/portmap"):
            return path
    sys.exit("node.py: there are no CNI plugins")


def api(method, path, body=None, kind="application/json"):
    """Answer of the API server: (status, object)."""
    request = urllib.request.Request(SERVER + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer admin")
    request.add_header("Content-Type", kind)
    try:
        with urllib.request.urlopen(request, timeout=20, context=ssl._create_unverified_context()) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"{}")
    except OSError as error:
        return 0, {"message": str(error)}


class Daemons:
    """The programs of the node, from inside its namespaces. Each has a file with its process id."""

    def __init__(self, mode):
        self.mode = mode

    def command(self, name):
        if name == "registry":
            return [sys.executable, HERE + "/registry.py", program("busybox")]
        if name == "etcd":
            return [program("etcd"), "--data-dir=/var/lib/etcd", "--unsafe-no-fsync"] if supports_no_fsync() else \
                [program("etcd"), "--data-dir=/var/lib/etcd"]
        if name == "kube-apiserver":
            return [program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--authorization-mode=AlwaysAllow",
                    "--token-auth-file=/etc/kubernetes/tokens", "--disable-admission-plugins=ServiceAccount",
                    "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=/etc/kubernetes/accounts.key",
                    "--service-account-signing-key-file=/etc/kubernetes/accounts.key", "--service-cluster-ip-range=10.96.0.0/16",
                    f"--advertise-address={NODE_ADDRESS}", "--allow-privileged=true", "--cert-dir=/etc/kubernetes/pki"]
        if name == "containerd":
            return [program("containerd"), "--config=/etc/containerd/config.toml"]
        if name == "criscope":
            return [program("criscope"), "serve", "--config=/etc/criscope/criscope.toml"]
        return [program("kubelet"), "--config=/etc/kubernetes/kubelet.yaml", "--kubeconfig=/etc/kubernetes/kubeconfig",
                "--hostname-override=node", f"--node-ip={NODE_ADDRESS}", "--v=2"]

    def names(self):
        return ["registry", "etcd", "kube-apiserver"] + (["containerd"] if self.mode == "proxied" else []) + ["criscope", "kubelet"]

    def start(self, name):
        environment = dict(os.environ)
        if name == "containerd":
            environment["PATH"] = os.path.dirname(program("containerd")) + ":" + environment["PATH"]
            environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4319", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        with open(f"{DAEMONS}/{name}.log", "a") as log:
            process = subprocess.Popen(self.command(name), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                       cwd=NOWHERE, start_new_session=True)
        write(f"{DAEMONS}/{name}.pid", str(process.pid))
        return process

    def pid(self, name):
        with open(f"{DAEMONS}/{name}.pid") as file:
            return int(file.read())

    def signal(self, name, number):
        os.kill(self.pid(name), number)

    def kill(self, name):
        self.signal(name, signal.SIGKILL)


def supports_no_fsync():
    help_text = subprocess.run([program("etcd"), "--help"], capture_output=True, text=True)
    return "unsafe-no-fsync" in help_text.stdout + help_text.stderr


def wait_until(what, seconds, condition):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.5)
    print(f"node.py: no {what} after {seconds} s", file=sys.stderr)
    return False


def responds(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


def node_is_ready():
    status, node = api("GET", "/api/v1/nodes/node")
    conditions = node.get("status", {}).get("conditions", []) if status == 200 else []
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


# --- inside --------------------------------------------------------------------------------------------------------------


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def mount_file_systems(directory):
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for path in ("etc", "var"):
        for part in (path, path + ".work"):
            os.makedirs(f"{directory}/{part}", exist_ok=True)
        options = f"lowerdir=/{path},upperdir={directory}/{path},workdir={directory}/{path}.work"
        run("mount", "-t", "overlay", "-o", options, "overlay", f"/{path}")
    for path in ("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/criscope", "/var/lib/etcd", "/var/log/pods", "/var/log/containers"):
        source = directory + "/data/" + path.replace("/", "_")
        os.makedirs(source, exist_ok=True)
        shutil.rmtree(path, ignore_errors=True)
        os.makedirs(path)
        run("mount", "--bind", source, path)
    # A user namespace may mount /proc only if a whole one is mounted somewhere.
    os.makedirs("/run/proc")
    run("mount", "-t", "proc", "proc", "/run/proc")
    for name, value in KERNEL_SETTINGS.items():
        copy = "/run/kernel/" + name.replace("/", ".")
        write(copy, value + "\n")
        run("mount", "--bind", copy, "/proc/sys/" + name)
    controllers = [(line.split(":")[1], line.strip().split(":")[2]) for line in open("/proc/self/cgroup")]
    run("umount", "--lazy", "--recursive", HIERARCHIES)
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", HIERARCHIES)
    for controller, _ in controllers:
        if not controller:
            continue
        path = f"{HIERARCHIES}/{controller.removeprefix('name=')}"
        os.makedirs(path)
        run("mount", "-t", "cgroup", "-o", controller, "cgroup", path)
    run("mount", "--make-rshared", "/")


def make_network():
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "outside")
    run("ip", "addr", "add", NODE_ADDRESS + "/24", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "link", "set", "outside", "up")
    run("ip", "route", "add", "default", "via", "10.99.0.254", "dev", "node0")
    write("/etc/cni/net.d/10-live.conflist", json.dumps(NETWORK))
    write("/etc/cni/bin/faulty", FAULTY_PLUGIN, 0o755)
    os.makedirs(CNI_FAULTS)


def write_configurations(mode):
    for name in os.listdir("/etc/cni/net.d"):
        if name != "10-live.conflist":
            os.remove("/etc/cni/net.d/" + name)
    plugins = cni_plugins()
    for host, port in registry.FAULTS.items():
        write(f"/etc/containerd/certs.d/{host}/hosts.toml",
              f'server = "http://127.0.0.1:{port}"\n[host."http://127.0.0.1:{port}"]\ncapabilities = ["pull", "resolve"]\n')
    write("/etc/containerd/config.toml", CONTAINERD_CONFIGURATION.replace("CNI_PLUGINS", plugins))
    write("/etc/criscope/criscope.toml", CRISCOPE_CONFIGURATION[mode].replace("CNI_PLUGINS", plugins))
    write("/etc/kubernetes/kubelet.yaml", KUBELET_CONFIGURATION + FURTHER[mode])
    write("/etc/kubernetes/tokens", "admin,admin,1,system:masters\n")
    write("/etc/kubernetes/kubeconfig", json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "x", "user": {"token": "admin"}}]}))
    os.makedirs("/etc/kubernetes/manifests", exist_ok=True)
    run("openssl", "genrsa", "-out", "/etc/kubernetes/accounts.key", "2048")
    os.makedirs("/run/bin")
    for name in ("crictl", "nodetool"):
        shutil.copy(program("crictl"), "/run/bin/" + name)
    write("/etc/crictl.yaml", f"runtime-endpoint: {SOCKET}\nimage-endpoint: {SOCKET}\ntimeout: 60\n")


def inside(mode, directory):
    """The first process of the node."""
    mount_file_systems(directory)
    os.makedirs(DAEMONS)
    os.makedirs(NOWHERE)
    make_network()
    write_configurations(mode)
    daemons = Daemons(mode)
    daemons.start("registry")
    daemons.start("etcd")
    wait_until("registry", 120, lambda: responds(5000))
    daemons.start("kube-apiserver")
    wait_until("API server", 300, lambda: api("GET", "/api/v1/namespaces/default")[0] == 200)
    for name in daemons.names()[3:]:
        daemons.start(name)
        time.sleep(2)
    wait_until("ready node", 120, node_is_ready)
    write("/run/ready", "")
    while True:
        # Orphans of the PID namespace are children of this process.
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


# --- outside -------------------------------------------------------------------------------------------------------------


def cgroups(mode):
    for hierarchy in os.listdir(HIERARCHIES):
        if hierarchy != "unified" and os.path.isdir(f"{HIERARCHIES}/{hierarchy}"):
            yield f"{HIERARCHIES}/{hierarchy}/criscope-live-{mode}"


def enter_cgroups(mode):
    for path in cgroups(mode):
        os.makedirs(path, exist_ok=True)
        if "/cpuset/" in path:
            for name in ("cpuset.cpus", "cpuset.mems"):
                with open(os.path.dirname(path) + "/" + name) as file:
                    write(path + "/" + name, file.read())
        with open(path + "/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))


def first_process(directory):
    with open(directory + "/pid") as file:
        return int(file.read())


def up(mode, directory):
    for name in PROGRAMS:
        if name != "containerd" or mode == "proxied":
            program(name)
    os.makedirs(directory)
    child = os.fork()
    if child == 0:
        os.setsid()
        enter_cgroups(mode)
        log = os.open(directory + "/node.log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execvp("unshare", ["unshare", "--mount", "--net", "--pid", "--cgroup", "--fork", "--kill-child", "--mount-proc",
                              sys.executable, os.path.abspath(sys.argv[0]), "inside", mode, directory])
    children = f"/proc/{child}/task/{child}/children"
    if not wait_until("namespaces", 20, lambda: open(children).read().strip()):
        sys.exit(1)
    pid = int(open(children).read().split()[0])
    write(directory + "/pid", str(pid))
    if not wait_until("node", 600, lambda: os.path.exists(f"/proc/{pid}/root/run/ready") or not os.path.exists(f"/proc/{pid}")):
        sys.exit(1)
    print(f"the node is up; process {pid}")


def down(mode, directory):
    """Ends the node: its first process takes every other one along."""
    pid = first_process(directory) if os.path.exists(directory + "/pid") else None
    for path in cgroups(mode):
        if "/freezer/" in path:
            for folder, _, _ in os.walk(path, topdown=False):
                write(folder + "/freezer.state", "THAWED")
    if pid and os.path.exists(f"/proc/{pid}"):
        os.kill(pid, signal.SIGKILL)
        wait_until("end of the node", 60, lambda: not os.path.exists(f"/proc/{pid}"))
    for path in cgroups(mode):
        for folder, _, _ in os.walk(path, topdown=False):
            wait_until(f"end of {folder}", 20, lambda: removed(folder))
    shutil.rmtree(directory)


def removed(folder):
    try:
        os.rmdir(folder)
    except OSError:
        return False
    return True


def enter(mode, directory, command):
    enter_cgroups(mode)
    os.execvp("nsenter", ["nsenter", f"--target={first_process(directory)}", "--mount", "--net", "--pid", "--cgroup",
                          "env", "PATH=/run/bin:" + os.environ["PATH"] + ":/usr/sbin:/sbin", *command])


def main():
    if len(sys.argv) < 4 or sys.argv[2] not in CRISCOPE_CONFIGURATION:
        sys.exit(__doc__)
    verb, mode, directory = sys.argv[1:4]
    directory = os.path.abspath(directory)
    if verb == "up":
        up(mode, directory)
    elif verb == "inside":
        inside(mode, directory)
    elif verb == "down":
        down(mode, directory)
    elif verb == "run":
        enter(mode, directory, sys.argv[4:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
