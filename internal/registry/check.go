package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// check is what a parameter's value is held to, and the forms of its name
// that Target writes.
type check struct {
	schema *jsonschema.Schema
	types  []string // nil: any
	simple string   // the type, where the schema asks for nothing but a type
	items  string   // likewise of its items, where it asks for nothing but a list of them
	words  []string // what a schema allows that asks for a text of these alone

	query  string // the name, escaped
	body   string // the name as JSON, with its colon
	header string // the name, canonical
}

func (c *check) prepare(p Param) {
	c.query = string(appendEscaped(nil, p.Name))
	c.body = string(appendString(nil, p.Name)) + ":"
	c.header = http.CanonicalHeaderKey(p.Name)
}

// judge says what is wrong with a value, or "".
//
// What most parameters are, a plain type, a list of one, or one of a few words, is
// seen from the text itself; the schema is asked for the rest, and for the reasons.
func (c *check) judge(value jsontext.Value) string {
	if len(c.words) > 0 && value.Kind() == '"' && slices.Contains(c.words, string(value[1:len(value)-1])) {
		return ""
	}
	if isPlain(value, c.simple) || c.items != "" && isListOf(value, c.items) {
		return ""
	}
	d := decoding{jsontext.NewDecoder(bytes.NewBuffer(value)), manyValues}
	v, err := d.value()
	if err != nil {
		return err.Error()
	}
	err = c.schema.Validate(v)
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &invalid):
		return reasonOf(invalid)
	}
	return "does not fit its schema"
}

// isPlain reports whether a value is of a type for certain. One that a schema has
// to be asked about may be too.
func isPlain(value jsontext.Value, kind string) bool {
	switch k := value.Kind(); kind {
	case "string":
		return k == '"'
	case "boolean":
		return k == 't' || k == 'f'
	case "integer":
		return k == '0' && len(value) <= 18 && !bytes.ContainsAny(value, ".eE")
	case "number":
		return k == '0' && boundedNumber(string(value))
	case "array":
		return k == '['
	case "object":
		return k == '{'
	}
	return false
}

// isListOf reports whether a value is a list of what is plainly of a type.
func isListOf(value jsontext.Value, kind string) bool {
	d := jsontext.NewDecoder(bytes.NewBuffer(value))
	if first, err := d.ReadToken(); err != nil || first.Kind() != '[' {
		return false
	}
	for d.PeekKind() != ']' {
		item, err := d.ReadValue()
		if err != nil || !isPlain(item, kind) {
			return false
		}
	}
	return true
}

const (
	maxNumber   = 400 // digits and signs of one number
	maxExponent = 400
	// manyValues is the most values, and names of members, that a schema is asked
	// about: a tenth of a second, and some 30 MB.
	manyValues = 100_000
)

var (
	errNumber = errors.New("holds a number that is too long")
	errMany   = fmt.Errorf("holds more than %d values and names of members, which is more than a schema is asked about", manyValues)
)

// decoding reads a value for a schema.
type decoding struct {
	*jsontext.Decoder
	left int
}

// value reads one value as the schema wants it. A number is compared exactly,
// and so as a fraction of integers; one such as 1e999999999 would make the
// gateway write out a thousand million digits and is refused first.
func (d *decoding) value() (any, error) {
	if d.left--; d.left < 0 {
		return nil, errMany
	}
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '"':
		return token.String(), nil
	case '0':
		s := token.String()
		if !boundedNumber(s) {
			return nil, errNumber
		}
		return json.Number(s), nil
	case 't', 'f':
		return token.Bool(), nil
	case '[':
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := d.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	case '{':
		object := map[string]any{}
		for d.PeekKind() != '}' {
			name, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			d.left--
			key := name.String()
			if object[key], err = d.value(); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return object, err
	}
	return nil, nil
}

func boundedNumber(s string) bool {
	if len(s) > maxNumber {
		return false
	}
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return true
	}
	exponent := 0
	for _, c := range strings.TrimLeft(s[i+1:], "+-") {
		if exponent = exponent*10 + int(c-'0'); exponent > maxExponent {
			return false
		}
	}
	return true
}

var english = message.NewPrinter(language.English)

// reasonOf says in one line what the first thing is that a value breaks. It
// names the member, never the value: that is the caller's and may be secret.
func reasonOf(e *jsonschema.ValidationError) string {
	for len(e.Causes) > 0 {
		e = e.Causes[0]
	}
	where := ""
	if len(e.InstanceLocation) > 0 {
		where = "/" + strings.Join(e.InstanceLocation, "/") + " "
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Pattern:
		return fmt.Sprintf("%sdoes not match the pattern %s", where, k.Want)
	case *kind.Format:
		return fmt.Sprintf("%sis not a valid %s", where, k.Want)
	case *kind.Type:
		return fmt.Sprintf("%smust be %s, not %s", where, strings.Join(k.Want, " or "), k.Got)
	case *kind.MultipleOf:
		want, _ := k.Want.Float64()
		return fmt.Sprintf("%sis not a multiple of %v", where, want)
	}
	return where + e.ErrorKind.LocalizedString(english)
}
