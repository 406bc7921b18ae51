module steps

go 1.22

require github.com/go-sql-driver/mysql v1.9.3
