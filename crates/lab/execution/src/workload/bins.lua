-- Makes sysbench say, once a second and as one line of JSON, what it completed in that second.
-- The profile itself is sysbench's own script, named by the environment.

require(os.getenv("TOLL_SYSBENCH_PROFILE"))

-- sysbench 1.1 has an option for this; the reconnect() of 1.0 never comes back with libmariadb.
local every = tonumber(os.getenv("TOLL_SYSBENCH_RECONNECT"))
if every > 0 then
   local once, carried = event, 0
   function event()
      once()
      carried = carried + 1
      if carried % every == 0 then
         close_statements()
         con:disconnect()
         con = drv:connect()
         prepare_statements()
      end
   end
end

sysbench.hooks.report_intermediate = function(stat)
   io.stdout:write(string.format(
      '{"seconds":%.6f,"events":%d,"statements":%d,"errors":%d,"reconnects":%d,"p99_s":%.6f}\n',
      stat.time_interval, stat.events, stat.reads + stat.writes + stat.other,
      stat.errors, stat.reconnects, stat.latency_pct))
   io.stdout:flush()
end
