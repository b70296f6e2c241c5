package registry

import (
	"bytes"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Sent is a request that an agent made itself, for an action to be held to.
type Sent struct {
	Path   string // that the action matches
	Query  string // without its question mark
	Header http.Header
	Body   []byte
}

// Described reports whether the file says which parameters the action has, be it none.
// One of which it says nothing is a method and a path, and Carried finds no fault
// with what else is sent to it.
func (a *Action) Described() bool { return a.described }

// TakesBody reports whether some parameter of the action goes into its body.
func (a *Action) TakesBody() bool { return a.hasBody }

// Carried returns the parameters that a request has for the action, as the JSON object
// that would make Target build such a request, or says as a *ParamError why there is none.
// Each is held to its schema and has to be in its place, as Target puts it there; nothing
// else may be in the query, and nothing in the body of one that has no parameter there. What is text in its place is what its schema takes
// it for, text before anything else. A value that two readers could take for two is refused.
func (a *Action) Carried(sent Sent) ([]byte, error) {
	if !a.described {
		return nil, nil
	}
	texts := make([][]string, len(a.params)) // decoded, by the index of the parameter
	if err := a.inPath(sent.Path, texts); err != nil {
		return nil, err
	}
	if err := a.inQuery(sent.Query, texts); err != nil {
		return nil, err
	}
	for i, p := range a.params {
		if p.In == InHeader {
			if texts[i] = sent.Header[a.checks[i].header]; len(texts[i]) > 1 {
				return nil, &ParamError{Param: p.Name, Reason: "is given twice"}
			}
		}
	}
	object := []byte{'{'}
	for i := range a.params {
		if slices.ContainsFunc(texts[i], func(text string) bool { return !utf8.ValidString(text) }) {
			return nil, &ParamError{Param: a.params[i].Name, Reason: "is not UTF-8"}
		}
		if len(texts[i]) > 0 {
			object = append(append(object, a.checks[i].body...), a.checks[i].valueOf(texts[i])...)
			object = append(object, ',')
		}
	}
	object, err := a.inBody(sent.Body, object)
	if err != nil {
		return nil, err
	}
	object = append(bytes.TrimSuffix(object, []byte{','}), '}')
	r := readings.Get().(*reading)
	defer r.release()
	if err := a.read(r, object); err != nil {
		return nil, err
	}
	return object, nil
}

func (a *Action) inPath(path string, texts [][]string) error {
	for i, text := range strings.Split(path, "/") {
		if i >= len(a.segments) {
			break
		}
		values, _ := a.segments[i].leftmost(text)
		for j, value := range values {
			at := a.segments[i].params[j]
			plain, err := url.PathUnescape(value)
			if err != nil {
				return &ParamError{Param: a.params[at].Name, Reason: "has a % that begins no escape"}
			}
			texts[at] = []string{plain}
		}
	}
	return nil
}

// inQuery reads a query as a form (WHATWG URL, section 5.1): a plus is a space.
func (a *Action) inQuery(query string, texts [][]string) error {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if strings.Contains(pair, ";") || err != nil {
			return &ParamError{Reason: "the query has a ; or a % that begins no escape, and can be read in two ways"}
		}
		at, known := a.index[plain]
		if !known || a.params[at].In != InQuery {
			return &ParamError{Param: shorten(plain), Reason: "is not a parameter of this action in the query", Unknown: true}
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return &ParamError{Param: plain, Reason: "has a % that begins no escape"}
		}
		if len(texts[at]) > 0 && !slices.Contains(a.checks[at].types, "array") {
			return &ParamError{Param: plain, Reason: "is given twice"}
		}
		texts[at] = append(texts[at], value)
	}
	return nil
}

// inBody appends the members of a body, each as it was written.
func (a *Action) inBody(body, object []byte) ([]byte, error) {
	if len(body) == 0 {
		return object, nil // what is required of it, read misses
	}
	if !a.hasBody {
		return nil, &ParamError{Reason: "this action has no body"}
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(body))
	if first, err := d.ReadToken(); err != nil || first.Kind() != '{' {
		return nil, &ParamError{Reason: "the body must be a JSON object"}
	}
	for d.PeekKind() == '"' {
		quoted, err := d.ReadValue()
		if err != nil {
			return nil, unsound(err)
		}
		name, err := jsontext.AppendUnquote(nil, quoted)
		if err != nil {
			return nil, unsound(err)
		}
		if at, known := a.index[string(name)]; !known || a.params[at].In != InBody {
			return nil, &ParamError{Param: shorten(string(name)), Reason: "is not a parameter of this action in the body", Unknown: true}
		}
		object = append(append(object, quoted...), ':')
		value, err := d.ReadValue()
		if err != nil {
			return nil, unsound(err)
		}
		object = append(append(object, value...), ',')
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, unsound(err)
	}
	if rest := bytes.TrimLeft(body[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, &ParamError{Reason: "something follows the object"}
	}
	return object, nil
}

// valueOf writes the texts of a parameter as its schema wants them: as text, or, where
// it takes none, as the numbers or booleans that they are. Of a list each item is
// written so.
func (c *check) valueOf(texts []string) []byte {
	quoted, bare := c.written(texts, false), c.written(texts, true)
	if c.judge(quoted) != "" && c.judge(bare) == "" {
		return bare
	}
	return quoted
}

func (c *check) written(texts []string, bare bool) []byte {
	var b []byte
	list := slices.Contains(c.types, "array")
	for i, text := range texts {
		if i > 0 {
			b = append(b, ',')
		}
		if bare && (text == "true" || text == "false" || jsonNumber.MatchString(text)) {
			b = append(b, text...)
		} else {
			b = appendString(b, text)
		}
	}
	if list {
		return append(append([]byte{'['}, b...), ']')
	}
	return b
}
