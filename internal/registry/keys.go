package registry

import (
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"agentgw/internal/literal"

	"gopkg.in/yaml.v3"
)

// keys reads the static keys. Tenants and services have been read before.
func (r *reader) keys(e entry, s *Snapshot) []*Key {
	var keys []*Key
	ids, digests := map[string]entry{}, map[[32]byte]entry{}
	for _, item := range r.items(e) {
		o := r.object(item.value, item.path, "id", "sha256", "services", "actions", "users",
			"tenant", "limits", "user", "space", "org", "not_before", "not_after", "retiring")
		k := &Key{
			Pos:  r.pos(item.value),
			User: r.optionalText(o, "user"), Space: r.optionalText(o, "space"), Org: r.optionalText(o, "org"),
		}
		if m, ok := o.need("id"); ok {
			if k.ID = r.id(m); k.ID != "" {
				once(r, ids, k.ID, m)
			}
		}
		if m, ok := o.need("sha256"); ok {
			if digest, ok := r.digest(m); ok && once(r, digests, digest, m) {
				k.Digest = digest
			}
		}
		if m, ok := o.need("services"); ok {
			k.Services = r.keyServices(m, s)
		}
		if m, ok := o.get("actions"); ok {
			k.Actions = r.keyActions(m, s)
		}
		if m, ok := o.need("users"); ok {
			k.Users = r.starOrNames(m)
		}
		if m, ok := o.get("tenant"); ok {
			if k.Tenant = r.id(m); k.Tenant != "" && s.Tenants[k.Tenant] == nil && !r.tenantsLost {
				r.fail(m.value, m.path, "there is no tenant %s%s", k.Tenant, didYouMean(k.Tenant, s.Tenants))
			}
		}
		if m, ok := o.get("limits"); ok {
			k.Rate = r.rate(r.object(m.value, m.path, "rps", "burst"), true)
		}
		k.NotBefore, k.NotAfter = r.optionalTime(o, "not_before"), r.optionalTime(o, "not_after")
		if m, ok := o.get("not_after"); ok && !k.NotAfter.IsZero() && !k.NotBefore.Before(k.NotAfter) {
			r.fail(m.value, m.path, "is not after not_before: the key would never be valid")
		}
		if m, ok := o.get("retiring"); ok {
			k.Retiring = r.retiring(m, digests)
		}
		keys = append(keys, k)
	}
	return keys
}

// retiring reads the older of two secrets. It has an end: without one it would stay,
// forgotten.
func (r *reader) retiring(e entry, digests map[[32]byte]entry) *Retiring {
	o, old := r.object(e.value, e.path, "sha256", "not_after"), &Retiring{}
	if m, ok := o.need("sha256"); ok {
		if digest, ok := r.digest(m); ok && once(r, digests, digest, m) {
			old.Digest = digest
		}
	}
	if _, ok := o.need("not_after"); ok {
		old.NotAfter = r.optionalTime(o, "not_after")
	}
	return old
}

var digestPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// digest reads the SHA-256 of a key. A text that is none is not quoted: it may
// be the key itself, put there by mistake.
func (r *reader) digest(e entry) (digest [32]byte, ok bool) {
	s := r.text(e)
	if s == "" {
		return digest, false
	}
	if !digestPattern.MatchString(s) {
		r.fail(e.value, e.path, "is not a SHA-256 in 64 digits of 0-9 a-f")
		return digest, false
	}
	_, err := hex.Decode(digest[:], []byte(s))
	return digest, err == nil
}

// starOrNames reads a list of names, or the one item *. It may not be empty:
// such a key could do nothing, and an empty list is easily read as all.
func (r *reader) starOrNames(e entry) []string {
	list := r.texts(e)
	if e.value.Kind == yaml.SequenceNode && len(e.value.Content) == 0 {
		r.fail(e.value, e.path, `is empty: list names, or ["*"] for all`)
	}
	if len(list) > 1 && slices.Contains(list, "*") {
		r.fail(e.value, e.path, "* stands for all, and so stands alone")
	}
	return list
}

func (r *reader) keyServices(e entry, s *Snapshot) []string {
	list := r.starOrNames(e)
	for i, name := range list {
		if name != "*" && !s.Knows(name) && !r.servicesLost {
			at := entry{value: e.value, path: e.path}
			if len(e.value.Content) == len(list) {
				at = entry{value: e.value.Content[i], path: fmt.Sprintf("%s[%d]", e.path, i)}
			}
			r.fail(at.value, at.path, "there is no service %s%s", literal.Quote(name), didYouMean(name, s.Services))
		}
	}
	return list
}

var patternPattern = regexp.MustCompile(`^[a-z0-9._:*-]+$`) // a colon as in tunnels.HOST:PORT

func (r *reader) keyActions(e entry, s *Snapshot) []string {
	var list []string
	if e.value.Kind == yaml.SequenceNode && len(e.value.Content) == 0 {
		r.fail(e.value, e.path, "is empty: leave it out to allow every action of the services")
	}
	for _, w := range r.words(e) {
		if !patternPattern.MatchString(w.text) || !s.reaches(w.text) && !r.servicesLost && !r.actionsLost {
			r.fail(w.value, w.path, "%s matches no declared action: write SERVICE.ACTION, with * for any letters", literal.Quote(w.text))
		}
		list = append(list, w.text)
	}
	return list
}

// reaches reports whether a pattern SERVICE.ACTION can match anything that is
// declared. A service with passthrough also has calls without an action's
// name, which SERVICE.* covers. Of a pattern that begins with tunnels. it cannot be told
// which of the hosts below a star it is for.
func (s *Snapshot) reaches(pattern string) bool {
	match := func(name string) bool {
		// Ids have no slash, which is the one letter that * would not cover.
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	if s.Tunnels != nil && (match(TunnelService+".") || strings.HasPrefix(pattern, TunnelService+".")) {
		return true
	}
	for name, service := range s.Services {
		if service.Passthrough && match(name+".") {
			return true
		}
		for action := range service.Actions {
			if match(name + "." + action) {
				return true
			}
		}
	}
	return false
}

func didYouMean[V any](name string, known map[string]V) string {
	return meant(literal.Nearest(name, sortedNames(known)))
}

// meant hints at a name that is near, or at none where it is "".
func meant(near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", near)
}

func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
