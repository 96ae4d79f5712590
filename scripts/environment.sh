# Sourced by the scripts beside it: finds a Python, makes a virtual environment, installs into it once.
# shellcheck shell=bash

fail() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

# Prints the first Python from 3.11 to 3.13; PYTHON in the environment comes first.
find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.12 python3.13 python3.11 python; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
    done
    fail "expected Python 3.11 to 3.13, found $(python3 --version 2>/dev/null || echo none). Install one" \
        "(Debian, Ubuntu: apt-get install python3 python3-venv) or name one with PYTHON=/path/to/python"
}

# make_venv FOLDER: a working virtual environment there; a broken or half-made one is made again.
make_venv() {
    local folder=$1 python log
    if "$folder/bin/python" -m pip --version >/dev/null 2>&1 &&
        "$folder/bin/python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'; then
        return
    fi
    python=$(find_python)
    rm -rf "$folder"
    log=$(mktemp)
    if ! "$python" -m venv "$folder" >"$log" 2>&1; then
        rm -rf "$folder"
        if grep -q ensurepip "$log"; then
            fail "$python has no venv module. Install it (Debian, Ubuntu: apt-get install python3-venv)"
        fi
        fail "$python -m venv $folder failed: $(tail -n 1 "$log")"
    fi
    rm -f "$log"
}

# install_once FOLDER NAME FILE... -- PIP_ARGUMENTS...: runs pip unless NAME was installed from the same FILEs and arguments.
install_once() {
    local folder=$1 name=$2 stamp want log
    shift 2
    local files=()
    while [ "$1" != -- ]; do
        files+=("$1")
        shift
    done
    shift
    stamp="$folder/.installed-$name"
    want=$(
        printf '%s\n' "$@"
        [ ${#files[@]} -eq 0 ] || cat "${files[@]}"
    )
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
        return
    fi
    printf 'installing %s (the first time this downloads packages)\n' "$name" >&2
    log=$(mktemp)
    if ! "$folder/bin/python" -m pip install --disable-pip-version-check "$@" >"$log" 2>&1; then
        local reason
        reason=$(grep -E '^(ERROR|error)' "$log" | head -n 1)
        fail "pip could not install $name: ${reason:-$(tail -n 1 "$log")} (whole log: $log)"
    fi
    rm -f "$log"
    printf '%s\n' "$want" >"$stamp"
}
