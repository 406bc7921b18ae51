# Trials: toll runs, kills of toll, and the checks in the meantime.
#
# A difference is followed by servers as on the first day, so that none hides the next.

run=$root/runs/run
logged_from=''

# To be started in the background: takes the place of its shell, so that signals reach it.
toll() {
  # A shell's children in the background ignore INT and QUIT unless told otherwise.
  exec env --default-signal=HUP,INT,QUIT,TERM,PIPE HOME=$root/home XDG_STATE_HOME=$root/state \
    XDG_CACHE_HOME=$root/cache TOLL_LOCK_DIR=$root/lock $root/toll "$@" </dev/null
}

# Starts a run over these arms; its pid is in $pid.
begin_run() {
  local seed=$RANDOM arms
  arms=$(IFS=,; echo "$*")
  rm -rf $run
  : >$root/seen
  umask $run_umask
  toll run tcpdump-impact --profile quick --arms "$arms" --rounds 1 --window 500ms --rows 500 --seed $seed \
    --server $root/toll.cnf --allow-schema toll_load --yes --out $run >$root/said 2>&1 &
  pid=$!
  umask 022
  : >$root/watching
  watch_permissions &
  watcher=$!
}

# Waits until $pid has ended, at most so many seconds; its exit code is in $code.
await() {
  local until=$((SECONDS + $1)) on_time=yes
  code=0
  {
    while [ -e /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; do
      pause 0.05
      [ $SECONDS -lt $until ] || { on_time=no; kill -KILL $pid; break; }
    done
    wait $pid || code=$?
  } 2>/dev/null # a shell tells of each child that was killed
  [ $on_time = yes ]
}

# The same of a run, which is then no longer watched.
end_run() {
  local on_time=yes
  await "$1" || on_time=no
  rm $root/watching
  wait $watcher
  [ $on_time = yes ]
}

# Everything in a run but its reports is its owner's alone, all the time; so is what the server writes
# for it elsewhere. Looks ten times a second.
watch_permissions() {
  while [ -e $root/watching ]; do
    readable_by_others
    find -L "/proc/${server_pid[primary]}/fd" -type f -perm /007 -exec readlink {} + 2>/dev/null |
      sed 's/^/the server writes, for all to read: /' || true
    pause 0.1
  done >>$root/seen
}

readable_by_others() {
  [ -d $run ] || return 0
  {
    find $run -maxdepth 0 -perm /022 -printf '%M %u .\n'
    find $run -mindepth 1 ! -type l ! -regex "$run/\.?\(report\.html\|result\.json\).*" \
      -perm /077 -printf '%M %u %P\n'
    # Whoever can write a journal has `toll clean` remove what he likes.
    find $root/state ! -type l -perm /022 -printf '%M %u %p\n'
  } 2>/dev/null || true
}

# What should not be in a run directory, or not like this.
run_directory() {
  [ -d $run ] || return 0
  { readable_by_others; cat $root/seen; } | sort -u | sed 's/^/open to others: /'
  # See docs/reference/run-format.md; what tools said is kept beside them.
  find $run -mindepth 1 ! -path $run/artefacts ! -path "$run/artefacts/*.stderr" -printf '%P\n' | sort |
    grep -vxE 'scenario\.toml|(plan|host|result|breaker)\.json|(trials|artefacts|audit)\.ndjson|(samples\.ndjson|latency\.hlog)\.zst|report\.html' |
    sed 's/^/left in the run: /' || true
}

# The state that runs are compared with.
look_before() {
  rm -rf $run
  read -r file position _ < <(sql primary -e "$binary_log_status")
  logged_from="$file $position"
  snapshot $root/before
}

# Says what a run did wrong that no snapshot shows.
fault() {
  printf '  DIFFERENCE %s\n' "$1"
  differences=$((differences + 1))
}

start_afresh() {
  printf '  toll said at the end:\n'
  tail -n 4 $root/said | cut -c 1-180 | sed 's/^/    /'
  restore
  look_before
}

# Twice: what moves by itself would be blamed on toll.
first_look() {
  look_before
  pause 2
  snapshot $root/after
  compare "without toll" $root/before $root/after || complain "the servers do not stand still by themselves"
}

# An arm that never ran leaves nothing behind; if it did not, $why says so.
was_measured() {
  local steps
  ! grep -q "variant $1 is not available" $root/said || return 0
  steps=$(grep -s "\"arm\":\"$1\"" $run/trials.ndjson) || true
  why="was not measured: $(sed -n '/"step":"failed"/s/.*"note":"\(.*\)"}/\1/p' <<<"$steps" | cut -c 1-140)"
  grep -q '"step":"window-end"' <<<"$steps" || return 1
  why='caught nothing'
  ! grep -qx "$1" <<<"$writing_arms" || grep -q '"step":"window-end".*"artefact_bytes":[1-9]' <<<"$steps"
}

run_every_arm() {
  local arm good=yes
  run_umask=022 # as it usually is
  first_look
  say "every arm: $*"
  local since=$SECONDS
  begin_run "$@"
  end_run 300 || { fault "every arm: toll has not ended after 300 s"; good=no; }
  runs=$((runs + 1))
  [ "$code" = 0 ] || { fault "every arm: toll ended with $code"; good=no; }
  grep -h 'is not available' $root/said || true
  for arm in "$@"; do
    was_measured "$arm" || { fault "every arm: $arm $why"; good=no; }
  done
  snapshot $root/after
  compare "after every arm" $root/before $root/after || good=no
  say "every arm: $((SECONDS - since)) s"
  [ $good = yes ] || start_afresh
}

run_kills() {
  local signal number done=0 all since=$SECONDS left
  local signals=(HUP INT QUIT TERM TERM+TERM KILL)
  all=$((${#signals[@]} * SAFETY_KILLS))
  run_umask=0 # whatever it is, what a run holds is for its owner alone
  for ((number = 1; number <= SAFETY_KILLS; number++)); do
    for signal in "${signals[@]}"; do
      shuffle "$@"
      one_kill "$signal" "${order[@]}"
      done=$((done + 1))
      left=$(((SECONDS - since) * (all - done) / done))
      left=$(printf '%d:%02d' $((left / 60)) $((left % 60)))
      say "$signal, $number of $SAFETY_KILLS, at $moment s: $verdict ($left min left)"
    done
  done
}

# Into $order. In this very process: in another, RANDOM would not follow the seed.
shuffle() {
  local at other arm
  order=("$@")
  for ((at = $# - 1; at > 0; at--)); do
    other=$((RANDOM % (at + 1))) arm=${order[at]}
    order[at]=${order[other]} order[other]=$arm
  done
}

clean_after() {
  toll clean --server $root/toll.cnf >$root/cleaned 2>&1 &
  pid=$!
  await 60 || { fault "$1: toll clean has not ended after 60 s"; return 1; }
  [ $code = 0 ] || { fault "$1: toll clean ended with $code: $(tail -n 1 $root/cleaned)"; return 1; }
}

# What became of it is in $moment and $verdict.
one_kill() {
  local signal=$1 ms good=yes before=$differences told=''
  shift
  ms=$((200 + RANDOM * 7800 / 32768))
  moment=$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))
  local when="after $signal at $moment s"
  begin_run "$@"
  pause "$moment"
  verdict='as before'
  [ -e /proc/$pid ] || verdict='as before (toll had ended)'
  kill -s "${signal%+*}" $pid 2>/dev/null || true
  if [ "$signal" = TERM+TERM ]; then
    pause 0.02
    kill -s TERM $pid 2>/dev/null || true
  fi
  end_run 60 || { fault "$when: toll has not ended after 60 s"; good=no; }
  runs=$((runs + 1))
  [ "$verdict" = 'as before' ] || [ $code = 0 ] || { fault "$when: toll had ended with $code"; good=no; }
  ! grep -q 'panicked at' $root/said || { fault "$when: toll panicked"; good=no; }
  if [ "$signal" != KILL ]; then
    # Nothing is left for `toll clean` to do.
    told=$root/told
    snapshot $told
    compare "$when, before toll clean" $root/before $told || good=no
  fi
  clean_after "$when" || good=no
  snapshot $root/after
  compare "$when and toll clean" $root/before $root/after $told || good=no
  [ $good = yes ] || { verdict="$((differences - before)) differences, seed $SAFETY_SEED, arms $*"; start_afresh; }
}
