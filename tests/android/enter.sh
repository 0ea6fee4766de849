#!/bin/sh
# Runs in a mount namespace of its own (unshare -m): puts a phone's root together, then becomes a
# program in it. The counterpart of ../adbd/enter.sh for a root of phone.py.
#
#   enter.sh ROOT PHONE OWN COMMAND...
#
# ROOT is an empty folder, PHONE the folder of phone.py, which stays as it is, OWN the folder
# that becomes /rig/own; OWN/data is behind /data/local/tmp.
set -eu
root=$1 phone=$2 own=$3
shift 3

mount --bind "$phone" "$root"
mount -o remount,bind,ro "$root"
for name in dev proc sys; do
  mount --rbind "/$name" "$root/$name"
done
mount --bind "$own" "$root/rig/own"
mount --bind "$own/data" "$root/data/local/tmp"
chroot=$(command -v chroot)
# On a phone adbd's shells are the user "shell"; a user namespace has one user only.
if chown -R 2000:2000 "$own/data" 2>/dev/null; then
  chmod 755 "$own"
  set -- --userspec=2000:2000 "$root" "$@"
else
  set -- "$root" "$@"
fi
PATH=/system/bin exec "$chroot" "$@"
