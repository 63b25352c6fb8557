#!/usr/bin/env python3
"""Writes down what the API server and criscope say of every pod, until SIGTERM. Runs inside the node.

usage: record.py RECORD
RECORD becomes a file of JSON lines, one per pod: what its statuses were, its events, and every line that criscope had for it.
"""
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../live-kubelet"))
import node  # noqa: E402

SAMPLED_EVERY_SECONDS = 4
KINDS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


class Record:
    def __init__(self):
        self.lock = threading.Lock()
        self.pods = {}

    def pod(self, uid):
        return self.pods.setdefault(uid, {"uid": uid, "statuses": [], "events": {}, "lines": []})

    def take_pod(self, kind, pod):
        meta, status = pod["metadata"], pod.get("status", {})
        containers = {each["name"]: {key: each.get(key) for key in ("state", "lastState", "restartCount", "ready", "started")}
                      for kind in KINDS for each in status.get(kind, [])}
        news = {"deleted": meta.get("deletionTimestamp"), "phase": status.get("phase"), "reason": status.get("reason"),
                "message": status.get("message"), "containers": containers}
        with self.lock:
            known = self.pod(meta["uid"])
            known |= {"namespace": meta["namespace"], "name": meta["name"], "spec": pod["spec"], "created": meta["creationTimestamp"]}
            if kind == "DELETED":
                known["gone"] = time.time()
            if not known["statuses"] or {**known["statuses"][-1], "at": 0} != {**news, "at": 0}:
                known["statuses"].append({"at": time.time(), **news})

    def take_event(self, _, event):
        subject = event.get("involvedObject", {})
        if subject.get("kind") == "Pod" and subject.get("uid"):
            text = {key: event.get(key) for key in ("reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "type")}
            with self.lock:
                self.pod(subject["uid"])["events"][event["metadata"]["uid"]] = {"of": subject.get("fieldPath", ""), **text}

    def take_lines(self, rows):
        for row in rows:
            line = {"at": time.time(), "state": row["state"], "line": row["reason"]}
            with self.lock:
                lines = self.pod(row["uid"])["lines"]
                # Durations grow while nothing else changes: of such lines the newest is kept.
                if lines and lines[-1]["state"] == line["state"] and words(lines[-1]["line"]) == words(line["line"]):
                    line["since"] = lines.pop().get("since", line["at"])
                lines.append(line)

    def write(self, path):
        with self.lock, open(path + ".new", "w") as file:
            for pod in self.pods.values():
                if "name" in pod:
                    file.write(json.dumps({**pod, "events": list(pod["events"].values())}) + "\n")
        os.rename(path + ".new", path)


def words(line):
    return re.sub(r"[0-9.]+ ?(µs|ms|s|m|h|MiB|%)?", "#", line)


def watch(path, take):
    """Follows a list of the API server."""
    version = "0"
    while True:
        request = urllib.request.Request(f"{node.SERVER}{path}?watch=1&resourceVersion={version}")
        request.add_header("Authorization", "Bearer admin")
        try:
            with urllib.request.urlopen(request, context=ssl._create_unverified_context()) as answer:
                for line in answer:
                    news = json.loads(line)
                    version = news["object"].get("metadata", {}).get("resourceVersion", "0") if news["type"] != "ERROR" else "0"
                    if news["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        take(news["type"], news["object"])
        except OSError:
            time.sleep(1)


def sample(record, path):
    criscope = [node.program("criscope"), "pods", "-o", "json"]
    while True:
        result = subprocess.run(criscope, capture_output=True, text=True)
        if result.returncode == 0:
            rows = json.loads(result.stdout)
            record.take_lines(rows if isinstance(rows, list) else rows["pods"])
            record.write(path)
        time.sleep(SAMPLED_EVERY_SECONDS)


def main():
    record = Record()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    threading.Thread(target=watch, args=("/api/v1/pods", record.take_pod), daemon=True).start()
    threading.Thread(target=watch, args=("/api/v1/events", record.take_event), daemon=True).start()
    sample(record, sys.argv[1])


if __name__ == "__main__":
    main()
