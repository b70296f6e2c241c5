package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	pipeline "agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// recorded compares a gateway that writes receipts with the same gateway without
// any, before an upstream that takes its time as upstreams do. The product has no
// switch for that, so both are built here of its parts.
func (b *bench) recorded() error {
	var sides [2]*process
	for i, log := range []string{"on", "off"} {
		var err error
		if sides[i], err = listening("gateway", log, b.registry, b.folder+"/recorded-"+log); err != nil {
			return err
		}
	}
	calls := job{Conns: 256, Requests: b.acts("later"), Status: 200, Length: 1 << 10}
	for i, r := range calls.Requests {
		calls.Requests[i] = strings.Replace(r, `"tools"`, `"plain"`, 1)
	}
	var rates, costs [2][]float64
	err := b.turns(b.seconds, func(i int, r result, cpu time.Duration) {
		rates[i] = append(rates[i], float64(r.Answers)/r.Seconds)
		costs[i] = append(costs[i], 1e3*ms(cpu)/float64(r.Answers))
	}, contender{sides[0], calls}, contender{sides[1], calls})
	if err != nil {
		return err
	}
	b.table.exceed("calls with receipts beside without, 256 connections, upstream of 20 ms", "/s", rates[0], rates[1], 0.8)
	b.table.beside("  processor time of such a call", "µs", costs[0], costs[1], ratios(costs[0], costs[1]))
	return nil
}

// unrecorded takes receipts and keeps nothing.
type unrecorded struct{}

func (unrecorded) Append(*receipts.Record) (receipts.Entry, error) { return receipts.Entry{}, nil }
func (unrecorded) Promise(*receipts.Record) error                  { return nil }
func (unrecorded) Pass(*receipts.Record, bool)                     {}
func (unrecorded) Miss(*receipts.Record, bool)                     {}
func (unrecorded) Refuse(*receipts.Record, string) (receipts.Entry, error) {
	return receipts.Entry{}, nil
}
func (unrecorded) Find(string, string) ([]json.RawMessage, error)          { return nil, nil }
func (unrecorded) Prove([]json.RawMessage) (p []receipts.Proof, err error) { return nil, nil }
func (unrecorded) Checkpoint() []byte                                      { return nil }
func (unrecorded) VerifierKey() string                                     { return "" }

// partsGateway is the role of a gateway built of the product's parts, with receipts
// on or off, of a registry and in a folder.
func partsGateway() error {
	on, file, folder := os.Args[2] == "on", os.Args[3], os.Args[4]
	clock := clockwork.NewRealClock()
	var log pipeline.Receipts = unrecorded{}
	if on {
		l, err := receipts.Open(folder, receipts.Options{Clock: clock, Replica: "r"})
		if err != nil {
			return err
		}
		log = l
	}
	db, err := store.Open(context.Background(), folder)
	if err != nil {
		return err
	}
	kek, err := vault.ParseKEK(strings.Repeat("7", 64))
	if err != nil {
		return err
	}
	credentials, err := vault.Load(context.Background(), db, kek)
	if err != nil {
		return err
	}
	salts, err := vault.LoadSalts(context.Background(), db, kek, clock)
	if err != nil {
		return err
	}
	nanos := ratelimit.NewClock(clock)
	g := pipeline.New(pipeline.Parts{
		Limiter: ratelimit.NewLocal(ratelimit.Options{Clock: nanos, TableSize: 4 * manyKeys}), Nanos: nanos, Receipts: log, Vault: credentials,
		Clock: clock, Log: slog.New(slog.DiscardHandler), Replica: "r", UserAgent: "agentgw/bench", Salts: salts,
		Decided: func(string, pipeline.Code, string) {}, Answered: func(string, time.Duration) {}, Waited: func(string, time.Duration) {},
		Unrecorded: func() { fmt.Fprintln(os.Stderr, "a receipt was lost") }, Observed: func(string) {},
	})
	if err := serveAll(g, file); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return (&http.Server{Handler: g.Handler()}).Serve(l)
}

// serveAll has g serve a registry under no limit within reach.
func serveAll(g *pipeline.Gateway, file string) error {
	snapshot, err := registry.Load(file)
	if err != nil {
		return err
	}
	const endless = 1e9
	effective, err := snapshot.Effective(registry.Defaults{
		KeyRPS: endless, KeyBurst: endless, TenantRPS: endless, TenantBurst: endless, TenantMaxInflight: 1024,
	})
	if err != nil {
		return err
	}
	var keys []*identity.Key
	for _, k := range snapshot.Keys {
		if k.Rate == nil { // the dry one is of other figures
			keys = append(keys, &identity.Key{ID: k.ID, Digest: k.Digest, Services: k.Services, Users: k.Users})
		}
	}
	directory, err := identity.NewDirectory(keys)
	if err != nil {
		return err
	}
	return g.Use(&config.Settings{
		KeyMaxPrincipals: 64, RateAuthPerMinute: 60, MaxRequestBody: 10 << 20, ReceiptIntent: "always", ReceiptOnFailure: "refuse",
		StreamIdle: 5 * time.Minute, ClientStall: 30 * time.Second,
	}, snapshot, effective, nil, directory)
}
