# $1: 1 on installation, 2 on upgrade. Nothing is enabled or started; deploy/packaging/deb/postinst tells about restarts.
if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload > /dev/null || :
    if [ "$1" -gt 1 ] && systemctl --quiet is-active criscope.service &&
        ! { systemctl --quiet is-active criscope-handover.service && systemctl try-restart criscope.service; }; then
        echo "criscope: the running daemon still has the version before. Pods are not affected by: systemctl restart criscope"
    fi
fi
exit 0
