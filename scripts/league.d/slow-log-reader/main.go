// Slow log on standard input to sums by class once a second, as Percona's monitoring agents make them.
//
// go-mysql is their parser, fingerprints and aggregator. Lines on standard output:
// {"queries":1200,"classes":[{"id":"...","fingerprint":"...","queries":600,"seconds":0.12}, ...]}
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/percona/go-mysql/event"
	"github.com/percona/go-mysql/log"
	"github.com/percona/go-mysql/log/slow"
	"github.com/percona/go-mysql/query"
)

type class struct {
	ID          string  `json:"id"`
	Fingerprint string  `json:"fingerprint"`
	Queries     uint    `json:"queries"`
	Seconds     float64 `json:"seconds"`
}

type second struct {
	Queries uint    `json:"queries"`
	Classes []class `json:"classes"`
}

func newAggregator() *event.Aggregator {
	// With an example of each class, and none set apart for being slow.
	return event.NewAggregator(true, 0, 0)
}

func report(aggregator *event.Aggregator, out *json.Encoder) error {
	result := aggregator.Finalize()
	summed := second{Queries: result.Global.TotalQueries, Classes: []class{}}
	for id, found := range result.Class {
		seconds := 0.0
		if times, known := found.Metrics.TimeMetrics["Query_time"]; known {
			seconds = times.Sum
		}
		summed.Classes = append(summed.Classes, class{id, found.Fingerprint, found.TotalQueries, seconds})
	}
	return out.Encode(summed)
}

func run() error {
	parser := slow.NewSlowLogParser(os.Stdin, log.Options{})
	ended := make(chan error, 1)
	go func() { ended <- parser.Start() }()
	fmt.Fprintln(os.Stderr, "reading a slow log on standard input")
	out := json.NewEncoder(os.Stdout)
	aggregator, tick := newAggregator(), time.NewTicker(time.Second)
	events := parser.EventChan()
	for {
		select {
		case found, open := <-events:
			if !open {
				if err := report(aggregator, out); err != nil {
					return err
				}
				return <-ended
			}
			fingerprint := query.Fingerprint(found.Query)
			aggregator.AddEvent(found, query.Id(fingerprint), found.User, found.Host, found.Db, "", fingerprint)
		case <-tick.C:
			if err := report(aggregator, out); err != nil {
				return err
			}
			aggregator = newAggregator()
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
