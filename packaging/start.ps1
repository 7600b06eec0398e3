# Runs localctx with the arguments given, on Windows, as packaging/start does elsewhere: the first time it installs it
# into .venv, with bitsandbytes where there is an NVIDIA GPU; and llama.cpp when a GGUF is named first. Built, not run
# there: powershell -ExecutionPolicy Bypass -File packaging\start.ps1 ask report.pdf "What was decided?"
$ErrorActionPreference = 'Stop'

$root = Split-Path -Parent $PSScriptRoot
$venv = Join-Path $root '.venv'
$log = Join-Path $venv 'install.log'
$venvPython = Join-Path $venv 'Scripts\python.exe'
$toml = Get-Content -Raw -Encoding UTF8 -LiteralPath (Join-Path $root 'pyproject.toml')
$project = (Get-FileHash -Algorithm SHA256 -LiteralPath (Join-Path $root 'pyproject.toml')).Hash
$env:PIP_DISABLE_PIP_VERSION_CHECK = '1'
$script:python = @()
$script:version = ''

function say([string]$line) { [Console]::Error.WriteLine($line) }
function die([string]$line) { say "localctx: $line"; exit 1 }

# Runs a program and returns its exit code. What it prints goes to stderr: stdout belongs to the command at the end.
function run([string]$program, [string[]]$arguments) {
    & $program @arguments | ForEach-Object { say $_ }
    return $LASTEXITCODE
}

# --- Marks: files in .venv that are written last, so that an incomplete environment has none

function state { return "$project in $root with " + (base_of $venv) }
function base_of([string]$folder) {
    $file = Join-Path $folder 'pyvenv.cfg'
    if (-not (Test-Path -LiteralPath $file)) { return '' }
    return [string](Get-Content -LiteralPath $file | Where-Object { $_ -match '^version' } | Select-Object -First 1)
}
function marked([string]$name) {
    $file = Join-Path $venv $name
    if (Test-Path -LiteralPath $file) { return [string](Get-Content -Raw -Encoding UTF8 -LiteralPath $file) }
    return ''
}
function is_done([string]$name) { return (marked $name).Trim() -eq (state).Trim() }
function mark([string]$name) { Set-Content -Encoding UTF8 -LiteralPath (Join-Path $venv $name) -Value (state) }
function unmark { Move-Item -Force -LiteralPath (Join-Path $venv 'ready') -Destination (Join-Path $venv 'was-ready') }
function remark {
    $old = Join-Path $venv 'was-ready'
    if (Test-Path -LiteralPath $old) { Move-Item -Force -LiteralPath $old -Destination (Join-Path $venv 'ready') }
}

# Runs a step alone, unless its mark exists. The lock is an open file that no other process may open meanwhile.
function once([string]$name, [scriptblock]$step) {
    if (is_done $name) { return }
    find_python
    New-Item -ItemType Directory -Force -Path $venv | Out-Null
    $lock = lock
    try { if (-not (is_done $name)) { & $step } } finally { $lock.Close() }
}
function lock {
    $told = $false
    while ($true) {
        try { return [IO.File]::Open("$venv.lock", 'OpenOrCreate', 'ReadWrite', 'None') } catch [IO.IOException] {
            if (-not $told) { say "Another installation is at work in $venv, waiting for it." }
            $told = $true
            Start-Sleep -Milliseconds 500
        }
    }
}

# --- Python

# Sets $python (a command and its first arguments) and $version. Candidates are run: an alias may lead to a shop.
function find_python {
    $candidates = @(@('py', '-3'), @('python'), @('python3'))
    if ($env:LOCALCTX_PYTHON) { $candidates = @(, @($env:LOCALCTX_PYTHON)) + $candidates }
    foreach ($candidate in $candidates) {
        $found = probe $candidate
        if ($found) {
            $script:python = $candidate
            $script:version = $found
            return
        }
    }
    die ('needs Python 3.11 or newer, and found none. Install one from python.org, ' +
        'or name it (LOCALCTX_PYTHON=C:\path\to\python.exe), then run this again.')
}
function probe([string[]]$candidate) {
    if (-not (Get-Command $candidate[0] -ErrorAction SilentlyContinue)) { return '' }
    $code = "import sys, venv, ensurepip; v = sys.version_info; v >= (3, 11) or sys.exit(1); print('%d.%d.%d' % v[:3])"
    $rest = @($candidate | Select-Object -Skip 1) + @('-c', $code)
    try { $said = & $candidate[0] @rest } catch { return '' }
    if ($LASTEXITCODE -eq 0) { return [string]$said }
    return ''
}

# --- Installation

function install {
    make_venv
    install_torch
    say '[3/4] localctx and its libraries'
    need 'localctx and its libraries' @('install', '-e', $root)
    if (has_gpu) { install_gpu }
    mark 'ready'
    say '[4/4] ready'
}

# Updates a complete environment of an older pyproject.toml; makes any other anew.
function make_venv {
    if ((marked 'ready').Contains(" in $root with " + (base_of $venv)) -and (Test-Path -LiteralPath $venvPython)) {
        say '[1/4] pyproject.toml has changed, bringing .venv up to date'
        unmark
    }
    else {
        say "[1/4] Python $version, making .venv"
        $rest = @($python | Select-Object -Skip 1) + @('-m', 'venv', '--clear', $venv)
        if ((run $python[0] $rest) -ne 0) { die "cannot make $venv. Is the disk full?" }
    }
    Remove-Item -Force -ErrorAction SilentlyContinue -LiteralPath $log
    pip @('install', '--upgrade', 'pip') | Out-Null  # the old version works too
}

# Installed first and separately, because the machine decides which build is needed. PyPI has that for processors; the
# build for CUDA outranks it where PyTorch's index has one.
function install_torch {
    $torch = [regex]::Match($toml, '"(torch==[^"]*)"').Groups[1].Value
    $release = $torch.Replace('torch==', '').Replace('.*', '')
    if (has_gpu) {
        say "[2/4] torch $release, CUDA build (some gigabytes)"
        $cuda = 'https://download.pytorch.org/whl/cu130'
        need $torch @('install', '--extra-index-url', $cuda, $torch)
    }
    else {
        say "[2/4] torch $release"
        need $torch @('install', $torch)
    }
}

# Succeeds with an NVIDIA GPU: its driver brings nvidia-smi along.
function has_gpu {
    if (-not (Get-Command nvidia-smi -ErrorAction SilentlyContinue)) { return $false }
    try { return [bool](& nvidia-smi -L | Where-Object { $_ -match '^GPU' }) } catch { return $false }
}

# bitsandbytes, for weights in int8 and nf4. All else works without it, so the installation goes on where it fails.
function install_gpu {
    $packer = [regex]::Match($toml, '(?m)^gpu = \["([^"]*)"').Groups[1].Value
    say "[+] $packer, for --weights int8 and nf4 on the GPU"
    if ((pip @('install', $packer)) -ne 0) {
        say "localctx: $packer could not be installed, so --weights int8 and nf4 are refused; all else works. Log: $log"
    }
}

# Runs pip with arguments; if it fails, ends with a message about what.
function need([string]$what, [string[]]$arguments) {
    if ((pip $arguments) -eq 0) { return }
    remark
    die ("pip could not install $what. Is the network up, and is there room on the disk? Then run this again. " +
        "Log: $log")
}
function pip([string[]]$arguments) { return run $venvPython (@('-m', 'pip', '--log', $log) + $arguments) }

# --- llama.cpp, which runs GGUF files: it is compiled, so it is installed when one is named first

function names_gguf([string[]]$given) {
    $before = '--model'
    foreach ($argument in @($env:LOCALCTX_MODEL, $env:LOCALCTX_ENGINE) + $given) {
        if ($argument -like '*.gguf' -or $argument -in @('llama.cpp', '--engine=llama.cpp')) { return $true }
        if ($argument -like '--model=*' -and (is_gguf $argument.Substring(8))) { return $true }
        if ($before -eq '--model' -and (is_gguf $argument)) { return $true }
        $before = $argument
    }
    return $false
}

# A pattern of files of a hub repository (owner/name:*Q4_K_M*), or a folder of GGUF files.
function is_gguf([string]$name) {
    if (-not $name) { return $false }
    if ($name -match '^[^:\\]+/[^:\\]+:.') { return $true }
    if (-not (Test-Path -PathType Container -LiteralPath $name)) { return $false }
    if (Test-Path -LiteralPath (Join-Path $name 'config.json')) { return $false }
    return [bool](Get-ChildItem -LiteralPath $name -Filter '*.gguf' | Select-Object -First 1)
}

# Marked as done even where it fails: all else works without it, and a second try would take minutes again.
function install_gguf {
    $llama = [regex]::Match($toml, '(?m)^gguf = \["([^"]*)"').Groups[1].Value
    say 'llama.cpp, for GGUF files: it is compiled, which takes some minutes and needs a C++ compiler'
    if ((pip @('install', $llama)) -ne 0) {
        say ("localctx: llama.cpp could not be compiled (log: $log), all else works. To try again, install the build " +
            "tools of Visual Studio and cmake, then delete $(Join-Path $venv 'gguf')")
    }
    mark 'gguf'
}

once 'ready' { install }
if (names_gguf $args) { once 'gguf' { install_gguf } }
$given = if ($args.Count) { $args } else { @('--help') }
& (Join-Path $venv 'Scripts\localctx.exe') @given
exit $LASTEXITCODE
