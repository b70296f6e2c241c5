package registry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Places of a parameter.
const (
	InPath   = "path"
	InQuery  = "query"
	InBody   = "body"
	InHeader = "header"
)

// Param is one declared parameter of an action.
type Param struct {
	Name     string
	In       string // InPath, InQuery, InBody or InHeader
	Required bool
	Schema   json.RawMessage // JSON Schema of the value
}

// Action is one declared operation of a service. It is immutable, and Target
// may be called from many goroutines.
type Action struct {
	Name   string
	Method string
	Pos    Position

	service *Service
	path    string
	parts   []part
	params  []Param
	checks  []check        // of params, by the same index
	index   map[string]int // name -> index in params

	// What Target would otherwise work out for each call.
	prefix     string // scheme, host and the escaped base path
	baseLength int    // of that path alone
	slashes    int    // of the escaped path, the base's included
	hasBody    bool   // some parameter goes into the body
	segments   []segment
	described  bool // the file says which parameters there are
}

// Path returns the path template as declared, below the service's base path.
func (a *Action) Path() string { return a.path }

// Params returns the declared parameters in the order of the file. The caller
// must not change them.
func (a *Action) Params() []Param { return a.params }

// prepare works out once what every Target needs.
func (a *Action) prepare() {
	a.index = make(map[string]int, len(a.params))
	for i, p := range a.params {
		a.index[p.Name] = i
		a.hasBody = a.hasBody || p.In == InBody
	}
	if base := a.service.BaseURL; base != nil {
		a.prefix = base.Scheme + "://" + base.Host + base.EscapedPath()
		a.baseLength = len(base.EscapedPath())
		a.slashes = strings.Count(base.EscapedPath(), "/")
	}
	a.segments = segments(a.parts)
	for _, p := range a.parts {
		a.slashes += strings.Count(p.literal, "/")
	}
}

// Target is an upstream request without its credential: what an action makes
// of a caller's parameters.
type Target struct {
	Method string
	URL    *url.URL
	Header http.Header // the header parameters, and Content-Type where there is a body; nil when empty
	Body   []byte      // nil: no body
}

// ParamError says that the caller's parameters are at fault.
type ParamError struct {
	Param  string // "" when the parameters as a whole are at fault
	Reason string
	// Unknown says that Param is no name of the action's, but whatever the caller wrote.
	Unknown bool
}

func (e *ParamError) Error() string {
	if e.Param == "" {
		return "params: " + e.Reason
	}
	return fmt.Sprintf("params.%s: %s", e.Param, e.Reason)
}
