# Existing servers for toll: a primary that has long been in use, and its replica, both as user mysql.
#
# Its settings differ from every default that an arm touches, so that what is put back to a default
# shows. A copy of both is kept: after a difference the next run finds them as the first did.

primary_port=3306 replica_port=3307
declare -A server_pid=()
is_mariadb=no binary_log_status='SHOW MASTER STATUS' says_source=no
server_version=$("$mysqld" --no-defaults --version 2>/dev/null | sed -E 's/.* Ver ([^ ]+).*/\1/')
case $server_version in
  *MariaDB*) is_mariadb=yes ;;
  # MySQL 8.4 has neither a master nor a slave.
  8.[0-3].* | 5.*) ;;
  *) says_source=yes binary_log_status='SHOW BINARY LOG STATUS' ;;
esac

# As root over the socket: sql primary 'SHOW ...'
sql() {
  local server=$1
  shift
  mariadb --no-defaults --user=root --socket="$root/$server/sock" --batch --skip-column-names "$@"
}

configure() {
  local server=$1 port=$2 home=$root/$1
  mkdir -p "$home"/{log,tmp}
  chown mysql: "$home" "$home"/{log,tmp}
  cat >"$home/my.cnf" <<END
[mysqld]
user = mysql
datadir = $home/data
tmpdir = $home/tmp
socket = $home/sock
pid_file = $home/data/pid
log_error = $home/log/error.log
port = $port
bind_address = 127.0.0.1
skip_name_resolve = ON
server_id = $port
log_bin = binlog
binlog_format = ROW
sync_binlog = 0
performance_schema = ON
innodb_buffer_pool_size = 64M
loose_innodb_log_file_size = 16M
innodb_flush_log_at_trx_commit = 2
log_output = TABLE,FILE
slow_query_log = ON
slow_query_log_file = $home/log/own-slow.log
long_query_time = 2.5
log_queries_not_using_indexes = ON
general_log = OFF
general_log_file = $home/log/own-general.log
[mariadb]
log_slow_verbosity = query_plan
log_slow_rate_limit = 2
log_slow_filter = admin,filesort,full_scan
plugin_maturity = unknown
END
  if [ $is_mariadb = no ]; then
    cat >>"$home/my.cnf" <<END
[mysqld]
basedir = ${mysqld%/*/*}
mysqlx = OFF
gtid_mode = ON
enforce_gtid_consistency = ON
log_slow_extra = ON
secure_file_priv =
END
  fi
  if [ $server = replica ]; then
    printf 'read_only = ON\nrelay_log = relay\n' | sed '1i [mysqld]' >>"$home/my.cnf"
  elif [ $is_mariadb = yes ] && knows_audit; then
    cat >>"$home/my.cnf" <<END
[mariadb]
plugin_load_add = server_audit
server_audit_logging = ON
server_audit_events = CONNECT
server_audit_file_path = $home/log/own-audit.log
server_audit_file_rotate_size = 20000000
server_audit_excl_users = repl
END
  fi
}

knows_audit() {
  "$mysqld" --no-defaults --user=mysql --plugin-load-add=server_audit --help --verbose 2>/dev/null |
    grep '^server-audit-logging' >/dev/null
}

start() {
  local server home
  for server in "$@"; do
    home=$root/$server
    env -i PATH="$PATH" TMPDIR="$home/tmp" "$mysqld" --defaults-file="$home/my.cnf" >"$home/log/out" 2>&1 </dev/null &
    server_pid[$server]=$!
  done
  for server in "$@"; do
    local tries=0
    until sql "$server" -e 'SELECT 1' >/dev/null 2>&1; do
      pause 0.1
      [ $((++tries)) -lt 600 ] && [ -e "/proc/${server_pid[$server]}" ] || {
        tail -n 20 "$root/$server"/log/{out,error.log} >&2
        complain "the $server does not start"
      }
    done
  done
}

stop() {
  local server
  for server in "$@"; do
    sql "$server" -e SHUTDOWN
    wait "${server_pid[$server]}" || true
  done
}

make_servers() {
  say "making a primary and a replica"
  configure primary $primary_port
  configure replica $replica_port
  mkdir -m 700 $root/primary/data
  chown mysql: $root/primary/data
  local initialize=("$mysqld" --no-defaults --initialize-insecure --basedir="${mysqld%/*/*}")
  [ $is_mariadb = no ] ||
    initialize=(mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db)
  "${initialize[@]}" --user=mysql --loose-innodb-log-file-size=16M --datadir=$root/primary/data \
    >$root/primary/log/out 2>&1 || complain "no data directory: $(tail -n 3 $root/primary/log/out)"
  [ $is_mariadb = no ] || chmod 755 $root/primary/data # as Debian has it
  cp -a $root/primary/data $root/replica/data
  rm -f $root/replica/data/auto.cnf # two servers, two identities
  start primary replica
  replicate
  sql primary <"$here/life.sql"
  add_accounts
  follow
  stop primary replica
  mkdir $root/kept
  cp -a $root/primary/data $root/kept/primary
  cp -a $root/replica/data $root/kept/replica
  start primary replica
  resume
}

replicate() {
  local file position change start='START SLAVE'
  sql primary -e "
    CREATE USER repl@'127.0.0.1' IDENTIFIED BY 'repl-secret';
    GRANT REPLICATION SLAVE ON *.* TO repl@'127.0.0.1'"
  read -r file position _ < <(sql primary -e "$binary_log_status")
  change="CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=$primary_port, MASTER_USER='repl',
    MASTER_PASSWORD='repl-secret', MASTER_CONNECT_RETRY=1, MASTER_LOG_FILE='$file', MASTER_LOG_POS=$position"
  # Its passwords go over TLS or with the server's key, which a replica must be told to ask for.
  [ $is_mariadb = yes ] || change+=', GET_MASTER_PUBLIC_KEY=1'
  if [ $says_source = yes ]; then
    change=${change/CHANGE MASTER/CHANGE REPLICATION SOURCE}
    change=${change//MASTER_/SOURCE_}
    start='START REPLICA'
  fi
  sql replica -e "$change; $start"
}

# The one that toll is given, in an option file, and others that it has nothing to do with.
add_accounts() {
  (umask 077 && cat >$root/toll.cnf) <<END
[client]
user = toll
password = "it is #1"
host = 127.0.0.1
port = $primary_port
END
  # Over loopback, which is this namespace's own.
  [ $is_mariadb = yes ] || echo 'get-server-public-key = on' >>$root/toll.cnf
  sql primary -e "
    CREATE USER toll@'127.0.0.1' IDENTIFIED BY 'it is #1', toll@localhost IDENTIFIED BY 'it is #1';
    GRANT ALL ON *.* TO toll@'127.0.0.1';
    GRANT ALL ON *.* TO toll@localhost;
    CREATE USER app@'%' IDENTIFIED BY 'app-secret', report@localhost IDENTIFIED BY 'report-secret';
    GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app@'%';
    GRANT SELECT ON billing.* TO report@localhost"
}

wait_for_replica() {
  local file position there tries=0
  read -r file position _ < <(sql primary -e "$binary_log_status")
  until there=$(slave_status Relay_Master_Log_File Exec_Master_Log_Pos) && [ "$there" = "$file $position" ]; do
    pause 0.1
    [ $((++tries)) -lt 200 ] || return 1
  done
}

# Values of these fields, in this order, in one line; by the names that all servers but the newest have.
slave_status() {
  local statement='SHOW SLAVE STATUS\G'
  [ $says_source = no ] || statement='SHOW REPLICA STATUS\G'
  sql replica --column-names -e "$statement" | sed 's/Source_/Master_/; s/Replica_/Slave_/' |
    awk -F ': ' -v names="$*" '
      { gsub(/ /, "", $1); value[$1] = $2 }
      END {
        n = split(names, name, " ")
        for (i = 1; i <= n; i++) printf "%s%s", (i > 1 ? " " : ""), value[name[i]]
        print ""
      }'
}

# What is set by hand on a server that runs, and lost with it.
resume() {
  sql primary <"$here/by-hand.sql"
  follow
}

follow() {
  wait_for_replica || complain "the replica does not follow: $(slave_status Last_IO_Error Last_SQL_Error)"
}

# As on the first day, whatever was done to them and to the host.
restore() {
  empty_host
  local server
  for server in primary replica; do
    rm -rf "$root/$server"/{data,log,tmp,sock*}
    mkdir "$root/$server"/{log,tmp}
    chown mysql: "$root/$server"/{log,tmp}
    cp -a $root/kept/$server "$root/$server/data"
  done
  start primary replica
  resume
}
