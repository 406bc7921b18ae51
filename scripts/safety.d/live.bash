# Kills of `toll live`, of the guard that watches it, and of both.
#
# A method is switched on and off from the eleventh second on; what is killed in between leaves it on, or off.

# Starts a live run of one method; its pid is in $pid.
begin_live_run() {
  rm -rf $run
  toll live tcpdump-impact --variants "$1" --server $root/toll.cnf --time 70s --window 1s --guard-interval 500ms \
    --baseline 11s --probe-limit 2s --execute --reason safety --confirm "$confirmation" --out $run >$root/said 2>&1 &
  pid=$!
}

# Of the guard of $pid; nothing before it begins and after it has gone.
guard_pid() {
  local child
  for child in $(cat /proc/$pid/task/*/children 2>/dev/null); do
    ! tr '\0' '\n' 2>/dev/null <"/proc/$child/cmdline" | grep -qx guard || echo "$child"
  done
}

run_live_kills() {
  local victim number done=0 all=$((3 * SAFETY_LIVE_KILLS)) since=$SECONDS left
  confirmation=$(sql primary -e 'SELECT LEFT(@@server_uuid, 8)' 2>/dev/null || sql primary -e 'SELECT @@hostname')
  look_before
  for ((number = 1; number <= SAFETY_LIVE_KILLS; number++)); do
    for victim in toll guard both; do
      shuffle "$@"
      one_live_kill "$victim" "${order[0]}"
      done=$((done + 1))
      left=$(((SECONDS - since) * (all - done) / done))
      left=$(printf '%d:%02d' $((left / 60)) $((left % 60)))
      say "live, $victim killed, $number of $SAFETY_LIVE_KILLS, at $moment s: $verdict ($left min left)"
    done
  done
}

# What became of it is in $moment and $verdict.
one_live_kill() {
  local victim=$1 arm=$2 ms good=yes before=$differences guard told=''
  ms=$((10500 + RANDOM * 14500 / 32768))
  moment=$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))
  local when="after $victim of a live run of $arm killed at $moment s"
  begin_live_run "$arm"
  pause "$moment"
  guard=$(guard_pid)
  verdict="as before ($arm, $([ -n "$guard" ] && echo 'with a guard' || echo 'before the guard'))"
  [ -e /proc/$pid ] || { fault "$when: toll had ended: $(tail -n 1 $root/said)"; good=no; }
  [ "$victim" = guard ] || kill -s KILL $pid 2>/dev/null || true
  [ "$victim" = toll ] || [ -z "$guard" ] || kill -s KILL "$guard" 2>/dev/null || true
  # Without a guard to kill, toll has to be asked.
  [ "$victim" != guard ] || [ -n "$guard" ] || kill -s INT $pid
  await 60 || { fault "$when: toll has not ended after 60 s"; good=no; }
  [ -z "$guard" ] || await_gone "$guard" || { fault "$when: the guard has not ended after 60 s"; good=no; }
  runs=$((runs + 1))
  ! grep -q 'panicked at' $root/said || { fault "$when: toll panicked"; good=no; }
  if [ "$victim" = guard ]; then
    # Nothing is left for `toll clean` to do.
    told=$root/told
    snapshot $told
    compare "$when, before toll clean" $root/before $told || good=no
  elif [ "$victim" = toll ] && [ -n "$guard" ]; then
    # The guard has switched off; files and journal are left to `toll clean`.
    snapshot $root/told
    what_is_on $root/before $root/before-on
    what_is_on $root/told $root/told-on
    compare "$when, before toll clean" $root/before-on $root/told-on || good=no
  fi
  clean_after "$when" || good=no
  snapshot $root/after
  compare "$when and toll clean" $root/before $root/after $told || good=no
  [ $good = yes ] || { verdict="$((differences - before)) differences, seed $SAFETY_SEED, $arm"; start_afresh; }
}

# Of a snapshot.
what_is_on() {
  rm -rf "$2"
  mkdir "$2"
  cp "$1"/{variables,plugins,sessions,processes} "$1"/setup_* "$2"
}

await_gone() {
  local until=$((SECONDS + 60))
  while [ -e "/proc/$1" ]; do
    [ $SECONDS -lt $until ] || return 1
    pause 0.05
  done
}
