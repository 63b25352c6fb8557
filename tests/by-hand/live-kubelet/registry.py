"""A registry with a few images made of busybox, and the ways in which registries fail: each way has a port of its own.

usage: registry.py BUSYBOX
"""
import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# The host name in an image reference chooses the fault. `node.py` maps each name to its port.
FAULTS = {
    "good.live": 5000, "slow.live": 5001, "silent.live": 5002, "broken.live": 5003, "busy.live": 5004, "cut.live": 5005,
    "lost.live": 5006, "forged.live": 5007, "login.live": 5008, "pause.live": 5009, "html.live": 5010, "later.live": 5011,
}
PAUSE = """#include <signal.h>
#include <unistd.h>
static void end(int number) { _exit(0); }
int main(void) { signal(SIGINT, end); signal(SIGTERM, end); for (;;) pause(); }
"""
PASSWD = "root:x:0:0:root:/root:/bin/sh\nserver:x:900:900:server:/:/bin/sh\n"

blobs = {}
manifests = {}


def layer(files, links=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, (data, mode) in files.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
        for path, target in links:
            info = tarfile.TarInfo(path)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        for path in ("tmp", "proc", "sys", "dev"):
            info = tarfile.TarInfo(path)
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if path == "tmp" else 0o755
            tar.addfile(info)
    return out.getvalue()


def add(data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    blobs[digest] = data
    return digest


def image(names, layers, architecture="amd64", **config):
    """An image; for another architecture than amd64 it is in an index, as runtimes look at the platform there."""
    compressed = [gzip.compress(each, 1, mtime=0) for each in layers]
    body = json.dumps({
        "architecture": architecture, "os": "linux", "config": {"Env": ["PATH=/bin:/usr/bin:/opt"], **config},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(each).hexdigest() for each in layers]},
    }).encode()
    oci = "application/vnd.oci.image."
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": oci + "manifest.v1+json",
        "config": {"mediaType": oci + "config.v1+json", "digest": add(body), "size": len(body)},
        "layers": [{"mediaType": oci + "layer.v1.tar+gzip", "digest": add(each), "size": len(each)} for each in compressed],
    }).encode()
    for name in names:
        repository, tag = name.split(":")
        manifests[repository, tag] = manifests[repository, add(manifest)] = manifest
        if architecture != "amd64":
            index = json.dumps({
                "schemaVersion": 2, "mediaType": oci + "index.v1+json", "manifests": [{
                    "mediaType": oci + "manifest.v1+json", "digest": add(manifest), "size": len(manifest),
                    "platform": {"architecture": architecture, "os": "linux"}}]}).encode()
            manifests[repository, tag] = manifests[repository, add(index)] = index


def build(busybox):
    with open(busybox, "rb") as file:
        program = file.read()
    applets = subprocess.check_output([busybox, "--list"], text=True).split()
    base = layer({"bin/busybox": (program, 0o755), "etc/passwd": (PASSWD.encode(), 0o644)},
                 [("bin/" + name, "busybox") for name in applets if name != "busybox"])
    with tempfile.TemporaryDirectory() as directory:
        source = os.path.join(directory, "pause.c")
        with open(source, "w") as file:
            file.write(PAUSE)
        subprocess.run(["cc", "-static", "-o", os.path.join(directory, "pause"), source], check=True)
        with open(os.path.join(directory, "pause"), "rb") as file:
            pause = file.read()
    image(["pause:3.10"], [layer({"pause": (pause, 0o755)})], Entrypoint=["/pause"])
    shell = ["/bin/sh"]
    image(["tools:1", "tools:never"], [base], Cmd=shell)
    image(["tools:2"], [base, layer({"version": (b"2\n", 0o644)})], Cmd=shell)
    image(["silent:1"], [base])
    image(["user:1"], [base], Cmd=shell, User="server")
    image(["script:1"], [base, layer({"opt/report": (b"#!/usr/bin/python9\n", 0o755), "opt/other": (b"\x7fELF" + b"\2" * 60, 0o755)})])
    image(["arm:1"], [base], "arm64", Cmd=shell)
    for number in range(1, 10):
        image([f"big{number}:1"], [base, layer({f"data{number}": (os.urandom(12 << 20), 0o644)})], Cmd=shell)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", kind="application/json", **headers):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.write(body)

    def write(self, body):
        fault = self.server.fault
        if fault == "cut.live" and len(body) > 100_000:
            self.wfile.write(body[:100_000])
            self.close_connection = True
        elif fault == "forged.live" and len(body) > 100_000:
            self.wfile.write(body[:-1] + bytes([body[-1] ^ 1]))
        elif fault in ("slow.live", "pause.live") and len(body) > 100_000:
            for start in range(0, len(body), 64 << 10):
                self.wfile.write(body[start:start + (64 << 10)])
                # 12 MiB take half a minute, or the connection stays silent from the second MiB on
                time.sleep(0.15 if fault == "slow.live" else 600 if start >= 1 << 20 else 0)
        else:
            self.wfile.write(body)

    def refuse(self, status, code, message, **headers):
        self.answer(status, json.dumps({"errors": [{"code": code, "message": message}]}).encode(), **headers)

    def do_GET(self):
        fault = self.server.fault
        path = self.path.split("?")[0]
        if fault == "silent.live":
            time.sleep(600)
        if fault == "broken.live" or fault == "later.live" and os.path.exists("/run/registry.broken"):
            return self.refuse(503, "UNAVAILABLE", "the storage of the registry is not available")
        if fault == "busy.live":
            return self.refuse(429, "TOOMANYREQUESTS", "you have reached your pull rate limit", Retry_After="2")
        if fault == "login.live":
            return self.refuse(401, "UNAUTHORIZED", "authentication required", WWW_Authenticate='Basic realm="live"')
        if fault == "html.live":
            return self.answer(200, b"<html><body>Please sign in to the network</body></html>", "text/html")
        if path == "/v2/":
            return self.answer(200, b"{}")
        parts = path.split("/")
        repository, kind, reference = "/".join(parts[2:-2]), parts[-2], parts[-1]
        if kind == "manifests" and (repository, reference) in manifests:
            body = manifests[repository, reference]
            return self.answer(200, body, json.loads(body)["mediaType"],
                               Docker_Content_Digest="sha256:" + hashlib.sha256(body).hexdigest())
        if kind == "blobs" and reference in blobs:
            if fault == "lost.live" and len(blobs[reference]) > 100_000:
                return self.refuse(404, "BLOB_UNKNOWN", "blob unknown to registry")
            return self.answer(200, blobs[reference], "application/octet-stream", Docker_Content_Digest=reference)
        return self.refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")

    do_HEAD = do_GET


def main():
    build(sys.argv[1])
    for fault, port in FAULTS.items():
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        server.fault = fault
        threading.Thread(target=server.serve_forever).start()


if __name__ == "__main__":
    main()
