"""What a case can do with its pod and its node, and what is written down of it."""
import datetime
import json
import os
import subprocess
import time

import node
from node import api

NAMESPACE = "live"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1; done"
STUBBORN = "trap '' TERM; while :; do sleep 1; done"
CASES = []


def case(modes, alone=False):
    """Adds a case. Modes: p (proxied), b (builtin) or pb. A case that breaks the whole node runs alone."""
    def add(function):
        function.modes = {"p": ["proxied"], "b": ["builtin"], "pb": ["proxied", "builtin"]}[modes]
        function.alone = alone
        function.title = function.__name__.replace("_", "-")
        CASES.append(function)
        return function
    return add


def shell(command):
    return {"exec": {"command": ["/bin/sh", "-c", command]}}


def container(name="app", command=None, image="good.live/tools:1", **more):
    """A container that runs a shell command."""
    spec = {"name": name, "image": image, "imagePullPolicy": "IfNotPresent", **more}
    if command:
        spec["command"] = ["/bin/sh", "-c", command]
    return spec


class Case:
    def __init__(self, name, mode, daemons):
        self.name, self.mode, self.daemons = name, mode, daemons
        self.start = time.time()
        self.looks, self.notes = [], []
        self.pods = []

    # --- what a case does ------------------------------------------------------------------------------------------------

    def pod(self, *containers, name=None, **spec):
        name = name or self.name
        grace = spec.pop("grace", 2)
        status, answer = api("POST", PODS, {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"nodeName": "node", "terminationGracePeriodSeconds": grace, "automountServiceAccountToken": False,
                     "enableServiceLinks": False, "dnsPolicy": "Default", "containers": list(containers), **spec}})
        if status != 201:
            raise RuntimeError(f"the API server refused {name}: {answer.get('message')}")
        self.pods.append(name)

    def static_pod(self, *containers, **spec):
        path = f"/etc/kubernetes/manifests/{self.name}.json"
        node.write(path, json.dumps({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"terminationGracePeriodSeconds": 2, "enableServiceLinks": False, "containers": list(containers), **spec}}))
        self.static = path

    def remove_static_pod(self):
        os.remove(self.static)

    def get(self, name=None):
        return api("GET", f"{PODS}/{name or self.name}")[1]

    def delete(self, name=None, grace=None):
        body = {} if grace is None else {"gracePeriodSeconds": grace}
        return api("DELETE", f"{PODS}/{name or self.name}", body)

    def evict(self):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.name, "namespace": NAMESPACE}}
        return api("POST", f"{PODS}/{self.name}/eviction", body)

    def patch(self, body, path=""):
        status, answer = api("PATCH", f"{PODS}/{self.name}{path}", body, "application/strategic-merge-patch+json")
        if status != 200:
            self.notes.append(f"patch: {answer.get('message')}")

    def status_of(self, name="app", pod=None):
        status = self.get(pod).get("status", {})
        lists = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        return next((each for kind in lists for each in status.get(kind, []) if each["name"] == name), {})

    def wait(self, what, condition, seconds=60):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.3)
        self.notes.append(f"no {what} after {seconds} s")

    def wait_running(self, name="app", pod=None, seconds=60):
        self.wait(f"running {name}", lambda: "running" in self.status_of(name, pod).get("state", {}), seconds)

    def wait_restarts(self, count, name="app", seconds=120):
        self.wait(f"{count} restarts", lambda: self.status_of(name).get("restartCount", 0) >= count, seconds)

    def wait_gone(self, seconds=90):
        self.wait("end of the pod", lambda: self.get().get("code") == 404, seconds)

    def wait_call(self, method, seconds=30):
        """Waits until a call of this pod is in flight."""
        self.wait(f"call {method}", lambda: method in self.in_flight(), seconds)

    def in_flight(self):
        return run(node.program("criscope"), "calls", "-o", "json")

    def id(self, name="app"):
        return self.status_of(name).get("containerID", "").split("//")[-1]

    def sandbox(self):
        return run("crictl", "pods", "--name", f"^{self.name}$", "-q", "--latest").strip()

    def nodetool(self, *arguments, background=False):
        """Another program of the node that calls the runtime."""
        if background:
            return subprocess.Popen(["nodetool", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return run("nodetool", *arguments)

    def pid_of(self, name="app"):
        return int(json.loads(run("crictl", "inspect", self.id(name)))["info"]["pid"])

    def freeze(self, name="app", state="FROZEN"):
        """Freezes or thaws the container's processes."""
        if state == "FROZEN":
            self.frozen = freezer_of(self.pid_of(name))
        node.write(self.frozen + "/freezer.state", state)

    def cni(self, script, verb="ADD"):
        node.write(f"{node.CNI_FAULTS}/{self.name}.{verb}", script)

    def heal_cni(self, verb="ADD"):
        os.remove(f"{node.CNI_FAULTS}/{self.name}.{verb}")

    def kill(self, daemon):
        self.daemons.kill(daemon)

    def begin(self, daemon):
        self.daemons.start(daemon)

    def sleep(self, seconds):
        time.sleep(seconds)

    # --- what is written down --------------------------------------------------------------------------------------------

    def look(self, label, name=None, after=0):
        time.sleep(after)
        name = name or self.name
        text = run(node.program("criscope"), "explain", f"{NAMESPACE}/{name}")
        rows = run(node.program("criscope"), "pods", "-o", "json", f"{NAMESPACE}/{name}")
        self.looks.append({
            "label": label, "pod": name, "after": round(time.time() - self.start), "at": now(),
            "lines": [line for line in text.splitlines() if line.strip()][:14], "rows": rows_of(rows), "api": self.truth(name)})

    def truth(self, name):
        pod = self.get(name)
        if pod.get("code") == 404:
            facts = {"phase": "no such pod"}
        else:
            status = pod.get("status", {})
            facts = {"phase": status.get("phase"), "reason": status.get("reason"), "message": status.get("message"),
                     "deleted": pod.get("metadata", {}).get("deletionTimestamp"), "containers": {
                         each["name"]: {"state": each.get("state"), "last": each.get("lastState"), "ready": each.get("ready"),
                                        "restarts": each.get("restartCount")}
                         for kind in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
                         for each in status.get(kind, [])}}
        events = api("GET", f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={name}")[1].get("items", [])
        events.sort(key=lambda each: each.get("lastTimestamp") or "")
        facts["events"] = [f"{each.get('lastTimestamp')} {each.get('count')}x {each.get('reason')}: {each.get('message')}" for each in events][-12:]
        return facts

    def clean_up(self):
        if hasattr(self, "frozen"):
            self.freeze(state="THAWED")
        if hasattr(self, "static") and os.path.exists(self.static):
            self.remove_static_pod()
        for name in self.pods:
            self.delete(name, grace=1)


def freezer_of(pid):
    with open(f"/proc/{pid}/cgroup") as file:
        path = next(line.strip().split(":")[2] for line in file if ":freezer:" in line)
    return f"{node.HIERARCHIES}/freezer{path}"


def run(*command):
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "no answer within 60 s"
    return result.stdout or result.stderr


def rows_of(text):
    try:
        rows = json.loads(text)
    except ValueError:
        return text.strip()[:300]
    return rows if isinstance(rows, list) else rows.get("pods", rows)


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%H:%M:%S")
