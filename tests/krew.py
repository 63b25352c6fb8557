#!/usr/bin/python3
"""Checks a manifest for krew as krew and its index do: tests/krew.py MANIFEST DIR, with the archives in DIR."""

import hashlib
import pathlib
import re
import sys
import tarfile

import yaml


def problems(manifest, directory):
    """Yields what krew would refuse."""
    plugin = yaml.safe_load(manifest.read_text())
    spec = plugin["spec"]
    expected = {"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin"}
    for key, value in expected.items():
        if plugin[key] != value:
            yield f"{key} is {plugin[key]}"
    if plugin["metadata"]["name"] != manifest.stem:
        yield f"the file of the plugin {plugin['metadata']['name']} is {manifest.name}"
    if not re.fullmatch(r"v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", spec["version"]):
        yield f"{spec['version']} is no version"
    if not spec["shortDescription"] or "\n" in spec["shortDescription"] or len(spec["shortDescription"]) > 50:
        yield "the short description is too long, or none"
    seen = set()
    for platform in spec["platforms"]:
        labels = platform["selector"]["matchLabels"]
        if set(labels) != {"os", "arch"} or tuple(labels.values()) in seen:
            yield f"the selector {labels} is wrong, or there twice"
        seen.add(tuple(labels.values()))
        archive = directory / platform["uri"].rsplit("/", 1)[1]
        if spec["version"].removeprefix("v") not in archive.name or not platform["uri"].startswith("https://"):
            yield f"{platform['uri']} is not of this version"
        if hashlib.sha256(archive.read_bytes()).hexdigest() != platform["sha256"]:
            yield f"{archive.name} has another digest"
        with tarfile.open(archive) as files:
            names = files.getnames()
            if platform["bin"] not in names or "LICENSE" not in names:
                yield f"{archive.name} lacks {platform['bin']} or LICENSE: {names}"
            elif not files.getmember(platform["bin"]).mode & 0o111:
                yield f"{platform['bin']} in {archive.name} is no program"


def main():
    """Prints the problems."""
    found = list(problems(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])))
    for problem in found:
        print(problem, file=sys.stderr)
    return bool(found)


sys.exit(main())
