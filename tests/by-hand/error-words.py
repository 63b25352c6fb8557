#!/usr/bin/env python3
"""Prints the words of error texts that may be shown and that `crates/cri/src/words.rs` lacks, from the sources of the programs that make them.

usage: error-words.py DIR_OR_PROGRAM...
  a directory  Go sources: the literals of errors, of their wrappers and of gRPC statuses, without tests
  a file       a program such as the dynamic loader: its texts of several words

Words of letters only, in lower case. Run it by hand for a new version of Kubernetes, containerd, runc or the CNI plugins, and read what it
prints before it is added: the name of a person or of a customer's product is no word of the field.
"""
import os
import re
import sys

KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/cri/src/words.rs")
CALLS = r'(?:errors\.(?:New|Errorf|Wrapf?|WithMessagef?)|fmt\.Errorf|status\.Errorf?|grpcstatus\.Errorf?|Errorf?|NewSyncResult)\('
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'


def go_texts(folder):
    for parent, _, files in os.walk(folder):
        for name in files:
            if name.endswith(".go") and not name.endswith("_test.go") and "testing" not in parent:
                with open(os.path.join(parent, name), encoding="utf-8", errors="replace") as file:
                    text = file.read()
                for call in re.finditer(CALLS + r"[^\n]*", text):
                    yield from re.findall(LITERAL, call.group())


def program_texts(path):
    with open(path, "rb") as file:
        for run in re.findall(rb"[\x20-\x7e]{8,}", file.read()):
            if run.count(b" ") >= 2:
                yield run.decode()


def main():
    with open(KNOWN, encoding="utf-8") as file:
        known = set(re.findall(r"[a-z0-9]+", file.read()))
    found = set()
    for source in sys.argv[1:]:
        for text in go_texts(source) if os.path.isdir(source) else program_texts(source):
            text = re.sub(r"%[-+#0-9.*]*[a-zA-Z]|\\[a-z]", " ", text)
            for word in re.findall(r"(?<![A-Za-z0-9_.])[A-Za-z]{2,20}(?![A-Za-z0-9_])", text):
                # Of a name in CamelCase, its parts.
                for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", word):
                    if len(part) > 1:
                        found.add(part.lower())
    print(" ".join(sorted(found - known)))


main()
