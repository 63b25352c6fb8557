# $1: 0 on removal, 1 on upgrade. A node whose CRI socket disappears cannot start or stop pods.
if [ "$1" = 0 ]; then
    if [ -e /var/lib/criscope-install/record.json ] || [ -e /var/lib/criscope-install/transaction.json ]; then
        echo "criscope: this node's kubelet uses criscope. First run: criscope uninstall" >&2
        exit 1
    fi
    if [ -d /run/systemd/system ] && systemctl --quiet is-active criscope.service; then
        echo "criscope: criscope.service is active. Set the kubelet's endpoint back to its runtime, then run:" >&2
        echo "    systemctl disable --now criscope.socket criscope.service" >&2
        exit 1
    fi
fi
exit 0
