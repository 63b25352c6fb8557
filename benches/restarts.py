#!/usr/bin/env python3
"""What a kubelet's calls take while criscope is upgraded, and while it is bypassed.

    benches/restarts.py --criscope target/release/criscope      about two minutes, as root

Starts a containerd of its own, and stops everything it started. In each round the same caller makes the same calls

  direct       to containerd,
  criscope     through criscope,
  upgrade      through criscope while a new process takes over (docs/adr/0091-a-restart-hands-over.md),
  bypass       through systemd-socket-proxyd on criscope's socket, as criscope-bypass.service starts it.

systemd is played: this script holds the socket, sends the signal of criscope-handover.service and reads the notifications. A call that
fails ends the run. The table goes to docs/PERFORMANCE.md by hand. Only ratios within a run can be compared.
"""

import argparse
import os
import pathlib
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

METHODS = ["ListPodSandbox", "ListContainers", "Status"]
# A kubelet with many pods makes some hundred calls a second at most.
PAUSE_SECONDS = 0.003
PROXY = "/usr/lib/systemd/systemd-socket-proxyd"
# Programs that are expected to start take this long at most.
START_SECONDS = 60

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


class Failed(Exception):
    """A call that did not get its answer."""


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def headers(path):
    """The header list of a unary call, as literals without indexing (RFC 7541, 6.2.2)."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-timeout", "120S"),
    ]
    block = b""
    for name, value in fields:
        for text in (name, value):
            block += (b"\0" if text is name else b"") + bytes([len(text)]) + text.encode()
    return block


class Connection:
    """One HTTP/2 connection with one call at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(START_SECONDS)
        self.socket.connect(str(path))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        self.stream = -1
        self.buffer = b""
        self.closing = False

    def close(self):
        self.socket.close()

    def read(self, length):
        while len(self.buffer) < length:
            data = self.socket.recv(65536)
            if not data:
                raise Failed("the connection was closed during a call")
            self.buffer += data
        taken, self.buffer = self.buffer[:length], self.buffer[length:]
        return taken

    def call(self, method):
        self.stream += 2
        path = f"/runtime.v1.RuntimeService/{method}"
        self.socket.sendall(
            frame(HEADERS, END_HEADERS, self.stream, headers(path))
            + frame(DATA, END_STREAM, self.stream, b"\0\0\0\0\0")
        )
        answered = False
        while True:
            head = self.read(9)
            length = int.from_bytes(head[:3], "big")
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            payload = self.read(length)
            if kind in (SETTINGS, PING) and not flags & ACK:
                answer = payload if kind == PING else b""
                self.socket.sendall(frame(kind, ACK, 0, answer))
            elif kind == GOAWAY:
                self.closing = True
                if int.from_bytes(payload[:4], "big") < self.stream:
                    raise Failed("the call was refused by GOAWAY")
            elif stream == self.stream and kind == RESET:
                raise Failed("the stream was reset")
            elif stream == self.stream and kind in (DATA, HEADERS):
                answered = answered or kind == DATA
                if flags & END_STREAM:
                    if not answered:
                        raise Failed("the answer is an error")
                    return

    def asks_to_leave(self):
        """Whether the server has said GOAWAY, or closed, between two calls."""
        self.socket.setblocking(False)
        try:
            data = self.socket.recv(65536)
            self.buffer += data
            self.closing = self.closing or not data
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(START_SECONDS)
        rest = self.buffer
        while len(rest) >= 9:
            length = int.from_bytes(rest[:3], "big")
            self.closing = self.closing or rest[3] == GOAWAY
            rest = rest[9 + length:]
        return self.closing


class Caller:
    """Makes a kubelet's calls one after the other, on one connection; on a new one if the server asks for it."""

    def __init__(self, path):
        self.path = path
        self.connection = Connection(path)
        self.number = 0

    def call(self):
        """The time that a call took, with the new connection if one was necessary. In seconds."""
        self.number += 1
        method = METHODS[self.number % len(METHODS)]
        begin = time.perf_counter()
        if self.connection.asks_to_leave():
            self.connection.close()
            self.connection = Connection(self.path)
        self.connection.call(method)
        took = time.perf_counter() - begin
        time.sleep(PAUSE_SECONDS)
        return took

    def calls(self, number):
        return [self.call() for _ in range(number)]

    def close(self):
        self.connection.close()


class Node:
    """systemd's part: the socket, the notifications and the processes."""

    def __init__(self, folder, criscope, upstream):
        self.folder, self.criscope, self.upstream = folder, criscope, upstream
        self.processes = []
        self.path = folder / "criscope.sock"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(128)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(START_SECONDS)
        self.config = folder / "criscope.toml"
        with socket.create_server(("127.0.0.1", 0)) as free:
            admin = free.getsockname()[1]
        self.config.write_text(
            f'[server]\nlisten = "unix://{self.path}"\n'
            f'[admin]\nlisten = "127.0.0.1:{admin}"\nsocket = "unix://{folder}/admin.sock"\n'
            f'[story]\nstate_dir = "{folder}/state"\n'
            f'[backends.containerd]\nkind = "upstream"\nendpoint = "unix://{upstream}"\n'
        )

    def spawn(self, arguments):
        """A process with the socket as descriptor 3, as systemd passes it (sd_listen_fds(3))."""
        script = 'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" 3<&0 0</dev/null'
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", script, "sh", *map(str, arguments)],
                stdin=self.listener.fileno(),
                stdout=log,
                stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify")},
            )
        self.processes.append(process)
        return process

    def state(self, wanted):
        """Waits for a notification with this variable, and returns its value."""
        while True:
            for line in self.notify.recv(4096).decode().splitlines():
                name, _, value = line.partition("=")
                if name == wanted:
                    return value

    def start_criscope(self):
        return self.spawn([self.criscope, "serve", "--config", self.config])

    def start_bypass(self):
        return self.spawn([PROXY, "--connections-max=1024", self.upstream])


def start_containerd(folder, state):
    """A containerd with its own directories."""
    config = folder / "containerd.toml"
    address = state / "containerd.sock"
    config.write_text(
        f'version = 2\nroot = "{folder}/root"\nstate = "{state}/state"\n'
        f'[grpc]\naddress = "{address}"\n'
        f'[plugins."io.containerd.internal.v1.opt"]\npath = "{folder}/opt"\n'
        f'[plugins."io.containerd.grpc.v1.cri".cni]\nconf_dir = "{folder}/cni"\n'
    )
    with open(folder / "containerd.log", "wb") as log:
        process = subprocess.Popen(["containerd", "--config", str(config)], stdout=log, stderr=log)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            caller = Caller(address)
            caller.calls(3)
            caller.close()
            return process, address
        except (OSError, Failed):
            time.sleep(0.2)
    sys.exit("containerd does not answer")


def stop(process):
    if process and process.poll() is None:
        process.terminate()
        process.wait(START_SECONDS)


def upgrade(node, old):
    """The calls from the begin of a restart until the old process is gone, and the new process."""
    caller = Caller(node.path)
    caller.calls(20)
    old.send_signal(signal.SIGWINCH)
    took = [caller.call()]
    # systemd ends the process that the old one names, and starts the next.
    os.kill(int(node.state("MAINPID")), signal.SIGTERM)
    new = node.start_criscope()
    begin = time.monotonic()
    while old.poll() is None:
        took.append(caller.call())
        if time.monotonic() > begin + START_SECONDS:
            sys.exit("the old process does not end")
    node.state("READY")
    caller.close()
    return took, new


def steady(path, calls):
    caller = Caller(path)
    caller.calls(20)
    took = caller.calls(calls)
    caller.close()
    return took


def run(node, rounds, calls):
    """The times by path; in each round each path once, so that a slow moment of the machine is in all of them."""
    times = {"direct": [], "criscope": [], "upgrade": [], "bypass": []}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        times["direct"] += steady(node.upstream, calls)
        process = node.start_criscope()
        node.state("READY")
        times["criscope"] += steady(node.path, calls)
        took, process = upgrade(node, process)
        times["upgrade"] += took
        stop(process)
        bypass = node.start_bypass()
        times["bypass"] += steady(node.path, calls)
        stop(bypass)
    return times


def quantile(values, share):
    return statistics.quantiles(values, n=1000)[round(share * 1000) - 1]


def table(times):
    rows = [
        "| | calls | p50, us | p99, us | longest, ms | p50, direct = 1 | p99, direct = 1 |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    direct = {share: quantile(times["direct"], share) for share in (0.5, 0.99)}
    for path, values in times.items():
        p50, p99 = (quantile(values, share) for share in (0.5, 0.99))
        ratios = f"{p50 / direct[0.5]:.2f} | {p99 / direct[0.99]:.2f}"
        longest = max(values) * 1e3
        rows.append(f"| {path} | {len(values)} | {p50 * 1e6:.0f} | {p99 * 1e6:.0f} | {longest:.1f} | {ratios} |")
    return "\n".join(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--criscope", type=pathlib.Path, default=pathlib.Path("target/release/criscope"))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=500, help="calls of a path in a round")
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="criscope-restarts-"))
    state = pathlib.Path(tempfile.mkdtemp(prefix="criscope-restarts-", dir="/run"))
    containerd = node = None
    try:
        containerd, address = start_containerd(folder, state)
        node = Node(folder, options.criscope.resolve(), address)
        print(table(run(node, options.rounds, options.calls)))
        print(f"\nload: {' '.join(map(str, os.getloadavg()))}")
    finally:
        for process in node.processes if node else []:
            stop(process)
        stop(containerd)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
