package registry

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Position is a place in the registry file. The zero value is no place.
type Position struct {
	File         string
	Line, Column int // both count from 1
}

// String returns file:line:column, or "" for no place.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

var position = regexp.MustCompile(`^(.+):(\d+):(\d+)$`)

// ParsePosition is the inverse of String. A text that names no line is a File
// alone.
func ParsePosition(s string) Position {
	m := position.FindStringSubmatch(s)
	if m == nil {
		return Position{File: s}
	}
	line, errLine := strconv.Atoi(m[2])
	column, errColumn := strconv.Atoi(m[3])
	if errLine != nil || errColumn != nil {
		return Position{File: s}
	}
	return Position{File: m[1], Line: line, Column: column}
}

// Snapshot is one registry file, read and found to be sound. It is immutable:
// nothing in it may be changed by whoever holds it, and then any number of
// goroutines may read it. A call is decided by one Snapshot from its beginning
// to its end.
type Snapshot struct {
	File string
	Hash string // SHA-256 of the file's bytes, in hex

	Server   []Setting // the server: section, for config
	Tenants  map[string]*Tenant
	Keys     []*Key // in the order of the file
	Services map[string]*Service

	Issuers        []Issuer
	Tunnels        *Tunnels // nil without the section
	Rules          []Rule
	IdentityLimits IdentityLimits
}

// Setting is one member of the server: section, as text: what it means is for
// config to say. A list has become its items with commas between them.
type Setting struct {
	Name  string // as written, such as rate_key_rps
	Value string
	Pos   Position

	// Doubt says that the file's Problems leave open what the value is: it could
	// not be read (then it is ""), or is given twice. Without a name it is in
	// doubt what else the section holds.
	Doubt bool
}

// Rate is a limit of RPS calls a second that may save up Burst of them.
type Rate struct {
	RPS            float64 // as the file has it
	Burst          int     // 0 for either: this limit is switched off
	BurstDefaulted bool    // the file gave a rate alone; Burst is max(1, ceil(RPS))

	Pos, BurstPos Position // of each number; the same where the burst is defaulted
}

// Disabled reports whether the limit is switched off, by either number.
func (r *Rate) Disabled() bool { return r.RPS == 0 || r.Burst == 0 }

// Tenant is a named tenant.
type Tenant struct {
	Name        string
	Rate        *Rate // nil: the default of all tenants
	MaxInflight *int  // nil: the default of all tenants; 0: no cap
	Weight      int   // share under the process cap; 1 unless given

	Pos                       Position
	MaxInflightPos, WeightPos Position // no place where it is not given
}

// Key is a static key of the file.
type Key struct {
	ID       string
	Digest   [32]byte  // SHA-256 of the whole key; of the newest secret
	Retiring *Retiring // the secret before it; nil: none
	Services []string  // names of declared services, or exactly ["*"]
	Actions  []string  // patterns SERVICE.ACTION with *; empty: not narrowed
	Users    []string  // principals, or exactly ["*"]
	Tenant   string    // a declared tenant, or ""
	Rate     *Rate     // nil: the default of all keys

	User, Space, Org string // whose key this is, for rules

	NotBefore, NotAfter time.Time // zero: no beginning, no end

	Pos Position
}

// Retiring is the older of two secrets of a key, and the first instant at which it is
// no longer valid.
type Retiring struct {
	Digest   [32]byte
	NotAfter time.Time
}

// Access says who may call a service.
const (
	AccessKey  = "key"  // holders of a gateway key
	AccessOpen = "open" // anyone; the service checks its own credential
)

// Dialects: the shape of the gateway's own refusals on a service.
const (
	DialectNative    = "native"
	DialectOpenAI    = "openai"
	DialectAnthropic = "anthropic"
)

// Service is one upstream.
type Service struct {
	Name    string
	BaseURL *url.URL // scheme, host and path only; its path has no trailing slash
	Access  string   // AccessKey or AccessOpen
	Dialect string   // one of the dialects, the default filled in

	BaseURLPos     Position
	MaxInflightPos Position // no place where it is not given

	Rate        *Rate         // per key on this service; nil: none
	MaxInflight int           // 0: no cap
	Timeout     time.Duration // to the first byte of the answer; 0: no bound

	DelegationRequired bool
	Credential         Credential
	AllowPrivate       bool // private, loopback and link-local addresses may be dialled
	Passthrough        bool
	H2C                bool // HTTP/2 in clear text is spoken from the first byte; of https it is agreed on anyway
	Actions            map[string]*Action

	WebSocket      bool     // an upgrade to it may be asked for
	ChargeMessages []string // websocket.charge: client message types that are charged
	OnStoreFailure string   // open, local or closed; "": as the setting says

	Pos Position

	byName []*Action
}

// Credential types.
const (
	CredentialNone   = "none"
	CredentialBearer = "bearer"
	CredentialBasic  = "basic"
	CredentialHeader = "header"
	CredentialQuery  = "query"
	CredentialOAuth2 = "oauth2"
)

// Credential says how a service's credential goes onto a request. The secret
// itself is in the vault, never in the registry.
type Credential struct {
	Type    string // one of the credential types; never ""
	Name    string // of the header or query parameter, for those two types
	PerUser bool   // one for each user (scope: user) instead of one for all
	OAuth2  *OAuth2
	Pos     Position
}

// OAuth2 is where the tokens of an oauth2 credential come from. The client's secret is
// in the vault.
type OAuth2 struct {
	Flow         string // one of the flows
	AuthorizeURL string // where people are sent; "" with FlowClientCredentials
	TokenURL     string
	Issuer       string // what the server calls itself when it sends them back; "": not asked
	ClientID     string
	ClientAuth   string   // basic, post or none
	Scopes       []string // asked for; empty: whatever the server gives by default
	// What a server wants in its address and in requests for tokens besides.
	AuthorizeParams, TokenParams map[string]string
	AllowPrivate                 bool // the token endpoint may have a private, loopback or link-local address
}

// The flows of OAuth2: who grants the access.
const (
	FlowAuthorizationCode = "authorization_code" // a person, by connecting an account
	FlowClientCredentials = "client_credentials" // the client, on nobody's behalf
)

// Issuer is an OpenID Connect issuer whose tokens identify callers. A claim is a
// name, or a JSON Pointer (RFC 6901) into the claims where it begins with a slash.
type Issuer struct {
	Issuer       string
	Audience     string
	AZP          []string // clients whose tokens are taken; empty: any
	TenantClaim  string
	UserClaim    string // "sub" unless given
	SpaceClaim   string
	OrgClaim     string
	Tenants      map[string]string // value of TenantClaim -> named tenant
	AllowPrivate bool              // it may be at a private, loopback or link-local address

	Grant          // of whom none of Scopes is for
	Scopes []Scope // the first that holds counts

	Pos Position
}

// Grant is what callers of an issuer may do, and how often.
type Grant struct {
	Services []string // names of declared services, or exactly ["*"]; empty: nothing may be called
	Actions  []string // patterns SERVICE.ACTION with *; empty: not narrowed
	Users    []string // principals, or exactly ["*"]; nil: the caller's own user alone
	Rate     *Rate    // of each caller; nil: the default of all keys
	Pos      Position
}

// Scope is a Grant for those of whom a claim is Value, or a list with it; or of whose
// claims an expression of CEL holds.
type Scope struct {
	Claim, Value string
	When         string // not compiled yet; "": Claim and Value say it
	WhenPos      Position
	Grant
}

// Grants are all that a caller of the issuer may have, the last that of whom no
// scope is for.
func (i *Issuer) Grants() []*Grant {
	list := make([]*Grant, 0, len(i.Scopes)+1)
	for n := range i.Scopes {
		list = append(list, &i.Scopes[n].Grant)
	}
	return append(list, &i.Grant)
}

// What a rule counts, besides a number that an expression takes from the call.
const (
	CountRequests = "requests"
	CountBytes    = "bytes"
)

// Modes of a rule: whether it refuses, or only shows what it would refuse.
const (
	ModeEnforce = "enforce"
	ModeObserve = "observe"
)

// Rule is an extra limit. Its expressions are text here; package rules compiles
// them.
type Rule struct {
	Name   string
	Key    string // an expression
	Window time.Duration
	Max    string // an expression; "" where Most is the maximum
	Most   int64  // 0: this rule is switched off
	Count  string // CountRequests, CountBytes or an expression
	When   string // an expression; "": always
	Mode   string // ModeEnforce or ModeObserve

	// For calls in a batch, and for shared limits, neither of which there is yet.
	Cost           bool
	OnStoreFailure string // open, local or closed

	Pos                               Position
	KeyPos, MaxPos, CountPos, WhenPos Position // of the values
}

// IdentityLimits are calls a second for each user, space and organisation;
// 0 is no limit.
type IdentityLimits struct {
	User, Space, Org int64

	Pos                       Position
	UserPos, SpacePos, OrgPos Position
}

// has reports whether there is an identity limit of that name.
func (l IdentityLimits) has(name string) bool {
	return name == "user" && l.User > 0 || name == "space" && l.Space > 0 || name == "org" && l.Org > 0
}
