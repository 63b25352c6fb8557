//! Error texts of CNI plugins that depend on something else: an agent on the node, the Kubernetes API, a DHCP server.

use super::texts::check;
use super::*;

/// Plugins, what they wrote, and the words of the class.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "calico",
        "error getting ClusterInformation: connection is unauthorized: Unauthorized",
        "the Kubernetes API does not accept its credentials",
    ),
    (
        "calico",
        "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1/clusterinformations/default\": x509: certificate signed by unknown authority (possibly because of \"crypto/rsa: verification error\" while trying to verify candidate authority certificate \"kubernetes\")",
        "the certificate of the Kubernetes API is not accepted",
    ),
    (
        "calico",
        "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1/clusterinformations/default\": dial tcp 10.96.0.1:443: i/o timeout",
        "the Kubernetes API cannot be reached",
    ),
    (
        "calico",
        "error getting ClusterInformation: Get \"https://10.96.0.1:443/apis/crd.projectcalico.org/v1/clusterinformations/default\": dial tcp 10.96.0.1:443: connect: connection refused",
        "the Kubernetes API cannot be reached",
    ),
    (
        "calico",
        "stat /var/lib/calico/nodename: no such file or directory: check that the calico/node container is running and has mounted /var/lib/calico/",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "calico",
        "error waiting for felix: stat /var/run/calico/endpoint-status: no such file or directory",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "flannel",
        "loadFlannelSubnetEnv failed: open /run/flannel/subnet.env: no such file or directory",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "cilium-cni",
        "unable to connect to Cilium agent: failed to create cilium agent client after 30.000000 seconds timeout: Get \"http://localhost/v1/config\": dial unix /var/run/cilium/cilium.sock: connect: no such file or directory",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "cilium-cni",
        "unable to create endpoint: Cilium API client timeout exceeded",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "aws-cni",
        "add cmd: Error received from AddNetwork gRPC call: rpc error: code = Unavailable desc = connection error: desc = \"transport: Error while dialing: dial tcp 127.0.0.1:50051: connect: connection refused\"",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "ovn-k8s-cni-overlay",
        "failed to send CNI request: Post \"http://dummy/\": dial unix /var/run/ovn-kubernetes/cni//ovn-cni-server.sock: connect: connection refused",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "weave-net",
        "unable to allocate IP address: Post \"http://127.0.0.1:6784/ip/0f2e8d7c\": dial tcp 127.0.0.1:6784: connect: connection refused",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "macvlan",
        "error dialing DHCP daemon: dial unix /run/cni/dhcp.sock: connect: no such file or directory",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "multus",
        "[shop/web/0b5e2f6c:]: error adding container to network \"\": have you checked that your default network is ready? still waiting for readinessindicatorfile @ /host/run/multus/cni/net.d/10-ovn-kubernetes.conf. pollimmediate error: timed out waiting for the condition",
        "its agent on this node is not up, or does not answer",
    ),
    (
        "cilium-cni",
        "unable to create endpoint: [PUT /endpoint/{id}][429] putEndpointIdTooManyRequests",
        "its agent on this node limits the rate of requests",
    ),
    (
        "calico",
        "failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled",
        "no addresses are left",
    ),
    (
        "cilium-cni",
        "unable to allocate IP via local cilium agent: [POST /ipam][502] postIpamFailure  range is full",
        "no addresses are left",
    ),
    (
        "aws-cni",
        "add cmd: failed to assign an IP address to container",
        "no addresses are left",
    ),
    (
        "azure-vnet",
        "IPAM Invoker Add failed with error: Failed to allocate pool: Failed to delegate: Failed to allocate address: No available addresses",
        "no addresses are left",
    ),
    (
        "whereabouts",
        "error at storage engine: Could not allocate IP in range: ip: 192.168.2.225 / - 192.168.2.230 / range: net.IPNet{IP:net.IP{0xc0, 0xa8, 0x2, 0x0}, Mask:net.IPMask{0xff, 0xff, 0xff, 0x0}}",
        "no addresses are left",
    ),
    (
        "bridge",
        "failed to locate iptables: exec: \"iptables\": executable file not found in $PATH",
        "a program of the node is missing",
    ),
    (
        "multus",
        "Multus: [shop/web/0b5e2f6c]: error getting pod: Unauthorized",
        "the Kubernetes API does not accept its credentials",
    ),
    (
        "macvlan",
        "error calling DHCP.Allocate: no more tries",
        "no DHCP server answered",
    ),
    (
        "bridge",
        "failed to open netns \"/var/run/netns/cni-6b56adca\": failed to Statfs \"/var/run/netns/cni-6b56adca\": no such file or directory",
        "the pod's network namespace is gone",
    ),
    (
        "macvlan",
        "Link not found",
        "an interface of the node that its configuration names does not exist",
    ),
    (
        "bridge",
        "failed to set bridge addr: \"cni0\" already has an IP address different from 10.244.1.1/24",
        "",
    ),
    (
        "bridge",
        "failed to allocate for range 0: 10.88.0.3 has been allocated to 0f2e8d7c, duplicate allocation is not allowed",
        "",
    ),
    (
        "portmap",
        "unable to create chain CNI-HOSTPORT-SETMARK: failed to list chains: running [/usr/sbin/iptables -t nat -S --wait]: exit status 3: iptables v1.8.7 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.\n",
        "",
    ),
    (
        "calico",
        "incompatible CNI versions; config is \"1.0.0\", plugin supports [\"0.1.0\" \"0.2.0\" \"0.3.0\" \"0.3.1\"]",
        "",
    ),
    (
        "multus",
        "Multus: [shop/web/0b5e2f6c]: error loading k8s delegates k8s args: TryLoadPodDelegates: error in getting k8s network for pod: GetNetworkDelegates: failed getting the delegate: getKubernetesDelegate: cannot find a network-attachment-definition (macvlan-conf) in namespace (shop): network-attachment-definitions.k8s.cni.cncf.io \"macvlan-conf\" not found",
        "",
    ),
    (
        "kube-ovn",
        "RPC failed; Post \"http://dummy/api/v1/add\": dial unix /run/openvswitch/kube-ovn-daemon.sock: connect: connection refused",
        "its agent on this node is not up, or does not answer",
    ),
    // The API server on the node itself, or a proxy to it.
    (
        "calico",
        "error getting ClusterInformation: Get \"https://127.0.0.1:6443/apis/crd.projectcalico.org/v1/clusterinformations/default\": dial tcp 127.0.0.1:6443: connect: connection refused",
        "the Kubernetes API cannot be reached",
    ),
];

#[test]
fn of_plugins_that_ask_others() {
    let run = pod("web").run(0, 500);
    for (plugin, text, words) in TEXTS {
        let operation = format!("network: the CNI plugin {plugin} fails");
        let text = format!(
            "failed to setup network for sandbox \"0a\": plugin type=\"{plugin}\" failed (add): {text}"
        );
        check(&run, &operation, &[(Code::Unknown, &text, words)]);
    }
}

/// The interface of a deleted pod is gone without anybody's fault.
#[test]
fn of_what_is_gone_already() {
    let text = "failed to destroy network for sandbox \"0a\": plugin type=\"macvlan\" failed (delete): Link not found";
    check(
        &pod("web").stop(0, 500),
        "network: the CNI plugin macvlan cannot take it down",
        &[(Code::Unknown, text, "")],
    );
}
