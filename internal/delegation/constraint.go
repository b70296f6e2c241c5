package delegation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of constraint: a closed vocabulary, so that of any two it can be told
// whether one is as tight as the other.
const (
	kindConst  = "const"  // this value
	kindEnum   = "enum"   // one of these
	kindPrefix = "prefix" // a string that begins so
	kindMax    = "max"    // a number up to this
)

// Constraint bounds one parameter, which has to be there. In JSON it is an object of
// one member: {"const":v}, {"enum":[v,…]}, {"prefix":"s"} or {"max":n}. The values of
// const and enum are strings, numbers and booleans. The zero value bounds nothing and
// is in no token.
type Constraint struct {
	kind   string
	values []scalar
}

// scalar is a string, by its characters, or a number or boolean, as it was written.
type scalar struct {
	text     string
	isString bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Constraint) UnmarshalJSON(b []byte) error {
	d := jsontext.NewDecoder(strings.NewReader(string(b)))
	if open, err := d.ReadToken(); err != nil || open.Kind() != '{' {
		return errConstraint
	}
	name, err := d.ReadToken()
	if err != nil || name.Kind() != '"' {
		return errConstraint
	}
	c.kind, c.values = name.String(), nil
	switch {
	case c.kind != kindEnum:
		err = c.read(d)
	case d.PeekKind() != '[':
		return errConstraint
	default:
		_, err = d.ReadToken()
		for err == nil && d.PeekKind() != ']' {
			err = c.read(d)
		}
		if err == nil {
			_, err = d.ReadToken()
		}
	}
	if err != nil || len(c.values) == 0 {
		return errConstraint
	}
	if last, err := d.ReadToken(); err != nil || last.Kind() != '}' {
		return errConstraint
	}
	if v := c.values[0]; c.kind == kindPrefix && !v.isString || c.kind == kindMax && (v.isString || !isDecimal(v.text)) {
		return errConstraint
	}
	if !slices.Contains([]string{kindConst, kindEnum, kindPrefix, kindMax}, c.kind) {
		return errConstraint
	}
	return nil
}

var errConstraint = errors.New(`a constraint is {"const":v}, {"enum":[v]}, {"prefix":"s"} or {"max":n}`)

func (c *Constraint) read(d *jsontext.Decoder) error {
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	v, ok := scalarOf(raw)
	if !ok || !v.isString && !isDecimal(v.text) && v.text != "true" && v.text != "false" {
		return errConstraint
	}
	c.values = append(c.values, v)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (c Constraint) MarshalJSON() ([]byte, error) {
	var list []string
	for _, v := range c.values {
		list = append(list, v.json())
	}
	text := strings.Join(list, ",")
	if c.kind == kindEnum {
		text = "[" + text + "]"
	}
	return []byte(`{"` + c.kind + `":` + text + `}`), nil
}

func (v scalar) json() string {
	if !v.isString {
		return v.text
	}
	b, _ := jsontext.AppendQuote(nil, v.text) // it came out of JSON, and is UTF-8
	return string(b)
}

// scalarOf reads a value that is neither null, nor a list, nor an object.
func scalarOf(raw jsontext.Value) (scalar, bool) {
	switch raw.Kind() {
	case '"':
		b, err := jsontext.AppendUnquote(nil, raw)
		return scalar{string(b), true}, err == nil
	case '0', 't', 'f':
		return scalar{string(raw), false}, true
	}
	return scalar{}, false
}

// holds reports whether a parameter keeps to the constraint. Numbers are the same
// where they are written the same: 5 and 5.0 are two paths to a server.
func (c Constraint) holds(v scalar) bool {
	switch c.kind {
	case kindConst, kindEnum:
		return slices.Contains(c.values, v)
	case kindPrefix:
		return v.isString && strings.HasPrefix(v.text, c.values[0].text)
	case kindMax:
		return !v.isString && isDecimal(v.text) && compareDecimals(v.text, c.values[0].text) <= 0
	}
	return false
}

// within reports whether every value that c allows p allows too.
func (c Constraint) within(p Constraint) bool {
	switch c.kind {
	case kindConst, kindEnum:
		return !slices.ContainsFunc(c.values, func(v scalar) bool { return !p.holds(v) })
	case kindPrefix, kindMax: // each allows without end, which no list does
		return c.kind == p.kind && p.holds(c.values[0])
	}
	return false
}

// ParseConstraints reads an object of constraints by the name of the parameter.
func ParseConstraints(text string) (map[string]Constraint, error) {
	var all map[string]Constraint
	if err := json.Unmarshal([]byte(text), &all); err != nil || all == nil {
		return nil, errConstraints
	}
	for name, c := range all {
		if name == "" || c.kind == "" {
			return nil, errConstraints
		}
	}
	return all, nil
}

var errConstraints = fmt.Errorf(`constraints are an object such as {"owner":{"const":"acme"}}: %w`, errConstraint)

// String is the constraint in JSON.
func (c Constraint) String() string {
	b, _ := c.MarshalJSON() // which has no error
	return string(b)
}
