package registry

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds how deep a parameter may nest.
const maxDepth = 64

// reading is what one call needs to read its parameters, kept for the next.
type reading struct {
	decoder jsontext.Decoder
	source  bytes.Buffer
	values  []jsontext.Value // by the index of the parameter; nil: not given
	url     []byte
	text    []byte
}

var readings = sync.Pool{New: func() any { return new(reading) }}

// Target builds the upstream request for params, the text of a JSON object;
// nil or empty is the object without members. The error is a *ParamError.
//
// Every parameter goes into exactly one place, as the bytes that were checked:
// a body value keeps its own text, a path value is one escaped segment or part
// of one, a query value is escaped once, in the order of the declaration. A
// string such as {repo} or ${HOME} is data and stays itself. Nothing in params
// can change the scheme, the host, the port, or how many segments the path
// has; the URL is read back and compared to make sure of it.
//
// Target keeps no part of params except in Body, which is a copy.
func (a *Action) Target(params []byte) (*Target, error) {
	r := readings.Get().(*reading)
	defer r.release()
	if err := a.read(r, params); err != nil {
		return nil, err
	}
	u, err := a.url(r)
	if err != nil {
		return nil, err
	}
	t := &Target{Method: a.Method, URL: u}
	if err := a.header(r, t); err != nil {
		return nil, err
	}
	if a.hasBody {
		a.body(r, t)
	}
	return t, nil
}

// release gives up whatever belongs to the caller before the reading waits
// for its next use.
func (r *reading) release() {
	clear(r.values)
	r.source = bytes.Buffer{}
	clear(r.text[:cap(r.text)])
	clear(r.url[:cap(r.url)])
	readings.Put(r)
}

// read sorts the members of params by parameter and checks each.
func (a *Action) read(r *reading, params []byte) error {
	r.values = append(r.values[:0], make([]jsontext.Value, len(a.params))...)
	if len(params) > 0 {
		if err := a.scan(r, params); err != nil {
			return err
		}
	}
	for i := range a.params {
		if r.values[i] == nil && a.params[i].Required {
			return &ParamError{Param: a.params[i].Name, Reason: "is missing"}
		}
	}
	return nil
}

func (a *Action) scan(r *reading, params []byte) error {
	r.source = *bytes.NewBuffer(params)
	d := &r.decoder
	d.Reset(&r.source)
	if kind := d.PeekKind(); kind != '{' {
		if _, err := d.ReadToken(); err != nil {
			return unsound(err)
		}
		return &ParamError{Reason: "must be an object"}
	}
	if _, err := d.ReadToken(); err != nil {
		return unsound(err)
	}
	for d.PeekKind() != '}' {
		quoted, err := d.ReadValue()
		if err != nil {
			return unsound(err)
		}
		i, known := a.find(quoted)
		if !known {
			name, _ := jsontext.AppendUnquote(nil, quoted)
			return &ParamError{Param: shorten(string(name)), Reason: "is not a parameter of this action", Unknown: true}
		}
		value, err := d.ReadValue()
		if err != nil {
			return unsound(err)
		}
		if nesting(value) > maxDepth {
			return &ParamError{Param: a.params[i].Name, Reason: fmt.Sprintf("nests deeper than %d", maxDepth)}
		}
		// The decoder may reuse its memory; the text is taken from params.
		end := int(d.InputOffset())
		r.values[i] = jsontext.Value(params[end-len(value) : end])
		if reason := a.checks[i].judge(r.values[i]); reason != "" {
			return &ParamError{Param: a.params[i].Name, Reason: reason}
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return unsound(err)
	}
	for _, c := range params[d.InputOffset():] {
		if c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return &ParamError{Reason: "something follows the object"}
		}
	}
	return nil
}

// find returns the index of the parameter of that name.
func (a *Action) find(quoted jsontext.Value) (int, bool) {
	if text := quoted[1 : len(quoted)-1]; bytes.IndexByte(text, '\\') < 0 {
		i, ok := a.index[string(text)] // which makes no string
		return i, ok
	}
	name, err := jsontext.AppendUnquote(nil, quoted)
	i, ok := a.index[string(name)]
	return i, ok && err == nil
}

// nesting returns how deep a sound value nests.
func nesting(value jsontext.Value) int {
	deepest, depth, inString := 0, 0, false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			depth++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		}
	}
	return deepest
}

// unsound words a syntax error without the library's name.
func unsound(err error) error {
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return &ParamError{Reason: "is not sound JSON"}
	}
	if errors.Is(err, jsontext.ErrDuplicateName) {
		return &ParamError{Param: shorten(syntax.JSONPointer.LastToken()), Reason: "is given twice"}
	}
	return &ParamError{Reason: fmt.Sprintf("is not sound JSON at byte %d: %v", syntax.ByteOffset, syntax.Err)}
}

// url writes scheme, host and path, then the query, and reads all of it back.
func (a *Action) url(r *reading) (*url.URL, error) {
	b := append(r.url[:0], a.prefix...)
	base := len(b) - a.baseLength
	for _, p := range a.parts {
		if p.variable == "" {
			b = append(b, p.literal...)
			continue
		}
		var err error
		if b, err = r.appendSegment(b, a.params[p.param].Name, r.values[p.param]); err != nil {
			r.url = b
			return nil, err
		}
	}
	path := len(b)
	if err := a.checkSegments(b[base:path]); err != nil {
		r.url = b
		return nil, err
	}
	mark := byte('?')
	for i := range a.params {
		if a.params[i].In != InQuery || r.values[i] == nil {
			continue
		}
		var err error
		if b, mark, err = r.appendQuery(b, mark, a.params[i].Name, a.checks[i].query, r.values[i]); err != nil {
			r.url = b
			return nil, err
		}
	}
	r.url = b
	text := string(b)
	u, err := url.Parse(text)
	if err != nil {
		return nil, &ParamError{Reason: "do not make a URL"}
	}
	want := a.service.BaseURL
	query := ""
	if path < len(text) {
		query = text[path+1:]
	}
	if u.Scheme != want.Scheme || u.Host != want.Host || u.User != nil || u.Opaque != "" ||
		u.Fragment != "" || u.RawQuery != query || u.ForceQuery ||
		u.EscapedPath() != text[base:path] {
		return nil, &ParamError{Reason: "would make another URL than the action's"}
	}
	return u, nil
}

// checkSegments refuses a path whose parts have become a dot segment, and
// makes sure that there are as many slashes as in the template.
func (a *Action) checkSegments(path []byte) error {
	slashes, dots := survey(path)
	if dots {
		return &ParamError{Reason: "would make a . or .. segment of the path"}
	}
	if slashes != a.slashes {
		return &ParamError{Reason: "would make another path than the action's"}
	}
	return nil
}

// appendSegment writes a value as (a part of) one segment of the path.
func (r *reading) appendSegment(b []byte, name string, value jsontext.Value) ([]byte, error) {
	text, err := r.scalar(name, value)
	if err != nil {
		return b, err
	}
	if len(text) == 0 {
		return b, &ParamError{Param: name, Reason: "is empty, and the path needs it"}
	}
	for _, c := range text {
		switch {
		case c < ' ' || c == 0x7f:
			return b, &ParamError{Param: name, Reason: "holds a control character"}
		case c == '\\':
			return b, &ParamError{Param: name, Reason: "holds a backslash, which some servers take for a slash"}
		}
	}
	// An upstream that decodes once more than it should would climb.
	if _, dots := survey(text); dots {
		return b, &ParamError{Param: name, Reason: "has a . or .. segment"}
	}
	return appendEscaped(b, text), nil
}

// appendQuery writes a value as name=value, a list as one such pair for each
// of its items.
func (r *reading) appendQuery(b []byte, mark byte, name, escapedName string, value jsontext.Value) ([]byte, byte, error) {
	if value.Kind() != '[' {
		text, err := r.scalar(name, value)
		if err != nil {
			return b, mark, err
		}
		b = append(append(append(b, mark), escapedName...), '=')
		return appendEscaped(b, text), '&', nil
	}
	items := jsontext.NewDecoder(bytes.NewReader(value))
	if _, err := items.ReadToken(); err != nil {
		return b, mark, unsound(err)
	}
	for items.PeekKind() != ']' {
		item, err := items.ReadValue()
		if err != nil {
			return b, mark, unsound(err)
		}
		if item.Kind() == '[' {
			return b, mark, &ParamError{Param: name, Reason: "holds a list in a list, which a query cannot"}
		}
		if b, mark, err = r.appendQuery(b, mark, name, escapedName, item); err != nil {
			return b, mark, err
		}
	}
	return b, mark, nil
}

// header sets the header parameters.
func (a *Action) header(r *reading, t *Target) error {
	for i := range a.params {
		if a.params[i].In != InHeader || r.values[i] == nil {
			continue
		}
		name := a.params[i].Name
		text, err := r.scalar(name, r.values[i])
		if err != nil {
			return err
		}
		value := string(text)
		if strings.ContainsFunc(value, unicode.IsControl) {
			return &ParamError{Param: name, Reason: "holds a control character"}
		}
		// The transport would cut them off, and then send what nobody checked.
		if strings.HasPrefix(value, " ") || strings.HasSuffix(value, " ") {
			return &ParamError{Param: name, Reason: "begins or ends with a space"}
		}
		if t.Header == nil {
			t.Header = http.Header{}
		}
		t.Header[a.checks[i].header] = []string{value}
	}
	return nil
}

// body writes the body parameters as one object, each value as it was given.
func (a *Action) body(r *reading, t *Target) {
	size := 2
	for i, v := range r.values {
		if a.params[i].In == InBody && v != nil {
			size += len(a.checks[i].body) + len(v) + 1
		}
	}
	t.Body = append(make([]byte, 0, size), '{')
	for i, v := range r.values {
		if a.params[i].In != InBody || v == nil {
			continue
		}
		if len(t.Body) > 1 {
			t.Body = append(t.Body, ',')
		}
		t.Body = append(append(t.Body, a.checks[i].body...), v...)
	}
	t.Body = append(t.Body, '}')
	if t.Header == nil {
		t.Header = http.Header{}
	}
	t.Header["Content-Type"] = []string{"application/json"}
}

// scalar returns the text of a single value: a string's own characters, a
// number or boolean as it was written. It is good until the next call.
func (r *reading) scalar(name string, value jsontext.Value) ([]byte, error) {
	switch value.Kind() {
	case '"':
		text, err := jsontext.AppendUnquote(r.text[:0], value)
		r.text = text
		if err != nil {
			return nil, &ParamError{Param: name, Reason: "is not a sound JSON string"}
		}
		return text, nil
	case '0', 't', 'f':
		return value, nil
	case 'n':
		return nil, &ParamError{Param: name, Reason: "is null: leave it out instead"}
	}
	return nil, &ParamError{Param: name, Reason: "is a list or an object, which cannot be written in its place"}
}

const upperHex = "0123456789ABCDEF"

// appendEscaped writes s with every byte escaped but those that mean the same
// everywhere in a URL (RFC 3986, section 2.3). A space is %20, in the query
// too: a plus is a space to some and a plus to others.
func appendEscaped[T string | []byte](b []byte, s T) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; isUnreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return b
}

// shorten cuts a name that is not ours to what an error can carry.
func shorten(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "..."
}
