"""Cases of the second campaign, written after the first was read. The text of a case says what is true."""
import os
import signal
import subprocess

import node
from case import FOREVER, STUBBORN, case, container, shell
from cases_node import shims

OOM_ONCE = "echo x >> /v/n; [ $(wc -l < /v/n) -gt 1 ] || exec tail /dev/zero"
SCRATCH = {"volumes": [{"name": "v", "emptyDir": {}}]}
AT_V = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
SMALL = {"resources": {"limits": {"memory": "24Mi"}}}


@case("p")
def probe_without_program(c):
    """the readiness probe's program is not in the image: the pod is never ready"""
    c.pod(container(command=FOREVER, readinessProbe={"exec": {"command": ["/bin/healthy"]}, "periodSeconds": 3}))
    c.look("after 25 s", after=25)


@case("b")
def two_who_stop(c):
    """the pod is deleted and ignores SIGTERM (20 s of grace); after 5 s nodetool stops the container with no grace at all"""
    c.pod(container(command=STUBBORN), grace=20)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.sleep(5)
    c.nodetool("stop", "--timeout", "0", c.id())
    c.look("2 s after", after=2)
    c.look("12 s after", after=10)


@case("b")
def init_out_of_memory(c):
    """the init container is killed for lack of memory in a loop"""
    c.pod(container(command=FOREVER), initContainers=[container("load", "sleep 1; exec tail /dev/zero", **SMALL)])
    c.look("after 25 s", after=25)


@case("p")
def init_out_of_memory_once(c):
    """the second of three init containers is killed for lack of memory once, then works"""
    c.pod(container(command=FOREVER), **SCRATCH, initContainers=[
        container("one", "true"), container("two", OOM_ONCE, **SMALL, **AT_V), container("three", "sleep 2")])
    c.wait_running(seconds=90)
    c.look("1 s after it is up", after=1)
    c.look("12 s after it is up", after=11)


@case("p")
def forbidden_sysctl(c):
    """admission: a sysctl that the kubelet forbids"""
    c.pod(container(command=FOREVER), securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]})
    c.look("after 15 s", after=15)


@case("b")
def file_over_a_program(c):
    """a file of a ConfigMap is mounted over the program /bin/report, without the permission to execute it"""
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": "scripts"}, "data": {"report": "#!/bin/sh\nexec sleep 600\n"}})
    c.pod({**container(volumeMounts=[{"name": "s", "mountPath": "/bin/report", "subPath": "report"}]), "command": ["/bin/report"]},
          volumes=[{"name": "s", "configMap": {"name": "scripts"}}])
    c.look("after 20 s", after=20)


@case("p")
def image_volume_missing(c):
    """a volume from an image that does not exist; the container's own image is there"""
    c.pod(container(command=FOREVER, volumeMounts=[{"name": "data", "mountPath": "/data"}]),
          volumes=[{"name": "data", "image": {"reference": "good.live/dataset:1", "pullPolicy": "IfNotPresent"}}])
    c.look("after 25 s", after=25)


@case("p")
def probe_of_a_stubborn_one(c):
    """a liveness probe by exec fails with 1; the container ignores SIGTERM, so that each kill takes its grace of 6 s"""
    c.pod(container(command=STUBBORN, livenessProbe={**shell("exit 1"), "periodSeconds": 2, "failureThreshold": 2}), grace=6)
    c.wait("event", lambda: "Killing" in str(c.truth(c.name)["events"]))
    c.look("3 s into the kill", after=3)
    c.wait_restarts(1)
    c.look("after the first kill", after=3)


@case("b")
def again_during_a_pull(c):
    """a pod is deleted during a slow pull, and made again at once"""
    c.pod(container(command=FOREVER, image="slow.live/big7:1"))
    c.sleep(8)
    c.delete(grace=0)
    c.wait_gone(20)
    c.pod(container(command=FOREVER, image="slow.live/big7:1"))
    c.look("8 s after", after=8)
    c.wait_running(seconds=120)
    c.look("when it is up", after=12)


@case("b")
def deleted_in_the_network(c):
    """a pod is deleted while a CNI plugin takes 25 s for it"""
    c.cni("sleep 25")
    c.pod(container(command=FOREVER))
    c.sleep(8)
    c.delete()
    c.look("8 s after the deletion", after=8)
    c.wait_gone()
    c.look("when it is gone", after=3)


@case("p")
def deleted_in_its_back_off(c):
    """a crash loop (exit code 5), deleted during the back-off"""
    c.pod(container(command="sleep 1; exit 5"))
    c.wait_restarts(2)
    c.sleep(6)
    c.delete()
    c.wait_gone()
    c.look("3 s after", after=3)
    c.look("15 s after", after=12)


@case("p")
def loop_and_silent_registry(c):
    """imagePullPolicy Always; the container ends with 5, and the registry breaks (503) while it runs"""
    c.pod(container(command="sleep 8; exit 5", image="later.live/tools:1", imagePullPolicy="Always"))
    c.wait_running()
    node.write("/run/registry.broken", "")
    c.wait("end", lambda: "waiting" in c.status_of().get("state", {}))
    c.look("20 s after", after=20)
    os.remove("/run/registry.broken")
    c.wait_running(seconds=120)
    c.look("when the registry is back", after=3)


@case("b")
def neighbour_kills(c):
    """with a shared PID namespace, one container sends SIGKILL to the other's program once"""
    c.pod(container(command="echo marker-of-app > /dev/null; exec sleep 12345"),
          container("other", "sleep 14; pkill -9 -f 'sleep 12345' || kill -9 $(pidof sleep); exec sleep 600"), shareProcessNamespace=True)
    c.wait_restarts(1)
    c.look("2 s after", after=2)
    c.look("15 s after", after=13)


@case("b")
def read_only_root(c):
    """a read-only root file system: the program cannot write and ends with 1 in a loop"""
    c.pod(container(command="echo x > /data || exit 1; sleep 600", securityContext={"readOnlyRootFilesystem": True}))
    c.look("after 25 s", after=25)


@case("p")
def stopped_shim(c):
    """containerd's shim of the pod is stopped by a signal when the pod is deleted; goes on after 20 s"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    pids = shims(c.sandbox())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        c.delete()
        c.look("15 s into it", after=15)
        c.sleep(5)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    c.wait_gone()
    c.look("when it is gone", after=3)


@case("b")
def stopped_own_shim(c):
    """criscope-shim of the pod is stopped by a signal for 20 s; a liveness probe by exec is due"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("true"), "periodSeconds": 3, "timeoutSeconds": 2, "failureThreshold": 30}))
    c.wait_running()
    c.sleep(12)
    pids = shims(c.sandbox())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        c.look("15 s into it", after=15)
        c.sleep(5)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    c.look("15 s after", after=15)


@case("b")
def resized_with_restart(c):
    """the memory of a running container is raised in place, with the policy RestartContainer: the kubelet restarts it"""
    c.pod(container(command=FOREVER, resources={"limits": {"memory": "40Mi"}},
                    resizePolicy=[{"resourceName": "memory", "restartPolicy": "RestartContainer"}]))
    c.wait_running()
    c.sleep(12)
    c.patch({"spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "50Mi"}, "requests": {"memory": "50Mi"}}}]}}, "/resize")
    c.wait_restarts(1, seconds=40)
    c.look("3 s after", after=3)
    c.look("15 s after", after=12)


@case("pb", alone=True)
def no_oci_runtime(c):
    """runc is replaced by a program that fails, for 20 s, while a pod starts"""
    runc = subprocess.run(["which", "runc"], capture_output=True, text=True).stdout.strip()
    node.write("/run/broken-runc", "#!/bin/sh\necho 'runc: symbol lookup error: undefined symbol: seccomp_version' >&2\nexit 127\n", 0o755)
    subprocess.run(["mount", "--bind", "/run/broken-runc", runc], check=True)
    try:
        c.pod(container(command=FOREVER))
        c.look("18 s into it", after=18)
    finally:
        subprocess.run(["umount", runc], check=True)
    c.wait_running()
    c.look("when the pod is up", after=12)


@case("p", alone=True)
def containerd_restarted(c):
    """containerd is restarted (SIGTERM) beside a healthy pod with a passing probe"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("true"), "periodSeconds": 3}))
    c.wait_running()
    c.sleep(12)
    c.daemons.signal("containerd", signal.SIGTERM)
    c.sleep(3)
    c.begin("containerd")
    c.look("6 s after", after=6)
    c.look("25 s after", after=19)


@case("b", alone=True)
def all_restarted(c):
    """criscope, as the runtime, and the kubelet are restarted (SIGTERM) beside a healthy pod"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    for name in ("kubelet", "criscope"):
        c.daemons.signal(name, signal.SIGTERM)
    c.sleep(3)
    for name in ("criscope", "kubelet"):
        c.begin(name)
    c.look("8 s after", after=8)
    c.look("30 s after", after=22)


@case("p", alone=True)
def containerd_dies_in_a_stop(c):
    """containerd is killed while a container that ignores SIGTERM uses up its 15 s of grace; back after 10 s"""
    c.pod(container(command=STUBBORN), grace=15)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.sleep(4)
    c.kill("containerd")
    c.look("6 s after", after=6)
    c.sleep(4)
    c.begin("containerd")
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("p", alone=True)
def kubelet_stopped(c):
    """the kubelet is stopped by a signal for 30 s, and the container ends with 4 meanwhile"""
    c.pod(container(command="trap 'exit 4' USR1; while :; do sleep 1; done"))
    c.wait_running()
    c.sleep(12)
    c.daemons.signal("kubelet", signal.SIGSTOP)
    os.kill(c.pid_of(), signal.SIGUSR1)
    c.look("25 s after", after=25)
    c.sleep(5)
    c.daemons.signal("kubelet", signal.SIGCONT)
    c.wait_running()
    c.look("15 s after it goes on", after=15)
