#!/usr/bin/env bash
# Fetches what the phones of tests/android are made of, into a folder of its own: Debian's
# musl for Android's architectures (it stands in for bionic), mksh and toybox, which are Android's
# own shell and tools, and QEMU where the machine has none.
#
#   setup_android.sh PREFIX
#
# Nothing is installed and no root is needed (see ../adbd/archive.sh). A second call does nothing.
# Leaves PREFIX/root, and PREFIX/qemu/qemu-{aarch64,arm}.
set -euo pipefail
. "$(dirname "$0")/../adbd/archive.sh"

begin "$@"  # sets prefix
done_mark=$prefix/done-1  # the number counts changes to what this script leaves behind
if [ -e "$done_mark" ]; then exit 0; fi

apt=$prefix/apt
rm -rf "$apt" "$prefix/root" "$prefix/qemu"
mkdir -p "$prefix/root" "$prefix/qemu"
private_apt "$apt/amd64" amd64

apt-get install -qq -y --download-only mksh toybox >"$apt/log" 2>&1 ||
  fail "mksh and toybox cannot be fetched: $(tail -n 5 "$apt/log")"
for package in "$apt"/amd64/cache/archives/*.deb; do
  dpkg-deb -x "$package" "$prefix/root"
done
mkdir "$apt/single"
cd "$apt/single"
# armel calls as armeabi-v7a does: floating-point values travel in integer registers.
for architecture in amd64 arm64 armel; do
  private_apt "$apt/$architecture" "$architecture" trixie bookworm
  apt-get download -qq musl >"$apt/log" 2>&1 ||
    fail "musl for $architecture cannot be fetched: $(tail -n 5 "$apt/log")"
done
for package in ./musl_*.deb; do
  dpkg-deb -x "$package" "$prefix/root"
done
if [ -d "$prefix/root/lib" ]; then  # bookworm's musl is of before the merge with /usr
  cp -a "$prefix/root/lib/." "$prefix/root/usr/lib/"
  rm -r "$prefix/root/lib"
fi

# A statically linked QEMU: inside the phone there are none of the machine's libraries.
static_qemu() {
  local name path
  for name in "qemu-$1-static" "qemu-$1"; do
    path=$(command -v "$name") || continue
    if ! ldd "$path" 2>/dev/null | grep -q "=>"; then
      readlink -f "$path"
      return
    fi
  done
}
missing=
for machine in aarch64 arm; do
  found=$(static_qemu "$machine")
  if [ -n "$found" ]; then
    cp "$found" "$prefix/qemu/qemu-$machine"
  else
    missing="$missing ./usr/bin/qemu-$machine"
  fi
done
if [ -n "$missing" ]; then
  private_apt "$apt/amd64" amd64
  apt-get download -qq qemu-user >"$apt/log" 2>&1 ||
    fail "qemu-user cannot be fetched: $(tail -n 5 "$apt/log")"
  # shellcheck disable=SC2086  # a list of names
  dpkg-deb --fsys-tarfile qemu-user_*.deb | tar -x -C "$prefix/qemu" --strip-components=3 $missing
fi

cd "$prefix"
rm -rf "$apt"
touch "$done_mark"
