#!/usr/bin/env python3
"""The images of Kubernetes' e2e suite that its cases on one node use, made of busybox, nginx, bash and the suite's own agnhost, and a registry with them.

usage: images.py BUSYBOX AGNHOST
"""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../live-kubelet"))
import registry  # noqa: E402

USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n"
GROUPS = "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
PRINT_USER = '#include <stdio.h>\n#include <unistd.h>\nint main(){printf("Effective uid: %d\\n", geteuid());return 0;}\n'
NGINX = """user root; worker_processes 1; pid /run/nginx.pid; error_log stderr; daemon off; events {}
http { access_log /dev/stdout; client_body_temp_path /tmp/body; proxy_temp_path /tmp/proxy; fastcgi_temp_path /tmp/fastcgi;
 uwsgi_temp_path /tmp/uwsgi; scgi_temp_path /tmp/scgi; server { listen 80; location / { root /html; } } }
"""

registry.FAULTS["registry.k8s.io"] = 5012


def read(path):
    with open(path, "rb") as file:
        return file.read()


def with_libraries(program):
    """A program and the libraries that it is linked with, as files of a layer."""
    libraries = re.findall(r"(/\S+\.so\S*)", subprocess.run(["ldd", program], capture_output=True, text=True).stdout)
    return {path.lstrip("/"): (read(path), 0o755) for path in [program, *libraries]}


def compiled(source):
    with tempfile.TemporaryDirectory() as directory:
        with open(directory + "/source.c", "w") as file:
            file.write(source)
        subprocess.run(["cc", "-static", "-o", directory + "/program", directory + "/source.c"], check=True)
        return read(directory + "/program")


def build(busybox, agnhost):
    applets = subprocess.check_output([busybox, "--list"], text=True).split()
    links = [("bin/" + name, "busybox") for name in applets if name != "busybox"]
    files = {"bin/busybox": (read(busybox), 0o755), "etc/passwd": (USERS.encode(), 0o644), "etc/group": (GROUPS.encode(), 0o644)}
    base = registry.layer(files, links)
    registry.image(["pause:3.10", "pause:3.10.2"], [registry.layer({"pause": (compiled(registry.PAUSE), 0o755)})], Entrypoint=["/pause"])
    suite = "e2e-test-images/"
    program = registry.layer({"agnhost": (read(agnhost), 0o755), **with_libraries("/usr/bin/curl"), **with_libraries("/bin/bash")}, [("agnhost-2", "agnhost")])
    registry.image([suite + "agnhost:2.55", suite + "agnhost:2.63.0"], [base, program], Entrypoint=["/agnhost"], Cmd=["pause"],
                   ExposedPorts={"80/tcp": {}, "8080/tcp": {}, "8081/tcp": {}, "9376/tcp": {}, "5000/tcp": {}})
    registry.image([suite + "busybox:1.37.0-1", suite + "glibc-dns-testing:2.0.0"], [base], Cmd=["sh"])
    registry.image([suite + "ipc-utils:1.4"], [base, registry.layer(with_libraries("/usr/bin/ipcs"))], Cmd=["sh"])
    registry.image([suite + "nonroot:1.5"], [base], User="1234", Cmd=["id", "-u"])
    registry.image([suite + "nonewprivs:1.4"], [base, registry.layer({"nnp": (compiled(PRINT_USER), 0o4755)})], Cmd=["/nnp"])
    nginx = registry.layer({**with_libraries("/usr/sbin/nginx"), "etc/nginx/nginx.conf": (NGINX.encode(), 0o644),
                            "html/index.html": (b"<title>Welcome to nginx!</title>\n", 0o644), "var/log/nginx/none": (b"", 0o644)})
    for tag in ("1.15-4", "1.27-0"):
        registry.image([suite + "nginx:" + tag], [base, nginx], Cmd=["/usr/sbin/nginx", "-c", "/etc/nginx/nginx.conf"])


if __name__ == "__main__":
    build(sys.argv[1], sys.argv[2])
    registry.main()
