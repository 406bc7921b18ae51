#!/usr/bin/env bash
# Growth of a backup store and a git repository when a database changes a little between backups.
#
# One private server with the tables of a web site, text-heavy and narrow; a first backup, then nine more, each after
# 1% of the rows of each table has changed: those that were made last (`recent`), or any (`scattered`). Kept by toll
# in a folder and in git, and beside it what others make of the same dump: restic (if it is here), git with the dump
# as one file, and gzip. Prints bytes after each backup, and what the last nine have added, in shares of the first.
#
# Usage: bench/backup-growth.sh [MEGABYTES] ["MODE ..."] [BACKUPS]
#   TOLL: the program.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-100} modes=${2:-recent scattered} backups=${3:-10}
toll=$(realpath -m "${TOLL:-target/release/toll}")
source bench/server.bash
need mariadbd mariadb mariadb-dump git gzip
[ -x "$toll" ] || cargo build --release -p toll

start_server 33458 --innodb-buffer-pool-size=512M
sql() { mariadb --no-defaults -uroot -S "$socket" -N "$@"; }
export XDG_STATE_HOME=$scratch/state RESTIC_PASSWORD=bench
dsn="mysql://root@localhost/?socket=$socket"
options=(--single-transaction --quick --order-by-primary --skip-dump-date --skip-extended-insert --hex-blob
  --tz-utc --no-tablespaces --default-character-set=utf8mb4)

# Two thirds of the bytes are posts of about 3 kB, the rest narrow rows of about 100 bytes. Text is of words, so
# that it compresses as text does.
posts=$((megabytes * 1000000 * 2 / 3 / 3000)) events=$((megabytes * 1000000 / 3 / 100))
fill() {
  sql <<SQL
DROP DATABASE IF EXISTS site; CREATE DATABASE site; USE site;
CREATE TABLE posts (id INT PRIMARY KEY, title VARCHAR(200), body MEDIUMTEXT, edited INT) DEFAULT CHARSET utf8mb4;
CREATE TABLE events (id INT PRIMARY KEY, user INT, what VARCHAR(40), value INT UNSIGNED) DEFAULT CHARSET utf8mb4;
CREATE TEMPORARY TABLE words (w VARCHAR(12)); SET @seed = 7;
INSERT INTO words SELECT LEFT(MD5(seq), 3 + seq % 9) FROM seq_1_to_2000;
SET group_concat_max_len = 100000;
INSERT INTO posts SELECT p.seq, MD5(p.seq),
  CONCAT_WS(' ', MD5(p.seq), (SELECT GROUP_CONCAT(SUBSTRING(SHA2(CONCAT(p.seq, '-', n.seq DIV 4), 256), 1, 3 + n.seq % 9) SEPARATOR ' ')
    FROM seq_1_to_350 n)), 0 FROM seq_1_to_$posts p;
INSERT INTO events SELECT seq, CRC32(seq) % 10000, ELT(1 + seq % 4, 'view', 'click', 'search', 'comment'), CRC32(seq + 1) FROM seq_1_to_$events;
SQL
}
change() { # MODE NUMBER
  local where_posts where_events
  case $1 in
    recent) where_posts="id > $posts - $posts / 100" where_events="id > $events - $events / 100" ;;
    scattered) where_posts="CRC32(id + 7 * $2) % 100 = 0" where_events="CRC32(id + 7 * $2) % 100 = 0" ;;
  esac
  sql site -e "UPDATE posts SET edited = $2, title = MD5(CONCAT(id, $2)) WHERE $where_posts;
    UPDATE events SET value = CRC32(CONCAT(id, $2)) WHERE $where_events"
}
bytes() { du -sb --apparent-size "$1" 2>/dev/null | cut -f 1; }

for mode in $modes; do
  work=$scratch/$mode
  mkdir -p "$work/plain" "$work/gzip"
  git -C "$work/plain" init -q
  fill
  has_restic=no
  if command -v restic >/dev/null && restic -q -r "$work/restic" init >/dev/null; then has_restic=yes; fi
  : >"$work/table"
  for number in $(seq "$backups"); do
    [ "$number" = 1 ] || change "$mode" "$number"
    "$toll" backup --server "$dsn" --to "$work/store" --git "$work/git" >/dev/null
    mariadb-dump --no-defaults -uroot -S "$socket" "${options[@]}" --databases site >"$work/plain/dump.sql"
    dump=$(stat -c %s "$work/plain/dump.sql")
    gzip -c "$work/plain/dump.sql" >"$work/gzip/$number"
    git -C "$work/plain" add dump.sql
    git -C "$work/plain" -c user.name=b -c user.email=b commit -q -m "$number"
    git -C "$work/plain" -c gc.auto=0 repack -a -d -q
    restic=0
    if [ $has_restic = yes ]; then
      restic -q -r "$work/restic" backup --stdin --stdin-filename dump.sql <"$work/plain/dump.sql"
      restic=$(bytes "$work/restic")
    fi
    echo "$number $dump $(bytes "$work/store") $(bytes "$work/git") $restic $(bytes "$work/plain/.git") $(bytes "$work/gzip")" >>"$work/table"
  done
  echo "$mode: 1% of $posts posts and $events events changes between $backups backups; millions of bytes"
  awk 'BEGIN { print "backup dump toll-store toll-git restic plain-git gzip" }
    { printf "%d", $1; for (i = 2; i <= NF; i++) { printf " %.1f", $i / 1e6; if (NR == 1) first[i] = $i; last[i] = $i } print "" }
    END { printf "grown -"; for (i = 3; i <= NF; i++) if (first[i]) printf " %.0f%%", 100 * (last[i] - first[i]) / first[i]; else printf " -"; print "" }' \
    "$work/table" | column -t | sed 's/^/    /'
  rm -rf "$work"
done
