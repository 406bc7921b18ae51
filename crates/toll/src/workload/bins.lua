-- Makes sysbench say, once a second and as one line of JSON, what it completed in that second.
-- The profile itself is sysbench's own script, named by the environment.

require(os.getenv("TOLL_SYSBENCH_PROFILE"))

sysbench.hooks.report_intermediate = function(stat)
   io.stdout:write(string.format(
      '{"seconds":%.6f,"events":%d,"statements":%d,"errors":%d,"reconnects":%d,"p99_s":%.6f}\n',
      stat.time_interval, stat.events, stat.reads + stat.writes + stat.other,
      stat.errors, stat.reconnects, stat.latency_pct))
   io.stdout:flush()
end
