// Package admin is the operators' side, on a listener of its own, which agents
// cannot reach.
//
// /livez says that the process answers, /readyz (and /healthz) that calls can
// be served, /metrics is for Prometheus. None of them wants a token, none shows
// a secret, and the number of series depends on the configuration alone. All
// below /admin/v1/ wants the operators' token, in a Bearer header, and so do the
// hashes of the receipt log below /v1/log/.
package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"agentgw/internal/explain"
	"agentgw/internal/registry"
	"agentgw/internal/secret"
)

// Operations is what operators see of a running gateway, and do to it. Safe for
// concurrent use.
type Operations interface {
	// Ready is nil once calls can be served, and why not before and after.
	Ready() error
	// Recording is nil while every attempt can have its receipt, and else why not.
	// Calls may be served all the same: see Ready.
	Recording() error
	// Config tells what is in force.
	Config() Config
	// Reload takes over the registry file as it is now. The error is all that
	// is wrong with it; then what was in force before still is. Who asked may
	// be gone before it returns.
	Reload() error
	// Explain tells which limits a call would meet, and how they stand. The error
	// is ErrNoSuchKey, or why it cannot be told.
	Explain(context.Context, explain.Question) (explain.Answer, error)
	// Tenants lists those that have called lately or are blocked, by id.
	Tenants() []Tenant
	// Tenant is one that calls can be charged to, whether it has called or not, or
	// of which something is remembered. The error is an ErrNoSuchTenant.
	Tenant(id string) (Tenant, error)
	// Block refuses a tenant's calls until Unblock or a restart, ends those that
	// run, and counts them. One that is not known is an ErrNoSuchTenant, unless it
	// is blocked ahead.
	Block(id string, ahead bool) (known bool, ended int, err error)
	// Unblock reports whether the tenant was blocked. One that is not and that
	// nobody knows is an ErrNoSuchTenant.
	Unblock(id string) (was bool, err error)
	// Drain refuses every call from now on, those that wait too, and asks streams to end
	// at their next event border. It counts those and the other calls, which go on
	// to their end. There is no way back but a restart, and the process goes on.
	Drain() (streams, others int)
	// Receipts lists receipts. The error is a WrongParameter, or ErrTryLater.
	Receipts(context.Context, ReceiptQuery) (ReceiptPage, error)
	Keys
	// Log is the receipt log.
	Log() Log
}

// Handler serves all of the operators' side. An empty token lets nobody in.
func Handler(m *Metrics, token secret.Text, o Operations) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", ready(o))
	mux.HandleFunc("GET /healthz", ready(o))
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.Handle("/admin/v1/", authorized(token, operate(o)))
	receiptLog(mux, token, o.Log())
	return mux
}

// ready answers /readyz. A registry file that cannot be used is told to whoever
// asks for more (?verbose), but takes nobody out of service: the old one serves.
// Of each problem it has the place and not the words, which may quote the file;
// those want the token.
func ready(o Operations) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := o.Ready(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, err)
			return
		}
		fmt.Fprintln(w, "ok")
		if !r.URL.Query().Has("verbose") {
			return
		}
		if err := o.Recording(); err != nil {
			fmt.Fprintf(w, "receipts: %v\n", err)
		} else {
			fmt.Fprintln(w, "receipts: taken")
		}
		if f := o.Config().Failure; f != nil {
			fmt.Fprintf(w, "registry: the file cannot be used since %s; what was served before is still served\n", stamp(f.Since))
			sayPlaces(w, f.Err)
			return
		}
		fmt.Fprintln(w, "registry: the file is in force")
	}
}

// sayPlaces says what is wrong with a registry file to whoever has shown no token:
// each place, or why there was no file to look at.
func sayPlaces(w io.Writer, err error) {
	var problems registry.Problems
	if !errors.As(err, &problems) {
		fmt.Fprintln(w, err)
		return
	}
	for _, p := range problems {
		fmt.Fprintln(w, p.Where())
	}
	fmt.Fprintln(w, "what is wrong there is told by GET /admin/v1/config, with the operators' token, by the log, and by agentgw check")
}
