package registry

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"agentgw/internal/literal"
)

// longestWindow is far more than a count that lives in one process can mean.
const longestWindow = 10 * 365 * 24 * time.Hour

// MaxQuota is the most that a rule can allow in a window: what has at most 15
// digits, as the integers of the fields that agents are told of it in (RFC 9651).
const MaxQuota = 999_999_999_999_999

// taken are the names under which agents and operators meet the gateway's own
// limits. A rule by one of them could not be told from it.
var taken = []string{
	"key", "caller", "address", "tenant", "service", "process",
	"inflight", "service-inflight", "process-inflight", "tunnel_bytes",
}

// rules reads the extra limits. The identity limits have been read before.
func (r *reader) rules(e entry, identity IdentityLimits) []Rule {
	var list []Rule
	seen := map[string]entry{}
	for _, item := range r.items(e) {
		o := r.object(item.value, item.path, "name", "key", "window", "max", "count", "when", "cost", "mode", "on_store_failure")
		rule := Rule{
			Count:          CountRequests,
			Cost:           r.optionalBoolean(o, "cost"),
			Mode:           r.choice(o, "mode", ModeEnforce, ModeObserve),
			OnStoreFailure: r.choice(o, "on_store_failure", "open", "local", "closed"),
			Pos:            r.pos(item.value),
		}
		if m, ok := o.need("key"); ok {
			rule.Key, rule.KeyPos = r.expression(m), r.pos(m.value)
		}
		rule.When, rule.WhenPos = r.optionalExpression(o, "when")
		if text, at := r.optionalExpression(o, "count"); text != "" {
			rule.Count, rule.CountPos = text, at
		}
		if m, ok := o.need("name"); ok {
			rule.Name = r.ruleName(m, seen, identity)
		}
		if m, ok := o.need("window"); ok {
			rule.Window = r.window(m)
		}
		if m, ok := o.need("max"); ok {
			rule.MaxPos = r.pos(m.value)
			rule.Most, rule.Max = r.most(m)
		}
		list = append(list, rule)
	}
	return list
}

// optionalExpression is expression for a member that may be missing.
func (r *reader) optionalExpression(o *object, name string) (string, Position) {
	if m, ok := o.get(name); ok {
		return r.expression(m), r.pos(m.value)
	}
	return "", Position{}
}

// expression reads one as text, over several lines if need be: what it means is
// for package rules to say.
func (r *reader) expression(m entry) string {
	s, ok := r.scalar(m)
	s = strings.TrimSpace(s)
	switch {
	case !ok:
	case s == "":
		r.fail(m.value, m.path, "is empty")
	case strings.ContainsFunc(s, func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }):
		r.fail(m.value, m.path, "holds a control character")
	default:
		return s
	}
	return ""
}

func (r *reader) ruleName(m entry, seen map[string]entry, identity IdentityLimits) string {
	name := r.id(m)
	if name == "" || !once(r, seen, name, m) {
		return ""
	}
	if slices.Contains(taken, name) || identity.has(name) {
		r.fail(m.value, m.path, "%s is the name of another limit: call the rule something else", literal.Quote(name))
	}
	return name
}

func (r *reader) window(m entry) time.Duration {
	found := len(r.problems)
	d := r.duration(m)
	switch {
	case len(r.problems) > found:
	case d < time.Millisecond:
		r.fail(m.value, m.path, "a window is at least 1ms")
	case d > longestWindow:
		r.fail(m.value, m.path, "a window is at most %dh", int(longestWindow.Hours()))
	}
	return d
}

// numeric is what is meant as a number, well-formed or not, and no expression.
var numeric = regexp.MustCompile(`^[-+.]?[0-9][\w.]*$`)

// most reads the maximum of a rule: a number, or an expression that yields one.
func (r *reader) most(m entry) (int64, string) {
	s := r.expression(m)
	bare := m.value.Style&quoted == 0 && (m.value.ShortTag() == "!!int" || m.value.ShortTag() == "!!float")
	switch {
	case s == "" || !bare && !numeric.MatchString(s):
		return 0, s
	case !strings.ContainsAny(s, "bB"):
		n := read(r, m, s, true, literal.Whole)
		return r.quota(m, int64(n)), ""
	}
	return r.quota(m, read(r, m, s, true, literal.Size)), ""
}

func (r *reader) quota(m entry, n int64) int64 {
	if n > MaxQuota {
		r.fail(m.value, m.path, "is more than %d", int64(MaxQuota))
		return 0
	}
	return n
}

func (r *reader) identityLimits(e entry) IdentityLimits {
	o := r.object(e.value, e.path, "user", "space", "org")
	l := IdentityLimits{Pos: r.pos(e.key)}
	for _, of := range []struct {
		name  string
		field *int64
		at    *Position
	}{{"user", &l.User, &l.UserPos}, {"space", &l.Space, &l.SpacePos}, {"org", &l.Org, &l.OrgPos}} {
		if m, ok := o.get(of.name); ok {
			*of.field, *of.at = r.quota(m, int64(r.whole(m))), r.pos(m.key)
		}
	}
	return l
}
