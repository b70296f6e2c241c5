package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"agentgw/internal/literal"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// Keywords of JSON Schema 2020-12 by what they hold. One that is unknown is
// refused, although JSON Schema ignores it: a maxLenght that limits nothing is
// the mistake that this file is strict about.
var (
	schemaKeywords     = []string{"additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties", "contentSchema"}
	schemaListKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaMapKeywords  = []string{"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
	valueKeywords      = []string{"$anchor", "$comment", "$id", "$ref", "$schema", "const", "contentEncoding", "contentMediaType", "default",
		"dependentRequired", "deprecated", "description", "enum", "examples", "exclusiveMaximum", "exclusiveMinimum", "format", "maxContains",
		"maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf",
		"pattern", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly"}
	allKeywords = slices.Concat(valueKeywords, schemaKeywords, schemaListKeywords, schemaMapKeywords)
)

// schema reads a JSON Schema as the compiler wants it and as JSON text in the
// order of the file. The schema is nil where it is not JSON.
func (r *reader) schema(n *yaml.Node, path string) (any, []byte) {
	r.keywords(n, path)
	found := len(r.problems)
	value, text := r.json(n, path)
	if len(r.problems) > found {
		return nil, nil
	}
	return value, text
}

// keywords refuses unknown keywords wherever a schema stands in a schema.
func (r *reader) keywords(n *yaml.Node, path string) {
	if n.Kind != yaml.MappingNode {
		return // true, false, or what the compiler will refuse
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		switch {
		case slices.Contains(schemaKeywords, key.Value):
			r.keywords(value, at)
		case slices.Contains(schemaListKeywords, key.Value) && value.Kind == yaml.SequenceNode:
			for j, item := range value.Content {
				r.keywords(item, fmt.Sprintf("%s[%d]", at, j))
			}
		case slices.Contains(schemaMapKeywords, key.Value) && value.Kind == yaml.MappingNode:
			for j := 0; j+1 < len(value.Content); j += 2 {
				r.keywords(value.Content[j+1], join(at, value.Content[j].Value))
			}
		case !slices.Contains(allKeywords, key.Value):
			r.fail(key, at, "unknown keyword of JSON Schema%s", meant(literal.Nearest(key.Value, allKeywords)))
		}
	}
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?$`)

// json turns a tree into what it is in JSON, twice: as a value and as text.
// Bare words are text unless they are true, false, null or a number as JSON
// writes it; what YAML alone takes for something else is refused, not guessed.
func (r *reader) json(n *yaml.Node, path string) (any, []byte) {
	switch n.Kind {
	case yaml.MappingNode:
		value, text := map[string]any{}, []byte{'{'}
		for _, e := range r.entries(n, path) {
			v, t := r.json(e.value, e.path)
			value[e.name] = v
			if len(text) > 1 {
				text = append(text, ',')
			}
			text = append(append(appendString(text, e.name), ':'), t...)
		}
		return value, append(text, '}')
	case yaml.SequenceNode:
		value, text := []any{}, []byte{'['}
		for i, item := range n.Content {
			v, t := r.json(item, fmt.Sprintf("%s[%d]", path, i))
			if value = append(value, v); i > 0 {
				text = append(text, ',')
			}
			text = append(text, t...)
		}
		return value, append(text, ']')
	case yaml.ScalarNode:
		return r.jsonScalar(n, path)
	}
	return nil, []byte("null") // an alias, which forbid has refused
}

func (r *reader) jsonScalar(n *yaml.Node, path string) (any, []byte) {
	if n.Style&quoted == 0 {
		switch tag := n.ShortTag(); {
		case n.Value == "true" || n.Value == "false":
			return n.Value == "true", []byte(n.Value)
		case n.Value == "null":
			return nil, []byte("null")
		case (tag == "!!int" || tag == "!!float") && jsonNumber.MatchString(n.Value):
			return json.Number(n.Value), []byte(n.Value)
		case tag == "!!int" || tag == "!!float" || tag == "!!bool" || tag == "!!null":
			r.fail(n, path, "%s means one thing in YAML and none in JSON: put it in quotes if it is text", literal.Quote(n.Value))
			return nil, []byte("null")
		}
	}
	return n.Value, appendString(nil, n.Value)
}

func appendString(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s) // a string always marshals
	return append(dst, quoted...)
}

// noLoader refuses to fetch what a $ref names: a registry is one file, and a
// schema that lies elsewhere could change without anybody's reload.
type noLoader struct{}

var errRemote = errors.New("a $ref to another document is not taken")

func (noLoader) Load(string) (any, error) { return nil, errRemote }

// schemaName is the address of a schema that has none. It has a path, as a $ref to
// other.json would else lead to the schema itself.
const schemaName = "param:///schema"

// compile makes a check of a schema. Of the error see unsound.
func compile(schema any) (check, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaName, schema); err != nil {
		return check{}, err
	}
	compiled, err := c.Compile(schemaName)
	if err != nil {
		return check{}, err
	}
	return check{schema: compiled, types: typesOf(schema), simple: simpleType(schema), items: itemsType(schema), words: wordsOf(schema)}, nil
}

// typesOf returns the types that a schema allows by name, or nil for any.
func typesOf(schema any) []string {
	m, _ := schema.(map[string]any)
	switch t := m["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var list []string
		for _, v := range t {
			if s, ok := v.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// wordsOf returns the texts of an enum that a schema has beside its type, so
// that a value without escapes can be compared as it stands, or nil.
func wordsOf(schema any) []string {
	m, _ := schema.(map[string]any)
	list, _ := m["enum"].([]any)
	for key := range m {
		if key != "enum" && key != "type" && key != "description" && key != "title" {
			return nil
		}
	}
	if t, ok := m["type"]; ok && t != "string" {
		return nil
	}
	var words []string
	for _, v := range list {
		word, ok := v.(string)
		if !ok || strings.ContainsAny(word, "\"\\") {
			return nil
		}
		words = append(words, word)
	}
	return words
}

// simpleType returns the type of a schema that asks for nothing else, so that
// the value's first byte decides, or "".
func simpleType(schema any) string {
	m, _ := schema.(map[string]any)
	if !asksFor(m, "type") {
		return ""
	}
	t, _ := m["type"].(string)
	return t
}

// itemsType returns the type of the items of a schema that asks for nothing but a
// list of them, or "".
func itemsType(schema any) string {
	m, _ := schema.(map[string]any)
	if m["type"] != "array" || !asksFor(m, "type", "items") {
		return ""
	}
	return simpleType(m["items"])
}

// asksFor reports whether a schema asks for these keywords alone; others tell
// people about it.
func asksFor(schema map[string]any, keywords ...string) bool {
	for key := range schema {
		switch key {
		case "description", "title", "$comment", "default", "deprecated", "examples":
		default:
			if !slices.Contains(keywords, key) {
				return false
			}
		}
	}
	return true
}
