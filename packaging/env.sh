# The environment .venv, which packaging/start and packaging/check share: it is made once and then only checked.
# Both source this file after setting `root`. Messages go to stderr: stdout belongs to the command that runs at the end.

venv=$root/.venv
log=$venv/install.log
project=$(cksum <"$root/pyproject.toml")
cpu_index=https://download.pytorch.org/whl/cpu
export PIP_DISABLE_PIP_VERSION_CHECK=1

say() { printf '%s\n' "$*" >&2; }
die() { say "localctx: $*"; exit 1; }

environment() { once ready install; }

# --- Marks: files in .venv that are written last, so that an incomplete environment has none

# The Python version and the folder: when either changes, .venv is invalid.
origin() { printf '%s in %s' "$("$venv/bin/python" --version 2>/dev/null)" "$root"; }
state() { printf '%s for %s' "$(origin)" "$project"; }
marked() { cat "$venv/$1" 2>/dev/null || :; }
mark() { state >"$venv/$1"; }
is_done() { [ "$(marked "$1")" = "$(state)" ]; }

# While pip runs, the environment is marked as not ready, because pip takes an interrupted installation for a complete
# one. If pip itself fails, the packages installed before are intact, and must go on working without a network.
unmark() { mv "$venv/ready" "$venv/was-ready"; }
remark() { [ ! -e "$venv/was-ready" ] || mv "$venv/was-ready" "$venv/ready"; }

# once MARK COMMAND: runs COMMAND under the lock of this .venv, unless MARK exists.
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

# A kernel lock on the folder .venv, which ends with the processes that hold it. Python takes it because flock(1) is not
# available everywhere. It belongs to descriptor 9, so that a pip that outlives this shell still holds it.
lock() {
    take_lock 'LOCK_EX | LOCK_NB' && return
    say "Another installation is at work in $venv, waiting for it."
    take_lock LOCK_EX || :  # fails only where the file system has no locks
}
take_lock() { "$python" -c "from fcntl import *; flock(9, $1)" 9<&9 2>/dev/null; }

# --- Python

# Sets python and version. Candidates are run, not looked up, because a version manager's shim may point to nothing.
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

# Prints the version if it is new enough; succeeds if it can make environments (Debian packages that separately).
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
    ! has_gpu || install_gpu
    mark ready
    say "[4/4] ready"
}

# Updates a complete environment of an older pyproject.toml; makes any other anew.
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
    pip_in_log install --upgrade pip || :  # the old version works too
}

# Installed first and separately, because the machine decides which build is needed.
install_torch() {
    torch=$(sed -n 's/.*"\(torch==[^"]*\)".*/\1/p' "$root/pyproject.toml")
    release=${torch#torch==}
    release=${release%.\*}
    if has_gpu; then
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

# Succeeds with an NVIDIA GPU: its driver brings nvidia-smi along.
has_gpu() { nvidia-smi -L 2>/dev/null | grep -q '^GPU'; }

# bitsandbytes, for weights in int8 and nf4. All else works without it, so the installation goes on where it fails.
install_gpu() {
    packer=$(sed -n 's/^gpu = \["\([^"]*\)".*/\1/p' "$root/pyproject.toml")
    say "[+] $packer, for --weights int8 and nf4 on the GPU"
    pip install "$packer" || say "localctx: $packer could not be installed, so --weights int8 and nf4 are refused;" \
        "all else works. To try again: '$venv/bin/python' -m pip install '$packer'. Log: $log"
}

# A local wheel (pip's find-links) needs no network. Otherwise "+cpu" of PyTorch's index outranks the CUDA build that
# PyPI has for Linux; an index that does not answer is skipped after ten seconds.
install_cpu_torch() {
    pip_in_log install --no-index --no-deps "$torch" ||
        need "$torch" install --extra-index-url "$cpu_index" --timeout 10 --retries 0 "$torch"
}

# need WHAT ARGUMENTS: runs pip with ARGUMENTS; if it fails, ends with a message about WHAT.
need() {
    what=$1
    shift
    pip "$@" && return
    remark
    [ -t 2 ] || tail -n 5 "$log" >&2
    die "pip could not install $what. Is the network up, and is there room on the disk? Then run this again. Log: $log"
}

# Shows pip's progress bar at a terminal.
pip() {
    if [ -t 2 ]; then
        "$venv/bin/python" -m pip --log "$log" "$@" >&2
    else
        pip_in_log "$@"
    fi
}
pip_in_log() { "$venv/bin/python" -m pip "$@" >>"$log" 2>&1; }

# --- llama.cpp, which runs GGUF files: it is compiled, so it is installed when one is named first

names_gguf() {
    for argument in "$@" "${LOCALCTX_MODEL:-}" "${LOCALCTX_ENGINE:-}"; do
        case $argument in *.gguf | llama.cpp | --engine=llama.cpp) return 0 ;; esac
    done
    return 1
}

# Marked as done even where it fails: all else works without it, and a second try would take minutes again.
install_gguf() {
    llama=$(sed -n 's/^gguf = \["\([^"]*\)".*/\1/p' "$root/pyproject.toml")
    say "llama.cpp, for GGUF files: it is compiled, which takes some minutes and needs a C++ compiler and cmake"
    pip_in_log install "$llama" || {
        tail -n 5 "$log" >&2
        say "localctx: llama.cpp could not be compiled; what torch can run of the file still works. Log: $log"
        say "To try again, install a compiler (Debian, Ubuntu: sudo apt install g++ cmake), then: rm '$venv/gguf'"
    }
    mark gguf
}
