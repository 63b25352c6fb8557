"""People and other programs that call the runtime, and registries. The text of a case says what is true."""
import os
import signal

from case import FOREVER, STUBBORN, case, container, shell

# --- other programs and people -------------------------------------------------------------------------------------------


@case("p")
def stopped_once(c):
    """nodetool stops the container of a healthy pod once; the kubelet starts it again"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(14)
    c.nodetool("stop", "--timeout", "5", c.id())
    c.look("1 s after", after=1)
    c.look("25 s after", after=24)


@case("b")
def sandbox_stopped(c):
    """nodetool stops the sandbox of a healthy pod; the kubelet makes another"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(14)
    c.nodetool("stopp", c.sandbox())
    c.look("1 s after", after=1)
    c.look("20 s after", after=19)


@case("p")
def execs_beside(c):
    """a healthy pod with a passing liveness probe; nodetool runs commands in it that fail with 3 and take 6 s"""
    c.pod(container(command=FOREVER, livenessProbe={**shell("true"), "periodSeconds": 5}))
    c.wait_running()
    c.sleep(3)
    c.nodetool("exec", "-s", c.id(), "/bin/sh", "-c", "exit 3")
    long = c.nodetool("exec", "-s", c.id(), "/bin/sh", "-c", "sleep 6", background=True)
    c.look("while the second runs", after=3)
    long.wait()
    c.look("after", after=12)


@case("b")
def ended_by_exec(c):
    """nodetool runs `kill -TERM 1` in the container, which ends with 0; the kubelet starts it again"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(13)
    c.nodetool("exec", "-s", c.id(), "/bin/sh", "-c", "kill -TERM 1")
    c.look("2 s after", after=2)
    c.look("25 s after", after=23)


@case("p")
def removed_by_force(c):
    """crictl rm -f removes the running container of a healthy pod; the kubelet makes another"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(13)
    c.nodetool("rm", "-f", c.id())
    c.look("2 s after", after=2)
    c.look("25 s after", after=23)


@case("b")
def limit_by_hand(c):
    """nodetool lowers the memory limit of a running container; then its worker is killed for lack of memory, and it ends with 70"""
    c.pod(container(command="while sleep 10; do head -c 90000000 /dev/zero | tail > /dev/null || exit 70; done",
                    resources={"limits": {"memory": "200Mi"}}))
    c.wait_running()
    c.sleep(6)
    c.nodetool("update", "--memory", str(40 << 20), c.id())
    c.wait("end", lambda: c.status_of().get("restartCount", 0) > 0, 90)
    c.look("right after", after=1)
    c.look("15 s after", after=14)


@case("p")
def image_removed(c):
    """an image that may not be pulled is removed by nodetool while the container is in its back-off"""
    c.nodetool("pull", "good.live/tools:never")
    c.pod(container(command="sleep 3; exit 4", image="good.live/tools:never", imagePullPolicy="Never"))
    c.wait_restarts(1)
    c.wait("end", lambda: "waiting" in c.status_of().get("state", {}))
    c.nodetool("rm", "-f", c.id())
    c.nodetool("rmi", "good.live/tools:never")
    c.look("12 s after", after=12)
    c.look("45 s after", after=33)


@case("b")
def killed_on_node(c):
    """someone on the node sends SIGKILL to the container's first process"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(13)
    os.kill(c.pid_of(), signal.SIGKILL)
    c.look("2 s after", after=2)
    c.look("25 s after", after=23)


@case("b")
def stop_of_a_stubborn_one(c):
    """nodetool stops a container that ignores SIGTERM, with 15 s of grace"""
    c.pod(container(command=STUBBORN))
    c.wait_running()
    c.sleep(12)
    stop = c.nodetool("stop", "--timeout", "15", c.id(), background=True)
    c.look("8 s into it", after=8)
    stop.wait()
    c.look("5 s after", after=5)


@case("p")
def stopped_in_crash_loop(c):
    """a crash loop (exit code 6); nodetool stops one run with SIGTERM (exit code 0)"""
    c.pod(container(command="trap 'exit 0' TERM; i=0; while [ $i -lt 8 ]; do sleep 1; i=$((i+1)); done; exit 6"))
    c.wait_restarts(1)
    c.wait_running()
    c.nodetool("stop", "--timeout", "5", c.id())
    c.look("3 s after", after=3)
    c.wait_restarts(3)
    c.look("after its third restart", after=12)


@case("p")
def replaced_twice(c):
    """nodetool stops the sandbox and removes it by force (rmp -f) twice"""
    c.pod(container(command=FOREVER))
    for _ in range(2):
        c.wait_running()
        c.sleep(6)
        c.nodetool("rmp", "-f", c.sandbox())
        c.sleep(3)
    c.look("3 s after the second", after=0)
    c.look("20 s after", after=17)


@case("b")
def exits_137(c):
    """a program that ends with exit code 137 by itself, every 4 s"""
    c.pod(container(command="sleep 4; exit 137"))
    c.wait_restarts(2)
    c.look("in the loop", after=2)


# --- pulls ---------------------------------------------------------------------------------------------------------------


@case("p")
def storage_down(c):
    """the registry answers 503"""
    c.pod(container(command=FOREVER, image="broken.live/tools:1"))
    c.look("after 25 s", after=25)


@case("b")
def rate_limit(c):
    """the registry answers 429 (rate limit)"""
    c.pod(container(command=FOREVER, image="busy.live/tools:1"))
    c.look("after 3 s", after=3)
    c.look("after 30 s", after=27)


@case("pb")
def cut_layer(c):
    """the registry closes the connection in the middle of each layer"""
    c.pod(container(command=FOREVER, image="cut.live/big1:1"))
    c.look("after 25 s", after=25)


@case("p")
def forged_layer(c):
    """the layer's content does not have its digest"""
    c.pod(container(command=FOREVER, image="forged.live/big2:1"))
    c.look("after 25 s", after=25)


@case("b")
def lost_layer(c):
    """the registry has the manifest, but not its layer (404)"""
    c.pod(container(command=FOREVER, image="lost.live/big2:1"))
    c.look("after 25 s", after=25)


@case("p")
def login_page(c):
    """a captive portal: the registry's address answers with a page in HTML"""
    c.pod(container(command=FOREVER, image="html.live/tools:1"))
    c.look("after 25 s", after=25)


@case("p")
def slow_layers(c):
    """the registry sends 400 KB/s; the pull takes 30 s and succeeds"""
    c.pod(container(command=FOREVER, image="slow.live/big3:1"))
    c.look("10 s into it", after=10)
    c.wait_running(seconds=120)
    c.look("after", after=12)


@case("b")
def stalled_layer(c):
    """the registry sends 1 MiB of the layer, then nothing; the pod is deleted after 40 s"""
    c.pod(container(command=FOREVER, image="pause.live/big4:1"))
    c.look("after 25 s", after=25)
    c.delete()
    c.look("10 s after the deletion", after=10)


@case("p")
def typo_then_mended(c):
    """a running pod gets an image that does not exist, then the right one again"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(11)
    c.patch({"spec": {"containers": [{"name": "app", "image": "good.live/tolos:1"}]}})
    c.look("15 s after", after=15)
    c.patch({"spec": {"containers": [{"name": "app", "image": "good.live/tools:1"}]}})
    c.wait_running()
    c.look("15 s after the mend", after=15)


@case("b")
def new_image(c):
    """a running pod gets another image that exists: the kubelet stops the container and starts it with the new one"""
    c.pod(container(command=FOREVER))
    c.wait_running()
    c.sleep(11)
    c.patch({"spec": {"containers": [{"name": "app", "image": "good.live/tools:2"}]}})
    c.look("4 s after", after=4)
    c.look("20 s after", after=16)


@case("b")
def never_answers(c):
    """the registry accepts the connection and never answers"""
    c.pod(container(command=FOREVER, image="silent.live/tools:1"))
    c.look("after 20 s", after=20)
    c.look("after 60 s", after=40)


@case("p")
def two_of_three_images(c):
    """of three containers one runs, the image of the second is for another platform only, that of the third needs a login"""
    c.pod(container(command=FOREVER), container("cpu", FOREVER, "good.live/arm:1"), container("login", FOREVER, "login.live/tools:1"))
    c.look("after 30 s", after=30)
