# Private server for the benchmarks, MariaDB or with MYSQLD (its program) MySQL. It ends with the script that sourced this.
#
# Gives: need TOOL..., $scratch (gone at the end), start_server PORT [OPTION...] with $server (its
# pid) and $socket, stop_server; link_namespaces with $send and $receive (gone at the end) and $device.

# The head of the script, where its help is asked for.
case ${1:-} in -h | --help) awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "bench/${0##*/}"; exit 0 ;; esac
scratch=$(mktemp -d)
export TMPDIR=$scratch # in a shared one, servers delete each other's temporary tables
socket=$scratch/s server='' ending=()
# ending: further processes of the script, to be ended before the server.
cleanup() { kill "${ending[@]}" $server 2>/dev/null || true; wait 2>/dev/null; remove_namespaces; rm -rf "$scratch"; }
trap cleanup EXIT

send=toll-bench-$$-send receive=toll-bench-$$-receive device=link0
remove_namespaces() { ip netns del $send 2>/dev/null || true; ip netns del $receive 2>/dev/null || true; }

# Two network namespaces with a link between them, which carries no packets of the kernel's own.
link_namespaces() {
  local ns
  for ns in $send $receive; do
    ip netns add $ns
    ip netns exec $ns sysctl -q -w net.ipv6.conf.default.disable_ipv6=1
  done
  ip -n $send link add $device type veth peer name $device netns $receive
  for ns in $send $receive; do ip -n $ns link set $device up; done
}

need() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is missing (make setup)"; exit 0; }
  done
}

start_server() {
  local port=$1 program here=(--no-defaults --user="$(id -un)" --datadir="$scratch/data")
  shift
  if [ -n "${MYSQLD:-}" ]; then
    program=("$MYSQLD" "${here[@]}" --mysqlx=OFF --secure-file-priv=)
    "$MYSQLD" "${here[@]}" --initialize-insecure >"$scratch/install.log" 2>&1
  else
    need mariadbd mariadb-install-db
    program=(mariadbd "${here[@]}")
    mariadb-install-db "${here[@]}" --auth-root-authentication-method=normal --skip-test-db >"$scratch/install.log" 2>&1
  fi
  "${program[@]}" --socket="$socket" --port="$port" --bind-address=127.0.0.1 --skip-log-bin --pid-file="$scratch/pid" \
    "$@" >"$scratch/log" 2>&1 &
  server=$!
  for _ in $(seq 300); do [ -S "$socket" ] && return; sleep 0.1; done
  echo "the server did not start:"
  tail -5 "$scratch/log"
  exit 1
}

stop_server() {
  kill "$server" && wait "$server" || true
  server=
}

# Median, lowest and highest of the values on standard input, under a name.
summary() {
  sort -n | awk -v name="$1" '{v[NR]=$1} END {m = NR%2 ? v[(NR+1)/2] : (v[NR/2]+v[NR/2+1])/2
    printf "  %-38s median %10.2f  lowest %10.2f  highest %10.2f\n", name, m, v[1], v[NR]}'
}
