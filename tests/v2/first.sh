#!/bin/busybox sh
# shellcheck shell=dash
# /init of the initramfs: loads the disk driver and switches to the root file system on the disk.
set -eu
bb=/bin/busybox

$bb mount -t devtmpfs none /dev
exec > /dev/console 2>&1
$bb mkdir /proc
$bb mount -t proc none /proc
echo "criscope-v2: first"
if $bb grep -q criscope.probe /proc/cmdline; then $bb poweroff -f; fi
while read -r module; do $bb insmod "/$module"; done < /modules
$bb mount -t ext4 -o noatime /dev/vda /root
$bb umount /proc
$bb mount --move /dev /root/dev
exec $bb switch_root /root /bin/sh /guest.sh
