# Shell functions shared by the scripts beside this file: what a fresh machine lacks, made.
# Each does nothing where its work is done already. Messages go to standard error.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${FLEET_VENV:-$ROOT/.venv}
DOCKERD_LOG=${FLEET_DOCKERD_LOG:-/var/log/fleet-dockerd.log}

say() { printf '%s\n' "$*" >&2; }

die() {
    say "$1"
    [ -z "${2:-}" ] || say "  remedy: $2"
    exit 2
}

is_root() { [ "$(id -u)" = 0 ]; }

# install_packages WHY PACKAGE…: Debian or Ubuntu packages, where that is allowed.
install_packages() {
    local why=$1
    shift
    is_root || die "$why, and only root may install it" "sudo apt-get install $*"
    command -v apt-get >/dev/null || die "$why, and this machine has no apt-get" "install by hand: $*"
    say "installing $* ($why)"
    apt-get update -qq >&2 || say "apt-get update did not succeed; going on with the lists there are"
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@" </dev/null >&2 ||
        die "could not install $*" "see the lines above; then: apt-get install $*"
}

# A Python of at least 3.10 whose venv module works, as a word on standard output.
find_python() {
    local candidate
    for candidate in "${FLEET_PYTHON:-python3}" python3.13 python3.12 python3.11 python3.10; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    die "fleet needs Python 3.10 or newer" "install one and name it: FLEET_PYTHON=python3.12 $0"
}

# The virtual environment with fleet and its tools in it, made anew when pyproject.toml changed.
ensure_venv() {
    local python stamp wanted
    stamp=$VENV/.fleet-installed
    wanted=$(sha256sum <"$ROOT/pyproject.toml")
    if [ -x "$VENV/bin/fleet" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
        return
    fi
    if ! [ -x "$VENV/bin/python" ]; then
        python=$(find_python)
        "$python" -c 'import ensurepip, venv' 2>/dev/null ||
            install_packages "Python's venv module is missing" python3-venv
        say "making the virtual environment $VENV"
        "$python" -m venv "$VENV"
    fi
    say "installing fleet and its tools into $VENV"
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable "${ROOT}[dev]" >&2 ||
        die "could not install fleet's Python packages" "see the lines above"
    printf '%s\n' "$wanted" >"$stamp"
}

engine_answers() { docker version >/dev/null 2>&1; }

# A Docker Engine that answers: installed and started where it is not there and that is allowed.
ensure_engine() {
    engine_answers && return
    if ! command -v dockerd >/dev/null; then
        local packages=(docker.io)
        # From Debian 13 on the command line is a package of its own.
        if ! command -v docker >/dev/null && apt-cache show docker-cli >/dev/null 2>&1; then
            packages+=(docker-cli)
        fi
        install_packages "the lab needs a Docker Engine" "${packages[@]}"
    fi
    engine_answers && return
    is_root || die "no Docker Engine answers, and only root may start one" \
        "sudo systemctl start docker, and be in the group docker"
    if [ -d /run/systemd/system ]; then
        systemctl start docker
    else
        start_engine_by_hand
    fi
    wait_for_engine
}

# Where systemd is not PID 1: the engine as a plain process that outlives this script.
start_engine_by_hand() {
    local pid_file=/var/run/docker.pid
    if [ -f "$pid_file" ] && ! grep -qs dockerd "/proc/$(cat "$pid_file")/comm"; then
        rm -f "$pid_file" # of an engine that was killed; its number may belong to another process now
    fi
    say "starting dockerd (log: $DOCKERD_LOG)"
    setsid nohup dockerd >>"$DOCKERD_LOG" 2>&1 </dev/null &
}

wait_for_engine() {
    local attempt
    for attempt in $(seq 120); do
        engine_answers && return
        sleep 0.5
    done
    tail -n 5 "$DOCKERD_LOG" >&2 2>/dev/null || true
    die "the Docker Engine does not answer after $((attempt / 2)) s" "see $DOCKERD_LOG or journalctl -u docker"
}

ensure_compiler() {
    { command -v gcc && command -v gpg && [ -e /usr/include/stdio.h ]; } >/dev/null ||
        install_packages "the lab's simulated GPU library is compiled, its packages are signed" gcc libc6-dev gnupg
}

ensure_debootstrap() {
    command -v debootstrap >/dev/null || [ -x /usr/sbin/debootstrap ] ||
        install_packages "the lab's images are made with debootstrap" debootstrap debian-archive-keyring
}

# What the tests of the transport log in to on this machine: sshd, sudo, a csh. They start sshd themselves.
ensure_test_tools() {
    local missing=()
    [ -x /usr/sbin/sshd ] || missing+=(openssh-server)
    command -v sudo >/dev/null || missing+=(sudo)
    command -v tcsh >/dev/null || missing+=(tcsh)
    [ ${#missing[@]} -eq 0 ] || install_packages "the tests log in to this machine" "${missing[@]}"
}

# Everything the lab needs of this machine.
ensure_lab_tools() {
    is_root || say "not root: what is missing cannot be installed, and the lab cannot be bootstrapped"
    ensure_engine
    ensure_debootstrap
    ensure_compiler
}

fleet() { "$VENV/bin/fleet" "$@"; }
