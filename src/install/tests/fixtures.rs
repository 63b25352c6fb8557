//! Nodes as distributions make them, after their documentation.

/// A node: its name, the kubelet's unit, its runtime's socket, and files by path.
pub(super) struct Fixture {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    pub(super) socket: &'static str,
    pub(super) files: &'static [(&'static str, &'static str)],
}

pub(super) const CONTAINERD: &str = "/run/containerd/containerd.sock";

const CONTAINERD_UNIT: (&str, &str) = (
    "/usr/lib/systemd/system/containerd.service",
    "[Unit]\nDescription=containerd\n\n[Service]\nExecStart=/usr/bin/containerd\n",
);
const KUBELET_UNIT: (&str, &str) = (
    "/usr/lib/systemd/system/kubelet.service",
    "[Unit]\nDescription=kubelet\n[Service]\nExecStart=/usr/bin/kubelet\nRestart=always\n",
);
const KUBEADM_DROP_IN: (&str, &str) = (
    "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf",
    "# of the package\n[Service]\n\
     Environment=\"KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf\"\n\
     Environment=\"KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml\"\n\
     EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env\n\
     EnvironmentFile=-/etc/default/kubelet\n\
     ExecStart=\n\
     ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n",
);

pub(super) const KUBEADM: Fixture = Fixture {
    name: "kubeadm before 1.34",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        CONTAINERD_UNIT,
        KUBELET_UNIT,
        KUBEADM_DROP_IN,
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.9\"\n",
        ),
        (
            "/var/lib/kubelet/config.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\ncontainerRuntimeEndpoint: \"\"\n",
        ),
        ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\n"),
    ],
};

pub(super) const KUBEADM_INSTANCE: Fixture = Fixture {
    name: "kubeadm 1.34",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        CONTAINERD_UNIT,
        KUBELET_UNIT,
        KUBEADM_DROP_IN,
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            "KUBELET_KUBEADM_ARGS=\"\"\n",
        ),
        (
            "/var/lib/kubelet/config.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS:\n- 10.96.0.10\ncontainerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\nimageServiceEndpoint: \"\"\nstaticPodPath: /etc/kubernetes/manifests # keep\n",
        ),
        (
            "/var/lib/kubelet/instance-config.yaml",
            "apiVersion: kubelet.config.k8s.io/v1beta1\ncontainerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\nkind: KubeletConfiguration\n",
        ),
    ],
};

pub(super) const DROP_INS: Fixture = Fixture {
    name: "--config-dir",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        CONTAINERD_UNIT,
        (
            "/etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet --config /etc/kubernetes/kubelet/config.json \\\n  --config-dir /etc/kubernetes/kubelet/config.json.d\n",
        ),
        (
            "/etc/kubernetes/kubelet/config.json",
            "{\n  \"kind\": \"KubeletConfiguration\",\n  \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n  \"containerRuntimeEndpoint\": \"unix:///run/other.sock\"\n}\n",
        ),
        (
            "/etc/kubernetes/kubelet/config.json.d/40-node.conf",
            "{\"kind\": \"KubeletConfiguration\", \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\", \"containerRuntimeEndpoint\": \"unix:///run/containerd/containerd.sock\"}\n",
        ),
    ],
};

pub(super) const UNIT_FLAGS: Fixture = Fixture {
    name: "flags in the unit",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        CONTAINERD_UNIT,
        (
            "/etc/systemd/system/kubelet.service",
            "[Service]\nExecStart=/usr/bin/kubelet \\\n  --container-runtime-endpoint=unix:///run/containerd/containerd.sock \\\n  --image-service-endpoint=unix:///run/containerd/containerd.sock \\\n  --node-labels=\"a=b,c=100%%\"\n",
        ),
    ],
};

pub(super) const UNIT_ENVIRONMENT: Fixture = Fixture {
    name: "flags in Environment=",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[
        CONTAINERD_UNIT,
        KUBELET_UNIT,
        (
            "/etc/systemd/system/kubelet.service.d/20-args.conf",
            "[Service]\nEnvironment=\"ARGS=--v=2 --container-runtime-endpoint unix:///run/containerd/containerd.sock\" OTHER=1\nExecStart=\nExecStart=/usr/bin/kubelet $ARGS\n",
        ),
    ],
};

pub(super) const NO_FILE: Fixture = Fixture {
    name: "neither flag nor file",
    unit: "kubelet.service",
    socket: CONTAINERD,
    files: &[CONTAINERD_UNIT, KUBELET_UNIT],
};

pub(super) const K3S: Fixture = Fixture {
    name: "K3s",
    unit: "k3s.service",
    socket: "/run/k3s/containerd/containerd.sock",
    files: &[
        (
            "/etc/systemd/system/k3s.service",
            "[Service]\nEnvironmentFile=-/etc/default/%N\nEnvironmentFile=-/etc/systemd/system/k3s.service.env\nKillMode=process\nExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--disable=traefik' \\\n\n",
        ),
        ("/etc/systemd/system/k3s.service.env", ""),
        (
            "/etc/rancher/k3s/config.yaml",
            "token: \"secret\"\nkubelet-arg:\n  - \"max-pods=200\"\n",
        ),
    ],
};

pub(super) const RKE2: Fixture = Fixture {
    name: "RKE2",
    unit: "rke2-agent.service",
    socket: "/run/k3s/containerd/containerd.sock",
    files: &[
        (
            "/usr/lib/systemd/system/rke2-agent.service",
            "[Service]\nEnvironmentFile=-/etc/default/%N\nExecStart=/usr/local/bin/rke2 agent\n",
        ),
        (
            "/etc/rancher/rke2/config.yaml.d/10.yaml",
            "server: https://a:9345\n",
        ),
    ],
};

pub(super) const MICROK8S: Fixture = Fixture {
    name: "MicroK8s",
    unit: "snap.microk8s.daemon-kubelite.service",
    socket: "/var/snap/microk8s/common/run/containerd.sock",
    files: &[
        (
            "/etc/systemd/system/snap.microk8s.daemon-kubelite.service",
            "[Service]\nExecStart=/usr/bin/snap run microk8s.daemon-kubelite\n",
        ),
        (
            "/var/snap/microk8s/current/args/kubelet",
            "--kubeconfig=${SNAP_DATA}/credentials/kubelet.config\n--container-runtime-endpoint=${SNAP_COMMON}/run/containerd.sock\n--containerd=${SNAP_COMMON}/run/containerd.sock\n",
        ),
    ],
};

pub(super) const CRIO: Fixture = Fixture {
    name: "CRI-O",
    unit: "kubelet.service",
    socket: "/run/crio/crio.sock",
    files: &[
        (
            "/usr/lib/systemd/system/crio.service",
            "[Service]\nExecStart=/usr/bin/crio $CRIO_CONFIG_OPTIONS\n",
        ),
        ("/etc/crio/crio.conf", "[crio.api]\n"),
        KUBELET_UNIT,
        KUBEADM_DROP_IN,
        (
            "/var/lib/kubelet/kubeadm-flags.env",
            "KUBELET_KUBEADM_ARGS=\"--container-runtime-endpoint=unix:///var/run/crio/crio.sock\"\n",
        ),
        (
            "/var/lib/kubelet/config.yaml",
            "kind: KubeletConfiguration\n",
        ),
    ],
};

pub(super) const ALL: [Fixture; 10] = [
    KUBEADM,
    KUBEADM_INSTANCE,
    DROP_INS,
    UNIT_FLAGS,
    UNIT_ENVIRONMENT,
    NO_FILE,
    K3S,
    RKE2,
    MICROK8S,
    CRIO,
];
