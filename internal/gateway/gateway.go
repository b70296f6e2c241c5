// Package gateway takes an agent's call to a service and its answer back.
//
// Every way in builds the same Call and hands it to the same function, serve in
// pipeline.go, whose steps run in one fixed order: identify the caller, charge
// the key, read the request, check the scope, admit (tenant and service buckets,
// rules and a slot, all or none), verify the delegation, open the credential, build
// the request, write the intent, call the upstream. Nothing else decides.
//
// The slot is held, and the receipt open, to the last byte of the answer; both
// are settled before the agent can see that byte.
package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/delegation"
	"agentgw/internal/identity"
	"agentgw/internal/oidc"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/tunnel"
	"agentgw/internal/vault"
)

// Receipts is where attempts are recorded. A record is the caller's again once
// Append has returned: an implementation MUST NOT keep it.
type Receipts interface {
	Append(*receipts.Record) (receipts.Entry, error)
	// Promise keeps room for the outcome of a call without an intent.
	Promise(*receipts.Record) error
	// Pass is told of an attempt that is let through, or answered, without a record on
	// disk; late where the record was taken. It returns once that is noted on disk, or
	// cannot be.
	Pass(of *receipts.Record, late bool)
	// Miss counts an attempt that has no record.
	Miss(of *receipts.Record, refused bool)
	// Refuse is Append for a refusal, which it may count instead, among those of
	// the same source, in another receipt whose id the record then has.
	Refuse(r *receipts.Record, source string) (receipts.Entry, error)
	Find(id, key string) ([]json.RawMessage, error)
	Prove(records []json.RawMessage) ([]receipts.Proof, error)
	Checkpoint() []byte
	VerifierKey() string
}

// Vault opens the credentials of services. It may wait until ctx ends, for a token
// that has to be renewed first.
type Vault interface {
	Open(ctx context.Context, ref vault.Ref, form vault.Form) (vault.Credential, error)
}

// Salts makes the salts that the parameters of calls are hashed under in receipts,
// each receipt's from a key of its tenant, of which it tells the name. It may wait
// for a store where the tenant is new.
type Salts interface {
	Salt(tenant, receipt string) (salt [receipts.SaltSize]byte, key string, err error)
}

// Limiter decides by buckets and slots whether a call may run. Its refusals take
// nothing, and its verdicts are final: see package ratelimit.
type Limiter interface {
	// Take takes one token at once.
	Take(r *ratelimit.Ref, now int64) ratelimit.Charge
	// Defer is Take for a key before its request is read. Where tokens are a way off it
	// may be put off until Enter, which then decides both; a call that ends before that
	// MUST be given to Settle.
	Defer(r *ratelimit.Ref, now int64) ratelimit.Charge
	// Settle makes a charge that was put off, and returns it; any other as it is.
	Settle(c ratelimit.Charge, now int64) ratelimit.Charge
	// Enter takes all else that a call needs, or nothing, or all but slots, for
	// which the call then has a place in the queue. The ticket of a call that it
	// admits must be released, and a place left.
	Enter(c ratelimit.Charge, a ratelimit.Admission, queue, now int64) (ratelimit.Ticket, *ratelimit.Place, ratelimit.Verdict)
	// Pay is Enter for who has slots already: it takes tokens and what rules count,
	// or nothing, and no slot.
	Pay(c ratelimit.Charge, a ratelimit.Admission, now int64) ratelimit.Verdict
	// Spend has rules alone count a batch of calls: all of them, or none.
	Spend(c ratelimit.Charge, uses []ratelimit.Use, now int64) ratelimit.Verdict
	// Follow has every call be held to the caps in force.
	Follow(c *ratelimit.Caps)
	// Count counts more for a rule that was asked, whether there is room or not.
	Count(u *ratelimit.Use, n, now int64)
	// Counted reads what a rule has counted in its window, and how long that lasts.
	Counted(r *ratelimit.Rule, partition string, now int64) (used int64, left time.Duration)
	// Peek reads what is left, and takes nothing.
	Peek(r *ratelimit.Ref, now int64) (bucket, slots ratelimit.Reading)
	// Refused notes for operators that a call of a tenant was refused, and how the
	// caller was told; no decision depends on it.
	Refused(tenant *ratelimit.Ref, code, limit string, now int64)
	// Changed tells that a limit is another now for some or all that had it.
	Changed(table ratelimit.Table, kind ratelimit.Kind, was, is ratelimit.Limit, now int64)
}

// Parts are what a Gateway is made of. All are required.
type Parts struct {
	Limiter   Limiter
	Nanos     ratelimit.Clock
	Receipts  Receipts
	Vault     Vault
	Connector Connector
	Clock     clockwork.Clock
	Log       *slog.Logger
	Replica   string
	UserAgent string
	Salts     Salts
	// Pseudonyms name the callers of open services.
	Pseudonyms *identity.Pseudonyms
	// Budgets count what flows through tunnels.
	Budgets tunnel.Counter
	// Elsewhere: other replicas have calls of the same tenants, which this one knows nothing of.
	Elsewhere bool
	// Tokens know the keys of the issuers whose tokens are taken; nil: none is.
	Tokens *oidc.Issuers
	// Decided is told of every call, and of every other request that the first
	// two steps refuse: the service if the registry has it, else "", and of a
	// refusal its code and the limit that decided.
	Decided func(service string, code Code, limit string)
	// Answered is told how long a service of the registry took to the header of
	// its answer, whatever the answer says and however long its body lasts.
	Answered func(service string, after time.Duration)
	// Waited is told of every wait for a slot: whether it was served, refused in
	// the end, or left by a caller that hung up, whose key is gone, a tenant that
	// was blocked or a gateway that drains.
	Waited func(end string, after time.Duration)
	// Unrecorded is told once of every attempt of which a record could not be written.
	Unrecorded func()
	// Observed is told of every call that a rule would have refused, by its name,
	// had it not been there to observe.
	Observed func(rule string)
}

// Gateway is the agents' side of the product. Safe for concurrent use.
type Gateway struct {
	limiter    Limiter
	nanos      ratelimit.Clock
	receipts   Receipts
	vault      Vault
	connector  Connector
	clock      clockwork.Clock
	log        *slog.Logger
	replica    string
	elsewhere  bool
	userAgent  string
	salts      Salts
	tokens     *oidc.Issuers
	pseudonyms *identity.Pseudonyms
	decided    func(string, Code, string)
	answered   func(string, time.Duration)
	waited     func(string, time.Duration)
	unrecorded func()
	observed   func(string)
	budgets    tunnel.Counter
	public     *http.Transport
	private    *http.Transport
	h2c        map[bool]*http.Transport // to services that speak it, by whether they may be private
	answers    buffers
	events     buffers
	running    calls
	current    atomic.Pointer[view]
	trusted    atomic.Pointer[delegation.Trust] // nil: no delegation holds
}

// New returns a gateway that is ready to serve once Use has told it what.
func New(p Parts) *Gateway {
	return &Gateway{
		limiter: p.Limiter, nanos: p.Nanos, receipts: p.Receipts, vault: p.Vault, connector: p.Connector,
		clock: p.Clock, log: p.Log, replica: p.Replica, elsewhere: p.Elsewhere, userAgent: p.UserAgent, salts: p.Salts, tokens: p.Tokens, pseudonyms: p.Pseudonyms,
		decided: p.Decided, answered: p.Answered, waited: p.Waited, unrecorded: p.Unrecorded, observed: p.Observed,
		budgets: p.Budgets,
		public:  NewTransport(false), private: NewTransport(true), h2c: map[bool]*http.Transport{false: newH2CTransport(false), true: newH2CTransport(true)},
		answers: buffers{size: answerBuffer}, events: buffers{size: eventBuffer},
	}
}

// Drain refuses new calls and those that wait for a slot, and asks streams to end at
// their next event border. Calls that end by themselves go on. It counts both. Wait for them with
// http.Server.Shutdown, and then Wait.
func (g *Gateway) Drain() (streams, others int) { return g.running.drain() }

// Wait returns when no call is under way that has taken its connection over from net/http,
// which http.Server.Shutdown does not wait for; or with the error of ctx. Call it when no
// new ones can come.
func (g *Gateway) Wait(ctx context.Context) error { return g.running.wait(ctx) }

// Block ends every call of a tenant, named by its partition key, that is under
// way or admitted already, and counts those under way. To refuse later ones is
// the limiter's part, which comes first.
func (g *Gateway) Block(tenant string) (ended int) { return g.running.block(tenant) }

// Unblock lets the calls of a tenant run again.
func (g *Gateway) Unblock(tenant string) { g.running.unblock(tenant) }

// Cut ends every call that is still under way.
func (g *Gateway) Cut() {
	g.running.each(func(r *running) { r.cancel(errShutdown) })
}

// Close lets idle upstream connections go.
func (g *Gateway) Close() {
	g.public.CloseIdleConnections()
	g.private.CloseIdleConnections()
	for _, t := range g.h2c {
		t.CloseIdleConnections()
	}
}

func (g *Gateway) transport(s *registry.Service) http.RoundTripper {
	switch {
	case s.H2C:
		return g.h2c[s.AllowPrivate]
	case s.AllowPrivate:
		return g.private
	}
	return g.public
}

func ambiguous(err error) bool {
	return errors.Is(err, identity.ErrTwoKeys) || errors.Is(err, identity.ErrKeyAndToken) || errors.Is(err, identity.ErrTwoHeaders) || errors.Is(err, identity.ErrTwoCredentials)
}

// network is an address as a source of refusals: by what it is limited, too.
func network(a netip.Addr) string {
	p := identity.LimitPrefix(a)
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// addressKey is the partition of an address's failures.
func addressKey(a netip.Addr) string { return identity.LimitPrefix(a).String() }
