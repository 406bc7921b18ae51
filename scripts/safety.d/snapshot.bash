# Snapshots of the servers and the host, and their comparison.
#
# snapshot DIR writes a file for each kind of thing. Only reads.

# Not compared: what these variables show moves by itself (the GTIDs are compared with the binary log).
MOVING='^(timestamp|gtid_[a-z_]*(pos|state|executed|purged))\s'

snapshot() {
  local to=$1
  rm -rf "$to"
  mkdir -p "$to"
  local server
  for server in primary replica; do
    sql $server -e 'SELECT 1' >"$to/$server-answers" 2>/dev/null || return 0
  done
  settle_sessions
  wait_for_replica || true # then its position differs
  sql primary -e 'SHOW GLOBAL VARIABLES' | grep -vE "$MOVING" >"$to/variables"
  performance_schema "$to"
  data primary >"$to/data"
  accounts >"$to/accounts"
  plugins >"$to/plugins"
  sessions >"$to/sessions"
  binary_log >"$to/binary-log"
  data replica >"$to/replica"
  slave_status Relay_Master_Log_File Exec_Master_Log_Pos Executed_Gtid_Set Gtid_IO_Pos \
    Slave_IO_Running Slave_SQL_Running Last_Errno >>"$to/replica"
  processes "$to/processes"
  network >"$to/network"
  files >"$to/files"
  [ -z "$cgroups" ] || find "$cgroups" -mindepth 1 -type d >"$to/cgroups"
  run_directory >"$to/run"
}

# The server needs a moment to notice that a client has gone.
settle_sessions() {
  local tries
  for tries in {1..30}; do
    [ -n "$(sessions)" ] || break
    pause 0.1
  done
}

# What is logged in but for ourselves and the replica.
sessions() {
  sql primary -e "SELECT user, command, info FROM information_schema.processlist
    WHERE user NOT IN ('root', 'repl', 'system user', 'event_scheduler')"
}

performance_schema() {
  local table
  for table in $(sql primary -e "SELECT table_name FROM information_schema.tables
    WHERE table_schema = 'performance_schema' AND table_name LIKE 'setup\\_%' ORDER BY 1"); do
    sql primary -e "SELECT * FROM performance_schema.$table" | sort >"$1/$table"
  done
}

# Schemas, tables with what they hold, and whatever else is kept in schemas.
data() {
  local tables
  sql "$1" -e "
    SELECT 'schema', schema_name, default_character_set_name FROM information_schema.schemata ORDER BY 2;
    SELECT table_type, table_schema, table_name, engine, create_options FROM information_schema.tables
      WHERE table_schema NOT IN ('information_schema', 'performance_schema', 'sys') ORDER BY 2, 3;
    SELECT routine_type, routine_schema, routine_name FROM information_schema.routines
      WHERE routine_schema <> 'sys' ORDER BY 2, 3;
    SELECT 'trigger', trigger_schema, trigger_name FROM information_schema.triggers
      WHERE trigger_schema <> 'sys' ORDER BY 2, 3;
    SELECT 'event', event_schema, event_name, status FROM information_schema.events ORDER BY 2, 3"
  tables=$(sql "$1" -e "SELECT CONCAT('\`', table_schema, '\`.\`', table_name, '\`') FROM information_schema.tables
    WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
    ORDER BY 1" | paste -sd,)
  sql "$1" -e "CHECKSUM TABLE $tables"
}

accounts() {
  local table
  for table in $(sql primary -e "SELECT table_name FROM information_schema.tables
    WHERE table_schema = 'mysql' AND table_name IN ('user', 'global_priv', 'global_grants', 'db', 'tables_priv',
      'columns_priv', 'procs_priv', 'proxies_priv', 'roles_mapping', 'role_edges', 'default_roles', 'servers')
    ORDER BY 1"); do
    echo "== $table"
    sql primary -e "SELECT * FROM mysql.$table" | sort
  done
}

plugins() {
  sql primary -e "
    SELECT plugin_name, plugin_status, plugin_library FROM information_schema.plugins ORDER BY 1;
    SELECT * FROM mysql.plugin ORDER BY 1;
    SELECT * FROM mysql.func ORDER BY 1"
}

# Where it stands, and what was written since $logged_from (see run_every_arm and run_kills).
binary_log() {
  local file=${logged_from% *} position=${logged_from#* }
  sql primary -e "
    $binary_log_status;
    SHOW BINARY LOGS;
    SHOW GLOBAL VARIABLES WHERE Variable_name REGEXP '^gtid_.*(pos|state|executed|purged)$'"
  # A row event's text holds a table's number; how many there are of each kind says enough.
  sql primary -e "SHOW BINLOG EVENTS IN '$file' FROM $position" |
    awk -F '\t' '{ n[$3 == "Query" ? $3 " " substr($6, 1, 60) : $3]++ }
      END { for (kind in n) print "written since:", n[kind], kind }' | sort
}

# Every process is this script, a server or left behind: there are no others in here.
# Into $1, without a process of its own meanwhile.
processes() {
  local pid name state words known=" $$ ${server_pid[*]} "
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    [[ $known != *" $pid "* ]] || continue
    { name=$(</proc/"$pid"/comm) && mapfile -d '' -t words </proc/"$pid"/cmdline &&
      state=$(sed 's/.*) \(.\).*/\1/' "/proc/$pid/stat"); } 2>/dev/null || continue
    # Ended, and not yet taken note of by its parent.
    [ "$state" != Z ] || continue
    printf '%s: %s' "$name" "${words[*]:0:12}"
    ! tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -q '^TOLL_RUN=' || printf ' (TOLL_RUN)'
    printf '\n'
  done >"$1"
  sort -o "$1" "$1"
}

network() {
  ip netns list
  # Neither counters nor numbers, which go up with each link that was ever made.
  ip -o link show | sed 's/^[0-9]*: //'
  ip -o address show | sed 's/^[0-9]*: //'
  tc qdisc show
}

# Names, owners and modes; servers write all the time, so neither sizes nor times.
files() {
  local place
  for place in /tmp /run/netns $root/runs $root/home $root/state; do
    # Where a journal lies is made once and stays; the run itself is looked at by run_directory.
    find $place -mindepth 1 -path $run -prune -o -type d -path "$root/state/*" -o -printf '%M %u %g %p\n'
  done | sort
  # Left out: temporary tables, which servers make and drop as they like; and Aria's log, which rotates.
  for place in primary replica; do
    find $root/$place -mindepth 1 \( -path '*/tmp/*' -o -name '#*' -o -name 'aria_log.*' -o -name 'ibtmp*' \) -prune \
      -o ! -path '*/data/performance_schema/*' -printf '%M %u %g %p\n'
  done | sort
}

# Prints what differs between two snapshots and adds it up; what differed just like this in the snapshot
# named last was told before, and is named but not counted again.
compare() {
  local when=$1 before=$2 after=$3 told=${4-} file name lines count found=0 known=''
  for file in "$before"/* "$after"/*; do
    name=${file##*/}
    [[ $file = "$before"/* ]] || [ ! -e "$before/$name" ] || continue
    lines=$(diff --new-file "$before/$name" "$after/$name" | sed -n 's/^< /- /p; s/^> /+ /p') || true
    [ -n "$lines" ] || continue
    if [ -n "$told" ] && cmp -s "$told/$name" "$after/$name"; then
      known+=" $name"
      continue
    fi
    # A row that changed is one difference, not two.
    count=$(awk '/^-/ { gone++ } /^[+]/ { new++ } END { print (gone > new ? gone : new) + 0 }' <<<"$lines")
    found=$((found + count))
    printf '  DIFFERENCE %s: %s (%d)\n' "$when" "$name" "$count"
    sed -n '1,12s/^/    /p' <<<"$lines" | cut -c 1-180
    [ "$(wc -l <<<"$lines")" -le 12 ] || printf '    ... and %d lines more\n' $(($(wc -l <<<"$lines") - 12))
  done
  [ -z "$known" ] || printf '  %s the same differs as before it:%s\n' "$when" "$known"
  differences=$((differences + found))
  [ $found = 0 ]
}
