package config

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"agentgw/internal/secret"
)

// Settings is what the process runs with: one field for each setting, named as
// its variable without the prefix. Made by Load and not changed afterwards.
type Settings struct {
	Listen      string
	AdminListen string
	TLSCertFile string // "" with TLSKeyFile: plain HTTP
	TLSKeyFile  string
	PublicURL   string // without a slash at its end; "": not known
	Registry    string
	DataDir     string

	RateKeyRPS      float64 // 0 for it or its burst: no limit
	RateKeyBurst    int
	RateTenantRPS   float64 // 0 for it or its burst: no limit
	RateTenantBurst int

	TenantMaxInflight int // 0: no cap
	TenantQueue       int // 0: refuse at once
	TenantQueueWait   time.Duration
	MaxInflight       int // 0: no cap

	RateTableSize    int
	RateIdle         time.Duration
	KeyMaxPrincipals int

	RateCallerRPM     float64 // 0: off
	RateCallerBurst   int     // 0 where RateCallerRPM is
	RateAuthPerMinute int     // 0: no limit

	TrustedProxies []netip.Prefix // masked; a bare address is a prefix of one

	RedisURL             secret.Text
	RedisTimeout         time.Duration
	LimitsOnStoreFailure string // local, open or closed
	DatabaseURL          secret.Text

	VaultKeyPrevious secret.Text // by value or from its file; empty: none
	VaultKey         secret.Text // by value or from its file; empty: made on first start
	AdminToken       secret.Text // by value or from its file; empty: made on first start

	ReceiptSync      string        // always or interval
	ReceiptIntent    string        // always, writes or never
	ReceiptOnFailure string        // refuse or allow
	ReceiptRetention time.Duration // 0: kept for ever
	ReceiptAnchor    string        // "": no anchor is kept

	MaxRequestBody int64         // bytes; 0: no bound
	StreamIdle     time.Duration // 0: no bound
	StreamMax      time.Duration // 0: no bound
	ClientStall    time.Duration // 0: no bound
	DrainTimeout   time.Duration // 0: wait for nobody

	LogLevel  slog.Level
	LogFormat string // json or text; "": json unless standard error is a terminal

	origins map[string]origin // by variable
	texts   map[string]string // by variable, as written; never a secret
	doubts  map[string]bool   // by variable: a Problem leaves open what the value is
	derived map[string]bool   // by variable: a burst that follows from its rate
}

// unnamed is the issuer and audience of delegations where no public URL is set. A
// gateway trusts none but its own roots, so it need not tell gateways apart.
const unnamed = "urn:agentgate"

// PeopleURL is where people reach the agents' address: the PublicURL, or as it listens,
// which is of use on this computer alone.
func (s *Settings) PeopleURL() string {
	scheme := "http://"
	if s.TLSCertFile != "" {
		scheme = "https://"
	}
	return cmp.Or(s.PublicURL, scheme+s.Listen)
}

// DelegationURI is what delegations of this gateway have as issuer and audience.
func (s *Settings) DelegationURI() string { return cmp.Or(s.PublicURL, unnamed) }

// Sure reports whether all of these settings, by their variables' names, could
// be read. It is for Settings that Load returns beside Problems; of others it is
// always true.
func (s *Settings) Sure(variables ...string) bool {
	return !slices.ContainsFunc(variables, func(v string) bool { return s.doubts[v] })
}

// Derived reports whether a setting, by its variable's name, was given by nobody
// and follows from another: a burst from the rate that the registry's section
// gives alone.
func (s *Settings) Derived(variable string) bool { return s.derived[variable] }

// Source says where a setting's value comes from, by the variable's name, such
// as AGENTGATE_RATE_KEY_RPS: "flag --rate-key-rps", "environment
// AGENTGATE_RATE_KEY_RPS", "registry.yaml:4:3 server.rate_key_rps" or
// "default". An unknown name gives "".
func (s *Settings) Source(variable string) string {
	o, ok := s.origins[variable]
	if !ok {
		return ""
	}
	return o.String()
}

// Place names a setting by its variable's name as a message about it begins:
// where its value comes from and what it is called there.
func (s *Settings) Place(variable string) string {
	o := s.origins[variable]
	if o.where == "" {
		o = origin{"default", variable}
	}
	return o.where + ": " + o.name
}

// Value is a setting as an operator may see it.
type Value struct {
	Name   string // the variable
	Text   string // as written, or the default in words; [redacted] for a secret
	Source string
	// AfterRestart is what the process will go by when it is started anew; "" where
	// that is Text. See InForce.
	AfterRestart string
}

// Values returns every setting, in the order of Table.
func (s *Settings) Values() []Value {
	list := make([]Value, len(rows))
	for i, r := range rows {
		list[i] = Value{Name: r.variable(), Text: s.texts[r.variable()], Source: s.Source(r.variable())}
	}
	return list
}

// Setting is one member of the registry's server: section.
type Setting struct {
	Name  string // such as rate_key_rps
	Value string
	Where string // file:line:column

	// Doubt says that a problem of the file, which is reported elsewhere, leaves
	// open what the value is; a Value that is there is judged all the same.
	// Without a Name it is in doubt which of the settings the section gives.
	Doubt bool
}
