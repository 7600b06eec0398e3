# Tools that the tests need beyond localctx itself. packaging/check sources this file after env.sh.

# --- Small tools: pip packages

test_tools() { once tests install_tests; }

install_tests() {
    is_done ready || install  # the installation that this one waited for may have been interrupted
    say "[1/1] tools of the tests"
    unmark
    need "the tools of the tests" install -e "${root}[test]"
    mark tests
    mark ready
}

# --- Large tools: they need a compiler, root or hundreds of megabytes

# A tool that cannot be installed does not affect the others; the check runs without it.
larger_tools() {
    once tests-all install_larger
    has_chromium || install_chromium
}

# If one fails, no mark is written, so that the next --all tries again.
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

# Prints the requirements of [test-all], one a line, or with --absent the names of those missing in .venv.
larger() { "$venv/bin/python" "$root/packaging/larger.py" "$@"; }

# --- The browser of the tests

# Succeeds with the system's browser (tests/helpers/browser.py has the same names), or with Playwright's if its libraries exist.
has_chromium() {
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" >/dev/null && return
    done
    "$venv/bin/python" -c 'import subprocess, playwright.sync_api as p
with p.sync_playwright() as w: exit(subprocess.call([w.chromium.executable_path, "--version"]))' >/dev/null 2>&1
}

# On Debian root installs the system's package; other users install Playwright's into their cache.
install_chromium() {
    say "[+] Chromium, for the tests of the window"
    if [ -e "${DEBIAN:-/etc/debian_version}" ] && [ "$(id -u)" = 0 ]; then
        { apt-get update && apt-get install -y --no-install-recommends chromium; } >>"$log" 2>&1 && return
    fi
    "$venv/bin/python" -m playwright install --no-shell chromium >>"$log" 2>&1 || :
}

# --- Which tests run, and the last line

# Prints the marks of the tests to run, for pytest, or nothing for all tests.
marks() {
    if [ -n "$quick" ]; then
        echo "not process and not slow"
    elif [ -z "$all$slow" ]; then
        echo "not slow"
    fi
}

# Prints which tests are left out and how to add them, or nothing.
left_out() {
    absent=$(larger --absent)
    has_chromium || absent="$absent Chromium"
    [ -z "$absent" ] || absent=$(printf '%s, ' $absent)
    absent=${absent:+the tests that need ${absent%, }}
    case $marks in
    *process*) unmarked="the tests that are not quick" ;;
    *slow*) unmarked="the slow tests" ;;
    *) unmarked= ;;
    esac
    [ -n "$unmarked$absent" ] || return 0
    said="left out were $unmarked${unmarked:+${absent:+ and }}$absent"
    if [ -n "$all" ] && [ -n "$absent" ]; then
        echo "$said, which could not be installed. To try again: sh packaging/check --all (log: $log)"
    elif [ -n "$absent" ]; then
        echo "$said. To add them: sh packaging/check --all"
    else
        echo "$said. To add them: sh packaging/check --slow"
    fi
}
