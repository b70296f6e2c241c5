package registry

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"agentgw/internal/literal"

	"golang.org/x/net/http/httpguts"
)

// DefaultTimeout is how long an upstream has to the first byte of its answer
// where its service does not say.
const DefaultTimeout = 30 * time.Second

func (r *reader) service(e entry) *Service {
	o := r.object(e.value, e.path, "base_url", "access", "dialect", "rate_limit", "max_inflight", "timeout",
		"delegation", "credential", "allow_private", "passthrough", "h2c", "actions", "websocket", "on_store_failure")
	found := len(r.problems)
	passthrough := r.optionalBoolean(o, "passthrough")
	r.actionsLost = r.actionsLost || len(r.problems) > found || o.lost("actions")
	s := &Service{
		Name:               e.name,
		Access:             r.choice(o, "access", AccessKey, AccessOpen),
		Timeout:            DefaultTimeout,
		DelegationRequired: r.choice(o, "delegation", "optional", "required") == "required",
		Credential:         Credential{Type: CredentialNone},
		AllowPrivate:       r.optionalBoolean(o, "allow_private"),
		Passthrough:        passthrough,
		Actions:            map[string]*Action{},
		Pos:                r.pos(e.key),
	}
	if m, ok := o.need("base_url"); ok {
		if text := r.text(m); text != "" {
			u, err := parseURL(text)
			if err != nil {
				r.fail(m.value, m.path, "%v", err)
			}
			s.BaseURL, s.BaseURLPos = u, r.pos(m.value)
		}
	}
	if s.H2C = r.optionalBoolean(o, "h2c"); s.H2C {
		r.clearTextOnly(o, s)
	}
	if s.Access == AccessOpen {
		s.Dialect = r.choice(o, "dialect", DialectOpenAI, DialectAnthropic, DialectNative)
	} else {
		s.Dialect = r.choice(o, "dialect", DialectNative, DialectOpenAI, DialectAnthropic)
	}
	if m, ok := o.get("rate_limit"); ok {
		s.Rate = r.rate(r.object(m.value, m.path, "rps", "burst"), true)
	}
	if m, ok := o.get("max_inflight"); ok {
		s.MaxInflight, s.MaxInflightPos = r.whole(m), r.pos(m.key)
	}
	if m, ok := o.get("timeout"); ok {
		s.Timeout = r.duration(m)
	}
	if m, ok := o.get("credential"); ok {
		s.Credential = r.credential(m)
		if s.Access == AccessOpen && s.Credential.Type != CredentialNone {
			r.fail(m.value, m.path, "an open service passes the caller's own credential on and has none of the gateway's")
		}
	}
	if m, ok := o.get("delegation"); ok && s.DelegationRequired && s.Access == AccessOpen {
		r.fail(m.value, m.path, "an open service has no key whose scope a delegation could narrow")
	}
	if m, ok := o.get("on_store_failure"); ok {
		s.OnStoreFailure = r.choice(o, m.name, "open", "local", "closed")
	}
	if m, ok := o.get("websocket"); ok {
		s.WebSocket = true
		w := r.object(m.value, m.path, "charge")
		if c, ok := w.get("charge"); ok {
			s.ChargeMessages = r.texts(c)
		}
	}
	if m, ok := o.get("actions"); ok {
		for _, a := range r.entries(m.value, m.path) {
			r.idName(a)
			s.Actions[a.name] = r.action(a, s)
		}
	}
	for _, name := range sortedNames(s.Actions) {
		s.byName = append(s.byName, s.Actions[name])
	}
	return s
}

// clearTextOnly refuses h2c where HTTP/2 is agreed on by TLS, and where HTTP/1 is needed.
func (r *reader) clearTextOnly(o *object, s *Service) {
	m, _ := o.get("h2c")
	if s.BaseURL != nil && s.BaseURL.Scheme != "http" {
		r.fail(m.value, m.path, "h2c is HTTP/2 in clear text, for a base_url of http; over TLS HTTP/2 is spoken wherever the service can, without a setting")
	}
	if w, ok := o.get("websocket"); ok {
		r.fail(m.value, m.path, "a service with websocket (line %d) speaks HTTP/1.1, as there is no upgrade in HTTP/2", r.pos(w.key).Line)
	}
}

// credential reads what kind of credential a service wants. No value of it is
// quoted: the credential itself may stand there by mistake.
func (r *reader) credential(e entry) Credential {
	o := r.object(e.value, e.path, append([]string{"type", "scope", "name"}, oauth2Members...)...)
	c := Credential{Type: CredentialNone, Pos: r.pos(e.key)}
	if _, ok := o.need("type"); !ok {
		return c
	}
	found := len(r.problems)
	c.Type = r.choice(o, "type", CredentialNone, CredentialBearer, CredentialBasic, CredentialHeader, CredentialQuery, CredentialOAuth2)
	unknown := len(r.problems) > found
	c.PerUser = r.choice(o, "scope", "shared", "user") == "user"
	if unknown {
		return c // nor is it known what belongs to it
	}
	if scope, ok := o.get("scope"); ok && c.Type == CredentialNone {
		r.fail(scope.key, scope.path, "a service without a credential has no scope for it")
	}
	if c.Type == CredentialHeader || c.Type == CredentialQuery {
		if m, ok := o.need("name"); ok {
			c.Name = r.text(m)
			if c.Type == CredentialHeader && c.Name != "" && (!httpguts.ValidHeaderFieldName(c.Name) || isReservedHeader(c.Name) && !isCredentialHeader(c.Name)) {
				r.fail(m.value, m.path, "is not a header that a credential can be in")
			}
		}
	} else if m, ok := o.get("name"); ok {
		r.fail(m.key, m.path, "a %s credential has no name", c.Type)
	}
	if c.Type == CredentialOAuth2 {
		c.OAuth2 = r.oauth2(o)
		if scope, ok := o.get("scope"); ok && c.PerUser && c.OAuth2.Flow == FlowClientCredentials {
			r.fail(scope.value, scope.path, "a client's own token is on nobody's behalf, and the same for every user: shared")
		}
		return c
	}
	for _, name := range oauth2Members {
		if m, ok := o.get(name); ok {
			r.fail(m.key, m.path, "is for oauth2 credentials; this one is %s", c.Type)
		}
	}
	return c
}

var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut,
	http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

func (r *reader) action(e entry, s *Service) *Action {
	o := r.object(e.value, e.path, "method", "path", "params")
	a := &Action{Name: e.name, Pos: r.pos(e.key), service: s}
	if m, ok := o.need("method"); ok {
		if a.Method = r.text(m); a.Method != "" && !slices.Contains(methods, a.Method) {
			r.fail(m.value, m.path, "%s is none of %s%s", literal.Quote(a.Method), strings.Join(methods, ", "), meant(literal.Nearest(a.Method, methods)))
		}
	}
	pathEntry, ok := o.need("path")
	if ok {
		if a.path = r.text(pathEntry); a.path != "" {
			parts, err := parseTemplate(a.path)
			if err != nil {
				r.fail(pathEntry.value, pathEntry.path, "%v", err)
			}
			a.parts = parts
		}
	}
	if m, ok := o.get("params"); ok {
		a.described = true
		r.params(m, a)
	}
	for i, p := range a.parts {
		if p.variable == "" {
			continue
		}
		at := slices.IndexFunc(a.params, func(q Param) bool { return q.Name == p.variable })
		if at < 0 {
			if !r.hasEntry(o, "params", p.variable) && !o.lost("params") {
				r.fail(pathEntry.value, pathEntry.path, "the variable {%s} is not declared in params", p.variable)
			}
			continue
		}
		a.parts[i].param = at
	}
	a.prepare()
	return a
}

// hasEntry reports whether a mapping has a member of that name, however wrong.
func (r *reader) hasEntry(o *object, mapping, name string) bool {
	m, ok := o.get(mapping)
	return ok && hasMember(m.value, name)
}
