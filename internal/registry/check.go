package registry

import (
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
// What most parameters are, a plain type or one of a few words, is seen from
// the text itself; the schema is asked for the rest, and for the reasons.
func (c *check) judge(value jsontext.Value) string {
	if len(c.words) > 0 && value.Kind() == '"' && slices.Contains(c.words, string(value[1:len(value)-1])) {
		return ""
	}
	switch c.simple {
	case "string":
		if value.Kind() == '"' {
			return ""
		}
	case "boolean":
		if k := value.Kind(); k == 't' || k == 'f' {
			return ""
		}
	case "integer":
		if value.Kind() == '0' && len(value) <= 18 && !strings.ContainsAny(string(value), ".eE") {
			return ""
		}
	}
	decoder := jsontext.NewDecoder(strings.NewReader(string(value)))
	v, err := decode(decoder)
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

const (
	maxNumber   = 400 // digits and signs of one number
	maxExponent = 400
)

var errNumber = errors.New("holds a number that is too long")

// decode reads one value as the schema wants it. A number is compared exactly,
// and so as a fraction of integers; one such as 1e999999999 would make the
// gateway write out a thousand million digits and is refused first.
func decode(d *jsontext.Decoder) (any, error) {
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
			v, err := decode(d)
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
			key := name.String()
			if object[key], err = decode(d); err != nil {
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
