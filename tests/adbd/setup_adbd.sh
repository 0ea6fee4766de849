#!/usr/bin/env bash
# Sets up Debian trixie's adbd, the daemon that runs on Android phones, in a folder of its own, and
# beside it the adb of the same suite, for machines that have none.
#
#   setup_adbd.sh PREFIX
#
# Needs apt-get, dpkg-deb and Debian's archive keyring; no root (see archive.sh). A second call does
# nothing.
# The daemon is PREFIX/root/usr/sbin/adbd; its own libc comes along (see daemon.py). The client and
# server is PREFIX/bin/adb.
set -euo pipefail

. "$(dirname "$0")/archive.sh"

begin "$@"  # sets prefix
done_mark=$prefix/done-2  # the number counts changes to what this script leaves behind
if [ -e "$done_mark" ]; then exit 0; fi

apt=$prefix/apt
rm -rf "$apt" "$prefix/root"
private_apt "$apt" "$(dpkg --print-architecture)"

apt-get install -qq -y --download-only adbd adb >"$apt/log" 2>&1 ||
  fail "adbd and adb cannot be fetched: $(tail -n 5 "$apt/log")"
mkdir -p "$prefix/root"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$prefix/root"
done
[ -x "$prefix/root/usr/sbin/adbd" ] || fail "the package adbd holds no usr/sbin/adbd"

# adb, too, runs on its own suite's libc.
adb=$(find "$prefix/root/usr/lib/android-sdk/platform-tools" "$prefix/root/usr/bin" -name adb -type f |
  head -n 1)
[ -n "$adb" ] || fail "the package adb holds no adb"
libraries=$prefix/root/usr/lib/x86_64-linux-gnu
mkdir -p "$prefix/bin"
cat >"$prefix/bin/adb" <<EOF
#!/bin/sh
exec "$libraries/ld-linux-x86-64.so.2" --library-path "$libraries:$libraries/android" "$adb" "\$@"
EOF
chmod +x "$prefix/bin/adb"
rm -rf "$apt"
touch "$done_mark"
