package registry

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"agentgw/internal/literal"

	"golang.org/x/net/http/httpguts"
	"gopkg.in/yaml.v3"
)

// shorthands are the schemas that a single word stands for. A question mark
// after the word makes the parameter optional.
var shorthands = map[string]string{
	"string": "string", "int": "integer", "integer": "integer", "number": "number",
	"bool": "boolean", "boolean": "boolean", "array": "array", "object": "object",
}

// params reads the parameters of an action whose method and path are known.
func (r *reader) params(e entry, a *Action) {
	headers := map[string]entry{}
	for _, m := range r.entries(e.value, e.path) {
		if m.name == "" || len(m.name) > 128 || strings.ContainsAny(m.name, "{}") {
			r.fail(m.key, m.path, "is not a name for a parameter")
			continue
		}
		found := len(r.problems)
		p := Param{Name: m.name, Required: true}
		var given string // the place that the file names
		var schema any
		switch m.value.Kind {
		case yaml.MappingNode:
			given, schema = r.schemaParam(m, &p)
		default:
			schema = r.shorthand(m, &p)
		}
		if schema == nil {
			continue
		}
		c, err := compile(schema)
		if err != nil {
			r.unsound(m.value, m.path, schema, err)
		}
		if len(r.problems) > found {
			continue
		}
		p.In = r.place(m, a, given)
		r.fits(m, p, c, a)
		if p.In == InHeader {
			once(r, headers, http.CanonicalHeaderKey(p.Name), m)
		}
		c.prepare(p)
		a.params, a.checks = append(a.params, p), append(a.checks, c)
	}
}

func (r *reader) shorthand(e entry, p *Param) any {
	s := r.text(e)
	name, optional := strings.CutSuffix(s, "?")
	p.Required = !optional
	kind, ok := shorthands[name]
	if !ok {
		if s != "" {
			r.fail(e.value, e.path, "%s is no type: write one of string, int, number, bool, array, object (with ? when optional, in quotes: \"string?\"), or a JSON Schema%s",
				literal.Quote(s), didYouMean(name, shorthands))
		}
		return nil
	}
	p.Schema = json.RawMessage(`{"type":"` + kind + `"}`)
	return map[string]any{"type": kind}
}

// schemaParam reads a parameter that is written as a JSON Schema. Two of its
// members are not JSON Schema's and are taken out: in, and required where it
// is a boolean (JSON Schema's own required is a list of members).
func (r *reader) schemaParam(e entry, p *Param) (in string, schema any) {
	own := *e.value
	own.Content = nil
	for _, m := range r.entries(e.value, e.path) {
		switch {
		case m.name == "in":
			in, _ = r.scalar(m)
			if _, err := literal.OneOf(in, InPath, InQuery, InBody, InHeader); err != nil {
				r.fail(m.value, m.path, "%v", err)
			}
		case m.name == "required" && m.value.Kind == yaml.ScalarNode:
			p.Required = r.boolean(m)
		case m.name == "optional":
			r.fail(m.key, m.path, "unknown key; write required: false")
		default:
			own.Content = append(own.Content, m.key, m.value)
		}
	}
	var text []byte
	schema, text = r.schema(&own, e.path)
	p.Schema = text
	return in, schema
}

// place says where a parameter goes: exactly one place each.
func (r *reader) place(e entry, a *Action, given string) string {
	inPath := slices.ContainsFunc(a.parts, func(p part) bool { return p.variable == e.name })
	switch {
	case inPath && given != "" && given != InPath:
		r.fail(e.key, e.path, "is in the path already, so it cannot be in the %s too", given)
		return InPath
	case inPath:
		return InPath
	case given == InPath && a.parts == nil: // the path is missing or not sound
		return InPath
	case given == InPath:
		r.fail(e.key, e.path, "the path has no variable {%s}", e.name)
		return InPath
	case given == InBody && (a.Method == http.MethodGet || a.Method == http.MethodHead):
		r.fail(e.key, e.path, "a %s has no body", a.Method)
		return InBody
	case given != "":
		return given
	}
	switch a.Method {
	case http.MethodGet, http.MethodHead, http.MethodDelete:
		return InQuery
	}
	return InBody
}

// fits refuses what could never be sent in its place.
func (r *reader) fits(e entry, p Param, c check, a *Action) {
	unfit := func(types ...string) {
		for _, t := range types {
			if slices.Contains(c.types, t) {
				r.fail(e.value, e.path, "a parameter in the %s cannot be of the type %s", p.In, t)
			}
		}
	}
	credential := a.service.Credential
	switch p.In {
	case InPath:
		if !p.Required {
			r.fail(e.value, e.path, "a parameter in the path cannot be optional")
		}
		unfit("object", "array", "null")
	case InQuery:
		unfit("object", "null")
		if credential.Type == CredentialQuery && credential.Name == p.Name {
			r.fail(e.key, e.path, "is where the service's credential goes")
		}
	case InHeader:
		unfit("object", "array", "null")
		switch {
		case !httpguts.ValidHeaderFieldName(p.Name) || strings.Contains(p.Name, "_"):
			r.fail(e.key, e.path, "is not a name for a header")
		case isReservedHeader(p.Name):
			r.fail(e.key, e.path, "is a header that the gateway sets or removes itself")
		case credential.Type == CredentialHeader && strings.EqualFold(credential.Name, p.Name):
			r.fail(e.key, e.path, "is where the service's credential goes")
		}
	}
}

var reservedHeaders = map[string]bool{
	// Connection-bound (RFC 9110, section 7.6.1) and framing.
	"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Content-Length": true, "Content-Type": true,
	"Content-Encoding": true, "Expect": true, "Host": true,
	// Who is calling, and from where.
	"Forwarded": true, "X-Real-Ip": true, "Via": true,
	"X-Request-Id":           true, // the gateway's: by it a nested call is recognised
	"X-Http-Method-Override": true, "X-Method-Override": true, "X-Original-Url": true, "X-Rewrite-Url": true,
}

var credentialHeaders = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "X-Api-Key": true,
}

// isReservedHeader reports whether no parameter may set a header of this name.
func isReservedHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return reservedHeaders[name] || credentialHeaders[name] ||
		strings.HasPrefix(name, "Agentgate-") || strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-")
}

// isCredentialHeader reports whether it is reserved just because it is a
// usual place for a credential.
func isCredentialHeader(name string) bool { return credentialHeaders[http.CanonicalHeaderKey(name)] }
