# Private server for the benchmarks, MariaDB or with MYSQLD (its program) MySQL. It ends with the script that sourced this.
#
# Gives: need TOOL..., $scratch (gone at the end), start_server PORT [OPTION...] with $server (its
# pid) and $socket, stop_server; start_replica PORT PRIMARYS-PORT [OPTION...] of a server with "${replicated[@]}"; link_namespaces with $send and $receive (gone at the end) and $device.

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

# The program of a server in that directory, with a new data directory.
prepare_server() {
  local place=$1 here
  here=(--no-defaults --user="$(id -un)" --datadir="$place/data")
  if [ -n "${MYSQLD:-}" ]; then
    program=("$MYSQLD" "${here[@]}" --mysqlx=OFF --secure-file-priv=)
    "$MYSQLD" "${here[@]}" --initialize-insecure >"$place/install.log" 2>&1
  else
    need mariadbd mariadb-install-db
    program=(mariadbd "${here[@]}")
    mariadb-install-db "${here[@]}" --auth-root-authentication-method=normal --skip-test-db >"$place/install.log" 2>&1
  fi
}

# Starts it; its pid is $!.
run_server() {
  local place=$1 port=$2
  shift 2
  "${program[@]}" --socket="$place/s" --port="$port" --bind-address=127.0.0.1 --skip-log-bin --pid-file="$place/pid" "$@" \
    >"$place/log" 2>&1 &
  for _ in $(seq 300); do [ -S "$place/s" ] && return; sleep 0.1; done
  echo "the server did not start:"
  tail -5 "$place/log"
  exit 1
}

start_server() {
  local program
  prepare_server "$scratch"
  run_server "$scratch" "$@"
  server=$!
}

# What a server that is followed needs, and one that follows.
replicated=(--server-id=1 --log-bin=bin)
[ -z "${MYSQLD:-}" ] || replicated+=(--gtid-mode=ON --enforce-gtid-consistency)

# A server that follows the one at PRIMARYS-PORT, with a directory of its own.
start_replica() {
  local port=$1 primary=$2 place=$scratch/replica-$1 program follow
  shift 2
  mkdir "$place"
  prepare_server "$place"
  run_server "$place" "$port" "${replicated[@]}" --server-id="$port" "$@"
  ending+=($!)
  follow="CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=$primary, MASTER_USER='root', MASTER_USE_GTID=slave_pos; START SLAVE"
  [ -z "${MYSQLD:-}" ] || follow="CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=$primary, SOURCE_USER='root',
    SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1; START REPLICA"
  mariadb --no-defaults --socket="$place/s" --user=root -e "$follow"
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
