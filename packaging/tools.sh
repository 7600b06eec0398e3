# What the tests need beyond localctx itself, for packaging/check, which sources this after env.sh.

# --- The light tools: what a Python and a network can have

test_tools() { once tests install_tests; }

install_tests() {
    is_done ready || install  # it was until now, but the run that we waited for was stopped
    say "[1/1] tools of the tests"
    unmark
    need "the tools of the tests" install -e "${root}[test]"
    mark tests
    mark ready
}

# --- The larger ones: they need a compiler, root or hundreds of megabytes

# One that cannot be had takes nothing from the others, and the check goes on without it.
larger_tools() {
    once tests-all install_larger
    has_chromium || install_chromium
}

# Where one failed there is no mark, and the next --all tries again.
install_larger() {
    { is_done ready && is_done tests; } || install_tests
    failed=
    unmark
    while read -r tool <&3; do
        say "[+] $tool"
        pip install "$tool" || { failed=yes; say "localctx: pip could not install $tool, going on without. Log: $log"; }
    done 3<<LIST
$(larger)
LIST
    remark
    [ -n "$failed" ] || mark tests-all
}

# Prints the requirements of [test-all], a line each, or only the names that are --absent from .venv.
larger() { "$venv/bin/python" "$root/packaging/larger.py" "$@"; }

# --- The browser of the tests

# The system's (tests/browser.py knows the same names), or Playwright's own where the system has the libraries it needs.
has_chromium() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null && return
    done
    "$venv/bin/python" -c 'import subprocess, playwright.sync_api as p
with p.sync_playwright() as w: exit(subprocess.call([w.chromium.executable_path, "--version"]))' >/dev/null 2>&1
}

# Root on Debian asks the system, anyone else Playwright, whose download goes into the user's cache.
install_chromium() {
    say "[+] Chromium, for the tests of the window"
    if [ -e "${DEBIAN:-/etc/debian_version}" ] && [ "$(id -u)" = 0 ]; then
        { apt-get update && apt-get install -y --no-install-recommends chromium; } >>"$log" 2>&1 && return
    fi
    "$venv/bin/python" -m playwright install --no-shell chromium >>"$log" 2>&1 || :
}

# --- The last line

# Prints what has to be said of the tests that will be skipped, or nothing.
left_out() {
    absent=$(larger --absent)
    has_chromium || absent="$absent Chromium"
    [ -n "$absent" ] || return 0
    absent=$(printf '%s, ' $absent)
    said="left out were the tests that need ${absent%, }"
    if [ -z "$all" ]; then
        echo "$said. To add them: sh packaging/check --all"
    else
        echo "$said, which could not be installed. To try again: sh packaging/check --all (log: $log)"
    fi
}
