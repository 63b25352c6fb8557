#!/usr/bin/env python3
"""Times every query of the fleet dashboard, and the recording rules, over the series of 1,000 nodes in a real Prometheus.

The series of a node are those of one page of metrics, for example of a busy node: `kubectl get --raw .../proxy/metrics` or
`criscope dump`. Only the metrics that the dashboard and the rules use are copied, under 1,000 names of instances. Their last three hours are written through
the remote-write receiver, one sample a minute; what the rules record is learnt first from three nodes, and copied likewise.

usage: fleet_queries.py PAGE [NODES]
It needs prometheus (in PATH), about 6 GB of memory and ten minutes. Run it by hand; it does not fail for a slow query.
"""
import json, os, re, socket, struct, subprocess, sys, tempfile, threading, time, urllib.parse, urllib.request

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULES = os.path.join(REPO, "deploy/prometheus/criscope.rules.yaml")
DASHBOARD = os.path.join(REPO, "dashboards/fleet.json")
INTERVAL, HISTORY, SLICE = 60, 3 * 3600, 45 * 60
# Series of one remote-write request.
BATCH = 2000


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(tag, data):
    return bytes([tag << 3 | 2]) + varint(len(data)) + data


def label(name, value):
    return field(1, field(1, name.encode()) + field(2, value.encode()))


def snappy(data):
    """Snappy without compression: literals only."""
    out = [varint(len(data))]
    for at in range(0, len(data), 65536):
        piece = data[at:at + 65536]
        out += [bytes([61 << 2]), struct.pack("<H", len(piece) - 1), piece]
    return b"".join(out)


def exprs(node):
    """The queries of a dashboard, each with whether it is for one moment."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node["expr"], bool(node.get("instant"))
        for value in node.values():
            yield from exprs(value)
    elif isinstance(node, list):
        for value in node:
            yield from exprs(value)


def used_metrics():
    text = open(RULES).read() + open(DASHBOARD).read()
    return set(re.findall(r"criscope[_:][a-zA-Z0-9_:]+", text)) | {"up"}


def read_page(path):
    """(name, labels, value, is_counter) of each series that is used."""
    used, series, total = used_metrics(), [], 0
    for line in open(path):
        found = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
        if line.startswith("#") or not found:
            continue
        total += 1
        name, labels, value = found.groups()
        if name in used:
            labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            is_counter = name.endswith(("_total", "_bucket", "_sum", "_count"))
            series.append((name, [(k, json.loads(f'"{v}"')) for k, v in labels], float(value), is_counter))
    return series + [("up", [], 1.0, False)], total, os.path.getsize(path)


class Prometheus:
    def __init__(self, directory):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.url = "http://127.0.0.1:%d" % probe.getsockname()[1]
        os.makedirs(directory)
        self.config = os.path.join(directory, "prometheus.yml")
        self.configure([])
        self.process = subprocess.Popen(
            ["prometheus", "--config.file=" + self.config, "--storage.tsdb.path=" + directory + "/data", "--web.enable-remote-write-receiver", "--web.enable-lifecycle",
             "--query.timeout=2m", "--web.listen-address=" + self.url[7:]], stdout=subprocess.DEVNULL, stderr=open(directory + "/log", "w"))
        for _ in range(100):
            try:
                return urllib.request.urlopen(self.url + "/-/ready").close()
            except OSError:
                time.sleep(0.2)
        raise SystemExit("prometheus does not start")

    def configure(self, rules):
        with open(self.config, "w") as file:
            json.dump({"global": {"evaluation_interval": "30s"}, "rule_files": rules}, file)

    def start_rules(self):
        """Begins with the rules. After their first samples the past cannot be written any more."""
        self.configure([RULES])
        urllib.request.urlopen(urllib.request.Request(self.url + "/-/reload", b"")).close()

    def get(self, path, **query):
        with urllib.request.urlopen(self.url + path + "?" + urllib.parse.urlencode(query), timeout=300) as answer:
            return json.load(answer)["data"]

    def write(self, series, times):
        """Series as (encoded labels, value, is_counter)."""
        blocks = {}
        for at in range(0, len(series), BATCH):
            request = []
            for labels, value, is_counter in series[at:at + BATCH]:
                block = blocks.get((value, is_counter))
                if block is None:
                    samples = [(value + (t % 1000000 if is_counter else 0), t) for t in times]
                    block = blocks[value, is_counter] = b"".join(field(2, struct.pack("<Bd", 9, v) + b"\x10" + varint(t * 1000)) for v, t in samples)
                request.append(field(1, labels + block))
            headers = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "X-Prometheus-Remote-Write-Version": "0.1.0"}
            urllib.request.urlopen(urllib.request.Request(self.url + "/api/v1/write", snappy(b"".join(request)), headers)).close()

    def fill(self, series, end):
        for begin in range(end - HISTORY, end, SLICE):
            self.write(series, range(begin, min(begin + SLICE, end), INTERVAL))

    def keep_on(self, series):
        def run():
            while self.process.poll() is None:
                time.sleep(INTERVAL - time.time() % INTERVAL)
                try:
                    self.write(series, [int(time.time())])
                except OSError:
                    return
        threading.Thread(target=run, daemon=True).start()

    def end(self):
        self.process.terminate()
        self.process.wait()


def encode(name, labels, node):
    pairs = sorted([("__name__", name), ("instance", f"node-{node}"), ("job", "criscope")] + [(k, v) for k, v in labels if k not in ("instance", "job")])
    return b"".join(label(k, v) for k, v in pairs)


def recorded(prometheus):
    """What the rules have recorded: of an instance as (name, labels, value, is_counter), and of the cluster encoded."""
    own, shared = [], []
    for found in prometheus.get("/api/v1/query", query='{__name__=~"criscope:.*"}')["result"]:
        labels, value = dict(found["metric"]), float(found["value"][1])
        if value != value:
            value = 0.0
        name, instance = labels.pop("__name__"), labels.pop("instance", None)
        if instance is None:
            shared.append((b"".join(label(k, v) for k, v in sorted([("__name__", name), *labels.items()])), value, False))
        elif instance == "node-0":
            own.append((name, list(labels.items()), value, False))
    return own, shared


def main():
    page, nodes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    series, total, size = read_page(page)
    print(f"a node: {total} series, {size} bytes a scrape; {len(series)} series are used by the dashboard and the rules")
    end = int(time.time()) // INTERVAL * INTERVAL
    with tempfile.TemporaryDirectory() as directory:
        small = Prometheus(directory + "/small")
        few = [(encode(name, labels, node), value, counts) for node in range(3) for name, labels, value, counts in series]
        small.fill(few, end)
        small.start_rules()
        small.keep_on(few)
        time.sleep(100)
        own, shared = recorded(small)
        small.end()
        print(f"rules record {len(own)} series of each node and {len(shared)} of the cluster")
        large, begin = Prometheus(directory + "/large"), time.time()
        many = [(encode(name, labels, node), value, counts) for node in range(nodes) for name, labels, value, counts in series]
        old = [(encode(name, labels, node), value, counts) for node in range(nodes) for name, labels, value, counts in own
               if node < 10 or ":bottom10" not in name] + shared
        end = int(time.time()) // INTERVAL * INTERVAL
        for at in range(end - HISTORY, end, SLICE):
            times = range(at, min(at + SLICE, end), INTERVAL)
            large.write(many, times)
            large.write(old, [t for t in times if t < end - 600])
        large.start_rules()
        large.keep_on(many)
        print(f"{len(many) + len(old)} series of {nodes} nodes written in {time.time() - begin:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True)
        time.sleep(150)
        try:
            report(large)
        finally:
            large.end()


def report(prometheus):
    status = open(f"/proc/{prometheus.process.pid}/status").read()
    print("memory of Prometheus: %d MiB" % (int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024))
    groups = prometheus.get("/api/v1/rules")["groups"]
    for group in sorted(groups, key=lambda group: -group["evaluationTime"])[:8]:
        print(f"rules {group['name']}: {group['evaluationTime']:.3f} s every {group['interval']:.0f} s")
    now, results = int(time.time()), []
    for expr, is_instant in exprs(json.load(open(DASHBOARD))):
        query = expr.replace("$cluster", ".*").replace("$__rate_interval", "4m").replace("$__range", "3h")
        took = []
        for _ in range(2):
            begin = time.time()
            try:
                if is_instant:
                    result = prometheus.get("/api/v1/query", query=query, time=now)["result"]
                else:
                    result = prometheus.get("/api/v1/query_range", query=query, start=now - HISTORY, end=now, step=15)["result"]
            except OSError:
                # The time limit of a query.
                result = []
            took.append(time.time() - begin)
        results.append((took[1], took[0], len(result), "instant" if is_instant else "range", expr))
    print(f"{len(results)} queries, {sum(r[0] > 1 for r in results)} over one second; load {os.getloadavg()[0]:.1f}")
    for second, first, count, kind, expr in sorted(results, reverse=True):
        print(f"{second:8.3f} s (first {first:.3f})  {kind:7} {count:5} series  {expr}")


if __name__ == "__main__":
    main()
