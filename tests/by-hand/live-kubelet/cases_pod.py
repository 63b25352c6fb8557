"""What the pod itself says: commands, images, volumes, limits, probes, hooks, init containers. The text of a case says what is true."""
import node
from case import FOREVER, STUBBORN, case, container, shell

EXEC = {"periodSeconds": 2, "failureThreshold": 2}

# --- what the pod says ---------------------------------------------------------------------------------------------------


@case("p")
def no_command(c):
    """neither the image nor the pod has a command"""
    c.pod(container(image="good.live/silent:1"))
    c.look("after 20 s", after=20)


@case("b")
def no_interpreter(c):
    """the program is a script whose interpreter is not in the image"""
    c.pod({**container(image="good.live/script:1"), "command": ["/opt/report"]})
    c.look("after 20 s", after=20)


@case("p")
def other_format(c):
    """the program is an ELF file of garbage (exec format error)"""
    c.pod({**container(image="good.live/script:1"), "command": ["/opt/other"]})
    c.look("after 20 s", after=20)


@case("p")
def program_in_volume(c):
    """an emptyDir over /opt hides the program /opt/report, and beside it an init container that worked"""
    c.pod({**container(image="good.live/script:1", volumeMounts=[{"name": "opt", "mountPath": "/opt"}]), "command": ["/opt/report"]},
          initContainers=[container("before", "true")], volumes=[{"name": "opt", "emptyDir": {}}])
    c.look("after 20 s", after=20)


@case("b")
def user_hidden(c):
    """an emptyDir over /etc hides /etc/passwd; the user of the image is found nevertheless, and the pod is healthy"""
    c.pod(container(command=FOREVER, image="good.live/user:1", volumeMounts=[{"name": "etc", "mountPath": "/etc"}]),
          volumes=[{"name": "etc", "emptyDir": {}}])
    c.look("after 20 s", after=20)


@case("p")
def named_user_must_not_be_root(c):
    """runAsNonRoot, and the image has a user by name: the kubelet refuses it"""
    c.pod(container(command=FOREVER, image="good.live/user:1", securityContext={"runAsNonRoot": True}))
    c.look("after 25 s", after=25)


@case("b")
def key_missing(c):
    """a variable from a key that its ConfigMap does not have"""
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    c.pod(container(command=FOREVER, env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}}]))
    c.look("after 25 s", after=25)


@case("pb")
def volume_of_a_missing_map(c):
    """a volume of a ConfigMap that does not exist, made after 50 s"""
    name = f"later-{c.mode}"
    c.pod(container(command=FOREVER, volumeMounts=[{"name": "v", "mountPath": "/v"}]), volumes=[{"name": "v", "configMap": {"name": name}}])
    c.look("after 40 s", after=40)
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": name}, "data": {"a": "1"}})
    c.wait_running(seconds=150)
    c.look("after", after=12)


@case("p")
def host_directory_missing(c):
    """a hostPath of type Directory that does not exist"""
    c.pod(container(command=FOREVER, volumeMounts=[{"name": "v", "mountPath": "/v"}]),
          volumes=[{"name": "v", "hostPath": {"path": "/nowhere/at/all", "type": "Directory"}}])
    c.look("after 30 s", after=30)


@case("b")
def sub_path_is_a_link(c):
    """a subPath that leaves its volume by a symbolic link"""
    c.pod(container(command=FOREVER, volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": "link/x"}]),
          initContainers=[container("before", "ln -s /proc /v/link", volumeMounts=[{"name": "v", "mountPath": "/v"}])],
          volumes=[{"name": "v", "emptyDir": {}}])
    c.look("after 25 s", after=25)


@case("p")
def not_for_this_node(c):
    """admission: the pod's nodeSelector does not match"""
    c.pod(container(command=FOREVER), nodeSelector={"disk": "fast"})
    c.look("after 15 s", after=15)


@case("b")
def too_large(c):
    """admission: the pod asks for 500 CPUs"""
    c.pod(container(command=FOREVER, resources={"requests": {"cpu": "500"}}))
    c.look("after 15 s", after=15)


@case("p")
def throttled_start(c):
    """a container with a CPU limit of 10 millicores, and a startup probe that therefore fails"""
    c.pod(container(command="i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; touch /tmp/up; exec sleep 600", resources={"limits": {"cpu": "10m"}},
                    startupProbe={**shell("test -e /tmp/up"), **EXEC, "timeoutSeconds": 1, "failureThreshold": 5}))
    c.look("after 25 s", after=25)
    c.look("after 60 s", after=35)


@case("b")
def full_volume(c):
    """a program that fills its volume in memory of 1 MiB, and ends with exit code 2"""
    c.pod(container(command="head -c 3000000 /dev/zero > /v/x || exit 2; sleep 600", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
          volumes=[{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}])
    c.wait_restarts(1)
    c.look("in the loop", after=5)


# --- probes and hooks ----------------------------------------------------------------------------------------------------


@case("p")
def probe_and_hook(c):
    """a liveness probe by exec fails with 4, and the preStop hook fails with 8 at each of these kills"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("exit 4"), **EXEC, "initialDelaySeconds": 3},
                    lifecycle={"preStop": shell("exit 8")}))
    c.wait_restarts(2)
    c.look("after two kills", after=3)


@case("b")
def startup_by_tcp(c):
    """a startup probe by TCP fails (nothing listens); an init container took 6 s before"""
    c.pod(container(command=FOREVER, startupProbe={"tcpSocket": {"port": 81}, **EXEC, "failureThreshold": 4}),
          initContainers=[container("before", "sleep 6")])
    c.look("after 10 s", after=10)
    c.wait_restarts(2)
    c.look("after two kills", after=3)


@case("p")
def readiness_hangs(c):
    """a readiness probe by exec that hangs longer than its timeout of 1 s: the pod is never ready"""
    c.pod(container(command=FOREVER, readinessProbe={**shell("sleep 30"), "timeoutSeconds": 1, "periodSeconds": 3}))
    c.look("after 25 s", after=25)


@case("b")
def readiness_fails(c):
    """a readiness probe by exec fails with 7; afterwards it succeeds"""
    c.pod(container(command="trap 'exit 0' TERM; (sleep 30; touch /tmp/ok) & while :; do sleep 1; done",
                    readinessProbe={**shell("test -e /tmp/ok || exit 7"), "periodSeconds": 3}))
    c.look("after 20 s", after=20)
    c.look("after 45 s", after=25)


@case("p")
def liveness_by_grpc(c):
    """a liveness probe by gRPC fails (nothing listens)"""
    c.pod(container(command=FOREVER, livenessProbe={"grpc": {"port": 9000}, **EXEC}))
    c.wait_restarts(2)
    c.look("after two kills", after=3)


@case("b")
def post_start_by_http(c):
    """a postStart hook by HTTP is refused: the kubelet kills the container each time"""
    c.pod(container(command=FOREVER, lifecycle={"postStart": {"httpGet": {"port": 82, "path": "/"}}}))
    c.look("after 25 s", after=25)


@case("p")
def post_start_by_exec(c):
    """a postStart hook by exec fails with 9: the kubelet kills the container each time"""
    c.pod(container(command=FOREVER, lifecycle={"postStart": shell("sleep 1; exit 9")}))
    c.look("after 25 s", after=25)


@case("p")
def pre_stop_too_long(c):
    """a preStop hook of 30 s, and 8 s of grace: SIGKILL after a deletion"""
    c.pod(container(command=FOREVER, lifecycle={"preStop": shell("sleep 30")}), grace=8)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.look("4 s into it", after=4)
    c.wait_gone()
    c.look("after", after=3)


@case("b")
def evicted_and_stubborn(c):
    """eviction by the API of a pod that ignores SIGTERM, with 10 s of grace"""
    c.pod(container(command=STUBBORN), grace=10)
    c.wait_running()
    c.sleep(12)
    c.evict()
    c.look("5 s into it", after=5)
    c.wait_gone()
    c.look("after", after=3)


@case("p")
def deadline(c):
    """activeDeadlineSeconds of 15: the kubelet stops a healthy pod, which stays as Failed"""
    c.pod(container(command=FOREVER), activeDeadlineSeconds=15)
    c.look("10 s before", after=6)
    c.look("after", after=30)


# --- init containers, sidecars, jobs, ephemeral containers ---------------------------------------------------------------


@case("p")
def init_heals(c):
    """the second init container fails twice with 3 and then works"""
    c.pod(container(command=FOREVER), volumes=[{"name": "v", "emptyDir": {}}], initContainers=[
        container("one", "true"),
        container("two", "echo x >> /v/n; [ $(wc -l < /v/n) -gt 2 ] || exit 3", volumeMounts=[{"name": "v", "mountPath": "/v"}])])
    c.wait("two failures", lambda: c.status_of("two").get("restartCount", 0) >= 1)
    c.look("while it fails", after=3)
    c.wait_running(seconds=90)
    c.look("after", after=12)


@case("b")
def slow_init_and_bad_image(c):
    """an init container works for 15 s; then the main container's image does not exist"""
    c.pod(container(command=FOREVER, image="good.live/none:1"), initContainers=[container("load", "sleep 15")])
    c.look("in the init container", after=9)
    c.look("after 35 s", after=26)


@case("b")
def sidecar_loops(c):
    """the sidecar ends with 5 every 3 s; the main container is healthy"""
    c.pod(container(command=FOREVER), initContainers=[container("proxy", "sleep 3; exit 5", restartPolicy="Always")])
    c.wait_restarts(3, "proxy")
    c.look("in the loop", after=2)


@case("p")
def sidecar_never_started(c):
    """the sidecar's startup probe (exec) never succeeds: the main container never starts"""
    c.pod(container(command=FOREVER), initContainers=[
        container("proxy", FOREVER, restartPolicy="Always", startupProbe={**shell("exit 1"), "periodSeconds": 2, "failureThreshold": 30})])
    c.look("after 25 s", after=25)
    c.wait_restarts(1, "proxy")
    c.look("after its first kill", after=5)


@case("p")
def two_loops(c):
    """one container is killed for lack of memory in a loop, another one ends with 9 in a loop"""
    c.pod(container("large", "sleep 2; head -c 100000000 /dev/zero | tail > /dev/null; exit 1", resources={"limits": {"memory": "24Mi"}}),
          container("small", "sleep 3; exit 9"))
    c.wait_restarts(3, "small")
    c.look("in the loops", after=2)


@case("b")
def loop_and_missing_image(c):
    """one container ends with 9 in a loop, the image of another does not exist"""
    c.pod(container("small", "sleep 3; exit 9"), container("other", FOREVER, "good.live/none:2"))
    c.wait_restarts(2, "small")
    c.look("after two restarts", after=10)


@case("p")
def done_and_failed(c):
    """restartPolicy Never: one container ends with 0, the other with 5 after 6 s"""
    c.pod(container("one", "sleep 2"), container("two", "sleep 6; exit 5"), restartPolicy="Never")
    c.look("3 s after the first", after=5)
    c.look("after both", after=15)


@case("b")
def second_try(c):
    """restartPolicy OnFailure: fails once with 1, then succeeds"""
    c.pod(container(command="echo x >> /v/n; sleep 2; [ $(wc -l < /v/n) -gt 1 ]", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
          volumes=[{"name": "v", "emptyDir": {}}], restartPolicy="OnFailure")
    c.wait("success", lambda: c.get()["status"].get("phase") == "Succeeded")
    c.look("2 s after", after=2)
    c.look("15 s after", after=13)


@case("p")
def once_out_of_memory(c):
    """restartPolicy Never: killed for lack of memory after 3 s"""
    c.pod(container(command="sleep 3; exec tail /dev/zero", resources={"limits": {"memory": "24Mi"}}), restartPolicy="Never")
    c.look("after 15 s", after=15)


@case("b")
def ephemeral_without_image(c):
    """a healthy pod gets an ephemeral container whose image does not exist"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(4)
    c.patch({"spec": {"ephemeralContainers": [container("debug", "sleep 1", "good.live/debug:9")]}}, "/ephemeralcontainers")
    c.look("after 20 s", after=20)


@case("p")
def ephemeral_ends(c):
    """a healthy pod gets an ephemeral container that ends with 2 after 4 s"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(4)
    c.patch({"spec": {"ephemeralContainers": [container("debug", "sleep 4; exit 2")]}}, "/ephemeralcontainers")
    c.look("while it runs", after=3)
    c.look("after", after=15)


@case("b")
def static_pod_loops(c):
    """a static pod whose container ends with 2 in a loop"""
    c.static_pod(container(command="sleep 2; exit 2"))
    c.look("after 30 s", after=30, name=c.name + "-node")
    c.remove_static_pod()
    c.look("10 s after its file was removed", after=10, name=c.name + "-node")


@case("b")
def worker_out_of_memory(c):
    """a worker process is killed for lack of memory every 5 s while the container runs, and a readiness probe fails with 1"""
    c.pod(container(command="while :; do sleep 5; (exec tail /dev/zero); done", resources={"limits": {"memory": "24Mi"}},
                    readinessProbe={**shell("exit 1"), "periodSeconds": 3}))
    c.look("after 25 s", after=25)
