# $1: 0 on removal, 1 on upgrade. RPM has no purge: /var/lib/criscope and /run/criscope stay.
if [ "$1" = 0 ]; then
    for link in /etc/systemd/system/*.wants/criscope.service /etc/systemd/system/*.wants/criscope.socket; do
        if [ -L "$link" ] && [ ! -e "$link" ]; then rm -f "$link"; fi
    done
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload > /dev/null || :; fi
exit 0
