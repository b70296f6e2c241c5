package registry

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentgw/internal/literal"

	"gopkg.in/yaml.v3"
)

// reader walks the tree of one file and gathers what is wrong with it. Its
// methods return a usable value, usually zero, after recording a problem, so
// that the walk goes on and finds the next one.
type reader struct {
	file     string
	problems Problems

	// Whether names may be missing from these for a reason that is reported
	// already. Who names what is not there is not blamed then.
	tenantsLost, servicesLost, actionsLost bool
}

// fail records a problem at a node. The root has the path ".".
func (r *reader) fail(n *yaml.Node, path, format string, args ...any) {
	if path == "" {
		path = "."
	}
	at := Position{File: r.file, Line: max(n.Line, 1), Column: max(n.Column, 1)}
	r.problems = append(r.problems, NewProblem(at, path, fmt.Sprintf(format, args...)))
}

func (r *reader) pos(n *yaml.Node) Position {
	return Position{File: r.file, Line: n.Line, Column: n.Column}
}

const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

var simpleName = regexp.MustCompile(`^[A-Za-z0-9_$-][A-Za-z0-9_.$-]*$`)

// join adds a key to a path, in quotes where it would be misread.
func join(path, key string) string {
	if !simpleName.MatchString(key) {
		key = literal.Quote(key)
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

// entry is one member of a mapping.
type entry struct {
	name  string
	key   *yaml.Node
	value *yaml.Node
	path  string
}

// entries returns the members of a mapping in the order of the file. A name
// that is given twice, or that differs from another by case only, is refused
// with both places and left out, so that the first one is still checked.
func (r *reader) entries(n *yaml.Node, path string) []entry {
	if n.Kind == yaml.AliasNode {
		return nil // refused by forbid
	}
	if n.Kind != yaml.MappingNode {
		r.fail(n, path, "must be a mapping of names to values, not %s", kindOf(n))
		return nil
	}
	var list []entry
	written, seen := map[string]*yaml.Node{}, map[string]*yaml.Node{} // seen whatever the case
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if isMerge(key) || key.Kind == yaml.AliasNode {
			continue // refused by forbid
		}
		if key.Kind != yaml.ScalarNode {
			r.fail(key, path, "a name must be text, not %s", kindOf(key))
			continue
		}
		at := join(path, key.Value)
		if isNull(key) {
			r.fail(key, at, "null is not a name: put it in quotes if it is one")
			continue
		}
		fold := strings.ToLower(key.Value)
		if first := written[key.Value]; first != nil {
			r.fail(key, at, "is given twice; the first is at %d:%d", first.Line, first.Column)
			continue
		}
		written[key.Value] = key
		if first := seen[fold]; first != nil {
			r.fail(key, at, "differs only by case from %q at %d:%d", first.Value, first.Line, first.Column)
			continue
		}
		seen[fold] = key
		list = append(list, entry{name: key.Value, key: key, value: value, path: at})
	}
	return list
}

// object is a mapping whose possible members are known.
type object struct {
	r       *reader
	node    *yaml.Node
	path    string
	members map[string]entry
}

// object reads a mapping with members of the given names only. The result can
// always be asked; after a problem it has fewer members.
func (r *reader) object(n *yaml.Node, path string, known ...string) *object {
	o := &object{r: r, node: n, path: path, members: map[string]entry{}}
	for _, e := range r.entries(n, path) {
		o.members[e.name] = e
	}
	o.forget(known)
	return o
}

// forget reports the members that are not known, and drops them.
func (o *object) forget(known []string) {
	for name, e := range o.members {
		if slices.Contains(known, name) {
			continue
		}
		delete(o.members, name)
		hint := meant(literal.Nearest(name, known))
		if home := homeOf(o.path, e); hint == "" && home != "" {
			hint = fmt.Sprintf("; it belongs under %s", home)
		}
		if hint == "" && credentialPath.MatchString(o.path) {
			hint = "; the credential itself is never in this file: agentgw credentials set takes it"
		}
		o.r.fail(e.key, e.path, "unknown key%s", hint)
	}
}

// homeOf knows where a member belongs that stands one level too high.
func homeOf(path string, e entry) string {
	switch {
	case path == "" && hasMember(e.value, "base_url"):
		return "services"
	case path == "" && e.value.Kind == yaml.ScalarNode:
		return "server, if it is a setting"
	case servicePath.MatchString(path):
		return homesInService[e.name]
	case actionPath.MatchString(path):
		return "params, if it is a parameter"
	case strings.HasPrefix(path, "keys[") && (e.name == "rps" || e.name == "burst"):
		return "limits"
	case tenantPath.MatchString(path) && strings.HasPrefix(e.name, "queue"):
		return "server, as tenant_" + e.name
	case strings.HasPrefix(path, "rules[") && slices.Contains(aboutCalls, e.name):
		return "when, as an expression: " + e.name + ` == "..."`
	}
	return ""
}

var (
	servicePath    = regexp.MustCompile(`^services\.[^.]+$`)
	tenantPath     = regexp.MustCompile(`^tenants\.[^.]+$`)
	aboutCalls     = []string{"service", "action", "caller", "tenant", "client_ip", "user", "space", "org", "principal"}
	credentialPath = regexp.MustCompile(`^services\.[^.]+\.credential$`)
	actionPath     = regexp.MustCompile(`^services\.[^.]+\.actions\.[^.]+$`)

	homesInService = map[string]string{
		"rps": "rate_limit", "burst": "rate_limit", "type": "credential", "scope": "credential", "name": "credential",
		"method": "actions.NAME", "path": "actions.NAME", "params": "actions.NAME", "charge": "websocket",
	}
)

func hasMember(n *yaml.Node, name string) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

func (o *object) get(name string) (entry, bool) {
	e, ok := o.members[name]
	return e, ok
}

// need is get for a member that must be there.
func (o *object) need(name string) (entry, bool) {
	e, ok := o.members[name]
	if !ok && o.node.Kind == yaml.MappingNode && !o.misnamed(name) {
		o.r.fail(o.node, o.path, "%s is missing", name)
	}
	return e, ok
}

// lost reports whether a member that would be a mapping, or names in it, may be
// missing for a reason that is reported already.
func (o *object) lost(name string) bool {
	e, ok := o.members[name]
	return ok && (e.value.Kind != yaml.MappingNode || merges(e.value)) || o.node.Kind != yaml.MappingNode || o.misnamed(name)
}

// misnamed reports whether something stands in the mapping that was refused and
// may have been meant as the member: a misspelt name, a second one, a merge key.
func (o *object) misnamed(name string) bool {
	for i := 0; i+1 < len(o.node.Content); i += 2 {
		key := o.node.Content[i]
		if e, ok := o.members[key.Value]; ok && e.key == key {
			continue
		}
		if strings.EqualFold(key.Value, name) || literal.Nearest(key.Value, []string{name}) != "" {
			return true
		}
	}
	return merges(o.node)
}

// merges reports whether a mapping takes members from elsewhere, which forbid
// has refused.
func merges(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if isMerge(n.Content[i]) || n.Content[i].Kind == yaml.AliasNode {
			return true
		}
	}
	return false
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&quoted == 0 && n.ShortTag() == "!!null"
}

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return "a single value"
}

// items returns the members of a list.
func (r *reader) items(e entry) []entry {
	if e.value.Kind == yaml.AliasNode {
		return nil // refused by forbid
	}
	if e.value.Kind != yaml.SequenceNode {
		r.fail(e.value, e.path, "must be a list, not %s", kindOf(e.value))
		return nil
	}
	list := make([]entry, len(e.value.Content))
	for i, n := range e.value.Content {
		list[i] = entry{name: strconv.Itoa(i), key: n, value: n, path: fmt.Sprintf("%s[%d]", e.path, i)}
	}
	return list
}
