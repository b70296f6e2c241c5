package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jonboulle/clockwork"
	"github.com/prometheus/client_golang/prometheus"

	"agentgw/internal/config"
	"agentgw/internal/receiptindex"
	"agentgw/internal/receipts"
)

// fleetReceipts has this replica's receipts go into the database where those of all
// replicas are, and lists them.
type fleetReceipts struct {
	index   *receiptindex.Index
	shipper *receiptindex.Shipper
	log     *slog.Logger
	running sync.WaitGroup
}

// lastShipping bounds how long a stop waits for the end of the log to be shipped.
const lastShipping = 5 * time.Second

// openIndex returns the index of receipts that the settings name. It connects later.
func openIndex(settings *config.Settings) (*receiptindex.Index, error) {
	index, err := receiptindex.Open(settings.DatabaseURL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", settings.Place("AGENTGATE_DATABASE_URL"), err)
	}
	return index, nil
}

func newFleetReceipts(settings *config.Settings, of *receipts.Log, clock clockwork.Clock, log *slog.Logger) (*fleetReceipts, error) {
	index, err := openIndex(settings)
	if err != nil {
		return nil, err
	}
	shipper, err := receiptindex.NewShipper(of, settings.DataDir, index, clock, log)
	if err != nil {
		return nil, err
	}
	return &fleetReceipts{index: index, shipper: shipper, log: log}, nil
}

// run ships until ctx is done.
func (f *fleetReceipts) run(ctx context.Context) {
	f.running.Go(func() { f.shipper.Run(ctx) })
}

// close ships the end of the log, which takes no more records.
func (f *fleetReceipts) close() {
	f.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastShipping)
	defer cancel()
	if err := f.shipper.Finish(ctx); err != nil {
		behind, _ := f.shipper.Lag()
		f.log.Warn("the newest receipts are not in the database; the next start on this data folder brings them", "entries", behind, "error", err)
	}
	_ = f.index.Close()
}

// ofFleet reports whether a cursor is one of a list of all replicas: that of one log
// is a number.
func ofFleet(cursor string) bool { return strings.Contains(cursor, ".") }

// indexCollector shows how far the database is behind the log.
type indexCollector struct{ shipper *receiptindex.Shipper }

var (
	behindDesc  = prometheus.NewDesc("agentgate_receipt_index_behind", "Entries of the receipt log that are not in the database yet.", nil, nil)
	indexOKDesc = prometheus.NewDesc("agentgate_receipt_index_ok", "1 while receipts go into the database, 0 while they wait for it.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *indexCollector) Describe(out chan<- *prometheus.Desc) {
	out <- behindDesc
	out <- indexOKDesc
}

// Collect implements prometheus.Collector.
func (c *indexCollector) Collect(out chan<- prometheus.Metric) {
	behind, ok := c.shipper.Lag()
	readings(out).gauge(behindDesc, int64(behind))
	working := int64(0)
	if ok {
		working = 1
	}
	readings(out).gauge(indexOKDesc, working)
}
