"""Cases of the third campaign, of the same kinds as the others. The text of a case says what is true."""
import node
from case import FOREVER, STUBBORN, case, container, shell
from cases_more import AT_V, SCRATCH, SMALL


@case("p")
def heals_after_two(c):
    """the container ends with 9 twice after 2 s, and then stays up"""
    c.pod(container(command=f"echo x >> /v/n; [ $(wc -l < /v/n) -gt 2 ] || {{ sleep 2; exit 9; }}; {FOREVER}", **AT_V), **SCRATCH)
    c.wait_restarts(2)
    c.look("4 s after the third start", after=4)
    c.look("20 s after it", after=16)


@case("b")
def sidecar_out_of_memory(c):
    """a sidecar is killed for lack of memory every few seconds; the main container is healthy"""
    c.pod(container(command=FOREVER), initContainers=[container("agent", "sleep 3; exec tail /dev/zero", restartPolicy="Always", **SMALL)])
    c.wait_restarts(2, "agent")
    c.look("5 s after the second restart", after=5)


@case("b")
def no_such_digest(c):
    """an image by a digest that the registry does not have"""
    c.pod(container(command=FOREVER, image="good.live/tools@sha256:" + 32 * "5f"))
    c.look("after 25 s", after=25)


@case("p")
def key_comes_later(c):
    """a variable from a key that the Secret gets after 30 s"""
    secret = {"metadata": {"name": "late"}, "stringData": {"user": "x"}}
    node.api("POST", "/api/v1/namespaces/live/secrets", secret)
    c.pod(container(command=FOREVER, env=[{"name": "P", "valueFrom": {"secretKeyRef": {"name": "late", "key": "password"}}}]))
    c.look("after 20 s", after=20)
    node.api("PATCH", "/api/v1/namespaces/live/secrets/late", {"stringData": {"password": "y"}}, "application/strategic-merge-patch+json")
    c.wait_running()
    c.look("when it is up", after=12)


@case("p")
def two_exit_codes(c):
    """two containers of a pod end in loops, one with 6 and one with 7"""
    c.pod(container("left", "sleep 2; exit 6"), container("right", "sleep 3; exit 7"))
    c.wait_restarts(2, "right")
    c.look("5 s after", after=5)


@case("b")
def debugger_ends(c):
    """an ephemeral container in a healthy pod ends with 0 after 3 s"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    c.patch({"spec": {"ephemeralContainers": [{**container("debug", "sleep 3"), "targetContainerName": "app"}]}}, "/ephemeralcontainers")
    c.wait("end of debug", lambda: "terminated" in c.status_of("debug").get("state", {}))
    c.look("3 s after", after=3)
    c.look("15 s after", after=12)


@case("p")
def evicted(c):
    """eviction by the API of a healthy pod that ends at SIGTERM"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(12)
    c.evict()
    c.wait_gone()
    c.look("3 s after", after=3)


@case("p")
def deleted_without_network(c):
    """a CNI plugin refuses the pod, which is deleted after 15 s without ever having started"""
    c.cni('echo \'{"cniVersion": "1.0.0", "code": 100, "msg": "no route to the border gateway"}\'; exit 1')
    c.pod(container(command=FOREVER))
    c.sleep(15)
    c.delete()
    c.look("3 s after the deletion", after=3)
    c.wait_gone()
    c.look("when it is gone", after=3)


@case("b")
def root_is_refused(c):
    """runAsNonRoot, and the image's user is root: the kubelet refuses it"""
    c.pod(container(command=FOREVER, securityContext={"runAsNonRoot": True}))
    c.look("after 25 s", after=25)


@case("pb")
def work_in_a_file(c):
    """the container's working directory is a file of its image"""
    c.pod(container(command=FOREVER, workingDir="/etc/passwd"))
    c.look("after 25 s", after=25)


@case("p")
def hook_too_long(c):
    """a preStop hook by exec sleeps 60 s, the grace period is 6 s; then SIGKILL"""
    c.pod(container(command=FOREVER, lifecycle={"preStop": shell("sleep 60")}), grace=6)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.look("4 s after the deletion", after=4)
    c.wait_gone()
    c.look("when it is gone", after=3)


@case("b")
def waits_for_a_database(c):
    """an init container waits for something that never comes"""
    c.pod(container(command=FOREVER), initContainers=[container("wait", "until [ -e /ready ]; do sleep 1; done")])
    c.look("after 40 s", after=40)


@case("p")
def startup_never(c):
    """a startup probe by exec fails with 3 until the kubelet kills the container, again and again"""
    c.pod(container(command=FOREVER, startupProbe={**shell("exit 3"), "periodSeconds": 2, "failureThreshold": 4}))
    c.wait_restarts(2)
    c.look("5 s after the second restart", after=5)


@case("b")
def killed_from_a_shell(c):
    """nodetool runs `kill -9` on the container's worker, without which the container ends with 14"""
    c.pod(container(command="sleep 3333 & wait $!; exit 14"))
    c.wait_running()
    c.sleep(12)
    c.nodetool("exec", c.id(), "sh", "-c", "kill -9 $(pidof sleep)")
    c.wait_restarts(1)
    c.look("3 s after", after=3)
    c.look("20 s after", after=17)


@case("p", alone=True)
def criscope_dies_in_the_network(c):
    """criscope is killed while a CNI plugin takes 20 s, and is back after 8 s"""
    c.cni("sleep 20")
    c.pod(container(command=FOREVER))
    c.sleep(6)
    c.kill("criscope")
    c.sleep(8)
    c.begin("criscope")
    c.look("6 s after it is back", after=6)
    c.wait_running(seconds=120)
    c.look("when the pod is up", after=12)


@case("b", alone=True)
def kubelet_killed_in_a_loop(c):
    """a container ends with 11 in a loop; the kubelet is killed for 20 s meanwhile"""
    c.pod(container(command="sleep 4; exit 11"))
    c.wait_restarts(1)
    c.kill("kubelet")
    c.look("15 s after", after=15)
    c.sleep(5)
    c.begin("kubelet")
    c.wait_restarts(3)
    c.look("5 s after it is back and the container has started again", after=5)


@case("p")
def stubborn_and_probed(c):
    """a healthy pod ignores SIGTERM, with 10 s of grace, and is deleted"""
    c.pod(container(command=STUBBORN, readinessProbe={**shell("true"), "periodSeconds": 2}), grace=10)
    c.wait_running()
    c.sleep(12)
    c.delete()
    c.look("5 s after the deletion", after=5)
    c.wait_gone()
    c.look("when it is gone", after=3)
