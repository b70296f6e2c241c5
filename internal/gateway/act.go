package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"agentgw/internal/identity"
	"agentgw/internal/registry"
)

// act is what a POST /v1/act asks for, or one call of a POST /v1/batch.
type act struct {
	Service, Action, Principal string
	Params                     []byte             // the object as it was sent; nil where none was
	size                       int64              // of its JSON, or of a request's body
	unmatched                  bool               // a request of /proxy that is no action; Action is anyAction
	to                         *registry.HostPort // where a tunnel is to lead; nil: it is none
}

// readJSON reads and bounds the body of a POST that is JSON. Nothing of it is read
// before the declared length has been judged, so a client that asked with
// "Expect: 100-continue" is refused without having sent it. What it could not take
// it returns as far as it came.
func readJSON(r *http.Request, out *answer, limit int64) ([]byte, *Error) {
	unsure := checkFraming(r)
	if r.Method != http.MethodPost {
		e := refuse(MethodNotAllowed, "%s is not allowed here; use POST", r.Method)
		e.Last = unsure != nil && unsure.Last
		return nil, e
	}
	if unsure != nil {
		return nil, unsure
	}
	if text := r.Header.Get("Content-Type"); text != "" && text != "application/json" {
		if media, _, err := mime.ParseMediaType(text); err != nil || media != "application/json" {
			e := refuse(BadRequest, "the body must be JSON: send Content-Type: application/json")
			e.Status = http.StatusUnsupportedMediaType
			return nil, e
		}
	}
	if limit > 0 && r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	raw, err := readBody(incoming{r.Body, out.control, out.stall.limit}, r.ContentLength, limit)
	if err != nil {
		return raw, refuse(BadRequest, "the body could not be read to its end")
	}
	if limit > 0 && int64(len(raw)) > limit {
		return raw, tooLarge(limit)
	}
	// Of a body that is closed net/http knows that nothing is left of it. It
	// would look for it when the answer begins, deep enough down for the stack
	// of a stream to be twice as large as long as that lasts.
	_ = r.Body.Close()
	return raw, nil
}

// misread is the refusal of a body that is no act, or no batch.
func misread(err error) *Error {
	e := refuse(BadRequest, "%v", err)
	e.Quotes = true
	return e
}

// readBody reads a body to its end, or one byte past the limit.
func readBody(body io.Reader, declared, limit int64) ([]byte, error) {
	// What is declared is not always sent, so only so much is set aside for it.
	if 0 <= declared && declared <= 64<<10 {
		raw := make([]byte, declared)
		n, err := io.ReadFull(body, raw)
		return raw[:n], err
	}
	if limit > 0 {
		body = io.LimitReader(body, limit+1)
	}
	return io.ReadAll(body)
}

func tooLarge(limit int64) *Error {
	return refuse(BodyTooLarge, "the body is larger than %d bytes (AGENTGATE_MAX_REQUEST_BODY)", limit)
}

// decoders are lent, with what they have grown to keep names apart.
var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// strictly begins to read a JSON text strictly (RFC 8259, RFC 7493): UTF-8, no name
// twice at any depth, no lone surrogate. What two readers could understand
// differently is refused. The decoder is to be given back.
func strictly(raw []byte) (*jsontext.Decoder, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("the body is not UTF-8")
	}
	if at := crowded(raw); at > 0 {
		return nil, fmt.Errorf("the JSON has an object of more than %d members, as far as byte %d", manyMembers, at)
	}
	d := decoders.Get().(*jsontext.Decoder)
	d.Reset(bytes.NewBuffer(raw)) // which it reads in place
	if d.PeekKind() != '{' {
		decoders.Put(d)
		return nil, errors.New("the body must be one JSON object")
	}
	return d, nil
}

// nothingMore says what is wrong if there is something behind what was read.
func nothingMore(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the JSON object")
	}
	return nil
}

// parseAct reads the JSON of an act: exact names, and nothing after it.
func parseAct(raw []byte) (act, error) {
	d, err := strictly(raw)
	if err != nil {
		return act{}, err
	}
	defer decoders.Put(d)
	a, err := readAct(d, raw)
	if err != nil {
		return act{}, err
	}
	return a, nothingMore(d)
}

// readAct reads the object of an act, before which d stands in raw.
func readAct(d *jsontext.Decoder, raw []byte) (a act, err error) {
	if _, err := d.ReadToken(); err != nil {
		return a, jsonError(err)
	}
	began := d.InputOffset() - 1
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return a, jsonError(err)
		}
		member := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return a, jsonError(err)
		}
		switch member {
		case "service":
			a.Service, err = text(member, value)
		case "action":
			a.Action, err = text(member, value)
		case "on_behalf_of":
			a.Principal, err = principal(value)
		case "params":
			if value.Kind() != '{' {
				err = errors.New("params must be an object")
			}
			end := int(d.InputOffset()) // the decoder may reuse its memory
			a.Params = raw[end-len(value) : end : end]
		default:
			err = fmt.Errorf("unknown member %.80q; known are service, action, on_behalf_of and params", member)
		}
		if err != nil {
			return a, err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return a, jsonError(err)
	}
	a.size = d.InputOffset() - began
	switch {
	case a.Service == "":
		return a, errors.New("service is missing")
	case a.Action == "":
		return a, errors.New("action is missing")
	}
	return a, nil
}

// principal returns the person in an on_behalf_of.
func principal(value jsontext.Value) (string, error) {
	user, err := text("on_behalf_of", value)
	if err == nil && user == "" {
		err = errors.New("on_behalf_of is empty; leave it out where there is nobody")
	}
	return user, err
}

// manyMembers is the most members of one object. To tell that no two of them have
// one name takes twenty times the memory of the body, and with more than these much
// more time than reading it does.
const manyMembers = 10_000

// deepest is more than JSON may nest to be read at all.
const deepest = 1 << 14

// crowded returns where in a JSON text an object has more than manyMembers, or 0. Of
// what is no JSON it says nothing that matters.
func crowded(raw []byte) int {
	if len(raw) < manyMembers*len(`"":0,`) {
		return 0
	}
	members := []int{0} // of the objects that are open, and of lists, which have none
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if members = append(members, 0); len(members) > deepest {
				return 0
			}
		case '}', ']':
			members = members[:max(1, len(members)-1)]
		case ':':
			if members[len(members)-1]++; members[len(members)-1] > manyMembers {
				return i
			}
		}
	}
	return 0
}

// jsonError says what is wrong and where without repeating the body.
func jsonError(err error) error {
	var syntax *jsontext.SyntacticError
	if errors.As(err, &syntax) {
		return fmt.Errorf("the JSON is not valid near byte %d", syntax.ByteOffset)
	}
	return errors.New("the JSON ends too early")
}

// text returns the string in value: at most 256 bytes, without control
// characters or a key, since names go into records that people read.
func text(member string, value jsontext.Value) (string, error) {
	if value.Kind() != '"' {
		return "", fmt.Errorf("%s must be a string", member)
	}
	b, err := jsontext.AppendUnquote(nil, value)
	if err != nil {
		return "", fmt.Errorf("%s is not a valid string", member)
	}
	s := string(b)
	return s, nameable(member, s)
}

// nameable says why a call cannot name s, if it cannot.
func nameable(member, s string) error {
	if !utf8.ValidString(s) || len(s) > 256 || strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0 {
		return fmt.Errorf("%s is longer than 256 bytes or has control characters", member)
	}
	if identity.HasKey(s) {
		return fmt.Errorf("%s holds a gateway key, which belongs into a header and nowhere else", member)
	}
	return nil
}
