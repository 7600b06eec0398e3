# What packaging/start and packaging/check share: the environment .venv, made once and from then on only looked at.
# Sourced by both, which set `root`. Everything is said on stderr: stdout belongs to the command that runs at the end.

venv=$root/.venv
log=$venv/install.log
project=$(cksum <"$root/pyproject.toml")
cpu_index=https://download.pytorch.org/whl/cpu
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }
die() { say "localctx: $*"; exit 1; }

environment() { once ready install; }

# --- Marks: files in .venv, written last, so that a half-made environment has none

# Which Python, and where: when either changes, nothing in .venv can be trusted.
origin() { printf '%s in %s' "$("$venv/bin/python" --version 2>/dev/null)" "$root"; }
state() { printf '%s for %s' "$(origin)" "$project"; }
marked() { cat "$venv/$1" 2>/dev/null || :; }
mark() { state >"$venv/$1"; }
is_done() { [ "$(marked "$1")" = "$(state)" ]; }

# While pip is at work nothing is ready, because pip believes a package that it was stopped in the middle of. Where pip
# ends by itself, having failed, what was there is whole: without a network it must go on working.
unmark() { mv "$venv/ready" "$venv/was-ready"; }
remark() { [ ! -e "$venv/was-ready" ] || mv "$venv/was-ready" "$venv/ready"; }

# once MARK COMMAND: runs COMMAND, one at a time in this .venv, unless MARK says that it has been done.
once() {
    is_done "$1" && return
    trap 'say "Stopped. Run it again to go on."; exit 130' INT
    find_python
    mkdir -p "$venv"
    exec 9<"$venv"
    lock
    is_done "$1" || "$2"
    exec 9<&-
}

# The lock is the kernel's, on the folder .venv: it ends with its holders, however they end. Python takes it because
# flock(1) is not everywhere. It belongs to descriptor 9, so a pip that outlives this shell still holds it.
lock() {
    take_lock 'LOCK_EX | LOCK_NB' && return
    say "Another installation is at work in $venv, waiting for it."
    take_lock LOCK_EX || :  # fails only where the file system has no locks: then there is nothing to wait for
}
take_lock() { "$python" -c "from fcntl import *; flock(9, $1)" 9<&9 2>/dev/null; }

# --- Python

# Sets python and version. Candidates are run, not looked up: a version manager's shim may lead nowhere.
find_python() {
    set -- python3 python3.14 python3.13 python3.12 python3.11 python
    [ -z "${LOCALCTX_PYTHON:-}" ] || set -- "$LOCALCTX_PYTHON"
    bare=
    for python do
        version=$(probe) && return
        bare=${bare:-$version}
    done
    [ -z "$bare" ] || die "Python $bare cannot make environments. Install its venv module" \
        "(Debian, Ubuntu: sudo apt install python${bare%.*}-venv), then run this again."
    die "needs Python 3.11 or newer, and found none (tried $*). Install one from your system or python.org," \
        "or name it (LOCALCTX_PYTHON=/path/to/python3), then run this again."
}

# Prints the version if it is new enough, then succeeds if environments can be made (Debian packs that separately).
probe() {
    "$python" -c 'import sys
sys.version_info >= (3, 11) or sys.exit(1)
print("%d.%d.%d" % sys.version_info[:3])
import ensurepip, venv' 2>/dev/null
}

# --- Installation

install() {
    make_venv
    install_torch
    say "[3/4] localctx and its libraries"
    need "localctx and its libraries" install -e "$root"
    mark ready
    say "[4/4] ready"
}

# A finished environment from an older pyproject.toml is brought up to date, any other starts anew.
make_venv() {
    case "$(marked ready)" in
    "$(origin) for "*)
        say "[1/4] pyproject.toml has changed, bringing .venv up to date"
        unmark
        ;;
    *)
        say "[1/4] Python $version, making .venv"
        "$python" -m venv --clear "$venv" >&2 || die "cannot make $venv. Is the disk full?"
        ;;
    esac
    : >"$log"
    pip_in_log install --upgrade pip || :  # the old one serves too
}

# Before everything else and by itself, because which build to take depends on the machine.
install_torch() {
    torch=$(sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' "$root/pyproject.toml")
    release=${torch#torch==}
    release=${release%.\*}
    if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
        say "[2/4] torch $release, CUDA build (some gigabytes)"
        need "$torch" install "$torch"
    elif [ "$(uname -s)" = Linux ]; then
        say "[2/4] torch $release, CPU build where an index has it (about 200 MB)"
        install_cpu_torch
    else
        say "[2/4] torch $release"
        need "$torch" install "$torch"
    fi
}

# A wheel at hand (pip's find-links) needs no network. Otherwise "+cpu" of PyTorch's index outranks the CUDA build that
# PyPI has for Linux, and an index that does not answer costs ten seconds and is passed over.
install_cpu_torch() {
    pip_in_log install --no-index --no-deps "$torch" ||
        need "$torch" install --extra-index-url "$cpu_index" --timeout 10 --retries 0 "$torch"
}

# need WHAT ARGUMENTS: pip, or the end.
need() {
    what=$1
    shift
    pip "$@" && return
    remark
    [ -t 2 ] || tail -n 5 "$log" >&2
    die "pip could not install $what. Is the network up, and is there room on the disk? Then run this again. Log: $log"
}

# With pip's progress bar where somebody is watching.
pip() {
    if [ -t 2 ]; then
        "$venv/bin/python" -m pip --log "$log" "$@" >&2
    else
        pip_in_log "$@"
    fi
}
pip_in_log() { "$venv/bin/python" -m pip "$@" >>"$log" 2>&1; }
