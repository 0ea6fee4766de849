#!/usr/bin/env bash
# Sets up Debian trixie's adbd, the daemon that runs on Android phones, in a folder of its own, and
# beside it the adb of the same suite, for machines that have none.
#
#   setup_adbd.sh PREFIX
#
# Needs apt-get, dpkg-deb and Debian's archive keyring; no root. The system's apt state is not
# touched: a private one lives in PREFIX/apt. The mirror is the system's own with the suite replaced
# by trixie, checked against Debian's keys like any other apt source. A second call does nothing.
# The daemon is PREFIX/root/usr/sbin/adbd; its own libc comes along (see daemon.py). The client and
# server is PREFIX/bin/adb.
set -euo pipefail

readonly SUITE=trixie
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
  echo "setup_adbd.sh: $*" >&2
  exit 1
}

[ $# -eq 1 ] || fail "usage: setup_adbd.sh PREFIX"
mkdir -p "$1"
prefix=$(cd "$1" && pwd)
done_mark=$prefix/done-2  # the number counts changes to what this script leaves behind

exec 9>"$prefix/lock"
flock 9
if [ -e "$done_mark" ]; then exit 0; fi

for tool in apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || fail "$tool is missing: adbd comes from Debian's archive"
done
[ -r "$KEYRING" ] || fail "$KEYRING is missing: install debian-archive-keyring"

apt=$prefix/apt
rm -rf "$apt" "$prefix/root"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"  # no package counts as installed, so that all dependencies are fetched

# APT_CONFIG is read before the system's apt.conf.d: proxies and certificates stay as they are.
cat >"$apt/apt.conf" <<EOF
Dir::State "$apt";
Dir::State::lists "$apt/lists";
Dir::State::status "$apt/status";
Dir::State::extended_states "$apt/extended_states";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Debug::NoLocking "true";
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
EOF

# The repositories of the system's own configuration (sources.list or deb822 alike), main component
# only; which of them is Debian's archive shows in whether Debian's keys accept its trixie index.
mapfile -t mirrors < <(
  apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 == "main" && !seen[$1]++ { print $1 }')
[ ${#mirrors[@]} -gt 0 ] || fail "the system's apt configuration names no repository"

export APT_CONFIG=$apt/apt.conf
found=
for mirror in "${mirrors[@]}"; do
  echo "deb [signed-by=$KEYRING] $mirror $SUITE main" >"$apt/sources.list"
  if apt-get update -qq --error-on=any >"$apt/log" 2>&1; then
    found=yes
    break
  fi
  cat "$apt/log" >>"$apt/refused"
done
[ -n "$found" ] || fail "no repository of the system's apt configuration has $SUITE:
$(tail -n 5 "$apt/refused")"

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
