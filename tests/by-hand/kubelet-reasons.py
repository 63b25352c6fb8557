#!/usr/bin/env python3
"""Compares the reasons and events of the kubelet with what criscope has for each, so that a new one is noticed.

usage: kubelet-reasons.py DIR [--update]
  DIR       the sources of Kubernetes (`pkg/kubelet` below it)
  --update  adds new reasons to kubelet-reasons.txt with `?`, and drops those that are gone

A line of kubelet-reasons.txt is REASON: what criscope has for it: a kind of docs/SENTENCES.md, a list there, or why none. The script prints
reasons without a line, lines without a reason, and sources of docs/SENTENCES.md's closed lists that DIR does not have. Exit code 1 if there
are any. Run it by hand for a new version of Kubernetes.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIST = os.path.join(HERE, "kubelet-reasons.txt")
SENTENCES = os.path.join(HERE, "../../docs/SENTENCES.md")
# Files with reasons, and the pattern of a constant or an error that is one.
SOURCES = {
    "events/event.go": r'^\s+\w+\s*=\s*"([A-Z]\w+)"',
    "container/sync_result.go": r'errors\.New\("(\w+)"\)',
    "images/types.go": r'errors\.New\("(\w+)"\)',
    "kuberuntime/kuberuntime_container.go": r'errors\.New\("(\w+)"\)',
    "kuberuntime/kuberuntime_manager.go": r'^\s+reason\w+\s+containerKillReason = "(\w+)"',
    "lifecycle/predicate.go": r'^\s+\w+\s*=\s*"([A-Z][A-Za-z]+)"',
    "lifecycle/handlers.go": r'(?:Reason: +|EventTypeWarning, +|Reason\w* += )"(\w+)"',
    "eviction/helpers.go": r'^\s+Reason = "(\w+)"',
    "eviction/eviction_manager.go": r'Signal\w*\s+string = "([\w.]+)"|signal\w+ string = "([\w.]+)"',
    "active_deadline.go": r'^\s+reason\s+= "(\w+)"',
    "nodeshutdown/nodeshutdown_manager.go": r'Reason\s*=\s*"(\w+)"',
    "volumemanager/volume_manager.go": r'Reason\s*=\s*"(\w+)"',
    "status/generate.go": r'^\s+\w+\s*=\s*"([A-Z]\w+)"',
}


def reasons(kubelet):
    found = set()
    for path, pattern in SOURCES.items():
        file = os.path.join(kubelet, path)
        if not os.path.exists(file):
            print(f"no file {path}: where did its reasons go?")
            continue
        with open(file, encoding="utf-8") as source:
            for match in re.finditer(pattern, source.read(), re.MULTILINE):
                found.update(group for group in match.groups() if group)
    return found


def known():
    lines = {}
    with open(LIST, encoding="utf-8") as file:
        for line in file:
            if line.strip() and not line.startswith("#"):
                reason, has = line.rstrip("\n").split(": ", 1)
                lines[reason] = has
    return lines


def missing_sources(kubelet):
    """Sources of closed lists: `FILE.go FUNCTION, FUNCTION; FILE.go FUNCTION`."""
    with open(SENTENCES, encoding="utf-8") as file:
        rows = re.findall(r"^\| .* \| `([^`]*\.go [^`]*)` \|", file.read(), re.MULTILINE)
    for row in sorted(set(rows)):
        for source in row.split("; "):
            path, names = source.split(" ", 1)
            file = os.path.join(kubelet, path)
            text = open(file, encoding="utf-8").read() if os.path.exists(file) else ""
            for name in names.split(", "):
                if not re.search(rf"\b{name}\b", text):
                    yield f"{path} {name}"


def main():
    kubelet = os.path.join(sys.argv[1], "pkg/kubelet")
    now, lines = reasons(kubelet), known()
    new, gone, sources = sorted(now - set(lines)), sorted(set(lines) - now), list(missing_sources(kubelet))
    for title, names in (("new", new), ("gone", gone), ("sources that are gone", sources)):
        for name in names:
            print(f"{title}: {name}")
    if "--update" in sys.argv:
        with open(LIST, encoding="utf-8") as file:
            head = [line for line in file if line.startswith("#")]
        lines = {reason: has for reason, has in lines.items() if reason in now}
        lines.update((reason, "?") for reason in new)
        with open(LIST, "w", encoding="utf-8") as file:
            file.writelines(head)
            file.writelines(f"{reason}: {lines[reason]}\n" for reason in sorted(lines))
    sys.exit(1 if new or gone or sources or "?" in lines.values() else 0)


main()
