"""The node around a pod: network plugins, frozen processes, read-only logs, and the death of criscope, containerd, the kubelet and shims.
The text of a case says what is true."""
import json
import os
import shutil
import signal
import subprocess

import node
from case import FOREVER, STUBBORN, case, container, shell

CNI_ERROR = """echo '{"cniVersion": "1.0.0", "code": 7, "msg": "no uplink for this tenant", "details": "vrf blue"}'; exit 1"""


def shims(sandbox):
    found = subprocess.run(["pgrep", "-f", f"shim.*{sandbox}"], capture_output=True, text=True).stdout.split()
    return [int(each) for each in found]


# --- network plugins -----------------------------------------------------------------------------------------------------


@case("p")
def network_heals(c):
    """the last CNI plugin of the chain refuses the pod for 35 s with an error of its own, then works"""
    c.cni(CNI_ERROR)
    c.pod(container(command=FOREVER))
    c.look("after 20 s", after=20)
    c.sleep(15)
    c.heal_cni()
    c.wait_running()
    c.look("after", after=12)


@case("b")
def network_hangs(c):
    """a CNI plugin takes 35 s and then works"""
    c.cni("sleep 35")
    c.pod(container(command=FOREVER))
    c.look("after 20 s", after=20)
    c.wait_running()
    c.look("after", after=12)


@case("b")
def plugin_crashes(c):
    """a CNI plugin ends with exit code 2 and a line of text on standard error, without an answer"""
    c.cni("echo 'panic: index out of range [3]' >&2; exit 2")
    c.pod(container(command=FOREVER))
    c.look("after 20 s", after=20)


@case("p")
def network_not_released(c):
    """a CNI plugin fails DEL for 30 s when the pod is deleted"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    c.cni(CNI_ERROR, "DEL")
    c.delete()
    c.look("15 s into it", after=15)
    c.sleep(15)
    c.heal_cni("DEL")
    c.wait_gone()
    c.look("after", after=3)


@case("p")
def slow_network_then_no_image(c):
    """a CNI plugin takes 18 s, and then the registry answers 503"""
    c.cni("sleep 18")
    c.pod(container(command=FOREVER, image="broken.live/tools:2"))
    c.look("after 10 s", after=10)
    c.look("after 40 s", after=30)


# --- frozen processes ----------------------------------------------------------------------------------------------------


@case("p")
def frozen_and_deleted(c):
    """the processes of the container are frozen when the pod is deleted; thawed after 25 s"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    c.freeze()
    c.delete()
    c.look("18 s into it", after=18)
    c.sleep(7)
    c.freeze(state="THAWED")
    c.wait_gone()
    c.look("after", after=3)


@case("b")
def frozen_and_probed(c):
    """the processes of a container with a liveness probe by exec are frozen for 30 s"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("true"), "periodSeconds": 3, "timeoutSeconds": 2, "failureThreshold": 3}))
    c.wait_running()
    c.sleep(12)
    c.freeze()
    c.look("20 s into it", after=20)
    c.sleep(10)
    c.freeze(state="THAWED")
    c.look("20 s after", after=20)


# --- pods of others, and of the same name --------------------------------------------------------------------------------


@case("p")
def made_by_hand(c):
    """nodetool makes a pod of its own; the kubelet, which does not know it, stops it after 3 s"""
    for name, text in (("pod", {"metadata": {"name": c.name, "namespace": "live", "uid": "by-hand", "attempt": 0}, "linux": {}}),
                       ("container", {"metadata": {"name": "app"}, "image": {"image": "good.live/tools:1"}, "linux": {},
                                      "command": ["/bin/sh", "-c", "sleep 3; exit 3"]})):
        node.write(f"/run/{name}.json", json.dumps(text))
    c.nodetool("pull", "good.live/tools:1")
    sandbox = c.nodetool("runp", "/run/pod.json").strip()
    made = c.nodetool("create", sandbox, "/run/container.json", "/run/pod.json").strip()
    c.nodetool("start", made)
    c.look("8 s after", after=8)
    c.nodetool("rmp", "-f", sandbox)
    c.look("3 s after nodetool removed it", after=3)


@case("b")
def same_name_again(c):
    """a pod is deleted, and one of the same name is made at once, whose command does not exist"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(8)
    c.delete()
    c.wait_gone()
    c.pod({**container(), "command": ["/bin/servr"]})
    c.look("15 s after", after=15)


@case("b")
def deleted_by_force(c):
    """a pod that ignores SIGTERM and has 30 s of grace is deleted with a grace of 0"""
    c.pod(container(command=STUBBORN), grace=30)
    c.wait_running()
    c.sleep(12)
    c.delete(grace=0)
    c.look("3 s after", after=3)
    c.look("15 s after", after=12)


# --- deaths --------------------------------------------------------------------------------------------------------------


@case("p", alone=True)
def shim_killed(c):
    """containerd's shim of a healthy pod is killed; the kubelet makes the pod anew"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(13)
    for pid in shims(c.sandbox()):
        os.kill(pid, signal.SIGKILL)
    c.look("3 s after", after=3)
    c.look("25 s after", after=22)


@case("b", alone=True)
def own_shim_killed(c):
    """criscope-shim of a healthy pod is killed"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(13)
    for pid in shims(c.sandbox()):
        os.kill(pid, signal.SIGKILL)
    c.look("3 s after", after=3)
    c.look("25 s after", after=22)


@case("pb", alone=True)
def criscope_dies_in_a_pull(c):
    """criscope is killed during a pull of 30 s, and is back after 12 s"""
    c.pod(container(command=FOREVER, image="slow.live/big4:1" if c.mode == "proxied" else "slow.live/big5:1"))
    c.sleep(8)
    c.kill("criscope")
    c.sleep(12)
    c.begin("criscope")
    c.look("4 s after its start", after=4)
    c.wait_running(seconds=120)
    c.look("when the pod is up", after=12)


@case("p", alone=True)
def containerd_dies_in_a_pull(c):
    """containerd is killed during a pull, and is back after 15 s"""
    c.pod(container(command=FOREVER, image="slow.live/big5:1"))
    c.sleep(8)
    c.kill("containerd")
    c.look("10 s after", after=10)
    c.sleep(5)
    c.begin("containerd")
    c.wait_running(seconds=120)
    c.look("when the pod is up", after=12)


@case("p", alone=True)
def kubelet_dies_in_a_pull(c):
    """the kubelet is killed during a pull, and is back after 40 s"""
    c.pod(container(command=FOREVER, image="slow.live/big6:1"))
    c.sleep(8)
    c.kill("kubelet")
    c.look("30 s after", after=30)
    c.sleep(10)
    c.begin("kubelet")
    c.wait_running(seconds=120)
    c.look("when the pod is up", after=12)


@case("b", alone=True)
def kubelet_dies_in_a_stop(c):
    """the kubelet is killed while a container that ignores SIGTERM uses up its 20 s of grace, and is back after 30 s"""
    c.pod(container(command=STUBBORN), grace=20)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.sleep(5)
    c.kill("kubelet")
    c.look("20 s after", after=20)
    c.sleep(10)
    c.begin("kubelet")
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("b", alone=True)
def criscope_dies_in_the_network(c):
    """criscope, as the runtime, is killed while a CNI plugin takes 12 s, and is back after 8 s"""
    c.cni("sleep 12")
    c.pod(container(command=FOREVER))
    c.sleep(5)
    c.kill("criscope")
    c.sleep(8)
    c.begin("criscope")
    c.look("6 s after its start", after=6)
    c.wait_running(seconds=90)
    c.look("when the pod is up", after=12)


@case("p", alone=True)
def containerd_stopped(c):
    """containerd is stopped by a signal for 25 s while a pod starts"""
    c.daemons.signal("containerd", signal.SIGSTOP)
    c.pod(container(command=FOREVER))
    c.look("15 s into it", after=15)
    c.sleep(10)
    c.daemons.signal("containerd", signal.SIGCONT)
    c.wait_running()
    c.look("when the pod is up", after=12)


@case("b", alone=True)
def criscope_stopped(c):
    """criscope is stopped by a signal for 20 s, when a pod is deleted"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    c.daemons.signal("criscope", signal.SIGSTOP)
    c.delete()
    c.sleep(20)
    c.daemons.signal("criscope", signal.SIGCONT)
    c.look("2 s after", after=2)
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("p", alone=True)
def blind_during_the_loop(c):
    """a container is killed for lack of memory in a loop; criscope is down for 20 s meanwhile"""
    c.pod(container(command="sleep 5; exec tail /dev/zero", resources={"limits": {"memory": "24Mi"}}))
    c.wait_restarts(1)
    c.kill("criscope")
    c.sleep(20)
    c.begin("criscope")
    c.look("5 s after its start", after=5)
    c.look("30 s after", after=25)


@case("p", alone=True)
def kubelet_dies_in_a_loop(c):
    """a container ends with 3 while the kubelet is down for 30 s, and stays down so long"""
    c.pod(container(command="trap 'exit 3' USR1; while :; do sleep 1; done"))
    c.wait_running()
    c.sleep(12)
    c.kill("kubelet")
    os.kill(c.pid_of(), signal.SIGUSR1)
    c.look("25 s after", after=25)
    c.sleep(5)
    c.begin("kubelet")
    c.wait_running()
    c.look("20 s after its start", after=20)


@case("b", alone=True)
def both_die_in_a_start(c):
    """criscope, as the runtime, and the kubelet are killed during a pull of 30 s; both are back after 15 s"""
    c.pod(container(command=FOREVER, image="slow.live/big6:1"))
    c.sleep(8)
    c.kill("criscope")
    c.kill("kubelet")
    c.sleep(15)
    c.begin("criscope")
    c.begin("kubelet")
    c.look("6 s after", after=6)
    c.wait_running(seconds=120)
    c.look("when the pod is up", after=12)


@case("b", alone=True)
def no_network_on_the_node(c):
    """the CNI configuration of the node is gone for 25 s while a pod starts"""
    shutil.move("/etc/cni/net.d/10-live.conflist", "/run/10-live.conflist")
    c.sleep(3)
    c.pod(container(command=FOREVER))
    c.look("20 s into it", after=20)
    c.sleep(5)
    shutil.move("/run/10-live.conflist", "/etc/cni/net.d/10-live.conflist")
    c.wait_running()
    c.look("when the pod is up", after=12)


@case("pb", alone=True)
def logs_read_only(c):
    """the directory for logs of pods is read-only while a pod starts, for 30 s"""
    subprocess.run(["mount", "--bind", "/var/log/pods", "/var/log/pods"], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", "/var/log/pods"], check=True)
    try:
        c.pod(container(command=FOREVER))
        c.look("25 s into it", after=25)
    finally:
        subprocess.run(["umount", "--lazy", "/var/log/pods"], check=True)
    c.wait_running()
    c.look("when the pod is up", after=12)
