# Sourced by the scripts beside it: makes .venv in the checkout, from nothing but a Python >= 3.11.
#
#   make_env run    what the package needs, with both provider SDKs
#   make_env dev    that, and the tools of tests and checks
#
# A stamp inside .venv holds the checksum of pyproject.toml. While it matches, nothing is installed
# and no network is used. It is written last, so an interrupted setup is done again.

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
venv=$root/.venv
cd "$root" || exit 1

# Names may exist and still not run (version managers put a shim for every version they know), so
# each candidate is tried.
find_python() {
    for candidate in python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    echo "agentkit needs Python 3.11 or newer, and none of python3.13, python3.12, python3.11 and" \
        "python3 on PATH is that. Install one, put it on PATH and run this again." >&2
    return 1
}

make_env() {
    wanted=$(cksum <pyproject.toml)
    for stamp in "$venv/.stamp-dev" "$venv/.stamp-$1"; do
        if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$venv/bin/python" -c '' 2>/dev/null; then
            return
        fi
    done
    python=$(find_python) || exit 1
    echo "setting up .venv with $("$python" --version) ..." >&2
    rm -f "$venv/.stamp-dev" "$venv/.stamp-run"
    "$python" -m venv --clear "$venv" || exit 1
    # Dependency groups came with pip 25.1; the pip inside a new venv is often older.
    "$venv/bin/pip" install -qq --upgrade 'pip>=25.1' || exit 1
    if [ "$1" = dev ]; then
        "$venv/bin/pip" install -qq --group dev --editable '.[all]' || exit 1
    else
        "$venv/bin/pip" install -qq --editable '.[all]' || exit 1
    fi
    printf '%s\n' "$wanted" >"$venv/.stamp-$1"
}
