"""Cases of the fifth campaign: none of them had been played before its code was written. The text of a case says what is true."""
import json

import node
from case import FOREVER, STUBBORN, case, container, run, shell
from cases_more import AT_V, SCRATCH


@case("p")
def key_of_a_volume_missing(c):
    """a volume of a ConfigMap that exists, with a key that it does not have"""
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    c.pod(container(command=FOREVER, **AT_V), volumes=[{"name": "v", "configMap": {"name": "settings", "items": [{"key": "b", "path": "b"}]}}])
    c.look("after 25 s", after=25)


@case("b")
def init_loop_deleted(c):
    """the init container ends with 21 in a loop; the pod is deleted in a back-off"""
    c.pod(container(command=FOREVER), initContainers=[container("check", "sleep 1; exit 21")])
    c.wait_restarts(2, "check")
    c.look("3 s after the second restart", after=3)
    c.delete()
    c.wait_gone()
    c.look("3 s after the end", after=3)


@case("p")
def liveness_by_http(c):
    """a liveness probe by HTTP is refused: the kubelet restarts the container again and again"""
    c.pod(container(command=FOREVER, livenessProbe={"httpGet": {"port": 8080}, "periodSeconds": 2, "failureThreshold": 3}))
    c.wait_restarts(2)
    c.look("4 s after the second restart", after=4)


@case("b")
def ends_well_again_and_again(c):
    """restartPolicy Always: the container ends with 0 after 2 s, in a loop"""
    c.pod(container(command="sleep 2"))
    c.wait_restarts(2)
    c.look("6 s after the second restart", after=6)


@case("p")
def segmentation_fault(c):
    """the program ends by SIGSEGV after 3 s, in a loop"""
    c.pod(container(command="sleep 3; kill -SEGV $$"))
    c.wait_restarts(2)
    c.look("6 s after the second restart", after=6)


@case("b")
def program_missing_by_path(c):
    """the command of the container is a path that the image does not have"""
    c.pod({**container(), "command": ["/opt"]})
    c.look("after 15 s", after=15)


@case("p")
def unknown_user_cannot_write(c):
    """runAsUser 4711 cannot write to / and ends with 2 after 1 s, in a loop"""
    c.pod(container(command="sleep 1; echo x > /file || exit 2", securityContext={"runAsUser": 4711}))
    c.wait_restarts(2)
    c.look("5 s after the second restart", after=5)


@case("b")
def port_of_the_host_taken(c):
    """admission: another pod of the node has the host port 4711"""
    ports = [{"containerPort": 80, "hostPort": 4711}]
    c.pod(container(command=FOREVER, ports=ports), name="holder-of-a-port")
    c.wait_running(pod="holder-of-a-port")
    c.pod(container(command=FOREVER, ports=ports))
    c.look("after 12 s", after=12)


@case("p")
def secret_volume_missing(c):
    """a volume of a Secret that does not exist"""
    c.pod(container(command=FOREVER, **AT_V), volumes=[{"name": "v", "secret": {"secretName": "keys"}}])
    c.look("after 25 s", after=25)


@case("b")
def never_pulled(c):
    """imagePullPolicy Never, and the image is not on the node"""
    c.pod(container(command=FOREVER, image="good.live/elsewhere:7", imagePullPolicy="Never"))
    c.look("after 15 s", after=15)


@case("p")
def no_image_name(c):
    """the image name has capital letters, which no registry knows"""
    c.pod(container(command=FOREVER, image="good.live/Tools:1"))
    c.look("after 15 s", after=15)


@case("b")
def pre_stop_refused(c):
    """a preStop hook by HTTP is refused; the container ignores SIGTERM and has 7 s of grace"""
    c.pod(container(command=STUBBORN, lifecycle={"preStop": {"httpGet": {"port": 8081}}}), grace=7)
    c.wait_running()
    c.sleep(11)
    c.delete()
    c.look("4 s after the deletion", after=4)
    c.wait_gone()
    c.look("when the pod is gone", after=2)


@case("p")
def post_start_never_ends(c):
    """a postStart hook by exec that never ends"""
    c.pod(container(command=FOREVER, lifecycle={"postStart": shell("sleep 600")}))
    c.look("after 25 s", after=25)


@case("b")
def killed_process_of_the_sandbox(c):
    """someone on the node kills the process that inspectp names: with the built-in runtime that of the container"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(11)
    pid = json.loads(run("crictl", "inspectp", c.sandbox()))["info"]["pid"]
    run("kill", "-9", str(pid))
    c.wait_restarts(1)
    c.look("4 s after", after=4)
    c.look("16 s after", after=12)


@case("p")
def fails_twice_and_completes(c):
    """restartPolicy OnFailure: ends with 17 twice after 1 s, then with 0 after 6 s"""
    c.pod(container(command="echo x >> /v/n; [ $(wc -l < /v/n) -gt 2 ] || { sleep 1; exit 17; }; sleep 6", **AT_V), restartPolicy="OnFailure", **SCRATCH)
    c.wait_restarts(2)
    c.look("2 s after the second restart", after=2)
    c.wait("end", lambda: c.get().get("status", {}).get("phase") == "Succeeded")
    c.look("4 s after the end", after=4)


@case("b")
def fails_once_for_all(c):
    """restartPolicy Never: ends with 19 after 12 s"""
    c.pod(container(command="sleep 12; exit 19"), restartPolicy="Never")
    c.wait("end", lambda: c.get().get("status", {}).get("phase") == "Failed")
    c.look("4 s after the end", after=4)


@case("p")
def deleted_in_an_init(c):
    """the pod is deleted while its init container works, which ends at SIGTERM"""
    c.pod(container(command=FOREVER), initContainers=[container("work", "trap 'exit 0' TERM; while :; do sleep 1; done")])
    c.wait_running("work")
    c.sleep(9)
    c.delete()
    c.wait_gone()
    c.look("3 s after the end", after=3)


@case("b")
def readiness_comes(c):
    """a readiness probe by exec fails with 1 for 20 s, then succeeds"""
    c.pod(container(command=f"sleep 20; touch /v/ok; {FOREVER}", readinessProbe={**shell("[ -e /v/ok ]"), "periodSeconds": 2}, **AT_V), **SCRATCH)
    c.look("after 12 s", after=12)
    c.wait("readiness", lambda: c.status_of().get("ready"))
    c.look("6 s after it is ready", after=6)


@case("p")
def new_image_ends_at_once(c):
    """a running pod gets another image, in which its command ends with 18 at once"""
    c.pod(container(command=f"[ ! -e /version ] || exit 18; {FOREVER}"))
    c.wait_running()
    c.sleep(11)
    c.patch({"spec": {"containers": [{"name": "app", "image": "good.live/tools:2"}]}})
    c.look("20 s after", after=20)


@case("b")
def memory_limit_of_nothing(c):
    """a memory limit of 1 MiB: too little for a process to start"""
    c.pod(container(command=FOREVER, resources={"limits": {"memory": "1Mi"}}))
    c.look("after 20 s", after=20)


@case("p")
def probe_kills_beside_a_loop(c):
    """a startup probe by exec never succeeds (exit code 9), and a sidecar container ends with 4 every 5 s"""
    c.pod(container(command=FOREVER, startupProbe={**shell("exit 9"), "periodSeconds": 2, "failureThreshold": 3}), container("mate", "sleep 5; exit 4"))
    c.wait_restarts(2)
    c.look("3 s after the second restart", after=3)


@case("b")
def worker_ended_in_a_session(c):
    """nodetool runs a command in a session that ends the container's worker, without which the container ends with 13"""
    c.pod(container(command="sleep 100000 & wait $!; exit 13"))
    c.wait_running()
    c.sleep(11)
    c.nodetool("exec", c.id(), "/bin/sh", "-c", "killall sleep")
    c.wait_restarts(1)
    c.look("4 s after", after=4)


@case("p")
def slow_network(c):
    """a CNI plugin takes 9 s for the pod, which is healthy afterwards"""
    c.cni("sleep 9\n")
    c.pod(container(command=FOREVER))
    c.look("6 s after", after=6)
    c.wait_running()
    c.look("11 s after it is up", after=11)


@case("b")
def seccomp_profile_missing(c):
    """a seccomp profile of the node that does not exist"""
    c.pod(container(command=FOREVER, securityContext={"seccompProfile": {"type": "Localhost", "localhostProfile": "none.json"}}))
    c.look("after 15 s", after=15)


@case("p", alone=True)
def kubelet_restarts_in_a_loop_of_crashes(c):
    """a container ends with 15 in a loop; the kubelet is killed in a back-off and is back after 10 s"""
    c.pod(container(command="sleep 2; exit 15"))
    c.wait_restarts(2)
    c.sleep(4)
    c.kill("kubelet")
    c.look("6 s after", after=6)
    c.begin("kubelet")
    c.wait_restarts(3)
    c.look("6 s after the next restart", after=6)


@case("p", alone=True)
def containerd_dies_beside_a_loop(c):
    """a container ends with 16 in a loop; containerd is killed and is back after 12 s"""
    c.pod(container(command="sleep 4; exit 16"))
    c.wait_restarts(1)
    c.kill("containerd")
    c.look("8 s after", after=8)
    c.sleep(4)
    c.begin("containerd")
    c.wait_restarts(2)
    c.look("6 s after the next restart", after=6)


@case("b", alone=True)
def criscope_dies_in_a_hook(c):
    """criscope, as the runtime, is killed during a preStop hook of 15 s, and is back after 6 s"""
    c.pod(container(command=FOREVER, lifecycle={"preStop": shell("sleep 15")}), grace=25)
    c.wait_running()
    c.sleep(11)
    c.delete()
    c.sleep(3)
    c.kill("criscope")
    c.sleep(6)
    c.begin("criscope")
    c.look("3 s after", after=3)
    c.wait_gone()
    c.look("when the pod is gone", after=3)
