"""Cases of the fourth campaign, of the kinds whose lines were partly right or wrong before. The text of a case says what is true."""
import node
from case import FOREVER, STUBBORN, case, container, shell
from cases_more import AT_V, OOM_ONCE, SCRATCH, SMALL


@case("p")
def map_over_bin(c):
    """a volume of a ConfigMap is mounted over /bin, where the shell of the image is"""
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": "tools"}, "data": {"report": "x"}})
    c.pod(container(command=FOREVER, volumeMounts=[{"name": "b", "mountPath": "/bin"}]),
          volumes=[{"name": "b", "configMap": {"name": "tools"}}])
    c.look("after 20 s", after=20)


@case("b")
def for_windows(c):
    """admission: the pod is for Windows"""
    c.pod(container(command=FOREVER), os={"name": "windows"})
    c.look("after 12 s", after=12)


@case("p")
def two_inits_heal(c):
    """one init container fails once with 4, the next is killed for lack of memory once; then the pod is up"""
    c.pod(container(command=FOREVER), volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}], initContainers=[
        container("fetch", "echo x >> /v/n; [ $(wc -l < /v/n) -gt 1 ] || exit 4", volumeMounts=[{"name": "w", "mountPath": "/v"}]),
        container("load", OOM_ONCE, **SMALL, **AT_V)])
    c.wait_running(seconds=90)
    c.look("1 s after it is up", after=1)
    c.look("13 s after it is up", after=12)


@case("b")
def liveness_without_program(c):
    """the liveness probe's program is not in the image: for the kubelet the probe has no result, and the container runs on"""
    c.pod(container(command=FOREVER, livenessProbe={"exec": {"command": ["/usr/bin/alive"]}, "periodSeconds": 2, "failureThreshold": 3}))
    c.look("after 5 s", after=5)
    c.look("after 30 s", after=25)


@case("b")
def stopped_and_deleted(c):
    """nodetool stops the container (0 s of grace, exit code 137), and 1 s later the pod is deleted"""
    c.pod(container(command=STUBBORN), grace=5)
    c.wait_running()
    c.sleep(12)
    c.nodetool("stop", "--timeout", "0", c.id())
    c.sleep(1)
    c.delete()
    c.wait_gone()
    c.look("3 s after", after=3)


@case("p")
def removed_in_its_back_off(c):
    """a crash loop (exit code 8); nodetool removes the ended container during the back-off"""
    c.pod(container(command="sleep 2; exit 8"))
    c.wait_restarts(1)
    c.wait("end", lambda: "waiting" in c.status_of().get("state", {}))
    c.nodetool("rm", "-f", c.id())
    c.look("4 s after", after=4)
    c.wait_restarts(2)
    c.look("5 s after the next restart", after=5)


@case("b")
def throttled_init(c):
    """an init container with a CPU limit of 20 millicores works for half a minute; then the pod is healthy"""
    c.pod(container(command=FOREVER), initContainers=[
        container("index", "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done", resources={"limits": {"cpu": "20m"}})])
    c.look("after 10 s", after=10)
    c.wait_running(seconds=150)
    c.look("12 s after it is up", after=12)


@case("p")
def deadline_in_a_pull(c):
    """activeDeadlineSeconds of 12, during a pull that takes 30 s: the pod fails without having started"""
    c.pod(container(command=FOREVER, image="slow.live/big8:1"), activeDeadlineSeconds=12)
    c.look("after 8 s", after=8)
    c.look("after 45 s", after=37)


@case("b")
def map_comes_later(c):
    """a variable from a ConfigMap that exists after 30 s"""
    c.pod(container(command=FOREVER, env=[{"name": "P", "valueFrom": {"configMapKeyRef": {"name": "late-map", "key": "k"}}}]))
    c.look("after 20 s", after=20)
    c.sleep(8)
    node.api("POST", "/api/v1/namespaces/live/configmaps", {"metadata": {"name": "late-map"}, "data": {"k": "1"}})
    c.wait_running()
    c.look("when it is up", after=12)


@case("p")
def slow_hook(c):
    """a postStart hook by exec takes 9 s and succeeds"""
    c.pod(container(command=FOREVER, lifecycle={"postStart": shell("sleep 9")}))
    c.look("after 6 s", after=6)
    c.wait_running()
    c.look("12 s after it is up", after=12)


@case("b")
def ended_from_a_shell(c):
    """nodetool runs a command that ends the container with exit code 12; the kubelet starts it again"""
    c.pod(container(command="trap 'exit 12' USR1; while :; do sleep 1; done"))
    c.wait_running()
    c.sleep(12)
    c.nodetool("exec", "-s", c.id(), "/bin/sh", "-c", "kill -USR1 1")
    c.wait_restarts(1)
    c.look("3 s after", after=3)
    c.look("18 s after", after=15)


@case("p")
def too_much_in_a_volume(c):
    """the pod writes 20 MB into an emptyDir with a sizeLimit of 5 Mi: the kubelet evicts it"""
    c.pod(container(command=f"head -c 20000000 /dev/zero > /v/x; {FOREVER}", **AT_V),
          volumes=[{"name": "v", "emptyDir": {"sizeLimit": "5Mi"}}])
    c.wait("eviction", lambda: c.get().get("status", {}).get("reason") == "Evicted", 120)
    c.look("10 s after", after=10)


@case("b")
def never_and_probed(c):
    """restartPolicy Never; a liveness probe by exec fails with 6, and the kubelet ends the pod"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("exit 6"), "periodSeconds": 2, "failureThreshold": 2}), restartPolicy="Never")
    c.wait("end", lambda: c.get().get("status", {}).get("phase") in ("Failed", "Succeeded"))
    c.look("3 s after", after=3)
    c.look("15 s after", after=12)


@case("p")
def secret_of_a_login_missing(c):
    """the registry asks for a login, and the pod's imagePullSecret does not exist"""
    c.pod(container(command=FOREVER, image="login.live/tools:1"), imagePullSecrets=[{"name": "nowhere"}])
    c.look("after 20 s", after=20)


@case("b")
def one_of_two_is_slow(c):
    """two containers: one is up at once, the image of the other comes from a registry that never answers"""
    c.pod(container(command=FOREVER), container("other", FOREVER, "silent.live/tools:2"))
    c.look("after 20 s", after=20)


@case("p")
def loops_and_is_not_ready(c):
    """one container ends with 3 in a loop; the readiness probe (exec, 2) of the other fails all the time"""
    c.pod(container("small", "sleep 3; exit 3"), container("large", FOREVER, readinessProbe={**shell("exit 2"), "periodSeconds": 2}))
    c.wait_restarts(2, "small")
    c.look("8 s after the second restart", after=8)


@case("b")
def heals_and_works(c):
    """the container ends with 7 once after 2 s and then stays up; 30 s later it is healthy"""
    c.pod(container(command=f"echo x >> /v/n; [ $(wc -l < /v/n) -gt 1 ] || {{ sleep 2; exit 7; }}; {FOREVER}", **AT_V), **SCRATCH)
    c.wait_restarts(1)
    c.look("3 s after the second start", after=3)
    c.look("30 s after it", after=27)


@case("p", alone=True)
def made_while_the_kubelet_is_down(c):
    """the kubelet is down for 25 s; the pod is made meanwhile, and is up soon after"""
    c.kill("kubelet")
    c.sleep(2)
    c.pod(container(command=FOREVER))
    c.sleep(23)
    c.begin("kubelet")
    c.wait_running()
    c.look("12 s after it is up", after=12)
