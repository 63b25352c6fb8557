#!/bin/busybox sh
# shellcheck shell=dash
# The first process of the virtual machine, in memory: loads the driver of the disk and goes over to what is on it.
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
