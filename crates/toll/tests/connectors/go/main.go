// Carries out a plan with go-sql-driver/mysql.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

type client struct {
	session  *sql.Conn
	prepared map[string]*sql.Stmt
}

func value(field string) any {
	if field == "NULL" {
		return nil
	}
	if text, found := strings.CutPrefix(field, "'"); found {
		return text
	}
	number, err := strconv.ParseInt(field, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return number
}

func values(fields []string) []any {
	list := make([]any, len(fields))
	for i, field := range fields {
		list[i] = value(field)
	}
	return list
}

// statement prepares each text once.
func (c *client) statement(text string) (*sql.Stmt, error) {
	if statement, found := c.prepared[text]; found {
		return statement, nil
	}
	statement, err := c.session.PrepareContext(context.Background(), text)
	if err == nil {
		c.prepared[text] = statement
	}
	return statement, err
}

func (c *client) query(kind, text string, fields []string) (*sql.Rows, error) {
	if kind == "text" {
		return c.session.QueryContext(context.Background(), text)
	}
	statement, err := c.statement(text)
	if err != nil {
		return nil, err
	}
	return statement.Query(values(fields)...)
}

func (c *client) execute(kind, text string, fields []string) (int64, error) {
	var result sql.Result
	var err error
	if kind == "text" {
		result, err = c.session.ExecContext(context.Background(), text)
	} else {
		var statement *sql.Stmt
		if statement, err = c.statement(text); err == nil {
			result, err = statement.Exec(values(fields)...)
		}
	}
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *client) step(kind, text string, fields []string) (string, error) {
	if strings.HasPrefix(text, "select") {
		rows, err := c.query(kind, text, fields)
		if err != nil {
			return "", err
		}
		defer rows.Close()
		count := 0
		for rows.Next() {
			count++
		}
		return fmt.Sprintf("rows %d", count), rows.Err()
	}
	if kind != "batch" {
		affected, err := c.execute(kind, text, fields)
		return fmt.Sprintf("affected %d", affected), err
	}
	width, err := strconv.Atoi(fields[0])
	if err != nil {
		return "", err
	}
	total := int64(0)
	for fields = fields[1:]; len(fields) > 0; fields = fields[width:] {
		affected, err := c.execute(kind, text, fields[:width])
		if err != nil {
			return "", err
		}
		total += affected
	}
	return fmt.Sprintf("affected %d", total), nil
}

func main() {
	host, port, user, way, plan := os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	config := mysql.NewConfig()
	config.Net, config.Addr = "tcp", host+":"+port
	config.User, config.Passwd, config.DBName = user, os.Getenv("MYSQL_PWD"), "sbtest"
	if err := config.Apply(mysql.EnableCompression(way == "compressed")); err != nil {
		log.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		log.Fatal(err)
	}
	pool := sql.OpenDB(connector)
	session, err := pool.Conn(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	client := client{session: session, prepared: map[string]*sql.Stmt{}}
	steps, err := os.Open(plan)
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(steps)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		told, err := client.step(fields[0], fields[1], fields[2:])
		var refused *mysql.MySQLError
		if errors.As(err, &refused) {
			told, err = fmt.Sprintf("error %d", refused.Number), nil
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(told)
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	for _, statement := range client.prepared {
		statement.Close()
	}
	session.Close()
	pool.Close()
}
