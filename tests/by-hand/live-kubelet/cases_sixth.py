"""Cases of the sixth campaign: none of them had been played before its code was written. The text of a case says what is true."""
import signal

from case import FOREVER, STUBBORN, case, container, shell
from cases_more import AT_V


@case("p", alone=True)
def containerd_dies_in_a_hook(c):
    """containerd is killed during a preStop hook of 14 s, and is back after 5 s"""
    c.pod(container(command=FOREVER, lifecycle={"preStop": shell("sleep 14")}), grace=25)
    c.wait_running()
    c.sleep(11)
    c.delete()
    c.sleep(4)
    c.kill("containerd")
    c.look("4 s after", after=4)
    c.begin("containerd")
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("pb", alone=True)
def criscope_dies_beside_a_loop(c):
    """a container ends with 15 in a loop; criscope is killed and is back after 20 s"""
    c.pod(container(command="sleep 3; exit 15"))
    c.wait_restarts(1)
    c.kill("criscope")
    c.sleep(20)
    c.begin("criscope")
    c.look("5 s after", after=5)
    c.wait_restarts(3)
    c.look("2 s after the third restart", after=2)


@case("p", alone=True)
def containerd_stopped_beside_a_loop(c):
    """a container ends with 18 in a loop; containerd is stopped by a signal for 25 s"""
    c.pod(container(command="sleep 3; exit 18"))
    c.wait_restarts(1)
    c.sleep(5)
    c.daemons.signal("containerd", signal.SIGSTOP)
    c.look("20 s into it", after=20)
    c.sleep(5)
    c.daemons.signal("containerd", signal.SIGCONT)
    c.wait_restarts(3)
    c.look("2 s after the third restart", after=2)


@case("b", alone=True)
def kubelet_dies_in_a_hook(c):
    """the kubelet is killed during a preStop hook of 12 s, and is back after 20 s"""
    c.pod(container(command=FOREVER, lifecycle={"preStop": shell("sleep 12")}), grace=25)
    c.wait_running()
    c.sleep(11)
    c.delete()
    c.sleep(3)
    c.kill("kubelet")
    c.look("15 s after", after=15)
    c.sleep(5)
    c.begin("kubelet")
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("b")
def slow_network_then_no_secret(c):
    """a CNI plugin takes 12 s; then a variable from a Secret that does not exist"""
    c.cni("sleep 12")
    c.pod(container(command=FOREVER, env=[{"name": "P", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "p"}}}]))
    c.look("8 s after", after=8)
    c.look("25 s after", after=17)


@case("b")
def one_of_two_ignores_the_end(c):
    """two containers, 6 s of grace; one ends at SIGTERM, the other ignores it; the pod is deleted"""
    c.pod(container(command=FOREVER), container("deaf", STUBBORN), grace=6)
    c.wait_running()
    c.wait_running("deaf")
    c.sleep(10)
    c.delete()
    c.look("3 s after the deletion", after=3)
    c.wait_gone()
    c.look("when the pod is gone", after=3)


@case("p")
def throttled_liveness(c):
    """a liveness probe by exec that times out (1 s) because the container is limited to 10 millicores"""
    c.pod(container(command=FOREVER, resources={"limits": {"cpu": "10m"}},
                    livenessProbe={**shell("i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"), "periodSeconds": 3, "failureThreshold": 2}))
    c.wait_restarts(1)
    c.look("3 s after the first restart", after=3)


@case("p")
def file_comes_later(c):
    """a hostPath of type File that exists after 40 s"""
    path = "/run/comes-later"
    c.pod(container(command=FOREVER, **AT_V), volumes=[{"name": "v", "hostPath": {"path": path, "type": "File"}}])
    c.look("after 20 s", after=20)
    c.sleep(20)
    with open(path, "w"):
        pass
    c.wait_running(seconds=150)
    c.look("3 s after it is up", after=3)


@case("b")
def fails_until_it_is_deleted(c):
    """restartPolicy OnFailure: ends with 22 after 1 s, three times; deleted in the back-off"""
    c.pod(container(command="sleep 1; exit 22"), restartPolicy="OnFailure")
    c.wait_restarts(2)
    c.look("3 s after the second restart", after=3)
    c.delete()
    c.wait_gone()
    c.look("3 s after the end", after=3)


@case("p")
def stopped_with_a_failing_probe(c):
    """a readiness probe (exec, 5) fails all the time; nodetool stops the container once; the kubelet starts it again"""
    c.pod(container(command=FOREVER, readinessProbe={**shell("exit 5"), "periodSeconds": 2}))
    c.wait_running()
    c.sleep(12)
    c.nodetool("stop", "--timeout", "0", c.id())
    c.wait_restarts(1)
    c.look("8 s after", after=8)


@case("b")
def killed_worker_and_missing_image(c):
    """a worker of one container is killed for lack of memory every 5 s; the image of the other does not exist"""
    c.pod(container(command="while :; do (head -c 60000000 /dev/zero | tail > /dev/null); sleep 5; done",
                    resources={"limits": {"memory": "24Mi"}}),
          container("other", FOREVER, "good.live/absent:3"))
    c.look("after 25 s", after=25)


@case("p")
def two_registries(c):
    """two containers: the registry of one answers 503, the pull of the other takes 30 s"""
    c.pod(container(command=FOREVER, image="broken.live/tools:1"), container("big", FOREVER, "slow.live/big6:1"))
    c.look("after 15 s", after=15)
    c.look("after 60 s", after=45)


@case("p")
def unknown_host(c):
    """the image's registry has a name that DNS does not know"""
    c.pod(container(command=FOREVER, image="nowhere.invalid/tools:1"))
    c.look("after 20 s", after=20)


@case("b")
def closed_port(c):
    """the image's registry is a port on which nothing listens"""
    c.pod(container(command=FOREVER, image="127.0.0.1:9/tools:1"))
    c.look("after 20 s", after=20)


@case("pb")
def too_little_memory(c):
    """a memory limit of 1 MiB, with which runc cannot start the program"""
    c.pod(container(command=FOREVER, resources={"limits": {"memory": "1Mi"}}))
    c.look("after 20 s", after=20)


@case("b")
def fails_and_then_no_image(c):
    """the first init container fails twice with 31 and then works; the image of the second does not exist"""
    c.pod(container(command=FOREVER), initContainers=[
        container("one", "echo x >> /v/n; [ $(wc -l < /v/n) -gt 2 ] || exit 31", **AT_V), container("two", "true", "good.live/absent:4")],
        volumes=[{"name": "v", "emptyDir": {}}])
    c.wait("second init container", lambda: "waiting" in c.status_of("two").get("state", {}) and "ruct" not in str(c.status_of("two")["state"])
           and "PodInit" not in str(c.status_of("two")["state"]), 90)
    c.look("6 s after", after=6)


@case("p")
def static_pod_that_ends(c):
    """a static pod, whose container ends with 33 after 2 s in a loop"""
    c.static_pod(container(command="sleep 2; exit 33"))
    c.look("30 s after", name=c.name + "-node", after=30)


@case("b", alone=True)
def kubelet_restarted_in_a_back_off(c):
    """a container ends with 34 in a loop; the kubelet is restarted (SIGTERM) and is back at once"""
    c.pod(container(command="sleep 2; exit 34"))
    c.wait_restarts(2)
    c.daemons.signal("kubelet", signal.SIGTERM)
    c.sleep(2)
    c.begin("kubelet")
    c.look("12 s after", after=12)
    c.wait_restarts(3)
    c.look("5 s after the third restart", after=5)


@case("p", alone=True)
def containerd_restarted_in_a_pull(c):
    """containerd is restarted (SIGTERM) during a pull of 30 s, and is back after 2 s"""
    c.pod(container(command=FOREVER, image="slow.live/big7:1"))
    c.sleep(8)
    c.daemons.signal("containerd", signal.SIGTERM)
    c.sleep(2)
    c.begin("containerd")
    c.look("8 s after", after=8)
    c.wait_running(seconds=120)
    c.look("12 s after it is up", after=12)


@case("p")
def sidecar_ignores_the_end(c):
    """the main container ends with 0 after 5 s (restartPolicy Never); the sidecar ignores SIGTERM, with 6 s of grace"""
    c.pod(container(command="sleep 5"), initContainers=[container("mesh", STUBBORN, restartPolicy="Always")], restartPolicy="Never", grace=6)
    c.wait_running("mesh")
    c.look("8 s after", after=8)
    c.sleep(8)
    c.look("when all have ended", after=3)


@case("b")
def deleted_at_a_silent_registry(c):
    """the registry never answers; the pod is deleted after 15 s"""
    c.pod(container(command=FOREVER, image="silent.live/tools:9"))
    c.sleep(15)
    c.delete()
    c.wait_gone()
    c.look("3 s after the end", after=3)
