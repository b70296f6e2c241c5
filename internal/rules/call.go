package rules

import (
	"bytes"
	"errors"
	"math"
	"math/big"
	"strconv"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/go-json-experiment/json/jsontext"
)

// params is the variable that holds the parameters.
const params = "request.params"

// Call is what rules look at. It serves one goroutine, and must not be changed
// once a rule was asked.
type Call struct {
	Caller, Tenant, Service, Action string
	ClientIP                        string // what the address is limited as
	Org, Space, User, Principal     string // "" is null
	ID, Method, Path                string
	Bytes                           int64  // of the request's body
	Params                          []byte // a JSON object without a name twice, or nil

	decoded ref.Val // of Params, once somebody looked
}

// ResolveName implements cel.Activation: what an expression does not look at is
// not worked out.
func (c *Call) ResolveName(name string) (any, bool) {
	switch name {
	case "caller":
		return types.String(c.Caller), true
	case "tenant":
		return types.String(c.Tenant), true
	case "service":
		return types.String(c.Service), true
	case "action":
		return types.String(c.Action), true
	case "client_ip":
		return types.String(c.ClientIP), true
	case "org":
		return orNull(c.Org), true
	case "space":
		return orNull(c.Space), true
	case "user":
		return orNull(c.User), true
	case "principal":
		return orNull(c.Principal), true
	case "principal_or_ip":
		// A principal may be called like an address, and then must not get to
		// the address's count.
		if c.Principal != "" {
			return types.String("human:" + c.Principal), true
		}
		return types.String(c.ClientIP), true
	case "request.id":
		return types.String(c.ID), true
	case "request.method":
		return types.String(c.Method), true
	case "request.path":
		return types.String(c.Path), true
	case "request.bytes":
		return types.Int(c.Bytes), true
	case params:
		if c.decoded == nil {
			c.decoded = types.NewStringInterfaceMap(adapter{}, members(c.Params))
		}
		return c.decoded, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (c *Call) Parent() cel.Activation { return nil }

func orNull(s string) ref.Val {
	if s == "" {
		return types.NullValue
	}
	return types.String(s)
}

// unread is the JSON of a parameter, which is decoded once somebody looks at it, and
// once only: a loop may look at it each time round.
type unread struct {
	raw   jsontext.Value
	value ref.Val
}

// members are the parameters by their names. Of all but their names nothing is
// decoded: that is for who looks at one.
func members(object []byte) map[string]any {
	list := map[string]any{}
	if len(object) == 0 {
		return list
	}
	d := decoder(object)
	if _, err := d.ReadToken(); err != nil {
		return list
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			break
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			break
		}
		end := int(d.InputOffset()) // the decoder may reuse its memory
		list[key] = &unread{raw: jsontext.Value(object[end-len(value) : end : end])}
	}
	return list
}

// adapter makes values of CEL, of JSON too.
type adapter struct{}

// NativeToValue implements types.Adapter.
func (adapter) NativeToValue(v any) ref.Val {
	u, ok := v.(*unread)
	if !ok {
		return types.DefaultTypeAdapter.NativeToValue(v)
	}
	if u.value == nil {
		r := reading{decoder(u.raw), manyValues}
		if value, err := r.value(); err != nil {
			u.value = types.WrapErr(err)
		} else {
			u.value = types.DefaultTypeAdapter.NativeToValue(value)
		}
	}
	return u.value
}

// decoder reads JSON that was read before, and so has no name twice: to look for one
// again would take longer than the rest.
func decoder(text []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
}

// manyValues is the most that are decoded of one parameter, which is a millisecond
// or two: what is within is beyond what an expression could look through.
const manyValues = 20_000

var errMany = errors.New("too many values")

// reading decodes one parameter.
type reading struct {
	*jsontext.Decoder
	left int
}

// value reads the next value. A number that is written as a whole one and fits is
// one: ids of chats and clouds are larger than what a double holds exactly.
func (d *reading) value() (any, error) {
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
		return number(token.String())
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
			key := name.String()
			if object[key], err = d.value(); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return object, err
	}
	return types.NullValue, nil
}

const (
	exact      = 1 << 53 // from here on a double holds not every whole number
	longNumber = 400     // characters
)

// number is an int if it is written as one, or if it is whole and a double would hold
// another one: 9007199254740993.0 is the chat 9007199254740993, not the one before.
func number(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, _ := strconv.ParseFloat(text, 64) // what is too large is infinite
	if math.Abs(f) < exact || math.Abs(f) > math.MaxInt64 {
		return f, nil
	}
	if len(text) > longNumber {
		return nil, errMany
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return f, nil
	}
	if _, held := r.Float64(); held {
		return f, nil
	}
	return r.Num().Int64(), nil
}
