#!/bin/sh
# Runs in a mount namespace of its own (unshare -m): builds the file system that the daemon sees,
# which is the host's with a /data/local/tmp of the daemon's, then becomes the daemon.
#
#   enter.sh ROOT DATA KIND COMMAND...
#
# ROOT is an empty folder, DATA the folder behind /data/local/tmp. KIND is plain, ro (read-only), or
# a size for a small file system of its own, such as 2m.
set -eu
root=$1 data=$2 kind=$3
shift 3

mount -t tmpfs -o mode=755 tmpfs "$root"
for entry in /*; do
  name=$root$entry
  case $entry in
    /data) continue ;;
  esac
  if [ -L "$entry" ]; then
    cp -P "$entry" "$name"
  elif [ -d "$entry" ]; then
    mkdir "$name"
    mount --rbind "$entry" "$name"
  else
    touch "$name"
    mount --bind "$entry" "$name"
  fi
done

mkdir -p "$root/data/local/tmp"
case $kind in
  plain) mount --bind "$data" "$root/data/local/tmp" ;;
  ro)
    mount --bind "$data" "$root/data/local/tmp"
    mount -o remount,bind,ro "$root/data/local/tmp"
    ;;
  *) mount -t tmpfs -o "size=$kind" tmpfs "$root/data/local/tmp" ;;
esac
exec chroot "$root" "$@"
