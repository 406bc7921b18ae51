-- sysbench oltp_read_write by users who come and go: each connects again after so many transactions, as web applications do.

require("oltp_read_write")
sysbench.cmdline.options.connection_transactions = {"Transactions of a connection", 10}

local transaction, done = event, 0

function event()
  transaction()
  done = done + 1
  if done % sysbench.opt.connection_transactions == 0 then
    close_statements()
    con:disconnect() -- con:reconnect() ends sysbench 1.0.20 with a segmentation fault
    con = drv:connect()
    prepare_statements()
  end
end
