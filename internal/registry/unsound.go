package registry

import (
	"errors"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"gopkg.in/yaml.v3"

	"agentgw/internal/literal"
)

// schemaTypes are the types of JSON Schema.
var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// mostFaults is how many mistakes in one schema are told.
const mostFaults = 16

// unsound records why the schema at n does not compile: every mistake at its own
// place, the first of each place. What is told is taken out of the schema, as the
// compiler stops at what it cannot follow, and that may not be all.
func (r *reader) unsound(n *yaml.Node, path string, schema any, err error) {
	told := 0
	for err != nil {
		list := faults(schema, err)
		if len(list) == 0 || len(list[0].at) == 0 {
			r.fail(n, path, "not a sound JSON Schema: %s", withoutAddress(err))
			return
		}
		for _, f := range list {
			if told++; told > mostFaults {
				r.fail(n, path, "not a sound JSON Schema: there are more mistakes than the %d told here", mostFaults)
				return
			}
			node, where := within(n, path, f.at)
			hint := ""
			if f.at[len(f.at)-1] == "type" && strings.HasPrefix(f.what, "value must be one of") {
				hint = meant(literal.Nearest(node.Value, schemaTypes))
			}
			r.fail(node, where, "not a sound JSON Schema: %s%s", f.what, hint)
			takeOut(schema, f.at)
		}
		before := err.Error()
		if _, err = compile(schema); err != nil && err.Error() == before {
			return // of no help
		}
	}
}

// fault is one mistake in a schema, at a JSON pointer.
type fault struct {
	at   []string
	what string
}

// faults are the mistakes that a compiler's error tells of, in the order of their
// places; none if it has no place.
func faults(schema any, err error) (list []fault) {
	var invalid *jsonschema.SchemaValidationError
	var whole *jsonschema.ValidationError
	if errors.As(err, &invalid) && errors.As(invalid.Err, &whole) {
		// What a $ref leads to is looked at by itself, if it stands where no schema would.
		_, base, _ := strings.Cut(invalid.URL, "#")
		for _, e := range ends(schema, whole) {
			list = append(list, fault{slices.Concat(tokens(base), e.InstanceLocation), reasonOf(&jsonschema.ValidationError{ErrorKind: e.ErrorKind})})
		}
	} else {
		var remote *jsonschema.LoadURLError
		isRemote := errors.As(err, &remote)
		for at, v := range members(schema, nil) {
			to, ok := v.(string)
			if name := at[len(at)-1]; !ok || name != "$ref" && name != "$dynamicRef" {
				continue
			}
			switch local := strings.HasPrefix(to, "#"); {
			case !local && isRemote:
				list = append(list, fault{at, errRemote.Error()})
			case local && strings.Contains(err.Error(), to):
				list = append(list, fault{at, "leads to nothing in the schema"})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b fault) int { return slices.Compare(a.at, b.at) })
	return slices.CompactFunc(list, func(a, b fault) bool { return slices.Equal(a.at, b.at) })
}

// tokens are those of a JSON pointer in the fragment of a URL (RFC 6901, section 6).
func tokens(fragment string) []string {
	pointer, err := url.PathUnescape(fragment)
	if err != nil || pointer == "" {
		return nil
	}
	list := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i := range list {
		list[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(list[i])
	}
	return list
}

// members yields every member and item in a schema, by its JSON pointer.
func members(schema any, at []string) iter.Seq2[[]string, any] {
	return func(yield func([]string, any) bool) {
		visit := func(token string, v any) bool {
			here := append(slices.Clip(at), token)
			if !yield(here, v) {
				return false
			}
			for at, v := range members(v, here) {
				if !yield(at, v) {
					return false
				}
			}
			return true
		}
		switch s := schema.(type) {
		case map[string]any:
			for name, v := range s {
				if !visit(name, v) {
					return
				}
			}
		case []any:
			for i, v := range s {
				if !visit(strconv.Itoa(i), v) {
					return
				}
			}
		}
	}
}

// takeOut has a schema ask for nothing at a place.
func takeOut(schema any, at []string) {
	for i, token := range at {
		switch s := schema.(type) {
		case map[string]any:
			if i == len(at)-1 {
				delete(s, token)
				return
			}
			schema = s[token]
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n >= len(s) {
				return
			}
			if i == len(at)-1 {
				s[n] = true
				return
			}
			schema = s[n]
		}
	}
}

// ends are what an error consists of in the end. Of what could have been one thing or
// another the first counts.
func ends(schema any, e *jsonschema.ValidationError) (list []*jsonschema.ValidationError) {
	causes := e.Causes
	switch e.ErrorKind.(type) {
	case *kind.AnyOf, *kind.OneOf:
		causes = causes[:min(1, len(causes))]
	}
	if len(causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	for _, cause := range causes {
		list = append(list, ends(schema, cause)...)
	}
	if name, ok := e.ErrorKind.(*kind.PropertyNames); ok { // the place that it tells is any
		for at := range members(schema, nil) {
			if at[len(at)-1] == name.Property {
				list[0].InstanceLocation = at
			}
		}
	}
	return list
}

// within is the node at a JSON pointer below n, or the last that there is on the way,
// and its path.
func within(n *yaml.Node, path string, pointer []string) (*yaml.Node, string) {
	for _, token := range pointer {
		next := -1
		if n.Kind == yaml.SequenceNode {
			if i, err := strconv.Atoi(token); err == nil && i < len(n.Content) {
				next, path = i, path+"["+token+"]"
			}
		}
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == token {
				next, path = i+1, join(path, token)
				break
			}
		}
		if next < 0 {
			break
		}
		n = n.Content[next]
	}
	return n, path
}

// withoutAddress puts a compiler's error on one line, without the address that it has
// for a schema that has none.
func withoutAddress(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	for _, form := range []string{strconv.Quote(schemaName + "#"), schemaName + "#", schemaName} {
		if i := strings.Index(s, form); i >= 0 {
			s = s[:i] + "the schema" + s[i+len(form):]
		}
	}
	return s
}
