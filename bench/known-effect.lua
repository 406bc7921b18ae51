-- sysbench: users whose one query computes a hash slow_launch_time times over, so that a known part of its time can be switched.

sysbench.cmdline.options = {
  table_size = {"Rows of sbtest1", 100000},
}

function thread_init()
  connection = sysbench.sql.driver():connect()
end

function event()
  connection:query(string.format(
    "SELECT c, BENCHMARK(@@GLOBAL.slow_launch_time, SHA2(pad, 256)) FROM sbtest1 WHERE id = %d",
    sysbench.rand.uniform(1, sysbench.opt.table_size)))
end

function thread_done()
  connection:disconnect()
end
