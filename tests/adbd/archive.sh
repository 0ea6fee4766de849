# Sourced by the scripts that take packages from Debian's archive without installing them.
#
#   private_apt FOLDER ARCHITECTURE [SUITE ...]
#
# Makes FOLDER an apt state of its own for the architecture and the first of the suites (trixie where
# none is named) whose index is whole on a mirror: now and then a mirror is between two states of one
# architecture. Exports APT_CONFIG: apt-get then knows that state only, in which no package counts as
# installed. The mirror is the system's own with the suite replaced, checked against Debian's keys
# like any other apt source. The system's apt state is not touched. Ends the script where it fails.

readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# begin PREFIX: makes the folder and sets $prefix to it; waits while another process works there.
begin() {
  [ $# -eq 1 ] || fail "usage: $(basename "$0") PREFIX"
  mkdir -p "$1"
  prefix=$(cd "$1" && pwd)
  exec 9>"$prefix/lock"
  flock 9
}

private_apt() {
  local apt=$1 architecture=$2 suite tool mirror
  shift 2
  local -a suites=("${@:-trixie}")
  unset APT_CONFIG  # of a call before this one
  for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing: packages come from Debian's archive"
  done
  [ -r "$KEYRING" ] || fail "$KEYRING is missing: install debian-archive-keyring"
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
APT::Architecture "$architecture";
APT::Architectures "$architecture";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
EOF

  # The repositories of the system's own configuration (sources.list or deb822 alike), main
  # component only; which of them is Debian's archive shows in whether Debian's keys accept its
  # trixie index.
  local -a mirrors
  mapfile -t mirrors < <(
    apt-get indextargets --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' |
      awk '$2 == "main" && !seen[$1]++ { print $1 }')
  [ ${#mirrors[@]} -gt 0 ] || fail "the system's apt configuration names no repository"

  export APT_CONFIG=$apt/apt.conf
  for suite in "${suites[@]}"; do
    for mirror in "${mirrors[@]}"; do
      echo "deb [signed-by=$KEYRING] $mirror $suite main" >"$apt/sources.list"
      if apt-get update -qq --error-on=any >"$apt/log" 2>&1; then
        return
      fi
      { echo "$suite of $mirror:"; cat "$apt/log"; } >>"$apt/refused"
    done
  done
  fail "no repository of the system's apt configuration has ${suites[*]} for $architecture:
$(cat "$apt/refused")"
}
