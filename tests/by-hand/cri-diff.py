#!/usr/bin/env python3
"""Differences of two api.proto of the CRI: services, methods, messages, enums, and their fields and values.

usage: cri-diff.py OLD NEW

proto/api.proto of this repository against pkg/apis/runtime/v1/api.proto of kubernetes/cri-api shows what a new version of Kubernetes
adds. Lines begin with + (only in NEW), - (only in OLD) or ! (in both, and not the same). The exit code is 1 if there are any.
"""

import re
import sys

STATEMENT = re.compile(r"[^;{}]*[;{}]")
BLOCK = re.compile(r"(message|enum|service|oneof) (\w+) ?\{$")
METHOD = re.compile(r"rpc\s+(\w+)\s*\(\s*(.*?)\s*\)\s*returns\s*\(\s*(.*?)\s*\)")
FIELD = re.compile(r"(.+?)\s*\b(\w+)\s*=\s*(-?\w+)\s*(\[.*\])?$")


def strip_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def parse(path):
    """Maps 'message Mount' to {'9': 'ImageSpec image'}, 'service X' to {method: signature}."""
    with open(path, encoding="utf-8") as file:
        text = strip_comments(file.read())
    found, stack = {}, []
    for statement in STATEMENT.findall(text):
        statement = " ".join(statement.split())
        block = BLOCK.match(statement)
        if block:
            # Fields of a oneof belong to its message.
            stack.append(stack[-1] if block[1] == "oneof" else f"{block[1]} {block[2]}")
            found.setdefault(stack[-1], {})
        elif statement.endswith("}"):
            if stack:
                stack.pop()
        elif stack:
            add(found[stack[-1]], stack, statement)
    return found


def add(entries, stack, statement):
    method = METHOD.search(statement)
    if method:
        name, request, answer = method.groups()
        entries[name] = f"({request}) returns ({answer})"
        if statement.endswith("{"):
            stack.append(stack[-1])
        return
    statement = statement.rstrip(";{ ").strip()
    if statement.startswith(("option", "reserved", "extensions")):
        return
    if stack[-1].startswith("enum "):
        name, number = (part.strip() for part in statement.split("=", 1))
        entries[number.split("[")[0].strip()] = name
        return
    field = FIELD.match(statement)
    if field:
        kind, name, number, _ = field.groups()
        # A type of the same message may be written with its name in front.
        kind = re.sub(r"\b\w+\.", "", " ".join(kind.split()))
        entries[number] = f"{kind.replace(', ', ',')} {name}"


def differences(old, new):
    for block in sorted(old.keys() | new.keys()):
        before, after = old.get(block), new.get(block)
        if after is None:
            yield f"- {block}"
            continue
        if before is None:
            yield f"+ {block}"
            before = {}
        for key in sorted(before.keys() | after.keys(), key=lambda key: (len(key), key)):
            was, now = before.get(key), after.get(key)
            if was is None:
                yield f"+ {block}: {now} = {key}" if key.lstrip("-").isdigit() else f"+ {block}: {key}{now}"
            elif now is None:
                yield f"- {block}: {was} = {key}" if key.lstrip("-").isdigit() else f"- {block}: {key}{was}"
            elif was != now:
                yield f"! {block}: {key}: {was} is {now} now"


def main():
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 64
    lines = list(differences(parse(sys.argv[1]), parse(sys.argv[2])))
    print("\n".join(lines) if lines else "no differences")
    return 1 if lines else 0


sys.exit(main())
