#!/usr/bin/env python3
"""Compares what criscope said of each pod with what the API server said, by rules, and prints every pod and a table.

usage: compare.py RECORD... [--all]
  RECORD  a file of record.py
  --all   prints right lines too
Each pod is judged twice: by the last line before it was deleted, and by the final one.
right: nothing in the line contradicts the API, and it tells what kept the pod from being up. partly: not the whole of it. wrong: the line
says what the API contradicts. silent: nothing of what kept the pod from being up. The rules know less than a reader: read what they print.
"""
import collections
import json
import re
import sys
import time

IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
                 "SignatureValidationFailed")
# The samples of both sides come apart by so much.
SLACK_SECONDS = 6
ORDER = ("wrong", "silent", "partly", "right")


def parse_time(text):
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone if text else None


class Truth:
    """What the API says of a pod until a time."""

    def __init__(self, pod, until):
        self.spec = pod["spec"]
        self.statuses = [each for each in pod["statuses"] if each["at"] <= until]
        self.last = self.statuses[-1]
        self.deleted_at = next((each["at"] for each in pod["statuses"] if each["deleted"]), None)
        self.was_deleted = self.deleted_at is not None and self.deleted_at <= until
        before = [each for each in self.statuses if not each["deleted"]]
        # How the pod was when someone deleted it, or is now.
        self.settled = before[-1] if before else self.last
        self.events = pod["events"]
        self.is_gone = until > pod.get("gone", float("inf"))
        self.main = [each["name"] for each in self.spec["containers"]]
        self.ends = {}
        for status in self.statuses:
            for name, container in status["containers"].items():
                for end in (container.get("state") or {}, container.get("lastState") or {}):
                    if end.get("terminated"):
                        self.ends[end["terminated"].get("containerID"), name] = end["terminated"]

    def codes(self):
        return {end["exitCode"] for end in self.ends.values()}

    def ends_unknown(self):
        """A container that ran last is gone without a status of its end."""
        return self.was_deleted and any("running" in (each.get("state") or {}) for each in self.last["containers"].values())

    def killed_by_probe(self):
        return any(each["reason"] == "Killing" and re.search("failed (liveness|startup) probe", each["message"]) for each in self.events)

    def unhealthy(self):
        return any(each["reason"] in ("Unhealthy", "ProbeError") for each in self.events)

    def has_event(self, *reasons):
        return any(each["reason"] in reasons for each in self.events)

    def has_hook(self, kind):
        containers = self.spec["containers"] + self.spec.get("initContainers", [])
        return any(kind in (each.get("lifecycle") or {}) for each in containers)

    def restarts(self):
        return max([each.get("restartCount") or 0 for each in self.last["containers"].values()], default=0)

    def running(self):
        """The main containers that ran when the pod was deleted, or run now."""
        return [name for name in self.main if "running" in (self.settled["containers"].get(name, {}).get("state") or {})]

    def waiting(self):
        """Reasons for which containers waited when the pod was deleted, or wait now."""
        states = [(each.get("state") or {}).get("waiting") for each in self.settled["containers"].values()]
        return {each.get("reason") for each in states if each}

    def down(self):
        """(container, exit code) of those that had ended when the pod was deleted, and of those that wait to be started again."""
        found = set()
        for name, container in self.settled["containers"].items():
            state, last = container.get("state") or {}, container.get("lastState") or {}
            if "terminated" in state:
                found.add((name, state["terminated"]["exitCode"], state["terminated"].get("reason")))
            elif "waiting" in state and "terminated" in last:
                found.add((name, last["terminated"]["exitCode"], last["terminated"].get("reason")))
        return found


def said_codes(line):
    """Exit codes of containers in the line; those of probes and hooks are none."""
    line = re.sub(r"\((exec|HTTP|TCP|gRPC)[^)]*\)|an exec probe[^;]*|(preStop|postStart) hook (failed )?\([^)]*\)|hook of [\w.-]+ took[^;]*", "", line)
    return {int(each) for each in re.findall(r"exit code (\d+)", line)}


def contradictions(line, state, truth):
    codes = said_codes(line)
    unknown = codes - truth.codes()
    if unknown and not truth.ends_unknown():
        yield f"exit code {sorted(unknown)}, the API has {sorted(truth.codes())}"
    if "OOMKilled" in line and not any(end.get("reason") == "OOMKilled" for end in truth.ends.values()) and not truth.ends_unknown():
        yield "killed for lack of memory, not in the API"
    is_said_to_kill = re.search("(after a failing|killed by its) (liveness|startup)", line) and "restartPolicy Never" not in line
    if is_said_to_kill and not truth.killed_by_probe() and "(HTTP, TCP or gRPC)" not in line:
        yield "killed after a probe, not in the API"
    for kind in ("preStop", "postStart"):
        if kind in line and not truth.has_hook(kind) and not re.search("unknown which|no call shows which|a hook \\(|hooks by", line):
            yield f"{kind}, which the pod does not have"
    if re.search("cannot pull|could not pull|cannot run|cannot be looked up", line) and not truth.has_event("Failed", "BackOff") \
            and not truth.waiting() & set(IMAGE_REASONS):
        yield "an image, not in the API"
    if re.search("stopped by the kubelet", line) and not truth.was_deleted and truth.last["phase"] not in ("Failed", "Succeeded") \
            and not truth.has_event("Killing", "SandboxChanged"):
        yield "stopped by the kubelet, not in the API"
    if "sandbox died" in line and not truth.has_event("SandboxChanged"):
        yield "the sandbox died, not in the API"
    running = truth.running()
    if re.fullmatch("([^;]* up after|the start took) [^;]*", line) and not truth.was_deleted and len(running) < len(truth.main):
        yield f"up and no more, {len(running)} of {len(truth.main)} containers run"
    starts = re.search(r"(\d+) starts in", line)
    if starts and not truth.restarts() - 1 <= int(starts[1]) <= truth.restarts() + 1:
        yield f"{starts[1]} starts, the API has {truth.restarts() + 1}"
    kills = re.search(r"(?:OOMKilled|probe:|kubelet:) (twice|\d+ times) in", line)
    killed = {"twice": 2}.get(kills[1]) or int(kills[1].split()[0]) if kills else 0
    if killed > truth.restarts() + 1:
        yield f"{killed} kills, the API has {truth.restarts()} restarts"
    up = re.search(r"(?:^|; )(?!waiting|\d+ containers)[\w., -]+ up after", line)
    words = re.findall(r"[\w.-]+", up[0].replace("up after", "")) if up else []
    named = {word for word in words if word not in ("and", "then", "more") and not word.isdigit()}
    if named and not named & set(truth.last["containers"]):
        yield f"names {sorted(named)}, which the pod does not have"
    if truth.is_gone and "still exists" in line:
        yield "still exists, and the pod is gone"
    if not truth.was_deleted and state == "gone":
        yield "gone, and the pod exists"
    if not truth.was_deleted and (state, truth.last["phase"]) in (("completed", "Failed"), ("failed", "Succeeded"), ("completed", "Running")):
        yield f"{state}, and the phase is {truth.last['phase']}"
    if state == "ok" and truth.waiting() & {"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", *IMAGE_REASONS}:
        yield f"ok, and {sorted(truth.waiting())}"


def untold(line, truth):
    """What kept the pod from being up, as (what, whether the line tells it)."""
    codes = said_codes(line)
    for name, code, reason in truth.down():
        # A container that has done its work, before others or beside others that run, keeps nothing from being up.
        if code == 0 and (name not in truth.main or truth.running()):
            continue
        told = code in codes or code == 137 and "SIGKILL" in line or code == 143 and "SIGTERM" in line
        if reason == "OOMKilled":
            told = "OOM" in line
        elif reason in ("StartError", "ContainerCannotRun"):
            told = re.search("cannot start|could not start", line)
        elif truth.killed_by_probe() and "probe" in line:
            told = True
        yield f"{name} ended with {code} ({reason})", bool(told)
    for reason in truth.waiting():
        if reason in IMAGE_REASONS:
            yield reason, bool(re.search("image|pull|cannot run", line))
        elif reason == "CreateContainerConfigError":
            yield reason, bool(re.search("CreateContainerConfigError|unknown which|not found|no container was started", line))
        elif reason in ("CreateContainerError", "RunContainerError"):
            yield reason, bool(re.search("(cannot|could not) (create|start)", line))
    message = truth.settled.get("reason")
    if message in ("Evicted", "DeadlineExceeded", "NodeAffinity", "UnexpectedAdmissionError"):
        yield message, bool(re.search("evict|deadline|admission", line, re.IGNORECASE))
    if truth.killed_by_probe() and not truth.was_deleted and truth.restarts() > 0:
        yield "killed by a probe", "probe" in line
    running = truth.running()
    if running and truth.unhealthy() and not truth.was_deleted and \
            any(truth.settled["containers"][each].get("ready") is False for each in running):
        yield "a probe fails", "probe" in line


def judge(line, state, truth):
    wrong = list(contradictions(line, state, truth))
    if wrong:
        return "wrong", "; ".join(wrong)
    facts = list(untold(line, truth))
    missing = [what for what, told in facts if not told]
    if missing:
        return ("silent" if len(missing) == len(facts) else "partly"), "not told: " + "; ".join(missing)
    return "right", ""


def summary(status):
    containers = []
    for name, each in status["containers"].items():
        kind, state = next(iter((each.get("state") or {}).items()), ("none", {}))
        last = (each.get("lastState") or {}).get("terminated")
        containers.append(f"{name}: {kind} {state.get('reason', '')} {state.get('exitCode', '')}".rstrip()
                          + (f", before {last.get('reason')} {last['exitCode']}" if last else "") + f", {each.get('restartCount')} restarts")
    return f"{status['phase']} {status['reason'] or ''} [{'; '.join(containers)}]"


def truths(pod, at):
    """The truths that a line of this time may have seen."""
    times = {max(each["at"], at - SLACK_SECONDS) for each in pod["statuses"] if each["at"] <= at + SLACK_SECONDS}
    newest = sorted(time for time in times if time >= at - SLACK_SECONDS)
    return [Truth(pod, time) for time in newest] or [Truth(pod, float("inf"))]


def judgements(pod):
    """The last line before the deletion, and the final one, each with its judgement."""
    deleted_at = next((each["at"] for each in pod["statuses"] if each["deleted"]), float("inf"))
    lived = [each for each in pod["lines"] if each.get("since", each["at"]) < deleted_at]
    for look, lines in (("while it lived", lived), ("finally", pod["lines"] if "gone" in pod else [])):
        if lines:
            line = lines[-1]
            found = [(*judge(line["line"], line["state"], truth), truth) for truth in truths(pod, line["at"])]
            verdict, why, truth = max(found, key=lambda each: ORDER.index(each[0]))
            yield look, line["state"], line["line"], summary(truth.settled), verdict, why


def main():
    show_all = "--all" in sys.argv
    counts = collections.Counter()
    for path in [each for each in sys.argv[1:] if not each.startswith("--")]:
        with open(path) as file:
            pods = [json.loads(line) for line in file]
        for pod in pods:
            if not pod["statuses"]:
                continue
            found = list(judgements(pod))
            if not found and pod["spec"].get("nodeName"):
                counts["finally", "not listed"] += 1
            for look, state, line, api, verdict, why in found:
                counts[look, verdict] += 1
                if show_all or verdict != "right":
                    print(f"{verdict}: {pod['namespace']}/{pod['name']} {look}\n  {state}: {line}\n  API: {api}\n  {why}")
    print("\n| look | pods | " + " | ".join(ORDER) + " | not listed |\n|---|---|---|---|---|---|---|")
    for look in ("while it lived", "finally"):
        row = [counts[look, verdict] for verdict in ORDER]
        print(f"| {look} | {sum(row)} | " + " | ".join(map(str, row)) + f" | {counts[look, 'not listed']} |")


if __name__ == "__main__":
    main()
