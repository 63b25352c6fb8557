#!/usr/bin/env python3
"""Kubernetes' own e2e suite on a node of `../live-kubelet/node.py`, which gets a scheduler, controllers and the images of the suite.

Run it by hand, as root. In a source tree of the kubelet's release of Kubernetes:
    go test -c -o e2e.test ./test/e2e
    go build ./cmd/kube-scheduler ./cmd/kube-controller-manager ./test/images/agnhost ./vendor/github.com/onsi/ginkgo/v2/ginkgo
Then, with the programs of node.py and further E2E_TEST, KUBE_SCHEDULER, KUBE_CONTROLLER_MANAGER, AGNHOST, GINKGO in the environment
(nginx, curl, bash and ipcs, which the images contain, are in Debian's nginx-light, curl and util-linux):
    suite.py up proxied NODE
    suite.py suite proxied NODE RECORD [FLAG...]
    suite.py down proxied NODE
    compare.py RECORD

usage: suite.py up|down|run MODE DIRECTORY [COMMAND...]
       suite.py suite MODE DIRECTORY RECORD [FLAG...]
  MODE, DIRECTORY  as for node.py
  RECORD           a file for what the API and criscope said of each pod (record.py)
  FLAG             further flags of ginkgo, such as --procs=2 or --focus=Probing
"""
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, HERE + "/../live-kubelet"]
import images  # noqa: E402,F401
import node  # noqa: E402

KUBECONFIG = "/etc/kubernetes/kubeconfig"
# Further images, or more than one node, or a long time alone.
SKIP = r"\[Serial\]|\[Disruptive\]|\[Slow\]|\[Flaky\]|\[Feature:|\[FeatureGate:.*\[Alpha\]|AppArmor|GPU|SSH|PLR Pod InPlace Resize"
FOCUS = r"--focus=\[NodeConformance\]|sig-node"
FLAGS = ["--skip=" + SKIP, "--procs=8", "--timeout=35m", "--no-color", "--silence-skips"]


class Daemons(node.Daemons):
    def command(self, name):
        common = ["--kubeconfig=" + KUBECONFIG, "--leader-elect=false"]
        if name == "registry":
            return [sys.executable, HERE + "/images.py", node.program("busybox"), node.program("agnhost")]
        if name == "kube-scheduler":
            return [node.program(name), *common]
        if name == "kube-controller-manager":
            return [node.program(name), *common, "--service-account-private-key-file=/etc/kubernetes/accounts.key",
                    "--root-ca-file=/etc/kubernetes/pki/apiserver.crt"]
        command = super().command(name)
        if name == "kube-apiserver":
            command.remove("--disable-admission-plugins=ServiceAccount")
            command.append("--kubelet-preferred-address-types=InternalIP")
        return command

    def names(self):
        return [*super().names(), "kube-controller-manager", "kube-scheduler"]


node.Daemons = Daemons


def run_suite(record, flags):
    """The suite with the recorder beside it, inside the node."""
    recorder = subprocess.Popen([sys.executable, HERE + "/record.py", record])
    if not any(flag.startswith("--focus") for flag in flags):
        flags = [FOCUS, *flags]
    result = subprocess.run([
        node.program("ginkgo"), *FLAGS, *flags, node.program("e2e-test"), "--", "--kubeconfig=" + KUBECONFIG, "--provider=skeleton",
        "--num-nodes=1", "--allowed-not-ready-nodes=-1", "--dump-logs-on-failure=false", "--delete-namespace=true"])
    recorder.send_signal(signal.SIGTERM)
    recorder.wait()
    return result.returncode


def main():
    if len(sys.argv) > 4 and sys.argv[1] == "suite":
        mode, directory, record = sys.argv[2:5]
        node.enter(mode, os.path.abspath(directory),
                   [sys.executable, os.path.abspath(__file__), "inside-suite", os.path.abspath(record), *sys.argv[5:]])
    if len(sys.argv) > 2 and sys.argv[1] == "inside-suite":
        sys.exit(run_suite(sys.argv[2], sys.argv[3:]))
    node.main()


if __name__ == "__main__":
    main()
