// Package gateway takes an agent's call to a service and its answer back.
//
// Every way in builds the same Call and hands it to the same function, serve in
// pipeline.go, whose steps run in one fixed order: identify the caller, charge
// the key, read the request, check the scope, admit (tenant and service buckets
// and a slot, all or none), verify the delegation, open the credential, build
// the request, write the intent, call the upstream. Nothing else decides.
//
// The slot is held, and the receipt open, to the last byte of the answer; both
// are settled before the agent can see that byte.
package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/config"
	"agentgw/internal/identity"
	"agentgw/internal/ratelimit"
	"agentgw/internal/receipts"
	"agentgw/internal/registry"
	"agentgw/internal/vault"
)

// Receipts is where attempts are recorded.
type Receipts interface {
	Append(*receipts.Record) (receipts.Entry, error)
	Find(id string) ([]json.RawMessage, error)
}

// Vault opens the credentials of services.
type Vault interface {
	Open(vault.Ref, vault.Form) (vault.Credential, error)
}

// Parts are what a Gateway is made of. All are required.
type Parts struct {
	Settings  *config.Settings
	Limiter   *ratelimit.Local
	Nanos     ratelimit.Clock
	Receipts  Receipts
	Vault     Vault
	Clock     clockwork.Clock
	Log       *slog.Logger
	Replica   string
	UserAgent string
	ParamsKey []byte // keys the hashes of parameters in receipts
	// Decided is told of every call, and of every other request that the first
	// two steps refuse: the service if the registry has it, else "", and of a
	// refusal its code and the limit that decided.
	Decided func(service string, code Code, limit string)
	// Answered is told how long a service of the registry took to the header of
	// its answer, whatever the answer says and however long its body lasts.
	Answered func(service string, after time.Duration)
}

// Gateway is the agents' side of the product. Safe for concurrent use.
type Gateway struct {
	settings  *config.Settings
	limiter   *ratelimit.Local
	nanos     ratelimit.Clock
	receipts  Receipts
	vault     Vault
	clock     clockwork.Clock
	log       *slog.Logger
	replica   string
	userAgent string
	paramsKey []byte
	decided   func(string, Code, string)
	answered  func(string, time.Duration)
	authLimit ratelimit.Limit
	public    *http.Transport
	private   *http.Transport
	buffers   buffers
	running   calls
	current   atomic.Pointer[view]
}

// New returns a gateway that serves nothing until Use gave it a registry.
func New(p Parts) (*Gateway, error) {
	perMinute := int64(p.Settings.RateAuthPerMinute)
	authLimit, err := ratelimit.Every(time.Minute, perMinute, perMinute)
	if err != nil {
		return nil, err
	}
	return &Gateway{
		settings: p.Settings, limiter: p.Limiter, nanos: p.Nanos, receipts: p.Receipts, vault: p.Vault,
		clock: p.Clock, log: p.Log, replica: p.Replica, userAgent: p.UserAgent, paramsKey: p.ParamsKey,
		decided: p.Decided, answered: p.Answered, authLimit: authLimit,
		public: newTransport(false), private: newTransport(true),
	}, nil
}

// view is everything that decides one call, as it stood when the call came.
type view struct {
	registry *registry.Snapshot
	keys     *identity.Directory
	unnamed  tenantLimits
	named    map[string]tenantLimits
	services map[string]ratelimit.Limit
	perKey   map[string]ratelimit.Limit
	key      ratelimit.Limit
}

type tenantLimits struct {
	bucket ratelimit.Limit
	slots  int64
}

func (v *view) keyLimit(k *identity.Key) ratelimit.Limit {
	if limit, ok := v.perKey[k.ID]; ok {
		return limit
	}
	return v.key
}

func (v *view) tenantLimits(t identity.Tenant) tenantLimits {
	if t.Kind == identity.KindTenant {
		if l, ok := v.named[t.Name]; ok {
			return l
		}
	}
	return v.unnamed
}

func (v *view) serviceLimit(name string) ratelimit.Limit { return v.services[name] }

// Use makes the next call, and every one after it, be decided by this registry
// and these keys. A call under way keeps what it began with.
func (g *Gateway) Use(snapshot *registry.Snapshot, effective *registry.Effective, keys *identity.Directory) error {
	v := &view{
		registry: snapshot, keys: keys,
		named: map[string]tenantLimits{}, services: map[string]ratelimit.Limit{}, perKey: map[string]ratelimit.Limit{},
	}
	var errs []error
	limit := func(l registry.Limits) ratelimit.Limit {
		made, err := ratelimit.NewLimit(l.RPS, int64(l.Burst))
		errs = append(errs, err)
		return made
	}
	tenant := func(name string) tenantLimits {
		l := effective.Tenant(name)
		return tenantLimits{limit(l), int64(l.MaxInflight)}
	}
	v.key, v.unnamed = limit(effective.Key(nil)), tenant("")
	for name := range snapshot.Tenants {
		v.named[name] = tenant(name)
	}
	for name := range snapshot.Services {
		v.services[name] = limit(effective.Service(name))
	}
	for _, key := range keys.Keys() {
		if key.Limits != nil {
			v.perKey[key.ID] = limit(registry.Limits{RPS: key.Limits.RPS, Burst: key.Limits.Burst})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	g.current.Store(v)
	return nil
}

// Drain refuses new calls and asks streams to end at their next event border.
// Calls that end by themselves go on. Wait for them with http.Server.Shutdown.
func (g *Gateway) Drain() { g.running.drain() }

// Cut ends every call that is still under way.
func (g *Gateway) Cut() {
	g.running.each(func(r *running) { r.cancel(errShutdown) })
}

// Close lets idle upstream connections go.
func (g *Gateway) Close() {
	g.public.CloseIdleConnections()
	g.private.CloseIdleConnections()
}

func (g *Gateway) transport(allowPrivate bool) http.RoundTripper {
	if allowPrivate {
		return g.private
	}
	return g.public
}

// hashParams commits to a call's parameters without showing them: an HMAC under
// a key of the receipt's own, derived from its id, so that equal parameters of
// two calls do not look equal and a PIN cannot be found by trying all.
func (g *Gateway) hashParams(id string, params []byte) *receipts.ParamsHash {
	salt := hmac.New(sha256.New, g.paramsKey)
	salt.Write([]byte(id))
	mac := hmac.New(sha256.New, salt.Sum(nil))
	mac.Write(params)
	return &receipts.ParamsHash{Alg: "hmac-sha256", Hash: base64.RawURLEncoding.EncodeToString(mac.Sum(nil))}
}

func ambiguous(err error) bool {
	return errors.Is(err, identity.ErrTwoKeys) || errors.Is(err, identity.ErrTwoHeaders)
}

// addressKey is the partition of an address's failures.
func addressKey(a netip.Addr) string { return identity.LimitPrefix(a).String() }
